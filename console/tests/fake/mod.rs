//! A fake daemon, whose replies a test chooses.
//!
//! Used by the unit tests over a socket pair, and by the tests of the whole program over a socket
//! in a folder of their own.

// Each of the two test programs uses a part of this module.
#![allow(dead_code)]

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    thread::{self, JoinHandle},
    time::Duration,
};
use vm_wire::{
    Frame, FrameReader, HostId, MachineId, Message, Op, Tid,
    console::{Answer, Request},
    place, version,
};

/// Bound on every wait of a test.
const LIMIT: Duration = Duration::from_secs(30);

/// The fake daemon's machine.
pub const HERE: MachineId = MachineId::from_bits(0xbeef);

/// A task of the fake machine.
pub fn tid(host: u16, sequence: u32) -> Tid {
    Tid::new(HERE, HostId(host), sequence)
}

/// The daemon's end of one console's connection.
pub struct FakeDaemon {
    stream: UnixStream,
    reader: FrameReader,
}

impl FakeDaemon {
    /// Serves the other end of `stream`.
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
        FakeDaemon {
            stream,
            reader: FrameReader::new(),
        }
    }

    /// The console's next frame, or `None` if it is gone.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.reader.next_frame().expect("a frame") {
                return Some(frame);
            }
            let mut buffer = [0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.reader.push(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the console says nothing: {error}"),
            }
        }
    }

    /// The next frame as the message that it must be.
    pub fn read<M: Message>(&mut self) -> M {
        let frame = self.frame().expect("the console is gone");
        assert_eq!(frame.header.op, M::OP);
        M::read(&frame).expect("a message")
    }

    /// The next request and its number.
    pub fn request(&mut self) -> (u64, Request) {
        let frame = self.frame().expect("the console is gone");
        assert_eq!(frame.header.op, Op::ConsoleRequest);
        (
            frame.header.request,
            Request::read(&frame).expect("a request"),
        )
    }

    /// Replies to the request for the version, which comes first.
    pub fn greet(&mut self) {
        let (number, request) = self.request();
        assert!(matches!(request, Request::Version(_)));
        self.answer(
            number,
            &Answer::Version {
                version: version::CURRENT,
                release: "9.9".to_owned(),
                machine: HERE,
                host: HostId(1),
            },
        );
    }

    /// Replies to the next request, and returns the request.
    pub fn answer_next(&mut self, answer: &Answer) -> Request {
        let (number, request) = self.request();
        self.answer(number, answer);
        request
    }

    pub fn answer(&mut self, number: u64, answer: &Answer) {
        self.send(&answer.frame().asked(number));
    }

    pub fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        self.send_bytes(&bytes);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the console is gone");
    }
}

/// A socket pair. `script` plays the daemon at one end. Joining the thread shows whether the script
/// has failed.
pub fn pair(script: impl FnOnce(FakeDaemon) + Send + 'static) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let daemon = thread::spawn(move || script(FakeDaemon::new(theirs)));
    (ours, daemon)
}

/// Listens in `dir`; `script` plays the daemon for each of `consoles` connections, one by one.
pub fn listen(
    dir: &Path,
    consoles: usize,
    mut script: impl FnMut(usize, FakeDaemon) + Send + 'static,
) -> JoinHandle<()> {
    // A console connects to no socket in a folder that others can use.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(dir, private).expect("our own");
    let listener = UnixListener::bind(place::socket(dir)).expect("a socket");
    thread::spawn(move || {
        for console in 0..consoles {
            let (stream, _) = listener.accept().expect("a console");
            script(console, FakeDaemon::new(stream));
        }
    })
}
