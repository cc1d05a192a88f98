//! A receive call that has posted a buffer: its message arrives there, and in no memory of the inbox.
//!
//! The chunks of a message go into the posted buffer, by whatever route they come, if the call selects
//! the message, the message fits, and the call would be the one that gets it: no unread message is
//! selected by the call, and no started receive selects the message. All other messages go into the
//! inbox. So the call gets the same message as a receive without a buffer would.
//!
//! **Nothing is only in the buffer when the call leaves.** Chunks in the buffer are acknowledged like
//! all others. So a call that leaves before its message is whole withdraws the buffer first: what the
//! buffer holds moves into the inbox ([`crate::Endpoint::withdraw`]). The same happens to an incomplete
//! message when another message that the call selects becomes whole first.

use crate::message::{Envelope, Filter, Key};
use bytes::Bytes;
use std::mem;
use vm_wire::{Header, Tid};

/// The memory of a posted buffer.
#[derive(Debug)]
pub enum Buffer {
    /// Memory of the receive call, which withdraws the buffer before it uses the memory again.
    OfCall(&'static mut [u8]),
    /// Memory of its own.
    Own(Box<[u8]>),
}

/// A copy has memory of its own.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        Buffer::Own(self.bytes().into())
    }
}

impl Buffer {
    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Buffer::OfCall(bytes) => bytes,
            Buffer::Own(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::OfCall(bytes) => bytes,
            Buffer::Own(bytes) => bytes,
        }
    }
}

/// The bytes of a chunk could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotFilled;

/// The place for the bytes of a chunk.
#[derive(Debug)]
pub enum Room<'a> {
    /// The end of a vector.
    End(&'a mut Vec<u8>),
    /// A part of a posted buffer, which is as long as the chunk.
    Part(&'a mut [u8]),
}

impl Room<'_> {
    /// Copies the bytes of the chunk to their place.
    pub fn put(self, bytes: &[u8]) {
        match self {
            Room::End(vector) => vector.extend_from_slice(bytes),
            Room::Part(part) => part.copy_from_slice(bytes),
        }
    }
}

/// A posted buffer and its content.
#[derive(Debug, Clone)]
pub struct Posted {
    filter: Filter,
    buffer: Buffer,
    unit: usize,
    content: Content,
}

/// The content of a posted buffer.
#[derive(Debug, Clone, Copy)]
enum Content {
    Nothing,
    Part(Incomplete),
    /// A whole message, which the call has not claimed yet.
    Whole {
        arrival: u64,
        envelope: Envelope,
    },
}

/// A message of which the first bytes have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incomplete {
    pub from: Tid,
    pub context: u32,
    pub tag: i32,
    pub total: u64,
    pub filled: usize,
}

impl Incomplete {
    /// The message that a chunk with this header begins.
    pub fn of(header: &Header) -> Self {
        Incomplete {
            from: header.from,
            context: header.context,
            tag: header.tag,
            total: header.total,
            filled: 0,
        }
    }

    /// The part by which the message is selected.
    pub fn key(&self) -> Key {
        Key::new(self.context, self.from, self.tag)
    }

    /// Whether a chunk is the next one of the message, and ends within it.
    fn continues(&self, header: &Header, len: usize) -> bool {
        let Incomplete {
            context,
            tag,
            total,
            filled,
            ..
        } = *self;
        (context, tag, total, filled as u64)
            == (header.context, header.tag, header.total, header.offset)
            && (filled + len) as u64 <= total
    }
}

impl Posted {
    /// The buffer of a call that receives a message which `filter` selects. The length of the message is
    /// a multiple of `unit` bytes, which is at least 1.
    pub fn new(filter: Filter, unit: usize, buffer: Buffer) -> Self {
        Posted {
            filter,
            buffer,
            unit,
            content: Content::Nothing,
        }
    }

    /// The messages that the call selects.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether the buffer is empty, and is the place for that message.
    pub(crate) fn takes(&self, message: &Incomplete) -> bool {
        let total = message.total;
        matches!(self.content, Content::Nothing)
            && self.filter.admits(&message.key())
            && total <= self.buffer.bytes().len() as u64
            && total.is_multiple_of(self.unit as u64)
    }

    /// Begins a message with its first bytes.
    pub(crate) fn begin(&mut self, message: Incomplete, bytes: &[u8]) {
        self.buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.content = Content::Part(Incomplete {
            filled: bytes.len(),
            ..message
        });
    }

    /// Whether an incomplete message of that sender is in the buffer.
    pub(crate) fn has_part_of(&self, from: Tid) -> bool {
        matches!(&self.content, Content::Part(part) if part.from == from)
    }

