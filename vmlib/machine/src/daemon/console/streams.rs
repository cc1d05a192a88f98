//! The output of tasks whose console is on another host.
//!
//! The master of a run may be on another host than its console, because it has moved or was
//! restarted there. The output of such a master is relayed unchanged in the channel between the two
//! daemons, which neither loses nor duplicates data and keeps the order. While the channel has much
//! to send, or the console does not read ([`RunHold`]), the master waits as it would for a pipe.
//! Lines of other tasks are dropped in that case, and counted.
//!
//! When the master moves on, the source does not release it before the daemon of the console has
//! reported that it has all output ([`FlushAsk`], [`Flushed`], with the number of the move). Output
//! from the target therefore comes after that output. If the console is on the target, it is enough
//! that all output is in the channel, because the release follows in the same channel. The move
//! waits for output for which the channel has no room yet.
//!
//! Input of the console is not relayed. A master that gets input from a console stays on its host.
//!
//! [`RunHold`]: vm_wire::peer::RunHold

use crate::{ProcessOutput, daemon::context::Context};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    Body, HostId, Tid, limits,
    peer::{FlushAsk, Flushed, Order, OutputLines},
};

/// Output of a local master that waits for the channel, and the reasons to pause the master.
#[derive(Debug)]
struct Relayed {
    console: HostId,
    pieces: VecDeque<(u8, Vec<u8>)>,
    /// The console does not read.
    held: bool,
    /// The shell does not read the master's output.
    paused: bool,
    delivery: Delivery,
}

/// The state of the last output of a master that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// The daemon of the console was not asked yet, perhaps because the channel has no room.
    NotAsked,
    /// The request for the report is in the channel to that host.
    Asked {
        host: HostId,
        /// Number of the move.
        number: u64,
    },
    /// The daemon of the console has all output.
    Done,
}

impl Relayed {
    fn new(console: HostId) -> Self {
        Relayed {
            console,
            pieces: VecDeque::new(),
            held: false,
            paused: false,
            delivery: Delivery::NotAsked,
        }
    }

    /// Sends the waiting output, as far as the channel to the console's host has room.
    fn send(&mut self, cx: &mut Context, tid: Tid, limit: usize) {
        while let Some((stream, bytes)) = self.pieces.front() {
            let lines = OutputLines {
                tid,
                stream: *stream,
                bytes: Body::from(bytes.clone()),
                dropped: 0,
            };
            if !cx.send_within(limit, self.console, &Order::OutputLines(lines)) {
                break;
            }
            self.pieces.pop_front();
        }
        self.review_pause(cx, tid);
    }

    /// Has the shell pause or resume reading the master's output.
    fn review_pause(&mut self, cx: &mut Context, tid: Tid) {
        let waits = self.held || !self.pieces.is_empty();
        if std::mem::replace(&mut self.paused, waits) != waits {
            cx.emit(match waits {
                true => ProcessOutput::PauseOutput(tid),
                false => ProcessOutput::ResumeOutput(tid),
            });
        }
    }
}

/// Output of local tasks whose consoles are on other hosts.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The local masters that have written output, or whose console did not read.
    masters: BTreeMap<Tid, Relayed>,
    /// Masters that wait for room in the channels to the hosts of their consoles.
    waiting: BTreeSet<Tid>,
    /// Bytes of other tasks here that were dropped and not reported yet.
    dropped: BTreeMap<Tid, u64>,
}

impl Streams {
    /// A local task wrote output. Its console is on the host `console`.
    pub fn on_output(&mut self, cx: &mut Context, app: Tid, console: HostId, lines: OutputLines) {
        let tid = lines.tid;
        if tid == app {
            let new = || Relayed::new(console);
            let master = self.masters.entry(tid).or_insert_with(new);
            let piece = (lines.stream, lines.bytes.into_vec());
            master.pieces.push_back(piece);
            self.waiting.insert(tid);
            return master.send(cx, tid, limits::RUN_QUEUE_BYTES);
        }
        let len = lines.bytes.len() as u64;
        let dropped = self.dropped.remove(&tid).unwrap_or(0);
        let lines = OutputLines { dropped, ..lines };
        if !cx.send_news(console, &Order::OutputLines(lines)) {
            cx.counters.output_dropped += len;
            self.dropped.insert(tid, dropped + len);
        }
    }

