//! The files of images that a program saves on a signal: names from a pattern, a part file for each
//! save until its image is whole, and a file with the reason if the save fails.
//!
//! Other users may write to the folder. So a file is made new, under a name that cannot be guessed,
//! with access for this user alone, and no link is followed. The known names are given only to
//! complete files.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::fault::{Outcome, Step as _, Text, refuse},
    raw::sys::{self, Errno, nr},
};
use std::fmt::Write as _;

/// The limit of a pattern. Bytes.
pub const PATTERN_MAX: usize = 1024;
/// The limit of a name that was made from a pattern, with its extension and a NUL. Bytes.
const PATH_MAX: usize = PATTERN_MAX + 256;
/// The number of random names that are tried.
const TRIES: u32 = 16;

/// A path, ended by NUL.
pub struct ImagePath {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl ImagePath {
    const EMPTY: ImagePath = ImagePath {
        bytes: [0; PATH_MAX],
        len: 0,
    };

    /// The name of an image. In the pattern, `%p` stands for the id of this process, `%h` for the
    /// name of this host, `%%` for `%`.
    pub fn of(pattern: &[u8]) -> Outcome<Self> {
        let mut path = ImagePath::EMPTY;
        let mut rest = pattern;
        while let Some((&first, after)) = rest.split_first() {
            let (done, count) = match (first, after.first()) {
                (b'%', Some(b'p')) => (write!(path, "{}", sys::getpid()), 2),
                (b'%', Some(b'h')) => (path.add_host(), 2),
                (b'%', Some(b'%')) => (path.add(b"%"), 2),
                _ => (path.add(&[first]), 1),
            };
            if done.is_err() {
                return refuse!("the name of the image's file is too long");
            }
            rest = &rest[count..];
        }
        Ok(path)
    }

    /// The name of a part file with this random number.
    pub fn part(&self, number: u64) -> Outcome<Self> {
        self.with(format_args!(".{number:016x}.part"))
    }

    /// The name of the file with the reason why there is no image.
    pub fn error(&self) -> Outcome<Self> {
        self.with(format_args!(".error"))
    }

    fn with(&self, end: std::fmt::Arguments<'_>) -> Outcome<Self> {
        let mut path = ImagePath {
            bytes: self.bytes,
            len: self.len,
        };
        match path.write_fmt(end) {
            Ok(()) => Ok(path),
            Err(_) => refuse!("the name of the image's file is too long"),
        }
    }

    fn add(&mut self, bytes: &[u8]) -> std::fmt::Result {
        // The last byte stays a NUL.
        let room = self.bytes[self.len..PATH_MAX - 1].get_mut(..bytes.len());
        room.ok_or(std::fmt::Error)?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    fn add_host(&mut self) -> std::fmt::Result {
        // SAFETY: zeros are a value, and the kernel writes it.
        let host = unsafe {
            let mut host: libc::utsname = std::mem::zeroed();
            sys::call1(nr::UNAME, &raw mut host as usize);
            host
        };
        let name = host.nodename.iter().take_while(|byte| **byte != 0);
        // A slash in the name would lead to another folder.
        let byte = |byte: &libc::c_char| {
            if *byte as u8 == b'/' {
                b'_'
            } else {
                *byte as u8
            }
        };
        name.map(byte).try_for_each(|byte| self.add(&[byte]))
    }

    fn ended(&self) -> &[u8] {
        &self.bytes[..=self.len]
    }

    fn address(&self) -> usize {
        self.bytes.as_ptr() as usize
    }

    /// Makes a part file for this name. Returns its descriptor and its random number.
    pub fn make_part(&self) -> Outcome<(i32, u64)> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | NO_LINK;
        for _ in 0..TRIES {
            let number = random();
            match sys::open(self.part(number)?.ended(), flags, 0o600) {
                Err(Errno(libc::EEXIST)) => {}
                made => return Ok((made.step("making the image's file")?, number)),
            }
        }
        refuse!("all names for the image's file are taken")
    }

    /// Opens a part file again.
    pub fn open_part(&self, number: u64) -> Outcome<i32> {
        sys::open(self.part(number)?.ended(), libc::O_RDWR | NO_LINK, 0)
            .step("opening the image's file")
    }

