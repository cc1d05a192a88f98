//! A small disk, to be filled; and files, to be damaged.

use super::{PATIENCE, wait_for};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// Flips a bit in the middle of a file. Returns the content before.
///
/// # Panics
/// If it cannot be read and written.
pub fn flip_a_bit(file: &Path) -> Vec<u8> {
    let whole = fs::read(file).expect("it can be read");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(file, damaged).expect("it can be written");
    whole
}

/// The last image in the folder of a checkpoint.
///
/// # Panics
/// If there is none.
pub fn last_image(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).expect("a checkpoint").flatten();
    let paths = files.map(|file| file.path());
    let images = paths.filter(|path| path.extension().is_some_and(|it| it == "image"));
    images.max().expect("an image")
}

/// A file system in memory, which is unmounted when this value is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system of `mib` MiB at `folder`. `None` if that is not allowed; the reason
    /// goes to standard error.
    ///
    /// # Panics
    /// If the folder exists already.
    pub fn mount(folder: &Path, mib: u32) -> Option<SmallDisk> {
        fs::create_dir(folder).expect("a folder");
        let size = format!("size={mib}m,mode=0700");
        let options = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(folder).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no file system can be mounted here");
            return None;
        }
        let folder = folder.to_owned();
        Some(SmallDisk { folder })
    }

    /// Fills the disk: no byte can be written from now on.
    ///
    /// # Panics
    /// If it does not become full.
    pub fn fill(&self) {
        let mut file = File::create(self.ballast()).expect("a file");
        let bytes = [0; 256 << 10];
        let full = wait_for("the disk is full", PATIENCE, || {
            file.write_all(&bytes).err()
        });
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    }

    /// Frees the space that [`SmallDisk::fill`] took.
    ///
    /// # Panics
    /// If the disk was not filled.
    pub fn relieve(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that uses the folder may still run: the unmount is lazy.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
