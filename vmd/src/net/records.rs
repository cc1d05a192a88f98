//! Seals and opens the content of a link's records in place.
//!
//! The scheme is the one of the crate `snow`, which makes the handshake ([`vm_wire::seal`]). `snow`
//! itself seals and opens from one buffer into another; the additional copy of each byte costs
//! noticeable time for an image of a GiB.

use crate::net::secure_error::SecureError;
use snow::HandshakeState;
pub use vm_wire::seal::TAG;
use vm_wire::seal::Way;

/// The keys of both directions of a link.
pub struct Records {
    sealing: Way,
    opening: Way,
}

impl Records {
    /// The records that follow a finished handshake.
    pub fn after(noise: &mut HandshakeState) -> Records {
        assert!(noise.is_handshake_finished());
        let (first, second) = noise.dangerously_get_raw_split();
        let (sealing, opening) = match noise.is_initiator() {
            true => (first, second),
            false => (second, first),
        };
        Records {
            sealing: Way::new(&sealing),
            opening: Way::new(&opening),
        }
    }

    /// Seals all but the last [`TAG`] bytes, and writes the tag into the last [`TAG`] bytes.
    pub fn seal(&mut self, content: &mut [u8]) {
        self.sealing.seal(content);
    }

    /// Opens the sealed bytes from `sealed` to the end of `bytes`. The content is then at the
    /// beginning of `bytes`. Returns its length.
    ///
    /// # Errors
    /// [`SecureError::Record`]: the record is not the next one of the other end, or was changed.
    pub fn open(&mut self, bytes: &mut [u8], sealed: usize) -> Result<usize, SecureError> {
        let opened = self.opening.open(bytes, sealed);
        opened.map_err(|_| SecureError::Record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snow::{Builder, TransportState};

    /// Both ends after a handshake: one end with `Records`, the other end with the implementation
    /// of `snow`.
    fn ends(initiates: bool) -> (Records, TransportState) {
        let builder = || Builder::new("Noise_NN_25519_AESGCM_SHA256".parse().expect("a pattern"));
        let mut maker = builder().build_initiator().expect("nothing is missing");
        let mut other = builder().build_responder().expect("nothing is missing");
        let (mut said, mut heard) = ([0; 64], [0; 64]);
        let length = maker.write_message(&[], &mut said).expect("it fits");
        other
            .read_message(&said[..length], &mut heard)
            .expect("it is whole");
        let length = other.write_message(&[], &mut said).expect("it fits");
        maker
            .read_message(&said[..length], &mut heard)
            .expect("it is whole");
        let (mut ours, theirs) = match initiates {
            true => (maker, other),
            false => (other, maker),
        };
        let theirs = theirs.into_transport_mode().expect("it is over");
        (Records::after(&mut ours), theirs)
    }

    #[test]
    fn records_are_compatible_with_another_implementation() {
        for initiates in [true, false] {
            let (mut records, mut snow) = ends(initiates);
            for (round, length) in [0, 1, 15, 16, 17, 4096, 65_519].into_iter().enumerate() {
                let content: Vec<u8> = (0..length).map(|at| (at * 7 + round) as u8).collect();
                let mut sealed = content.clone();
                sealed.resize(length + TAG, 0);
                records.seal(&mut sealed);
                let mut opened = vec![0; length + TAG];
                let count = snow
                    .read_message(&sealed, &mut opened)
                    .expect("it is sealed");
                assert_eq!(opened[..count], content);

                // The record lies at varying distances behind the beginning of the buffer.
                let before = 3 * round;
                let mut bytes = vec![9; before + length + TAG];
                let count = snow.write_message(&content, &mut bytes[before..]);
                assert_eq!(count, Ok(length + TAG));
                assert_eq!(records.open(&mut bytes, before), Ok(length));
                assert_eq!(bytes[..length], content);
            }
        }
    }

    #[test]
    fn a_changed_or_short_record_is_not_opened() {
        let (mut records, mut snow) = ends(true);
        let mut bytes = vec![0; 20 + TAG];
        snow.write_message(&[5; 20], &mut bytes).expect("it fits");
        for at in [0, 19, 20, 35] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(records.open(&mut changed, 0), Err(SecureError::Record));
        }
        assert_eq!(
            records.open(&mut bytes[..TAG - 1], 0),
            Err(SecureError::Record)
        );
        assert_eq!(records.open(&mut [], 0), Err(SecureError::Record));
    }
}
