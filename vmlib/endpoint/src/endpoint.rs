//! All channels of one task id, and its inbox: one end of exactly-once delivery.
//!
//! The library of each task has one endpoint. Each daemon has an endpoint for its orders to other
//! daemons. The caller passes incoming frames to [`Endpoint::handle`] and sends the frames that
//! each call leaves in `out`. Data and Ack frames may be lost, duplicated and reordered between two
//! endpoints; the endpoints make up for it (see [`crate::channel`]).
//!
//! **Sending** is a state that is polled. A caller that waits for credit can interrupt the wait at
//! any time, receive messages, and poll again.
//!
//! **Acknowledgements** are part of every chunk in the other direction. A frame with only an
//! acknowledgement is sent when half a window is unacknowledged, and after a short idle time in
//! [`Endpoint::tick`]. While the inbox is full, no acknowledgement and no credit is sent. A send
//! that needs credit then fails, because two tasks could wait for each other for ever.
//!
//! **New routes.** When a peer has moved, or the link to its host is new, both ends acknowledge and
//! send again from the first unacknowledged chunk. If these frames are lost too, [`Endpoint::tick`]
//! repeats an old unacknowledged chunk.
//!
//! **Ends.** A task that leaves in order leaves its chunks to its daemon. The notification of its
//! end waits for its last chunk. A task that is killed leaves none: no later chunk of it is taken,
//! and an incomplete message is never received.

mod handlers;
mod posted;
mod receives;
mod rings;
mod selection;

use crate::{
    inbox::{Inbox, InboxState},
    message::{Envelope, Filter, Received},
    pair::{Pair, PairState, Stamp},
    ring::{NoRing, Ring},
    sending::{EndpointError, SendProgress, Sending},
    time::Time,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use vm_wire::{
    Frame, Header, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    limits,
    task::{Ended, HostEvent, KeptBy, Located, RingAsk},
};

/// Configuration of an endpoint: its task and its limits.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Task id of the endpoint.
    pub me: Tid,
    /// Bound on the unacknowledged bytes towards one receiver.
    pub window_bytes: u64,
    /// Bound on the unread bytes of the inbox. At this bound senders are held back.
    pub inbox_bytes: u64,
    /// Epoch of the task's application when the task enrolled. Only headers use it.
    pub epoch: u32,
    /// Generation of the task's application.
    pub generation: u32,
    /// Chunks to one peer after which the endpoint asks its daemon for a ring; `None`: it asks for
    /// none.
    pub ring_after: Option<u64>,
}

/// An event that a task gets beside messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A watched task has ended.
    Ended {
        /// Id of the ended task.
        tid: Tid,
        /// Exit code or signal of the ended task.
        status: ExitStatus,
    },
    /// A host was added, or is lost or has left.
    Host(HostEvent),
}

/// All channels of one task id, and its inbox.
#[derive(Debug, Clone)]
pub struct Endpoint {
    config: EndpointConfig,
    pairs: BTreeMap<Tid, Pair>,
    inbox: Inbox,
    notices: VecDeque<Notice>,
    /// Number of the last frame of the daemon that was taken (`Op::is_told`).
    told: u64,
    due: Due,
    /// Peers without an acknowledgement for taken chunks, because the inbox is full.
    withheld: BTreeSet<Tid>,
    /// Peers that have ended, oldest first. Their pairs are kept to recognise duplicates.
    ended: VecDeque<Tid>,
}

/// The part of an [`Endpoint`] that an image records: retained chunks, unread messages, and
/// numbers. An endpoint with this state can replace it on any host. The encoding is MessagePack
/// with names of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointState {
    pairs: Vec<PairState>,
    inbox: InboxState,
    notices: Vec<Notice>,
    told: u64,
    /// Peers that have ended, oldest first.
    ended: Vec<Tid>,
}

