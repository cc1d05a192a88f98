//! Messages that a task's library has taken and its program has not received yet.
//!
//! The chunks of each pair arrive in order. A message becomes visible when it is whole, never
//! before. The body of a message of one chunk is the body of its frame; a longer message is copied
//! together once.
//!
//! A receive selects by context, source and tag. Messages that it does not select stay in the
//! inbox. Of the messages that it selects, it gets the one that became whole first, so a receive
//! from any source keeps the order of each pair. A message that a started receive selects goes to it
//! ([`crate::receives`]). A receive call may have posted a buffer, into which its message goes
//! ([`crate::posted`]). A message that a handler selects stays until the handler is called with it
//! ([`crate::handlers`]).
//!
//! The inbox is *open* while the cost of whole unread messages is below its limit. The endpoint of
//! a closed inbox acknowledges nothing, so every sender stops within its window. Incomplete
//! messages do not count: if they closed the inbox, they could never become whole. So an inbox
//! holds at most its limit, and one message and one window of each sender.

mod handled;

use crate::{
    handlers::Handlers,
    message::{Envelope, Filter, Key, Received, ReceivedState, Selection},
    posted::{Buffer, Incomplete, NotFilled, Posted, Room},
    receives::{Arrived, ReceiveId, Receives},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vm_wire::{Body, Frame, Header, Tid};

/// Bound on the first buffer of a long message, so that a forged length takes no memory. Bytes.
const FIRST_BUFFER_MAX: usize = 4 * 1024 * 1024;

/// The part of an [`Inbox`] that an image records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct InboxState {
    messages: Vec<ReceivedState>,
    parts: Vec<PartState>,
}

/// An incomplete message, as an image records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartState {
    from: Tid,
    context: u32,
    tag: i32,
    total: u64,
    bytes: Body,
}

/// The unread messages of one task.
#[derive(Debug, Clone)]
pub struct Inbox {
    limit_bytes: u64,
    /// Cost of the whole messages. Bytes.
    unread_bytes: u64,
    conversations: BTreeMap<u32, Conversation>,
    /// Incomplete messages, at most one of each sender.
    parts: BTreeMap<Tid, Part>,
    /// Number of messages that became whole.
    arrivals: u64,
    /// Number of times that a message was added which a receive may wait for.
    news: u64,
    /// Receives that were started, with the messages that they hold.
    receives: Receives,
    /// Functions of the program, with the messages that wait for them.
    handlers: Handlers,
    /// The buffer of a receive call.
    posted: Option<Posted>,
}

/// The whole messages of one context.
#[derive(Debug, Clone, Default)]
struct Conversation {
    /// Messages by arrival number.
    messages: BTreeMap<u64, Received>,
    /// Arrival numbers by source and tag, so that a receive need not visit all messages.
    arrivals: BTreeMap<(Tid, i32), VecDeque<u64>>,
}

/// A message whose first chunks have arrived.
#[derive(Debug, Clone, Default)]
struct Part {
    context: u32,
    tag: i32,
    total: u64,
    bytes: Vec<u8>,
}

impl Part {
    /// A message without its first byte.
    fn begun(context: u32, tag: i32, total: u64) -> Self {
        Part {
            context,
            tag,
            total,
            bytes: Vec::with_capacity(FIRST_BUFFER_MAX.min(total as usize)),
        }
    }

    /// The same without its bytes.
    fn of(&self, from: Tid) -> Incomplete {
        Incomplete {
            from,
            context: self.context,
            tag: self.tag,
            total: self.total,
            filled: self.bytes.len(),
        }
    }
}

impl Inbox {
    /// An empty inbox. The inbox is open below `limit_bytes` of unread messages.
    pub fn new(limit_bytes: u64) -> Self {
        Inbox {
            limit_bytes,
            unread_bytes: 0,
            conversations: BTreeMap::new(),
            parts: BTreeMap::new(),
            arrivals: 0,
            news: 0,
            receives: Receives::default(),
            handlers: Handlers::default(),
            posted: None,
        }
    }

