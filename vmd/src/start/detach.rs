//! `--detach`: the daemon runs in the background, and the command ends once it is ready.
//!
//! The command starts itself again, with a pipe as standard output, and waits for one line on it:
//! that the daemon is ready, or why it is not; before it there may be notes. So a script that runs `vmd --detach` knows when it
//! can go on, and errors are seen where the command was given.

use anyhow::{Context, bail};
use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    process::{Command, Stdio},
};

/// What a daemon that is ready says.
const READY: &str = "ready";
/// Begins a line that is to be shown while the daemon is awaited.
const NOTE: &str = "note: ";

/// In the command: starts the daemon and waits until it is ready.
///
/// # Errors
/// What the daemon says, or that it ended without a word.
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
/// What the system says.
pub fn leave_terminal() -> anyhow::Result<()> {
    rustix::process::setsid().context("cannot leave the terminal")?;
    Ok(())
}

/// In the daemon: tells the command, which then ends, that it is ready or why it is not. The pipe
/// is closed, so that nobody waits for its end.
///
/// # Errors
/// What the system says.
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

/// In the daemon: lets the command show what takes its time.
pub fn note(text: &str) {
    say(&format!("{NOTE}{text}"));
}

/// A command that was killed meanwhile is no reason to end.
fn say(line: &str) {
    let mut stdout = io::stdout();
    if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        log::info!("the command that started this daemon is gone: {error}");
    }
}
