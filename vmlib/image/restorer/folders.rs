//! The folders that have another name on this host.

use crate::{
    failure::die,
    raw::{folder_map::FolderMap, records::MAP_SHIFT},
};

/// The map of these folders.
static mut FOLDERS: FolderMap = FolderMap::none();

/// Reads the map of folders. Returns the descriptor as the image's code expects it in its sixth
/// argument.
pub fn read_map(number: &str) -> u64 {
    let fd: i32 = match number.parse() {
        Ok(fd) => fd,
        Err(_) => die!("'{number}' is no descriptor"),
    };
    // SAFETY: there is one thread yet, and no code has read the map.
    if let Err(error) = unsafe { (*(&raw mut FOLDERS)).read(fd) } {
        die!(
            "the map of folders cannot be read: error {}",
            error.0
        );
    }
    (fd as u64 + 1) << MAP_SHIFT
}

/// The map of folders; empty if there is none.
pub fn folders() -> &'static FolderMap {
    // SAFETY: the map was written before anything else was done.
    unsafe { &*(&raw const FOLDERS) }
}
