//! Which algorithm a call uses: one table, by collective, number of members, and length.
//!
//! All members must come to the same choice. So a choice depends only on what all of them know: a
//! length that all know for equal counts, or that the first message of a broadcast tells.
//!
//! Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005)
//! describes the algorithms.

use super::op::Operands;

/// Payload of a message of a long transfer. With its stamp it fits into one chunk of the channel, so
/// the receiver need not put it together. A multiple of the length of every item but for a rest.
pub(super) const SEGMENT_BYTES: usize = 60 * 1024;

/// Payload of a message of a long broadcast on one host. Each member reads it from the memory of the
/// root, which keeps one such message at a time. Bytes.
pub(super) const LENT_SEGMENT_BYTES: usize = 1024 * 1024;

/// Up to this number of members, one member is the parent of all others in barriers, in short
/// reductions to all, and in long broadcasts on one host. On few cores a step of a tree, which wakes a
/// process, takes longer than several messages of one process.
pub(crate) const FLAT_MEMBERS: usize = 16;
/// Up to this length a reduction to all is short. Bytes.
const FLAT_BYTES: usize = 4 * 1024;
/// From this length on, a reduction to all divides the values among the members. Bytes.
const DIVIDED_BYTES: usize = 32 * 1024;
/// Up to this length of all blocks together, blocks are passed on in few steps. Bytes.
const GATHERED_BYTES: usize = 64 * 1024;
/// Up to this length of one block, blocks are exchanged in few steps. Bytes.
const EXCHANGED_BYTES: usize = 1024;
/// From this number of members on, blocks are exchanged in few steps.
const EXCHANGED_MEMBERS: usize = 8;

/// A kind of collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Collective {
    /// One member's bytes go to all.
    Broadcast = 1,
    /// The values of all are combined at one member.
    Reduce,
    /// The values of all are combined, for all.
    Allreduce,
    /// Each member gets the combined values of the lower instances.
    Scan,
    /// One member gets the blocks of all.
    Gather,
    /// Each member gets a block of one member.
    Scatter,
    /// All members get the blocks of all.
    Allgather,
    /// Each member gets a block of each.
    Alltoall,
    /// As `Gather`, with lengths that only the sender of a block knows.
    GatherBytes,
    /// As `Allgather`, with lengths that only the sender of a block knows.
    AllgatherBytes,
    /// As `Alltoall`, with lengths that only the sender of a block knows.
    AlltoallBytes,
}

/// An algorithm of a collective call. `n` is the number of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// One member receives from all others, and sends to all others: 2 steps.
    Flat,
    /// A binomial tree: `log2 n` steps. Long values go through it in segments, one after the other.
    Binomial,
    /// Segments that each member passes on to the next one.
    Chain,
    /// Exchanges with members at distances 1, 2, 4, ...: `log2 n` steps with all values.
    RecursiveDoubling,
    /// Rabenseifner's: the values are divided by halves, reduced, and gathered again:
    /// `2 log2 n` steps.
    Halving,
    /// The values are divided into `n` blocks that go around a ring: `2 (n - 1)` steps; blocks that are
    /// only gathered: `n - 1`.
    Ring,
    /// A reduction by a tree, in the order of the instances, and a broadcast.
    ReduceThenBroadcast,
    /// Bruck's: messages of several blocks to members at distances 1, 2, 4, ...: `log2 n` steps. In an
    /// exchange with radix 4: at distances 1, 2, 3, 4, 8, 12, ... (Bruck, Ho, Kipnis, Upfal, Weathersby:
    /// Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems, IEEE TPDS
    /// 1997, section 3).
    Bruck,
    /// Each block goes directly from its sender to its receiver.
    Direct,
}