impl Endpoint {
    /// The state of the endpoint. The caller records messages that are half sent ([`Sending::state`]).
    pub fn state(&self) -> EndpointState {
        EndpointState {
            pairs: self.pairs.values().map(Pair::state).collect(),
            inbox: self.inbox.state(),
            notices: self.notices.iter().cloned().collect(),
            told: self.told,
            ended: self.ended.iter().copied().collect(),
        }
    }

    /// An endpoint with a recorded state. As after every freeze, the caller then calls
    /// [`Endpoint::renew`].
    pub fn of(now: Time, state: EndpointState, config: EndpointConfig) -> Self {
        let inbox = Inbox::of(state.inbox, config.inbox_bytes);
        let of_pair = |pair: PairState| (pair.peer, Pair::of(now, pair, config.window_bytes));
        let mut pairs: BTreeMap<Tid, Pair> = state.pairs.into_iter().map(of_pair).collect();
        let mut due = Due::default();
        pairs.values_mut().for_each(|pair| due.note(pair));
        let untold = pairs.values().filter(|pair| pair.receiver.withholds());
        let withheld = match inbox.is_open() {
            true => BTreeSet::new(),
            false => untold.map(|pair| pair.peer).collect(),
        };
        Endpoint {
            pairs,
            inbox,
            notices: state.notices.into(),
            told: state.told,
            due,
            withheld,
            ended: state.ended.into(),
            config,
        }
    }

    /// An endpoint without channels.
    pub fn new(config: EndpointConfig) -> Self {
        let inbox = Inbox::new(config.inbox_bytes);
        Endpoint {
            config,
            pairs: BTreeMap::new(),
            inbox,
            notices: VecDeque::new(),
            told: 0,
            due: Due::default(),
            withheld: BTreeSet::new(),
            ended: VecDeque::new(),
        }
    }

    /// Task id of the endpoint.
    pub fn me(&self) -> Tid {
        self.config.me
    }

    /// A message for [`Endpoint::poll_send`]. Messages to one peer are sent one after the other:
    /// the first chunk of a message abandons an earlier message that is not complete.
    pub fn start_send(&self, to: Tid, context: u32, tag: i32, body: Bytes) -> Sending {
        Sending::new(to, context, tag, body)
    }

    /// Sends as much of the message as credit and window of the peer allow. A message to a task
    /// that has ended is dropped and counts as sent. A message to the task itself goes directly
    /// into the inbox.
    ///
    /// # Errors
    /// [`EndpointError`], except `Backlog`.
    pub fn poll_send(
        &mut self,
        now: Time,
        sending: &mut Sending,
        out: &mut VecDeque<Frame>,
    ) -> Result<SendProgress, EndpointError> {
        self.poll_send_by(now, sending, (&mut NoRing, true), out)
    }

    /// Like [`Endpoint::poll_send`], for a task that may have a ring to the receiver. If the ring is
    /// full, the rest of the message goes by the daemon if the flag is set, and else waits. After a
    /// few messages to one receiver, the daemon is asked for a ring.
    ///
    /// # Errors
    /// Those of [`Endpoint::poll_send`].
    pub fn poll_send_by(
        &mut self,
        now: Time,
        sending: &mut Sending,
        (ring, overflows): (&mut impl Ring, bool),
        out: &mut VecDeque<Frame>,
    ) -> Result<SendProgress, EndpointError> {
        check_length(&sending.body)?;
        if sending.to == self.config.me {
            return self.send_to_self(sending);
        }
        let stamp = self.stamp();
        let pair = pair(&mut self.pairs, &self.config, sending.to);
        let progress = pair.advance(now, stamp, sending, (ring, overflows), out)?;
        ring.flush();
        if let Some(after) = self.config.ring_after
            && !pair.ended
            && pair.ring.asks(pair.sender.last(), after)
        {
            let ask = RingAsk { peer: pair.peer };
            out.push_back(ask.frame().between(self.config.me, Tid::NONE));
        }
        self.due.note(pair);
        match self.inbox_full() {
            Some(full) if progress == SendProgress::NeedsCredit => Err(full),
            _ => Ok(progress),
        }
    }

