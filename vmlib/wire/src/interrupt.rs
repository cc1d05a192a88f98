//! What a daemon and a task's library say to each other on the interrupt socket, a socket of
//! packets. Read and written in signal handlers: of fixed length, without an allocator.
//!
//! | order | bytes | field |
//! |---|---|---|
//! | 0 | 8 | number, goes up; one that was seen before is stale |
//! | 8 | 4 | kind |
//! | 12 | 4 | of `Go`: the host; of `Copy` and `Freeze`: bytes of two folders, 2 each, or 0 |
//! | 16 | 4 | of `Go`: the generation; of `Freeze`: 0 for a move, 1 for a checkpoint, 2 for one that a copy writes |
//! | 20 | 4 | of `Go`: the machine |
//! | 24 | up to 1000 | of `Copy` and `Freeze`: the folders ([`Folders`]) |
//!
//! | report | bytes | field |
//! |---|---|---|
//! | 0 | 4 | kind |
//! | 4 | 4 | of `Saved`: microseconds; of `Copied`: rounds; of `Back`: 1 if it is elsewhere, or 0 |
//! | 8 | 8 | number of the order that it answers; 0: none |
//! | 16 | 8 | of `Saved`: bytes of the image, or 0; of `Copied`: bytes of all rounds |
//! | 24 | 4 | of `Saved`: chunks that are not acknowledged |
//! | 28 | up to 996 | of `Refused` and `Busy`: why, as text |
//!
//! All numbers are little-endian.

use crate::{
    id::{HostId, MachineId},
    limits,
};

/// Bytes of an order without its folders.
pub const ORDER_LEN: usize = 24;
/// Bytes of an order at most.
pub const ORDER_MAX: usize = ORDER_LEN + 2 * limits::WORK_DIR_MAX;
/// Bytes of a report without its text.
pub const REPORT_LEN: usize = 28;
/// Bytes of a report at most.
pub const REPORT_MAX: usize = 1024;

/// What an image is for, and who writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeze {
    /// A move.
    Move,
    /// A part of a checkpoint: files are to be rolled back to it.
    Checkpoint,
    /// The same, and a copy of the process writes it, which stands until it is told to go on; if it
    /// can be copied.
    Copied,
}

/// What the daemon wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Begin to write an image of the process into the descriptor that comes along: memory, in
    /// rounds, while the task runs.
    Copy {
        /// The image is to be compressed.
        compress: bool,
    },
    /// Stop, and write an image into the descriptor that comes along: the rest of one that was begun,
    /// or all of it.
    Freeze {
        /// The image is to be compressed, if it was not begun.
        compress: bool,
        /// What for.
        way: Freeze,
    },
    /// Come to a safe point, or to a call of the library, and stand there until the next order: the one to
    /// write an image will follow when others have done so, too.
    Hold,
    /// Give up what `Copy` has begun, or do not stand.
    Cancel,
    /// Go on.
    Go {
        /// Where.
        host: HostId,
        /// In which machine: another one, if the application was brought back there.
        machine: MachineId,
        /// Of the task's application, from now on.
        generation: u32,
    },
}

impl Order {
    /// As it travels.
    pub fn to_bytes(self, number: u64) -> [u8; ORDER_LEN] {
        let (kind, value) = match self {
            Order::Freeze {
                compress: false, ..
            } => (1u32, 0),
            Order::Freeze { compress: true, .. } => (5, 0),
            Order::Go { host, .. } => (2, u32::from(host.0)),
            Order::Copy { compress: false } => (3, 0),
            Order::Copy { compress: true } => (6, 0),
            Order::Cancel => (4, 0),
            Order::Hold => (7, 0),
        };
        let mut bytes = [0; ORDER_LEN];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&kind.to_le_bytes());
        bytes[12..16].copy_from_slice(&value.to_le_bytes());
        match self {
            Order::Go {
                machine,
                generation,
                ..
            } => {
                bytes[16..20].copy_from_slice(&generation.to_le_bytes());
                bytes[20..].copy_from_slice(&machine.get().to_le_bytes());
            }
            Order::Freeze { way, .. } => {
                bytes[16..20].copy_from_slice(&(way as u32).to_le_bytes());
            }
            Order::Copy { .. } | Order::Cancel | Order::Hold => {}
        }
        bytes
    }

    /// Its number, and the order if it is one that this release knows.
    pub fn from_bytes(bytes: &[u8]) -> Option<(u64, Option<Order>)> {
        let number = u64::from_le_bytes(*bytes.first_chunk()?);
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let order = match (word(8), word(12)) {
            (Some(kind @ (1 | 5)), _) => Some(Order::Freeze {
                compress: kind == 5,
                way: match word(16) {
                    Some(1) => Freeze::Checkpoint,
                    Some(2) => Freeze::Copied,
                    _ => Freeze::Move,
                },
            }),
            (Some(2), Some(host)) => go(host, word(16), word(20)),
            (Some(3), _) => Some(Order::Copy { compress: false }),
            (Some(6), _) => Some(Order::Copy { compress: true }),
            (Some(4), _) => Some(Order::Cancel),
            (Some(7), _) => Some(Order::Hold),
            _ => None,
        };
        Some((number, order))
    }
}

