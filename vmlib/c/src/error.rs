//! The error of a call: a code for the program, and a text for people that says what to do.
//!
//! The words of the last failed call of each thread are kept for `vm_last_error`.

use crate::{
    code::{Code, Status},
    interruption,
};
use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    /// The words of the last failed call.
    static LAST: RefCell<CString> = RefCell::default();
}

/// A failure of a call.
#[derive(Debug)]
pub struct Error {
    code: Code,
    text: String,
}

impl Error {
    /// A failure with that code and these words.
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        Error {
            code,
            text: text.into(),
        }
    }

    /// A bad argument; the words say which, and what it must be.
    pub fn invalid(text: impl Into<String>) -> Error {
        Error::new(Code::Invalid, text)
    }

    /// A failure with that code and the words of an error.
    pub fn of(code: Code, error: &impl Display) -> Error {
        Error::new(code, error.to_string())
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Error {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = words.unwrap_or("a panic without words");
        let text = format!("the library has a fault: {words}; please report it");
        Error::new(Code::Internal, text)
    }

    /// Keeps the words for `vm_last_error`, and returns the code.
    fn tell(self) -> c_int {
        let text: String = self.text.chars().filter(|it| *it != '\0').collect();
        let text = CString::new(text).unwrap_or_default();
        // Not there any more in a thread that is ending: then nobody can ask for it either.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        self.code as c_int
    }
}

/// The words about the last call of this thread that failed.
#[unsafe(no_mangle)]
pub extern "C" fn vm_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ptr());
    text.unwrap_or(c"".as_ptr())
}

/// Makes a call of the library: its status or the code of its error.
pub fn call(body: impl FnOnce() -> Result<Status, Error>) -> c_int {
    value(body, |status| status as c_int, |code| code)
}

/// Makes a call that returns a value: `good` of it, or `bad` of the code of its error.
pub fn value<T, R>(
    body: impl FnOnce() -> Result<T, Error>,
    good: impl FnOnce(T) -> R,
    bad: impl FnOnce(c_int) -> R,
) -> R {
    match catch_unwind(AssertUnwindSafe(|| interruption::within(body))) {
        Ok(Ok(value)) => good(value),
        Ok(Err(error)) => bad(error.tell()),
        Err(panic) => bad(Error::of_panic(&*panic).tell()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// The words of the last failure of this thread.
    fn last_words() -> String {
        LAST.with(|last| CStr::to_string_lossy(&last.borrow()).into_owned())
    }

    #[test]
    fn a_panic_ends_at_the_border_as_a_code_with_its_words() {
        let code = call(|| panic!("number {}", 7));
        assert_eq!(code, Code::Internal as c_int);
        assert!(last_words().contains("number 7"), "{}", last_words());
    }

    #[test]
    fn each_thread_has_its_own_last_words() {
        call(|| Err(Error::invalid("of this thread")));
        let other = std::thread::spawn(|| {
            assert_eq!(last_words(), "");
            call(|| Err(Error::invalid("of\0 another")))
        });
        assert_eq!(other.join().expect("no panic"), Code::Invalid as c_int);
        assert_eq!(last_words(), "of this thread");
    }
}
