//! The standard streams of a task's process: its output, cut into lines or as it is, and the input
//! from its console.

use crate::process::lines::LineCutter;
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use std::collections::VecDeque;
use vm_machine::{Input, ProcessInput};
use vm_wire::{Tid, limits::LINE_MAX};

/// The byte that a user types at a terminal for an end of file.
const END_OF_FILE: u8 = 4;
/// Bound on the pieces that are read from one stream before other streams are read.
const SERVE_PIECES: usize = 8;

/// The output of a process on one stream.
#[derive(Debug)]
pub struct Output {
    /// The number of the stream: 1 or 2.
    pub stream: u8,
    /// Cuts the bytes into lines; none if they are passed on as they are.
    pub lines: Option<LineCutter>,
    /// The console does not keep up, so nothing is read.
    pub paused: bool,
    /// After the process has ended: the number of its own bytes that are not read yet. Bytes that
    /// other processes write into the stream are not awaited.
    pub left: Option<u64>,
}

/// The state of a stream after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There may be more.
    More,
    /// There is no more now.
    Waiting,
    /// The stream has ended.
    Finished,
}

impl Output {
    /// Reads a share of the output.
    pub fn read(&mut self, fd: impl AsFd, tid: Tid, inbox: &mut VecDeque<Input>) -> Progress {
        let mut buffer = [0; LINE_MAX];
        for _ in 0..SERVE_PIECES {
            let room = self
                .left
                .map_or(LINE_MAX, |left| left.min(LINE_MAX as u64) as usize);
            if room == 0 {
                return self.finish(tid, inbox);
            }
            match rustix::io::read(&fd, &mut buffer[..room]) {
                Ok(0) => return self.finish(tid, inbox),
                Ok(count) => {
                    if let Some(left) = &mut self.left {
                        *left -= count as u64;
                    }
                    let pieces = match &mut self.lines {
                        Some(lines) => lines.push(&buffer[..count]),
                        None => vec![buffer[..count].to_vec()],
                    };
                    for bytes in pieces {
                        inbox.push_back(self.piece(tid, bytes));
                    }
                    if self.paused {
                        return Progress::Waiting;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.left.is_none() => return Progress::Waiting,
                // A terminal returns an error when its last process has closed it.
                Err(_) => return self.finish(tid, inbox),
            }
        }
        Progress::More
    }

    fn finish(&mut self, tid: Tid, inbox: &mut VecDeque<Input>) -> Progress {
        if let Some(bytes) = self.lines.as_mut().and_then(LineCutter::finish) {
            inbox.push_back(self.piece(tid, bytes));
        }
        Progress::Finished
    }

    fn piece(&self, tid: Tid, bytes: Vec<u8>) -> Input {
        Input::Process(ProcessInput::Output {
            tid,
            stream: self.stream,
            bytes,
        })
    }
}

/// Bytes for a process's standard input that the process has not read yet.
#[derive(Debug, Default)]
pub struct Typed {
    bytes: VecDeque<u8>,
    ended: bool,
}

impl Typed {
    /// Adds bytes. No bytes mean the end of the input.
    pub fn push(&mut self, bytes: &[u8], terminal: bool) {
        if !bytes.is_empty() {
            self.bytes.extend(bytes);
        } else if terminal {
            self.bytes.push_back(END_OF_FILE);
        } else {
            self.ended = true;
        }
    }

    /// Number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the bytes that the process takes. Returns whether the input is at its end.
    pub fn write(&mut self, fd: impl AsFd) -> bool {
        while !self.bytes.is_empty() {
            match rustix::io::write(&fd, self.bytes.as_slices().0) {
                Ok(count) => drop(self.bytes.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // The process has closed its input: the bytes are dropped.
                Err(_) => {
                    self.bytes.clear();
                    return true;
                }
            }
        }
        self.ended
    }
}

/// A descriptor of a task's process.
#[derive(Debug)]
pub struct Stream {
    /// The task.
    pub tid: Tid,
    /// The descriptor.
    pub fd: OwnedFd,
    /// The kind of the descriptor.
    pub role: Role,
}

/// The kind of a descriptor.
#[derive(Debug)]
pub enum Role {
    /// A pidfd: readable once the process has ended.
    End,
    /// A pipe out of the process.
    Output(Output),
    /// A pipe into the process.
    Input(Typed),
    /// A terminal, which carries output and input.
    Terminal(Output, Typed),
}

impl Role {
    /// The output part, if the descriptor has one.
    pub fn output(&mut self) -> Option<&mut Output> {
        match self {
            Role::Output(output) | Role::Terminal(output, _) => Some(output),
            _ => None,
        }
    }

    /// The input part, if the descriptor has one.
    pub fn typed(&mut self) -> Option<&mut Typed> {
        match self {
            Role::Input(typed) | Role::Terminal(_, typed) => Some(typed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).expect("a pipe")
    }

    fn output(lines: bool) -> Output {
        Output {
            stream: 1,
            lines: lines.then(LineCutter::default),
            paused: false,
            left: None,
        }
    }

    fn text(inbox: &mut VecDeque<Input>) -> Vec<u8> {
        inbox
            .drain(..)
            .flat_map(|input| match input {
                Input::Process(ProcessInput::Output { bytes, .. }) => bytes,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn lines_come_when_they_are_whole_and_raw_bytes_at_once() {
        for (lines, now) in [(true, &b"one\n"[..]), (false, b"one\ntw")] {
            let (far, near) = pipe();
            let (mut output, mut inbox) = (output(lines), VecDeque::new());
            rustix::io::write(&near, b"one\ntw").expect("written");
            assert_eq!(output.read(&far, Tid(1), &mut inbox), Progress::Waiting);
            assert_eq!(text(&mut inbox), now);
            drop(near);
            assert_eq!(output.read(&far, Tid(1), &mut inbox), Progress::Finished);
        }
    }

    #[test]
    fn output_of_other_processes_after_the_end_is_not_awaited() {
        let (far, near) = pipe();
        let (mut output, mut inbox) = (output(true), VecDeque::new());
        rustix::io::write(&near, b"last\nothers").expect("written");
        output.left = Some(5);
        assert_eq!(output.read(&far, Tid(1), &mut inbox), Progress::Finished);
        assert_eq!(text(&mut inbox), b"last\n");
    }

    #[test]
    fn typed_bytes_wait_until_they_are_read_and_the_end_comes_last() {
        let (far, near) = pipe();
        let mut typed = Typed::default();
        let bytes = vec![b'x'; 200_000];
        typed.push(&bytes, false);
        typed.push(&[], false);
        let mut seen = 0;
        let mut buffer = [0; 4096];
        while !typed.write(&near) {
            seen += rustix::io::read(&far, &mut buffer).expect("there is something");
        }
        assert_eq!(typed.len(), 0);
        while let Ok(count @ 1..) = rustix::io::read(&far, &mut buffer) {
            seen += count;
        }
        assert_eq!(seen, bytes.len());
    }

    #[test]
    fn the_end_of_a_terminals_input_is_typed() {
        let (far, near) = pipe();
        let mut typed = Typed::default();
        typed.push(&[], true);
        assert!(!typed.write(&near));
        let mut buffer = [0; 2];
        assert_eq!(rustix::io::read(&far, &mut buffer), Ok(1));
        assert_eq!(buffer[0], END_OF_FILE);
    }
}
