//! The frame: a fixed header of 96 bytes, then a body.
//!
//! All numbers are little-endian. The same header serves every socket, so a daemon forwards a
//! frame without opening its body:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the body |
//! | 4 | 1 | opcode ([`Op`]) |
//! | 5 | 1 | flags ([`Header::KEEP`]) |
//! | 6 | 1 | hops, counted up by each daemon that forwards |
//! | 7 | 1 | zero |
//! | 8 | 8 | from, a [`Tid`] |
//! | 16 | 8 | to, a [`Tid`] |
//! | 24 | 8 | sequence number of the chunk, per ordered pair of tasks, from 1 |
//! | 32 | 8 | acknowledged: the last chunk of the other direction that was taken |
//! | 40 | 8 | credit: the last chunk of the other direction that may be sent |
//! | 48 | 8 | request number, counted by the requester |
//! | 56 | 8 | offset of the chunk in its message |
//! | 64 | 8 | total length of the message |
//! | 72 | 4 | epoch that the sender's application had when the sender enrolled; no code reads it |
//! | 76 | 4 | generation of the sender's application |
//! | 80 | 4 | incarnation of the receiver that this route leads to |
//! | 84 | 4 | context of the message, 0 for the user's own messages |
//! | 88 | 4 | tag, chosen by the user |
//! | 92 | 4 | zero |

