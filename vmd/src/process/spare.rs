//! How much memory there is to spare, and which process goes first where there is none.
//!
//! What is spare is the least of what the host has and what each control group leaves that this daemon
//! is in (cgroups(7)): a batch system or a container limits a job so. Both versions of control groups
//! are looked at, and every group above, because a limit holds for all that is below. Files in the
//! kernel's cache count as spare: they make room for whoever needs it.
//!
//! Where memory runs out all the same, the kernel kills the process that has most, and adds what its
//! `oom_score_adj` says (proc(5)): thousandths of all memory. A user may only raise that. So a daemon
//! keeps what it was started with, its tasks start with [`TASK_SCORE`] more, and what can be done again
//! (a process that carries an image, one that is becoming a task, a copy that writes an image) says
//! that it goes first. All of that is lost with a daemon, so it goes last.

use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, getpid},
};
use std::{
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};
use vm_machine::Room;

/// Added to a daemon's score for its tasks. Thousandths of all memory that they may use.
pub const TASK_SCORE: i32 = 300;
/// The score of what goes first: the highest there is.
pub const SCORE_MAX: i32 = 1000;
/// This process's own.
const OWN: &str = "/proc/self/oom_score_adj";
/// From here on a limit of version 1 is none: it says so with the largest number of pages. Bytes.
const NO_LIMIT: u64 = 1 << 60;

/// How many bytes the host and its control groups have to spare; nothing where the system does not
/// tell.
pub fn room() -> Option<Room> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let of_groups = groups(Path::new("/proc/self"));
    let left = of_groups.iter().filter_map(Group::spare).min();
    Some(Room {
        host: available(&text)?,
        groups: left.unwrap_or(u64::MAX),
    })
}

/// What the host has to spare, by /proc/meminfo.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The control group of this process in one hierarchy that may limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    version: Version,
    /// Where the hierarchy is mounted.
    mounted: PathBuf,
    /// The group, below that.
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The groups of the process that has this folder in /proc, of both versions.
fn groups(process: &Path) -> Vec<Group> {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let (of_process, mounts) = (read("cgroup"), read("mountinfo"));
    let of = |(version, path): (Version, &str)| {
        let (root, mounted) = mounts.lines().find_map(|line| mount(line, version))?;
        let path = Path::new(path).strip_prefix(&root).ok();
        // What lies outside of what is mounted here cannot be looked at, but what is mounted can.
        let path = path
            .filter(|path| !path.starts_with(".."))
            .unwrap_or(Path::new(""));
        Some(Group {
            version,
            mounted,
            path: path.to_owned(),
        })
    };
    of_process
        .lines()
        .filter_map(hierarchy)
        .filter_map(of)
        .collect()
}

/// A line of /proc/PID/cgroup, if memory may be limited in that hierarchy: number, controllers, path.
fn hierarchy(line: &str) -> Option<(Version, &str)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    match controllers.split(',').any(|name| name == "memory") {
        true => Some((Version::One, path)),
        false => (number == "0" && controllers.is_empty()).then_some((Version::Two, path)),
    }
}

/// A line of /proc/PID/mountinfo, if such a hierarchy is mounted there: its group that is seen as the
/// root, and where.
fn mount(line: &str, version: Version) -> Option<(PathBuf, PathBuf)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let is_it = match (version, file_system.next()?) {
        (Version::Two, "cgroup2") => true,
        (Version::One, "cgroup") => file_system.nth(1)?.split(',').any(|name| name == "memory"),
        _ => false,
    };
    let mut words = mount.split(' ').skip(3);
    let (root, mounted) = (words.next()?, words.next()?);
    is_it.then(|| (unescaped(root), unescaped(mounted)))
}

