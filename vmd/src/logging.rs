//! The log: lines of env_logger, written by a thread of its own.
//!
//! The event loop must not wait for a disk, nor for a terminal that somebody has stopped. So a line
//! goes into a bounded queue; what finds it full, or cannot be written because the disk is, is
//! dropped and counted, and the count is logged when there is room again. A log file has a bounded
//! size: once full it becomes `FILE.old`, in place of the one before.

use anyhow::Context;
use rustix::{fs::OFlags, io::Errno};
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

/// Lines that may wait for the writer.
const QUEUE_LINES: usize = 1024;
/// How long the end of the daemon waits for the last lines.
const FLUSH_TIME: Duration = Duration::from_millis(500);

/// Where lines end up.
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
    path: PathBuf,
    file: File,
    size: u64,
    size_max: u64,
}

impl LogFile {
    /// Opens or continues the log at `path`.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path, size_max: u64) -> anyhow::Result<LogFile> {
        let open = || -> io::Result<LogFile> {
            let file = append(path)?;
            Ok(LogFile {
                size: file.metadata()?.len(),
                path: path.to_owned(),
                file,
                size_max,
            })
        };
        open().with_context(|| format!("cannot open the log {}", path.display()))
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut old = self.path.clone().into_os_string();
        old.push(".old");
        fs::rename(&self.path, old)?;
        self.file = append(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

/// Opens or makes a log. Of what another user has put in its place, a link or a file of his, nothing
/// is opened: it may lie in a folder of all users.
fn append(path: &Path) -> io::Result<File> {
    match append_at(path) {
        Err(error) if is_link(&error) => {
            let link = fs::symlink_metadata(path)?;
            if !is_ours(&link) {
                let owner = link.uid();
                let text = format!("it is a link of user {owner}, which is not followed");
                return Err(io::Error::other(text));
            }
            append_at(&path.canonicalize()?)
        }
        opened => opened,
    }
}

fn append_at(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    let found = file.metadata()?;
    // A device, such as a terminal, belongs to whomever it does.
    if found.is_file() && (!is_ours(&found) || found.nlink() > 1) {
        let owner = found.uid();
        let text = format!("it is another file, of user {owner}, or has another name");
        return Err(io::Error::other(text));
    }
    Ok(file)
}

fn is_link(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Whether it belongs to this user or to the system.
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
    /// Answered once everything before it was written.
    Flush(SyncSender<()>),
}

/// The near end of the queue: what env_logger writes to, one line a call.
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

/// Keeps the way to the writer.
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

    /// Waits, for a limited time, until what was logged so far is written.
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
            // Nobody may be waiting any more.
            Order::Flush(done) => drop(done.try_send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_full_disk_drops_lines_and_harms_nothing() {
        let full = LogFile {
            path: PathBuf::from("/dev/full"),
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