    /// The masters that wait for room in channels.
    pub fn waiting(&self) -> Vec<Tid> {
        self.waiting.iter().copied().collect()
    }

    /// There may be room in the channel for the output of a master: sends it.
    pub fn on_room(&mut self, cx: &mut Context, tid: Tid) {
        self.send(cx, tid, limits::RUN_QUEUE_BYTES);
        if !self.has_pieces(tid) {
            self.waiting.remove(&tid);
        }
    }

    fn send(&mut self, cx: &mut Context, tid: Tid, limit: usize) {
        if let Some(master) = self.masters.get_mut(&tid) {
            master.send(cx, tid, limit);
        }
    }

    fn has_pieces(&self, tid: Tid) -> bool {
        let master = self.masters.get(&tid);
        master.is_some_and(|master| !master.pieces.is_empty())
    }

    /// A master ends: puts all its output into the channel. The output is little more than the
    /// content of the master's pipes.
    pub fn send_last(&mut self, cx: &mut Context, tid: Tid) {
        self.send(cx, tid, limits::QUEUE_BYTES);
    }

    /// A task is removed from this host: drops its output that was not sent.
    pub fn forget(&mut self, cx: &mut Context, tid: Tid) {
        self.waiting.remove(&tid);
        self.dropped.remove(&tid);
        if let Some(master) = self.masters.remove(&tid) {
            let bytes = master.pieces.iter().map(|(_, bytes)| bytes.len() as u64);
            cx.counters.output_dropped += bytes.sum::<u64>();
        }
    }

    /// A master has a new process: has its output read again.
    pub fn renew(&mut self, cx: &mut Context, tid: Tid) {
        if let Some(master) = self.masters.get_mut(&tid) {
            master.paused = false;
            master.review_pause(cx, tid);
        }
    }

    /// A move of a task begins.
    pub fn begin_delivery(&mut self, tid: Tid) {
        if let Some(master) = self.masters.get_mut(&tid) {
            master.delivery = Delivery::NotAsked;
        }
    }

    /// Whether all output of a frozen master arrives on the host `console` of its console before
    /// any output from the host `to`, in the move of that number.
    pub fn is_delivered(
        &mut self,
        cx: &mut Context,
        tid: Tid,
        console: HostId,
        (to, number): (HostId, u64),
    ) -> bool {
        // The release needs room in the channel behind the output.
        self.send(cx, tid, limits::QUEUE_BYTES / 2);
        if self.has_pieces(tid) {
            return false;
        }
        if to == console {
            return true;
        }
        let new = || Relayed::new(console);
        let master = self.masters.entry(tid).or_insert_with(new);
        match master.delivery {
            Delivery::Done => true,
            Delivery::Asked { host, .. } if host == console => false,
            _ => {
                let ask = FlushAsk { app: tid, number };
                let host = console;
                match cx.send_order(host, &Order::FlushAsk(ask)) {
                    true => master.delivery = Delivery::Asked { host, number },
                    false => drop(self.waiting.insert(tid)),
                }
                false
            }
        }
    }

    /// The daemon of a console reports that it has all output of a master from before the move of
    /// that number. `false` if this host did not request that report.
    pub fn on_delivered(&mut self, host: HostId, flushed: &Flushed) -> bool {
        let number = flushed.number;
        let asked = |master: &&mut Relayed| master.delivery == Delivery::Asked { host, number };
        let master = self.masters.get_mut(&flushed.app).filter(asked);
        master
            .map(|master| master.delivery = Delivery::Done)
            .is_some()
    }

    /// The host of the console of a task is lost: the waiting output goes to the log of this host.
    pub fn on_console_lost(&mut self, cx: &mut Context, tid: Tid) {
        self.waiting.remove(&tid);
        if let Some(mut master) = self.masters.remove(&tid) {
            master.held = false;
            for (stream, bytes) in std::mem::take(&mut master.pieces) {
                cx.emit(ProcessOutput::LogOutput(tid, stream, bytes));
            }
            master.review_pause(cx, tid);
        }
    }

    /// The console of a master, on another host, does not read, or reads again.
    pub fn on_hold(&mut self, cx: &mut Context, tid: Tid, console: HostId, hold: bool) {
        let new = || Relayed::new(console);
        let master = self.masters.entry(tid).or_insert_with(new);
        master.held = hold;
        master.review_pause(cx, tid);
    }
}
