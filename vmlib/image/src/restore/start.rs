//! Turns this process into the process of an image, by starting the restorer.
//!
//! For the kernel, a process runs the program that it executed last. So [`restore`] executes the
//! image's own program if that program exists here unchanged. An environment variable, [`WORD`],
//! has this library, which is in that program, load the restorer before any code of the program
//! runs ([`become_other`]). Otherwise the restorer is executed as a program; the restored process
//! then differs only in `/proc/self/exe`.

use crate::{
    capture::{limits, proc, rseq},
    format::{Heads, ImageReader},
    raw::{
        folder_map,
        sys::{self, nr},
    },
    restore::resume,
};
use std::{
    convert::Infallible,
    ffi::{CStr, CString, OsStr},
    fs::File,
    io::{self, Seek as _, Write as _},
    os::{
        fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, RawFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::MetadataExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    ptr,
};

/// The restorer, as an ELF file.
static RESTORER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/restorer"));
/// The environment variable that has a program become the process of an image. Its value is the
/// argument of the restorer.
const WORD: &CStr = c"VM_IMAGE_RESTORE";
/// The value of [`WORD`] with which a program ends at once, for a trial.
const TRIAL: &CStr = c"trial";
/// The time limit for the trial of a program. Milliseconds.
const TRIAL_MS: i32 = 10_000;

/// The options of a restore.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions<'a> {
    /// Rolls back the open regular files that the process can write: bytes written behind their end
    /// since the save are cut off, and other changes are overwritten with the content that the
    /// image carries. Without this option, a file that has only grown is used as it is, and a file
    /// that changed otherwise is refused.
    pub roll_back: bool,
    /// Treats this host's vdso as one of another kernel, for tests.
    pub foreign_vdso: bool,
    /// Folders that have another name on this host, as pairs of absolute paths without a slash at
    /// the end: first the name at the save, then the name here. The path of an open file, a shared
    /// mapping or the working directory that lies below the first is looked for at the same place
    /// below the second. If a path lies in several of these folders, the longest counts.
    pub folders: &'a [(&'a Path, &'a Path)],
}

impl RestoreOptions<'_> {
    /// The map of folders as a memory file, which stays open when a program is executed. Its
    /// descriptor is above those that follow `image`, which may be the process's own.
    fn folder_map(&self, image: RawFd) -> io::Result<Option<File>> {
        if self.folders.is_empty() {
            return Ok(None);
        }
        let mut text = Vec::new();
        for path in self.folders.iter().flat_map(|(there, here)| [there, here]) {
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        }
        if text.len() > folder_map::ROOM {
            let why = "the paths in the map of folders are too long";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut file = unnamed(c"folders", 0)?;
        file.write_all(&text)?;
        let above = image + 1 + resume::OWN_MAX as RawFd;
        // SAFETY: the call takes numbers.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, above) } {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: the descriptor was just opened, and no other code has it.
            number => Ok(Some(unsafe { File::from_raw_fd(number) })),
        }
    }
}

/// Turns this process into the process of the image that is read from `image`.
///
/// Descriptors 0, 1 and 2 become those of the process if they were a terminal or led to another
/// process. Descriptors that the program manages itself ([`Options::own`](crate::Options)) are
/// handed over. The caller opens them, in the same order, under the numbers that follow that of
/// `image`, and without close-on-exec. All other descriptors are closed.
///
/// A failure after the restorer has started ends this process, with a message on standard error and
/// status [`CANNOT_RESTORE`](crate::CANNOT_RESTORE) or [`CANNOT_GO_ON`](crate::CANNOT_GO_ON),
/// because the caller does not exist any more.
///
/// # Errors
/// Why the restorer could not be started.
pub fn restore(image: BorrowedFd<'_>, options: RestoreOptions<'_>) -> io::Result<Infallible> {
    make_room()?;
    let own = own_program(image, options.folders).filter(Program::can_start);
    inherit(image.as_raw_fd())?;
    let mut argument = image.as_raw_fd().to_string();
    for (word, is_wanted) in [("f", options.foreign_vdso), ("r", options.roll_back)] {
        argument.push_str(if is_wanted { word } else { "" });
    }
    let folders = options.folder_map(image.as_raw_fd())?;
    if let Some(folders) = &folders {
        argument.push_str(&format!("m{}", folders.as_raw_fd()));
    }
    let argument = CString::new(argument)?;
    if let Some(program) = own {
        // If the program cannot be executed, the restorer is.
        let _ = program.start(&argument);
    }
    start_restorer(&argument)
}