use crate::{body::Body, id::Tid, limits};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 96;
/// A frame that daemons forwarded more often than this is in a loop, and is dropped.
pub const HOPS_MAX: u8 = 16;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// The meaning of a frame. The number is part of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// All opcodes, ordered by number.
            pub const ALL: &[Op] = &[$(Op::$name,)*];

            /// The opcode of that number; `None` for an unknown number.
            pub const fn from_number(number: u8) -> Option<Op> {
                match number { $($number => Some(Op::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    // Between the ends of a channel. Daemons forward these frames by their headers.
    /// A chunk of a message. The body is raw.
    Data = 1,
    /// Acknowledgement and credit alone; also the announcement on a new connection. No body.
    Ack = 2,
    /// Request to send again the frames that were dropped on their way to the sender. No body.
    Resend = 3,

    // Between a task and its daemon.
    /// [`crate::task::Enrol`].
    Enrol = 16,
    /// [`crate::task::Welcome`].
    Welcome = 17,
    /// [`crate::task::Failed`], the reply to any request that failed.
    Failed = 18,
    /// [`crate::task::Done`].
    Done = 19,
    /// [`crate::task::Spawn`].
    Spawn = 20,
    /// [`crate::task::Spawned`].
    Spawned = 21,
    /// [`crate::task::Exit`].
    Exit = 22,
    /// [`crate::task::Signal`].
    Signal = 23,
    /// [`crate::task::Watch`].
    Watch = 24,
    /// [`crate::task::Ended`], a notification.
    Ended = 25,
    /// [`crate::task::HostEvent`], a notification.
    HostEvent = 26,
    /// [`crate::task::GroupChange`].
    GroupChange = 27,
    /// [`crate::task::GroupAsk`].
    GroupAsk = 28,
    /// [`crate::task::GroupView`].
    GroupView = 29,
    /// [`crate::task::Located`]: the host of a peer, whose channel starts anew.
    Located = 30,
    /// [`crate::task::HostsAsk`].
    HostsAsk = 31,
    /// [`crate::task::Hosts`].
    Hosts = 32,
    /// [`crate::task::Siblings`].
    Siblings = 33,
    /// [`crate::task::Tids`].
    Tids = 34,
    /// [`crate::task::KeptBy`]: the retained messages of ended tasks have another keeper, or are
    /// lost.
    KeptBy = 35,
    /// [`crate::task::SuspendApp`].
    SuspendApp = 36,
    /// [`crate::task::ResumeApp`].
    ResumeApp = 37,
    /// [`crate::task::Resumed`].
    Resumed = 38,
    /// [`crate::task::Await`].
    Await = 39,
    /// [`crate::task::MoveTask`].
    MoveTask = 40,
    /// [`crate::task::Moved`].
    Moved = 41,
    /// [`crate::task::CheckTask`].
    CheckTask = 42,
    /// [`crate::task::Checked`].
    Checked = 43,
    /// [`crate::task::DrainHost`].
    DrainHost = 44,
    /// [`crate::task::Drained`].
    Drained = 45,
    /// [`crate::task::SaveApp`].
    SaveApp = 46,
    /// [`crate::task::Saved`].
    Saved = 47,


    // Between a coordinator and its daemon.
    /// [`crate::coordinator::CoordinatorReady`].
    CoordinatorReady = 48,
    /// [`crate::coordinator::Serve`].
    Serve = 49,
    /// [`crate::coordinator::Mail`].
    Mail = 50,
    /// [`crate::coordinator::Heard`].
    Heard = 51,

    // Rings, between a task and its daemon.
    /// [`crate::task::RingAsk`].
    RingAsk = 52,
    /// [`crate::task::RingOpen`].
    RingOpen = 53,
    /// [`crate::task::RingClosed`].
    RingClosed = 54,

    // Direct connections, between a task and its daemon.
    /// [`crate::task::DirectDial`].
    DirectDial = 55,
    /// [`crate::task::DirectOpen`].
    DirectOpen = 56,

    // Contexts, between a task and its daemon.
    /// [`crate::task::ContextAsk`].
    ContextAsk = 57,
    /// [`crate::task::ContextGiven`].
    ContextGiven = 58,

    // Between two daemons.
    /// [`crate::peer::Hello`].
    Hello = 64,
    /// [`crate::peer::Join`].
    Join = 65,
    /// [`crate::peer::Joined`].
    Joined = 66,
    /// [`crate::peer::Refused`].
    Refused = 67,
    /// [`crate::peer::Raft`].
    Raft = 68,
    /// [`crate::peer::Propose`].
    Propose = 69,
    /// [`crate::peer::FeedAsk`].
    FeedAsk = 70,
    /// [`crate::peer::Feed`].
    Feed = 71,
    /// [`crate::peer::Snapshot`].
    Snapshot = 72,
    /// [`crate::peer::Alive`].
    Alive = 73,
    /// [`crate::peer::Grant`].
    Grant = 74,
    /// [`crate::peer::SpawnOrder`].
    SpawnOrder = 75,
    /// [`crate::peer::SpawnResult`].
    SpawnResult = 76,
    /// [`crate::peer::SignalOrder`].
    SignalOrder = 77,
    /// [`crate::peer::LastAsk`].
    LastAsk = 78,
    /// [`crate::peer::Last`].
    Last = 79,
    /// [`crate::peer::OutputLines`].
    OutputLines = 80,
    /// [`crate::peer::KeepOrder`].
    KeepOrder = 81,
    /// [`crate::peer::UsageAsk`].
    UsageAsk = 82,
    /// [`crate::peer::Usage`].
    Usage = 83,
    /// [`crate::peer::Kept`].
    Kept = 84,
    /// [`crate::peer::FlushAsk`].
    FlushAsk = 85,
    /// [`crate::peer::Flushed`].
    Flushed = 86,
    /// [`crate::peer::MoveAsk`].
    MoveAsk = 87,
    /// [`crate::peer::MoveEnd`].
    MoveEnd = 88,
    /// [`crate::peer::MoveOffer`].
    MoveOffer = 89,
    /// [`crate::peer::MoveReady`].
    MoveReady = 90,
    /// [`crate::peer::MoveLoaded`].
    MoveLoaded = 91,
    /// [`crate::peer::MoveRelease`].
    MoveRelease = 92,
    /// [`crate::peer::MoveAbort`].
    MoveAbort = 93,
    /// [`crate::peer::MoveOrder`].
    MoveOrder = 94,
    /// [`crate::peer::MoveCancel`].
    MoveCancel = 95,
    /// [`crate::peer::MoveReported`].
    MoveReported = 96,
    /// [`crate::peer::MoveProgress`].
    MoveProgress = 97,
    /// [`crate::peer::MoveSent`].
    MoveSent = 98,
    /// [`crate::stores::CopyAsk`].
    CopyAsk = 99,
    /// [`crate::stores::CopyEnd`].
    CopyEnd = 100,
    /// [`crate::stores::PartAsk`].
    PartAsk = 101,
    /// [`crate::stores::PartLost`].
    PartLost = 102,
    /// [`crate::stores::StockAsk`].
    StockAsk = 103,
    /// [`crate::stores::Stock`].
    Stock = 104,
    /// [`crate::stores::ManifestAsk`].
    ManifestAsk = 105,
    /// [`crate::stores::ManifestEnd`].
    ManifestEnd = 106,
    /// [`crate::stores::CommitHere`].
    CommitHere = 107,
    /// [`crate::checkpoint::CutLost`].
    CutLost = 108,
    /// [`crate::checkpoint::PartStands`].
    PartStands = 109,
    /// [`crate::checkpoint::CutGo`].
    CutGo = 110,
    /// [`crate::checkpoint::CutGone`].
    CutGone = 111,
    /// [`crate::peer::DrainAsk`].
    DrainAsk = 112,
    /// [`crate::peer::DrainEnd`].
    DrainEnd = 113,
    /// [`crate::peer::CheckAsk`].
    CheckAsk = 114,
    /// [`crate::peer::CheckEnd`].
    CheckEnd = 115,
    /// [`crate::peer::TaskAnswer`].
    TaskAnswer = 116,
    /// [`crate::checkpoint::CheckpointAsk`].
    CheckpointAsk = 117,
    /// [`crate::checkpoint::CheckpointEnd`].
    CheckpointEnd = 118,
    /// [`crate::checkpoint::CutAsk`].
    CutAsk = 119,
    /// [`crate::checkpoint::CutMade`].
    CutMade = 120,
    /// [`crate::checkpoint::PartSaved`].
    PartSaved = 121,
    /// [`crate::checkpoint::CommitAsk`].
    CommitAsk = 122,
    /// [`crate::checkpoint::Committed`].
    Committed = 123,
    /// [`crate::checkpoint::CutClose`].
    CutClose = 124,
    /// [`crate::checkpoint::CutClosed`].
    CutClosed = 125,
    /// [`crate::checkpoint::KeptSaved`].
    KeptSaved = 126,
    /// [`crate::stores::ForgetStored`].
    ForgetStored = 127,

    // Between a console and its daemon.
    /// [`crate::console::Request`].
    ConsoleRequest = 128,
    /// [`crate::console::Answer`].
    ConsoleAnswer = 129,
    /// [`crate::console::Input`]: bytes for the standard input of a run.
    Input = 130,
    /// [`crate::console::Output`]: bytes of a run's output.
    Output = 131,
    /// [`crate::console::WindowSize`] of the terminal of a run.
    WindowSize = 132,
    /// [`crate::console::RunSignal`] for a run.
    RunSignal = 133,
    /// [`crate::console::RunEnd`]: the exit of a run.
    RunEnd = 134,

    // Between two daemons: all numbers below those of consoles are taken.
    /// [`crate::peer::LinksDown`].
    LinksDown = 135,

    // Between a console and its daemon, then between two daemons.
    /// [`crate::console::RunStopped`]: a signal stopped the master of a run, or the master
    /// continues.
    RunStopped = 136,
    /// [`crate::peer::RunHold`].
    RunHold = 137,
    /// [`crate::checkpoint::CutPrepare`].
    CutPrepare = 138,
    /// [`crate::checkpoint::CutPrepared`].
    CutPrepared = 139,
    /// [`crate::peer::DirectAsk`].
    DirectAsk = 140,
    /// [`crate::peer::DirectReady`].
    DirectReady = 141,
    /// [`crate::peer::DirectClosed`].
    DirectClosed = 142,
}

impl Op {
    /// Largest length of a body of this opcode. Bytes.
    pub const fn body_max(self) -> usize {
        match self {
            Op::Data => limits::CHUNK_MAX,
            Op::Ack | Op::Resend => 0,
            // Mail contains the state of all tasks of an application when a checkpoint is
            // committed.
            Op::Snapshot | Op::Joined | Op::Raft | Op::ConsoleAnswer | Op::Mail => {
                limits::SNAPSHOT_MAX
            }
            _ => limits::CONTROL_MAX,
        }
    }

    /// Whether the body holds a secret, which is not left in buffers.
    pub const fn has_secret(self) -> bool {
        matches!(self, Op::DirectDial | Op::DirectOpen)
    }

    /// Whether the frame is a notification. A daemon numbers the notifications of each task, and
    /// retains each one until the task has acknowledged it.
    pub const fn is_told(self) -> bool {
        matches!(self, Op::Ended | Op::HostEvent | Op::KeptBy)
    }
}

/// The fields of a frame before its body, as listed in the module's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The meaning of the frame.
    pub op: Op,
    /// Flags: [`Header::KEEP`] or 0.
    pub flags: u8,
    /// Number of daemons that have forwarded the frame.
    pub hops: u8,
    /// The sender.
    pub from: Tid,
    /// The receiver.
    pub to: Tid,
    /// Number of the chunk, from 1; 0: the frame is not a chunk.
    pub seq: u64,
    /// The last chunk of the other direction that the sender has taken.
    pub ack: u64,
    /// The last chunk of the other direction that may be sent.
    pub credit: u64,
    /// Number of the request, in the request and in its reply.
    pub request: u64,
    /// Offset of the chunk's payload in its message. Bytes.
    pub offset: u64,
    /// Length of the whole message. Bytes.
    pub total: u64,
    /// Epoch that the sender's application had when the sender enrolled. No code reads it.
    pub epoch: u32,
    /// Generation of the sender's application.
    pub generation: u32,
    /// Incarnation of the receiver to which this route leads.
    pub incarnation: u32,
    /// Context of the message; 0 for the user's own messages.
    pub context: u32,
    /// Tag of the message, chosen by the user.
    pub tag: i32,
}

impl Header {
    /// Flag of a task's last frames: the task ends, and its daemon retains the chunk.
    pub const KEEP: u8 = 1;

    /// A header whose fields are unset but for the opcode.
    pub const fn new(op: Op) -> Self {
        Header {
            op,
            flags: 0,
            hops: 0,
            from: Tid::NONE,
            to: Tid::NONE,
            seq: 0,
            ack: 0,
            credit: 0,
            request: 0,
            offset: 0,
            total: 0,
            epoch: 0,
            generation: 0,
            incarnation: 0,
            context: 0,
            tag: 0,
        }
    }

    /// Encodes the header of a frame whose body has `body_len` bytes.
    pub fn to_bytes(&self, body_len: usize) -> [u8; HEADER_LEN] {
        debug_assert!(body_len <= self.op.body_max());
        let mut bytes = [0; HEADER_LEN];
        let mut out = &mut bytes[..];
        out.put_u32_le(body_len as u32);
        out.put_u8(self.op as u8);
        out.put_u8(self.flags);
        out.put_u8(self.hops);
        out.put_u8(0);
        out.put_u64_le(self.from.0);
        out.put_u64_le(self.to.0);
        out.put_u64_le(self.seq);
        out.put_u64_le(self.ack);
        out.put_u64_le(self.credit);
        out.put_u64_le(self.request);
        out.put_u64_le(self.offset);
        out.put_u64_le(self.total);
        out.put_u32_le(self.epoch);
        out.put_u32_le(self.generation);
        out.put_u32_le(self.incarnation);
        out.put_u32_le(self.context);
        out.put_i32_le(self.tag);
        bytes
    }

    /// Decodes the header in `bytes`. Returns the header and the length of the body that follows.
    ///
    /// # Errors
    /// [`FrameError`] for an unknown opcode, a body above the opcode's limit, a data chunk that
    /// does not fit its message, or bits that must be zero.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<(Self, usize), FrameError> {
        let mut bytes: &[u8] = bytes;
        let body_len = bytes.get_u32_le() as usize;
        let number = bytes.get_u8();
        let op = Op::from_number(number).ok_or(FrameError::Op(number))?;
        let flags = bytes.get_u8();
        let hops = bytes.get_u8();
        let zero = bytes.get_u8();
        let header = Header {
            op,
            flags,
            hops,
            from: Tid(bytes.get_u64_le()),
            to: Tid(bytes.get_u64_le()),
            seq: bytes.get_u64_le(),
            ack: bytes.get_u64_le(),
            credit: bytes.get_u64_le(),
            request: bytes.get_u64_le(),
            offset: bytes.get_u64_le(),
            total: bytes.get_u64_le(),
            epoch: bytes.get_u32_le(),
            generation: bytes.get_u32_le(),
            incarnation: bytes.get_u32_le(),
            context: bytes.get_u32_le(),
            tag: bytes.get_i32_le(),
        };
        if zero != 0 || bytes.get_u32_le() != 0 || flags & !Header::KEEP != 0 {
            return Err(FrameError::Reserved);
        }
        if body_len > op.body_max() {
            return Err(FrameError::Length {
                op,
                length: body_len,
            });
        }
        if op == Op::Data {
            let end = header.offset.checked_add(body_len as u64);
            if header.total > limits::MESSAGE_MAX || end.is_none_or(|end| end > header.total) {
                return Err(FrameError::Chunk {
                    offset: header.offset,
                    total: header.total,
                });
            }
        }
        Ok((header, body_len))
    }
}

/// A header and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The fields before the body.
    pub header: Header,
    /// Raw payload for [`Op::Data`], MessagePack otherwise.
    pub body: Bytes,
}

