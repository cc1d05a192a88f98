//! Direct connections: messages between two tasks of different hosts, past their daemons.
//!
//! One of the two tasks dials the port of the other task's daemon and sends an opening. The daemon
//! proves the opening, and hands the connection to its task. Each connection has a secret of its own,
//! which both tasks got from their daemons.
//!
//! | offset | bytes | field of the opening |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 8 | number of the connection, little-endian |
//! | 16 | 32 | proof: HMAC-SHA256, under the secret, of a label, the number and the tids of both ends |
//!
//! After the opening the connection carries frames: [`Op::Data`](crate::Op::Data) and
//! [`Op::Ack`](crate::Op::Ack) alone. They are sealed, unless the links of the machine are plain: a
//! record is four bytes of length, little-endian, and that many sealed bytes ([`crate::seal`]), at
//! most [`SEALED_MAX`]. The content of a record is one frame. Each direction has its own key.

use crate::{
    frame::HEADER_LEN,
    id::Tid,
    limits,
    seal::{KEY, TAG, Way},
};
use ring::hmac::{self, HMAC_SHA256};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};
use zeroize::{Zeroize, Zeroizing};

/// First bytes of a direct connection.
pub const MAGIC: &[u8; 8] = b"vm-task\x01";
/// Length of a proof. Bytes.
pub const PROOF: usize = 32;
/// Length of the opening: [`MAGIC`], the number of the connection, and the proof. Bytes.
pub const OPENING: usize = MAGIC.len() + 8 + PROOF;
/// Bytes of the stack that [`wipe_stack`] overwrites: more than the derivation of keys uses.
const STACK_WIPED: usize = 16 * 1024;
/// Length of the length of a record. Bytes.
pub const LENGTH: usize = 4;
/// Largest content of a record: a whole chunk. Bytes.
pub const CONTENT_MAX: usize = HEADER_LEN + limits::CHUNK_MAX;
/// Largest number of sealed bytes in a record.
pub const SEALED_MAX: usize = CONTENT_MAX + TAG;

/// The secret of one direct connection. It is in one place of the heap, and is wiped there when it is
/// dropped: an image of a task must not hold it.
#[derive(PartialEq, Eq)]
pub struct Secret(Box<Zeroizing<[u8; KEY]>>);

impl Clone for Secret {
    fn clone(&self) -> Self {
        Secret::copied(self.bytes())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.bytes())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(ReadSecret)
    }
}

/// Reads a secret straight into its place.
struct ReadSecret;

impl Visitor<'_> for ReadSecret {
    type Value = Secret;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{KEY} bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Secret, E> {
        let secret = bytes.try_into().map(Secret::copied);
        secret.map_err(|_| E::invalid_length(bytes.len(), &self))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// One of the two ends of a direct connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The task that dials.
    Dials,
    /// The task to which its daemon hands the connection.
    Accepts,
}

/// The direct connection of two tasks: what both ends know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Number of the connection.
    pub id: u64,
    /// The task that dials, and the task that accepts.
    pub ends: [Tid; 2],
    /// The secret of the connection.
    pub secret: Secret,
}

/// The keys of one end of a direct connection.
#[derive(Debug)]
pub struct Ways {
    /// Seals what this end writes.
    pub sealing: Way,
    /// Opens what this end reads.
    pub opening: Way,
}

impl Secret {
    /// The secret with these bytes, which have to be random.
    pub fn new(bytes: [u8; KEY]) -> Secret {
        Secret::copied(&bytes)
    }

    fn copied(bytes: &[u8; KEY]) -> Secret {
        let mut secret = Secret(Box::new(Zeroizing::new([0; KEY])));
        secret.0.copy_from_slice(bytes);
        secret
    }

    /// The secret of the connection with that number, from random bytes that one daemon keeps.
    pub fn derived(seed: &[u8; KEY], id: u64) -> Secret {
        let key = hmac::Key::new(HMAC_SHA256, seed);
        let text = [&id.to_le_bytes()[..], b"vm direct connection: secret"].concat();
        let mut secret = Secret::new([0; KEY]);
        secret.0.copy_from_slice(hmac::sign(&key, &text).as_ref());
        secret
    }

    /// The bytes, for the memory that no image holds.
    pub fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }
}

/// Overwrites what calls before this one have left on the stack, below the frame of the caller: the code
/// that derives keys and expands them does not wipe its own copies.
#[inline(never)]
pub fn wipe_stack() {
    let mut used = [1; STACK_WIPED];
    used.zeroize();
    std::hint::black_box(&used);
}

