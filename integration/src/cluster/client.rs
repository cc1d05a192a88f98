//! A console for tests: sends requests to a daemon over its UNIX socket.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};
use vm_wire::{
    Body, CheckpointId, Frame, FrameReader, Message, Op, Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointReport, RestartReport},
    console::{Answer, Input, Output, Request, RunEnd, RunSignal},
    peer::MoveWay,
    place,
    task::{Failed, Place, Spawn},
    version::Offer,
};

/// The line that test programs print when all their numbered messages have come back.
pub const NONE_LOST: &str = "none lost, doubled or out of order";

/// One connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    reader: FrameReader,
    asked: u64,
}

/// Output of a run, and its end.
#[derive(Debug)]
pub struct Finished {
    /// How the master's process ended.
    pub status: ExitStatus,
    /// Standard output of the whole application.
    pub stdout: String,
    /// Standard error of the whole application.
    pub stderr: String,
}

impl Client {
    /// Connects to the daemon whose folder is `dir`, and requests its version.
    ///
    /// # Errors
    /// If no process listens, or the daemon closes the connection at once.
    pub fn connect(dir: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(place::socket(dir))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let mut client = Client {
            stream,
            reader: FrameReader::new(),
            asked: 0,
        };
        client.send(&Request::Version(Offer::OURS))?;
        match client.answer()? {
            Answer::Version { .. } => Ok(client),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Panics
    /// When the daemon closes the connection.
    pub fn ask(&mut self, request: &Request) -> Answer {
        self.send(request).expect("the daemon takes a request");
        self.answer().expect("the daemon answers")
    }

    /// Like [`Client::ask`], for a daemon that may end before it replies.
    ///
    /// # Errors
    /// When the daemon closes the connection.
    pub fn try_ask(&mut self, request: &Request) -> io::Result<Answer> {
        self.send(request)?;
        self.answer()
    }

    /// Starts a master with this client as its console.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&mut self, program: &str, args: &[&str]) -> Tid {
        let request = Request::Run {
            spawn: spawn(program, args),
            terminal: None,
        };
        match self.ask(&request) {
            Answer::Started(tids) => tids[0],
            other => panic!("run {program} {args:?}: {other:?}"),
        }
    }

    /// Writes to the standard input of the run's master.
    ///
    /// # Panics
    /// When the daemon closes the connection.
    pub fn input(&mut self, bytes: &[u8]) {
        let input = Input {
            bytes: Body::from(bytes.to_vec()),
        };
        self.stream
            .write_all(&bytes_of(&input.frame()))
            .expect("the daemon takes input");
    }

    /// Sends a signal to the master of the run.
    pub fn signal_run(&mut self, signal: i32) {
        let bytes = bytes_of(&RunSignal { signal }.frame());
        self.stream
            .write_all(&bytes)
            .expect("the daemon takes a signal");
    }

    /// Reads the output of the run until it contains `text`; returns all that came.
    ///
    /// # Panics
    /// When the run ends before.
    pub fn output_until(&mut self, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            let frame = self.frame().expect("the run goes on");
            assert_ne!(frame.header.op, Op::RunEnd, "the run ended after: {all}");
            if frame.header.op == Op::Output {
                let output = Output::read(&frame).expect("a frame of output");
                all.push_str(&String::from_utf8_lossy(&output.bytes));
            }
        }
        all
    }

    /// Reads the output of the run to its end.
    ///
    /// # Panics
    /// When the daemon closes the connection before.
    pub fn finish(&mut self) -> Finished {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        loop {
            let frame = self.frame().expect("the run's end is told");
            match frame.header.op {
                Op::Output => {
                    let output = Output::read(&frame).expect("a frame of output");
                    assert_eq!(output.dropped, 0, "output was dropped");
                    let text = String::from_utf8_lossy(&output.bytes);
                    if output.stream == 1 {
                        &mut stdout
                    } else {
                        &mut stderr
                    }
                    .push_str(&text);
                }
                Op::RunEnd => {
                    let end = RunEnd::read(&frame).expect("the end of a run");
                    let status = end.status.expect("it has not only lost its console");
                    return Finished {
                        status,
                        stdout,
                        stderr,
                    };
                }
                _ => {}
            }
        }
    }

