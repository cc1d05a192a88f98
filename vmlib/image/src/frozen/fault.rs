//! Errors without an allocator: made in a signal handler, and reported later.

use crate::raw::sys::Errno;
use std::{fmt, fmt::Write as _};

/// Bytes of a message; longer messages are cut off.
const TEXT_MAX: usize = 400;

/// A short text that needs no allocator.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; TEXT_MAX],
    len: usize,
    passes: bool,
}

impl Text {
    /// Formats a text; the part beyond the limit is cut off.
    pub fn of(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Text {
            bytes: [0; TEXT_MAX],
            len: 0,
            passes: false,
        };
        // Writing never fails: the part that does not fit is cut off.
        let _ = text.write_fmt(arguments);
        text
    }

    /// Marks the text as a temporary reason.
    pub(crate) fn that_passes(self) -> Self {
        Text {
            passes: true,
            ..self
        }
    }

    /// Whether the reason is temporary: the same save may succeed later.
    pub fn passes(&self) -> bool {
        self.passes
    }

    /// The text as UTF-8, cut at a character.
    pub fn as_str(&self) -> &str {
        match std::str::from_utf8(&self.bytes[..self.len]) {
            Ok(text) => text,
            // The text was cut within a character.
            Err(error) => {
                std::str::from_utf8(&self.bytes[..error.valid_up_to()]).unwrap_or_default()
            }
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_MAX - self.len;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Why a save failed.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The process has state that cannot be saved.
    Refused(Text),
    /// A system call of a step failed.
    Failed(Text, Errno),
}

impl Fault {
    /// Step and cause in one line.
    pub fn text(&self) -> Text {
        match self {
            Fault::Refused(text) => *text,
            Fault::Failed(text, errno) => {
                let (text, errno) = (text.as_str(), errno.0);
                Text::of(format_args!("{text}: error {errno}"))
            }
        }
    }
}

/// The result of a step.
pub type Outcome<T> = Result<T, Fault>;

/// Returns a refusal, with a text as for `format!`.
macro_rules! refuse {
    ($($text:tt)*) => {
        Err($crate::frozen::fault::Fault::Refused($crate::frozen::fault::Text::of(format_args!($($text)*))))
    };
}
pub(crate) use refuse;

/// Returns a refusal for a temporary reason.
macro_rules! refuse_now {
    ($($text:tt)*) => {{
        let text = $crate::frozen::fault::Text::of(format_args!($($text)*));
        Err($crate::frozen::fault::Fault::Refused(text.that_passes()))
    }};
}
pub(crate) use refuse_now;

/// Adds the step to the error of a system call.
pub trait Step<T> {
    /// `what` names the step for the user.
    fn step(self, what: &str) -> Outcome<T>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, what: &str) -> Outcome<T> {
        self.map_err(|errno| Fault::Failed(Text::of(format_args!("{what}")), errno))
    }
}

/// A path or name for display; bytes that are not UTF-8 are replaced by U+FFFD.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char('\u{fffd}')?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let text = Text::of(format_args!("{}", "ä".repeat(TEXT_MAX)));
        assert_eq!(text.as_str(), "ä".repeat(TEXT_MAX / 2));
        let text = Text::of(format_args!("x{}", "ä".repeat(TEXT_MAX)));
        assert_eq!(text.as_str().len(), TEXT_MAX - 1);
    }

    #[test]
    fn a_name_that_is_not_utf_8_can_be_shown() {
        assert_eq!(Shown(b"a\xffb").to_string(), "a\u{fffd}b");
    }
}
