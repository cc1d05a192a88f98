//! The checksum of the image: four CRC-32C in parallel, folded into 64 bits.
//!
//! The 64-bit words of the data go to the four lanes in turn. The processor's instruction takes
//! three cycles, but can begin one in each cycle: so the checksum costs little compared with the
//! copy of the data. A flipped bit changes one lane and, because a CRC is linear, always the sum.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The bytes that go to the lanes together: one word to each.
const STRIPE: usize = 32;
/// The initial values of the lanes.
#[cfg(target_arch = "x86_64")]
const FIRST: [u64; 4] = [u32::MAX as u64; 4];

/// A checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if has_instruction() {
        // SAFETY: the processor has the instruction.
        return unsafe { lanes_by_instruction(bytes) };
    }
    lanes_by_table(bytes)
}

/// Copies `bytes` to `to`, and returns their checksum. The copy bypasses the cache, because it is
/// not read soon. (One pass takes two thirds of the time of a checksum and then a copy.)
///
/// # Safety
/// There are `bytes.len()` bytes of memory at `to`, which do not overlap `bytes`, and no other code
/// accesses them meanwhile.
pub unsafe fn copied(bytes: &[u8], to: *mut u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if has_instruction() {
        // SAFETY: promised by the caller; the processor has the instruction.
        return unsafe { copied_by_instruction(bytes, to) };
    }
    // SAFETY: promised by the caller.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    lanes_by_table(bytes)
}

/// Mixes the checksum of a part with the part's number. The sum of all results does not depend on
/// the order of the parts.
pub fn mixed(sum: u64, index: u32) -> u64 {
    // A bijection for each index (the finaliser of splitmix64), so that equal parts do not cancel
    // out.
    let mut z = sum ^ ((u64::from(index) << 32) | 0x9e37_79b9);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(target_arch = "x86_64")]
fn has_instruction() -> bool {
    // On a virtual machine CPUID is slow.
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Relaxed) {
        0 => {
            // SSE 4.2: bit 20 of ECX in leaf 1.
            let has = core::arch::x86_64::__cpuid(1).ecx & 1 << 20 != 0;
            KNOWN.store(1 + u8::from(has), Relaxed);
            has
        }
        known => known == 2,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn lanes_by_instruction(bytes: &[u8]) -> u64 {
    let mut lanes = FIRST;
    let (stripes, rest) = bytes.as_chunks();
    for stripe in stripes {
        take(&mut lanes, stripe);
    }
    folded(lanes, rest, bytes.len())
}

/// The size of a store that bypasses the cache. Bytes.
#[cfg(target_arch = "x86_64")]
const STREAMED: usize = 16;

/// # Safety
/// As for [`copied`], and the processor has the instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn copied_by_instruction(bytes: &[u8], to: *mut u8) -> u64 {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let mut lanes = FIRST;
    let (stripes, rest) = bytes.as_chunks::<STRIPE>();
    // The bytes before the first aligned store, and behind the last one.
    let before = to.align_offset(STREAMED).min(bytes.len());
    let count = (bytes.len() - before) / STRIPE;
    let behind = before + count * STRIPE;
    let (from, at) = (bytes.as_ptr().wrapping_add(before), to.wrapping_add(before));
    for (stripe, place) in stripes[..count].iter().zip((0..).step_by(STRIPE)) {
        for half in [place, place + STREAMED] {
            // SAFETY: within `bytes` and within the memory at `to`, at an aligned place.
            unsafe {
                let value = _mm_loadu_si128(from.add(half).cast());
                _mm_stream_si128(at.add(half).cast(), value);
            }
        }
        take(&mut lanes, stripe);
    }
    for stripe in &stripes[count..] {
        take(&mut lanes, stripe);
    }
    // SAFETY: both parts are within `bytes` and within the memory at `to`.
    unsafe {
        to.copy_from_nonoverlapping(bytes.as_ptr(), before);
        to.add(behind)
            .copy_from_nonoverlapping(bytes.as_ptr().add(behind), bytes.len() - behind);
    }
    // Orders these stores before later ones.
    _mm_sfence();
    folded(lanes, rest, bytes.len())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn take(lanes: &mut [u64; 4], stripe: &[u8; STRIPE]) {
    let (words, _) = stripe.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane = core::arch::x86_64::_mm_crc32_u64(*lane, u64::from_le_bytes(*word));
    }
}

