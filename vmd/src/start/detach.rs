//! `--detach`: the daemon runs in the background, and the command ends once it is ready.
//!
//! The command starts its own program again as the daemon, with a pipe as standard output. It waits
//! for a line on the pipe: that the daemon is ready, or why it is not. Notes may come before that
//! line. So a script that runs `vmd --detach` knows when it can go on, and errors appear where the
//! command was given.

use anyhow::{Context, bail};
use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    process::{Command, Stdio},
};

/// The line of a daemon that is ready.
const READY: &str = "ready";
/// Prefix of a line that the command shows while it waits.
const NOTE: &str = "note: ";

/// In the command: starts the daemon and waits until it is ready.
///
/// # Errors
/// The error that the daemon reports, or the fact that it ended without a report.
pub fn start() -> anyhow::Result<()> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut child = Command::new(program)
        .args(env::args_os().skip(1))
        .arg("--detached")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the daemon")?;
    let answer = child.stdout.take().context("no pipe to the daemon")?;
    for line in BufReader::new(answer).lines() {
        let line = line.context("cannot hear the daemon")?;
        match line.strip_prefix(NOTE) {
            Some(note) => eprintln!("vmd: {note}"),
            None if line == READY => return Ok(()),
            None => bail!("{line}"),
        }
    }
    bail!("the daemon ended ({}) without a word", child.wait()?)
}

/// In the daemon: leaves the terminal of the command.
///
/// # Errors
/// The error of the system call.
pub fn leave_terminal() -> anyhow::Result<()> {
    rustix::process::setsid().context("cannot leave the terminal")?;
    Ok(())
}

/// In the daemon: reports to the command that the daemon is ready, or why it is not; the command
/// ends then. The pipe is closed, so that no process waits for its end.
///
/// # Errors
/// The error of the system call.
pub fn tell(result: Result<(), &anyhow::Error>) -> anyhow::Result<()> {
    let text = match result {
        Ok(()) => READY.to_owned(),
        Err(error) => format!("{error:#}").replace('\n', " "),
    };
    say(&text);
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(())
}

/// In the daemon: has the command show a note about a step that takes time.
pub fn note(text: &str) {
    say(&format!("{NOTE}{text}"));
}

/// A write error is ignored: a command that was killed meanwhile is no reason to end.
fn say(line: &str) {
    let mut stdout = io::stdout();
    if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        log::info!("the command that started this daemon is gone: {error}");
    }
}
