//! Open descriptors that cannot be restored: the save names them, and no thread is stopped.

use crate::{
    memory::PAGE,
    point::{folder, refused, refused_to_carry},
};
use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    fs::{self, MemfdFlags, Mode, OFlags, inotify},
    mm::{self, MapFlags, ProtFlags},
    net,
    time::{TimerfdClockId, TimerfdFlags, timerfd_create},
};
use std::{fs::File, os::fd::AsFd, process::Command, ptr};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("refused_socket", refused_socket),
    ("refused_pipe", refused_pipe),
    ("refused_named_pipe", refused_named_pipe),
    ("refused_epoll", refused_epoll),
    ("refused_eventfd", refused_eventfd),
    ("refused_timerfd", refused_timerfd),
    ("refused_signalfd", refused_signalfd),
    ("refused_inotify", refused_inotify),
    ("refused_io_uring", refused_io_uring),
    ("refused_pidfd", refused_pidfd),
    ("refused_device", refused_device),
    ("refused_deleted_file", refused_deleted_file),
    ("refused_memfd", refused_memfd),
    ("refused_mapped_memfd", refused_mapped_memfd),
    ("refused_sealed_file", refused_sealed_file),
    (
        "refused_unreadable_to_be_carried",
        refused_unreadable_to_be_carried,
    ),
    ("refused_mapped_deleted_file", refused_mapped_deleted_file),
    ("refused_shm", refused_shm),
    ("refused_lease", refused_lease),
    (
        "refused_file_with_another_name",
        refused_file_with_another_name,
    ),
    (
        "refused_file_of_another_process",
        refused_file_of_another_process,
    ),
    ("refused_file_without_path", refused_file_without_path),
];

fn refused_socket() {
    let kept = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None);
    refused("is a TCP socket that is not connected");
    drop(kept.expect("a socket"));
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    refused("is a UNIX socket connected to one without a name");
    drop((one, other));
}

/// Another process, which is no child of this one, reads from the pipe.
fn refused_pipe() {
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let script = "exec 3<&0; cat <&3 >/dev/null 2>&1 3<&- & exit 0";
    let status = Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(reader)
        .status();
    assert!(status.expect("there is a shell").success());
    refused("a pipe to another process");
    // The other process ends.
    drop(writer);
}

fn refused_named_pipe() {
    let path = format!("{}/named", folder());
    fs::mkfifoat(fs::CWD, &path, Mode::RUSR | Mode::WUSR).expect("a pipe can be made");
    let kept = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("it is there");
    refused("the named pipe");
    drop(kept);
}

fn refused_epoll() {
    let kept = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an instance");
    refused("an epoll instance");
    drop(kept);
}

fn refused_eventfd() {
    let kept = eventfd(3, EventfdFlags::CLOEXEC).expect("an eventfd");
    refused("an eventfd");
    drop(kept);
}

fn refused_timerfd() {
    let kept = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a timer");
    refused("a timerfd");
    drop(kept);
}

fn refused_signalfd() {
    let set = crate::masks::set_of(&[libc::SIGUSR1]);
    // SAFETY: the call reads the set.
    let kept = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC) };
    assert!(kept >= 0);
    refused("a signalfd");
}

fn refused_inotify() {
    let kept = inotify::init(inotify::CreateFlags::CLOEXEC).expect("an instance");
    refused("an inotify instance");
    drop(kept);
}

fn refused_io_uring() {
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel reads and writes 120 bytes of parameters.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
    if ring < 0 {
        return println!("note: this kernel gives this user no io_uring");
    }
    refused("an io_uring");
}

fn refused_pidfd() {
    let own = rustix::process::getpid();
    let flags = rustix::process::PidfdFlags::empty();
    let kept = rustix::process::pidfd_open(own, flags).expect("a pidfd");
    refused("a pidfd");
    drop(kept);
}

fn refused_device() {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(kept) = fs::open("/dev/ptmx", flags, Mode::empty()) else {
        return println!("note: there are no terminals to be had here");
    };
    refused("is the device /dev/");
    drop(kept);
}

fn deleted(name: &str) -> File {
    let path = format!("{}/{name}", folder());
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    std::fs::remove_file(&path).expect("it can be removed");
    let file = file.expect("a file can be made");
    file.set_len(2 * PAGE as u64).expect("it can grow");
    file
}

fn refused_deleted_file() {
    let kept = deleted("deleted");
    refused("is a deleted file");
    drop(kept);
}

