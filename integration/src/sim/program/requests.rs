//! The requests of a simulated program, and the checks of their replies.

use super::{
    Doing, Program, Scene,
    asking::{Asking, What},
};
use std::collections::BTreeSet;
use vm_wire::{
    Frame, Header, Message, Op, Tid,
    peer::MoveWay,
    task::{
        CheckTask, Exit, FailKind, Failed, GroupAsk, GroupChange, GroupView, HostsAsk, MoveTask,
        Place, Siblings, Signal, Spawn, Spawned, Watch, Watched,
    },
};

/// The program that every simulated task runs.
pub const PROGRAM: &str = "worker";
/// A program that no host has.
pub const MISSING_PROGRAM: &str = "missing";

impl Program {
    /// A random request. `peer` is the task that the request is about, if it is about a task.
    pub(super) fn request_of_choice(&mut self, peer: Tid, scene: &mut Scene) -> Asking {
        let of = if scene.secluded { self.app } else { Tid::NONE };
        let group = || format!("group{}-{of}", peer.sequence() % 3);
        let (what, frame) = match self.random.below(100) {
            0..25 if scene.grow => self.spawn(scene),
            0..45 if !self.watches.contains_key(&peer) => {
                self.watches.insert(peer, false);
                let what = Watched::Task(peer);
                (What::Other, Watch { what, on: true }.frame())
            }
            45..55 => (
                What::Join,
                GroupChange {
                    group: group(),
                    join: true,
                }
                .frame(),
            ),
            55..65 => (
                What::Leave,
                GroupChange {
                    group: group(),
                    join: false,
                }
                .frame(),
            ),
            65..75 => (
                What::Other,
                GroupAsk {
                    group: group(),
                    version: 0,
                }
                .frame(),
            ),
            75..80 => (What::Other, HostsAsk {}.frame()),
            80..85 => (What::Other, Siblings {}.frame()),
            85..88 => (
                What::Other,
                Signal {
                    tid: peer,
                    signal: 9,
                }
                .frame(),
            ),
            88..90 => (
                What::Other,
                Signal {
                    tid: peer,
                    signal: 15,
                }
                .frame(),
            ),
            90..93 => {
                // The request is about the task itself, or about another one.
                let tid = if self.random.percent(50) {
                    self.me
                } else {
                    peer
                };
                let to = self.random.pick(scene.hosts).cloned();
                let to = to.filter(|_| self.random.percent(50));
                let way = MoveWay {
                    precopy: self.random.percent(80),
                    compress: false,
                    suspended: false,
                };
                (What::Move, MoveTask { tid, to, way }.frame())
            }
            93..94 => (What::Move, CheckTask { tid: peer }.frame()),
            _ => return self.exit(scene),
        };
        self.asked += 1;
        Asking::new(what, frame.asked(self.asked))
    }

    fn spawn(&mut self, scene: &Scene) -> (What, Frame) {
        let count = self.random.between(1, 4) as u32;
        let place = match (self.random.below(3), self.random.pick(scene.hosts)) {
            (0, Some(name)) => Place::Host(name.clone()),
            (1, Some(name)) => Place::Hosts(vec![name.clone(), scene.hosts[0].clone()]),
            _ => Place::Any,
        };
        let missing = self.random.percent(5);
        let program = if missing { MISSING_PROGRAM } else { PROGRAM };
        let spawn = Spawn {
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            count,
            place,
        };
        (What::Spawn(count), spawn.frame())
    }

    /// Leaves the machine: the retained chunks go to the daemon first, then the request.
    fn exit(&mut self, scene: &mut Scene) -> Asking {
        let status = self.random.below(2) as i32 * 3;
        self.leave_rings(scene);
        self.leave_directs(scene);
        let (kept, last) = self.endpoint.leave();
        debug_assert!(
            kept.iter()
                .all(|frame| frame.header.flags & Header::KEEP != 0)
        );
        scene.out.extend(kept);
        self.asked += 1;
        Asking::new(
            What::Exit(status),
            Exit { status, last }.frame().asked(self.asked),
        )
    }

    /// Handles a reply. Replies to requests that are no longer open are ignored.
    pub(super) fn answered(&mut self, frame: &Frame) -> Result<(), String> {
        let Doing::Asking(asking) = &mut self.doing else {
            return Ok(());
        };
        if frame.header.request != self.asked || asking.answered {
            return Ok(());
        }
        asking.answered = true;
        let me = self.me;
        let bad = |error: vm_wire::CodecError| error.to_string();
        match (&asking.what, frame.header.op) {
            (What::Spawn(count), Op::Spawned) => {
                let count = *count;
                let answer = Spawned::read(frame).map_err(bad)?;
                let distinct: BTreeSet<Tid> = answer.tids.iter().copied().collect();
                if distinct.len() != answer.tids.len() || answer.tids.len() > count as usize {
                    return Err(format!(
                        "{me} wanted {count} tasks and got {:?}",
                        answer.tids
                    ));
                }
                self.births.push((self.asked, count, answer.tids));
            }
            (What::Move, Op::Moved | Op::Checked | Op::Failed) => {}
            (What::Move, op) => return Err(format!("{me}: a move was answered with {op:?}")),
            (What::Spawn(_), Op::Done) => {
                return Err(format!("{me}: a spawn was answered with Done"));
            }
            (what, Op::GroupView) => {
                let view = GroupView::read(frame).map_err(bad)?;
                let instances: BTreeSet<u32> = view.members.iter().map(|member| member.0).collect();
                let members: BTreeSet<Tid> = view.members.iter().map(|member| member.1).collect();
                if instances.len() != view.members.len() || members.len() != view.members.len() {
                    return Err(format!("group {} has {:?}", view.group, view.members));
                }
                let wrong = match what {
                    What::Join => !members.contains(&me),
                    What::Leave => members.contains(&me),
                    _ => false,
                };
                if wrong {
                    return Err(format!(
                        "{me} changed its membership of {} in vain",
                        view.group
                    ));
                }
            }
            (_, Op::Failed) => {
                let failed = Failed::read(frame).map_err(bad)?;
                let ours = matches!(failed.kind, FailKind::BadRequest | FailKind::Version);
                if ours || matches!(asking.what, What::Exit(_)) {
                    return Err(format!("{me}: {:?} failed: {failed}", asking.op()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
