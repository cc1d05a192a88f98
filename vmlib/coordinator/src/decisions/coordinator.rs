//! The coordinator of an application: drives the moves of its tasks through their phases.
//!
//! A coordinator is a process beside a daemon, and communicates only with that daemon
//! ([`vm_wire::coordinator`]). The daemon forwards the coordinator's orders to other daemons, and
//! their reports to the coordinator. The state machine takes frames and returns frames; a shell
//! reads and writes them.
//!
//! ```text
//! requester            coordinator               owner                    target
//! MoveAsk          ->  MoveOrder(term)       ->  MoveOffer            ->
//! MoveProgress     <-  initialisation        <-                       <-  MoveReady
//!                  <-  copying               <-  the task sends its memory, in pre-copy rounds
//!                  <-  interruption          <-  the task is being frozen
//!                  <-  draining, saving      <-  the task is frozen, its image is written
//!                  <-  resumption            <-  the image is whole: MoveRelease
//! MoveEnd          <------------------------ <-  Relocate applied
//! ```
//!
//! # Decisions
//!
//! The coordinator decides which moves run, how long each phase may take, and when a move is
//! cancelled. The coordinator never decides alone about a task: the owner has longer time limits of
//! its own, and the log decides where the task resumes. So a coordinator that dies or hangs in any
//! phase loses only its orders. The successor of a coordinator, under the next *term*, begins
//! without any state: each requester repeats its request, the coordinator repeats the order, and
//! the owner replies with the phase or the end of the move. Orders of another term than the agreed
//! term have no effect.
//!
//! # Invariants
//!
//! - The phases of a move follow each other as in [`MovePhase::ALL`]. No phase is left out or
//!   repeated. A move may end in any phase, and a successor may find a move in any phase.
//! - An order is repeated until its owner has replied, and after that to request the phase of the
//!   move.
//! - A move is cancelled only before its resumption.
//! - Checkpoints are made one after the other, and no move begins while a checkpoint is made.
//!   Requests wait, within the limits of time and number in [`limits`].
//!
//! The phases are the five phases of TotalCheckpoint (Kovács 2008), and copying, during which the
//! task runs. `docs/protocol.md` compares the phases and messages with those of the thesis.

use super::checkpointing::{Checkpointing, Step};
use std::collections::{BTreeMap, VecDeque};
use vm_endpoint::Time;
use vm_wire::{
    Body, CodecError, Frame, HostId, Message, Op, RequestKey, Tid,
    checkpoint::{CheckpointAsk, CheckpointEnd},
    coordinator::{CoordinatorReady, Heard, Mail, Serve},
    limits,
    peer::{
        MoveAsk, MoveCancel, MoveEnd, MoveOrder, MovePhase, MoveProgress, MoveReported, MoveState,
        MoveWay, Order,
    },
    task::{FailKind, Failed},
};

/// A move that has not ended.
#[derive(Debug)]
struct Move {
    tid: Tid,
    from: HostId,
    incarnation: u32,
    to: HostId,
    way: MoveWay,
    /// Last reported phase; `None` until the owner has replied.
    phase: Option<MovePhase>,
    /// Time at which the move is cancelled; `None` if it may not be cancelled, or is being
    /// cancelled.
    due: Option<Time>,
    /// Reason for the cancellation, once the move is being cancelled.
    cancelled: Option<String>,
    /// Time at which the order is sent to the owner again.
    again: Time,
}

/// The coordinator of one application, as the module describes it.
#[derive(Debug, Default)]
pub struct Coordinator {
    /// The application and the term that the log has appointed the coordinator for.
    serves: Option<Serve>,
    moves: BTreeMap<RequestKey, Move>,
    /// The checkpoint that is being made.
    checkpoint: Option<Checkpointing>,
    /// Waiting requests for checkpoints, in their order.
    waiting: VecDeque<(HostId, CheckpointAsk)>,
}

impl Coordinator {
    /// A coordinator without an application, and its first frame. `pid` is its process id.
    pub fn new(pid: u32) -> (Self, Frame) {
        (Self::default(), CoordinatorReady { pid }.frame())
    }

