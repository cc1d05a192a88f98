//! LZ4 blocks for code without an allocator. The format is that of `lz4_Block_format.md` of the LZ4
//! project; the tests compare with the crate `lz4_flex`.
//!
//! That crate needs no allocator since 0.14, and still cannot be used here:
//!
//! - Its feature `alloc` decides whether `compress_into` takes its table from the allocator. Cargo
//!   unites features over all crates of a program. So any other dependency of a program that is
//!   saved could turn `alloc` on, and a save would allocate while threads are stopped, when a
//!   stopped thread may hold the lock of the allocator.
//! - The restorer is compiled without Cargo and without crates. The restorer shares the
//!   decompressor with the library.

/// The number of places in the compressor's table.
pub const TABLE: usize = 4096;
/// The shortest match. Bytes.
const MATCH_MIN: usize = 4;
/// The number of bytes at the end of a block that are always literals.
const TAIL: usize = 5;
/// The number of bytes at the end of a block in which no match begins.
const MATCH_END: usize = 12;
/// The largest distance of a match. Bytes.
const BACK_MAX: usize = 65_535;

/// Compresses `input` into `output`. Returns the length of the block; `None` if `output` is too
/// short.
pub fn compress(input: &[u8], output: &mut [u8], table: &mut [u32; TABLE]) -> Option<usize> {
    table.fill(0);
    let mut out = Writer { output, len: 0 };
    let mut anchor = 0;
    let mut at = 0;
    let limit = input.len().saturating_sub(MATCH_END);
    while at < limit {
        let word = word(input, at);
        let slot = &mut table[(word.wrapping_mul(2_654_435_761) >> 20) as usize];
        // Places are counted from 1; 0 means none.
        let before = core::mem::replace(slot, at as u32 + 1) as usize;
        let hit =
            before > 0 && at + 1 - before <= BACK_MAX && self::word(input, before - 1) == word;
        if !hit {
            // The longer no match is found, the larger the steps.
            at += 1 + ((at - anchor) >> 6);
            continue;
        }
        let from = before - 1;
        let mut len = MATCH_MIN;
        while at + len < input.len() - TAIL && input[from + len] == input[at + len] {
            len += 1;
        }
        out.sequence(&input[anchor..at], Some((at - from, len)))?;
        at += len;
        anchor = at;
    }
    out.sequence(&input[anchor..], None)?;
    Some(out.len)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

struct Writer<'a> {
    output: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let room = self.output.get_mut(self.len..self.len + bytes.len())?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// Writes the part of a length beyond the four bits of the token.
    fn length(&mut self, len: usize) -> Option<()> {
        if let Some(mut rest) = len.checked_sub(15) {
            while rest >= 255 {
                self.put(&[255])?;
                rest -= 255;
            }
            self.put(&[rest as u8])?;
        }
        Some(())
    }

    /// Writes literals, then a match, as its distance and length.
    fn sequence(&mut self, literals: &[u8], found: Option<(usize, usize)>) -> Option<()> {
        let more = found.map_or(0, |(_, len)| len - MATCH_MIN);
        self.put(&[(literals.len().min(15) << 4 | more.min(15)) as u8])?;
        self.length(literals.len())?;
        self.put(literals)?;
        if let Some((back, _)) = found {
            self.put(&(back as u16).to_le_bytes())?;
            self.length(more)?;
        }
        Some(())
    }
}

/// Decompresses a block into all of `output`; `None` if the block is invalid or does not fill it.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let (mut at, mut len) = (0usize, 0usize);
    loop {
        let token = *input.get(at)?;
        at += 1;
        let literals = length(input, &mut at, usize::from(token >> 4))?;
        let from = input.get(at..at.checked_add(literals)?)?;
        output
            .get_mut(len..len.checked_add(literals)?)?
            .copy_from_slice(from);
        at += literals;
        len += literals;
        if at == input.len() {
            return (len == output.len()).then_some(());
        }
        let back = usize::from(u16::from_le_bytes([*input.get(at)?, *input.get(at + 1)?]));
        at += 2;
        let count = length(input, &mut at, usize::from(token & 15))? + MATCH_MIN;
        if back == 0 || back > len || count > output.len() - len {
            return None;
        }
        if back >= count {
            output.copy_within(len - back..len - back + count, len);
        } else {
            // The match overlaps its own output.
            for place in len..len + count {
                output[place] = output[place - back];
            }
        }
        len += count;
    }
}

fn length(input: &[u8], at: &mut usize, bits: usize) -> Option<usize> {
    let mut len = bits;
    if bits == 15 {
        loop {
            let more = *input.get(*at)?;
            *at += 1;
            len = len.checked_add(usize::from(more))?;
            if more != 255 {
                break;
            }
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compressed(input: &[u8]) -> Vec<u8> {
        let mut output = vec![0; 2 * input.len() + 16];
        let len = compress(input, &mut output, &mut [0; TABLE]).expect("there is room");
        output.truncate(len);
        output
    }

    /// Bytes with repetitions.
    fn inputs() -> impl Strategy<Value = Vec<u8>> {
        let part = (prop::collection::vec(any::<u8>(), 1..20), 1..40usize);
        prop::collection::vec(part, 0..30).prop_map(|parts| {
            parts
                .into_iter()
                .flat_map(|(part, times)| part.repeat(times))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn compressed_data_is_decompressed_here_and_by_the_crate(input in inputs()) {
            let block = compressed(&input);
            let mut output = vec![0; input.len()];
            prop_assert_eq!(decompress(&block, &mut output), Some(()));
            prop_assert_eq!(&output, &input);
            prop_assert_eq!(lz4_flex::block::decompress(&block, input.len()).ok(), Some(input));
        }

        #[test]
        fn data_compressed_by_the_crate_is_decompressed_here(input in inputs()) {
            let block = lz4_flex::block::compress(&input);
            let mut output = vec![0; input.len()];
            prop_assert_eq!(decompress(&block, &mut output), Some(()));
            prop_assert_eq!(output, input);
        }

        #[test]
        fn arbitrary_bytes_cause_no_panic(
            block in prop::collection::vec(any::<u8>(), 0..200), len in 0..500usize
        ) {
            let _ = decompress(&block, &mut vec![0; len]);
        }
    }

    #[test]
    fn repetitions_get_small_and_a_short_output_is_an_error() {
        let input = b"abcdefgh".repeat(10_000);
        assert!(compressed(&input).len() < input.len() / 100);
        assert_eq!(compress(&input, &mut [0; 100], &mut [0; TABLE]), None);
    }
}