    /// The state of the inbox: whole messages by arrival, those that started receives hold among them,
    /// and incomplete messages. Started receives and posted buffers are no part of it, what they hold is.
    pub(crate) fn state(&self) -> InboxState {
        let conversations = self.conversations.values();
        let unread = conversations.flat_map(|it| &it.messages);
        let unread = unread.map(|(arrival, message)| (*arrival, message));
        let landed = self.landed();
        let landed = landed
            .as_ref()
            .map(|(arrival, message)| (*arrival, message));
        let mut messages: Vec<_> = unread.chain(self.receives.held()).chain(landed).collect();
        messages.sort_by_key(|(arrival, _)| *arrival);
        let messages = messages.into_iter().map(|(_, message)| message.state());
        let parts = self.parts.iter().map(|(from, part)| PartState {
            from: *from,
            context: part.context,
            tag: part.tag,
            total: part.total,
            bytes: Body::from(part.bytes.clone()),
        });
        let landing = self.posted.as_ref().and_then(Posted::part);
        let parts = parts.chain(landing.map(|(part, bytes)| PartState {
            from: part.from,
            context: part.context,
            tag: part.tag,
            total: part.total,
            bytes: Body::from(bytes.to_vec()),
        }));
        InboxState {
            messages: messages.collect(),
            parts: parts.collect(),
        }
    }

    /// An inbox with a recorded state.
    pub(crate) fn of(state: InboxState, limit_bytes: u64) -> Self {
        let mut inbox = Inbox::new(limit_bytes);
        for message in state.messages {
            inbox.push(message.into());
        }
        for part in state.parts {
            let PartState {
                from,
                context,
                tag,
                total,
                bytes,
            } = part;
            let bytes = bytes.into_vec();
            let part = Part {
                context,
                tag,
                total,
                bytes,
            };
            inbox.parts.insert(from, part);
        }
        inbox
    }

    /// Whether the unread bytes are below the limit, so that senders get acknowledgements.
    pub fn is_open(&self) -> bool {
        self.unread_bytes < self.limit_bytes
    }

    /// Cost of all whole messages: payload and overhead. Bytes.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    /// The sender with the most unread bytes, and the number of these bytes.
    pub fn fullest(&self) -> Option<(Tid, u64)> {
        let mut by_sender: BTreeMap<Tid, u64> = BTreeMap::new();
        for conversation in self.conversations.values() {
            for message in conversation.messages.values() {
                *by_sender.entry(message.from).or_default() += message.cost();
            }
        }
        by_sender.into_iter().max_by_key(|(_, bytes)| *bytes)
    }

