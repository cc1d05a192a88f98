//! The interface for C: the functions that `include/vm_image.h` declares.

use crate::{
    frozen::signal::Section,
    options::{Carry, Options, Until},
    restore::start::RestoreOptions,
    save::interface::Saved,
};
use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    mem,
    os::fd::BorrowedFd,
};

/// The image is whole, and the saved process runs on.
const SAVED: i32 = 0;
/// The call returned in the restored process.
const BACK: i32 = 1;
/// The call failed; `vm_image_error` returns the reason.
const FAILED: i32 = -1;
/// `VM_IMAGE_FORKED`.
const FORKED: u32 = 1;
/// `VM_IMAGE_CARRY_FILES`.
const CARRY_FILES: u32 = 2;
/// `VM_IMAGE_ROUNDS`.
const ROUNDS: u32 = 4;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn failed(text: &str) -> i32 {
    let text: String = text.chars().filter(|letter| *letter != '\0').collect();
    let text = CString::new(text).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    FAILED
}

/// Saves this process into `fd`. Returns [`SAVED`], [`BACK`] or [`FAILED`].
///
/// # Safety
/// `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vm_image_save(fd: i32, flags: u32) -> i32 {
    if fd < 0 || flags & !(FORKED | CARRY_FILES | ROUNDS) != 0 {
        return failed("vm_image_save needs a descriptor and known flags");
    }
    let options = Options {
        forked: flags & FORKED != 0,
        carry: match flags & CARRY_FILES {
            0 => Carry::Nothing,
            _ => Carry::All,
        },
        ..Options::default()
    };
    // SAFETY: promised by the caller.
    let image = unsafe { BorrowedFd::borrow_raw(fd) };
    let saved = match flags & ROUNDS {
        0 => crate::save(image, options),
        _ => crate::save_in_rounds(image, options, Until::default()).map(|(saved, _)| saved),
    };
    let result = match saved {
        Ok(Saved::Restored) => return BACK,
        Ok(Saved::Whole { .. }) => Ok(()),
        Ok(Saved::Underway(writer)) => writer.finish(),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => SAVED,
        Err(error) => failed(&error.to_string()),
    }
}

/// Turns this process into the process of the image that `fd` holds. Returns only [`FAILED`].
///
/// # Safety
/// `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vm_image_restore(fd: i32) -> i32 {
    // SAFETY: promised by the caller.
    let result = crate::restore(
        unsafe { BorrowedFd::borrow_raw(fd) },
        RestoreOptions::default(),
    );
    match result {
        Ok(never) => match never {},
        Err(error) => failed(&error.to_string()),
    }
}

/// The reason why the last call of this thread failed, valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn vm_image_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Begins a section in which this thread is not stopped. Sections nest.
#[unsafe(no_mangle)]
pub extern "C" fn vm_image_enter() {
    mem::forget(Section::enter());
}

/// Ends the section that `vm_image_enter` began.
///
/// # Safety
/// This thread has entered a section and not left it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vm_image_leave() {
    // SAFETY: promised by the caller.
    drop(unsafe { Section::entered() });
}