/// The algorithm of a call of `members` members. `bytes` is the length of one member's values: of
/// the whole for a broadcast and a reduction, of one block for the others; 0 if the members do not all
/// know it.
pub fn algorithm(
    collective: Collective,
    members: usize,
    bytes: usize,
    operands: Operands,
) -> Algorithm {
    match collective {
        // A chain moves each segment once over each member; it pays once there are more segments
        // than members.
        Collective::Broadcast if bytes / SEGMENT_BYTES >= members.max(3) => Algorithm::Chain,
        Collective::Broadcast | Collective::Reduce => Algorithm::Binomial,
        Collective::Allreduce if bytes <= FLAT_BYTES && members <= FLAT_MEMBERS => Algorithm::Flat,
        Collective::Allreduce if operands == Operands::ByInstance => Algorithm::ReduceThenBroadcast,
        Collective::Allreduce if bytes < DIVIDED_BYTES => Algorithm::RecursiveDoubling,
        Collective::Allreduce if members.is_power_of_two() => Algorithm::Halving,
        Collective::Allreduce => Algorithm::Ring,
        Collective::Scan => Algorithm::RecursiveDoubling,
        Collective::Gather if bytes.saturating_mul(members) <= GATHERED_BYTES => {
            Algorithm::Binomial
        }
        Collective::Allgather if bytes.saturating_mul(members) <= GATHERED_BYTES => {
            Algorithm::Bruck
        }
        Collective::Allgather | Collective::AllgatherBytes => Algorithm::Ring,
        Collective::Alltoall if bytes <= EXCHANGED_BYTES && members >= EXCHANGED_MEMBERS => {
            Algorithm::Bruck
        }
        Collective::Gather
        | Collective::Scatter
        | Collective::Alltoall
        | Collective::GatherBytes
        | Collective::AlltoallBytes => Algorithm::Direct,
    }
}

/// The algorithm of a broadcast. `on_one_host`: all members were spawned on one host. There each member
/// reads long values once, from the memory of the root, where a chain writes and reads them at each
/// member.
pub fn of_broadcast(members: usize, bytes: usize, on_one_host: bool) -> Algorithm {
    match algorithm(Collective::Broadcast, members, bytes, Operands::AnyOrder) {
        Algorithm::Chain if on_one_host && members <= FLAT_MEMBERS => Algorithm::Flat,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(collective: Collective, members: usize, bytes: usize) -> Algorithm {
        algorithm(collective, members, bytes, Operands::AnyOrder)
    }

    #[test]
    fn short_values_take_few_steps_and_long_ones_are_divided() {
        let allreduce = |members, bytes| of(Collective::Allreduce, members, bytes);
        assert_eq!(allreduce(16, 8), Algorithm::Flat);
        assert_eq!(allreduce(17, 8), Algorithm::RecursiveDoubling);
        assert_eq!(allreduce(16, 8_000), Algorithm::RecursiveDoubling);
        assert_eq!(allreduce(16, 1 << 20), Algorithm::Halving);
        assert_eq!(allreduce(12, 1 << 20), Algorithm::Ring);
        let broadcast = |members, bytes| of(Collective::Broadcast, members, bytes);
        assert_eq!(broadcast(16, 1 << 16), Algorithm::Binomial);
        assert_eq!(broadcast(16, 1 << 24), Algorithm::Chain);
        assert_eq!(broadcast(1000, 1 << 24), Algorithm::Binomial);
        assert_eq!(of_broadcast(16, 1 << 24, true), Algorithm::Flat);
        assert_eq!(of_broadcast(16, 1 << 24, false), Algorithm::Chain);
        assert_eq!(of_broadcast(17, 1 << 24, true), Algorithm::Chain);
        assert_eq!(of_broadcast(16, 1 << 16, true), Algorithm::Binomial);
        assert_eq!(of(Collective::Allgather, 16, 8), Algorithm::Bruck);
        assert_eq!(of(Collective::Allgather, 16, 1 << 20), Algorithm::Ring);
        assert_eq!(of(Collective::Alltoall, 16, 8), Algorithm::Bruck);
        assert_eq!(of(Collective::Alltoall, 4, 8), Algorithm::Direct);
        assert_eq!(of(Collective::Gather, 16, 1 << 20), Algorithm::Direct);
    }

    #[test]
    fn operands_in_order_never_go_around_a_ring() {
        for bytes in [8_000, 1 << 20] {
            let choice = algorithm(Collective::Allreduce, 7, bytes, Operands::ByInstance);
            assert_eq!(choice, Algorithm::ReduceThenBroadcast);
        }
    }
}
