//! Folders that stand in the place of others when a process is brought back.

use anyhow::{Context as _, anyhow};
use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    str::FromStr,
};
use vm_image::Folders;

/// A folder that has another one in its place: `OLD=NEW`.
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
                "'{old}' is no absolute path: give it as it was at the save"
            ));
        }
        let new = std::path::absolute(new).context("the folder that takes its place")?;
        // Without slashes at their ends.
        let plain = |path: &Path| path.components().collect::<PathBuf>();
        Ok(Map {
            old: plain(Path::new(old)),
            new: plain(&new),
        })
    }
}

impl Map {
    /// As the image's own paths are compared with them.
    pub fn folders(&self) -> Folders<'_> {
        // A path goes on with a slash behind it.
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
