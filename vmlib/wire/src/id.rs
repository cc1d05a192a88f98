//! Ids that are never reused: machines, hosts, tasks, checkpoints.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The number of a machine: 24 random bits, drawn by the daemon that founds the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MachineId(u32);

impl MachineId {
    /// The largest machine number, 2^24 - 1.
    pub const MAX: u32 = (1 << 24) - 1;

    /// Makes an id of the low 24 bits of `bits`.
    pub const fn from_bits(bits: u32) -> Self {
        MachineId(bits & Self::MAX)
    }

    /// The number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

impl fmt::Debug for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{self}")
    }
}

/// The number of a host in its machine, given by the log in the order of joining, never reused.
///
/// Zero is no host: in a header, it means "not known yet". The founder is host 1.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

impl HostId {
    /// No host; in a header, "not known yet".
    pub const NONE: HostId = HostId(0);
    /// The founder.
    pub const FOUNDER: HostId = HostId(1);

    /// Reads the form that is shown: `h3`. `None` for any other text, and for `h0`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('h')?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| *number > 0)?;
        is_number.then_some(HostId(number))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The name of a checkpoint within its application, shown as `g1-e4`. The later checkpoint is the
/// greater one.
///
/// On the wire it is a pair of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct CheckpointId {
    /// The number of restarts of the application before the checkpoint.
    pub generation: u32,
    /// The number of the checkpoint in its generation.
    pub epoch: u32,
}

impl CheckpointId {
    /// The checkpoint of that generation and epoch.
    pub const fn new(generation: u32, epoch: u32) -> Self {
        CheckpointId { generation, epoch }
    }