    /// Sends a message as soon as credit allows, after the messages queued before it. Daemons,
    /// which never wait, use this call. Context and tag are 0.
    ///
    /// # Errors
    /// [`EndpointError::TooLong`], [`EndpointError::Backlog`].
    pub fn queue(
        &mut self,
        now: Time,
        to: Tid,
        body: Bytes,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), EndpointError> {
        self.queue_within(limits::QUEUE_BYTES as u64, now, to, body, out)
    }

    /// Like [`Endpoint::queue`], with a bound of `limit_bytes` on the waiting bytes.
    ///
    /// # Errors
    /// Those of [`Endpoint::queue`].
    pub fn queue_within(
        &mut self,
        limit_bytes: u64,
        now: Time,
        to: Tid,
        body: Bytes,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), EndpointError> {
        check_length(&body)?;
        let mut sending = Sending::new(to, 0, 0, body);
        if to == self.config.me {
            return self.send_to_self(&mut sending).map(|_| ());
        }
        let stamp = self.stamp();
        let pair = pair(&mut self.pairs, &self.config, to);
        let fits = pair.queue(now, stamp, sending, limit_bytes, out);
        self.due.note(pair);
        if fits {
            Ok(())
        } else {
            Err(EndpointError::Backlog { to })
        }
    }

    /// Takes a Data, Ack or Resend frame for this task id. Other frames, and frames of another
    /// generation, are ignored.
    pub fn handle(&mut self, now: Time, frame: Frame, out: &mut VecDeque<Frame>) {
        let Header {
            op,
            from,
            ack,
            credit,
            ..
        } = frame.header;
        if frame.header.to != self.config.me || from == self.config.me {
            return;
        }
        // A Resend frame comes from a daemon between the ends, which does not know the generation.
        if op != Op::Resend && frame.header.generation != self.config.generation {
            return;
        }
        match op {
            Op::Data => {
                let pair = pair(&mut self.pairs, &self.config, from);
                pair.sender.acknowledge(now, ack, credit);
                let inbox = &mut self.inbox;
                pair.receiver.offer(now, frame, |chunk| inbox.accept(chunk));
                self.settle_if_last(from);
            }
            Op::Ack => {
                if let Some(pair) = self.pairs.get_mut(&from) {
                    pair.sender.acknowledge(now, ack, credit);
                }
            }
            Op::Resend => {
                let stamp = self.stamp();
                if let Some(pair) = self.pairs.get_mut(&from) {
                    pair.resend(now, stamp, out);
                }
            }
            _ => return,
        }
        self.follow_up(now, from, out);
    }

    /// Handles the move or end of a peer, or a new link to a host. `generation` is that of the
    /// frame. A daemon reports an end in reply to a frame to the peer, so an end in another
    /// generation is ignored.
    pub fn located(
        &mut self,
        now: Time,
        located: &Located,
        generation: u32,
        out: &mut VecDeque<Frame>,
    ) {
        let stamp = self.stamp();
        match located.peer {
            None => {
                for pair in self.pairs.values_mut() {
                    if pair.host == located.host && !pair.ended {
                        pair.renew(now, stamp, out);
                        self.due.note(pair);
                    }
                }
            }
            Some(peer) if located.host == HostId::NONE => {
                if generation == self.config.generation && self.pairs.contains_key(&peer) {
                    self.end(peer);
                }
            }
            Some(peer) => {
                if let Some(pair) = self.pairs.get_mut(&peer)
                    && located.incarnation > pair.incarnation
                {
                    pair.host = located.host;
                    pair.incarnation = located.incarnation;
                    pair.renew(now, stamp, out);
                    self.follow_up(now, peer, out);
                }
            }
        }
    }

    /// The generation of this task's application.
    pub fn generation(&self) -> u32 {
        self.config.generation
    }

