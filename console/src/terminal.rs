//! The terminal of the console, if any: its size, its raw mode, and whether this process may read
//! it.

use rustix::{
    process::getpgrp,
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr},
};
use std::{collections::HashMap, fs, io};
use vm_wire::console::WindowSize;

/// Whether standard input and output are both a terminal, and this process is in its foreground.
pub fn is_ours() -> bool {
    isatty(io::stdin()) && isatty(io::stdout()) && in_foreground()
}

/// Whether this process may read the terminal without being stopped. True without a terminal.
pub fn in_foreground() -> bool {
    match tcgetpgrp(io::stdin()) {
        Ok(group) => group == getpgrp(),
        Err(_) => true,
    }
}

/// Whether the process group is orphaned: no shell could continue this process after a stop. The
/// kernel ignores stops from a terminal for such a group.
pub fn is_orphaned() -> bool {
    let group = getpgrp().as_raw_nonzero().get();
    let processes: HashMap<i32, Stat> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Stat::of(pid)?)))
        .collect();
    // Without /proc the function assumes a shell.
    let mut members = processes.values().filter(|it| it.group == group).peekable();
    members.peek().is_some()
        && members.all(|member| {
            let parent = processes.get(&member.parent);
            parent.is_none_or(|it| it.group == group || it.session != member.session)
        })
}

/// The parent, process group and session of a process, as `/proc` has them.
struct Stat {
    parent: i32,
    group: i32,
    session: i32,
}

impl Stat {
    fn of(pid: i32) -> Option<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the bracket may contain blanks and brackets.
        let mut words = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
        let mut number = || words.next()?.parse().ok();
        Some(Stat {
            parent: number()?,
            group: number()?,
            session: number()?,
        })
    }
}

/// The size of the terminal.
pub fn size() -> Option<WindowSize> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    Some(WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// The terminal in raw mode: every key, Ctrl-C too, is a byte. Dropping it restores the former mode.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
    /// Between [`Raw::pause`] and [`Raw::again`].
    paused: bool,
}

impl Raw {
    /// Enters raw mode.
    ///
    /// # Errors
    /// If standard input is no terminal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = Raw {
            before,
            paused: true,
        };
        raw.again()?;
        Ok(raw)
    }

    /// Enters raw mode again after [`Raw::pause`], as soon as this process is in the foreground: setting
    /// modes from the background would stop it.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn again(&mut self) -> io::Result<()> {
        if !self.paused || !in_foreground() {
            return Ok(());
        }
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        self.paused = false;
        Ok(())
    }

    /// Restores the former mode for a while.
    pub fn pause(&mut self) {
        if !self.paused {
            // Fails only for a terminal that is gone.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
            self.paused = true;
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.pause();
    }
}
