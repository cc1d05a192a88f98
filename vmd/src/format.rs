//! What a file has to be so that this host can execute it: looked at before a task is born for it.
//!
//! The kernel says no more of such a file than "no such file" (a script or program whose interpreter is
//! missing) or "exec format error", and for the latter the C library hands the file to the shell, which
//! takes a program of another architecture for a script. What the kernel is told to execute otherwise
//! (`binfmt_misc`) is left to it.

use rustix::fs::OFlags;
use std::{
    fmt,
    fs::{self, File},
    io::Read,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// What the kernel looks at of a file. Bytes.
const LOOK: usize = 256;
/// Longer program headers are not looked at. Bytes.
const HEADERS_MAX: usize = 64 * 1024;
/// Where the kernel is told of further formats.
const OTHER_FORMATS: &str = "/proc/sys/fs/binfmt_misc";
/// The type of the program header that names an interpreter.
const PT_INTERP: u32 = 3;
/// The offset of the machine in an ELF header, and those of the table of program headers.
const E_TYPE: usize = 16;
const E_MACHINE: usize = 18;

/// Why this host cannot execute a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It has nothing in it.
    Empty,
    /// The first line of a script names a program that is not there.
    NoInterpreter(String),
    /// The first line ends with a carriage return, which is a part of the name for the kernel.
    CarriageReturn(String),
    /// The first line of a script names nothing.
    NoName,
    /// The loader that an ELF file names is not there.
    NoLoader(String),
    /// It is for another processor.
    OtherMachine(&'static str),
    /// It is an object file or a core dump.
    NoProgram,
    /// It is neither ELF nor text.
    Binary,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Empty => write!(f, "it is empty"),
            Misfit::NoInterpreter(name) => {
                write!(
                    f,
                    "its first line names {name:?}, which is not on this host"
                )
            }
            Misfit::CarriageReturn(name) => write!(
                f,
                "its lines end with CR LF, so its first one names {name:?}, which is not on this \
                 host; 'dos2unix', or 'sed -i s/\\r$//', makes it a script"
            ),
            Misfit::NoName => write!(f, "its first line, '#!', names no program"),
            Misfit::NoLoader(name) => write!(
                f,
                "it needs the loader {name:?}, which is not on this host (is it of another system, or \
                 for another C library?)"
            ),
            Misfit::OtherMachine(machine) => write!(
                f,
                "it is a program for {machine}, and this host is {}",
                std::env::consts::ARCH
            ),
            Misfit::NoProgram => write!(f, "it is an ELF file, but no program"),
            Misfit::Binary => write!(f, "it is neither a program of this system nor a script"),
        }
    }
}

/// Looks whether this host can execute a file that may be executed. What cannot be read is left to the
/// kernel.
///
/// # Errors
/// Why not.
pub fn check(path: &Path) -> Result<(), Misfit> {
    // Somebody's lease on the file is not waited for.
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(nonblock).open(path);
    let Ok(mut file) = opened else {
        return Ok(());
    };
    let mut head = Vec::with_capacity(LOOK);
    if file
        .by_ref()
        .take(LOOK as u64)
        .read_to_end(&mut head)
        .is_err()
        || has_other_formats()
    {
        return Ok(());
    }
    match head.as_slice() {
        [] => Err(Misfit::Empty),
        [b'#', b'!', line @ ..] => script(line),
        [0x7f, b'E', b'L', b'F', ..] => elf(&head, &file),
        // A text whose first line names no interpreter is the shell's, as ever. A shell looks at that
        // line alone, too: a script may have a program behind it.
        head => match first_line(head).contains(&0) {
            true => Err(Misfit::Binary),
            false => Ok(()),
        },
    }
}

/// Whether the kernel may know more formats than this module.
fn has_other_formats() -> bool {
    let entries = fs::read_dir(OTHER_FORMATS).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name != "register" && name != "status")
}

fn first_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'\n');
    &text[..end.unwrap_or(text.len())]
}

/// What follows `#!`.
fn script(text: &[u8]) -> Result<(), Misfit> {
    let blank = |byte: &u8| matches!(*byte, b' ' | b'\t');
    let line = first_line(text);
    let mut words = line.split(blank).filter(|word| !word.is_empty());
    let name = match words.next() {
        None | Some(b"\r") => return Err(Misfit::NoName),
        Some(name) => String::from_utf8_lossy(name).into_owned(),
    };
    if !is_missing(&name) {
        return Ok(());
    }
    Err(match name.strip_suffix('\r') {
        Some(name) => Misfit::CarriageReturn(format!("{name}\r")),
        None => Misfit::NoInterpreter(name),
    })
}

/// Whether that is a path of nothing here. One that is relative begins in the working folder of the
/// process to be, and is left to the kernel.
fn is_missing(name: &str) -> bool {
    let path = Path::new(name);
    path.is_absolute() && !path.exists()
}

