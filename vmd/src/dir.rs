//! The daemon's folder: who may use it, that one daemon at a time does, and what it leaves there.
//!
//! The folder has mode 0700 and belongs to the daemon's user, so nobody else reaches the socket in
//! it. The file `pid` is locked as long as the daemon lives; the lock goes with the process, so a
//! socket found by a daemon that got the lock is that of a dead one and is replaced. On a normal
//! end the socket, `address` and `pid` are removed; the secret and the log stay.

use anyhow::{Context, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, flock},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};
use vm_local::NotPrivate;
use vm_wire::place;

/// Name of the file with `address:port` for those who want to join.
const ADDRESS_FILE: &str = "address";
/// Name of the locked file with the daemon's process id.
const PID_FILE: &str = "pid";
/// How long the end of the daemon that has the folder is awaited.
const END_WAIT: Duration = Duration::from_secs(2);
/// Longest path of a UNIX socket: `sun_path` without its final zero. Bytes.
const SOCKET_PATH_MAX: usize = 107;

/// A folder that this daemon has for itself.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    /// Holds the lock.
    _pid: File,
}

impl Dir {
    /// Takes `path` for this daemon; makes it if there is none.
    ///
    /// # Errors
    /// When the path is too long for a socket, the folder is not the user's own or open to others,
    /// or another daemon has it. Each says what to do.
    pub fn take(path: &Path) -> anyhow::Result<Dir> {
        check_length(path)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        check_private(path)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot resolve {}", path.display()))?;
        // Again, because the real path may be longer than what the user wrote.
        check_length(&path)?;
        let pid = lock(&path)?;
        let dir = Dir { path, _pid: pid };
        remove(&dir.socket())?;
        remove(&dir.path.join(ADDRESS_FILE))?;
        Ok(dir)
    }

    /// The folder, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket of tasks and consoles.
    pub fn socket(&self) -> PathBuf {
        place::socket(&self.path)
    }

    /// Listens on the socket: from now on tasks and consoles are heard.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self) -> anyhow::Result<UnixListener> {
        let socket = self.socket();
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Tells those who want to join where this daemon listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn publish_address(&self, address: &str) -> anyhow::Result<()> {
        write_address(&self.path, address)
    }
}

/// Likewise, in the folder `dir` of a daemon.
///
/// # Errors
/// What the system says.
pub fn write_address(dir: &Path, address: &str) -> anyhow::Result<()> {
    let file = dir.join(ADDRESS_FILE);
    write_whole(&file, format!("{address}\n").as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

impl Drop for Dir {
    /// Removes what another daemon would take for a living one. The lock goes last, with the file
    /// that holds it, so no other daemon's files can be meant.
    fn drop(&mut self) {
        for name in [place::SOCKET_FILE, ADDRESS_FILE, PID_FILE] {
            if let Err(error) = remove(&self.path.join(name)) {
                log::warn!("{error:#}");
            }
        }
    }
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

/// Opens and locks the pid file; a daemon that ends removes it, so what was locked must still be
/// what the name stands for.
fn lock(dir: &Path) -> anyhow::Result<File> {
    let name = dir.join(PID_FILE);
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .with_context(|| format!("cannot open {}", name.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // An empty file means that the other one is just starting.
                let _ = (&file).take(32).read_to_string(&mut text);
                let pid = text.trim();
                let ended = pid
                    .parse()
                    .ok()
                    .and_then(Pid::from_raw)
                    .is_some_and(ends_soon);
                if !ended || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    let dir = dir.display();
                    bail!(
                        "a daemon (process {pid}) runs in {dir} already; give this one another \
                         --dir and --name, or take that one out of its machine with `kill {pid}` \
                         (`vm --dir {dir} halt` ends the machine on all its hosts)"
                    );
                }
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", name.display()));
            }
        }
        let same = fs::metadata(&name)
            .is_ok_and(|found| file.metadata().is_ok_and(|ours| found.ino() == ours.ino()));
        if same {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())
                .with_context(|| format!("cannot write {}", name.display()))?;
            return Ok(file);
        }
    }
}

/// Writes a small file so that readers see all of it or none.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(bytes)?;
    fs::rename(&draft, path)
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether a process ends in a moment: one that has just left its machine does.
fn ends_soon(pid: Pid) -> bool {
    let time = Timespec::try_from(END_WAIT).ok();
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(end) => {
            let mut ends = [PollFd::new(&end, PollFlags::IN)];
            poll(&mut ends, time.as_ref()).is_ok_and(|ended| ended > 0)
        }
        Err(error) => error == rustix::io::Errno::SRCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn refusal(path: &Path) -> String {
        format!("{:#}", Dir::take(path).expect_err("must be refused"))
    }

    #[test]
    fn a_new_folder_is_private_and_left_without_traces() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("a/vm");
        let dir = Dir::take(&path).expect("a new folder");
        assert_eq!(fs::metadata(&path).expect("made").mode() & 0o777, 0o700);
        let listener = dir.listen().expect("a socket");
        dir.publish_address("127.0.0.1:7170").expect("an address");
        drop((dir, listener));
        assert_eq!(fs::read_dir(&path).expect("kept").count(), 0);
    }

    #[test]
    fn one_daemon_at_a_time_has_a_folder() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("vm");
        let first = Dir::take(&path).expect("free");
        let refusal = refusal(&path);
        assert!(
            refusal.contains(&std::process::id().to_string()),
            "{refusal}"
        );
        drop(first);
        Dir::take(&path).expect("free again");
    }

    #[test]
    fn the_socket_of_a_dead_daemon_is_taken_over() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("vm");
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .expect("a folder");
        drop(UnixListener::bind(path.join(place::SOCKET_FILE)).expect("a socket"));
        let dir = Dir::take(&path).expect("nobody lives there");
        dir.listen().expect("the stale socket is gone");
    }

    #[test]
    fn what_is_not_private_is_refused() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let open = temp.path().join("open");
        fs::create_dir(&open).expect("a folder");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("a mode");
        assert!(refusal(&open).contains("chmod 700"));
        let file = temp.path().join("file");
        fs::write(&file, "").expect("a file");
        assert!(refusal(&file).contains("folder"));
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_before_anything_is_made() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("x".repeat(SOCKET_PATH_MAX));
        assert!(refusal(&path).contains("too long for a socket"));
        assert!(!path.exists());
    }
}