    /// Sets the generation after a restart of the application. Frames of other generations are
    /// dropped from then on.
    pub fn set_generation(&mut self, generation: u32) {
        self.config.generation = generation;
    }

    /// Starts every channel anew after a freeze of this task, because frames in both directions may
    /// be lost.
    pub fn renew(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        let stamp = self.stamp();
        for pair in self.pairs.values_mut().filter(|pair| !pair.ended) {
            pair.renew(now, stamp, out);
            self.due.note(pair);
        }
    }

    /// Takes the end of a task. Once its last chunk was taken, the task is over
    /// ([`Endpoint::over`]), and a watched task gives a [`Notice`]. If the number of its last chunk
    /// is unknown, both happen at once. Later chunks of the task are dropped.
    pub fn ended(&mut self, now: Time, ended: Ended, out: &mut VecDeque<Frame>) {
        let peer = ended.tid;
        let pair = pair(&mut self.pairs, &self.config, peer);
        let watched = pair.awaits_last.take().is_some_and(|ended| ended.watched);
        pair.awaits_last = Some(Ended {
            watched: ended.watched || watched,
            ..ended
        });
        self.settle_if_last(peer);
        self.end(peer);
        self.follow_up(now, peer, out);
    }

    /// The exit status of a peer whose last chunk was taken: all its messages are in the inbox or
    /// were received.
    pub fn over(&self, peer: Tid) -> Option<ExitStatus> {
        self.pairs.get(&peer).and_then(|pair| pair.over)
    }

    /// Handles the change of a keeper, or the loss of the messages that a keeper retained for ended
    /// tasks. Lost messages are not waited for.
    pub fn kept_by(&mut self, now: Time, kept: &KeptBy, out: &mut VecDeque<Frame>) {
        let mut lost = Vec::new();
        for (peer, pair) in &mut self.pairs {
            let Some(ended) = pair.awaits_last.as_mut() else {
                continue;
            };
            if ended.keeper == kept.host {
                match kept.by {
                    Some(host) => ended.keeper = host,
                    None => {
                        ended.last = None;
                        lost.push(*peer);
                    }
                }
            }
        }
        for peer in lost {
            self.settle_if_last(peer);
            self.follow_up(now, peer, out);
        }
    }

    /// Whether a frame of the daemon ([`Op::is_told`]) is new. The daemon sends such a frame again
    /// after a freeze of this task. An acknowledgement goes to the daemon.
    pub fn is_news(&mut self, header: &Header, out: &mut VecDeque<Frame>) -> bool {
        let new = header.seq > self.told;
        self.told = self.told.max(header.seq);
        let mut ack = Header::new(Op::Ack);
        ack.ack = self.told;
        let ack = Frame::new(ack, Bytes::new());
        out.push_back(ack.between(self.config.me, Tid::NONE));
        new
    }

    /// Adds a [`Notice`] about a host that was added or is gone.
    pub fn host_event(&mut self, event: HostEvent) {
        self.notices.push_back(Notice::Host(event));
    }

    /// The first message that the filter selects. Receiving makes room, so senders that were held
    /// back may get their acknowledgement. Overdue frames are sent as well.
    pub fn take(
        &mut self,
        now: Time,
        filter: &Filter,
        out: &mut VecDeque<Frame>,
    ) -> Option<Received> {
        let message = self.inbox.take(filter)?;
        self.made_room(now, out);
        Some(message)
    }

    /// Acknowledges what was withheld while the inbox was full, if it has room now, and sends overdue
    /// frames.
    fn made_room(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        if self.inbox.is_open() && !self.withheld.is_empty() {
            let stamp = self.stamp();
            for peer in std::mem::take(&mut self.withheld) {
                if let Some(pair) = self.pairs.get_mut(&peer)
                    && pair.receiver.withholds()
                {
                    pair.announce(stamp, out);
                }
            }
        }
        self.tick(now, out);
    }

    /// The envelope of the message that [`Endpoint::take`] would return.
    pub fn peek(&self, filter: &Filter) -> Option<Envelope> {
        self.inbox.peek(filter)
    }

