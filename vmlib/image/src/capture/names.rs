//! The texts of an image, which its records point into.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::{arena::List, fault::Outcome},
    options::Folders,
    raw::records::{NAMES_MAX, Name},
};

/// The texts of an image.
pub struct Names<'a> {
    text: List<u8>,
    folders: Option<Folders<'a>>,
}

impl<'a> Names<'a> {
    /// An empty collection. Paths are translated by `folders`.
    pub fn new(folders: Option<Folders<'a>>) -> Outcome<Self> {
        // SAFETY: bytes.
        let text = unsafe { List::new(NAMES_MAX)? };
        Ok(Names { text, folders })
    }

    pub fn add(&mut self, text: &[u8]) -> Outcome<Name> {
        self.add_joined(text, &[])
    }

    /// Adds a path, translated to the host of the restore.
    pub fn add_path(&mut self, path: &[u8]) -> Outcome<Name> {
        let (folder, rest) = Folders::there(self.folders, path);
        self.add_joined(folder, rest)
    }

    /// Adds a text of two parts.
    pub fn add_joined(&mut self, text: &[u8], rest: &[u8]) -> Outcome<Name> {
        let name = Name {
            at: self.text.all().len() as u32,
            len: (text.len() + rest.len()) as u32,
        };
        self.text.extend(text, "names")?;
        self.text.extend(rest, "names")?;
        // The kernel takes paths that end with NUL.
        self.text.extend(b"\0", "names")?;
        Ok(name)
    }

    /// The text of a name from this collection.
    pub fn get(&self, name: Name) -> &[u8] {
        &self.text.all()[name.at as usize..][..name.len as usize]
    }

    /// All texts, each ended by NUL.
    pub fn all(&self) -> &[u8] {
        self.text.all()
    }
}
