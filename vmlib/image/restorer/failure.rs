//! Ends the restorer with a message on standard error when the image cannot be restored.

use crate::raw::sys;
use core::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

struct Stderr;

impl core::fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // There is no other place for the message.
        let _ = sys::write(2, text.as_bytes());
        Ok(())
    }
}

/// Set when this process or its helper ends with an error: a lock that it held is never released.
pub static ENDS: AtomicBool = AtomicBool::new(false);

/// Reports why the image cannot be restored, and ends the process.
pub fn end_with(why: core::fmt::Arguments<'_>) -> ! {
    let _ = writeln!(Stderr, "the image cannot be restored: {why}");
    ENDS.store(true, SeqCst);
    sys::exit_group(124)
}

macro_rules! die {
    ($($text:tt)*) => { $crate::failure::end_with(format_args!($($text)*)) };
}
pub(crate) use die;
