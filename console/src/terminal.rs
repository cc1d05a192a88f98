//! The terminal that the console has, if any: its size, its raw mode, whether it is ours to read.

use rustix::{
    process::getpgrp,
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr},
};
use std::io;
use vm_wire::console::WindowSize;

/// Whether standard input and output are both a terminal, and this process is in its foreground.
pub fn is_ours() -> bool {
    isatty(io::stdin()) && isatty(io::stdout()) && in_foreground()
}

/// Whether reading the terminal would not stop this process. True where there is no terminal.
pub fn in_foreground() -> bool {
    match tcgetpgrp(io::stdin()) {
        Ok(group) => group == getpgrp(),
        Err(_) => true,
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

/// The terminal in raw mode: every key, Ctrl-C too, is a byte. Put back when dropped.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Enters raw mode.
    ///
    /// # Errors
    /// When standard input is no terminal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let raw = Raw { before };
        raw.again()?;
        Ok(raw)
    }

    /// Enters raw mode again after [`Raw::pause`].
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn again(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &raw)?)
    }

    /// Gives the terminal back for a while.
    pub fn pause(&self) {
        // A terminal that is gone needs no care.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.pause();
    }
}
