//! Finds where the blocks of an image begin. The difference from an earlier image is found block by
//! block.
//!
//! Memory lies in an image as whole pages, in sections with heads between them
//! (`docs/image-format.md`). The payload of each section is cut into blocks from its beginning. So
//! an unchanged page is the same block, wherever it stands in the image.
//!
//! Other streams are cut as well. In a stream with other heads, or without heads, fewer blocks
//! equal the blocks of an earlier stream, so more bytes are stored.

use crate::limits::BLOCK;

const PREFIX: usize = 32;
const PREFIX_MAGIC: &[u8] = b"VMIMAGE\n";
const HEAD: usize = 64;
const HEAD_MAGIC: &[u8] = b"SECT";
/// Place in a head of the length of the payload behind it: 8 bytes, little-endian.
const STORED_LEN: std::ops::Range<usize> = 32..40;

/// The next piece of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Length of the piece: at least one byte, at most a block. Bytes.
    pub len: usize,
    /// The piece is a whole block.
    pub block: bool,
}

/// Cuts one stream into pieces.
#[derive(Debug)]
pub(crate) struct Blocks(At);

#[derive(Debug)]
enum At {
    Prefix,
    Head,
    /// Bytes that are left of the payload.
    Payload(u64),
}

impl Blocks {
    pub fn new() -> Self {
        Blocks(At::Prefix)
    }

    /// The next piece of the stream; `bytes` are the next bytes of the stream. `None`: `bytes` are
    /// too few to tell; at the end of the stream they are no block.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Piece> {
        if let At::Prefix = self.0 {
            let prefix = bytes.get(..PREFIX)?;
            if prefix.starts_with(PREFIX_MAGIC) {
                self.0 = At::Head;
                return Some(Piece::no_block(PREFIX));
            }
            self.0 = At::Payload(u64::MAX);
        }
        if let At::Head = self.0 {
            let head = bytes.get(..HEAD)?;
            if head.starts_with(HEAD_MAGIC) {
                let stored_len = head[STORED_LEN].try_into().map(u64::from_le_bytes);
                self.0 = after(stored_len.expect("eight bytes of a head"));
                return Some(Piece::no_block(HEAD));
            }
            self.0 = At::Payload(u64::MAX);
        }
        let At::Payload(left) = self.0 else {
            unreachable!("prefix and head were looked at");
        };
        let len = left.min(BLOCK as u64) as usize;
        if bytes.len() < len {
            return None;
        }
        self.0 = after(left - len as u64);
        let block = len == BLOCK;
        Some(Piece { len, block })
    }
}

impl Piece {
    fn no_block(len: usize) -> Self {
        let block = false;
        Piece { len, block }
    }
}

fn after(left: u64) -> At {
    match left {
        0 => At::Head,
        left => At::Payload(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::image::Image;

    /// The offset, the length and the kind (block or not) of each piece of a whole stream.
    fn pieces(stream: &[u8]) -> Vec<(usize, usize, bool)> {
        let mut blocks = Blocks::new();
        let mut at = 0;
        let mut found = Vec::new();
        while let Some(Piece { len, block }) = blocks.next(&stream[at..]) {
            assert!(len > 0 && len <= BLOCK && at + len <= stream.len());
            found.push((at, len, block));
            at += len;
        }
        found
    }

    #[test]
    fn pages_of_sections_are_blocks_and_heads_are_not() {
        let stream = Image::new()
            .section(&[1; 100])
            .section(&[])
            .section(&[2; 2 * BLOCK + 5])
            .bytes();
        let first = PREFIX + HEAD + 100 + HEAD;
        let expected = [
            (0, PREFIX, false),
            (PREFIX, HEAD, false),
            (PREFIX + HEAD, 100, false),
            (PREFIX + HEAD + 100, HEAD, false),
            (first, HEAD, false),
            (first + HEAD, BLOCK, true),
            (first + HEAD + BLOCK, BLOCK, true),
            (first + HEAD + 2 * BLOCK, 5, false),
        ];
        assert_eq!(pieces(&stream), expected);
    }

    #[test]
    fn what_is_no_image_has_blocks_too() {
        let stream = vec![7; 3 * BLOCK + 9];
        let expected = [0, 1, 2].map(|n| (n * BLOCK, BLOCK, true));
        assert_eq!(pieces(&stream), expected);
        assert_eq!(pieces(&[]), []);
        let broken = Image::new().section(&[1; 10]).bytes();
        let broken = [&broken[..], &[0; 2 * BLOCK]].concat();
        assert_eq!(pieces(&broken).len(), 5);
    }

    #[test]
    fn a_head_may_promise_anything() {
        let mut stream = Image::new().section(&[1; BLOCK]).bytes();
        stream[PREFIX + STORED_LEN.start..][..8].fill(0xff);
        assert_eq!(pieces(&stream).len(), 3);
    }
}
