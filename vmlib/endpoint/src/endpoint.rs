//! All channels of one tid, and its inbox: one end of exactly-once delivery.
//!
//! A task's library has one endpoint; so has each daemon, for its orders to other daemons. An
//! endpoint sends frames into the outbox that each call is given and learns from
//! [`Endpoint::handle`] what comes back. Whatever is between it and its peers may lose, double and
//! reorder Data and Ack frames; the endpoint makes up for it (see [`crate::channel`]).
//!
//! **Sending** is a state that is polled: a wait for credit can be left at any time, to look at an
//! interrupt, to receive what comes in, and be taken up again.
//!
//! **Acknowledging** rides on every chunk of the other direction. A frame of its own goes out when
//! half a window is open, and after a short idle time, in [`Endpoint::tick`]. While the inbox is
//! full, nothing more is acknowledged or granted; a send that has to wait then fails rather than
//! let two tasks wait for each other for ever.
//!
//! **New routes.** When a peer moved or the link to its host was made again, both ends announce
//! where they stand and send again from the first chunk not acknowledged. Should even that be
//! lost, a chunk that was not acknowledged for long is repeated in [`Endpoint::tick`].
//!
//! **Ends.** A task that left in order has left its chunks to its daemon: the notify of its end
//! waits for its last number. Of a task that was killed nothing more is taken, and a message that
//! is not whole is never seen.

use crate::{
    inbox::{Envelope, Filter, Inbox, InboxState, Received},
    pair::{Pair, PairState, Stamp},
    sending::{EndpointError, SendProgress, Sending},
    time::Time,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use vm_wire::{
    Frame, Header, HostId, Op, Tid,
    agreed::ExitStatus,
    limits,
    task::{Ended, HostEvent, KeptBy, Located},
};

/// What an endpoint needs to know of its task.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Whose endpoint it is.
    pub me: Tid,
    /// Unacknowledged bytes towards one receiver.
    pub window_bytes: u64,
    /// Bytes of unread messages at which senders are held back.
    pub inbox_bytes: u64,
    /// Epoch of the task's application when the task enrolled: carried in headers, and no more.
    pub epoch: u32,
    /// Generation of the task's application.
    pub generation: u32,
}

/// What a task is told besides messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A task that it watches has ended.
    Ended {
        /// Who.
        tid: Tid,
        /// How.
        status: ExitStatus,
    },
    /// A host was added or is gone.
    Host(HostEvent),
}

/// All channels of one tid, and its inbox.
#[derive(Debug, Clone)]
pub struct Endpoint {
    config: EndpointConfig,
    pairs: BTreeMap<Tid, Pair>,
    inbox: Inbox,
    notices: VecDeque<Notice>,
    /// Number of the last thing that the daemon told.
    told: u64,
    due: Due,
    /// Peers that were not told what was taken from them, because the inbox is full.
    withheld: BTreeSet<Tid>,
    /// Peers that have ended, eldest first: their pairs are kept to recognise doubles.
    ended: VecDeque<Tid>,
}

/// All that has to be kept of an [`Endpoint`] so that another one goes on in its place, on whatever
/// host: what it retains, and what was received and not read. MessagePack, with the names of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointState {
    pairs: Vec<PairState>,
    inbox: InboxState,
    notices: Vec<Notice>,
    told: u64,
    /// Peers that have ended, eldest first.
    ended: Vec<Tid>,
}

impl Endpoint {
    /// What has to be kept of it, while none of its messages is half sent.
    pub fn state(&self) -> EndpointState {
        EndpointState {
            pairs: self.pairs.values().map(Pair::state).collect(),
            inbox: self.inbox.state(),
            notices: self.notices.iter().cloned().collect(),
            told: self.told,
            ended: self.ended.iter().copied().collect(),
        }
    }

    /// An endpoint that goes on with that. As after any freeze, its channels begin anew with
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

    /// Whose endpoint this is.
    pub fn me(&self) -> Tid {
        self.config.me
    }

    /// A message to be sent by [`Endpoint::poll_send`]. Messages to one peer are sent one after
    /// the other: the first chunk of one gives up another that is not complete.
    pub fn start_send(&self, to: Tid, context: u32, tag: i32, body: Bytes) -> Sending {
        Sending::new(to, context, tag, body)
    }

    /// Sends as much of the message as the peer's credit and window allow. A message to a task
    /// that is known to have ended is dropped and done; one to the task itself goes straight into
    /// the inbox.
    ///
    /// # Errors
    /// [`EndpointError`], all but `Backlog`.
    pub fn poll_send(
        &mut self,
        now: Time,
        sending: &mut Sending,
        out: &mut VecDeque<Frame>,
    ) -> Result<SendProgress, EndpointError> {
        check_length(&sending.body)?;
        if sending.to == self.config.me {
            return self.send_to_self(sending);
        }
        let stamp = self.stamp();
        let pair = pair(&mut self.pairs, &self.config, sending.to);
        let progress = pair.advance(now, stamp, sending, out)?;
        self.due.note(pair);
        match self.inbox_full() {
            Some(full) if progress == SendProgress::NeedsCredit => Err(full),
            _ => Ok(progress),
        }
    }

    /// Sends a message as soon as credit allows, behind those queued before: for daemons, which
    /// never wait. Context and tag are 0.
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

