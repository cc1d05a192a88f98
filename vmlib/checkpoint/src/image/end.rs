//! An image that somebody else only passes on, and whether all of it came.

use crate::raw::format::{END, End, Plain, Section};
use std::io::{self, Read};

/// Bytes of the last section.
const LEN: usize = Section::LEN + End::LEN;

/// Passes an image on, and looks whether its last section came, as the last thing: who writes an
/// image may be ended at any moment. Nothing else of it is looked at.
#[derive(Debug)]
pub struct ToTheEnd<R> {
    source: R,
    bytes: u64,
    /// What came last.
    tail: [u8; LEN],
}

impl<R: Read> ToTheEnd<R> {
    /// What comes out of that.
    pub fn new(source: R) -> Self {
        ToTheEnd {
            source,
            bytes: 0,
            tail: [0; LEN],
        }
    }

    /// Whether what was read until now is an image with its end.
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

impl<R: Read> Read for ToTheEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        let last = &buffer[count.saturating_sub(LEN)..count];
        self.tail.rotate_left(last.len());
        self.tail[LEN - last.len()..].copy_from_slice(last);
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Codec, ImageWriter};

    fn read(image: &[u8], at_once: usize) -> bool {
        let mut source = ToTheEnd::new(image);
        let mut buffer = vec![0; at_once];
        while source.read(&mut buffer).unwrap() > 0 {}
        source.is_whole()
    }

    #[test]
    fn an_image_that_was_cut_anywhere_has_no_end() {
        let mut image = ImageWriter::new(Vec::new(), 4096, Codec::Plain).unwrap();
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
        // The end of another one.
        let other = [b"x", &image[..]].concat();
        assert!(!read(&other, 64));
    }
}
