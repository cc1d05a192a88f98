//! Reads facts of processes from /proc: the resources that tasks use, the session and the process group
//! of a process, and the task's token in its environment.

use rustix::process::Pid;
use std::{fs, str::FromStr, thread, time::Duration};
use vm_wire::{Tid, peer::UsageRow, task::ENV_TOKEN};

/// How often an environment that is empty is read again, and the pause before each: the environment
/// of a process is empty for a moment while the process becomes another program.
const EMPTY_LOOKS: u32 = 20;
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// A living process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The process number.
    pub pid: Pid,
    /// The parent process; none if the parent is outside of this namespace.
    pub parent: Option<Pid>,
    /// The leaders of its process group and session.
    pub leaders: Leaders,
}

/// The leaders of a process's group and session. None if the leader is outside of this namespace of
/// processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaders {
    /// The first process of the process group.
    pub group: Option<Pid>,
    /// The first process of the session.
    pub session: Option<Pid>,
}

impl Leaders {
    /// Whether one of the two leaders is such a process.
    pub fn any(self, is_one: impl Fn(Pid) -> bool) -> bool {
        self.group.is_some_and(&is_one) || self.session.is_some_and(is_one)
    }
}

/// All processes that have not ended, as far as they could be read.
pub fn all() -> Vec<Process> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    numbers.filter_map(pid_of).filter_map(living).collect()
}

/// A process that has not ended.
pub fn living(pid: Pid) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    process(pid, &stat)
}

/// A number of a process that the kernel has written: `None` for 0, and for -1, which stands for the group
/// and the session of a process that is ending.
fn pid_of(number: i32) -> Option<Pid> {
    (number > 0).then(|| Pid::from_raw(number)).flatten()
}

/// Parses the fields of proc(5): the state is field 3, the parent 4, the process group 5, the session
/// 6, the number of threads 20.
fn process(pid: Pid, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
    // A zombie has ended and only waits to be waited for. If only the first thread has ended, the
    // process lives on with its other threads.
    let lives = !matches!(*fields.first()?, "Z" | "X") || number(20)? > 1;
    lives.then_some(Process {
        pid,
        parent: pid_of(number(4)?),
        leaders: Leaders {
            group: pid_of(number(5)?),
            session: pid_of(number(6)?),
        },
    })
}

