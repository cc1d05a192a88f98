//! Sealed content, one direction of a connection: links between daemons and direct connections
//! between tasks share it.
//!
//! The scheme is that of section 5.1 of the Noise specification, revision 34, with the cipher of its
//! section 12.4, AES-256-GCM: the nonce of a record is the number of records that the key has sealed
//! before. So a record that is changed, repeated, left out or taken from another place does not open.
//! A key seals in one direction of one connection only, and no copy of a process may seal with it: two
//! contents under one nonce would reveal both.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Length of the authentication tag that sealing appends. Bytes.
pub const TAG: usize = 16;
/// Length of a key. Bytes.
pub const KEY: usize = 32;

/// A record is not the next one of the other end, or was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record is not the next one of the other end, or was changed")]
pub struct NotAuthentic;

/// The key of one direction, and the number of records that it has sealed or opened. Sealing and
/// opening allocate nothing.
pub struct Way {
    key: LessSafeKey,
    count: u64,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Way");
        shown.field("count", &self.count).finish_non_exhaustive()
    }
}

impl Way {
    /// A direction without records.
    pub fn new(key: &[u8; KEY]) -> Way {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes");
        Way {
            key: LessSafeKey::new(key),
            count: 0,
        }
    }

    /// The nonce of the next record.
    fn nonce(&self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.count.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals all but the last [`TAG`] bytes in place, and writes the tag into the last [`TAG`] bytes.
    pub fn seal(&mut self, content: &mut [u8]) {
        let (content, room) = content.split_at_mut(content.len() - TAG);
        let tag = self
            .key
            .seal_in_place_separate_tag(self.nonce(), Aad::empty(), content)
            .expect("a record is shorter than the cipher allows");
        room.copy_from_slice(tag.as_ref());
        self.count += 1;
    }

    /// Opens the sealed bytes from `sealed` to the end of `bytes`. The content is then at the
    /// beginning of `bytes`. Returns its length.
    ///
    /// # Errors
    /// [`NotAuthentic`]: the other end did not seal these bytes as its next record.
    pub fn open(&mut self, bytes: &mut [u8], sealed: usize) -> Result<usize, NotAuthentic> {
        let content = self
            .key
            .open_within(self.nonce(), Aad::empty(), bytes, sealed..)
            .map_err(|_| NotAuthentic)?;
        self.count += 1;
        Ok(content.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_record_opens_and_only_unchanged() {
        let (mut sealing, mut opening) = (Way::new(&[7; KEY]), Way::new(&[7; KEY]));
        let mut sealed = |text: &[u8]| {
            let mut bytes = [text, &[0; TAG]].concat();
            sealing.seal(&mut bytes);
            bytes
        };
        let (first, second) = (sealed(b"first"), sealed(b"second"));
        assert_eq!(opening.open(&mut second.clone(), 0), Err(NotAuthentic));
        let mut changed = first.clone();
        changed[2] ^= 1;
        assert_eq!(opening.open(&mut changed, 0), Err(NotAuthentic));
        assert_eq!(opening.open(&mut [0; TAG - 1], 0), Err(NotAuthentic));
        for (mut bytes, text) in [(first, &b"first"[..]), (second, b"second")] {
            bytes.splice(..0, [9; 4]);
            assert_eq!(opening.open(&mut bytes, 4), Ok(text.len()));
            assert_eq!(&bytes[..text.len()], text);
        }
    }
}
