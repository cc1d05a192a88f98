//! Folders that take the place of others when a process is restored.

use anyhow::{Context as _, anyhow};
use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    str::FromStr,
};
use vm_image::Folders;

/// A folder, and the folder that takes its place: `OLD=NEW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// The folder as it was at the save.
    pub old: PathBuf,
    /// The folder that takes its place.
    pub new: PathBuf,
}

impl FromStr for Map {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (old, new) = text
            .split_once('=')
            .context("give two folders with '=' between: OLD=NEW")?;
        if !old.starts_with('/') {
            return Err(anyhow!(
                "'{old}' is no absolute path: give the folder's path at the save"
            ));
        }
        let new = std::path::absolute(new).context("the folder that takes its place")?;
        // Removes slashes at the end.
        let plain = |path: &Path| path.components().collect::<PathBuf>();
        Ok(Map {
            old: plain(Path::new(old)),
            new: plain(&new),
        })
    }
}

impl Map {
    /// The prefixes by which paths in the image are replaced.
    pub fn folders(&self) -> Folders<'_> {
        // Behind the prefix a path continues with a slash, so the root's own slash is left out.
        let bytes = |path: &'_ Path| match path == Path::new("/") {
            true => 0,
            false => path.as_os_str().len(),
        };
        let (old, new) = (
            self.old.as_os_str().as_bytes(),
            self.new.as_os_str().as_bytes(),
        );
        Folders {
            here: &old[..bytes(&self.old)],
            there: &new[..bytes(&self.new)],
        }
    }
}
