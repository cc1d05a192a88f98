//! Whether a stream that a process only passes on is an image with its end.

use crate::raw::records::{END, End, Plain, Section};

/// Bytes of an image's last section.
const LEN: usize = Section::LEN + End::LEN;

/// Looks whether an image ended with its last section. The process that writes an image may be
/// killed at any moment, and the stream then just ends. Nothing but the last section and the number
/// of bytes is checked.
#[derive(Debug)]
pub struct EndSeen {
    bytes: u64,
    /// The last bytes that passed.
    tail: [u8; LEN],
}

impl Default for EndSeen {
    fn default() -> Self {
        EndSeen {
            bytes: 0,
            tail: [0; LEN],
        }
    }
}

impl EndSeen {
    /// Notes the next bytes of the stream.
    pub fn passed(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(LEN)..];
        self.tail.rotate_left(last.len());
        self.tail[LEN - last.len()..].copy_from_slice(last);
        self.bytes += bytes.len() as u64;
    }

    /// Whether the bytes so far are an image with its end.
    pub fn is_whole(&self) -> bool {
        let (head, content) = self.tail.split_at(Section::LEN);
        let (Some(head), Some(end)) = (Section::from_prefix(head), End::from_prefix(content))
        else {
            return false;
        };
        let expected = Section::new(END, head.index, 0, content);
        head.bytes() == expected.bytes() && end.bytes.checked_add(LEN as u64) == Some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Codec;
    use crate::format::write::RecordWriter;

    fn read(image: &[u8], at_once: usize) -> bool {
        let mut seen = EndSeen::default();
        image.chunks(at_once).for_each(|part| seen.passed(part));
        seen.is_whole()
    }

    #[test]
    fn a_truncated_image_has_no_end() {
        let mut image = RecordWriter::new(Vec::new(), 4096, Codec::Plain).unwrap();
        image.section(1, 0, &[7; 300]).unwrap();
        let image = image.end().unwrap();
        for at_once in [1, 7, LEN, 4096] {
            assert!(read(&image, at_once));
            for cut in 0..image.len() {
                assert!(!read(&image[..cut], at_once), "{cut}");
            }
        }
        let longer = [&image[..], b"x"].concat();
        assert!(!read(&longer, 64));
        // The end belongs to a shorter image.
        let other = [b"x", &image[..]].concat();
        assert!(!read(&other, 64));
    }
}