    /// Takes the next chunk of a pair. A chunk at offset 0 begins a message, and drops an
    /// incomplete message of the same sender. A chunk that does not continue its message drops the
    /// message.
    pub fn accept(&mut self, chunk: Frame) {
        let Frame { header, body } = chunk;
        if header.offset == 0 && body.len() as u64 == header.total {
            self.discard_part(header.from);
            return self.push(Received::of(&header, body));
        }
        let fill = |room: Room<'_>| {
            room.put(&body);
            true
        };
        let accepted = self.accept_filled(&header, body.len(), None, fill);
        debug_assert_eq!(accepted, Ok(None), "a copy cannot fail");
    }

    /// Like [`Inbox::accept`], for a chunk whose `len` bytes are not read yet: `fill` puts them into
    /// their room. A message that becomes whole, that `wanted` selects, and that does not land in a
    /// posted buffer, is returned and is not in the inbox.
    ///
    /// # Errors
    /// [`NotFilled`] if `fill` fails: nothing was taken.
    pub(crate) fn accept_filled(
        &mut self,
        header: &Header,
        len: usize,
        wanted: Option<&Filter>,
        fill: impl FnOnce(Room<'_>) -> bool,
    ) -> Result<Option<Received>, NotFilled> {
        let arrival = self.arrivals + 1;
        if let Some(posted) = self.posted_for(header) {
            if posted.extend(header, len, fill)? {
                posted.complete(arrival);
                self.arrivals = arrival;
            }
            return Ok(None);
        }
        let Some(body) = self.extend_part(header, len, fill)? else {
            return Ok(None);
        };
        let Some(message) = self.offer(Received::of(header, body.into())) else {
            return Ok(None);
        };
        if wanted.is_some_and(|wanted| self.is_for(wanted, &message)) {
            return Ok(Some(message));
        }
        self.insert(self.arrivals, message);
        Ok(None)
    }

    /// Whether a receive gets a message: its filter selects it, and no handler does.
    fn is_for(&self, filter: &Filter, message: &Received) -> bool {
        filter.selects(message) && (filter.handled || !self.handlers.select(&message.key()))
    }

    /// Appends a chunk to its message, which the chunk may begin. Returns the bytes of the message if
    /// it is whole now.
    fn extend_part(
        &mut self,
        header: &Header,
        len: usize,
        fill: impl FnOnce(Room<'_>) -> bool,
    ) -> Result<Option<Vec<u8>>, NotFilled> {
        let Header {
            from,
            context,
            tag,
            offset,
            total,
            ..
        } = *header;
        let before = self.parts.remove(&from);
        let mut part = match offset {
            0 => Part::begun(context, tag, total),
            _ => before.unwrap_or_default(),
        };
        let filled = part.bytes.len();
        let continues =
            (part.context, part.tag, part.total, filled as u64) == (context, tag, total, offset);
        if !continues || (filled + len) as u64 > total {
            return Ok(None);
        }
        if !fill(Room::End(&mut part.bytes)) || part.bytes.len() != filled + len {
            part.bytes.truncate(filled);
            self.parts.insert(from, part);
            return Err(NotFilled);
        }
        if part.bytes.len() as u64 == total {
            return Ok(Some(part.bytes));
        }
        self.parts.insert(from, part);
        Ok(None)
    }

    /// Adds a whole message. A started receive may take it at once.
    pub fn push(&mut self, message: Received) {
        if let Some(message) = self.offer(message) {
            self.insert(self.arrivals, message);
        }
    }

    /// Numbers a whole message, and returns it unless a started receive takes it. No started receive takes
    /// one that a handler selects.
    fn offer(&mut self, message: Received) -> Option<Received> {
        self.arrivals += 1;
        if self.handlers.select(&message.key()) {
            return Some(message);
        }
        let left = self.receives.offer(self.arrivals, message).err();
        self.news += u64::from(left.is_none());
        left
    }

    /// Adds an unread message at the place of its arrival number.
    fn insert(&mut self, arrival: u64, message: Received) {
        let posted = self.posted.as_ref();
        if posted.is_some_and(|posted| self.is_for(posted.filter(), &message)) {
            self.unland_part();
        }
        self.news += 1;
        self.unread_bytes += message.cost();
        let conversation = self.conversations.entry(message.context).or_default();
        conversation.insert(arrival, message);
    }

    /// Drops an incomplete message whose rest will not arrive.
    pub fn discard_part(&mut self, from: Tid) {
        self.parts.remove(&from);
        if let Some(posted) = &mut self.posted {
            posted.discard_part(from);
        }
    }

    /// Removes and returns the first message that the filter selects.
    pub fn take(&mut self, filter: &Filter) -> Option<Received> {
        self.take_arrived(filter).map(|(_, message)| message)
    }

    /// Starts a receive. It takes the first message that it selects.
    pub fn start_receive(&mut self, filter: Filter) -> ReceiveId {
        let held = self.take_arrived(&filter);
        self.receives.start(filter, held)
    }

    /// Whether a started receive has its message.
    pub fn has_received(&self, id: ReceiveId) -> bool {
        self.receives.holds(id)
    }

    /// Completes a started receive that has its message.
    pub fn claim(&mut self, id: ReceiveId) -> Option<Received> {
        self.receives.claim(id)
    }

    /// Cancels a started receive; see [`crate::receives`].
    pub fn cancel_receive(&mut self, id: ReceiveId) {
        let messages = self.receives.cancel(id);
        if messages.is_empty() {
            return;
        }
        for (arrival, message) in messages {
            self.insert(arrival, message);
        }
        let mut receives = std::mem::take(&mut self.receives);
        receives.choose(|filter| self.take_arrived(filter));
        self.receives = receives;
    }

    /// A number that changes when a message is added which a receive may wait for, started or not.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Number of the receives that were started and neither claimed nor cancelled.
    pub fn receives(&self) -> usize {
        self.receives.len()
    }

    /// Posts the buffer of a receive call. A message that the call selects, and of which a part has come,
    /// goes on there. `false` if there is a posted buffer.
    pub(crate) fn post(&mut self, posted: Posted) -> bool {
        if self.posted.is_some() {
            return false;
        }
        let has_unread = self.peek(posted.filter()).is_some();
        let posted = self.posted.insert(posted);
        let is_for_call = |message: &Incomplete| {
            !has_unread
                && posted.takes(message)
                && !self.receives.awaits(message)
                && !self.handlers.select(&message.key())
        };
        let part = match posted.filter().from {
            Some(from) => self.parts.get_key_value(&from),
            None => self
                .parts
                .iter()
                .find(|(from, part)| is_for_call(&part.of(**from))),
        };
        let part = part.map(|(from, part)| part.of(*from)).filter(is_for_call);
        if let Some(message) = part
            && let Some(part) = self.parts.remove(&message.from)
        {
            posted.begin(message, &part.bytes);
        }
        true
    }

    /// Whether the posted buffer holds a whole message.
    pub(crate) fn has_landed(&self) -> bool {
        self.posted.as_ref().is_some_and(|it| it.whole().is_some())
    }

    /// Removes the posted buffer if it holds a whole message.
    pub(crate) fn claim_posted(&mut self) -> Option<(Envelope, Buffer)> {
        let (_, envelope) = self.posted.as_ref()?.whole()?;
        let posted = self.posted.take()?;
        Some((envelope, posted.into_buffer()))
    }

    /// Removes the posted buffer. Its message moves into the inbox, where it has the same place as if it
    /// had come there. A started receive may take it.
    pub(crate) fn withdraw(&mut self) {
        self.unland_part();
        let landed = self.landed();
        self.posted = None;
        if let Some((arrival, message)) = landed
            && let Err(message) = self.receives.offer(arrival, message)
        {
            self.insert(arrival, message);
        }
    }

    /// The posted buffer, if a chunk goes there: it continues the message in the buffer, or begins a
    /// message that the call would get.
    fn posted_for(&mut self, header: &Header) -> Option<&mut Posted> {
        self.posted.as_ref()?;
        if header.offset == 0 {
            self.discard_part(header.from);
            let message = Incomplete::of(header);
            let posted = self.posted.as_ref()?;
            if posted.takes(&message)
                && !self.receives.awaits(&message)
                && !self.handlers.select(&message.key())
                && self.peek(posted.filter()).is_none()
            {
                self.posted.as_mut()?.begin(message, &[]);
            }
        }
        self.posted
            .as_mut()
            .filter(|it| it.has_part_of(header.from))
    }

    /// Moves an incomplete message out of the posted buffer.
    fn unland_part(&mut self) {
        let Some((message, bytes)) = self.posted.as_mut().and_then(Posted::take_part) else {
            return;
        };
        let mut part = Part::begun(message.context, message.tag, message.total);
        part.bytes.extend_from_slice(bytes);
        self.parts.insert(message.from, part);
    }

    /// A copy of the whole message in the posted buffer, with its arrival number.
    fn landed(&self) -> Option<Arrived> {
        let posted = self.posted.as_ref()?;
        let (arrival, envelope) = posted.whole()?;
        let message = Received {
            from: envelope.from,
            context: envelope.context,
            tag: envelope.tag,
            body: posted.body(&envelope),
        };
        Some((arrival, message))
    }

    fn take_arrived(&mut self, filter: &Filter) -> Option<Arrived> {
        // A task whose messages come past its daemon finds the inbox empty nearly always.
        if self.unread_bytes == 0 {
            return None;
        }
        let arrival = self
            .conversations
            .get(&filter.context)?
            .find(filter, &self.handlers)?;
        Some((arrival, self.remove(filter.context, arrival)))
    }

    /// Removes and returns the first message that the selection selects.
    pub fn take_selected(&mut self, selection: &Selection<'_>) -> Option<Received> {
        let conversation = self.conversations.get(&selection.context)?;
        let arrival = conversation.find_selected(selection, &self.handlers)?;
        Some(self.remove(selection.context, arrival))
    }

    fn remove(&mut self, context: u32, arrival: u64) -> Received {
        let conversation = self.conversations.get_mut(&context);
        let conversation = conversation.expect("an arrival is in its context");
        let message = conversation.remove(arrival);
        // Contexts other than that of the program may be short-lived.
        if context != 0 && conversation.messages.is_empty() {
            self.conversations.remove(&context);
        }
        self.unread_bytes -= message.cost();
        message
    }

    /// The envelope of the message that [`Inbox::take`] would return.
    pub fn peek(&self, filter: &Filter) -> Option<Envelope> {
        let conversation = self.conversations.get(&filter.context)?;
        let message = &conversation.messages[&conversation.find(filter, &self.handlers)?];
        Some(message.envelope())
    }

    /// The envelope of the message that [`Inbox::take_selected`] would return.
    pub fn peek_selected(&self, selection: &Selection<'_>) -> Option<Envelope> {
        let conversation = self.conversations.get(&selection.context)?;
        let message =
            &conversation.messages[&conversation.find_selected(selection, &self.handlers)?];
        Some(message.envelope())
    }
}

impl Conversation {
    /// Arrival number of the first message that the filter selects.
    fn find(&self, filter: &Filter, handlers: &Handlers) -> Option<u64> {
        let first = |arrivals: &VecDeque<u64>| arrivals.front().copied();
        let is_open = |from: Tid, tag: i32| {
            filter.handled || !handlers.select(&Key::new(filter.context, from, tag))
        };
        match (filter.from, filter.tag) {
            (Some(from), Some(tag)) => {
                let arrivals = self.arrivals.get(&(from, tag));
                arrivals.filter(|_| is_open(from, tag)).and_then(first)
            }
            (Some(from), None) => {
                let tags = self.arrivals.range((from, i32::MIN)..=(from, i32::MAX));
                tags.filter(|((_, tag), _)| is_open(from, *tag))
                    .filter_map(|(_, arrivals)| first(arrivals))
                    .min()
            }
            (None, None) if filter.handled || handlers.is_empty() => {
                self.messages.keys().next().copied()
            }
            (None, tag) => {
                let all = self.arrivals.iter();
                all.filter(|((from, of), _)| {
                    tag.is_none_or(|tag| tag == *of) && is_open(*from, *of)
                })
                .filter_map(|(_, arrivals)| first(arrivals))
                .min()
            }
        }
    }

    /// Arrival number of the first message that the selection selects. With a list, visits each source and
    /// tag that has unread messages; with a condition of the program, each selected message.
    fn find_selected(&self, selection: &Selection<'_>, handlers: &Handlers) -> Option<u64> {
        if let Some(filter) = selection.filter() {
            return self.find(&filter, handlers);
        }
        let accepts = |arrival: &u64| match selection.accepts {
            Some(accepts) => accepts(&self.messages[arrival].envelope()),
            None => true,
        };
        let selected = self.arrivals.iter().filter(|((from, tag), _)| {
            selection.from.contains(*from)
                && selection.tag.contains(*tag)
                && (selection.handled
                    || !handlers.select(&Key::new(selection.context, *from, *tag)))
        });
        let first = |arrivals: &VecDeque<u64>| arrivals.iter().copied().find(accepts);
        selected.filter_map(|(_, arrivals)| first(arrivals)).min()
    }

    /// Adds a message, which may have arrived before others that are here.
    fn insert(&mut self, arrival: u64, message: Received) {
        let key = (message.from, message.tag);
        let arrivals = self.arrivals.entry(key).or_default();
        match arrivals.back() {
            Some(last) if *last > arrival => {
                arrivals.insert(arrivals.partition_point(|at| *at < arrival), arrival);
            }
            _ => arrivals.push_back(arrival),
        }
        self.messages.insert(arrival, message);
    }

    /// Removes a message.
    fn remove(&mut self, arrival: u64) -> Received {
        let message = self
            .messages
            .remove(&arrival)
            .expect("an arrival names a message");
        let key = (message.from, message.tag);
        let arrivals = self.arrivals.get_mut(&key).expect("each message has one");
        match arrivals.front() == Some(&arrival) {
            true => drop(arrivals.pop_front()),
            // A condition of the program has passed over earlier ones.
            false => arrivals.retain(|at| *at != arrival),
        }
        if arrivals.is_empty() {
            self.arrivals.remove(&key);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use vm_wire::{Op, limits::CHUNK_OVERHEAD};

    fn chunk(tag: i32, offset: u64, len: usize, total: u64) -> Frame {
        let mut header = Header::new(Op::Data);
        header.from = Tid(1);
        (header.tag, header.offset, header.total) = (tag, offset, total);
        Frame::new(header, Bytes::from(vec![0; len]))
    }

    fn tags(inbox: &mut Inbox) -> Vec<i32> {
        let any = Filter::ANY;
        std::iter::from_fn(|| inbox.take(&any))
            .map(|message| message.tag)
            .collect()
    }

    #[test]
    fn chunks_that_do_not_fit_together_make_no_message() {
        for second in [
            chunk(1, 5, 5, 10),  // a gap
            chunk(1, 4, 7, 10),  // too much
            chunk(1, 4, 16, 20), // another length
            chunk(2, 4, 6, 10),  // another tag
        ] {
            let mut inbox = Inbox::new(1000);
            inbox.accept(chunk(1, 0, 4, 10));
            inbox.accept(second);
            inbox.accept(chunk(1, 4, 6, 10));
            inbox.accept(chunk(3, 0, 8, 8));
            assert_eq!(tags(&mut inbox), [3]);
        }
    }

    #[test]
    fn only_whole_messages_close_the_inbox_and_receiving_them_opens_it() {
        let mut inbox = Inbox::new(1000);
        inbox.accept(chunk(1, 0, 900, 1800));
        assert!(inbox.is_open());
        inbox.accept(chunk(1, 900, 900, 1800));
        assert_eq!(
            (inbox.is_open(), inbox.unread_bytes()),
            (false, 1800 + CHUNK_OVERHEAD)
        );
        assert_eq!(inbox.fullest(), Some((Tid(1), 1800 + CHUNK_OVERHEAD)));
        assert_eq!(tags(&mut inbox), [1]);
        assert_eq!((inbox.is_open(), inbox.unread_bytes()), (true, 0));
    }
}
