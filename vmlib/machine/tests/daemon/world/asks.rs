//! Calls of tasks and consoles.

use super::{World, spawn};
use bytes::Bytes;
use vm_endpoint::{Filter, SendProgress};
use vm_machine::{ConnId, ConsoleInput, Input};
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    task::{Await, Done, Exit, Failed, Place, Spawned, Watch, Watched},
};

impl World {
    /// A task sends a request. Returns the number of the request.
    pub fn request(&mut self, tid: Tid, question: &impl Message) -> u64 {
        let process = self.processes.get_mut(&tid).expect("a process");
        process.next_request += 1;
        let number = process.next_request;
        self.request_again(tid, question, number);
        number
    }

    pub fn request_again(&mut self, tid: Tid, question: &impl Message, number: u64) {
        let host = self.processes[&tid].host;
        let frame = question.frame().between(tid, Tid::NONE).asked(number);
        self.input(host, Input::Task(tid, frame));
    }

    pub fn answers(&self, tid: Tid, number: u64) -> &[Frame] {
        self.processes[&tid]
            .answers
            .get(&number)
            .map_or(&[], Vec::as_slice)
    }

    /// A task sends a request. Returns its one reply.
    pub fn ask<A: Message>(&mut self, tid: Tid, question: &impl Message) -> Result<A, Failed> {
        let number = self.request(tid, question);
        self.run_until("an answer", |world| !world.answers(tid, number).is_empty());
        let [answer] = self.answers(tid, number) else {
            panic!("more than one answer")
        };
        match answer.header.op == A::OP {
            true => Ok(A::read(answer).expect("a good answer")),
            false => Err(Failed::read(answer).expect("a failure")),
        }
    }

    /// A task sends a message.
    pub fn send(&mut self, from: Tid, to: Tid, text: &str) {
        let body = Bytes::from(text.to_owned());
        let now = self.now;
        let sent = self.with_endpoint(from, |endpoint, out| {
            let mut sending = endpoint.start_send(to, 0, 0, body);
            endpoint.poll_send(now, &mut sending, out)
        });
        assert_eq!(sent, Some(Ok(SendProgress::Done)));
    }

    /// The messages that a task has received since the last call.
    pub fn received(&mut self, tid: Tid) -> Vec<(Tid, String)> {
        let all = Filter {
            context: 0,
            from: None,
            tag: None,
            handled: false,
        };
        let now = self.now;
        let received = self.with_endpoint(tid, |endpoint, out| {
            let mut received = Vec::new();
            while let Some(message) = endpoint.take(now, &all, out) {
                let text = String::from_utf8(message.body.to_vec()).expect("text");
                received.push((message.from, text));
            }
            received
        });
        received.unwrap_or_default()
    }

    /// A task leaves in order. Its process ends after the reply.
    pub fn exit(&mut self, tid: Tid, status: i32) -> Result<(), Failed> {
        self.leave(tid, status)?;
        self.die(tid, ExitStatus::Code(status));
        Ok(())
    }

    /// A task leaves in order. Its process continues.
    pub fn leave(&mut self, tid: Tid, status: i32) -> Result<(), Failed> {
        let left = self.with_endpoint(tid, |endpoint, _| endpoint.leave());
        let (kept, last) = left.expect("it is enrolled");
        let host = self.processes[&tid].host;
        for frame in kept {
            self.input(host, Input::Task(tid, frame));
        }
        self.ask::<Done>(tid, &Exit { status, last })?;
        Ok(())
    }

    /// A task waits for messages of another task, and its library requests the notification of that
    /// end.
    pub fn await_messages(&mut self, tid: Tid, of: Tid) {
        let host = self.processes[&tid].host;
        let frame = Await { tid: of }.frame().between(tid, Tid::NONE);
        self.input(host, Input::Task(tid, frame));
    }

    /// The exit status of the other task, once a receive from it fails.
    pub fn over(&mut self, tid: Tid, of: Tid) -> Option<ExitStatus> {
        self.with_endpoint(tid, |endpoint, _| endpoint.over(of))?
    }

    pub fn watch(&mut self, tid: Tid, what: Watched) -> Result<Done, Failed> {
        self.ask(tid, &Watch { what, on: true })
    }

    pub fn spawn(&mut self, tid: Tid, program: &str, count: u32, place: Place) -> Spawned {
        let spawned: Spawned = self.ask(tid, &spawn(program, count, place)).expect("tasks");
        self.run_until("the tasks to enrol", |world| {
            spawned
                .tids
                .iter()
                .all(|tid| world.is_enrolled(*tid) || !world.is_alive(*tid))
        });
        spawned
    }

    // Calls of consoles.

    /// A console sends a request. Its number is the count of replies so far.
    pub fn console(&mut self, host: u16, conn: ConnId, request: &Request) -> Answer {
        let number = self.console_request(host, conn, request);
        self.run_until("an answer to the console", |world| {
            world.console_answer(conn, number).is_some()
        });
        self.console_answer(conn, number).expect("waited for")
    }

    pub fn console_request(&mut self, host: u16, conn: ConnId, request: &Request) -> u64 {
        self.next_conn += 1;
        let number = self.next_conn;
        let frame = request.frame().asked(number);
        self.input(HostId(host), ConsoleInput::Frame(conn, frame));
        number
    }

    pub fn console_answer(&self, conn: ConnId, number: u64) -> Option<Answer> {
        let frames = self.consoles.get(&conn)?;
        let answer =
            |frame: &&Frame| frame.header.op == Op::ConsoleAnswer && frame.header.request == number;
        let mut answers = frames.iter().filter(answer);
        let first = answers
            .next()
            .map(|frame| Answer::read(frame).expect("an answer"));
        assert!(answers.next().is_none(), "answered twice");
        first
    }

    /// Starts a master on a host, from a console.
    pub fn master(&mut self, host: u16, program: &str) -> Tid {
        let conn = self.conn();
        let spawn = spawn(program, 1, Place::Host(format!("n{host}")));
        let Answer::Started(tids) = self.console(host, conn, &Request::Spawn(spawn)) else {
            panic!("the master was not started")
        };
        let tid = tids[0];
        self.run_until("the master to enrol", |world| world.is_enrolled(tid));
        tid
    }
}
