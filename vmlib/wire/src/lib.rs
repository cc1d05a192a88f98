//! Bytes to values and back: everything that crosses a socket of the virtual machine.
//!
//! This crate does no I/O and reads no clock. It defines ids ([`Tid`]), the layout of a
//! [`Frame`], all messages, and the limits of their sizes. A daemon forwards a frame by its
//! [`Header`] alone; only the two ends look at the body. A body is raw bytes for [`Op::Data`],
//! MessagePack of one struct for every other [`Op`] (see [`Message`]).
//!
//! Reading order: [`id`], [`limits`], [`frame`], [`codec`], [`version`], then the messages by the
//! connection that carries them: [`task`] (between a task and its daemon), [`peer`] (between two
//! daemons), [`console`] (between a console and its daemon), [`coordinator`] (between an
//! application's coordinator and its daemon), [`direct`] (between two tasks of different hosts). [`checkpoint`] and [`stores`] hold the orders between
//! daemons about checkpoints, [`agreed`] the entries of the log, [`interrupt`] the messages of a
//! task's interrupt socket, [`portable`] the state of a portable task, [`seal`] the cipher of links and
//! direct connections, and [`place`] the paths of a daemon's files.
//!
//! Values that messages of several modules contain have private modules of their own below these,
//! and are re-exported where they belong: `body`, `failure`, `part`, `watched`.
//!
//! Invariants: a length is compared with [`limits`] before it is used; trailing bytes after
//! a MessagePack value are an error; the layout of every message is pinned by golden bytes in the
//! tests, so that a review shows each change of the protocol.

pub mod agreed;
mod body;
pub mod checkpoint;
pub mod codec;
pub mod console;
pub mod coordinator;
pub mod direct;
mod failure;
pub mod frame;
pub mod id;
pub mod interrupt;
pub mod limits;
mod part;
pub mod peer;
pub mod place;
pub mod portable;
pub mod seal;
pub mod stores;
pub mod task;
pub mod version;
mod watched;

pub use codec::{Body, CodecError, Message, decode, encode};
pub use frame::{Frame, FrameError, FrameReader, HEADER_LEN, Header, Op};
pub use id::{CheckpointId, HostId, MachineId, RequestKey, Tid};
