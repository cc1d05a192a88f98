//! Frames between a daemon and a task's library on the interrupt socket, which is a socket of
//! packets. Signal handlers read and write them, so they have fixed layouts and need no allocator.
//!
//! | order | bytes | field |
//! |---|---|---|
//! | 0 | 8 | number, goes up; an order with a number seen before is stale |
//! | 8 | 4 | kind |
//! | 12 | 4 | of `Go`: the host; of `Copy` and `Freeze`: bytes of two folders, 2 each, or 0 |
//! | 16 | 4 | of `Go`: the generation; of `Freeze`: 0 for a move, 1 for a checkpoint, 2 for a forked save |
//! | 16 | 8 | of `Resend`: the number of the direct connection |
//! | 20 | 4 | of `Go`: the machine |
//! | 24 | up to 1000 | of `Copy` and `Freeze`: the folders ([`Folders`]) |
//!
//! | report | bytes | field |
//! |---|---|---|
//! | 0 | 4 | kind |
//! | 4 | 4 | of `Saved`: microseconds; of `Copied`: rounds; of `Back`: 1 if some threads use other processors, or 0 |
//! | 8 | 8 | number of the order that the report replies to; 0: none |
//! | 16 | 8 | of `Saved`: bytes of the image, or 0; of `Copied`: bytes of all rounds |
//! | 24 | 4 | of `Saved`: chunks that are not acknowledged |
//! | 28 | up to 996 | of `Refused` and `Busy`: the reason, as text |
//!
//! All numbers are little-endian.

use crate::{
    id::{HostId, MachineId},
    limits,
};

/// Length of an order without its folders. Bytes.
pub const ORDER_LEN: usize = 24;
/// Largest length of an order. Bytes.
pub const ORDER_MAX: usize = ORDER_LEN + 2 * limits::WORK_DIR_MAX;
/// Length of a report without its text. Bytes.
pub const REPORT_LEN: usize = 28;
/// Largest length of a report. Bytes.
pub const REPORT_MAX: usize = 1024;

/// The purpose of an image, and the process that writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeze {
    /// A move. The task writes the image.
    Move,
    /// A part of a checkpoint. The image contains what a rollback of open files needs.
    Checkpoint,
    /// A part of a checkpoint, by a forked save if the process can be copied: the copy writes the
    /// image, and the task stays frozen until [`Order::Go`].
    Copied,
}

/// An order of the daemon to the task's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Start a pre-copy: write memory into the descriptor that comes with the order, in pre-copy
    /// rounds, while the task runs.
    Copy {
        /// Whether the image is compressed.
        compress: bool,
    },
    /// Freeze, and write an image into the descriptor that comes with the order: the rest after a
    /// pre-copy, or all of it.
    Freeze {
        /// Whether the image is compressed; ignored after a pre-copy, which has decided it.
        compress: bool,
        /// Purpose of the image.
        way: Freeze,
    },
    /// Run to a safe point, or to a call of the library, and stop there until the next order.
    /// `Freeze` follows when other tasks have stopped, too.
    Hold,
    /// End a pre-copy without an image, or end a `Hold`.
    Cancel,
    /// Send again, by the daemon, what is retained for the peer of a direct connection: the daemon has
    /// closed the connection, and the program may compute for long before its next call.
    Resend {
        /// The number of the connection.
        id: u64,
    },
    /// Resume.
    Go {
        /// The host of the task.
        host: HostId,
        /// The machine of the task. It is another machine if the application was restarted there.
        machine: MachineId,
        /// Generation of the task's application from now on.
        generation: u32,
    },
}

impl Order {
    /// Encodes the order with this number.
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
            Order::Resend { .. } => (8, 0),
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
            Order::Resend { id } => bytes[16..].copy_from_slice(&id.to_le_bytes()),
            Order::Copy { .. } | Order::Cancel | Order::Hold => {}
        }
        bytes
    }

    /// Decodes the number and the order. The order is `None` if this release does not know it.
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
            (Some(8), _) => resend(bytes),
            _ => None,
        };
        Some((number, order))
    }
}

fn resend(order: &[u8]) -> Option<Order> {
    let id = u64::from_le_bytes(*order.get(16..)?.first_chunk()?);
    Some(Order::Resend { id })
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

/// The working folder at the source of a move, and the folder that replaces it at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// Path at the source.
    pub here: String,
    /// Path at the target.
    pub there: String,
}

impl Folders {
    /// Appends these folders to an encoded order for an image. If a folder is longer than
    /// [`limits::WORK_DIR_MAX`], the order stays without folders.
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

    /// The folders of an encoded order for an image, source first; `None`: the order has none.
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

/// A report of the task's library. `T` is the text of a refusal, borrowed or owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report<T> {
    /// The pre-copy rounds are over. The rest of the image is to be written during the freeze.
    Copied {
        /// Bytes of all rounds.
        bytes: u64,
        /// Number of rounds.
        rounds: u32,
    },
    /// All threads are frozen, and the image is written, or a copy of the process writes it.
    Saved {
        /// Length of the whole image; 0 while a copy writes it. Bytes.
        bytes: u64,
        /// Time since all threads were frozen. Microseconds, at most `u32::MAX`.
        micros: u32,
        /// Number of sent chunks that the task had no acknowledgement for.
        unacknowledged: u32,
    },
    /// The task is frozen and itself writes the part of its image that a copy cannot write. The
    /// daemon has to read it.
    Writes,
    /// There is no image, and the task continues. The text gives the reason.
    Refused(T),
    /// The same, for a reason that passes by itself.
    Busy(T),
    /// The restored process reports that it is frozen.
    Back {
        /// Whether some of its threads may not use the processors that the program assigned to
        /// them.
        elsewhere: bool,
    },
    /// The task has stopped at a safe point, as ordered. A task with callbacks reports it in a call
    /// of the library, also right before a save.
    Held,
    /// From now on the task is a portable task: it stops at its safe points, and its image is the
    /// state that its program supplies there.
    Portable,
    /// From now on the task stops only in calls of the library, because its program has callbacks
    /// around saves.
    InCalls,
}

impl<'a> Report<&'a str> {
    /// The same report with its own copy of the text.
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

    /// Encodes the report as a reply to the order with number `order`. Text that is too long is
    /// cut.
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

    /// Decodes what [`Report::write`] encoded: the number of the order, and the report.
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
    fn orders_and_reports_are_read_as_written() {
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
            Order::Resend { id: u64::MAX - 7 },
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