impl Frame {
    /// Makes a frame of a header and a body.
    pub fn new(header: Header, body: Bytes) -> Self {
        debug_assert!(body.len() <= header.op.body_max());
        Frame { header, body }
    }

    /// Length of the frame on a socket. Bytes.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    /// Always `false`: a frame has a header. Clippy requires this function beside `len`.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends the encoded frame to `out`.
    pub fn write_to(&self, out: &mut impl BufMut) {
        out.put_slice(&self.header.to_bytes(self.body.len()));
        out.put_slice(&self.body);
    }

    /// The encoded frame, for a field of a message.
    pub fn to_body(&self) -> Body {
        let mut bytes = Vec::with_capacity(self.len());
        self.write_to(&mut bytes);
        Body::from(bytes)
    }

    /// Decodes the first frame in `bytes`; `None` if the bytes are no whole frame.
    pub fn of_body(bytes: &[u8]) -> Option<Frame> {
        let mut reader = FrameReader::new();
        reader.push(bytes);
        reader.next_frame().ok().flatten()
    }

    /// The same frame with this sender and receiver.
    #[must_use]
    pub fn between(mut self, from: Tid, to: Tid) -> Self {
        self.header.from = from;
        self.header.to = to;
        self
    }

    /// The same frame with this request number.
    #[must_use]
    pub fn asked(mut self, request: u64) -> Self {
        self.header.request = request;
        self
    }
}

