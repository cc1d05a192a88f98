//! Commands of a peer: each in a process group of its own, with a time limit.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    fs::File,
    io::{self, Read, Seek},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};
use thiserror::Error;
use vm_examples::cluster::{Interrupt, family};

/// Interval at which the end of a command is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// Time in which a command may end after SIGTERM. A launcher ends its tasks meanwhile.
const GRACE: Duration = Duration::from_secs(2);
/// Bound on the output that is read. Bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Number of the last lines that an error shows.
const SHOWN: usize = 12;

/// Why a command of a peer has no output to use.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The program does not exist, or cannot be run.
    #[error("cannot run {program}: {cause}; check the installation of the peer")]
    Start { program: String, cause: io::Error },
    /// The kernel refused what watching a command takes.
    #[error("cannot watch {program}: {cause}")]
    Watch { program: String, cause: io::Error },
    /// The command has failed.
    #[error("{program} failed with {status}; it printed:\n{output}")]
    Failed {
        program: String,
        status: ExitStatus,
        output: String,
    },
    /// The command did not end, and was killed with its processes.
    #[error("{program} did not end within {limit:?} and was killed; it printed:\n{output}")]
    Hung {
        program: String,
        limit: Duration,
        output: String,
    },
    /// A signal has ended vmbench.
    #[error("interrupted")]
    Interrupted,
}

/// Runs a command without standard input. Returns its standard output and error.
pub fn run(
    command: &mut Command,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<String, LaunchError> {
    use std::os::unix::process::CommandExt;
    let program = command.get_program().to_string_lossy().into_owned();
    let watch = |cause| LaunchError::Watch {
        program: program.clone(),
        cause,
    };
    let mut output = tempfile::tempfile().map_err(watch)?;
    command.stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(watch)?);
    command.stderr(output.try_clone().map_err(watch)?);
    command.process_group(0);
    let child = command.spawn().map_err(|cause| LaunchError::Start {
        program: program.clone(),
        cause,
    })?;
    let mut group = Group(child);
    let end = group.wait(limit, interrupt).map_err(watch)?;
    if !matches!(end, End::Ended(status) if status.success()) {
        group.kill();
    }
    let output = text(&mut output).map_err(watch)?;
    match end {
        End::Ended(status) if status.success() => Ok(output),
        End::Ended(status) => Err(LaunchError::Failed {
            program,
            status,
            output: last_lines(&output),
        }),
        End::Limit => Err(LaunchError::Hung {
            program,
            limit,
            output: last_lines(&output),
        }),
        End::Interrupted => Err(LaunchError::Interrupted),
    }
}

/// How the wait for a command ended.
enum End {
    Ended(ExitStatus),
    Limit,
    Interrupted,
}

/// A command that leads a process group. It does not outlive this value.
struct Group(Child);

impl Group {
    fn wait(&mut self, limit: Duration, interrupt: &Interrupt) -> io::Result<End> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(End::Ended(status));
            }
            if interrupt.is_set() {
                return Ok(End::Interrupted);
            }
            if begin.elapsed() >= limit {
                return Ok(End::Limit);
            }
            thread::park_timeout(LOOK);
        }
    }

    /// Ends the command, its group and its descendants: a launcher may give each of its tasks a
    /// process group. Failures of single signals mean that a process has ended.
    fn kill(&mut self) {
        let Some(leader) = Pid::from_raw(self.0.id() as i32) else {
            return;
        };
        let mut descendants = family::of(self.0.id()).unwrap_or_default();
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process_group(leader, Signal::TERM);
            let begin = Instant::now();
            while begin.elapsed() < GRACE && matches!(self.0.try_wait(), Ok(None)) {
                thread::park_timeout(LOOK);
            }
            descendants.extend(family::of(self.0.id()).unwrap_or_default());
        }
        let _ = kill_process_group(leader, Signal::KILL);
        for descendant in descendants
            .into_iter()
            .filter(|pid| !family::has_ended(*pid))
        {
            if let Some(descendant) = Pid::from_raw(descendant as i32) {
                let _ = kill_process(descendant, Signal::KILL);
            }
        }
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.kill();
        }
    }
}

/// The text in a file of output.
fn text(output: &mut File) -> io::Result<String> {
    output.rewind()?;
    let mut bytes = Vec::new();
    output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(output: &str) -> String {
    let lines = Vec::from_iter(output.lines());
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than a shell takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn shell(text: &str, limit: Duration) -> Result<String, LaunchError> {
        let mut command = Command::new("sh");
        run(command.args(["-c", text]), limit, &Interrupt::default())
    }

    #[test]
    fn output_and_errors_are_returned_together() {
        let output = shell("echo one; echo two >&2", PATIENCE);
        assert_eq!(output.expect("an output"), "one\ntwo\n");
    }

    #[test]
    fn a_failure_tells_the_status_and_the_last_lines() {
        let error = shell("echo no such host; exit 3", PATIENCE).expect_err("it fails");
        let text = error.to_string();
        assert!(matches!(error, LaunchError::Failed { status, .. } if status.code() == Some(3)));
        assert!(text.ends_with("it printed:\nno such host"), "{text}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let mut command = Command::new("no/such/mpirun");
        let error = run(&mut command, PATIENCE, &Interrupt::default()).expect_err("no program");
        assert!(error.to_string().contains("no/such/mpirun"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_processes_that_left_its_group() {
        let hanging = "setsid tail -f /dev/null & echo $!; trap '' TERM; while :; do wait; done";
        let error = shell(hanging, Duration::from_millis(300)).expect_err("it hangs");
        let LaunchError::Hung { output, .. } = &error else {
            panic!("{error}");
        };
        let pid: u32 = output.trim().parse().expect("a process");
        let begin = Instant::now();
        while !family::has_ended(pid) {
            assert!(begin.elapsed() < PATIENCE, "{pid} lives");
        }
    }
}
