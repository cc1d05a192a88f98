//! The bytes of a link: a handshake that proves the machine's secret, then sealed records.
//!
//! ```text
//! maker                                   other end
//! "vm-link" version mode, record(e) ->
//!                                      <- record(e, ee)      Noise_NNpsk0_25519_AESGCM_SHA256
//! sealed frames                       <-> sealed frames      the first is Hello
//! ```
//!
//! The pattern NNpsk0 mixes the secret's key into every record. The first record proves that the
//! maker knows the secret, or repeats a recorded opening. The second record proves the same of the
//! other end. A repeated first record has no effect: nothing counts before a sealed Hello, which
//! only the owner of the fresh key can make. Both ephemeral keys are forgotten with the link, so a
//! secret that leaks later opens no recorded traffic.
//!
//! A record is its length in two bytes, little-endian, then that many bytes. Length zero is an
//! alert: one more byte gives the reason why the other end refuses. An alert is not sealed: an
//! attacker who can forge one can also cut the connection.
//!
//! On links that the user wants unencrypted ([`Mode::Plain`]) each end seals its first record,
//! Hello, and writes plain frames after it. The mode is in the first bytes, so a difference is
//! detected and named. This module does no I/O.

use crate::{
    net::{
        records::{Records, TAG},
        secure_error::SecureError,
    },
    start::secret::Secret,
};
use bytes::{Buf, BytesMut};
use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};
use vm_wire::FrameReader;

/// The Noise protocol of the links.
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// First bytes of a link: the kind of connection, and the version of the handshake.
const MAGIC: &[u8; 8] = b"vm-link\x01";
/// Length of the magic and the mode. Bytes.
const OPENING: usize = MAGIC.len() + 1;
/// Length of a record's length field. Bytes.
pub const LENGTH: usize = 2;
/// Length of each record of the handshake: an ephemeral key and a tag. Bytes.
const SHAKE: usize = 32 + TAG;
/// Overhead of a record. Bytes.
pub const SEALED: usize = LENGTH + TAG;
/// Bound on the plain bytes in one record.
pub const SEALED_MAX: usize = 65_535 - TAG;

/// Protection of the bytes after Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The bytes are encrypted and authenticated.
    Encrypted,
    /// The bytes are sent as they are: the user trusts the network.
    Plain,
}

impl Mode {
    const fn byte(self) -> u8 {
        match self {
            Mode::Encrypted => b'e',
            Mode::Plain => b'p',
        }
    }
}

enum Stage {
    /// At the end that was connected to: the opening and the first record are awaited.
    Opening(Box<HandshakeState>),
    /// At the maker: the second record is awaited.
    Answer(Box<HandshakeState>),
    Open(Box<Records>),
    /// An error has ended the link.
    Failed,
}

/// One end of a link.
pub struct Secure {
    mode: Mode,
    stage: Stage,
    /// Bytes from the other end that do not make a whole record yet.
    input: BytesMut,
    /// Whether the first record after the handshake was received (`first_in`), was sent
    /// (`first_out`).
    first_in: bool,
    first_out: bool,
}

impl Secure {
    /// The end that made the connection. `out` gets its first bytes.
    pub fn maker(secret: &Secret, mode: Mode, out: &mut Vec<u8>) -> Secure {
        let opening = opening(mode);
        let mut noise = builder(secret, &opening)
            .build_initiator()
            .expect("the pattern needs nothing else");
        let mut first = [0; SHAKE];
        let length = noise
            .write_message(&[], &mut first)
            .expect("the first record fits");
        out.extend_from_slice(&opening);
        put_record(&first[..length], out);
        Secure::at(Stage::Answer(Box::new(noise)), mode)
    }

    /// The end that was connected to.
    pub fn other_end(secret: &Secret, mode: Mode) -> Secure {
        let noise = builder(secret, &opening(mode))
            .build_responder()
            .expect("the pattern needs nothing else");
        Secure::at(Stage::Opening(Box::new(noise)), mode)
    }

    fn at(stage: Stage, mode: Mode) -> Secure {
        Secure {
            mode,
            stage,
            input: BytesMut::new(),
            first_in: false,
            first_out: false,
        }
    }

    /// Whether frames may be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Whether later bytes are sent without encryption.
    pub fn sends_plain(&self) -> bool {
        self.mode == Mode::Plain && self.first_out
    }

