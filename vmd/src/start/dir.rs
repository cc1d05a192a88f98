//! The daemon's folder: it is private to one user, one daemon at a time has it, and the daemon
//! leaves notes in it.
//!
//! The folder has mode 0700 and belongs to the daemon's user, so no other user reaches the socket
//! in it. The daemon locks the folder itself and the file `pid` in it as long as it lives; its
//! guardian keeps the locks after it ([`crate::process::guardian`]). The kernel releases the locks
//! with the processes. So a socket that a daemon finds after it has got the locks belongs to a dead
//! daemon and is replaced. The lock of the folder keeps a second daemon out even if somebody
//! removes `pid`.
//!
//! A cleaner of temporary folders or a mistaken `rm` may remove files under a living daemon. The
//! daemon makes missing files again ([`Dir::look_after`]). A file that is not this daemon's own, by
//! device and inode, belongs to another daemon in a folder that was made again. This daemon leaves
//! such a file alone, also at its end. An orderly end removes the daemon's own socket, `address`
//! and `pid`. The secret and the log stay, and the file `ended` tells the next daemon how this one
//! ended ([`crate::start::ended`]).

use crate::{
    process::usage,
    start::{
        ended::{self, LastEnd},
        files::{make_new, write_whole},
        last,
    },
};
use anyhow::{Context, anyhow, bail, ensure};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FlockOperation, OFlags, flock},
    process::Pid,
};
use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use vm_local::NotPrivate;
use vm_wire::place;

/// Name of the file with the `address:port` at which other daemons can join.
const ADDRESS_FILE: &str = "address";
/// Name of the locked file with the daemon's process id.
pub const PID_FILE: &str = "pid";
/// How long a starting daemon waits for the end of the daemon that has the folder, and of the
/// processes of its tasks.
const END_WAIT: Duration = Duration::from_secs(3);
/// Interval between attempts to get the lock.
const END_LOOK: Duration = Duration::from_millis(5);
/// Interval at which the files are checked.
const LOOK: Duration = Duration::from_secs(2);
/// Longest path of a UNIX socket: `sun_path` without its final zero. Bytes.
const SOCKET_PATH_MAX: usize = 107;

/// The identity of a file, whatever its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(found: &Metadata) -> Identity {
        Identity(found.dev(), found.ino())
    }

    /// The identity of the file at `path`; none if there is no file.
    fn at(path: &Path) -> io::Result<Option<Identity>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Identity::of(&found))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A folder that one daemon has locked for itself.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    last: Option<LastEnd>,
    held: Arc<Mutex<Held>>,
}

/// Access to the daemon's folder from any thread. A folder that belongs to another daemon by now is
/// not changed, and neither is any folder once this daemon ends.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Mutex<Held>>);

impl Handle {
    /// As [`Dir::publish_address`]. A file that is made again later has this address, too.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn publish_address(&self, address: &str) -> anyhow::Result<()> {
        lock(&self.0).publish_address(address)
    }

    /// Removes the note about the machine, which was halted ([`crate::start::last`]).
    pub fn forget_machine(&self) {
        let held = lock(&self.0);
        if held.is_in_place() {
            last::forget(&held.path);
        }
    }
}

/// The daemon's files in the folder. They stay open, so that no later file gets their inodes.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    /// The folder; locked if its file system can lock folders.
    folder: File,
    folder_locked: bool,
    /// The file `pid`, locked.
    pid: File,
    socket: Option<Identity>,
    /// The published address.
    address: Option<String>,
    /// The address in the file, and the file.
    written: Option<(String, File)>,
    /// The identity of the lock that was handed to the guardian.
    handed: Option<Identity>,
    /// The folder that has this folder's name now, if its presence was logged.
    displaced: Option<Identity>,
    /// The daemon ends: no file is made again.
    left: bool,
}

impl Dir {
    /// Takes the folder `path` for this daemon; makes the folder if there is none.
    ///
    /// # Errors
    /// When the path is too long for a socket, the folder is not the user's own or open to others,
    /// or another daemon has it. Each says what to do.
    pub fn take(path: &Path) -> anyhow::Result<Dir> {
        check_length(path)?;
        make(path)?;
        check_private(path)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot resolve {}", path.display()))?;
        // The length is checked again, because the real path may be longer than the one that the
        // user wrote.
        check_length(&path)?;
        let (held, last) = Held::take(&path)?;
        Ok(Dir {
            path,
            last,
            held: Arc::new(Mutex::new(held)),
        })
    }