    /// Gives a part file this name, and replaces a file that has it.
    pub fn take_part(&self, number: u64) -> Outcome<()> {
        let part = self.part(number)?;
        // SAFETY: both paths are ended by NUL.
        let renamed = unsafe { sys::call2(nr::RENAME, part.address(), self.address()) };
        sys::check(renamed)
            .map(|_| ())
            .step("giving the image its name")
    }

    /// Removes a part file.
    pub fn remove_part(&self, number: u64) {
        if let Ok(part) = self.part(number) {
            part.remove();
        }
    }

    /// Removes the file of this name, if it exists.
    pub fn remove(&self) {
        // SAFETY: the path is ended by NUL.
        unsafe { sys::call1(nr::UNLINK, self.address()) };
    }

    /// Makes a new file of this name with this text.
    pub fn write(&self, text: &Text) -> Outcome<()> {
        let (fd, number) = self.make_part()?;
        let text = text.as_str().as_bytes();
        let written = sys::write(fd, text).step("writing why there is no image");
        sys::close(fd);
        let taken = written.and_then(|_| self.take_part(number));
        if taken.is_err() {
            self.remove_part(number);
        }
        taken
    }
}

impl std::fmt::Write for ImagePath {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.add(text.as_bytes())
    }
}

/// Flags: do not follow a link, and close the descriptor when a program is executed.
const NO_LINK: i32 = libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// A random number, without waiting.
pub fn random() -> u64 {
    const NO_WAIT: usize = 1;
    let mut number = 0u64;
    // SAFETY: the kernel writes the number.
    let got = unsafe { sys::call3(nr::GETRANDOM, &raw mut number as usize, 8, NO_WAIT) };
    match got {
        8 => number,
        // The kernel has no random numbers just after the boot. The file is made only if the name
        // is free.
        _ => sys::clock_ns(libc::CLOCK_MONOTONIC) ^ (sys::gettid() as u64) << 48,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::{ffi::OsStrExt as _, fs::symlink},
    };

    fn text(path: &ImagePath) -> String {
        String::from_utf8(path.bytes[..path.len].to_vec()).expect("text")
    }

    #[test]
    fn a_pattern_names_process_and_host() {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let of = |pattern: &[u8]| ImagePath::of(pattern).map(|path| text(&path));
        let pid = std::process::id();
        assert_eq!(of(b"a%p.%h").ok(), Some(format!("a{pid}.{}", host.trim())));
        assert_eq!(of(b"100%%p%q%").ok().as_deref(), Some("100%p%q%"));
        assert!(of(&[b'a'; PATH_MAX]).is_err());
        let long = ImagePath::of(&[b'a'; PATH_MAX - 2]).expect("it fits");
        assert!(long.part(1).is_err());
    }

    #[test]
    fn a_file_is_made_new_and_no_link_is_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let (whole, other) = (folder.path().join("whole"), folder.path().join("other"));
        fs::write(&other, "not touched").expect("room");
        symlink(&other, &whole).expect("a link");
        let path = ImagePath::of(whole.as_os_str().as_bytes()).expect("it fits");
        let (first, second) = (
            path.make_part().expect("one"),
            path.make_part().expect("two"),
        );
        assert_ne!(first.1, second.1);
        let name = text(&path.part(first.1).expect("it fits"));
        let rights = fs::metadata(&name).expect("it is there").permissions();
        assert_eq!(rights.mode() & 0o777, 0o600);
        // Another user has put a link in the file's place.
        fs::rename(&name, folder.path().join("aside")).expect("it is there");
        symlink(&other, &name).expect("a link");
        assert!(path.open_part(first.1).is_err());
        path.take_part(second.1).expect("it gets the name");
        path.write(&Text::of(format_args!("why"))).expect("room");
        assert_eq!(fs::read_to_string(&whole).expect("a file"), "why");
        assert_eq!(fs::read_to_string(&other).expect("a file"), "not touched");
        [first.0, second.0].into_iter().for_each(sys::close);
    }
}