    /// The moves that have not ended, each with its task and its last reported phase.
    pub fn moves(&self) -> impl Iterator<Item = (RequestKey, Tid, Option<MovePhase>)> {
        self.moves
            .iter()
            .map(|(key, moving)| (*key, moving.tid, moving.phase))
    }

    /// Time at which [`Coordinator::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        let times = |moving: &Move| moving.due.map_or(moving.again, |due| due.min(moving.again));
        let checkpoint = self.checkpoint.as_ref().map(Checkpointing::deadline);
        self.moves.values().map(times).chain(checkpoint).min()
    }

    /// Takes a frame of the coordinator's daemon. Replies go into `out`.
    ///
    /// # Errors
    /// [`CodecError`] when the frame is none that a daemon sends. The connection is of no use then.
    pub fn on_frame(
        &mut self,
        now: Time,
        frame: &Frame,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), CodecError> {
        match frame.header.op {
            Op::Serve => {
                self.serves = Some(Serve::read(frame)?);
                self.moves.clear();
                self.checkpoint = None;
                self.waiting.clear();
            }
            Op::Mail => {
                let mail = Mail::read(frame)?;
                let order = Order::from_payload(&mail.order)?;
                self.on_order(now, mail.host, order, out);
            }
            op => {
                let cause = "no frame for a coordinator".to_owned();
                return Err(CodecError {
                    op: Some(op),
                    cause,
                });
            }
        }
        out.push_back(Heard {}.frame().asked(frame.header.request));
        Ok(())
    }

    fn on_order(&mut self, now: Time, host: HostId, order: Order, out: &mut VecDeque<Frame>) {
        match order {
            Order::MoveAsk(ask) => self.on_ask(now, host, &ask, out),
            Order::MoveReported(reported) => self.on_reported(now, host, &reported, out),
            Order::CheckpointAsk(ask) => self.on_checkpoint_ask(now, host, &ask, out),
            Order::CutMade(_)
            | Order::CheckpointEnd(_)
            | Order::PartSaved(_)
            | Order::KeptSaved(_)
            | Order::PartStands(_)
            | Order::CutLost(_)
            | Order::CutGone(_)
            | Order::Committed(_)
            | Order::CutClosed(_) => self.on_checkpoint(now, order, out),
            // The daemon forwards no other orders.
            _ => {}
        }
    }

    fn on_ask(&mut self, now: Time, requester: HostId, ask: &MoveAsk, out: &mut VecDeque<Frame>) {
        let key = RequestKey::new(requester, ask.request);
        if let Some(moving) = self.moves.get(&key) {
            let (tid, phase) = (moving.tid, moving.phase);
            if let Some(phase) = phase {
                tell_progress(key, tid, phase, out);
            }
            return;
        }
        if self.moves.len() >= limits::MOVES_DRIVEN_MAX {
            let max = limits::MOVES_DRIVEN_MAX;
            let text = format!("{max} moves of this application are under way; try again");
            let end = MoveEnd {
                request: ask.request,
                tid: ask.tid,
                result: Err(Failed::new(FailKind::Limit, text)),
            };
            return send(requester, &Order::MoveEnd(end), out);
        }
        let moving = Move {
            tid: ask.tid,
            from: ask.from,
            incarnation: ask.incarnation,
            to: ask.to,
            way: ask.way,
            phase: None,
            due: None,
            cancelled: None,
            again: match self.checkpoint {
                None => now,
                Some(_) => now + limits::CHECKPOINT_AWAITED,
            },
        };
        self.moves.insert(key, moving);
        if self.checkpoint.is_none() {
            self.ask_owner(now, key, out);
        }
    }

    fn on_checkpoint_ask(
        &mut self,
        now: Time,
        requester: HostId,
        ask: &CheckpointAsk,
        out: &mut VecDeque<Frame>,
    ) {
        let key = RequestKey::new(requester, ask.request);
        let is_it = |(requester, ask): &(HostId, CheckpointAsk)| {
            RequestKey::new(*requester, ask.request) == key
        };
        match &mut self.checkpoint {
            Some(making) if making.key() == key || self.waiting.iter().any(is_it) => {}
            Some(_) if self.waiting.len() >= limits::CHECKPOINTS_WAITING_MAX => {
                let max = limits::CHECKPOINTS_WAITING_MAX;
                let text = format!(
                    "a checkpoint of this application is being made already, and {max} more are wanted"
                );
                let end = CheckpointEnd {
                    request: ask.request,
                    app: ask.app,
                    result: Err(Failed::new(FailKind::Limit, text)),
                };
                send(requester, &Order::CheckpointEnd(end), out);
            }
            Some(making) => {
                self.waiting.push_back((requester, *ask));
                making.also_for(now);
                self.go_on(now, out);
            }
            None => {
                self.checkpoint = Some(Checkpointing::new(now, requester, ask));
                self.go_on(now, out);
            }
        }
    }

    /// Takes an order about the checkpoint that is being made.
    fn on_checkpoint(&mut self, now: Time, order: Order, out: &mut VecDeque<Frame>) {
        let Some(making) = &mut self.checkpoint else {
            return;
        };
        let mut steps = VecDeque::new();
        match order {
            Order::CutMade(made) => making.on_cut_made(now, made),
            Order::CheckpointEnd(refused) => making.on_cut_refused(refused, &mut steps),
            Order::PartStands(_)
            | Order::PartSaved(_)
            | Order::KeptSaved(_)
            | Order::CutLost(_) => making.on_saved(now, order),
            Order::CutGone(gone) => making.on_cut_gone(now, gone),
            Order::Committed(committed) => making.on_committed(now, committed),
            Order::CutClosed(closed) => making.on_cut_closed(now, closed, &mut steps),
            _ => {}
        }
        let has_ended = steps.iter().any(|step| matches!(step, Step::End(..)));
        self.carry_out(steps, out);
        if has_ended {
            let next = self.waiting.pop_front();
            self.checkpoint = next.map(|(requester, ask)| Checkpointing::new(now, requester, &ask));
        }
        if self.checkpoint.is_none() {
            self.begin_moves(now, out);
        }
        self.go_on(now, out);
    }

    /// Begins the moves that waited for the end of a checkpoint.
    fn begin_moves(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        let wait = self.moves.iter().filter(|(_, it)| it.phase.is_none());
        for key in wait.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.ask_owner(now, key, out);
        }
    }

    /// Lets the checkpoint send its order, if the order is due.
    fn go_on(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        let (Some(serves), Some(making)) = (self.serves, &mut self.checkpoint) else {
            return;
        };
        let mut steps = VecDeque::new();
        if making.deadline() <= now {
            making.tick(now, serves.term, &mut steps);
        }
        self.carry_out(steps, out);
    }

    fn carry_out(&self, steps: VecDeque<Step>, out: &mut VecDeque<Frame>) {
        let here = self.serves.map_or(HostId::NONE, |serves| serves.host);
        for step in steps {
            match step {
                Step::Own(mut order) => {
                    if let Order::CutClose(close) = &mut *order
                        && let Some(making) = &self.checkpoint
                    {
                        let end = |(requester, ask): &(HostId, CheckpointAsk)| {
                            Some((*requester, making.end_for(ask)?))
                        };
                        close.ends.extend(self.waiting.iter().filter_map(end));
                    }
                    send(here, &order, out);
                }
                Step::End(requester, end) => send(requester, &Order::CheckpointEnd(end), out),
            }
        }
    }

    /// Sends the owner the order for a move, or its cancellation. The order also requests the phase
    /// of the move.
    fn ask_owner(&mut self, now: Time, key: RequestKey, out: &mut VecDeque<Frame>) {
        let (Some(serves), Some(moving)) = (self.serves, self.moves.get_mut(&key)) else {
            return;
        };
        moving.again = now + limits::REQUEST_RETRY;
        let (term, tid) = (serves.term, moving.tid);
        let RequestKey {
            host: requester,
            number: request,
        } = key;
        let order = match &moving.cancelled {
            Some(why) => Order::MoveCancel(MoveCancel {
                term,
                requester,
                request,
                tid,
                why: why.clone(),
            }),
            None => Order::MoveOrder(MoveOrder {
                term,
                requester,
                request,
                tid,
                incarnation: moving.incarnation,
                to: moving.to,
                way: moving.way,
            }),
        };
        send(moving.from, &order, out);
    }

    fn on_reported(
        &mut self,
        now: Time,
        host: HostId,
        reported: &MoveReported,
        out: &mut VecDeque<Frame>,
    ) {
        let key = RequestKey::new(reported.requester, reported.request);
        let Some(moving) = self.moves.get_mut(&key) else {
            return;
        };
        if (moving.from, moving.tid) != (host, reported.tid) {
            return;
        }
        let phase = match &reported.state {
            MoveState::In(phase) => *phase,
            MoveState::Ended(_) => {
                self.moves.remove(&key);
                return;
            }
        };
        let tid = moving.tid;
        let missed =
            |next: &MovePhase| moving.phase.is_none_or(|now| *next > now) && *next <= phase;
        let first = moving.phase.is_none();
        let passed: Vec<MovePhase> = MovePhase::ALL.into_iter().filter(missed).collect();
        for next in passed {
            // A move that began under an earlier coordinator starts at its current phase.
            if first && next < phase {
                continue;
            }
            moving.enter(now, next);
            tell_progress(key, tid, next, out);
        }
    }

    /// Repeats orders and cancels moves that are due at `now`.
    pub fn tick(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        let due = |moving: &Move| moving.again <= now || moving.due.is_some_and(|due| due <= now);
        let keys: Vec<RequestKey> = self
            .moves
            .iter()
            .filter(|(_, moving)| due(moving))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if let Some(moving) = self.moves.get_mut(&key)
                && moving.due.is_some_and(|due| due <= now)
            {
                moving.cancel();
            }
            self.ask_owner(now, key, out);
        }
        self.go_on(now, out);
    }
}

