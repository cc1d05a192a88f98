//! Moves of tasks.

use super::{Carry, World};
use vm_machine::{ConnId, MoveInput, Written};
use vm_wire::{
    HostId, Tid,
    console::{Answer, Request},
    peer::{MoveReport, MoveWay},
    task::{FailKind, Failed},
};

impl World {
    pub(super) fn copy(&mut self, host: HostId, tid: Tid, ticket: u64, way: MoveWay) {
        self.copies.insert(tid, ticket);
        if way.precopy && self.carry != Carry::Slow {
            self.input(host, MoveInput::Copied(tid, 900, 1));
        }
    }

    /// The pre-copy of a task is over.
    pub fn copied(&mut self, tid: Tid) {
        let host = self.processes[&tid].host;
        self.input(host, MoveInput::Copied(tid, 900, 1));
    }

    pub fn freeze(&mut self, host: HostId, tid: Tid) {
        if self.store.late.contains(&tid) {
            self.store.told_to_move.insert(tid, host);
            return;
        }
        let ticket = self.copies.remove(&tid).expect("it was begun");
        let process = self.processes.get_mut(&tid).expect("a process");
        assert_eq!((process.host, process.frozen), (host, false));
        let busy = self.busy.get_mut(&tid).filter(|left| **left > 0);
        if let Some(left) = busy {
            *left -= 1;
            let failed = Failed::new(FailKind::Busy, "it has a child process");
            return self.input(host, MoveInput::Frozen(tid, Err(failed)));
        }
        let left = self.unsavable.get_mut(&tid).filter(|left| **left > 0);
        let unsavable = left.map(|left| *left -= 1).is_some();
        if self.carry == Carry::Refused || unsavable {
            let failed = Failed::new(FailKind::Refused, "no process here can be saved");
            return self.input(host, MoveInput::Frozen(tid, Err(failed)));
        }
        process.frozen = true;
        let image = process.endpoint.clone().expect("it is enrolled");
        self.images.insert(tid, (ticket, image));
        let written = Written {
            bytes: 1000,
            ..Written::default()
        };
        self.input(host, MoveInput::Frozen(tid, Ok(written)));
        if self.carry == Carry::Whole {
            self.arrive(tid);
        }
    }

    /// The image of a task arrives.
    pub fn arrive(&mut self, tid: Tid) {
        let (ticket, image) = self.images.remove(&tid).expect("an image");
        let (host, awaited) = self.expected.remove(&ticket).expect("it is awaited");
        assert_eq!(awaited, tid);
        self.standing.insert((host, tid), image);
        self.input(host, MoveInput::Arrived(tid, Ok(())));
    }

    /// The image of a task is lost on its way.
    pub fn lose_image(&mut self, tid: Tid) {
        let (ticket, _) = self.images.remove(&tid).expect("an image");
        let (host, _) = self.expected.remove(&ticket).expect("it is awaited");
        let failed = Failed::new(FailKind::System, "the image was lost");
        self.input(host, MoveInput::Arrived(tid, Err(failed)));
    }

    /// A frozen task resumes on its host.
    pub(super) fn resume(&mut self, host: HostId, tid: Tid) {
        let process = self.processes.get_mut(&tid).expect("a process");
        assert_eq!(process.host, host);
        self.store.told_to_move.remove(&tid);
        if !std::mem::take(&mut process.frozen) {
            return;
        }
        let socket = std::mem::take(&mut process.socket);
        self.renew(tid);
        for frame in socket {
            self.tell_task(tid, frame);
        }
    }

    /// A restored task begins to run.
    pub(super) fn begin_arrived(&mut self, host: HostId, tid: Tid, generation: u32) {
        let Some(mut copy) = self.standing.remove(&(host, tid)) else {
            return;
        };
        let process = self.processes.get_mut(&tid).expect("a process");
        assert!(process.frozen || !process.alive, "{tid} runs twice");
        copy.set_generation(generation);
        process.endpoint = Some(copy);
        process.socket.clear();
        (process.host, process.frozen, process.alive) = (host, false, true);
        self.renew(tid);
    }

    pub(super) fn renew(&mut self, tid: Tid) {
        let now = self.now;
        self.with_endpoint(tid, |endpoint, out| endpoint.renew(now, out));
    }

    /// A console of host `asked` requests a move.
    pub fn request_move(&mut self, asked: u16, tid: Tid, to: u16) -> (ConnId, u64) {
        let conn = self.conn();
        let request = Request::Move(tid, Some(format!("n{to}")), self.way);
        (conn, self.console_request(asked, conn, &request))
    }

    /// The source and target of a requested move, or why it failed.
    pub fn moved(&mut self, request: (ConnId, u64)) -> Result<(HostId, HostId), Failed> {
        self.reported(request)
            .map(|report| (report.from, report.to))
    }

    /// The report of a requested move, or why it failed.
    pub fn reported(&mut self, (conn, number): (ConnId, u64)) -> Result<MoveReport, Failed> {
        self.run_until("the end of the move", |world| {
            world.console_answer(conn, number).is_some()
        });
        match self.console_answer(conn, number) {
            Some(Answer::Moved(report)) => Ok(report),
            Some(Answer::Failed(failed)) => Err(failed),
            other => panic!("{other:?}"),
        }
    }
}
