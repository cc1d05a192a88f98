//! Shared by both ends of a request: the modes of a save, the name of the socket, the packets.
//!
//! **Used in signal handlers**: nothing here allocates or locks.

use crate::frozen::queued_signal;

/// The modes of a requested save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes(u32);

impl Modes {
    /// A copy of the process writes the image while the process runs.
    pub const FORKED: Modes = Modes(1);
    /// The process ends when the image is whole.
    pub const EXIT: Modes = Modes(2);
    /// Most of the memory is written in pre-copy rounds.
    pub const ROUNDS: Modes = Modes(4);
    /// The image carries the content of open files.
    pub const CARRY: Modes = Modes(8);

    const WORDS: [(&str, Modes); 4] = [
        ("forked", Modes::FORKED),
        ("exit", Modes::EXIT),
        ("rounds", Modes::ROUNDS),
        ("carry", Modes::CARRY),
    ];

    /// The modes of both values.
    #[must_use]
    pub fn with(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }

    pub(crate) fn of_word(word: &[u8]) -> Option<Modes> {
        let known = Self::WORDS.iter().find(|(name, _)| name.as_bytes() == word);
        known.map(|(_, mode)| *mode)
    }

    pub(crate) fn has(self, mode: Modes) -> bool {
        self.0 & mode.0 != 0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Modes(bits)
    }
}

/// The upper 16 bits of the number that comes with the signal.
pub const MARK: u64 = 0x564d << 48;

/// The prefix of the names of the sockets.
const NAME: &[u8] = b"vm-image-";

/// The limit of a packet. Bytes.
pub const PACKET: usize = 512;

/// A message from the process that is saved to the requester.
pub enum Reply<'a> {
    Begun,
    Saved { bytes: u64, ns: u64 },
    Refused(&'a [u8]),
}

impl<'a> Reply<'a> {
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        let (kind, rest) = packet.split_first()?;
        let number = |at: usize| {
            let bytes = rest.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        match kind {
            1 => Some(Reply::Begun),
            2 => Some(Reply::Saved {
                bytes: number(0)?,
                ns: number(8)?,
            }),
            3 => Some(Reply::Refused(rest)),
            _ => None,
        }
    }

    pub fn write(&self, packet: &mut [u8; PACKET]) -> usize {
        match self {
            Reply::Begun => {
                packet[0] = 1;
                1
            }
            Reply::Saved { bytes, ns } => {
                packet[0] = 2;
                packet[1..9].copy_from_slice(&bytes.to_le_bytes());
                packet[9..17].copy_from_slice(&ns.to_le_bytes());
                17
            }
            Reply::Refused(why) => {
                let len = why.len().min(PACKET - 1);
                packet[0] = 3;
                packet[1..=len].copy_from_slice(&why[..len]);
                len + 1
            }
        }
    }
}

/// The name of the socket of a request, in the abstract namespace.
pub fn name_of(token: u64) -> [u8; NAME.len() + 16] {
    let mut name = [0; NAME.len() + 16];
    name[..NAME.len()].copy_from_slice(NAME);
    for (index, place) in name[NAME.len()..].iter_mut().enumerate() {
        *place = b"0123456789abcdef"[(token >> (60 - 4 * index) & 15) as usize];
    }
    name
}

/// The number that came with the signal of a request; 0 if the signal is of no request.
pub fn token_of(info: *const libc::siginfo_t) -> u64 {
    match queued_signal::value_of(info) as u64 {
        token if token >> 48 == MARK >> 48 => token,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_as_they_are_written() {
        let read = |word: Reply<'_>| {
            let mut packet = [0; PACKET];
            let len = word.write(&mut packet);
            match Reply::read(&packet[..len]) {
                Some(Reply::Begun) => "begun".to_owned(),
                Some(Reply::Saved { bytes, ns }) => format!("{bytes} {ns}"),
                Some(Reply::Refused(why)) => String::from_utf8_lossy(why).into_owned(),
                None => "nothing".to_owned(),
            }
        };
        assert_eq!(read(Reply::Begun), "begun");
        assert_eq!(
            read(Reply::Saved {
                bytes: 7,
                ns: 1 << 40
            }),
            "7 1099511627776"
        );
        assert_eq!(read(Reply::Refused(&[b'x'; 600])), "x".repeat(PACKET - 1));
        assert!(Reply::read(&[2, 0, 0]).is_none() && Reply::read(&[]).is_none());
    }
}