    /// The buffer for bytes from the other end before [`Secure::receive`]: a buffer of this struct,
    /// or the reader's own if the bytes are plain.
    pub fn input<'a>(&'a mut self, reader: &'a mut FrameReader) -> &'a mut BytesMut {
        if self.mode == Mode::Plain && self.first_in {
            reader.buffer(0)
        } else {
            &mut self.input
        }
    }

    /// Number of bytes that a whole record still needs, as far as known; a hint for the size of a
    /// read.
    pub fn missing(&self) -> usize {
        match self.input.first_chunk::<LENGTH>() {
            Some(length) if self.is_open() => {
                let length = u16::from_le_bytes(*length) as usize;
                (LENGTH + length).saturating_sub(self.input.len())
            }
            _ => 0,
        }
    }

    /// Processes the bytes that were put into [`Secure::input`]. The bytes of frames go to
    /// `reader`; bytes for the other end go to `out`, also in the case of an error.
    ///
    /// # Errors
    /// [`SecureError`]: the connection cannot be used any more.
    pub fn receive(
        &mut self,
        reader: &mut FrameReader,
        out: &mut Vec<u8>,
    ) -> Result<(), SecureError> {
        let result = self.work(reader, out);
        if let Err(error) = result {
            if matches!(self.stage, Stage::Opening(_)) {
                out.extend_from_slice(&[0, 0, error.alert()]);
            }
            self.stage = Stage::Failed;
        }
        result
    }

    fn work(&mut self, reader: &mut FrameReader, out: &mut Vec<u8>) -> Result<(), SecureError> {
        if let Stage::Opening(noise) = &mut self.stage {
            let seen = self.input.len().min(MAGIC.len());
            if self.input[..seen] != MAGIC[..seen] {
                return Err(SecureError::Foreign);
            }
            if self.input.len() < OPENING + LENGTH + SHAKE {
                return Ok(());
            }
            if self.input[MAGIC.len()] != self.mode.byte() {
                return Err(SecureError::Mode);
            }
            self.input.advance(OPENING);
            let record = take_shake(&mut self.input)?.ok_or(SecureError::Record)?;
            noise
                .read_message(&record, &mut [])
                .map_err(|_| SecureError::Secret)?;
            let mut answer = [0; SHAKE];
            let length = noise
                .write_message(&[], &mut answer)
                .map_err(|_| SecureError::Record)?;
            put_record(&answer[..length], out);
            self.open();
        }
        if let Stage::Answer(noise) = &mut self.stage {
            let Some(record) = take_shake(&mut self.input)? else {
                return Ok(());
            };
            noise
                .read_message(&record, &mut [])
                .map_err(|_| SecureError::Secret)?;
            self.open();
        }
        match &mut self.stage {
            Stage::Open(records) => {
                while !(self.mode == Mode::Plain && self.first_in) {
                    if !open_record(records, &mut self.input, reader)? {
                        return Ok(());
                    }
                    self.first_in = true;
                }
                // Plain bytes may come together with the sealed Hello.
                if !self.input.is_empty() {
                    reader.push(&self.input);
                    self.input.clear();
                }
                Ok(())
            }
            _ => Err(SecureError::Record),
        }
    }

    fn open(&mut self) {
        if let Stage::Opening(noise) | Stage::Answer(noise) = &mut self.stage {
            self.stage = Stage::Open(Box::new(Records::after(noise)));
        }
    }

    /// The bytes from the other end that make no whole record yet, for a caller that continues with
    /// [`sealed`] and [`Secure::open_within`] instead of [`Secure::receive`].
    pub fn rest(&mut self) -> BytesMut {
        self.input.split()
    }

    /// Opens a record whose sealed bytes are from `sealed` to the end of `bytes`. The content is
    /// then at the beginning of `bytes`. Returns its length.
    ///
    /// # Errors
    /// [`SecureError::Record`]: the record cannot be opened.
    pub fn open_within(&mut self, bytes: &mut [u8], sealed: usize) -> Result<usize, SecureError> {
        match &mut self.stage {
            Stage::Open(records) => records.open(bytes, sealed),
            _ => Err(SecureError::Record),
        }
    }