fn refused_memfd() {
    let kept = fs::memfd_create("zoo", MemfdFlags::CLOEXEC).expect("memory");
    refused("is a deleted file (/memfd:zoo");
    drop(kept);
}

/// Restored separately, one would not show what is written to the other.
fn refused_mapped_memfd() {
    let kept = fs::memfd_create("zoo", MemfdFlags::CLOEXEC).expect("memory");
    fs::ftruncate(&kept, PAGE as u64).expect("it can grow");
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory.
    let at = unsafe { mm::mmap(ptr::null_mut(), PAGE, rights, MapFlags::SHARED, &kept, 0) };
    let at = at.expect("memory");
    refused_to_carry("is a memory file that is mapped too");
    // SAFETY: no code uses the memory.
    unsafe { mm::munmap(at, PAGE).expect("it was mapped") };
    drop(kept);
}

fn refused_sealed_file() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let kept = fs::memfd_create("zoo", flags).expect("memory");
    fs::fcntl_add_seals(&kept, fs::SealFlags::GROW).expect("a seal");
    refused_to_carry("is a sealed file (/memfd:zoo");
    drop(kept);
}

fn refused_unreadable_to_be_carried() {
    if rustix::process::geteuid().is_root() {
        // Root may read every file.
        return;
    }
    let path = format!("{}/unreadable", folder());
    let file = File::create(&path).expect("a file can be made");
    fs::chmod(&path, Mode::WUSR).expect("it is our own");
    refused_to_carry("cannot be read, so that it cannot be carried");
    drop(file);
}

fn map_shared(file: impl AsFd) {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    unsafe { mm::mmap(ptr::null_mut(), 2 * PAGE, prot, flags, file, 0) }.expect("it can be mapped");
}

fn refused_mapped_deleted_file() {
    map_shared(deleted("mapped"));
    refused("the deleted file");
}

fn refused_shm() {
    let path = format!("/dev/shm/vm-zoo-{}", std::process::id());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("shared memory");
    file.set_len(2 * PAGE as u64).expect("it can grow");
    map_shared(&file);
    drop(file);
    let outcome = std::panic::catch_unwind(|| refused("shared with other processes"));
    std::fs::remove_file(&path).expect("it can be removed");
    outcome.expect("refused while it has a name");
    refused("shared with other processes");
}

/// A lease: the kernel notifies the process when the file is opened elsewhere.
fn refused_lease() {
    use std::os::fd::AsRawFd as _;
    let path = format!("{}/leased", folder());
    fs::open(&path, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).expect("a file can be made");
    let file = File::open(&path).expect("it is there");
    // SAFETY: the call concerns this file alone.
    let leased = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    assert_eq!(leased, 0, "a lease can be had");
    refused("holds a lease on");
}

/// The restored process would write to a new file, and not to the file under the other name.
fn refused_file_with_another_name() {
    let (one, other) = (format!("{}/one", folder()), format!("{}/other", folder()));
    let kept = File::create(&one).expect("a file can be made");
    std::fs::hard_link(&one, &other).expect("it can have two names");
    std::fs::remove_file(&one).expect("it is there");
    let why = "whose name was removed while 1 other one stays";
    refused(why);
    refused_to_carry(why);
    File::create(&one).expect("a file can be made");
    refused("whose name was removed while 1 other one stays");
    std::fs::remove_file(&other).expect("it is there");
    refused("is a deleted file");
    drop(kept);
}

/// The restored process does not have the other process, or the other thread.
fn refused_file_of_another_process() {
    let parent = std::os::unix::process::parent_id();
    let kept = File::open(format!("/proc/{parent}/stat")).expect("it can be read");
    refused(&format!("is /proc/{parent}/stat, of another process"));
    drop(kept);
    let (give, taken) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        give.send(crate::point::tid()).expect("it is waited for");
        // Blocks until the other end is dropped.
        let _ = ends.recv();
    });
    let tid = taken.recv().expect("a number");
    let kept = File::open(format!("/proc/self/task/{tid}/stat")).expect("it can be read");
    refused(", of one of its threads");
    drop((kept, end));
    thread.join().expect("it ends");
}

/// The kernel's file of a namespace has no path.
fn refused_file_without_path() {
    let kept = File::open("/proc/self/ns/net").expect("it can be opened");
    refused("and nothing of that name can be reached");
    drop(kept);
}
