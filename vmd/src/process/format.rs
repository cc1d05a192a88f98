//! Finds the reason why the kernel did not execute a file.
//!
//! The kernel reports only "no such file" (for a script or program whose interpreter is missing) or
//! "exec format error". After the latter, the C library would hand the file to the shell, which
//! takes a program of another architecture for a script. Here only a text goes to the shell. Files
//! are not judged before the kernel has tried: the additional formats that the kernel executes
//! (`binfmt_misc`) cannot be seen in a container. Only an interpreter or loader that the kernel
//! itself would look for in vain is detected before ([`lacks`]).

use rustix::fs::OFlags;
use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// Bytes at the beginning of a file that the kernel examines.
const LOOK: usize = 256;
/// Program headers beyond this length are not examined. Bytes.
const HEADERS_MAX: usize = 64 * 1024;
/// The type of the program header that names an interpreter.
const PT_INTERP: u32 = 3;
/// Offsets in an ELF header: the type, the machine, and the table of program headers.
const E_TYPE: usize = 16;
const E_MACHINE: usize = 18;

/// The reason of the kernel's refusal of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The file is a text whose first line names no interpreter, or is empty: the shell executes
    /// such files.
    Text,
    /// This host cannot execute the file.
    Misfit(Misfit),
    /// Another reason.
    Other,
}

/// The reason why this host cannot execute a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The first line of a script names a program that does not exist.
    NoInterpreter(String),
    /// The first line of a script ends with a carriage return, which the kernel takes for a part of
    /// the name.
    CarriageReturn(String),
    /// The loader that an ELF file names does not exist.
    NoLoader(String),
    /// The program is for another processor.
    OtherMachine(&'static str),
    /// The file is an object file or a core dump.
    NoProgram,
    /// The file is neither ELF nor text.
    Binary,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::NoInterpreter(name) => {
                write!(
                    f,
                    "its first line names {name:?}, which is not on this host"
                )
            }
            Misfit::CarriageReturn(name) => write!(
                f,
                "its lines end with CR LF, so its first one names {name:?}, which is not on this \
                 host; `dos2unix FILE`, or `sed -i 's/\\r$//' FILE`, makes it a script"
            ),
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

/// Whether a script, or a program for this processor, names an interpreter or loader that does not
/// exist here: then no host of this kind executes it.
pub fn lacks(path: &Path) -> Option<Misfit> {
    let (file, head) = open(path).ok()?;
    match head.as_slice() {
        [0x7f, b'E', b'L', b'F', ..] => {
            elf(&head, &file).filter(|misfit| matches!(misfit, Misfit::NoLoader(_)))
        }
        [b'#', b'!', line @ ..] => script(line),
        _ => None,
    }
}

/// The reason why the kernel has refused a file with the error `said`.
pub fn refused(path: &Path, said: &io::Error) -> Refused {
    let is_unknown = match said.raw_os_error() {
        Some(libc::ENOEXEC) => true,
        Some(libc::ENOENT) => false,
        _ => return Refused::Other,
    };
    let Ok((file, head)) = open(path) else {
        return Refused::Other;
    };
    let misfit = match head.as_slice() {
        [0x7f, b'E', b'L', b'F', ..] => elf(&head, &file),
        [b'#', b'!', line @ ..] if interpreter(line).is_some() => script(line),
        // A shell also examines only that line: a script may have a program behind its text.
        head if first_line(head).contains(&0) => Some(Misfit::Binary),
        _ if is_unknown => return Refused::Text,
        _ => None,
    };
    misfit.map_or(Refused::Other, Refused::Misfit)
}

/// Opens a file and reads the bytes that the kernel examines.
fn open(path: &Path) -> io::Result<(File, Vec<u8>)> {
    // A lease of another process on the file must not make this call wait.
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let file = File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    let mut head = Vec::with_capacity(LOOK);
    (&file).take(LOOK as u64).read_to_end(&mut head)?;
    Ok((file, head))
}

fn first_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'\n');
    &text[..end.unwrap_or(text.len())]
}

