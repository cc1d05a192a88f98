//! The log: lines of env_logger, written by a thread of its own.
//!
//! The event loop must not wait for a disk, nor for a terminal that a user has stopped. So a line
//! goes into a bounded queue. A line that finds the queue full, or that cannot be written because
//! the disk is full, is dropped and counted. The count is logged when there is room again. A log
//! file has a bounded size: a full file is renamed to `FILE.old`, in place of the one before.

use anyhow::Context;
use rustix::fs::OFlags;
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Duration,
};

/// Bound on the lines that wait for the writer.
const QUEUE_LINES: usize = 1024;
/// How long the end of the daemon waits for the last lines.
const FLUSH_TIME: Duration = Duration::from_millis(500);

/// The destination of lines.
#[derive(Debug)]
pub enum Sink {
    /// Standard error.
    Stderr,
    /// A file of a bounded size.
    File(LogFile),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stderr => io::stderr().write(bytes),
            Sink::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is renamed to `NAME.old` and begun anew before it exceeds its size.
#[derive(Debug)]
pub struct LogFile {
    /// The file's resolved path. None for a pipe or a device, which has no size.
    path: Option<PathBuf>,
    file: File,
    size: u64,
    size_max: u64,
}

impl LogFile {
    /// Opens or continues the log at `path`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn open(path: &Path, size_max: u64) -> anyhow::Result<LogFile> {
        let open = || -> io::Result<LogFile> {
            let file = append(path)?;
            let found = file.metadata()?;
            // A file that was removed, and is open as standard error, has no path.
            let own = path.canonicalize().ok().filter(|_| found.is_file());
            Ok(LogFile {
                size: found.len(),
                path: own,
                file,
                size_max,
            })
        };
        open().with_context(|| format!("cannot open the log {}", path.display()))
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut old = path.clone().into_os_string();
        old.push(".old");
        fs::rename(path, old)?;
        self.file = append(path)?;
        self.size = 0;
        Ok(())
    }
}

/// Opens or makes a log. In a folder where other users may make files, a file that another user has
/// put there is not opened: a link, a file of that user, or another name of a file of this user.
fn append(path: &Path) -> io::Result<File> {
    if !is_shared(path) {
        return append_at(path, OFlags::empty());
    }
    let link = || fs::symlink_metadata(path).ok().filter(Metadata::is_symlink);
    let (file, names) = match append_at(path, OFlags::NOFOLLOW) {
        Ok(file) => (file, 1),
        Err(error) => match link() {
            // The file behind this user's own link may have several names.
            Some(link) if is_ours(&link) => (append_at(path, OFlags::empty())?, u64::MAX),
            Some(link) => {
                let owner = link.uid();
                let text = format!("it is a link of user {owner}, which is not followed");
                return Err(io::Error::other(text));
            }
            None => return Err(error),
        },
    };
    let found = file.metadata()?;
    // A device, such as a terminal, may belong to any user.
    if found.is_file() && (!is_ours(&found) || found.nlink() > names) {
        let owner = found.uid();
        let text = format!("it is another file, of user {owner}, or has another name");
        return Err(io::Error::other(text));
    }
    Ok(file)
}

