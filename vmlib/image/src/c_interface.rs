//! The interface for C, as `include/vm_image.h` has it.

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

/// The process runs on where it was.
const SAVED: i32 = 0;
/// The process was restored.
const BACK: i32 = 1;
/// See `vm_image_error`.
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

/// Saves this process.
///
/// # Safety
/// `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vm_image_save(fd: i32, flags: u32) -> i32 {
    if fd < 0 || flags & !(FORKED | CARRY_FILES | ROUNDS) != 0 {
        return failed("vm_image_save: a descriptor and known flags are wanted");
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

/// Becomes the process of an image.
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

/// The reason why the last call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn vm_image_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Enters a section in which this thread is not stopped.
#[unsafe(no_mangle)]
pub extern "C" fn vm_image_enter() {
    mem::forget(Section::enter());
}

/// Leaves the section.
///
/// # Safety
/// This thread has entered one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vm_image_leave() {
    // SAFETY: promised by the caller.
    drop(unsafe { Section::entered() });
}
