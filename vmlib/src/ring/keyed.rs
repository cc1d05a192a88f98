//! The memory of a direct connection: its keys and its buffers, in the area that no image holds.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 4,095 | the keys of both directions |
//! | 4,096 to 266,239 | what was read from the socket |
//! | 266,240 on | records on their way into the socket: two long ones, or many short ones |
//!
//! A process that was made of an image, and a child of the user's program, find zeros here, and no
//! connection: two processes must not seal with one key ([`vm_wire::seal`]).
//!
//! The `unsafe` parts here are the accesses to that memory and the borrowed socket.

use super::area::Private;
use rustix::{
    fd::{BorrowedFd, OwnedFd, RawFd},
    io::Errno,
    net::{RecvFlags, SendFlags, recv},
};
use std::ops::Range;
use vm_wire::{
    direct::{Connection, End, LENGTH, SEALED_MAX, Ways, wipe_stack},
    limits,
};

/// Bytes that are read at once: a few chunks.
pub(super) const INCOMING: usize = 256 * 1024;
/// Bytes of a record, the length included.
pub(super) const RECORD_MAX: usize = LENGTH + SEALED_MAX;
/// Bytes of the records that are to be written.
pub(super) const OUTGOING: usize = 2 * RECORD_MAX;

/// The kernel does not wait, and a peer that has ended raises no signal.
pub(super) const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

const FIRST_INCOMING: usize = 4096;
const FIRST_OUTGOING: usize = FIRST_INCOMING + INCOMING;
const _: () = assert!(FIRST_OUTGOING + OUTGOING <= limits::RING_BYTES);
const _: () = assert!(RECORD_MAX <= INCOMING);
const _: () = assert!(size_of::<Ways>() <= FIRST_INCOMING && align_of::<Ways>() <= 4096);

/// The place of a direct connection.
#[derive(Debug)]
pub(super) struct Keyed {
    place: Private,
    /// The frames are sealed, and the keys are there.
    is_sealed: bool,
}

impl Keyed {
    /// Takes a place for a direct connection, with the keys of this end; `end` is `None` if its frames are
    /// not sealed. The keys are in no other memory afterwards: the stack is wiped.
    ///
    /// # Errors
    /// Those of [`Private::take`].
    pub fn new(socket: OwnedFd, connection: &Connection, end: Option<End>) -> Result<Self, Errno> {
        let place = Private::take(socket, connection.id)?;
        if let Some(end) = end {
            write_ways(&place, connection, end);
            wipe_stack();
        }
        let is_sealed = end.is_some();
        Ok(Keyed { place, is_sealed })
    }

    /// The place, with what the handler has noted.
    pub fn place(&self) -> &Private {
        &self.place
    }

    /// The number of the socket, or -1.
    pub fn number(&self) -> RawFd {
        self.place.socket()
    }

    /// The socket, while the connection is open.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        let socket = self.place.socket();
        // SAFETY: the place holds the descriptor until it is dropped.
        (socket >= 0 && self.place.is_open()).then(|| unsafe { BorrowedFd::borrow_raw(socket) })
    }

    /// The keys; `None` if the frames are not sealed, or if the connection is closed.
    pub fn ways(&mut self) -> Option<&mut Ways> {
        if !self.is_sealed || !self.place.is_open() {
            return None;
        }
        // SAFETY: `new` has written them. The place is open, so this process is the one that did; it
        // does not become another one while this thread holds the library's state.
        Some(unsafe { &mut *(self.place.base() as *mut Ways) })
    }

    /// Whether the frames are sealed.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The bytes that were read.
    pub fn incoming(&self) -> &[u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.at(FIRST_INCOMING), INCOMING) }
    }

    /// Moves bytes that were read to the beginning of their buffer.
    pub fn move_to_front(&mut self, unread: Range<usize>) {
        self.bytes(FIRST_INCOMING, INCOMING).copy_within(unread, 0);
    }

    /// Reads once into the buffer, behind the first `end` bytes.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn receive(&mut self, end: usize) -> Result<usize, Errno> {
        let socket = self.place.socket();
        if socket < 0 || !self.place.is_open() {
            return Err(Errno::BADF);
        }
        // SAFETY: the place holds the descriptor until it is dropped.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let room = &mut self.bytes(FIRST_INCOMING, INCOMING)[end..];
        recv(socket, room, RecvFlags::DONTWAIT).map(|(len, _)| len)
    }

    /// The memory of the records that are to be written.
    pub fn outgoing(&mut self) -> &mut [u8] {
        self.bytes(FIRST_OUTGOING, OUTGOING)
    }

    /// The same memory, for the kernel.
    pub fn records(&self) -> &[u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.at(FIRST_OUTGOING), OUTGOING) }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        (self.place.base() + offset) as *mut u8
    }

    fn bytes(&mut self, first: usize, len: usize) -> &mut [u8] {
        // SAFETY: the bytes are within the place, which stays mapped, apart from the keys and from each
        // other, and are borrowed with this value, which alone knows of them.
        unsafe { std::slice::from_raw_parts_mut(self.at(first), len) }
    }

    /// Seals those bytes of the memory of records, of which the last ones are room for the tag. `false` if
    /// the connection is closed.
    ///
    /// # Panics
    /// If the bytes are outside of that memory.
    pub fn seal(&mut self, bytes: Range<usize>) -> bool {
        assert!(bytes.start <= bytes.end && bytes.end <= OUTGOING);
        let first = self.at(FIRST_OUTGOING + bytes.start);
        let Some(ways) = self.ways() else {
            return false;
        };
        // SAFETY: as in `bytes`; the keys are apart from these bytes.
        let content = unsafe { std::slice::from_raw_parts_mut(first, bytes.len()) };
        ways.sealing.seal(content);
        true
    }

    /// Opens the sealed bytes of that range of what was read, in place. Returns the length of the
    /// content; `None` if they are not authentic, or if the connection is closed.
    pub fn open(&mut self, from: usize, len: usize) -> Option<usize> {
        if from > INCOMING || len > INCOMING - from {
            return None;
        }
        let first = self.at(FIRST_INCOMING + from);
        let ways = self.ways()?;
        // SAFETY: as in `bytes`; the keys are apart from these bytes.
        let sealed = unsafe { std::slice::from_raw_parts_mut(first, len) };
        ways.opening.open(sealed, 0).ok()
    }
}

/// Derives the keys of an end into its place. Not part of its caller, which wipes the stack.
#[inline(never)]
fn write_ways(place: &Private, connection: &Connection, end: End) {
    let ways = connection.ways(end);
    // SAFETY: the place is mapped, large enough and aligned, and nobody else uses it.
    unsafe { (place.base() as *mut Ways).write(ways) };
}