/// Folds the lanes, the bytes behind the last stripe, and the length of the data into the checksum.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn folded(mut lanes: [u64; 4], rest: &[u8], len: usize) -> u64 {
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let mut last = lanes[0] as u32;
    for byte in rest {
        last = _mm_crc32_u8(last, *byte);
    }
    lanes[0] = u64::from(last);
    let mut sums = [0u64; 2];
    for (index, sum) in sums.iter_mut().enumerate() {
        let mut crc = _mm_crc32_u64(u64::from(u32::MAX), len as u64);
        for step in 0..4 {
            crc = _mm_crc32_u64(
                crc,
                lanes[if index == 0 { step } else { 3 - step }] + step as u64,
            );
        }
        *sum = crc;
    }
    (sums[0] << 32) | sums[1]
}

fn lanes_by_table(bytes: &[u8]) -> u64 {
    let mut lanes = [!0u32; 4];
    let (stripes, rest) = bytes.as_chunks::<STRIPE>();
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = by_table(*lane, word);
        }
    }
    lanes[0] = by_table(lanes[0], rest);
    let mut sums = [0u64; 2];
    for (index, sum) in sums.iter_mut().enumerate() {
        let mut crc = by_table(!0, &(bytes.len() as u64).to_le_bytes());
        for step in 0..4 {
            let lane = lanes[if index == 0 { step } else { 3 - step }];
            crc = by_table(crc, &(u64::from(lane) + step as u64).to_le_bytes());
        }
        *sum = u64::from(crc);
    }
    (sums[0] << 32) | sums[1]
}

fn by_table(mut crc: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        crc = (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ *byte)];
    }
    crc
}

/// CRC-32C (Castagnoli), reflected.
static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (((at * at) >> 3) ^ at) as u8).collect()
    }

    #[test]
    fn the_lanes_are_those_of_crc_32c() {
        // The check value of the catalogue of CRCs.
        assert_eq!(!by_table(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn instruction_and_table_agree() {
        for len in [0, 1, 7, 8, 31, 32, 33, 63, 64, 100, 4096, 5000] {
            assert_eq!(checksum(&bytes(len)), lanes_by_table(&bytes(len)), "{len}");
        }
    }

    #[test]
    fn a_copy_has_the_same_checksum_and_changes_nothing_around_it() {
        for len in [0, 1, 15, 16, 31, 32, 33, 47, 48, 64, 100, 4096, 5000] {
            for from in [0, 1, 8] {
                let bytes = &bytes(len + from)[from..];
                for to in [0, 1, 7, 8, 15, 16] {
                    let mut copy = vec![9; to + len + 20];
                    // SAFETY: there is room.
                    let sum = unsafe { copied(bytes, copy.as_mut_ptr().add(to)) };
                    assert_eq!(sum, checksum(bytes), "{len}");
                    assert_eq!(copy[to..to + len], *bytes);
                    assert_eq!(copy[..to], vec![9; to]);
                    assert_eq!(copy[to + len..], [9; 20]);
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_lost_byte_changes_it() {
        let good = bytes(200);
        let sum = checksum(&good);
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bad), sum, "{bit}");
        }
        let zeros = [0; 100];
        for len in 0..100 {
            assert_ne!(checksum(&zeros[..len]), checksum(&zeros[..=len]), "{len}");
        }
    }

    #[test]
    fn swapped_parts_change_the_sum() {
        let sum = |a, b| mixed(a, 0).wrapping_add(mixed(b, 1));
        assert_ne!(sum(7, 9), sum(9, 7));
        assert_ne!(mixed(7, 3).wrapping_add(mixed(7, 4)), 0);
    }
}
