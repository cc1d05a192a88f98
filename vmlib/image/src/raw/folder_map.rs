//! Folders that have another name on the host of the restore.
//!
//! The restoring process writes the map into a memory file: pairs of absolute paths, each ended by
//! NUL. The restorer reads the map for the files that it maps. The image's own code reads it later
//! for the files that it opens.

use crate::raw::sys::{self, nr};

/// The limit of all pairs together. Bytes.
pub const ROOM: usize = 16 << 10;
/// The limit of a path, with its NUL. Bytes.
pub const PATH: usize = 4096;

/// A map of folders.
#[derive(Debug)]
pub struct FolderMap {
    text: [u8; ROOM],
    len: usize,
}

impl FolderMap {
    /// An empty map.
    pub const fn none() -> Self {
        FolderMap {
            text: [0; ROOM],
            len: 0,
        }
    }

    /// Whether the map is empty.
    pub fn is_none(&self) -> bool {
        self.len == 0
    }

    /// Removes all pairs.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Reads the pairs from the beginning of a file, without moving its position.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read(&mut self, fd: i32) -> sys::Result<()> {
        let at = self.text.as_mut_ptr() as usize;
        // SAFETY: the kernel writes into the text.
        let len = unsafe { sys::call4(nr::PREAD64, fd as usize, at, ROOM, 0) };
        self.len = sys::check(len)?;
        Ok(())
    }

    /// The paths, in pairs; a path without its NUL is left out.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let text = &self.text[..self.len];
        let ended = text.iter().rposition(|byte| *byte == 0).unwrap_or(0);
        text[..ended].split(|byte| *byte == 0)
    }

    /// The name of a path on this host, in two parts without NUL, by the longest folder that
    /// contains the path.
    pub fn here<'a>(&'a self, path: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let mut best: (&[u8], &[u8]) = (path, &[]);
        let mut texts = self.texts();
        let mut longest = 0;
        while let (Some(there), Some(here)) = (texts.next(), texts.next()) {
            let rest = path.strip_prefix(there);
            let rest = rest.filter(|rest| rest.is_empty() || rest[0] == b'/');
            if let Some(rest) = rest
                && there.len() > longest
            {
                (best, longest) = ((here, rest), there.len());
            }
        }
        best
    }

    /// The name of a path on this host, ended by NUL; `None` if it is longer than `room`.
    pub fn put<'a>(&self, path: &[u8], room: &'a mut [u8; PATH]) -> Option<&'a [u8]> {
        let (folder, rest) = self.here(path);
        let len = folder.len() + rest.len();
        room.get_mut(..folder.len())?.copy_from_slice(folder);
        room.get_mut(folder.len()..len)?.copy_from_slice(rest);
        *room.get_mut(len)? = 0;
        room.get(..=len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &[u8]) -> FolderMap {
        let mut map = FolderMap::none();
        map.text[..text.len()].copy_from_slice(text);
        map.len = text.len();
        map
    }

    #[test]
    fn the_longest_folder_that_contains_a_path_decides() {
        let map = map(b"/a\0/x\0/a/b\0/y/z\0/not/ended\0/w");
        let here = |path: &str| {
            let mut room = [1; PATH];
            let path = map.put(path.as_bytes(), &mut room).expect("room");
            String::from_utf8(path.to_vec()).expect("text")
        };
        assert_eq!(here("/a"), "/x\0");
        assert_eq!(here("/a/c"), "/x/c\0");
        assert_eq!(here("/a/b"), "/y/z\0");
        assert_eq!(here("/a/b/c"), "/y/z/c\0");
        assert_eq!(here("/ab"), "/ab\0");
        assert_eq!(here("/not/ended/c"), "/not/ended/c\0");
        assert_eq!(FolderMap::none().here(b"/a"), (&b"/a"[..], &b""[..]));
    }

    #[test]
    fn a_path_that_becomes_too_long_is_refused() {
        let map = map(b"/a\0/xxxxxxxxxx\0");
        let long = [&b"/a/"[..], &[b'c'; PATH - 8]].concat();
        assert!(map.put(&long, &mut [0; PATH]).is_none());
    }
}