fn go(host: u32, generation: Option<u32>, machine: Option<u32>) -> Option<Order> {
    let host = HostId(u16::try_from(host).ok()?);
    let machine = machine.filter(|bits| *bits <= MachineId::MAX)?;
    Some(Order::Go {
        host,
        machine: MachineId::from_bits(machine),
        generation: generation?,
    })
}

/// A folder of the source of a move, and the one that takes its place at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// At the source.
    pub here: String,
    /// At the target.
    pub there: String,
}

impl Folders {
    /// An order for an image with these, as it travels. Each is at most [`limits::WORK_DIR_MAX`]
    /// long; else the order comes without them.
    pub fn added_to(&self, order: [u8; ORDER_LEN]) -> Vec<u8> {
        let mut bytes = order.to_vec();
        if self.here.len().max(self.there.len()) <= limits::WORK_DIR_MAX {
            bytes[12..14].copy_from_slice(&(self.here.len() as u16).to_le_bytes());
            bytes[14..16].copy_from_slice(&(self.there.len() as u16).to_le_bytes());
            bytes.extend_from_slice(self.here.as_bytes());
            bytes.extend_from_slice(self.there.as_bytes());
        }
        bytes
    }

    /// Those of an order for an image, if it has some.
    pub fn of(order: &[u8]) -> Option<(&[u8], &[u8])> {
        let len = |at: usize| {
            Some(usize::from(u16::from_le_bytes(
                *order.get(at..)?.first_chunk()?,
            )))
        };
        let (here, there) = (len(12)?, len(14)?);
        let text = order.get(ORDER_LEN..)?;
        let is_whole = here > 0 && there > 0 && text.len() == here + there;
        is_whole.then(|| text.split_at(here))
    }
}

/// What the task has done; why not, as text borrowed or owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report<T> {
    /// The rounds are over: what is left is to be written while all threads stand.
    Copied {
        /// Of all rounds.
        bytes: u64,
        /// How many.
        rounds: u32,
    },
    /// All threads stand, and the image is written, or a copy of the process writes it.
    Saved {
        /// Of the whole image; 0 while a copy writes it.
        bytes: u64,
        /// How long it took since they stood. Microseconds, at most `u32::MAX`.
        micros: u32,
        /// Chunks of messages that it had sent, and of which it did not know that they had been taken.
        unacknowledged: u32,
    },
    /// It stands, and has to write of its image what a copy cannot: somebody has to read.
    Writes,
    /// There is no image, and the task goes on.
    Refused(T),
    /// Likewise, for a reason that passes by itself.
    Busy(T),
    /// This is the process that was brought back; it stands.
    Back {
        /// Some of its threads may not use the processors that its program has put them on.
        elsewhere: bool,
    },
    /// It stands at a safe point, as it was told to; one with callbacks in a call of the library, also when
    /// it is about to be saved.
    Held,
    /// From now on the task is saved by what its program gives at its safe points, where it stops.
    Portable,
    /// From now on the task is stopped in its calls of the library alone, because its program has callbacks
    /// around saves.
    InCalls,
}

impl<'a> Report<&'a str> {
    /// The same, for whoever keeps it.
    pub fn owned(self) -> Report<String> {
        match self {
            Report::Copied { bytes, rounds } => Report::Copied { bytes, rounds },
            Report::Saved {
                bytes,
                micros,
                unacknowledged,
            } => Report::Saved {
                bytes,
                micros,
                unacknowledged,
            },
            Report::Refused(text) => Report::Refused(text.to_owned()),
            Report::Busy(text) => Report::Busy(text.to_owned()),
            Report::Back { elsewhere } => Report::Back { elsewhere },
            Report::Writes => Report::Writes,
            Report::Portable => Report::Portable,
            Report::Held => Report::Held,
            Report::InCalls => Report::InCalls,
        }
    }