fn elf(head: &[u8], file: &File) -> Result<(), Misfit> {
    let is_long = head.get(4) == Some(&2);
    let is_little = head.get(5) == Some(&1);
    let half = |at: usize| {
        let bytes = head.get(at..at + 2)?.try_into().ok()?;
        Some(match is_little {
            true => u16::from_le_bytes(bytes),
            false => u16::from_be_bytes(bytes),
        })
    };
    let (Some(kind), Some(machine)) = (half(E_TYPE), half(E_MACHINE)) else {
        return Err(Misfit::NoProgram);
    };
    let ours = ours(machine, is_long, is_little);
    if !ours {
        return Err(Misfit::OtherMachine(name(machine)));
    }
    if !matches!(kind, 2 | 3) {
        return Err(Misfit::NoProgram);
    }
    match is_long.then(|| loader(head, file)).flatten() {
        Some(loader) if is_missing(&loader) => Err(Misfit::NoLoader(loader)),
        _ => Ok(()),
    }
}

/// Whether this host's processor, or its kernel in a mode for older programs, takes that machine.
fn ours(machine: u16, is_long: bool, is_little: bool) -> bool {
    if !is_little {
        return false;
    }
    match std::env::consts::ARCH {
        "x86_64" => machine == 62 || (machine == 3 && !is_long),
        "aarch64" => machine == 183 || (machine == 40 && !is_long),
        // Of others nothing is known here.
        _ => true,
    }
}

/// What people call a machine.
fn name(machine: u16) -> &'static str {
    match machine {
        3 => "x86",
        8 => "mips",
        20 | 21 => "powerpc",
        22 => "s390x",
        40 => "arm",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv",
        _ => "another processor",
    }
}

/// The loader that a little-endian ELF file of 64 bits names, if it names one.
fn loader(head: &[u8], file: &File) -> Option<String> {
    let long = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let half = |at: usize| {
        let bytes = head.get(at..at + 2)?.try_into().ok()?;
        Some(usize::from(u16::from_le_bytes(bytes)))
    };
    let (table, size, count) = (long(head, 32)?, half(54)?, half(56)?);
    let headers = read_at(file, table, size.checked_mul(count)?)?;
    let names = |header: &&[u8]| {
        let kind = header.get(..4).and_then(|bytes| bytes.try_into().ok());
        kind.map(u32::from_le_bytes) == Some(PT_INTERP)
    };
    let header = headers.chunks(size.max(1)).find(names)?;
    let name = read_at(file, long(header, 8)?, long(header, 32)?)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    String::from_utf8(name[..end].to_vec()).ok()
}

fn read_at(file: &File, offset: usize, len: usize) -> Option<Vec<u8>> {
    if len > HEADERS_MAX {
        return None;
    }
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset as u64).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content: &[u8]) -> Result<(), Misfit> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), content).expect("written");
        check(file.path())
    }

    /// This program, with other bytes at some places.
    fn ours_with(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut program = fs::read("/proc/self/exe").expect("this program");
        for (at, bytes) in changes {
            program[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        program
    }

    #[test]
    fn what_this_host_cannot_execute_is_named() {
        if has_other_formats() {
            eprintln!("skipped: the kernel here executes further formats");
            return;
        }
        let ours = ours_with(&[]);
        let (at, len) = {
            let program = File::open("/proc/self/exe").expect("this program");
            let loader = loader(&ours[..LOOK], &program).expect("a loader");
            let found = ours
                .windows(loader.len())
                .position(|it| it == loader.as_bytes());
            (found.expect("its name"), loader.len())
        };
        let gone = format!("/{}", "x".repeat(len - 1));
        let other: (u16, &str) = match std::env::consts::ARCH {
            "x86_64" => (183, "aarch64"),
            _ => (62, "x86_64"),
        };
        let no_interpreter = |name: &str| Err(Misfit::NoInterpreter(name.to_owned()));
        for (content, verdict) in [
            (ours.clone(), Ok(())),
            (b"#!/bin/sh\n".to_vec(), Ok(())),
            (b"#! /usr/bin/env python3 -u\n".to_vec(), Ok(())),
            (b"echo a script of the shell\n".to_vec(), Ok(())),
            (Vec::new(), Err(Misfit::Empty)),
            (
                b"#!/no/such/python\n".to_vec(),
                no_interpreter("/no/such/python"),
            ),
            (
                b"#!/bin/sh\r\necho\r\n".to_vec(),
                Err(Misfit::CarriageReturn("/bin/sh\r".to_owned())),
            ),
            (b"#!\n".to_vec(), Err(Misfit::NoName)),
            (b"#!bin/relative\n".to_vec(), Ok(())),
            (b"MZ\0\0".to_vec(), Err(Misfit::Binary)),
            (b"MZ='\n\0\0".to_vec(), Ok(())),
            (
                ours_with(&[(E_MACHINE, &other.0.to_le_bytes())]),
                Err(Misfit::OtherMachine(other.1)),
            ),
            (ours_with(&[(E_TYPE, &[1, 0])]), Err(Misfit::NoProgram)),
            (
                ours_with(&[(at, gone.as_bytes())]),
                Err(Misfit::NoLoader(gone.clone())),
            ),
        ] {
            assert_eq!(of(&content), verdict);
        }
    }
}