    /// Appends the record for `plain`, at most [`SEALED_MAX`] bytes. To be called only after the
    /// handshake.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        out.extend_from_slice(plain);
        out.extend_from_slice(&[0; TAG]);
        self.seal_within(&mut out[start..]);
    }

    /// Makes a record in place: `record` has [`LENGTH`] free bytes before its content, of at most
    /// [`SEALED_MAX`] bytes, and [`TAG`] free bytes after it. To be called only after the
    /// handshake.
    pub fn seal_within(&mut self, record: &mut [u8]) {
        let length = record.len() - LENGTH;
        debug_assert!(length <= SEALED_MAX + TAG && !self.sends_plain());
        let Stage::Open(records) = &mut self.stage else {
            debug_assert!(false, "nothing is sent before the handshake is over");
            return;
        };
        self.first_out = true;
        record[..LENGTH].copy_from_slice(&(length as u16).to_le_bytes());
        records.seal(&mut record[LENGTH..]);
    }
}

fn opening(mode: Mode) -> [u8; OPENING] {
    let mut opening = [mode.byte(); OPENING];
    opening[..MAGIC.len()].copy_from_slice(MAGIC);
    opening
}

fn builder<'a>(secret: &'a Secret, opening: &'a [u8]) -> Builder<'a> {
    Builder::new(PATTERN.parse().expect("a pattern that snow knows"))
        .psk(0, secret.key())
        .and_then(|builder| builder.prologue(opening))
        .expect("each is set once")
}

