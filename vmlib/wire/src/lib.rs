//! Bytes to values and back: everything that crosses a socket of the virtual machine.
//!
//! This crate does no I/O and reads no clock. It says what a [`Tid`] is, how a [`Frame`] is laid
//! out, which messages exist and how large anything may be. A daemon forwards a frame by its
//! [`Header`] alone; only the two ends look at the body. A body is raw bytes for [`Op::Data`],
//! MessagePack of one struct for every other [`Op`] (see [`Message`]).
//!
//! Reading order: [`id`], [`limits`], [`frame`], [`codec`], [`version`], then the messages by who
//! speaks them: [`task`] (a task and its daemon), [`peer`] (two daemons), [`console`] (a console
//! and its daemon), [`coordinator`] (an application's coordinator and its daemon), [`checkpoint`], [`agreed`] (the entries of the log), [`portable`] (the state of a task as its program gives it), and
//! [`place`] (where a daemon's files are).
//!
//! Invariants: no length is believed before it was compared with [`limits`]; trailing bytes after
//! a MessagePack value are an error; the layout of every message is pinned by golden bytes in the
//! tests, so that a change of the protocol is seen in review.

pub mod agreed;
pub mod checkpoint;
pub mod codec;
pub mod console;
pub mod coordinator;
pub mod frame;
pub mod id;
pub mod interrupt;
pub mod limits;
pub mod peer;
pub mod place;
pub mod portable;
pub mod stores;
pub mod task;
pub mod version;

pub use codec::{Body, CodecError, Message, decode, encode};
pub use frame::{Frame, FrameError, FrameReader, HEADER_LEN, Header, Op};
pub use id::{CheckpointId, HostId, MachineId, Tid};
