//! The connection to the daemon of this host, and to no other process.
//!
//! A task and a console send their daemon tokens, messages and images of all memory. So they do not
//! trust the name of a socket. The folder must be private to the user ([`check_private`]), as the
//! daemon itself requires of its folder at its start. The process that listens must run as the same
//! user ([`connect`]). Both checks come before the first byte is sent. The daemon checks its side
//! of each connection in the same way.
//!
//! The check of the process is the decisive one: the kernel records the user of a listener when it
//! begins to listen, and no process can change that record. The check of the folder gives an early
//! and clear error for a folder that others can enter.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::{Pid, geteuid};
use std::{
    fs, io,
    os::{
        fd::AsFd,
        unix::{fs::MetadataExt, net::UnixStream},
    },
    path::Path,
};

/// The reason why a folder cannot hold the socket and the secrets of this user.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    /// The path is a file or a symbolic link.
    #[error("it is not a folder")]
    NotAFolder,
    /// Another user owns the folder, and can change its content.
    #[error("it belongs to user {owner}, not to you (user {user})")]
    Owner {
        /// User id of the owner.
        owner: u32,
        /// User id of this process.
        user: u32,
    },
    /// The mode of the folder gives rights to others.
    #[error("it is open to others (mode {mode:04o})")]
    Open {
        /// All bits of its mode.
        mode: u32,
    },
    /// The system cannot examine the folder.
    #[error("it cannot be looked at: {0}")]
    System(#[source] io::Error),
}

/// The reason why there is no connection to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The folder of the socket is not safe; no connection was made.
    #[error("its folder is not safe: {0}")]
    Folder(#[source] NotPrivate),
    /// No process listens, or the system refuses.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// A process of another user listens; nothing was sent to it.
    #[error("a process of user {uid} listens there, not one of you (user {user})")]
    Foreign {
        /// User id of the process.
        uid: u32,
        /// User id of this process.
        user: u32,
    },
}

/// Checks that a folder belongs to the effective user of this process alone: the user owns it, and
/// group and others have no rights. A symbolic link is no folder.
///
/// # Errors
/// The violated condition. The caller adds the path and the remedy.
pub fn check_private(folder: &Path) -> Result<(), NotPrivate> {
    let facts = fs::symlink_metadata(folder).map_err(NotPrivate::System)?;
    let user = geteuid().as_raw();
    if !facts.is_dir() {
        return Err(NotPrivate::NotAFolder);
    }
    if facts.uid() != user {
        let owner = facts.uid();
        return Err(NotPrivate::Owner { owner, user });
    }
    match facts.mode() & 0o7777 {
        mode if mode & 0o077 != 0 => Err(NotPrivate::Open { mode }),
        _ => Ok(()),
    }
}

/// Connects to the socket of this user's daemon. Sends nothing.
///
/// # Errors
/// [`ConnectError`]. The folder is not checked if there is no socket.
pub fn connect(socket: &Path) -> Result<UnixStream, ConnectError> {
    fs::symlink_metadata(socket).map_err(ConnectError::Connect)?;
    let folder = match socket.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => socket,
    };
    check_private(folder).map_err(ConnectError::Folder)?;
    let stream = UnixStream::connect(socket).map_err(ConnectError::Connect)?;
    let peer = peer(&stream).map_err(ConnectError::Connect)?;
    match (peer.user, geteuid().as_raw()) {
        (uid, user) if uid != user => Err(ConnectError::Foreign { uid, user }),
        _ => Ok(stream),
    }
}

/// The process at the other end of a Unix socket: the one that connected, or listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// User id of the process.
    pub user: u32,
    /// Process id, if the process has one in this pid namespace. In a container, processes outside
    /// have none.
    pub process: Option<Pid>,
}

/// The process at the other end of a Unix socket.
///
/// # Errors
/// The error of the system call.
pub fn peer(socket: &impl AsFd) -> io::Result<Peer> {
    let found = getsockopt(socket, PeerCredentials)?;
    Ok(Peer {
        user: found.uid(),
        process: Pid::from_raw(found.pid()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket},
        thread::set_thread_res_uid,
    };
    use std::{
        io::Read,
        os::unix::{fs::PermissionsExt, fs::chown, fs::symlink, net::UnixListener},
        path::PathBuf,
        thread,
    };
    use tempfile::TempDir;

    /// A user id that owns nothing in the tests.
    const OTHER: u32 = 65_534;

    fn place() -> (TempDir, PathBuf) {
        let mut builder = tempfile::Builder::new();
        let private = fs::Permissions::from_mode(0o700);
        let folder = builder.permissions(private).tempdir().unwrap();
        let socket = folder.path().join("vmd.sock");
        (folder, socket)
    }

    #[test]
    fn a_daemon_of_this_user_in_a_private_folder_is_reached() {
        let (_folder, socket) = place();
        let listener = UnixListener::bind(&socket).unwrap();
        let _ours = connect(&socket).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn without_a_listener_the_error_is_that_of_the_system() {
        let (folder, socket) = place();
        for socket in [&socket, &folder.path().join("none/vmd.sock")] {
            let error = connect(socket).unwrap_err();
            assert!(
                matches!(&error, ConnectError::Connect(cause) if cause.kind() == io::ErrorKind::NotFound),
                "{error}"
            );
        }
    }

    #[test]
    fn a_folder_that_lets_others_in_is_refused_without_a_connection() {
        let (folder, socket) = place();
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let refused = |socket: &Path, why: &str| {
            let error = connect(socket).unwrap_err();
            assert!(matches!(error, ConnectError::Folder(_)), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
        refused(&socket, "open to others (mode 0750)");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let (around, _) = place();
        let link = around.path().join("link");
        symlink(folder.path(), &link).unwrap();
        refused(&link.join("vmd.sock"), "not a folder");
        if geteuid().is_root() {
            chown(folder.path(), Some(OTHER), None).unwrap();
            refused(&socket, "belongs to user 65534");
        }
        let none = listener.accept().map(drop).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_process_of_another_user_is_refused_and_sent_nothing() {
        if !geteuid().is_root() {
            println!("skipped: only root can listen as another user");
            return;
        }
        let (_folder, path) = place();
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // The kernel records the user of the thread that begins to listen.
        let listener = thread::spawn(|| {
            let other = rustix::process::Uid::from_raw(OTHER);
            set_thread_res_uid(other, other, other).unwrap();
            listen(&listener, 1).unwrap();
            UnixListener::from(listener)
        });
        let listener = listener.join().unwrap();
        let error = connect(&path).unwrap_err();
        assert!(
            matches!(error, ConnectError::Foreign { uid: OTHER, .. }),
            "{error}"
        );
        let mut sent = Vec::new();
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_to_end(&mut sent).unwrap();
        assert!(sent.is_empty());
    }
}