    /// Appends a chunk to the incomplete message; `fill` copies its `len` bytes. A chunk that does not
    /// continue the message drops it. Returns whether the message is whole now.
    ///
    /// # Errors
    /// [`NotFilled`] if `fill` fails: the message is as before.
    pub(crate) fn extend(
        &mut self,
        header: &Header,
        len: usize,
        fill: impl FnOnce(Room<'_>) -> bool,
    ) -> Result<bool, NotFilled> {
        let Content::Part(part) = &mut self.content else {
            return Ok(false);
        };
        if !part.continues(header, len) {
            self.content = Content::Nothing;
            return Ok(false);
        }
        let end = part.filled + len;
        if !fill(Room::Part(&mut self.buffer.bytes_mut()[part.filled..end])) {
            return Err(NotFilled);
        }
        part.filled = end;
        Ok(end as u64 == part.total)
    }

    /// The message has become whole, with that arrival number.
    pub(crate) fn complete(&mut self, arrival: u64) {
        if let Content::Part(part) = self.content {
            let envelope = Envelope {
                from: part.from,
                context: part.context,
                tag: part.tag,
                len: part.filled,
            };
            self.content = Content::Whole { arrival, envelope };
        }
    }

    /// Drops the incomplete message of a sender.
    pub(crate) fn discard_part(&mut self, from: Tid) {
        if self.has_part_of(from) {
            self.content = Content::Nothing;
        }
    }

    /// The whole message, with its arrival number.
    pub(crate) fn whole(&self) -> Option<(u64, Envelope)> {
        match self.content {
            Content::Whole { arrival, envelope } => Some((arrival, envelope)),
            _ => None,
        }
    }

    /// The incomplete message, and the bytes of it that have arrived.
    pub(crate) fn part(&self) -> Option<(Incomplete, &[u8])> {
        match self.content {
            Content::Part(part) => Some((part, &self.buffer.bytes()[..part.filled])),
            _ => None,
        }
    }

    /// Removes the incomplete message.
    pub(crate) fn take_part(&mut self) -> Option<(Incomplete, &[u8])> {
        let content = mem::replace(&mut self.content, Content::Nothing);
        match content {
            Content::Part(part) => Some((part, &self.buffer.bytes()[..part.filled])),
            other => {
                self.content = other;
                None
            }
        }
    }

    /// A copy of the bytes of a whole message.
    pub(crate) fn body(&self, envelope: &Envelope) -> Bytes {
        Bytes::copy_from_slice(&self.buffer.bytes()[..envelope.len])
    }

    /// The buffer.
    pub(crate) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use vm_wire::{Frame, Op};

    fn with_tag(tag: i32) -> Filter {
        Filter {
            tag: Some(tag),
            ..Filter::ANY
        }
    }

    fn posted(filter: Filter, unit: usize, len: usize) -> Posted {
        Posted::new(filter, unit, Buffer::Own(vec![0; len].into()))
    }

    fn inbox(posted: Posted) -> Inbox {
        let mut inbox = Inbox::new(10_000);
        assert!(inbox.post(posted));
        inbox
    }

    /// The first or second half of a message of ten bytes.
    fn half(from: u64, tag: i32, offset: u64) -> Frame {
        let mut header = Header::new(Op::Data);
        header.from = Tid(from);
        (header.tag, header.offset, header.total) = (tag, offset, 10);
        let bytes = (0..5).map(|byte| (offset + byte) as u8).collect::<Vec<_>>();
        Frame::new(header, Bytes::from(bytes))
    }

    fn accept(inbox: &mut Inbox, from: u64, tag: i32) {
        inbox.accept(half(from, tag, 0));
        inbox.accept(half(from, tag, 5));
    }

    fn claimed(inbox: &mut Inbox) -> Option<(Tid, Vec<u8>)> {
        let (envelope, buffer) = inbox.claim_posted()?;
        Some((envelope.from, buffer.bytes()[..envelope.len].to_vec()))
    }

    fn unread(inbox: &mut Inbox) -> Vec<(Tid, i32)> {
        let all = std::iter::from_fn(|| inbox.take(&Filter::ANY));
        let all = all.inspect(|message| assert_eq!(message.body, &(0..10).collect::<Vec<_>>()));
        all.map(|message| (message.from, message.tag)).collect()
    }

    #[test]
    fn a_message_that_is_selected_and_fits_lands_and_no_other_one_does() {
        for (buffer, lands) in [
            (posted(Filter::ANY, 1, 10), true),
            (posted(Filter::ANY, 5, 15), true),
            (posted(Filter::ANY, 1, 9), false),
            (posted(Filter::ANY, 4, 12), false),
            (posted(with_tag(2), 1, 10), false),
        ] {
            let mut inbox = inbox(buffer);
            accept(&mut inbox, 1, 1);
            assert_eq!(inbox.has_landed(), lands);
            let landed = lands.then(|| (Tid(1), (0..10).collect()));
            assert_eq!(claimed(&mut inbox), landed);
            assert_eq!(unread(&mut inbox).len(), usize::from(!lands));
        }
    }

    #[test]
    fn a_message_goes_on_in_the_buffer_and_in_the_inbox_when_the_call_leaves() {
        let mut inbox = Inbox::new(10_000);
        inbox.accept(half(1, 1, 0));
        assert!(inbox.post(posted(Filter::ANY, 1, 10)));
        assert!(!inbox.post(posted(Filter::ANY, 1, 10)));
        inbox.accept(half(1, 1, 5));
        assert_eq!(claimed(&mut inbox), Some((Tid(1), (0..10).collect())));

        assert!(inbox.post(posted(Filter::ANY, 1, 10)));
        inbox.accept(half(1, 2, 0));
        inbox.withdraw();
        inbox.accept(half(1, 2, 5));
        assert_eq!(unread(&mut inbox), [(Tid(1), 2)]);
    }

    #[test]
    fn a_chunk_that_does_not_continue_its_message_drops_it_and_frees_the_buffer() {
        let mut inbox = inbox(posted(Filter::ANY, 1, 10));
        inbox.accept(half(1, 1, 0));
        inbox.accept(half(1, 2, 5));
        inbox.accept(half(1, 1, 5));
        assert!(!inbox.has_landed());
        inbox.accept(half(1, 1, 0));
        inbox.discard_part(Tid(1));
        accept(&mut inbox, 2, 1);
        assert_eq!(claimed(&mut inbox), Some((Tid(2), (0..10).collect())));
    }

    #[test]
    fn the_call_gets_the_message_that_becomes_whole_first() {
        let mut inbox = inbox(posted(Filter::ANY, 1, 10));
        inbox.accept(half(1, 1, 0));
        accept(&mut inbox, 2, 1);
        inbox.accept(half(1, 1, 5));
        assert!(!inbox.has_landed());
        assert_eq!(unread(&mut inbox), [(Tid(2), 1), (Tid(1), 1)]);
        // The other order.
        accept(&mut inbox, 1, 1);
        accept(&mut inbox, 2, 1);
        assert_eq!(claimed(&mut inbox), Some((Tid(1), (0..10).collect())));
    }

    #[test]
    fn a_started_receive_goes_before_the_call() {
        let mut inbox = Inbox::new(10_000);
        let started = inbox.start_receive(with_tag(1));
        inbox.accept(half(1, 1, 0));
        assert!(inbox.post(posted(Filter::ANY, 1, 10)));
        inbox.accept(half(1, 1, 5));
        assert!(inbox.has_received(started) && !inbox.has_landed());
        accept(&mut inbox, 1, 1);
        assert!(inbox.has_landed());
    }

    #[test]
    fn a_whole_message_has_its_place_in_the_inbox_when_the_call_leaves_and_in_an_image() {
        let mut inbox = inbox(posted(Filter::ANY, 1, 10));
        accept(&mut inbox, 1, 1);
        accept(&mut inbox, 1, 2);
        inbox.accept(half(1, 3, 0));
        let mut restored = Inbox::of(inbox.state(), 10_000);
        inbox.withdraw();
        for mut inbox in [restored.clone(), inbox] {
            inbox.accept(half(1, 3, 5));
            assert_eq!(unread(&mut inbox), [1, 2, 3].map(|tag| (Tid(1), tag)));
        }
        // An incomplete message in the buffer is in the image as well.
        assert!(restored.post(posted(with_tag(3), 1, 10)));
        let mut restored = Inbox::of(restored.state(), 10_000);
        restored.accept(half(1, 3, 5));
        assert_eq!(unread(&mut restored), [1, 2, 3].map(|tag| (Tid(1), tag)));
    }

    #[test]
    fn a_chunk_that_cannot_be_read_changes_nothing() {
        let mut inbox = inbox(posted(Filter::ANY, 1, 10));
        let mut read = |chunk: &Frame, succeeds: bool| {
            let fill = |room: Room<'_>| {
                room.put(&chunk.body);
                succeeds
            };
            inbox.accept_filled(&chunk.header, chunk.body.len(), None, fill)
        };
        for chunk in [half(1, 1, 0), half(1, 1, 5)] {
            assert_eq!(read(&chunk, false), Err(NotFilled));
            assert_eq!(read(&chunk, true), Ok(None));
        }
        assert_eq!(claimed(&mut inbox), Some((Tid(1), (0..10).collect())));
    }
}