    /// The folder, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How the last daemon here ended, if it left a trace.
    pub fn last_end(&self) -> Option<&LastEnd> {
        self.last.as_ref()
    }

    /// Access for other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.held))
    }

    /// The socket of tasks and consoles.
    pub fn socket(&self) -> PathBuf {
        place::socket(&self.path)
    }

    /// A descriptor of the lock: no other daemon can take the folder as long as a process has this
    /// descriptor open.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        let mut held = self.held();
        held.handed = Some(held.lock_identity()?);
        held.lock_again()
    }

    /// Listens on the socket. From now on tasks and consoles can connect.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn listen(&self) -> anyhow::Result<UnixListener> {
        self.held().listen()
    }

    /// Writes the address at which other daemons can join to the file `address`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn publish_address(&self, address: &str) -> anyhow::Result<()> {
        self.held().publish_address(address)
    }

    /// Starts a thread that makes missing files again. It is a thread because the disk of the
    /// folder may be slow. `heard` gets each listener that was made again. `relocked` gets the new
    /// lock when it is not the one that [`Dir::lock`] returned.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn look_after(
        &self,
        heard: impl Fn(UnixListener) + Send + 'static,
        relocked: impl Fn(OwnedFd) + Send + 'static,
    ) -> anyhow::Result<()> {
        let held = Arc::clone(&self.held);
        let look = move || {
            let mut said = String::new();
            loop {
                thread::sleep(LOOK);
                let mut text = String::new();
                let mut fails = |error: anyhow::Error| text = format!("{error:#}");
                let mut held = lock(&held);
                match held.mend() {
                    Ok(socket) => socket.into_iter().for_each(&heard),
                    Err(error) => fails(error),
                }
                // This is also done after an error in `mend`: a part of the folder may have been
                // made again.
                match held.take_other_lock() {
                    Ok(lock) => lock.into_iter().for_each(&relocked),
                    Err(error) => fails(error.into()),
                }
                drop(held);
                // The same error is logged once: the folder may be gone for good.
                if !text.is_empty() && text != said {
                    log::error!("{text}");
                }
                said = text;
            }
        };
        let thread = thread::Builder::new().name("folder".to_owned());
        thread.spawn(look).context("cannot start a thread")?;
        Ok(())
    }

    /// Leaves a note for the next daemon in this folder of how this one ends.
    pub fn note_end(&self, text: &str) {
        if self.held().is_in_place()
            && let Err(error) = ended::note(&self.path, text)
        {
            log::warn!("cannot write how this daemon ended: {error}");
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

/// The state is valid also after a panic, because it is compared with the file system before each
/// use.
fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Dir {
    /// Removes the files by which another daemon would believe that this one lives, if they are
    /// this one's own. The lock is released last, with its file.
    fn drop(&mut self) {
        let mut held = self.held();
        held.left = true;
        held.remove_own();
    }
}

impl Held {
    fn take(path: &Path) -> anyhow::Result<(Held, Option<LastEnd>)> {
        let end = Instant::now() + END_WAIT;
        let folder = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let folder_locked = loop {
            match try_lock(&folder) {
                Ok(true) => break true,
                Ok(false) => wait_for_other(path, end)?,
                // Some file systems cannot lock folders (NFS for example). The lock of the file
                // `pid` suffices there.
                Err(error) => {
                    log::debug!("cannot lock {}: {error}", path.display());
                    break false;
                }
            }
        };
        let (pid, before) = lock_pid_file(path, end)?;
        let held = Held {
            path: path.to_owned(),
            folder,
            folder_locked,
            pid,
            socket: None,
            address: None,
            written: None,
            handed: None,
            displaced: None,
            left: false,
        };
        ensure!(
            held.is_in_place(),
            "{} was removed while this daemon took it; try again",
            path.display()
        );
        remove(&place::socket(path))?;
        remove(&path.join(ADDRESS_FILE))?;
        Ok((held, ended::take(path, &before)))
    }

    /// The file whose lock keeps other daemons out.
    fn lock(&self) -> &File {
        match self.folder_locked {
            true => &self.folder,
            false => &self.pid,
        }
    }

    fn lock_again(&self) -> io::Result<OwnedFd> {
        self.lock().as_fd().try_clone_to_owned()
    }

    fn lock_identity(&self) -> io::Result<Identity> {
        Ok(Identity::of(&self.lock().metadata()?))
    }

    /// The new lock, if it is not the one that was handed to the guardian.
    fn take_other_lock(&mut self) -> io::Result<Option<OwnedFd>> {
        let identity = self.lock_identity()?;
        if self.handed.is_none_or(|handed| handed == identity) {
            return Ok(None);
        }
        let lock = self.lock_again()?;
        self.handed = Some(identity);
        Ok(Some(lock))
    }

    /// Whether the folder's name still stands for the folder that was taken.
    fn is_in_place(&self) -> bool {
        let own = self.folder.metadata().map(|found| Identity::of(&found));
        let found = Identity::at(&self.path);
        matches!((own, found), (Ok(own), Ok(Some(found))) if own == found)
    }

    fn listen(&mut self) -> anyhow::Result<UnixListener> {
        let socket = place::socket(&self.path);
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        listener.set_nonblocking(true)?;
        self.socket = Identity::at(&socket)?;
        Ok(listener)
    }

    fn publish_address(&mut self, address: &str) -> anyhow::Result<()> {
        self.address = Some(address.to_owned());
        if self.left || !self.is_in_place() {
            // If the folder is made again, the address is written then.
            return Ok(());
        }
        let name = self.path.join(ADDRESS_FILE);
        let file = write_whole(&name, format!("{address}\n").as_bytes())
            .with_context(|| format!("cannot write {}", name.display()))?;
        self.written = Some((address.to_owned(), file));
        Ok(())
    }

    /// Makes missing files again. Returns the listener, if the socket was missing.
    fn mend(&mut self) -> anyhow::Result<Option<UnixListener>> {
        if self.left || self.is_displaced()? {
            return Ok(None);
        }
        if self.is_gone(PID_FILE)? {
            self.pid = make_pid_file(&self.path)?;
            self.say(PID_FILE);
        }
        if let Some(address) = self.address.clone() {
            let gone = self.is_gone(ADDRESS_FILE)?;
            let written = self.written.as_ref().map(|(text, _)| text);
            if gone || written != Some(&address) {
                self.publish_address(&address)?;
            }
            if gone {
                self.say(ADDRESS_FILE);
            }
        }
        if self.socket.is_some() && self.is_gone(place::SOCKET_FILE)? {
            let listener = self.listen()?;
            self.say(place::SOCKET_FILE);
            return Ok(Some(listener));
        }
        Ok(None)
    }

    fn is_gone(&self, name: &str) -> io::Result<bool> {
        Ok(Identity::at(&self.path.join(name))?.is_none())
    }

    fn say(&self, name: &str) {
        let path = self.path.join(name);
        log::warn!("{} was removed: it is made again", path.display());
    }

    /// Whether another folder has this folder's name now, which is logged once. A folder that is
    /// missing is made again.
    fn is_displaced(&mut self) -> anyhow::Result<bool> {
        if self.is_in_place() {
            return Ok(false);
        }
        if let Some(found) = Identity::at(&self.path)? {
            if self.displaced.replace(found) != Some(found) {
                log::error!(
                    "{} is not the folder any more in which this daemon began: no console and no \
                     new task reaches it; end it with `kill {}`",
                    self.path.display(),
                    std::process::id()
                );
            }
            return Ok(true);
        }
        make(&self.path)?;
        check_private(&self.path)?;
        let folder = File::open(&self.path)?;
        if self.folder_locked && !try_lock(&folder)? {
            // Another daemon has taken the new folder first.
            return Ok(true);
        }
        self.folder = folder;
        log::warn!(
            "{} was removed: it is made again, without the machine's secret",
            self.path.display()
        );
        Ok(false)
    }

    fn remove_own(&self) {
        if !self.is_in_place() {
            return;
        }
        let of = |file: &File| file.metadata().ok().map(|found| Identity::of(&found));
        let address = self.written.as_ref().and_then(|(_, file)| of(file));
        let own = [
            (place::SOCKET_FILE, self.socket),
            (ADDRESS_FILE, address),
            (PID_FILE, of(&self.pid)),
        ];
        for (name, identity) in own {
            let path = self.path.join(name);
            let found = Identity::at(&path).ok().flatten();
            if found.is_some()
                && found == identity
                && let Err(error) = remove(&path)
            {
                log::warn!("{error:#}");
            }
        }
    }
}

fn make(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make the folder {}", path.display()))
}

fn check_length(dir: &Path) -> anyhow::Result<()> {
    let socket = place::socket(dir);
    let length = socket.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        bail!(
            "the path {} is too long for a socket: {length} bytes, at most {SOCKET_PATH_MAX} are \
             possible; choose a shorter --dir",
            socket.display()
        );
    }
    Ok(())
}

fn check_private(path: &Path) -> anyhow::Result<()> {
    vm_local::check_private(path).map_err(|why| {
        let dir = path.display();
        let advice = match why {
            NotPrivate::Open { .. } => format!("run `chmod 700 {dir}` or choose another --dir"),
            _ => "choose another --dir".to_owned(),
        };
        anyhow!("cannot use {dir}: {why}; {advice}")
    })
}

/// Locks the file. Returns false if another process has the lock.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens and locks the file `pid`. A daemon that ends removes its file, so the locked file must
/// still be the one with the name. Returns the former content, too.
fn lock_pid_file(dir: &Path, end: Instant) -> anyhow::Result<(File, String)> {
    let name = dir.join(PID_FILE);
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&name)
            .with_context(|| format!("cannot open {}", name.display()))?;
        if !try_lock(&file).with_context(|| format!("cannot lock {}", name.display()))? {
            wait_for_other(dir, end)?;
            continue;
        }
        let own = Identity::of(&file.metadata()?);
        if Identity::at(&name)? == Some(own) {
            let before = read_pid(&file);
            write_pid(&mut file).with_context(|| format!("cannot write {}", name.display()))?;
            return Ok((file, before));
        }
    }
}