fn put_record(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes a record of the handshake from `input`; `None` if it is not whole yet.
fn take_shake(input: &mut BytesMut) -> Result<Option<BytesMut>, SecureError> {
    if input.len() < LENGTH {
        return Ok(None);
    }
    match u16::from_le_bytes([input[0], input[1]]) as usize {
        0 if input.len() == LENGTH => Ok(None),
        0 => Err(SecureError::from_alert(input[LENGTH])),
        SHAKE if input.len() < LENGTH + SHAKE => Ok(None),
        SHAKE => {
            input.advance(LENGTH);
            Ok(Some(input.split_to(SHAKE)))
        }
        _ => Err(SecureError::Record),
    }
}

/// Opens the next record into `reader`; false if it is not whole yet.
fn open_record(
    records: &mut Records,
    input: &mut BytesMut,
    reader: &mut FrameReader,
) -> Result<bool, SecureError> {
    let Some(length) = sealed(input)? else {
        return Ok(false);
    };
    let end = LENGTH + length;
    let count = records.open(&mut input[..end], LENGTH)?;
    reader.push(&input[..count]);
    input.advance(end);
    Ok(true)
}

/// The number of sealed bytes of the next record, if it is whole; the [`LENGTH`] bytes of its
/// length stand before them.
///
/// # Errors
/// [`SecureError::Record`]: the length is impossible.
pub fn sealed(input: &[u8]) -> Result<Option<usize>, SecureError> {
    let Some(length) = input.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    match u16::from_le_bytes(*length) as usize {
        ..TAG => Err(SecureError::Record),
        length => Ok((input.len() >= LENGTH + length).then_some(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::{Frame, Header, Op};

    fn secret(text: &str) -> Secret {
        Secret::from_text(text).expect("long enough")
    }

    fn frame(tag: i32, length: usize) -> Frame {
        let mut header = Header::new(Op::Data);
        header.tag = tag;
        header.total = length as u64;
        Frame::new(header, vec![tag as u8; length].into())
    }

    fn bytes(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        bytes
    }

    /// One end with its reader and its sent bytes.
    struct End {
        secure: Secure,
        reader: FrameReader,
        out: Vec<u8>,
    }

    impl End {
        fn maker(text: &str, mode: Mode) -> End {
            let mut out = Vec::new();
            let secure = Secure::maker(&secret(text), mode, &mut out);
            End {
                secure,
                reader: FrameReader::new(),
                out,
            }
        }

        fn other(text: &str, mode: Mode) -> End {
            let secure = Secure::other_end(&secret(text), mode);
            End {
                secure,
                reader: FrameReader::new(),
                out: Vec::new(),
            }
        }

        fn hear(&mut self, bytes: &[u8]) -> Result<(), SecureError> {
            self.secure.input(&mut self.reader).extend_from_slice(bytes);
            self.secure.receive(&mut self.reader, &mut self.out)
        }

        fn say(&mut self, frame: &Frame) {
            let bytes = bytes(frame);
            if self.secure.sends_plain() {
                self.out.extend_from_slice(&bytes);
            } else {
                for part in bytes.chunks(SEALED_MAX) {
                    self.secure.seal(part, &mut self.out);
                }
            }
        }

        fn said(&mut self) -> Vec<u8> {
            std::mem::take(&mut self.out)
        }
    }

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    /// Two ends after the handshake.
    fn pair(mode: Mode) -> (End, End) {
        let (mut maker, mut other) = (End::maker(KEY, mode), End::other(KEY, mode));
        other.hear(&maker.said()).expect("the opening");
        maker.hear(&other.said()).expect("the answer");
        assert!(maker.secure.is_open() && other.secure.is_open());
        (maker, other)
    }

    #[test]
    fn frames_arrive_in_both_directions_however_the_bytes_are_cut() {
        for mode in [Mode::Encrypted, Mode::Plain] {
            let (mut maker, mut other) = pair(mode);
            for round in 0..3 {
                let frames = [frame(round, 5), frame(round, 64 * 1024), frame(round, 0)];
                for frame in &frames {
                    maker.say(frame);
                    other.say(frame);
                }
                for byte in maker.said() {
                    other.hear(&[byte]).expect("whole records");
                }
                maker.hear(&other.said()).expect("whole records");
                for frame in &frames {
                    assert_eq!(other.reader.next_frame(), Ok(Some(frame.clone())));
                    assert_eq!(maker.reader.next_frame(), Ok(Some(frame.clone())));
                }
            }
        }
    }

    #[test]
    fn nothing_readable_is_sent_on_an_encrypted_link() {
        let (mut maker, _) = pair(Mode::Encrypted);
        for _ in 0..2 {
            maker.say(&frame(b'x' as i32, 100));
        }
        assert!(!maker.said().windows(8).any(|bytes| bytes == b"xxxxxxxx"));
    }

    #[test]
    fn a_different_secret_is_refused_by_both_ends_and_named() {
        let mut maker = End::maker(KEY, Mode::Encrypted);
        let mut other = End::other("another secret of the same size!", Mode::Encrypted);
        assert_eq!(other.hear(&maker.said()), Err(SecureError::Secret));
        assert_eq!(maker.hear(&other.said()), Err(SecureError::Secret));
        assert!(!maker.secure.is_open() && !other.secure.is_open());
    }

    #[test]
    fn different_modes_are_refused_and_named() {
        let mut maker = End::maker(KEY, Mode::Plain);
        let mut other = End::other(KEY, Mode::Encrypted);
        assert_eq!(other.hear(&maker.said()), Err(SecureError::Mode));
        assert_eq!(maker.hear(&other.said()), Err(SecureError::Mode));
    }

    #[test]
    fn garbage_is_refused_at_its_first_byte() {
        let mut other = End::other(KEY, Mode::Encrypted);
        assert_eq!(other.hear(b"G"), Err(SecureError::Foreign));
        assert_eq!(
            other.hear(MAGIC),
            Err(SecureError::Record),
            "it stays refused"
        );
    }

    #[test]
    fn half_a_handshake_waits_and_a_wrong_length_is_refused() {
        let mut maker = End::maker(KEY, Mode::Encrypted);
        let mut other = End::other(KEY, Mode::Encrypted);
        let mut opening = maker.said();
        assert_eq!(other.hear(&opening[..opening.len() - 1]), Ok(()));
        assert!(other.out.is_empty() && !other.secure.is_open());
        opening[OPENING + 1] = 0xff;
        let mut other = End::other(KEY, Mode::Encrypted);
        assert_eq!(other.hear(&opening), Err(SecureError::Record));
    }

    #[test]
    fn a_changed_or_repeated_record_is_refused() {
        for mode in [Mode::Encrypted, Mode::Plain] {
            let (mut maker, mut other) = pair(mode);
            maker.say(&frame(1, 10));
            let record = maker.said();
            let mut changed = record.clone();
            changed[20] ^= 1;
            assert_eq!(other.hear(&changed), Err(SecureError::Record));
        }
        let (mut maker, mut other) = pair(Mode::Encrypted);
        maker.say(&frame(1, 10));
        let record = maker.said();
        assert_eq!(other.hear(&record), Ok(()));
        assert_eq!(other.hear(&record), Err(SecureError::Record));
    }

    #[test]
    fn a_repeated_opening_leads_to_no_frame() {
        let mut maker = End::maker(KEY, Mode::Plain);
        let opening = maker.said();
        let mut other = End::other(KEY, Mode::Plain);
        assert_eq!(other.hear(&opening), Ok(()));
        // An attacker who only recorded the opening cannot seal a Hello, not even on plain links.
        let error = other.hear(&bytes(&frame(1, 10)));
        assert!(error == Err(SecureError::Record) || other.reader.next_frame() == Ok(None));
    }
}