    /// As it travels, as an answer to the order of that number; a long text is cut.
    pub fn write(self, order: u64, bytes: &mut [u8; REPORT_MAX]) -> &[u8] {
        let (kind, small, value, last, text) = match self {
            Report::Saved {
                bytes,
                micros,
                unacknowledged,
            } => (1u32, micros, bytes, unacknowledged, ""),
            Report::Refused(text) => (2, 0, 0, 0, text),
            Report::Busy(text) => (7, 0, 0, 0, text),
            Report::Back { elsewhere } => (3, elsewhere.into(), 0, 0, ""),
            Report::Copied { bytes, rounds } => (4, rounds, bytes, 0, ""),
            Report::Writes => (5, 0, 0, 0, ""),
            Report::Portable => (6, 0, 0, 0, ""),
            Report::Held => (8, 0, 0, 0, ""),
            Report::InCalls => (9, 0, 0, 0, ""),
        };
        let len = text.floor_char_boundary(REPORT_MAX - REPORT_LEN);
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&small.to_le_bytes());
        bytes[8..16].copy_from_slice(&order.to_le_bytes());
        bytes[16..24].copy_from_slice(&value.to_le_bytes());
        bytes[24..REPORT_LEN].copy_from_slice(&last.to_le_bytes());
        bytes[REPORT_LEN..REPORT_LEN + len].copy_from_slice(&text.as_bytes()[..len]);
        &bytes[..REPORT_LEN + len]
    }

    /// Reads what [`Report::write`] made, and the number.
    pub fn read(bytes: &'a [u8]) -> Option<(u64, Self)> {
        let kind = u32::from_le_bytes(*bytes.first_chunk()?);
        let small = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        let order = u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        let value = u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
        let last = u32::from_le_bytes(*bytes.get(24..)?.first_chunk()?);
        let report = match kind {
            1 => Report::Saved {
                bytes: value,
                micros: small,
                unacknowledged: last,
            },
            2 => Report::Refused(std::str::from_utf8(&bytes[REPORT_LEN..]).ok()?),
            3 => Report::Back {
                elsewhere: small != 0,
            },
            4 => Report::Copied {
                bytes: value,
                rounds: small,
            },
            5 => Report::Writes,
            6 => Report::Portable,
            8 => Report::Held,
            9 => Report::InCalls,
            7 => Report::Busy(std::str::from_utf8(&bytes[REPORT_LEN..]).ok()?),
            _ => return None,
        };
        Some((order, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reports_come_through() {
        for order in [
            Order::Copy { compress: true },
            Order::Freeze {
                compress: false,
                way: Freeze::Checkpoint,
            },
            Order::Freeze {
                compress: true,
                way: Freeze::Move,
            },
            Order::Freeze {
                compress: false,
                way: Freeze::Copied,
            },
            Order::Cancel,
            Order::Hold,
            Order::Go {
                host: HostId(7),
                machine: MachineId::from_bits(0xbeef),
                generation: 3,
            },
        ] {
            let bytes = order.to_bytes(9);
            assert_eq!(Order::from_bytes(&bytes), Some((9, Some(order))));
        }
        assert_eq!(
            Order::from_bytes(&[9; 8]),
            Some((0x0909_0909_0909_0909, None))
        );
        assert_eq!(Order::from_bytes(b"short"), None);
        let mut folders = Folders {
            here: "/a".to_owned(),
            there: "/b/c".to_owned(),
        };
        let order = Order::Copy { compress: true };
        let bytes = folders.added_to(order.to_bytes(9));
        assert_eq!(Order::from_bytes(&bytes), Some((9, Some(order))));
        assert_eq!(Folders::of(&bytes), Some((&b"/a"[..], &b"/b/c"[..])));
        assert_eq!(Folders::of(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Folders::of(&order.to_bytes(9)), None);
        folders.there = "/".repeat(limits::WORK_DIR_MAX + 1);
        assert_eq!(Folders::of(&folders.added_to(order.to_bytes(9))), None);
        let long = "é".repeat(REPORT_MAX);
        let (bytes, micros, rounds, unacknowledged) = (1 << 40, 7, 3, 12);
        for report in [
            Report::Copied { bytes, rounds },
            Report::Saved {
                bytes,
                micros,
                unacknowledged,
            },
            Report::Refused("no"),
            Report::Busy("not now"),
            Report::Back { elsewhere: false },
            Report::Back { elsewhere: true },
            Report::Portable,
            Report::Held,
            Report::InCalls,
        ] {
            let mut bytes = [0; REPORT_MAX];
            let read = Report::read(report.write(9, &mut bytes));
            assert_eq!(read, Some((9, report)));
        }
        let mut bytes = [0; REPORT_MAX];
        let cut = Report::read(Report::Refused(long.as_str()).write(9, &mut bytes));
        assert!(matches!(cut, Some((9, Report::Refused(text))) if long.starts_with(text)));
        assert_eq!(Report::read(&[0; REPORT_LEN - 1]), None);
    }
}
