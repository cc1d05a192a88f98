//! Starts the process of a portable task anew from its state ([`vm_wire::portable`]): the work of a
//! restorer that finds such a state in the place of an image.
//!
//! The whole state is read and verified first, so no process is made from a damaged state. Then the
//! restorer becomes the program of the saved path, or, if this host cannot execute a program there,
//! the program of the same file name in the daemon's program path. The program finds the state in
//! memory, at the descriptor number of the image.

use crate::process::program::ProgramPath;
use anyhow::{Context as _, bail, ensure};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{MemfdFlags, memfd_create},
};
use std::{
    convert::Infallible,
    env,
    ffi::OsStr,
    fs::File,
    io::{Read as _, Seek as _, Write as _},
    os::{fd::IntoRawFd as _, unix::ffi::OsStrExt as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};
use vm_wire::{
    Body, limits,
    portable::{ENV_NAMES, ENV_STATE, MAGIC, PortableState, ProcessState},
    task::ENV_TOKEN,
};

/// Environment variable of a restorer: the folders in which the daemon looks up programs.
pub const ENV_PROGRAMS: &str = "VM_PROGRAMS";
/// Two architectures: their number in ELF files, and their name in Rust.
const ARCHES: [(u16, &str); 2] = [(62, "x86_64"), (183, "aarch64")];

/// Whether the pipe brings a portable state. Waits for the first bytes, and leaves them in the
/// pipe.
///
/// # Errors
/// The error of the system call.
pub fn is_state(pipe: impl AsFd) -> anyhow::Result<bool> {
    let (copy, into) = rustix::pipe::pipe()?;
    let flags = rustix::pipe::SpliceFlags::empty();
    let count = rustix::pipe::tee(&pipe, &into, MAGIC.len(), flags);
    count.context("looking at the image")?;
    drop(into);
    let mut first = Vec::new();
    File::from(copy).read_to_end(&mut first)?;
    // A writer writes more than that at once. If fewer bytes came, the writer has ended without an
    // image.
    Ok(first == MAGIC)
}

/// Becomes the program of the state that `image` brings. The state gets the number of `image`; the
/// sockets have the numbers after it. `folders`: a folder's name at the save and its name here.
///
/// # Errors
/// The reason why the task cannot run here.
pub fn go_on(image: OwnedFd, folders: Option<(&Path, &Path)>) -> anyhow::Result<Infallible> {
    let mut stream = Vec::new();
    let most = 3 * limits::PORTABLE_PART_MAX + (1 << 20);
    let mut source = File::from(image).take(most);
    source
        .read_to_end(&mut stream)
        .context("reading its state")?;
    let state = PortableState::read(&stream).context("reading its state")?;
    let mut command = command(&state.process, folders)?;
    let memory = memfd_create("vm-state", MemfdFlags::CLOEXEC);
    let mut memory = File::from(memory.context("memfd_create, which its state needs, is refused")?);
    memory.write_all(&stream).context("keeping its state")?;
    memory.rewind()?;
    let mut number = OwnedFd::from(source.into_inner());
    rustix::io::dup2(&memory, &mut number).context("handing its state over")?;
    drop(stream);
    command.env(ENV_STATE, number.into_raw_fd().to_string());
    let error = command.exec();
    let program = Path::new(command.get_program()).display();
    Err(error).with_context(|| format!("starting {program}"))
}

fn os(text: &Body) -> &OsStr {
    OsStr::from_bytes(text)
}

/// The name of a path on this host, where one folder may have another name.
fn here(path: &Path, folders: Option<(&Path, &Path)>) -> PathBuf {
    let moved = folders.and_then(|(there, here)| Some((here, path.strip_prefix(there).ok()?)));
    match moved {
        None => path.to_owned(),
        // `components` removes the slash that an empty rest would leave.
        Some((here, rest)) => here.join(rest).components().collect(),
    }
}

fn command(process: &ProcessState, folders: Option<(&Path, &Path)>) -> anyhow::Result<Command> {
    let program = find(&here(Path::new(os(&process.program)), folders))?;
    let dir = here(Path::new(os(&process.dir)), folders);
    ensure!(
        dir.is_dir(),
        "the working directory {} does not exist on this host: make it",
        dir.display()
    );
    let mut command = Command::new(program);
    if let Some((name, args)) = process.args.split_first() {
        command.arg0(os(name)).args(args.iter().map(os));
    }
    let names: Vec<&[u8]> = process.env.iter().map(|(name, _)| &name[..]).collect();
    command
        .current_dir(dir)
        .env_remove(ENV_PROGRAMS)
        .env_remove(ENV_TOKEN)
        .envs(
            process
                .env
                .iter()
                .map(|(name, value)| (os(name), os(value))),
        )
        .env(ENV_NAMES, OsStr::from_bytes(&names.join(&b"="[..])));
    Ok(command)
}

/// The program at the saved path, or else the program of the same name in the program path.
fn find(saved: &Path) -> anyhow::Result<PathBuf> {
    let folders = env::var_os(ENV_PROGRAMS).unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let path = ProgramPath::new(&folders);
    let mut why = Vec::new();
    let name = saved.file_name().and_then(OsStr::to_str);
    for wanted in saved.to_str().into_iter().chain(name) {
        match path.find(wanted, None) {
            Ok(found) => match foreign(Path::new(&found))? {
                None => return Ok(found.into()),
                Some(arch) => why.push(format!("{found} is a program of {arch}")),
            },
            Err(failed) => why.push(failed.text),
        }
    }
    bail!(
        "its program is not on this host: {}; put it there, built for {}, or start the daemon with --path",
        why.join("; "),
        env::consts::ARCH
    )
}

/// The architecture of a program, if it is not this host's.
fn foreign(program: &Path) -> anyhow::Result<Option<String>> {
    let mut head = [0; 20];
    let mut file = File::open(program).with_context(|| program.display().to_string())?;
    let [b'\x7f', b'E', b'L', b'F', .., low, high] = (match file.read_exact(&mut head) {
        Ok(()) => head,
        // The file may be a script.
        Err(_) => return Ok(None),
    }) else {
        return Ok(None);
    };
    let machine = u16::from_le_bytes([low, high]);
    let arch = ARCHES.into_iter().find(|(number, _)| *number == machine);
    let arch = arch.map_or(format!("processor {machine}"), |(_, name)| name.to_owned());
    Ok((arch != env::consts::ARCH).then_some(arch))
}

/// The names of the variables that are set for a task at its start.
pub fn names(env: &[(String, String)]) -> String {
    let names: Vec<&str> = env.iter().map(|(name, _)| &name[..]).collect();
    names.join("=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_state_is_distinguished_from_an_image_and_no_byte_is_lost() {
        for (bytes, is) in [
            (&b"vm-state\x01 and so on"[..], true),
            (b"vm-image\x01 and so on", false),
            (b"vm-st", false),
            (b"", false),
        ] {
            let (out, into) = rustix::pipe::pipe().expect("a pipe");
            rustix::io::write(&into, bytes).expect("room");
            drop(into);
            assert_eq!(is_state(&out).expect("a pipe"), is, "{bytes:?}");
            let mut all = Vec::new();
            File::from(out).read_to_end(&mut all).expect("all of it");
            assert_eq!(all, bytes);
        }
    }

    #[test]
    fn a_program_of_another_architecture_is_named_and_not_started() {
        let temp = tempfile::tempdir().expect("a folder");
        let program = temp.path().join("prog");
        let mut head = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\0\0";
        let other = ARCHES.iter().find(|(_, name)| *name != env::consts::ARCH);
        let (number, name) = other.expect("there are two");
        head[18..].copy_from_slice(&number.to_le_bytes());
        fs::write(&program, head).expect("written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("a mode");
        let why = find(&program)
            .expect_err("it cannot be executed")
            .to_string();
        assert!(why.contains(name) && why.contains("--path"), "{why}");
        fs::write(&program, "#!/bin/sh\n").expect("written");
        assert_eq!(find(&program).expect("a script"), program);
    }
}
