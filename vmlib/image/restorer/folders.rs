//! The folders that have other names on this host.

use crate::{
    failure::die,
    raw::{folder_map::FolderMap, records::MAP_SHIFT},
};

/// The folders that have other names here.
static mut FOLDERS: FolderMap = FolderMap::none();

/// Reads them, and gives what the image's code is told of the descriptor.
pub fn read_map(number: &str) -> u64 {
    let fd: i32 = match number.parse() {
        Ok(fd) => fd,
        Err(_) => die!("'{number}' is no descriptor"),
    };
    // SAFETY: there is one thread yet, and nobody has read it.
    if let Err(error) = unsafe { (*(&raw mut FOLDERS)).read(fd) } {
        die!(
            "the other names of folders cannot be read: error {}",
            error.0
        );
    }
    (fd as u64 + 1) << MAP_SHIFT
}

/// The folders that have other names here.
pub fn folders() -> &'static FolderMap {
    // SAFETY: it was written before anything else was done.
    unsafe { &*(&raw const FOLDERS) }
}