    /// Reads the form that is shown: `g1-e5`.
    pub fn parse(text: &str) -> Option<Self> {
        let (generation, epoch) = text.strip_prefix('g')?.split_once("-e")?;
        let id = CheckpointId::new(generation.parse().ok()?, epoch.parse().ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl From<(u32, u32)> for CheckpointId {
    fn from((generation, epoch): (u32, u32)) -> Self {
        CheckpointId::new(generation, epoch)
    }
}

impl From<CheckpointId> for (u32, u32) {
    fn from(id: CheckpointId) -> Self {
        (id.generation, id.epoch)
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}-e{}", self.generation, self.epoch)
    }
}

/// The id of a task: machine (24 bits), host of the spawn (16), sequence number on that host (24).
///
/// The id never changes when the task moves, and is never given to another task. Sequence number 0
/// is the daemon of the host, which exchanges reliable messages with other daemons through the same
/// channels as tasks do. Shown as `t3.17`; for tasks of other machines, see [`Tid::show`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tid(pub u64);

impl Tid {
    /// No task: an unset header field, or "the daemon at the other end of this socket".
    pub const NONE: Tid = Tid(0);
    /// The largest sequence number on one host, 2^24 - 1.
    pub const SEQUENCE_MAX: u32 = (1 << 24) - 1;

    /// The task with that sequence number (below 2^24) among those spawned on `host`.
    pub const fn new(machine: MachineId, host: HostId, sequence: u32) -> Self {
        assert!(sequence <= Self::SEQUENCE_MAX);
        Tid(((machine.0 as u64) << 40) | ((host.0 as u64) << 24) | sequence as u64)
    }

    /// The id of the daemon of `host`.
    pub const fn daemon(machine: MachineId, host: HostId) -> Self {
        Self::new(machine, host, 0)
    }

    /// The machine in which the task was spawned.
    pub const fn machine(self) -> MachineId {
        MachineId((self.0 >> 40) as u32)
    }

    /// The host on which the task was spawned, not its present host.
    pub const fn host(self) -> HostId {
        HostId((self.0 >> 24) as u16)
    }

    /// The sequence number on the host of the spawn.
    pub const fn sequence(self) -> u32 {
        (self.0 & Self::SEQUENCE_MAX as u64) as u32
    }

    /// Whether this is a daemon, not a task.
    pub const fn is_daemon(self) -> bool {
        self.sequence() == 0 && self.0 != 0
    }

    /// Whether this is [`Tid::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// How a user of machine `here` sees the id: `t3.17`, or `t3.17@00beef` from another machine.
    pub fn show(self, here: MachineId) -> String {
        if self.machine() == here {
            format!("t{}.{}", self.host().0, self.sequence())
        } else {
            format!("t{}.{}@{}", self.host().0, self.sequence(), self.machine())
        }
    }

    /// Reads the form that [`Tid::show`] writes. Without `@`, the task belongs to machine `here`.
    pub fn parse(text: &str, here: MachineId) -> Result<Self, TidError> {
        let bad = || TidError(text.to_owned());
        let rest = text.strip_prefix('t').ok_or_else(bad)?;
        let (rest, machine) = match rest.split_once('@') {
            Some((rest, machine)) => (
                rest,
                u32::from_str_radix(machine, 16)
                    .ok()
                    .filter(|m| *m <= MachineId::MAX)
                    .map(MachineId)
                    .ok_or_else(bad)?,
            ),
            None => (rest, here),
        };
        let (host, sequence) = rest.split_once('.').ok_or_else(bad)?;
        let host = u16::from_str(host).map_err(|_| bad())?;
        let sequence = u32::from_str(sequence).map_err(|_| bad())?;
        if sequence > Self::SEQUENCE_MAX {
            return Err(bad());
        }
        Ok(Tid::new(machine, HostId(host), sequence))
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.host().0, self.sequence())
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The error of a text that is not a task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a task id: write it as t3.17 (host 3, task 17)")]
pub struct TidError(pub String);

/// A request by the daemon that makes it and by that daemon's number for it, which it uses once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The host of the requesting daemon, which is told the result.
    pub host: HostId,
    /// Its number for the request.
    pub number: u64,
}

impl RequestKey {
    /// The lowest key, for ranges.
    pub const MIN: RequestKey = RequestKey {
        host: HostId(0),
        number: 0,
    };
    /// The highest key, for ranges.
    pub const MAX: RequestKey = RequestKey {
        host: HostId(u16::MAX),
        number: u64::MAX,
    };

    /// The request of that daemon with that number.
    pub fn new(host: HostId, number: u64) -> Self {
        RequestKey { host, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: MachineId = MachineId::from_bits(0xbeef);

    #[test]
    fn a_tid_carries_machine_host_and_sequence() {
        let tid = Tid::new(HERE, HostId(3), 17);
        assert_eq!(
            (tid.machine(), tid.host(), tid.sequence()),
            (HERE, HostId(3), 17)
        );
        assert!(!tid.is_daemon());
        assert!(Tid::daemon(HERE, HostId(3)).is_daemon());
        assert!(!Tid::NONE.is_daemon());
    }

    #[test]
    fn a_shown_tid_is_read_back() {
        for tid in [
            Tid::new(HERE, HostId(3), 17),
            Tid::new(MachineId::from_bits(7), HostId(65535), Tid::SEQUENCE_MAX),
        ] {
            assert_eq!(Tid::parse(&tid.show(HERE), HERE), Ok(tid));
        }
        assert_eq!(Tid::new(HERE, HostId(3), 17).show(HERE), "t3.17");
    }

    #[test]
    fn a_hosts_number_is_read_as_it_is_shown() {
        for host in [HostId(1), HostId(u16::MAX)] {
            assert_eq!(HostId::parse(&host.to_string()), Some(host));
        }
        for text in ["", "h", "h0", "3", "h+3", "h65536", "h3x", "H3"] {
            assert_eq!(HostId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_malformed_tid_is_refused() {
        for text in [
            "",
            "t",
            "3.17",
            "t3",
            "t3.",
            "t3.99999999",
            "t70000.1",
            "t3.1@zz",
            "t3.1@1000000",
        ] {
            assert!(Tid::parse(text, HERE).is_err(), "{text}");
        }
    }
}