impl Connection {
    /// The opening, which the dialling task writes first. The caller wipes the stack.
    #[inline(never)]
    pub fn opening(&self) -> [u8; OPENING] {
        let mut bytes = [0; OPENING];
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        let (id, proof) = rest.split_at_mut(8);
        magic.copy_from_slice(MAGIC);
        id.copy_from_slice(&self.id.to_le_bytes());
        proof.copy_from_slice(self.derived("vm direct connection: proof").as_ref());
        bytes
    }

    /// Whether an opening with this proof is that of this connection. The time that the comparison
    /// takes does not depend on the bytes of the proof.
    pub fn is_proved_by(&self, proof: &[u8; PROOF]) -> bool {
        let (key, text) = self.text("vm direct connection: proof");
        hmac::verify(&key, &text, proof).is_ok()
    }

    /// The keys of an end. The caller wipes the stack.
    #[inline(never)]
    pub fn ways(&self, end: End) -> Ways {
        let key = |label| {
            let mut key = Zeroizing::new([0; KEY]);
            key.copy_from_slice(self.derived(label).as_ref());
            Way::new(&key)
        };
        let dialler = key("vm direct connection: key of the task that dials");
        let acceptor = key("vm direct connection: key of the task that accepts");
        let (sealing, opening) = match end {
            End::Dials => (dialler, acceptor),
            End::Accepts => (acceptor, dialler),
        };
        Ways { sealing, opening }
    }

    fn derived(&self, label: &str) -> hmac::Tag {
        let (key, text) = self.text(label);
        hmac::sign(&key, &text)
    }

    fn text(&self, label: &str) -> (hmac::Key, Vec<u8>) {
        let [dials, accepts] = self.ends.map(|tid| tid.0.to_le_bytes());
        let id = self.id.to_le_bytes();
        // The label is last, because its length varies.
        let text = [&id[..], &dials, &accepts, label.as_bytes()].concat();
        (hmac::Key::new(HMAC_SHA256, self.secret.bytes()), text)
    }
}

/// The number and the proof of an opening; `None` if these bytes do not begin with [`MAGIC`].
pub fn read_opening(bytes: &[u8; OPENING]) -> Option<(u64, [u8; PROOF])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (id, proof) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*id), *proof.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{HostId, MachineId};

    fn connection() -> Connection {
        let tid = |host| Tid::new(MachineId::from_bits(1), HostId(host), 7);
        Connection {
            id: 9,
            ends: [tid(1), tid(2)],
            secret: Secret::new([3; KEY]),
        }
    }

    #[test]
    fn an_opening_proves_its_connection_and_no_other() {
        let right = connection();
        let opening = right.opening();
        let (id, proof) = read_opening(&opening).expect("it begins with the magic");
        assert_eq!(id, 9);
        assert!(right.is_proved_by(&proof));
        let other = |change: &dyn Fn(&mut Connection)| {
            let mut other = connection();
            change(&mut other);
            other.is_proved_by(&proof)
        };
        assert!(!other(&|it| it.id = 8));
        assert!(!other(&|it| it.ends.reverse()));
        assert!(!other(&|it| it.secret = Secret::new([4; KEY])));
        assert_eq!(read_opening(&[0; OPENING]), None);
    }

    #[test]
    fn each_direction_has_a_key_that_both_ends_share() {
        let mut dials = connection().ways(End::Dials);
        let mut accepts = connection().ways(End::Accepts);
        let mut bytes = [5; 8 + TAG];
        dials.sealing.seal(&mut bytes);
        let mut returned = bytes;
        assert!(dials.opening.open(&mut returned, 0).is_err());
        assert_eq!(accepts.opening.open(&mut bytes, 0), Ok(8));
        let mut bytes = [6; 8 + TAG];
        accepts.sealing.seal(&mut bytes);
        assert_eq!(dials.opening.open(&mut bytes, 0), Ok(8));
        assert_eq!(bytes[..8], [6; 8]);
    }

    #[test]
    fn a_secret_is_wiped_in_its_only_place_when_it_is_dropped() {
        // A move of the secret copies a pointer.
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let secret = Secret::new([3; KEY]);
        is_wiped(&*secret.0);
        let place = secret.bytes().as_ptr();
        let moved = secret;
        assert_eq!(moved.bytes().as_ptr(), place);
        assert!(moved.clone() == moved);
    }

    #[test]
    fn a_secret_of_another_length_is_none() {
        let bytes = |len| rmp_serde::to_vec(serde_bytes::Bytes::new(&vec![4; len]));
        let read = |len| rmp_serde::from_slice::<Secret>(&bytes(len).expect("bytes"));
        assert!(read(KEY).is_ok_and(|secret| secret == Secret::new([4; KEY])));
        assert!(read(KEY - 1).is_err() && read(KEY + 1).is_err());
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new([3; KEY])), "Secret(..)");
    }
}