    /// The next notice. All messages of an ended task are in the inbox before its notice.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// [`EndpointError::InboxFull`] if unread messages hold senders back. A receive that selects
    /// none of the messages must fail with this error, because a message that it selects cannot
    /// arrive.
    pub fn inbox_full(&self) -> Option<EndpointError> {
        if self.inbox.is_open() {
            return None;
        }
        let (from, bytes) = self.inbox.fullest().unwrap_or_default();
        Some(EndpointError::InboxFull {
            from,
            bytes,
            unread: self.inbox.unread_bytes(),
        })
    }

    /// Cost of the whole messages that were not received yet. Bytes.
    pub fn unread_bytes(&self) -> u64 {
        self.inbox.unread_bytes()
    }

    /// Cost of the chunks that this endpoint retains for its peers. Bytes.
    pub fn retained_bytes(&self) -> u64 {
        let pairs = self.pairs.values();
        pairs.map(|pair| pair.sender.retained_bytes()).sum()
    }

    /// Number of unacknowledged chunks to all peers.
    pub fn unacknowledged(&self) -> u64 {
        self.due.unacknowledged
    }

    /// Number of the chunks that were taken from each peer.
    pub fn taken(&self) -> impl Iterator<Item = (Tid, u64)> {
        let taken = |(peer, pair): (&Tid, &Pair)| (*peer, pair.receiver.taken());
        self.pairs.iter().map(taken)
    }

    /// Number of the chunks that were sent to a peer, and of the chunks that are retained for it.
    pub fn sent(&self, peer: Tid) -> (u64, u64) {
        self.pairs.get(&peer).map_or((0, 0), |pair| {
            (pair.sender.last(), pair.sender.retained_count())
        })
    }

    /// Whether every sent or queued message has been acknowledged.
    pub fn is_drained(&self) -> bool {
        self.pairs.values().all(Pair::is_drained)
    }