/// Raises the soft limits on memory, and checks that the hard limits leave room for the restorer: a
/// program that does not fit is killed by a signal when it is executed.
fn make_room() -> io::Result<()> {
    const ROOM: u64 = 64 << 20;
    for (which, name) in [
        (libc::RLIMIT_AS, "address space (RLIMIT_AS)"),
        (libc::RLIMIT_DATA, "data (RLIMIT_DATA)"),
    ] {
        // The limit on stacks stays: without one the kernel lays out memory in another way.
        limits::lift_limit(which);
        let here = limits::hard_limit(which);
        if here < ROOM {
            let text = format!(
                "the limit on {name} is {here} bytes here, and the restorer alone takes up to {ROOM}: raise it"
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
    }
    Ok(())
}

/// Executes the restorer as a program.
fn start_restorer(argument: &CStr) -> io::Result<Infallible> {
    let mut file = unnamed(c"restorer", libc::MFD_CLOEXEC)?;
    file.write_all(RESTORER)?;
    let arguments = [c"restorer".as_ptr(), argument.as_ptr(), ptr::null()];
    let environment = [ptr::null::<libc::c_char>()];
    // SAFETY: both lists end with a null, and their texts with NUL.
    unsafe { libc::fexecve(file.as_raw_fd(), arguments.as_ptr(), environment.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// A new memory file.
fn unnamed(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: the name is ended by NUL.
    let memory = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    match memory {
        ..0 => {
            let error = io::Error::last_os_error();
            let text = format!("memfd_create, which the restorer needs, is refused: {error}");
            Err(io::Error::new(error.kind(), text))
        }
        // SAFETY: the descriptor was just opened, and no other code has it.
        memory => Ok(unsafe { File::from_raw_fd(memory) }),
    }
}

/// The image's program, and the library that is to be preloaded into it.
struct Program {
    path: CString,
    library: Option<CString>,
}

impl Program {
    /// Whether the program starts on this host. A process that has executed a program that lacks a
    /// library, or that is another program, can only end.
    fn can_start(&self) -> bool {
        let path = |text: &CString| OsStr::from_bytes(text.as_bytes()).to_owned();
        let mut command = Command::new(path(&self.path));
        command
            .env_clear()
            .env(
                OsStr::from_bytes(WORD.to_bytes()),
                OsStr::from_bytes(TRIAL.to_bytes()),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", path(library));
        }
        if let Some(folders) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", folders);
        }
        let Ok(mut child) = command.spawn() else {
            return false;
        };
        // The trial's output ends when the trial ends.
        let ends = child
            .stdout
            .as_ref()
            .map_or(-1, |output| output.as_raw_fd());
        let mut end = libc::pollfd {
            fd: ends,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the call waits for one descriptor, which is open.
        let told = unsafe { libc::poll(&raw mut end, 1, TRIAL_MS) };
        if told != 1 || end.revents & libc::POLLIN != 0 {
            // The trial may have ended meanwhile.
            let _ = child.kill();
        }
        child.wait().is_ok_and(|status| status.success())
    }

    fn start(&self, argument: &CStr) -> io::Result<Infallible> {
        let text = |name: &CStr, value: &CStr| {
            CString::new([name.to_bytes(), b"=", value.to_bytes()].concat())
        };
        let word = text(WORD, argument)?;
        let library = self.library.as_deref();
        let library = library.map(|path| text(c"LD_PRELOAD", path)).transpose()?;
        let preload = library.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let arguments = [self.path.as_ptr(), ptr::null()];
        // The restoring process sets where libraries are found, as the process that started the
        // program did.
        let folders = std::env::var_os("LD_LIBRARY_PATH");
        let folders = folders.and_then(|value| CString::new(value.into_vec()).ok());
        let folders = folders.map(|value| text(c"LD_LIBRARY_PATH", &value));
        let folders = folders.transpose()?;
        let mut environment = vec![word.as_ptr(), preload];
        environment.extend(folders.iter().map(|text| text.as_ptr()));
        environment.retain(|text| !text.is_null());
        environment.push(ptr::null());
        // SAFETY: both lists end with a null, and their texts with NUL.
        unsafe { libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        Err(io::Error::last_os_error())
    }
}

/// The program of an image in a file, if the program exists here unchanged and this library is in
/// it or can be preloaded.
fn own_program(image: BorrowedFd<'_>, folders: &[(&Path, &Path)]) -> Option<Program> {
    let mut file = File::from(image.try_clone_to_owned().ok()?);
    let at = file.stream_position().ok()?;
    let program = ImageReader::new(&mut file).ok().and_then(|mut reader| {
        // Early rounds may precede the first sections, so they are skipped and not read.
        program_of(reader.pass_heads().ok()?, folders)
    });
    file.seek(io::SeekFrom::Start(at)).ok()?;
    program
}

fn program_of(heads: &Heads, folders: &[(&Path, &Path)]) -> Option<Program> {
    let facts = heads.facts();
    let [path, library] =
        [facts.exe, facts.library].map(|name| here(heads.name_bytes(name), folders));
    let metadata = path.metadata().ok()?;
    let changed = metadata.mtime() as u64 * 1_000_000_000 + metadata.mtime_nsec() as u64;
    const OTHER_USER: u32 = libc::S_ISUID | libc::S_ISGID;
    let same = (metadata.size(), changed) == (facts.exe_size, facts.exe_changed_ns)
        // Such a program would lose its environment.
        && metadata.mode() & OTHER_USER == 0;
    let apart = library != path;
    if !same || apart && !library.is_file() {
        return None;
    }
    Some(Program {
        path: CString::new(path.into_os_string().into_vec()).ok()?,
        library: match apart {
            true => Some(CString::new(library.into_os_string().into_vec()).ok()?),
            false => None,
        },
    })
}

/// The name of a path on this host, by the longest folder that contains it.
pub fn here(path: &[u8], folders: &[(&Path, &Path)]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    let inside = folders.iter().filter(|(there, _)| path.starts_with(there));
    let longest = inside.max_by_key(|(there, _)| there.as_os_str().len());
    let moved = longest.and_then(|(there, here)| Some((here, path.strip_prefix(there).ok()?)));
    match moved {
        None => path.to_owned(),
        Some((here, rest)) if rest.as_os_str().is_empty() => here.to_path_buf(),
        Some((here, rest)) => here.join(rest),
    }
}

/// Clears close-on-exec of a descriptor.
fn inherit(fd: RawFd) -> io::Result<()> {
    // SAFETY: the call changes a flag of the descriptor.
    let value = unsafe { sys::call3(nr::FCNTL, fd as usize, libc::F_SETFD as usize, 0) };
    match sys::check(value) {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::from_raw_os_error(error.0)),
    }
}

/// Makes this program the process of an image, if it was started for that. Called before any code
/// of the program runs. The program's own `malloc` must not be called yet.
pub fn become_other() {
    // SAFETY: the program has one thread yet; the name is ended by NUL.
    let argument = unsafe {
        let value = libc::getenv(WORD.as_ptr());
        match value.is_null() {
            true => return,
            false => CStr::from_ptr(value),
        }
    };
    if argument == TRIAL {
        sys::exit_group(0);
    }
    // Code of other libraries may have made threads, which would lose their memory.
    let mut threads = 0;
    let listed = proc::for_each_number(b"/proc/self/task\0", "listing the threads", |_| {
        threads += 1;
        Ok(())
    });
    if listed.is_ok()
        && threads == 1
        && let Some(entry) = load()
    {
        // The kernel writes to the registered memory, which the restorer unmaps.
        rseq::look_up();
        rseq::leave();
        let arguments = [
            2,
            c"restorer".as_ptr() as usize,
            argument.as_ptr() as usize,
            0,
            0,
        ];
        // SAFETY: the restorer takes its arguments as the kernel passes them to a program, and does
        // not return.
        unsafe {
            std::arch::asm!(
                "mov rsp, {stack}",
                "jmp {entry}",
                stack = in(reg) arguments.as_ptr(),
                entry = in(reg) entry,
                options(noreturn),
            )
        }
    }
    // The program must not run as if it had been started normally.
    let Err(error) = start_restorer(argument);
    eprintln!("the image cannot be restored: {error}");
    sys::exit_group(crate::CANNOT_RESTORE)
}

/// Maps the restorer at its addresses, as the kernel does when it executes a program. Returns the
/// address of its first instruction.
fn load() -> Option<usize> {
    let word = |at: usize, len: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(RESTORER.get(at..at + len)?);
        Some(usize::from_le_bytes(bytes))
    };
    let (entry, table, size, count) = (word(24, 8)?, word(32, 8)?, word(54, 2)?, word(56, 2)?);
    const LOAD: usize = 1;
    for at in (0..count).map(|index| table + index * size) {
        if word(at, 4)? != LOAD {
            continue;
        }
        let (rights, from, address) = (word(at + 4, 4)?, word(at + 8, 8)?, word(at + 16, 8)?);
        let (stored, len) = (word(at + 32, 8)?, word(at + 40, 8)?);
        let content = RESTORER.get(from..from + stored)?;
        let start = address & !4095;
        let whole = (address + len - start).next_multiple_of(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        if sys::map(start, whole, prot, flags) != Ok(start) {
            return None;
        }
        // In ELF execute is 1, write 2, read 4; as protection it is the reverse.
        let prot = (rights & 4) >> 2 | rights & 2 | (rights & 1) << 2;
        // SAFETY: the range was just mapped, and is large enough.
        unsafe {
            ptr::copy_nonoverlapping(content.as_ptr(), address as *mut u8, stored);
            sys::call3(nr::MPROTECT, start, whole, prot);
        }
    }
    Some(entry)
}
