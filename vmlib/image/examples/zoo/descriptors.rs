//! Open descriptors other than files: pipes within the process, and devices that all hosts have.

use crate::point::save_point;
use rustix::{
    io::{FdFlags, dup, fcntl_getfd},
    pipe::{PipeFlags, pipe, pipe_with},
};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsFd, AsRawFd as _},
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("pipe_with_content", pipe_with_content),
    ("pipe_that_is_full", pipe_that_is_full),
    ("pipe_with_duplicates", pipe_with_duplicates),
    ("pipe_opened_twice", pipe_opened_twice),
    ("harmless_devices", harmless_devices),
    ("standard_output_twice", standard_output_twice),
    (
        "standard_streams_that_were_one",
        standard_streams_that_were_one,
    ),
    ("many_descriptors", many_descriptors),
    ("gaps", gaps),
];

/// The content of the pipe is still there, once.
fn pipe_with_content() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    let (mut reader, mut writer) = (File::from(reader), File::from(writer));
    writer.write_all(b"some bytes").expect("there is room");
    save_point();
    writer.write_all(b", and more").expect("there is room");
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("it can be read");
    assert_eq!(text, "some bytes, and more");
    assert_eq!(fcntl_getfd(&reader), Ok(FdFlags::CLOEXEC));
}

/// 64 KiB, in pieces.
fn pipe_that_is_full() {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
    let (mut reader, mut writer) = (File::from(reader), File::from(writer));
    let bytes: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 253) as u8).collect();
    let mut len = 0;
    while let Ok(count) = writer.write(&bytes[len..len + 4096]) {
        len += count;
    }
    save_point();
    assert!(writer.write(&[0]).is_err(), "it is not full any more");
    drop(writer);
    let mut found = Vec::new();
    reader.read_to_end(&mut found).expect("it can be read");
    assert_eq!(found, bytes[..len]);
    assert_eq!(fcntl_getfd(&reader), Ok(FdFlags::empty()));
}

/// The pipe ends when its last writer is closed, and not before.
fn pipe_with_duplicates() {
    let (reader, writer) = pipe().expect("a pipe");
    let (again, writer_again) = (
        dup(&reader).expect("a number"),
        dup(&writer).expect("a number"),
    );
    let mut file = File::from(writer);
    file.write_all(b"12").expect("there is room");
    save_point();
    let mut byte = [0];
    File::from(reader)
        .read_exact(&mut byte)
        .expect("it can be read");
    assert_eq!(byte, *b"1");
    drop(file);
    File::from(writer_again)
        .write_all(b"3")
        .expect("somebody reads");
    let mut rest = String::new();
    File::from(again)
        .read_to_string(&mut rest)
        .expect("it ends");
    assert_eq!(rest, "23");
}

/// Each opening of an end has its own flags.
fn pipe_opened_twice() {
    let (reader, writer) = pipe().expect("a pipe");
    let opened = |end: &std::os::fd::OwnedFd, flags| {
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(end));
        rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("it can be opened again")
    };
    use rustix::fs::{OFlags, fcntl_getfl};
    let reads = opened(&reader, OFlags::RDONLY | OFlags::NONBLOCK);
    let writes = opened(&writer, OFlags::WRONLY | OFlags::NONBLOCK);
    let same = dup(&writes).expect("a number");
    save_point();
    let waits = |end: &std::os::fd::OwnedFd| {
        !fcntl_getfl(end)
            .expect("it is open")
            .contains(OFlags::NONBLOCK)
    };
    assert_eq!(
        [&reader, &writer, &reads, &writes, &same].map(waits),
        [true, true, false, false, false]
    );
    rustix::io::write(&same, b"x").expect("there is room");
    let mut byte = [0];
    rustix::io::read(&reads, &mut byte).expect("it can be read");
    assert_eq!(byte, *b"x");
    assert_eq!(
        rustix::io::read(&reads, &mut byte),
        Err(rustix::io::Errno::AGAIN)
    );
}

