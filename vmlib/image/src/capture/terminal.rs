//! The modes of the terminal that a process has: whether the terminal echoes typed characters, and
//! whether it passes them on line by line. A program that reads a password or fills the screen has
//! set them.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::raw::sys::{self, nr};

const TCGETS: usize = 0x5401;
const TCSETS: usize = 0x5402;
const TIOCGPGRP: usize = 0x540f;

/// `struct termios` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    line: u8,
    characters: [u8; 19],
}

/// The modes of the terminals at standard input, output and error; `None` for a stream without a
/// terminal of this process.
pub type Terminals = [Option<Modes>; 3];

fn modes(fd: usize) -> Option<Modes> {
    let mut modes = Modes::default();
    // SAFETY: the kernel writes the modes.
    let told = unsafe { sys::call3(nr::IOCTL, fd, TCGETS, &raw mut modes as usize) };
    (told == 0).then_some(modes)
}

/// Whether the process is in the terminal's foreground. The modes of a job in the background are
/// those of another job.
fn is_in_front(fd: usize) -> bool {
    const GETPGRP: usize = 111;
    let mut group = 0i32;
    // SAFETY: the kernel writes a number.
    let told = unsafe { sys::call3(nr::IOCTL, fd, TIOCGPGRP, &raw mut group as usize) };
    // The call fails if the terminal is not that of this session; then there are no jobs.
    // SAFETY: the call only reads.
    told != 0 || group as isize == unsafe { sys::call0(GETPGRP) }
}

/// The modes of the process's terminals.
pub fn capture() -> Terminals {
    [0, 1, 2].map(|fd| modes(fd).filter(|_| is_in_front(fd)))
}

/// Sets the modes of the terminals that the restored process has. The settings of the line, such as
/// its speed, stay as they are.
pub fn give_modes(terminals: &Terminals) {
    for (fd, saved) in terminals.iter().enumerate() {
        let (Some(saved), Some(here)) = (saved, modes(fd)) else {
            continue;
        };
        let wanted = Modes {
            control: here.control,
            line: here.line,
            ..*saved
        };
        if wanted != here && is_in_front(fd) {
            // SAFETY: the kernel reads the modes. A terminal that was closed needs none.
            unsafe { sys::call3(nr::IOCTL, fd, TCSETS, &raw const wanted as usize) };
        }
    }
}