fn append_at(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

/// Whether other users may make files in the folder of a file.
fn is_shared(path: &Path) -> bool {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let Ok(found) = fs::metadata(folder.unwrap_or(Path::new("."))) else {
        return true;
    };
    // On many systems each user has a group of their own, so write access of the group is harmless.
    let own_group = found.gid() == rustix::process::getegid().as_raw();
    let others = if own_group { 0o002 } else { 0o022 };
    !is_ours(&found) || found.mode() & others != 0
}

/// Whether the file belongs to this user or to root.
fn is_ours(found: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size + bytes.len() as u64 > self.size_max {
            self.rotate()?;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Order {
    Line(Vec<u8>),
    /// Answered once every earlier line is written.
    Flush(SyncSender<()>),
}

/// The sending end of the queue. env_logger writes one line in each call.
struct Queue {
    lines: SyncSender<Order>,
    dropped: Arc<AtomicU64>,
}

impl Write for Queue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Order::Line(bytes.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Handle of the writer's queue.
#[derive(Debug)]
pub struct Log {
    lines: SyncSender<Order>,
}

impl Log {
    /// Starts the writer and makes it the process's logger. `RUST_LOG` selects as usual.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(sink: Sink) -> anyhow::Result<Log> {
        let (queue, log) = start_writer(sink)?;
        env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
            .target(env_logger::Target::Pipe(Box::new(queue)))
            .init();
        Ok(log)
    }

    /// Waits, for a limited time, until all earlier lines are written.
    pub fn flush(&self) {
        let (done, written) = mpsc::sync_channel(1);
        if self.lines.try_send(Order::Flush(done)).is_ok() {
            // A sink that is stuck must not keep the daemon from ending.
            let _ = written.recv_timeout(FLUSH_TIME);
        }
    }
}

fn start_writer(sink: Sink) -> anyhow::Result<(Queue, Log)> {
    let (lines, orders) = mpsc::sync_channel(QUEUE_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let queue = Queue {
        lines: lines.clone(),
        dropped: dropped.clone(),
    };
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_lines(sink, &orders, &dropped))
        .context("cannot start the log's thread")?;
    Ok((queue, Log { lines }))
}

fn write_lines(mut sink: Sink, orders: &Receiver<Order>, dropped: &AtomicU64) {
    for order in orders {
        match order {
            Order::Line(line) => {
                let lost = dropped.load(Ordering::Relaxed);
                let note = (lost > 0).then(|| format!("[{lost} lines of the log were dropped]\n"));
                let result = note
                    .map_or(Ok(()), |note| sink.write_all(note.as_bytes()))
                    .inspect(|()| {
                        dropped.fetch_sub(lost, Ordering::Relaxed);
                    })
                    .and_then(|()| sink.write_all(&line));
                if result.is_err() {
                    dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            // The caller of `flush` may have stopped waiting.
            Order::Flush(done) => drop(done.try_send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Read as _,
        os::{
            fd::{AsRawFd as _, RawFd},
            unix::fs::PermissionsExt as _,
        },
    };

    #[test]
    fn a_log_file_never_exceeds_its_size_and_keeps_one_predecessor() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("vmd.log");
        let mut log = LogFile::open(&path, 100).expect("opened");
        for number in 0..50 {
            log.write_all(format!("line {number:03}\n").as_bytes())
                .expect("written");
            assert!(fs::metadata(&path).expect("there").len() <= 100);
        }
        let old = fs::read_to_string(temp.path().join("vmd.log.old")).expect("rotated");
        let new = fs::read_to_string(&path).expect("there");
        assert!((old + &new).ends_with("line 048\nline 049\n"));
        assert_eq!(fs::read_dir(temp.path()).expect("listed").count(), 2);
        drop(log);
        let again = LogFile::open(&path, 100).expect("continued");
        assert_eq!(again.size, new.len() as u64);
    }

    #[test]
    fn a_log_is_no_file_and_no_link_of_another_user() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let everybody = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(temp.path(), everybody).expect("it is ours");
        let (path, other) = (temp.path().join("vmd.log"), temp.path().join("other"));
        fs::write(&other, "kept").expect("a file");
        // A link of the user's own is followed.
        std::os::unix::fs::symlink(&other, &path).expect("a link");
        assert!(append(&path).is_ok());
        fs::remove_file(&path).expect("it was there");
        fs::hard_link(&other, &path).expect("another name");
        assert!(append(&path).is_err());
        if !rustix::process::geteuid().is_root() {
            return;
        }
        fs::remove_file(&path).expect("it was there");
        let give = |path: &Path| std::os::unix::fs::lchown(path, Some(1), Some(1));
        std::os::unix::fs::symlink(&other, &path).expect("a link");
        give(&path).expect("root may");
        assert!(
            append(&path)
                .expect_err("a link")
                .to_string()
                .contains("user 1")
        );
        fs::remove_file(&path).expect("it was there");
        fs::write(&path, "").expect("a file");
        give(&path).expect("root may");
        assert!(append(&path).is_err());
        assert_eq!(fs::read_to_string(&other).expect("there"), "kept");
    }

    #[test]
    fn a_log_in_a_folder_of_the_user_may_have_other_names() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let (path, backup) = (temp.path().join("vmd.log"), temp.path().join("backup"));
        fs::write(&path, "old\n").expect("a file");
        fs::hard_link(&path, &backup).expect("another name");
        let mut log = LogFile::open(&path, 100).expect("continued");
        log.write_all(b"new\n").expect("written");
        assert_eq!(fs::read_to_string(&backup).expect("there"), "old\nnew\n");
        // A link to a file that does not exist yet is followed, and stays when that file is full.
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("real", &link).expect("a link");
        let mut log = LogFile::open(&link, 6).expect("made");
        for _ in 0..2 {
            log.write_all(b"line\n").expect("written");
        }
        assert!(fs::symlink_metadata(&link).expect("kept").is_symlink());
        for name in ["real", "real.old"] {
            let text = fs::read_to_string(temp.path().join(name)).expect("there");
            assert_eq!(text, "line\n");
        }
    }

    #[test]
    fn a_log_may_be_an_open_pipe_or_a_file_without_a_name() {
        let (mut read, write) = io::pipe().expect("a pipe");
        let name = |fd: RawFd| PathBuf::from(format!("/proc/self/fd/{fd}"));
        let mut log = LogFile::open(&name(write.as_raw_fd()), 6).expect("opened");
        for _ in 0..2 {
            log.write_all(b"line\n").expect("written");
        }
        let mut lines = [0; 10];
        read.read_exact(&mut lines).expect("written");
        assert_eq!(&lines, b"line\nline\n");
        let file = tempfile::tempfile().expect("a file");
        let mut log = LogFile::open(&name(file.as_raw_fd()), 6).expect("opened");
        for _ in 0..2 {
            log.write_all(b"line\n").expect("written");
        }
        assert_eq!(file.metadata().expect("open").len(), 10);
    }

    #[test]
    fn a_full_disk_drops_lines_and_harms_nothing() {
        let full = LogFile {
            path: None,
            file: OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .expect("a disk that is full"),
            size: 0,
            size_max: u64::MAX,
        };
        let (mut queue, log) = start_writer(Sink::File(full)).expect("started");
        for _ in 0..3 {
            queue.write_all(b"lost\n").expect("never an error");
        }
        log.flush();
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 3);
    }
}
