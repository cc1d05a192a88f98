//! Turns this process into the one of an image, by way of the restorer.

use crate::raw::sys::{self, nr};
use std::{
    convert::Infallible,
    ffi::CString,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, RawFd},
    ptr,
};

/// The program that brings a process back.
static RESTORER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/restorer"));

/// How a process is brought back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Way {
    /// As if this host's vdso were another kernel's: for tests.
    pub foreign_vdso: bool,
}

/// Becomes the process of the image that is read from `image`. Descriptors 0, 1 and 2 become those
/// of the process where they were a terminal or led to another process; all others are closed.
///
/// What goes wrong from here on ends this process, with a message on standard error and status
/// [`CANNOT_RESTORE`](crate::CANNOT_RESTORE) or [`CANNOT_GO_ON`](crate::CANNOT_GO_ON): there is
/// nobody to come back to.
///
/// # Errors
/// What kept the restorer from being started.
pub fn restore(image: BorrowedFd<'_>, way: Way) -> io::Result<Infallible> {
    // SAFETY: the name is ended by NUL.
    let memory = unsafe { libc::memfd_create(c"restorer".as_ptr(), libc::MFD_CLOEXEC) };
    if memory < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(memory) };
    file.write_all(RESTORER)?;
    inherit(image.as_raw_fd())?;
    let suffix = if way.foreign_vdso { "f" } else { "" };
    let number = CString::new(format!("{}{suffix}", image.as_raw_fd())).expect("digits");
    let arguments = [c"restorer".as_ptr(), number.as_ptr(), ptr::null()];
    let environment = [ptr::null::<libc::c_char>()];
    // SAFETY: both lists end with a null, and their texts with NUL.
    unsafe { libc::fexecve(file.as_raw_fd(), arguments.as_ptr(), environment.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// The descriptor is to survive the start of a program.
fn inherit(fd: RawFd) -> io::Result<()> {
    // SAFETY: it changes a flag of the descriptor.
    let value = unsafe { sys::call3(nr::FCNTL, fd as usize, libc::F_SETFD as usize, 0) };
    match sys::check(value) {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::from_raw_os_error(error.0)),
    }
}