/// The error of bytes that are no frame. The connection that they came from is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The opcode is unknown.
    #[error("unknown opcode {0}")]
    Op(u8),
    /// The body is longer than the opcode allows.
    #[error("{op:?} with a body of {length} bytes, more than its limit")]
    Length {
        /// Opcode of the frame.
        op: Op,
        /// Length in the header. Bytes.
        length: usize,
    },
    /// The chunk lies outside of its message, or the message is above the limit.
    #[error("a chunk at {offset} of a message of {total} bytes")]
    Chunk {
        /// Offset in the header. Bytes.
        offset: u64,
        /// Length of the message in the header. Bytes.
        total: u64,
    },
    /// Bits are set that this version does not know.
    #[error("reserved bits are set")]
    Reserved,
}

/// A body up to this length is copied out of the read buffer. Otherwise a small frame that is held
/// would keep the whole buffer in memory. Bytes.
const COPIED_MAX: usize = 4096;

/// Splits a stream of bytes into frames. An incomplete frame waits for more bytes; only an invalid
/// frame is an error.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: BytesMut,
    /// The header, and the length of the body, of the frame whose body is incomplete.
    pending: Option<(Header, usize)>,
}

impl FrameReader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer for the next bytes of the stream, with room for at least `at_least` bytes.
    pub fn buffer(&mut self, at_least: usize) -> &mut BytesMut {
        self.buffer.reserve(at_least);
        &mut self.buffer
    }

    /// Appends bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Number of bytes that the next frame lacks, at least 1: a hint for the size of a read.
    pub fn missing(&self) -> usize {
        let want = match self.pending {
            Some((_, body_len)) => body_len,
            None => HEADER_LEN,
        };
        want.saturating_sub(self.buffer.len()).max(1)
    }

    /// The next whole frame; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]: the stream cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.pending.is_none() {
            let Some(bytes) = self.buffer.first_chunk::<HEADER_LEN>() else {
                return Ok(None);
            };
            self.pending = Some(Header::from_bytes(bytes)?);
            self.buffer.advance(HEADER_LEN);
        }
        match self.pending {
            Some((header, body_len)) if self.buffer.len() >= body_len => {
                self.pending = None;
                let mut body = self.buffer.split_to(body_len);
                let body = match body_len <= COPIED_MAX {
                    true => {
                        let copy = Bytes::copy_from_slice(&body);
                        if header.op.has_secret() {
                            body.fill(0);
                        }
                        copy
                    }
                    false => body.freeze(),
                };
                Ok(Some(Frame { header, body }))
            }
            _ => Ok(None),
        }
    }
}