impl Move {
    /// Sets the phase of the move and its time limit.
    fn enter(&mut self, now: Time, phase: MovePhase) {
        self.phase = Some(phase);
        if self.cancelled.is_some() && phase != MovePhase::Resumption {
            return;
        }
        self.due = match phase {
            MovePhase::Initialisation => Some(now + limits::PHASE_INITIALISATION),
            // One limit for the four phases until the image is whole, as at the owner.
            MovePhase::Copying => Some(now + limits::PHASE_IMAGE),
            MovePhase::Interruption | MovePhase::Draining | MovePhase::Saving => {
                self.due.or(Some(now + limits::PHASE_IMAGE))
            }
            MovePhase::Resumption => {
                self.cancelled = None;
                None
            }
        };
    }

    fn cancel(&mut self) {
        self.due = None;
        if let Some(phase) = self.phase {
            let text = format!("its {phase} took too long; the task runs on");
            self.cancelled = Some(text);
        }
    }
}

fn tell_progress(key: RequestKey, tid: Tid, phase: MovePhase, out: &mut VecDeque<Frame>) {
    let progress = MoveProgress {
        request: key.number,
        tid,
        phase,
    };
    send(key.host, &Order::MoveProgress(progress), out);
}

fn send(host: HostId, order: &Order, out: &mut VecDeque<Frame>) {
    let order = Body::from(order.to_payload());
    out.push_back(Mail { host, order }.frame());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vm_wire::MachineId;

    const REQUESTER: HostId = HostId(1);
    const OWNER: HostId = HostId(2);
    const TARGET: HostId = HostId(3);

    fn tid(sequence: u32) -> Tid {
        Tid::new(MachineId::from_bits(7), OWNER, sequence)
    }

    struct Setting {
        now: Time,
        coordinator: Coordinator,
        numbers: u64,
    }

    impl Setting {
        fn new(term: u32) -> Self {
            let (coordinator, first) = Coordinator::new(42);
            assert_eq!(
                CoordinatorReady::read(&first),
                Ok(CoordinatorReady { pid: 42 })
            );
            let mut setting = Setting {
                now: Time(1_000),
                coordinator,
                numbers: 0,
            };
            let host = HostId(9);
            let serve = Serve {
                app: tid(1),
                term,
                host,
            };
            assert_eq!(setting.frame(serve.frame()), []);
            setting
        }

        /// The replies to a frame, without the confirmation that it was taken.
        fn frame(&mut self, frame: Frame) -> Vec<(HostId, Order)> {
            self.numbers += 1;
            let mut out = VecDeque::new();
            let frame = frame.asked(self.numbers);
            let taken = self.coordinator.on_frame(self.now, &frame, &mut out);
            assert_eq!(taken, Ok(()));
            let heard = out.pop_back().expect("it says that it heard");
            assert_eq!(
                (heard.header.op, heard.header.request),
                (Op::Heard, self.numbers)
            );
            mails(out)
        }

        fn order(&mut self, host: HostId, order: Order) -> Vec<(HostId, Order)> {
            let order = Body::from(order.to_payload());
            self.frame(Mail { host, order }.frame())
        }

        fn ask(&mut self, request: u64, sequence: u32) -> Vec<(HostId, Order)> {
            let ask = MoveAsk {
                request,
                tid: tid(sequence),
                from: OWNER,
                incarnation: 1,
                generation: 0,
                to: TARGET,
                way: MoveWay::default(),
            };
            self.order(REQUESTER, Order::MoveAsk(ask))
        }

        fn report(&mut self, request: u64, sequence: u32, state: MoveState) -> Vec<MovePhase> {
            let reported = MoveReported {
                requester: REQUESTER,
                request,
                tid: tid(sequence),
                state,
            };
            let said = self.order(OWNER, Order::MoveReported(reported));
            let phase = |(host, order): (HostId, Order)| match order {
                Order::MoveProgress(progress) if host == REQUESTER => progress.phase,
                other => panic!("{other:?}"),
            };
            said.into_iter().map(phase).collect()
        }

        /// Advances the time to the next deadline.
        fn wait(&mut self) -> Vec<(HostId, Order)> {
            self.now = self.coordinator.deadline().expect("something is due");
            let mut out = VecDeque::new();
            self.coordinator.tick(self.now, &mut out);
            mails(out)
        }
    }

    fn mails(frames: VecDeque<Frame>) -> Vec<(HostId, Order)> {
        let read = |frame: Frame| {
            let mail = Mail::read(&frame).expect("mail");
            (
                mail.host,
                Order::from_payload(&mail.order).expect("an order"),
            )
        };
        frames.into_iter().map(read).collect()
    }

    fn ordered(term: u32, request: u64, sequence: u32) -> (HostId, Order) {
        let order = MoveOrder {
            term,
            requester: REQUESTER,
            request,
            tid: tid(sequence),
            incarnation: 1,
            to: TARGET,
            way: MoveWay::default(),
        };
        (OWNER, Order::MoveOrder(order))
    }

    fn failed() -> Failed {
        Failed::new(FailKind::Refused, "no")
    }

    #[test]
    fn a_move_goes_through_all_phases_in_their_order() {
        use MovePhase::*;
        let mut setting = Setting::new(3);
        assert_eq!(setting.ask(7, 5), [ordered(3, 7, 5)]);
        assert_eq!(
            setting.report(7, 5, MoveState::In(Initialisation)),
            [Initialisation]
        );
        assert_eq!(setting.report(7, 5, MoveState::In(Copying)), [Copying]);
        assert_eq!(
            setting.report(7, 5, MoveState::In(Interruption)),
            [Interruption]
        );
        assert_eq!(
            setting.report(7, 5, MoveState::In(Saving)),
            [Draining, Saving]
        );
        // A late report changes nothing.
        assert_eq!(setting.report(7, 5, MoveState::In(Interruption)), []);
        assert_eq!(
            setting.report(7, 5, MoveState::In(Resumption)),
            [Resumption]
        );
        assert_eq!(setting.report(7, 5, MoveState::Ended(Err(failed()))), []);
        assert_eq!(setting.coordinator.moves().count(), 0);
        assert_eq!(setting.coordinator.deadline(), None);
    }

    #[test]
    fn an_order_is_repeated_and_a_move_that_was_under_way_is_met_where_it_is() {
        let mut setting = Setting::new(4);
        assert_eq!(setting.ask(7, 5), [ordered(4, 7, 5)]);
        assert_eq!(setting.wait(), [ordered(4, 7, 5)]);
        let saving = MovePhase::Saving;
        assert_eq!(setting.report(7, 5, MoveState::In(saving)), [saving]);
        // A repeated request gets the phase of the move. The owner gets no new order.
        let again = setting.ask(7, 5);
        assert!(
            matches!(&again[..], [(REQUESTER, Order::MoveProgress(progress))]
            if progress.phase == saving)
        );
    }

    #[test]
    fn a_phase_that_takes_too_long_is_cancelled_until_the_owner_says_that_it_has_ended() {
        let mut setting = Setting::new(1);
        setting.ask(7, 5);
        let begun = setting.now;
        setting.report(7, 5, MoveState::In(MovePhase::Initialisation));
        let why = loop {
            match &setting.wait()[..] {
                [(OWNER, Order::MoveOrder(_))] => {}
                [(OWNER, Order::MoveCancel(cancel))] => break cancel.why.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(setting.now.since(begun), limits::PHASE_INITIALISATION);
        assert!(why.contains("initialisation"), "{why}");
        assert!(matches!(
            &setting.wait()[..],
            [(OWNER, Order::MoveCancel(_))]
        ));
        setting.report(7, 5, MoveState::Ended(Err(failed())));
        assert_eq!(setting.coordinator.deadline(), None);
    }

    #[test]
    fn copying_and_all_until_the_image_is_whole_share_one_limit() {
        let mut setting = Setting::new(1);
        setting.ask(7, 5);
        setting.report(7, 5, MoveState::In(MovePhase::Initialisation));
        let begun = setting.now;
        setting.report(7, 5, MoveState::In(MovePhase::Copying));
        let half = begun + limits::PHASE_IMAGE / 2;
        while setting.now < half {
            assert_eq!(setting.wait(), [ordered(1, 7, 5)]);
        }
        setting.report(7, 5, MoveState::In(MovePhase::Interruption));
        while setting.wait() == [ordered(1, 7, 5)] {}
        assert_eq!(setting.now.since(begun), limits::PHASE_IMAGE);
    }

    #[test]
    fn nothing_is_cancelled_once_the_log_decides() {
        let mut setting = Setting::new(1);
        setting.ask(7, 5);
        setting.report(7, 5, MoveState::In(MovePhase::Resumption));
        let end = setting.now + Duration::from_secs(3_600);
        while setting.now < end {
            assert_eq!(setting.wait(), [ordered(1, 7, 5)]);
        }
    }

    #[test]
    fn moves_go_side_by_side_and_there_is_a_most() {
        let mut setting = Setting::new(1);
        for request in 0..limits::MOVES_DRIVEN_MAX as u64 {
            let sequence = request as u32 + 1;
            assert_eq!(
                setting.ask(request, sequence),
                [ordered(1, request, sequence)]
            );
        }
        let refused = setting.ask(1 << 40, 9);
        assert!(matches!(&refused[..], [(REQUESTER, Order::MoveEnd(end))]
            if end.result.as_ref().is_err_and(|failed| failed.kind == FailKind::Limit)));
        setting.report(3, 4, MoveState::Ended(Err(failed())));
        assert_eq!(setting.ask(1 << 40, 9), [ordered(1, 1 << 40, 9)]);
    }

    #[test]
    fn a_report_of_who_is_not_the_owner_changes_nothing() {
        let mut setting = Setting::new(1);
        setting.ask(7, 5);
        let reported = MoveReported {
            requester: REQUESTER,
            request: 7,
            tid: tid(5),
            state: MoveState::Ended(Err(failed())),
        };
        assert_eq!(setting.order(TARGET, Order::MoveReported(reported)), []);
        assert_eq!(setting.coordinator.moves().count(), 1);
    }
}
