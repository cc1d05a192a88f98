//! A console that runs one program, and functions about processes.

use super::{Daemon, send, wait_for};
use std::{fs, io::Read, os::unix::net::UnixStream, path::Path};
use vm_wire::{
    FrameReader, Message, Op, Tid,
    agreed::ExitStatus,
    console::{Answer, Input, Output, Request, RunEnd, WindowSize},
    task::{Place, Spawn},
    version::Offer,
};

/// A console with one run.
pub struct Console {
    pub stream: UnixStream,
    reader: FrameReader,
    asked: u64,
}

impl Console {
    pub fn connect(daemon: &Daemon) -> Console {
        Console::over(daemon.connect())
    }

    pub fn over(stream: UnixStream) -> Console {
        let mut console = Console {
            stream,
            reader: FrameReader::new(),
            asked: 0,
        };
        console.ask(&Request::Version(Offer::OURS));
        console
    }

    pub fn frame(&mut self) -> vm_wire::Frame {
        loop {
            if let Some(frame) = self.reader.next_frame().expect("good frames") {
                return frame;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).expect("the daemon answers");
            assert!(count > 0, "the daemon closed the connection");
            self.reader.push(&bytes[..count]);
        }
    }

    pub fn ask(&mut self, request: &Request) -> Answer {
        self.asked += 1;
        send(&mut self.stream, &request.frame().asked(self.asked)).expect("sent");
        let frame = self.frame();
        assert_eq!(frame.header.op, Op::ConsoleAnswer);
        Answer::read(&frame).expect("an answer")
    }

    pub fn run(&mut self, script: &str, terminal: Option<WindowSize>) -> Tid {
        let spawn = spawn("/bin/sh", &["-c", script]);
        match self.ask(&Request::Run { spawn, terminal }) {
            Answer::Started(tids) => tids[0],
            other => panic!("{other:?}"),
        }
    }

    pub fn type_in(&mut self, bytes: &[u8]) {
        let bytes = bytes.to_vec().into();
        send(&mut self.stream, &Input { bytes }.frame()).expect("sent");
    }

    /// Reads until the run ends. Returns its status, and the bytes that it wrote to standard output
    /// and error.
    pub fn finish(&mut self) -> (ExitStatus, Vec<u8>, Vec<u8>) {
        let mut written = [Vec::new(), Vec::new()];
        loop {
            let frame = self.frame();
            match frame.header.op {
                Op::Output => {
                    let output = Output::read(&frame).expect("output");
                    assert_eq!(output.dropped, 0);
                    written[usize::from(output.stream) - 1].extend_from_slice(&output.bytes);
                }
                Op::RunEnd => {
                    let [out, err] = written;
                    let end = RunEnd::read(&frame).expect("an end");
                    return (end.status.expect("it has ended"), out, err);
                }
                op => panic!("{op:?}"),
            }
        }
    }

    /// Reads output until it contains `text`.
    pub fn wait_output(&mut self, text: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let frame = self.frame();
            assert_eq!(frame.header.op, Op::Output, "before '{text}'");
            let output = Output::read(&frame).expect("output");
            seen.extend_from_slice(&output.bytes);
        }
    }
}

pub fn spawn(program: &str, args: &[&str]) -> Spawn {
    Spawn {
        program: program.to_owned(),
        args: args.iter().map(|word| (*word).to_owned()).collect(),
        env: Vec::new(),
        dir: None,
        count: 1,
        place: Place::Any,
    }
}

pub fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A zombie is dead, even if no process has waited for it.
        Ok(stat) => !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z')),
        Err(_) => false,
    }
}

/// The children of a process, made by any of its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let lists = threads.flatten().flatten().map(|thread| {
        let list = fs::read_to_string(thread.path().join("children"));
        list.unwrap_or_default()
    });
    let list: String = lists.collect();
    let numbers = list.split_whitespace().map(|word| word.parse());
    numbers.map(|number| number.expect("a number")).collect()
}

pub fn wait_pid(file: &Path) -> u32 {
    wait_for("a process id", || {
        fs::read_to_string(file).ok()?.trim().parse().ok()
    })
}