fn harmless_devices() {
    let open = |path| {
        File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("it is there")
    };
    let (mut null, mut zero) = (open("/dev/null"), open("/dev/zero"));
    let mut random = File::open("/dev/urandom").expect("it is there");
    let mut before = [0u8; 16];
    random.read_exact(&mut before).expect("it can be read");
    save_point();
    null.write_all(b"x").expect("it takes all");
    assert_eq!(null.read(&mut [1; 8]).expect("it can be read"), 0);
    let mut bytes = [1u8; 16];
    zero.read_exact(&mut bytes).expect("it can be read");
    assert_eq!(bytes, [0; 16]);
    random.read_exact(&mut bytes).expect("it can be read");
    assert_ne!(bytes, before);
}

/// A duplicate of standard output leads to the standard output of the restored process.
fn standard_output_twice() {
    let again = dup(std::io::stdout().as_fd()).expect("a number");
    save_point();
    let mut file = File::from(again);
    file.write_all(b"").expect("it can be written");
    let target = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("it is open");
    assert_eq!(target(1), target(file.as_raw_fd()));
}

/// The three streams are one terminal, as in a shell. In the restored process they need not be: its
/// input cannot be written.
fn standard_streams_that_were_one() {
    rustix::stdio::dup2_stdin(std::io::stdout()).expect("a stream");
    rustix::stdio::dup2_stderr(std::io::stdout()).expect("a stream");
    let again = dup(std::io::stdout().as_fd()).expect("a number");
    let life = save_point();
    let way = |fd: std::os::fd::BorrowedFd<'_>| {
        let flags = rustix::fs::fcntl_getfl(fd).expect("it is open");
        flags & rustix::fs::OFlags::RWMODE
    };
    for output in [
        std::io::stdout().as_fd(),
        std::io::stderr().as_fd(),
        again.as_fd(),
    ] {
        assert_eq!(way(output), rustix::fs::OFlags::WRONLY);
    }
    let is_written = way(std::io::stdin().as_fd()) == rustix::fs::OFlags::WRONLY;
    assert_eq!(is_written, life == 0);
}

/// More descriptors than fit into the buffers of the C library or of the saver.
fn many_descriptors() {
    let pipes: Vec<_> = (0..100).map(|_| pipe().expect("a pipe")).collect();
    let files: Vec<_> = (0..100)
        .map(|_| File::open("/dev/null").expect("it is there"))
        .collect();
    for (n, (_, writer)) in pipes.iter().enumerate() {
        rustix::io::write(writer, &[n as u8]).expect("there is room");
    }
    save_point();
    for (n, (reader, _)) in pipes.iter().enumerate() {
        let mut byte = [0];
        rustix::io::read(reader, &mut byte[..]).expect("it can be read");
        assert_eq!(byte, [n as u8]);
    }
    assert!(
        files
            .iter()
            .all(|file| fcntl_getfd(file) == Ok(FdFlags::CLOEXEC))
    );
}

/// High numbers with gaps; no further descriptor is open in the restored process.
fn gaps() {
    let high = rustix::io::fcntl_dupfd_cloexec(File::open("/dev/null").expect("null"), 900);
    let high = high.expect("a number");
    let (reader, writer) = pipe().expect("a pipe");
    let reader = rustix::io::fcntl_dupfd_cloexec(reader, 700).expect("a number");
    let open = || -> Vec<i32> {
        let is_open = |fd: &i32| {
            // SAFETY: the call only reads.
            unsafe { libc::fcntl(*fd, libc::F_GETFD) >= 0 }
        };
        (0..1024).filter(is_open).collect()
    };
    let before = open();
    save_point();
    assert_eq!(open(), before);
    assert_eq!(high.as_raw_fd(), 900);
    rustix::io::write(&writer, b"x").expect("there is room");
    let mut byte = [0];
    rustix::io::read(&reader, &mut byte[..]).expect("it can be read");
    assert_eq!(byte, *b"x");
}
