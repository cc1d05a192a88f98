//! Reads the files of `/proc/self` with bare system calls and without an allocator.

use crate::{
    frozen::{
        arena,
        fault::{Outcome, Step as _, refuse},
    },
    raw::sys::{self, nr},
};

/// The limit of a file. Bytes.
const FILE_MAX: usize = 64 << 20;
/// The size of one read. Bytes.
const PIECE: usize = 64 << 10;

/// Reads a whole file into the arena. `path` ends with NUL. `what` names the step in an error.
pub fn read_file(path: &[u8], what: &str) -> Outcome<&'static [u8]> {
    let fd = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0).step(what)?;
    let read = read_all(fd, what);
    sys::close(fd);
    read
}

fn read_all(fd: i32, what: &str) -> Outcome<&'static [u8]> {
    let mark = arena::mark();
    let mut len = 0;
    loop {
        // SAFETY: any bytes are values. The pieces lie directly behind each other, so together they
        // are one slice.
        let piece = unsafe { arena::take::<u8>(PIECE)? };
        let mut filled = 0;
        while filled < PIECE {
            match sys::read(fd, &mut piece[filled..]) {
                Ok(0) => {
                    // SAFETY: the memory from the mark on was just taken.
                    return Ok(unsafe {
                        arena::release(mark);
                        let start = arena::take_again(len + filled)?;
                        &*start
                    });
                }
                Ok(count) => filled += count,
                Err(sys::EINTR) => {}
                Err(error) => return Err(error).step(what),
            }
        }
        len += PIECE;
        if len >= FILE_MAX {
            return refuse!("{what}: it has more than {FILE_MAX} bytes");
        }
    }
}

/// Calls `with` for each number in a directory like `/proc/self/task`. `path` ends with NUL. The
/// descriptor that reads the directory is left out.
pub fn for_each_number(
    path: &[u8],
    what: &str,
    mut with: impl FnMut(i32) -> Outcome<()>,
) -> Outcome<()> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = sys::open(path, flags, 0).step(what)?;
    let result = numbers(fd, what, &mut with);
    sys::close(fd);
    result
}

fn numbers(fd: i32, what: &str, with: &mut impl FnMut(i32) -> Outcome<()>) -> Outcome<()> {
    let mut buffer = [0u64; 512];
    loop {
        let (start, len) = (buffer.as_mut_ptr() as usize, size_of_val(&buffer));
        // SAFETY: the kernel writes into the buffer.
        let count = sys::check(unsafe { sys::call3(nr::GETDENTS64, fd as usize, start, len) });
        let count = count.step(what)?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the buffer, as bytes.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, count) };
        let mut at = 0;
        while at < count {
            // struct linux_dirent64: inode, offset, u16 length, u8 type, name ended by NUL.
            let length = usize::from(u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]));
            let name = &bytes[at + 19..at + length];
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            if let Some(number) = decimal(name)
                && number as i32 != fd
            {
                with(number as i32)?;
            }
            at += length;
        }
    }
}

/// The value of a text that is a decimal number as a whole.
pub fn decimal(text: &[u8]) -> Option<u64> {
    digits(text, 10)
}

/// The value of a text that is a hexadecimal number as a whole.
pub fn hexadecimal(text: &[u8]) -> Option<u64> {
    digits(text, 16)
}

fn digits(text: &[u8], base: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = char::from(*byte).to_digit(base)?;
        number.checked_mul(base.into())?.checked_add(digit.into())
    })
}

/// The words of a line, separated by spaces or tabs.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ' || *byte == b'\t')
        .filter(|word| !word.is_empty())
}

/// The first word of the value in a line `Name: value` of a file like `/proc/self/status`.
pub fn field<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
        words(value).next()
    })
}

/// A path like `/proc/self/fd/7`, ended by NUL.
pub struct NumberPath([u8; 64]);

impl NumberPath {
    /// Joins `before`, the number and `after`.
    pub fn new(before: &str, number: i32, after: &str) -> Self {
        struct Cursor<'a>(&'a mut [u8]);
        impl std::fmt::Write for Cursor<'_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                let taken = std::mem::take(&mut self.0);
                let (place, rest) = taken.split_at_mut(text.len().min(taken.len()));
                place.copy_from_slice(&text.as_bytes()[..place.len()]);
                self.0 = rest;
                Ok(())
            }
        }
        let mut path = [0; 64];
        // The texts of all callers are short enough.
        let _ = std::fmt::write(
            &mut Cursor(&mut path[..63]),
            format_args!("{before}{number}{after}"),
        );
        NumberPath(path)
    }

    /// The path, including its NUL.
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(63);
        &self.0[..=end]
    }
}

/// Reads a symbolic link into the arena. `path` ends with NUL.
pub fn read_link(path: &[u8], what: &str) -> Outcome<&'static [u8]> {
    let mark = arena::mark();
    // SAFETY: any bytes are values.
    let room = unsafe { arena::take::<u8>(libc::PATH_MAX as usize)? };
    let (start, len) = (room.as_mut_ptr() as usize, room.len());
    // SAFETY: the kernel writes into `room`.
    let value = unsafe { sys::call3(nr::READLINK, path.as_ptr() as usize, start, len) };
    let count = sys::check(value).step(what)?;
    // SAFETY: only the memory behind the text is released.
    unsafe {
        arena::release(mark);
        Ok(&*arena::take_again(count)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_other_characters_is_no_number() {
        assert_eq!(decimal(b"120"), Some(120));
        assert_eq!(hexadecimal(b"7fffA0"), Some(0x7f_ffa0));
        for bad in [&b""[..], b"1x", b"-1", b"99999999999999999999"] {
            assert_eq!(decimal(bad), None);
        }
    }

    #[test]
    fn fields_and_paths() {
        let file = b"Name:\tx\nSigPnd:\t0000000000000200\n";
        assert_eq!(field(file, "SigPnd"), Some(&b"0000000000000200"[..]));
        assert_eq!(field(file, "Sig"), None);
        assert_eq!(
            NumberPath::new("/proc/self/fd/", 12, "").bytes(),
            b"/proc/self/fd/12\0"
        );
    }
}