/// The program that is named after `#!`.
fn interpreter(text: &[u8]) -> Option<String> {
    let blank = |byte: &u8| matches!(*byte, b' ' | b'\t');
    let mut words = first_line(text).split(blank);
    let name = words.find(|word| !word.is_empty())?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Judges the interpreter of a script, from the text after `#!`.
fn script(text: &[u8]) -> Option<Misfit> {
    let name = interpreter(text)?;
    if name.ends_with('\r') && !Path::new(&name).exists() {
        return Some(Misfit::CarriageReturn(name));
    }
    is_missing(&name).then_some(Misfit::NoInterpreter(name))
}

/// Whether the absolute path does not exist here. A relative path starts in the working folder of
/// the future process, and is left to the kernel.
fn is_missing(name: &str) -> bool {
    let path = Path::new(name);
    path.is_absolute() && !path.exists()
}

fn elf(head: &[u8], file: &File) -> Option<Misfit> {
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
        return Some(Misfit::NoProgram);
    };
    if !ours(machine, is_long, is_little) {
        return Some(Misfit::OtherMachine(name(machine)));
    }
    if !matches!(kind, 2 | 3) {
        return Some(Misfit::NoProgram);
    }
    let loader = is_long.then(|| loader(head, file)).flatten()?;
    is_missing(&loader).then_some(Misfit::NoLoader(loader))
}

/// Whether this host's processor, or its kernel in a mode for older programs, executes programs for
/// that machine.
fn ours(machine: u16, is_long: bool, is_little: bool) -> bool {
    if !is_little {
        return false;
    }
    match std::env::consts::ARCH {
        "x86_64" => machine == 62 || (machine == 3 && !is_long),
        "aarch64" => machine == 183 || (machine == 40 && !is_long),
        // Other architectures are not judged here.
        _ => true,
    }
}

/// The name of a machine, for people.
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

/// The loader that a little-endian ELF file of 64 bits names, if any.
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
    use std::fs;

    fn of(content: &[u8], said: i32) -> Refused {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), content).expect("written");
        refused(file.path(), &io::Error::from_raw_os_error(said))
    }

    /// The test's own program, with other bytes at some offsets.
    fn ours_with(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut program = fs::read("/proc/self/exe").expect("this program");
        for (at, bytes) in changes {
            program[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        program
    }

    #[test]
    fn a_file_that_the_kernel_refuses_is_explained_or_left_to_the_shell() {
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
        let (unknown, absent) = (libc::ENOEXEC, libc::ENOENT);
        let text = |text: &str| text.as_bytes().to_vec();
        for (content, said, verdict) in [
            (text(""), unknown, Refused::Text),
            (text("#!\n"), unknown, Refused::Text),
            (text("#! \t"), unknown, Refused::Text),
            (text("echo a script\n"), unknown, Refused::Text),
            (text("MZ='\n\0\0"), unknown, Refused::Text),
            // The error may be about the working folder, for example.
            (text("echo a script\n"), absent, Refused::Other),
            (text("echo a script\n"), libc::E2BIG, Refused::Other),
            (text("#!/bin/sh\n"), unknown, Refused::Other),
            (text("#!/bin/sh\n"), absent, Refused::Other),
            (text("#!bin/relative\n"), absent, Refused::Other),
            (
                text("#! /no/such/python -u\n"),
                absent,
                Refused::Misfit(Misfit::NoInterpreter("/no/such/python".to_owned())),
            ),
            (
                text("#!/bin/sh\r\necho\r\n"),
                absent,
                Refused::Misfit(Misfit::CarriageReturn("/bin/sh\r".to_owned())),
            ),
            (text("MZ\0\0"), unknown, Refused::Misfit(Misfit::Binary)),
            (ours.clone(), unknown, Refused::Other),
            (
                ours_with(&[(E_MACHINE, &other.0.to_le_bytes())]),
                unknown,
                Refused::Misfit(Misfit::OtherMachine(other.1)),
            ),
            (
                ours_with(&[(E_TYPE, &[1, 0])]),
                unknown,
                Refused::Misfit(Misfit::NoProgram),
            ),
            (
                ours_with(&[(at, gone.as_bytes())]),
                absent,
                Refused::Misfit(Misfit::NoLoader(gone.clone())),
            ),
        ] {
            assert_eq!(of(&content, said), verdict);
        }
    }
}