/// Makes a new file `pid` in the place of one that is missing.
fn make_pid_file(dir: &Path) -> anyhow::Result<File> {
    let name = dir.join(PID_FILE);
    let make = || -> anyhow::Result<File> {
        let mut file = make_new(&name)?;
        // On a file system that cannot lock folders, this lock alone keeps other daemons out.
        ensure!(try_lock(&file)?, "another process has locked it");
        write_pid(&mut file)?;
        Ok(file)
    };
    make().with_context(|| format!("cannot make {} again", name.display()))
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    // Reading the former content has moved the position.
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn read_pid(file: &File) -> String {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    text.trim().to_owned()
}

/// Waits because another process has the folder: a running daemon, a daemon that is about to end,
/// or the guardian of a daemon that was killed. Fails when the time `end` has come.
fn wait_for_other(dir: &Path, end: Instant) -> anyhow::Result<()> {
    if Instant::now() < end {
        thread::sleep(END_LOOK);
        return Ok(());
    }
    let file = File::open(dir.join(PID_FILE)).ok();
    let named = file.and_then(|file| Pid::from_raw(read_pid(&file).parse().ok()?));
    // Without the file, the peer credentials of the socket name the daemon.
    let by_socket = || {
        let socket = UnixStream::connect(place::socket(dir)).ok()?;
        vm_local::peer(&socket).ok()?.process
    };
    let living = named.filter(|pid| usage::living(*pid).is_some());
    let living = living.or_else(by_socket);
    let dir = dir.display();
    if let (None, Some(pid)) = (living, named) {
        bail!(
            "the daemon that had {dir} (process {pid}) has ended, and its guardian (vm-guardian) is \
             still ending what its tasks have started; try again in a moment, or give this daemon \
             another --dir and --name"
        );
    }
    let pid = living.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    bail!(
        "a daemon (process {pid}) runs in {dir} already; give this one another --dir and --name, \
         or take that one out of its machine with `kill {pid}` (`vm --dir {dir} halt` ends the \
         machine on all its hosts)"
    )
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
