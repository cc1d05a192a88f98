//! How the restorer ends when the image cannot be restored: with a message on standard error.

use crate::raw::sys;
use core::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

/// Standard error.
struct Stderr;

impl core::fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // There is no other place to tell it.
        let _ = sys::write(2, text.as_bytes());
        Ok(())
    }
}

/// This process or its helper has said why it ends: what it held nobody gives back.
pub static ENDS: AtomicBool = AtomicBool::new(false);

/// Says why, and ends.
pub fn end_with(why: core::fmt::Arguments<'_>) -> ! {
    let _ = writeln!(Stderr, "the image cannot be restored: {why}");
    ENDS.store(true, SeqCst);
    sys::exit_group(124)
}

macro_rules! die {
    ($($text:tt)*) => { $crate::failure::end_with(format_args!($($text)*)) };
}
pub(crate) use die;