/// A path of mountinfo, where blanks and the like are a backslash and three octal digits.
fn unescaped(word: &str) -> PathBuf {
    let bytes = word.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = word.get(at + 1..at + 4);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (bytes[at], byte) {
            (b'\\', Some(byte)) => {
                path.push(byte);
                at += 4;
            }
            (byte, _) => {
                path.push(byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(path).into()
}

impl Group {
    /// What the group, and all that it is in, leave to be used, if any has a limit.
    fn spare(&self) -> Option<u64> {
        let all = self.path.ancestors();
        let all = all.map(|group| self.mounted.join(group));
        all.filter_map(|folder| self.version.spare_of(&folder))
            .min()
    }
}

impl Version {
    /// What a group leaves, without those that it is in.
    fn spare_of(self, group: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        // "max" is no number: it is no limit.
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (limits, used, files): (&[&str], _, _) = match self {
            Version::One => (
                &["memory.limit_in_bytes"],
                "memory.usage_in_bytes",
                ["total_active_file", "total_inactive_file"],
            ),
            // Above "high" the group is slowed down until it uses less.
            Version::Two => (
                &["memory.max", "memory.high"],
                "memory.current",
                ["active_file", "inactive_file"],
            ),
        };
        let limits = limits.iter().filter_map(|name| number(name));
        let limit = limits.filter(|limit| *limit < NO_LIMIT).min()?;
        let used = number(used)?;
        let stat = read("memory.stat").unwrap_or_default();
        let pairs = stat.lines().filter_map(|line| line.split_once(' '));
        let cached = pairs.filter(|(name, _)| files.contains(name));
        let cached: u64 = cached.filter_map(|(_, it)| it.parse::<u64>().ok()).sum();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// Sets the score of this process, between fork and exec too: it makes system calls only.
pub fn begin_with(score: Digits) {
    let file = open(OWN, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    // Where that is not allowed, it goes when others do.
    let _ = file.and_then(|file| rustix::io::write(file, &score.0));
}

/// A score in words, which may be used where nothing may be allocated.
#[derive(Debug, Clone, Copy)]
pub struct Digits([u8; 5]);

impl From<i32> for Digits {
    /// Of -1000 to 1000.
    fn from(score: i32) -> Self {
        let mut digits = [b' '; 5];
        let text = format!("{score}");
        let len = text.len().min(digits.len());
        digits[..len].copy_from_slice(&text.as_bytes()[..len]);
        Digits(digits)
    }
}

/// A process that was started to become a task is one now: it has the score of tasks, unless it has set
/// one of its own.
pub fn becomes_task(process: Pid) {
    if score(process).is_ok_and(|score| score == SCORE_MAX) {
        // Where that is not allowed, it goes first as before.
        let _ = set_score(process, task_score());
    }
}

/// The score that this daemon's tasks start with.
pub fn task_score() -> i32 {
    let own = score(getpid()).unwrap_or(0);
    (own + TASK_SCORE).min(SCORE_MAX)
}

/// The score of a process.
///
/// # Errors
/// The error of the system call.
pub fn score(process: Pid) -> io::Result<i32> {
    let text = fs::read_to_string(score_file(process))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Sets the score of a process.
///
/// # Errors
/// What the system says, such as that it would be lower than this user may have it.
pub fn set_score(process: Pid, score: i32) -> io::Result<()> {
    fs::write(score_file(process), score.to_string())
}

fn score_file(process: Pid) -> PathBuf {
    format!("/proc/{}/oom_score_adj", process.as_raw_pid()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of which /proc says this, in a hierarchy of control groups that is a folder.
    fn process(cgroup: &str, mountinfo: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().display().to_string().replace(' ', "\\040");
        let write = |name, text: &str| fs::write(folder.path().join(name), text).expect("room");
        write("cgroup", cgroup);
        write("mountinfo", &mountinfo.replace("HERE", &here));
        folder
    }

    /// What the groups of a process leave.
    fn spare(process: &Path) -> Option<u64> {
        groups(process).iter().filter_map(Group::spare).min()
    }

    const TWO: &str = "24 1 0:22 / HERE rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const ONE: &str = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                       31 23 0:27 / HERE rw,nosuid shared:9 - cgroup cgroup rw,memory\n";

    #[test]
    fn every_group_of_version_2_that_a_daemon_is_in_counts() {
        let process = process("0::/job/step\n", TWO);
        let groups = process.path();
        fs::create_dir_all(groups.join("job/step")).expect("folders");
        assert_eq!(spare(groups), None);
        let write = |name: &str, text| fs::write(groups.join(name), text).expect("room");
        write("job/step/memory.max", "max\n");
        write("job/step/memory.high", "max\n");
        write("job/step/memory.current", "10\n");
        assert_eq!(spare(groups), None);
        write("job/memory.max", "100\n");
        write("job/memory.current", "30\n");
        assert_eq!(spare(groups), Some(70));
        let stat = "anon 5\nactive_file 8\ninactive_file 12\n";
        write("job/memory.stat", stat);
        assert_eq!(spare(groups), Some(90));
        write("job/memory.high", "60\n");
        assert_eq!(spare(groups), Some(50));
        write("job/step/memory.max", "5\n");
        assert_eq!(spare(groups), Some(0));
    }

    #[test]
    fn every_group_of_version_1_that_a_daemon_is_in_counts() {
        let process = process("5:cpu,cpuacct:/other\n3:memory:/job/step\n0::/\n", ONE);
        let groups = process.path();
        fs::create_dir_all(groups.join("job/step")).expect("folders");
        let write = |name: &str, text| fs::write(groups.join(name), text).expect("room");
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("memory.usage_in_bytes", "1000\n");
        assert_eq!(spare(groups), None);
        write("job/memory.limit_in_bytes", "100\n");
        write("job/memory.usage_in_bytes", "90\n");
        assert_eq!(spare(groups), Some(10));
        // What is of the group alone does not count, but what is of all below it, too.
        let stat = "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 5\n";
        write("job/memory.stat", stat);
        assert_eq!(spare(groups), Some(35));
        write("job/step/memory.limit_in_bytes", "50\n");
        write("job/step/memory.usage_in_bytes", "30\n");
        assert_eq!(spare(groups), Some(20));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        // Without a namespace of groups, the path is that of the host; with one, it is below the root,
        // or begins with what lies outside.
        for (path, root) in [
            ("/docker/7/step", "/docker/7"),
            ("/step", "/"),
            ("/../other", "/"),
        ] {
            let mount = format!("31 23 0:27 {root} HERE ro - cgroup cgroup rw,memory\n");
            let process = process(&format!("3:memory:{path}\n"), &mount);
            let groups = process.path();
            fs::write(groups.join("memory.limit_in_bytes"), "100\n").expect("room");
            fs::write(groups.join("memory.usage_in_bytes"), "40\n").expect("room");
            assert_eq!(spare(groups), Some(60), "{path} in {root}");
        }
    }

    #[test]
    fn a_host_tells_what_it_has_to_spare() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:    7 kB\n"),
            Some(7168)
        );
        assert!(room().expect("Linux tells").host > 1 << 20);
    }

    #[test]
    fn a_process_that_goes_first_may_be_as_urgent_as_before_again() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        let pid = Pid::from_child(&child);
        let before = score(pid);
        let raised = set_score(pid, SCORE_MAX).and_then(|()| score(pid));
        becomes_task(pid);
        let lowered = score(pid);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(
            before.expect("Linux tells"),
            score(getpid()).expect("Linux tells")
        );
        assert_eq!(raised.expect("it may be raised"), SCORE_MAX);
        assert_eq!(lowered.expect("it was as low"), task_score());
    }
}