    /// Reads the output of a run to its end. The run must succeed, and `text` must be in its
    /// standard output.
    ///
    /// # Panics
    /// If the run does not end so.
    pub fn ends_well(&mut self, text: &str) {
        let finished = self.finish();
        assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
        assert!(finished.stdout.contains(text), "{finished:?}");
    }

    /// Moves a task to another host, which the machine chooses.
    ///
    /// # Panics
    /// If the task is not moved.
    pub fn move_elsewhere(&mut self, tid: Tid) {
        match self.ask(&Request::Move(tid, None, MoveWay::default())) {
            Answer::Moved(report) => assert_ne!(report.from, report.to),
            answer => panic!("{tid} was not moved: {answer:?}"),
        }
    }

    /// Makes a checkpoint of an application. With `stop` the application ends with it.
    ///
    /// # Errors
    /// The error of the daemon.
    pub fn save(&mut self, tid: Tid, stop: bool) -> Result<CheckpointReport, Failed> {
        match self.ask(&Request::Checkpoint(tid, stop)) {
            Answer::Checkpointed(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            other => panic!("a checkpoint has no such answer: {other:?}"),
        }
    }

    /// Restarts an application from its last whole checkpoint. From then on this client is its
    /// console.
    ///
    /// # Errors
    /// The error of the daemon.
    pub fn restart(&mut self, app: Tid) -> Result<RestartReport, Failed> {
        self.restart_from(app, None, false)
    }

    /// Saves and ends the application of `run`, and restarts it with this client as its console. Then it must
    /// end well, with no message lost.
    ///
    /// # Panics
    /// If one of that fails.
    pub fn restarts_well(&mut self, run: &mut Client, app: Tid) {
        self.save(app, true).expect("it is saved");
        assert_eq!(run.finish().status, ExitStatus::Suspended);
        self.restart(app).expect("it is restored");
        self.ends_well(NONE_LOST);
    }

    /// Like [`Client::restart`], for an application whose last checkpoint is damaged: the report
    /// must name only that one, in a text that begins with `damaged`.
    ///
    /// # Panics
    /// If the restart uses that checkpoint, or other checkpoints are damaged, too.
    pub fn restart_past_damaged(&mut self, app: Tid, damaged: &str) -> RestartReport {
        let report = self.restart(app).expect("the one before is whole");
        let [passed_over] = &report.passed_over[..] else {
            panic!("{report:?}");
        };
        assert!(passed_over.starts_with(damaged), "{report:?}");
        assert!(passed_over.contains("damaged"), "{report:?}");
        report
    }

    /// Restarts an application from the given checkpoint, or keeps the files that its tasks wrote.
    ///
    /// # Errors
    /// The error of the daemon.
    pub fn restart_from(
        &mut self,
        app: Tid,
        from: Option<CheckpointId>,
        keep_files: bool,
    ) -> Result<RestartReport, Failed> {
        let request = Request::Restart {
            app,
            from,
            attach: true,
            keep_files,
        };
        match self.ask(&request) {
            Answer::Restarted(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            other => panic!("a restart has no such answer: {other:?}"),
        }
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        self.asked += 1;
        self.stream
            .write_all(&bytes_of(&request.frame().asked(self.asked)))
    }

    fn answer(&mut self) -> io::Result<Answer> {
        loop {
            let frame = self.frame()?;
            if frame.header.op == Op::ConsoleAnswer && frame.header.request == self.asked {
                return Answer::read(&frame).map_err(io::Error::other);
            }
        }
    }

    fn frame(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.reader.next_frame().map_err(io::Error::other)? {
                return Ok(frame);
            }
            let mut bytes = [0; 64 * 1024];
            match read_some(&mut self.stream, &mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.reader.push(&bytes[..read]),
            }
        }
    }
}

/// Reads what is there, and waits for it. The kernel does not repeat a read with a time limit when the
/// process was stopped and goes on, as on a computer that is suspended.
///
/// # Errors
/// Those of the stream.
pub fn read_some(stream: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A request for one task of `program`, on any host.
pub fn spawn(program: &str, args: &[&str]) -> Spawn {
    Spawn {
        program: program.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: Vec::new(),
        dir: None,
        count: 1,
        place: Place::Any,
    }
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.len());
    frame.write_to(&mut bytes);
    bytes
}