    /// Time at which [`Endpoint::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.due.timers.first().map(|(due, _)| *due)
    }

    /// Sends the acknowledgements and repetitions that are due at `now`.
    pub fn tick(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        let stamp = self.stamp();
        while let Some((_, peer)) = self
            .due
            .timers
            .first()
            .copied()
            .filter(|(due, _)| *due <= now)
        {
            self.due.timers.pop_first();
            if let Some(pair) = self.pairs.get_mut(&peer) {
                pair.timer = None;
                pair.tick(now, stamp, out);
                self.due.note(pair);
            }
        }
    }

    /// Returns all retained chunks, for the keeper of the daemon, and the number of the last chunk
    /// to each peer. The caller is a task that leaves in order.
    pub fn leave(&mut self) -> (Vec<Frame>, Vec<(Tid, u64)>) {
        let stamp = self.stamp();
        let mut frames = Vec::new();
        let mut last = Vec::new();
        for pair in self.pairs.values_mut().filter(|pair| !pair.ended) {
            let retained: Vec<Frame> = pair.sender.retained().cloned().collect();
            frames.extend(retained.into_iter().map(|chunk| pair.stamped(stamp, chunk)));
            if pair.sender.last() > 0 {
                last.push((pair.peer, pair.sender.last()));
            }
        }
        for frame in &mut frames {
            frame.header.flags |= Header::KEEP;
        }
        (frames, last)
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            me: self.config.me,
            epoch: self.config.epoch,
            generation: self.config.generation,
            open: self.inbox.is_open(),
        }
    }

    fn send_to_self(&mut self, sending: &mut Sending) -> Result<SendProgress, EndpointError> {
        if let Some(full) = self.inbox_full() {
            return Err(full);
        }
        if !sending.done {
            sending.done = true;
            self.inbox.push(Received {
                from: self.config.me,
                context: sending.context,
                tag: sending.tag,
                body: std::mem::take(&mut sending.body),
            });
        }
        Ok(SendProgress::Done)
    }

    /// Sends queued messages and an urgent acknowledgement, after a frame of a peer was taken.
    fn follow_up(&mut self, now: Time, peer: Tid, out: &mut VecDeque<Frame>) {
        let stamp = self.stamp();
        let Some(pair) = self.pairs.get_mut(&peer) else {
            return;
        };
        pair.pump(now, stamp, out);
        if stamp.open && pair.receiver.is_urgent() {
            pair.announce(stamp, out);
        } else if !stamp.open && pair.receiver.withholds() {
            self.withheld.insert(peer);
        }
        self.due.note(pair);
    }

    /// Completes the end of a peer if its last chunk was taken, or if the number of that chunk is
    /// unknown.
    fn settle_if_last(&mut self, peer: Tid) {
        let Some(pair) = self.pairs.get_mut(&peer) else {
            return;
        };
        let taken = pair.receiver.taken();
        let settled = |ended: &mut Ended| ended.last.is_none_or(|last| taken >= last);
        if let Some(ended) = pair.awaits_last.take_if(settled) {
            if ended.last.is_none() {
                pair.receiver.close();
            }
            self.inbox.discard_part(peer);
            pair.over = Some(ended.status);
            if ended.watched {
                self.notices.push_back(Notice::Ended {
                    tid: peer,
                    status: ended.status,
                });
            }
        }
    }

    /// Releases the chunks retained for an ended peer. The number of its last chunk is remembered
    /// for at most [`limits::ENDED_MAX`] peers, because a duplicate must not be taken for a new
    /// chunk.
    fn end(&mut self, peer: Tid) {
        let pair = pair(&mut self.pairs, &self.config, peer);
        if !pair.ended {
            self.ended.push_back(peer);
        }
        pair.end();
        self.due.note(pair);
        if self.ended.len() > limits::ENDED_MAX
            && let Some(eldest) = self.ended.pop_front()
        {
            if let Some(ended) = self
                .pairs
                .get_mut(&eldest)
                .and_then(|pair| pair.awaits_last.as_mut())
            {
                ended.last = None;
            }
            self.settle_if_last(eldest);
            self.pairs.remove(&eldest);
        }
    }
}

fn check_length(body: &Bytes) -> Result<(), EndpointError> {
    let len = body.len() as u64;
    if len > limits::MESSAGE_MAX {
        return Err(EndpointError::TooLong { len });
    }
    Ok(())
}

/// The pair of a peer, made if it does not exist.
fn pair<'a>(
    pairs: &'a mut BTreeMap<Tid, Pair>,
    config: &EndpointConfig,
    peer: Tid,
) -> &'a mut Pair {
    match pairs.entry(peer) {
        btree_map::Entry::Occupied(entry) => entry.into_mut(),
        btree_map::Entry::Vacant(entry) => entry.insert(Pair::new(peer, config.window_bytes)),
    }
}

/// Times and counts of all pairs, so that a call need not visit each pair.
#[derive(Debug, Clone, Default)]
struct Due {
    /// At most one entry for each pair, not later than its `Pair::due`.
    timers: BTreeSet<(Time, Tid)>,
    /// Number of unacknowledged chunks of all pairs.
    unacknowledged: u64,
}

impl Due {
    /// Updates the count and the timer of a changed pair. Afterwards the timer is not later than
    /// the time that is due. A timer that is too early stays: its tick finds nothing due and sets
    /// the timer anew. A timer that is too early is cheaper than a change of the timer with every
    /// frame.
    fn note(&mut self, pair: &mut Pair) {
        let count = pair.sender.retained_count();
        self.unacknowledged =
            self.unacknowledged + count - std::mem::replace(&mut pair.counted, count);
        if let Some(due) = pair.due()
            && pair.timer.is_none_or(|timer| due < timer)
        {
            if let Some(timer) = pair.timer.replace(due) {
                self.timers.remove(&(timer, pair.peer));
            }
            self.timers.insert((due, pair.peer));
        }
    }
}