/// The token of a task in the initial environment of a process. The call may take long, or never
/// return: see [`crate::process::tokens`].
pub fn token(pid: Pid) -> Option<u64> {
    let read = || fs::read(format!("/proc/{pid}/environ")).ok();
    let mut environment = read()?;
    for _ in 0..EMPTY_LOOKS {
        if environment.is_empty() {
            thread::sleep(EMPTY_PAUSE);
            environment = read()?;
        }
    }
    let mut variables = environment.split(|byte| *byte == 0);
    let value =
        variables.find_map(|it| it.strip_prefix(ENV_TOKEN.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// One row for each process that still exists.
pub fn measure(tasks: &[(Tid, u32)]) -> Vec<UsageRow> {
    let tick_ms = 1000 / rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    tasks
        .iter()
        .filter_map(|(tid, pid)| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            parse(*tid, *pid, &stat, tick_ms, page)
        })
        .collect()
}

/// The leaders of a process's group and session. None if the process is gone.
pub fn leaders(pid: Pid) -> Option<Leaders> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(Leaders {
        group: pid_of(field_of(&stat, 5)?),
        session: pid_of(field_of(&stat, 6)?),
    })
}

/// Bytes of memory that a process has.
pub fn resident(pid: Pid) -> Option<u64> {
    memory(pid).map(|(resident, _)| resident)
}

/// Bytes of memory that a process has, and how many of them are its own, neither of files nor
/// shared.
pub fn memory(pid: Pid) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split(' ').skip(1).map(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    let page = rustix::param::page_size() as u64;
    Some((resident * page, resident.saturating_sub(shared) * page))
}

/// Number of page faults of a process that needed no disk. A write to a page that the process
/// shares with a copy of itself causes one.
pub fn faults(pid: Pid) -> Option<u64> {
    field(pid, 10)
}

/// Whether a process is ending or has ended, even if its parent cannot wait for it yet. Its files
/// are closed by then.
pub fn is_ending(pid: Pid) -> bool {
    const PF_EXITING: u32 = 0x4;
    field(pid, 9).is_none_or(|flags: u32| flags & PF_EXITING != 0)
}

/// A numeric field of proc(5) after the program's name.
fn field<T: FromStr>(pid: Pid, number: usize) -> Option<T> {
    field_of(
        &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
        number,
    )
}

fn field_of<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

/// Parses the fields of proc(5): the state is field 3, user and system time are 14 and 15, resident
/// pages 24. Field 2 is the program's name in parentheses, which may hold spaces and parentheses.
fn parse(tid: Tid, pid: u32, stat: &str, tick_ms: u64, page: u64) -> Option<UsageRow> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(UsageRow {
        tid,
        pid,
        cpu_ms: (number(14)? + number(15)?) * tick_ms,
        memory: number(24)? * page,
        state: fields.first()?.chars().next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;

    #[test]
    fn a_living_process_is_measured_and_a_dead_one_left_out() {
        let me = std::process::id();
        let rows = measure(&[(Tid(1), me), (Tid(2), u32::MAX)]);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].tid, rows[0].pid), (Tid(1), me));
        assert!(rows[0].memory > 0 && "RS".contains(rows[0].state));
    }

    #[test]
    fn a_process_is_ending_once_its_files_are_closed() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("cat runs");
        let pid = Pid::from_child(&child);
        assert!(!is_ending(pid));
        child.kill().expect("it can be killed");
        let mut output = child.stdout.take().expect("a pipe");
        let read = std::io::Read::read(&mut output, &mut [0]);
        assert_eq!(read.expect("the end"), 0);
        // The process was not waited for.
        assert!(is_ending(pid));
        child.wait().expect("it has ended");
        assert!(is_ending(pid));
    }

    #[test]
    fn memory_that_a_process_shares_with_files_is_not_its_own() {
        let (resident, own) = memory(rustix::process::getpid()).expect("numbers");
        assert!(0 < own && own < resident);
    }

    #[test]
    fn the_leaders_of_a_process_are_those_of_its_parent_unless_it_leads() {
        let me = rustix::process::getpid();
        let own = leaders(me).expect("it lives");
        for group in [None, Some(0)] {
            let mut command = std::process::Command::new("cat");
            command.stdin(std::process::Stdio::piped());
            if let Some(group) = group {
                command.process_group(group);
            }
            let mut child = command.spawn().expect("cat runs");
            let pid = Pid::from_child(&child);
            let expected = Leaders {
                group: if group.is_some() {
                    Some(pid)
                } else {
                    own.group
                },
                session: own.session,
            };
            assert_eq!(leaders(pid), Some(expected));
            assert_eq!(expected.any(|leader| leader == pid), group.is_some());
            child.kill().and_then(|()| child.wait()).expect("it ends");
            assert_eq!(leaders(pid), None);
        }
    }

    #[test]
    fn a_child_is_found_with_its_parent_and_the_token_of_its_environment() {
        let me = rustix::process::getpid();
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .env(ENV_TOKEN, "77")
            .spawn()
            .expect("cat runs");
        let pid = Pid::from_child(&child);
        let found = all().into_iter().find(|process| process.pid == pid);
        let found = found.expect("it lives");
        assert_eq!((found.parent, Some(found.leaders)), (Some(me), leaders(me)));
        assert_eq!(token(pid), Some(77));
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(living(pid).is_none() && token(pid).is_none());
    }

    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let pid = Pid::from_raw(7).expect("a number");
        let lives = |state: &str, threads: u32| {
            let between = "0 ".repeat(13);
            process(pid, &format!("7 (a) {state} 3 5 4 {between}{threads} 0 0")).is_some()
        };
        assert!(lives("S", 1) && lives("Z", 2));
        assert!(!lives("Z", 1) && !lives("X", 0));
    }

    #[test]
    fn the_kernel_knows_no_group_and_no_session_of_a_process_that_is_ending() {
        let pid = Pid::from_raw(7).expect("a number");
        let between = "0 ".repeat(13);
        let ending = process(pid, &format!("7 (a) S 0 -1 -1 {between}1 0 0"));
        let ending = ending.expect("it has not ended");
        let leaders = ending.leaders;
        assert_eq!(
            (ending.parent, leaders.group, leaders.session),
            (None, None, None)
        );
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_parsed() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) S (b) R {}", numbers.join(" "));
        let row = parse(Tid(1), 7, &stat, 10, 4096).expect("a row");
        assert_eq!((row.cpu_ms, row.memory, row.state), (290, 24 * 4096, 'R'));
    }
}
