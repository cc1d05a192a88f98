//! Small files in the daemon's folder: made new, or replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Makes a new file. An existing file or link of that name is neither followed nor opened.
pub fn make_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Writes a small file so that readers see either all of it or nothing. Only this daemon writes in
/// its folder.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let draft = path.with_extension("new");
    // A daemon that was killed at this point may have left its draft.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = make_new(&draft)?;
    file.write_all(bytes)?;
    fs::rename(&draft, path)?;
    Ok(file)
}