    /// As [`Endpoint::queue`], if not more than so many bytes would wait then.
    ///
    /// # Errors
    /// As for [`Endpoint::queue`].
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

    /// Takes a Data, Ack or Resend frame that came for this tid. Others, and those of another
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
        // A daemon on the way, which makes Resend, knows nothing of generations.
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

    /// A peer moved or ended, or the link to a host is new. `generation` is that of the frame: an end
    /// answers what was sent to the peer, and one of another life says nothing of this one.
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

    /// The application was brought back, in that generation: frames of another one are not for it.
    pub fn set_generation(&mut self, generation: u32) {
        self.config.generation = generation;
    }

    /// This task was frozen and goes on: what was under way may be lost, in both directions. Every
    /// channel begins anew.
    pub fn renew(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        let stamp = self.stamp();
        for pair in self.pairs.values_mut().filter(|pair| !pair.ended) {
            pair.renew(now, stamp, out);
            self.due.note(pair);
        }
    }

    /// A task ended: it is over ([`Endpoint::over`]), and a [`Notice`] if it was watched, once its last
    /// chunk was taken, or at once if its last number is not known; then whatever else comes from it is
    /// dropped.
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

    /// How a peer ended of which nothing will come any more: all that it sent is in the inbox, or was
    /// received.
    pub fn over(&self, peer: Tid) -> Option<ExitStatus> {
        self.pairs.get(&peer).and_then(|pair| pair.over)
    }

    /// What a host kept of tasks that ended is elsewhere, or lost: then nothing of it is waited for.
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

    /// Whether what the daemon tells ([`Op::is_told`]) is new; it may tell it again when this task
    /// was frozen. The daemon learns that it was taken.
    pub fn is_news(&mut self, header: &Header, out: &mut VecDeque<Frame>) -> bool {
        let new = header.seq > self.told;
        self.told = self.told.max(header.seq);
        let mut ack = Header::new(Op::Ack);
        ack.ack = self.told;
        let ack = Frame::new(ack, Bytes::new());
        out.push_back(ack.between(self.config.me, Tid::NONE));
        new
    }

    /// A host was added or is gone: becomes a [`Notice`].
    pub fn host_event(&mut self, event: HostEvent) {
        self.notices.push_back(Notice::Host(event));
    }

    /// The first message that the filter selects. That makes room, so senders that were held back
    /// may be told to go on; what is overdue is sent, too.
    pub fn take(
        &mut self,
        now: Time,
        filter: &Filter,
        out: &mut VecDeque<Frame>,
    ) -> Option<Received> {
        let message = self.inbox.take(filter)?;
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
        Some(message)
    }

    /// The message that [`Endpoint::take`] would give.
    pub fn peek(&self, filter: &Filter) -> Option<Envelope> {
        self.inbox.peek(filter)
    }

    /// The next notice. All messages of a task that ended were in the inbox before its notice.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// [`EndpointError::InboxFull`] if unread messages hold senders back. A receive that finds no
    /// message that it selects should fail with it rather than wait for one that cannot come.
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

    /// Bytes of whole messages that were not received yet.
    pub fn unread_bytes(&self) -> u64 {
        self.inbox.unread_bytes()
    }

    /// Bytes that this endpoint retains for its peers.
    pub fn retained_bytes(&self) -> u64 {
        let pairs = self.pairs.values();
        pairs.map(|pair| pair.sender.retained_bytes()).sum()
    }

    /// How many chunks it has sent that are not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.due.unacknowledged
    }

    /// How many chunks it has taken of whom.
    pub fn taken(&self) -> impl Iterator<Item = (Tid, u64)> {
        let taken = |(peer, pair): (&Tid, &Pair)| (*peer, pair.receiver.taken());
        self.pairs.iter().map(taken)
    }

    /// How many chunks it has sent to that peer, and how many of them it retains.
    pub fn sent(&self, peer: Tid) -> (u64, u64) {
        self.pairs.get(&peer).map_or((0, 0), |pair| {
            (pair.sender.last(), pair.sender.retained_count())
        })
    }

    /// Whether everything that was sent or queued has been acknowledged.
    pub fn is_drained(&self) -> bool {
        self.pairs.values().all(Pair::is_drained)
    }

    /// When [`Endpoint::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.due.timers.first().map(|(due, _)| *due)
    }

    /// Sends the acknowledgements and the repetitions that are due.
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

    /// At an exit in order: all retained chunks, for the daemon to keep, and the last number sent
    /// to each peer.
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

    /// After something came from a peer: the backlog may move, half a window may be open.
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

    /// Turns a notify that waits for the peer's last chunk into a notice if it was taken.
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

    /// Releases what is retained for a peer that has ended. What it sent is remembered, within
    /// limits: a double of it must not be taken for new.
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

/// The pair of that peer, made if there is none.
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

/// What is known of all pairs without a look at each.
#[derive(Debug, Clone, Default)]
struct Due {
    /// At most one entry for each pair, not later than its `Pair::due`.
    timers: BTreeSet<(Time, Tid)>,
    /// Their chunks that are not acknowledged.
    unacknowledged: u64,
}

impl Due {
    /// Something has changed in a pair. Sees to it that its timer is not later than what is due. One
    /// that is too early is left: it finds nothing to do and is set anew, which is cheaper than to
    /// move it with every frame.
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
