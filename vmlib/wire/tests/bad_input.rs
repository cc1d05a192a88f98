//! Bytes that are no frame or no message are an error: they cause no panic, and take no memory.

mod samples;

use bytes::Bytes;
use proptest::{prelude::*, test_runner::RngSeed};
use samples::{Visitor, full_header, visit};
use std::fmt::Debug;
use vm_wire::{
    CodecError, Frame, FrameError, FrameReader, HEADER_LEN, Header, Message, Op, Tid, decode,
    encode,
    limits::{CHUNK_MAX, CONTROL_MAX, MESSAGE_MAX},
    peer::Order,
};

/// The same cases in each run, unless `PROPTEST_RNG_SEED` gives another seed.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

/// Decodes bytes as one type of message, and returns the error. The bytes are changed encodings.
type Decode = fn(&[u8]) -> Option<CodecError>;

/// The encoded body of every sample, with the decoder of its type.
#[derive(Default)]
struct Bodies(Vec<(Vec<u8>, Decode)>);

impl Visitor for Bodies {
    fn message<M: Message + PartialEq + Debug>(&mut self, _: &str, message: M) {
        self.0
            .push((encode(&message), |bytes| decode::<M>(bytes).err()));
    }

    fn frame(&mut self, _: &str, _: Frame) {}
}

fn bodies() -> Vec<(Vec<u8>, Decode)> {
    let mut bodies = Bodies::default();
    visit(&mut bodies);
    bodies.0
}

/// The frame of every sample.
#[derive(Default)]
struct Frames(Vec<Frame>);

impl Visitor for Frames {
    fn message<M: Message + PartialEq + Debug>(&mut self, _: &str, message: M) {
        self.0.push(message.frame());
    }

    fn frame(&mut self, _: &str, frame: Frame) {
        self.0.push(frame);
    }
}

fn frames() -> Vec<Frame> {
    let mut frames = Frames::default();
    visit(&mut frames);
    frames.0
}

fn stream(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.write_to(&mut bytes));
    bytes
}

/// All frames of the stream `pieces`, or the first error.
fn read_all(pieces: &[&[u8]]) -> Result<Vec<Frame>, FrameError> {
    let mut reader = FrameReader::new();
    let mut frames = Vec::new();
    for piece in pieces {
        reader.push(piece);
        while let Some(frame) = reader.next_frame()? {
            frames.push(frame);
        }
        assert!((1..=vm_wire::limits::SNAPSHOT_MAX).contains(&reader.missing()));
    }
    Ok(frames)
}

fn refused(header: impl FnOnce(&mut [u8; HEADER_LEN])) -> FrameError {
    let mut bytes = full_header(Op::Data).to_bytes(8);
    header(&mut bytes);
    read_all(&[&bytes]).expect_err("it is no frame")
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    let all = frames();
    let bytes = stream(&all);
    assert_eq!(read_all(&[&bytes]).as_ref(), Ok(&all));
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read_all(&single).as_ref(), Ok(&all));

    let two = stream(&all[..2]);
    for cut in 0..=two.len() {
        let (before, after) = two.split_at(cut);
        assert_eq!(
            read_all(&[before, after]).as_deref(),
            Ok(&all[..2]),
            "cut at {cut}"
        );
    }
}

#[test]
fn half_a_frame_is_neither_a_frame_nor_an_error() {
    let bytes = stream(&frames()[..1]);
    for len in 0..bytes.len() {
        assert_eq!(read_all(&[&bytes[..len]]), Ok(Vec::new()), "{len} bytes");
    }
}

#[test]
fn a_reader_says_how_much_is_missing() {
    let frame = Frame::new(full_header(Op::Data), Bytes::from_static(&[7; 1000]));
    let bytes = stream(&[frame]);
    let mut reader = FrameReader::new();
    assert_eq!(reader.missing(), HEADER_LEN);
    reader.push(&bytes[..90]);
    assert_eq!((reader.next_frame(), reader.missing()), (Ok(None), 6));
    reader.push(&bytes[90..100]);
    assert_eq!((reader.next_frame(), reader.missing()), (Ok(None), 996));
}

#[test]
fn a_length_above_the_limit_of_its_opcode_is_refused_before_the_body_is_read() {
    let claims = |op: Op, length: u32| {
        let mut bytes = Header::new(op).to_bytes(0);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        read_all(&[&bytes])
    };
    for op in Op::ALL.iter().copied().filter(|op| *op != Op::Data) {
        let limit = op.body_max() as u32;
        assert!(claims(op, limit).is_ok(), "{op:?}");
        for length in [limit + 1, u32::MAX] {
            let error = FrameError::Length {
                op,
                length: length as usize,
            };
            assert_eq!(claims(op, length), Err(error));
        }
    }
    assert_eq!(Op::Data.body_max(), CHUNK_MAX);
    assert_eq!(Op::Spawn.body_max(), CONTROL_MAX);
}

#[test]
fn a_length_of_two_to_the_sixtieth_is_refused_in_every_field() {
    let huge = (1u64 << 60).to_le_bytes();
    // In the first eight bytes, the number sets the opcode to 0. Elsewhere it is an offset or a
    // total.
    assert_eq!(
        refused(|bytes| bytes[..8].copy_from_slice(&huge)),
        FrameError::Op(0)
    );
    for field in [56..64, 64..72] {
        let error = refused(|bytes| bytes[field].copy_from_slice(&huge));
        assert!(matches!(error, FrameError::Chunk { .. }), "{error}");
    }
    let body = encode(&(1u64 << 60));
    assert!(bodies().iter().all(|(_, decode)| decode(&body).is_some()));
}

#[test]
fn a_chunk_outside_of_its_message_is_refused() {
    let chunk = |offset: u64, total: u64| {
        let mut header = Header::new(Op::Data);
        (header.offset, header.total) = (offset, total);
        read_all(&[&header.to_bytes(8), &[0; 8]]).map(|frames| frames.len())
    };
    assert_eq!(chunk(0, 8), Ok(1));
    assert_eq!(chunk(MESSAGE_MAX - 8, MESSAGE_MAX), Ok(1));
    for (offset, total) in [
        (0, 7),
        (1, 8),
        (u64::MAX, 8),
        (u64::MAX - 7, u64::MAX),
        (0, MESSAGE_MAX + 1),
    ] {
        assert_eq!(
            chunk(offset, total),
            Err(FrameError::Chunk { offset, total })
        );
    }
}

#[test]
fn bits_that_this_version_does_not_know_are_refused() {
    for (at, value) in [(5, 2), (5, 0x80), (7, 1), (92, 1), (95, 0x80)] {
        assert_eq!(
            refused(|bytes| bytes[at] = value),
            FrameError::Reserved,
            "byte {at}"
        );
    }
    for number in (0..=u8::MAX).filter(|number| Op::from_number(*number).is_none()) {
        assert_eq!(refused(|bytes| bytes[4] = number), FrameError::Op(number));
    }
}

#[test]
fn a_body_that_is_cut_or_has_more_bytes_is_no_message() {
    for (body, decode) in bodies() {
        assert_eq!(decode(&body), None);
        for len in 0..body.len() {
            assert!(decode(&body[..len]).is_some(), "{len} of {body:02x?}");
        }
        let mut longer = body;
        longer.push(0xc0);
        assert!(decode(&longer).is_some());
    }
}

#[test]
fn a_claimed_length_inside_a_body_takes_no_memory() {
    // Headers of an array, bytes, a text and a map of four gigabytes, then endlessly nested arrays.
    let claims: [&[u8]; 4] = [
        &[0xdd, 0xff, 0xff, 0xff, 0xff],
        &[0xc6, 0xff, 0xff, 0xff, 0xff],
        &[0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0xdf, 0xff, 0xff, 0xff, 0xff],
    ];
    let nested = vec![0x91; CONTROL_MAX];
    for (body, decode) in bodies() {
        assert!(decode(&nested).is_some());
        // The claim replaces the rest of a valid body after each byte, so some claims begin a
        // field.
        for claim in claims {
            for at in 0..body.len() {
                decode(&[&body[..at], claim].concat());
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes_never_panic_the_reader(
        bytes in prop::collection::vec(any::<u8>(), 0..1000),
        cut in 0..1000usize,
    ) {
        let (before, after) = bytes.split_at(cut.min(bytes.len()));
        let whole = read_all(&[&bytes]);
        prop_assert_eq!(read_all(&[before, after]), whole);
    }

    #[test]
    fn changed_streams_never_panic_the_reader_nor_the_decoders_of_its_frames(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        which in any::<prop::sample::Index>(),
    ) {
        let all = frames();
        let mut bytes = stream(&[which.get(&all).clone()]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let read = read_all(&[&bytes]).unwrap_or_default();
        for frame in read {
            for (_, decode) in bodies() {
                decode(&frame.body);
            }
            // A frame that was read is written with the same bytes.
            prop_assert_eq!(&stream(std::slice::from_ref(&frame)), &bytes[..frame.len()]);
        }
    }

    #[test]
    fn random_bytes_never_panic_the_decoders_of_messages(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        for (_, decode) in bodies() {
            decode(&bytes);
        }
        let _ = Order::from_payload(&bytes);
    }

    #[test]
    fn headers_are_read_as_written(
        numbers in prop::array::uniform8(any::<u64>()),
        words in prop::array::uniform4(any::<u32>()),
        tag in any::<i32>(),
        op in prop::sample::select(Op::ALL),
        hops in any::<u8>(),
        keep in any::<bool>(),
    ) {
        let [from, to, seq, ack, credit, request, offset, total] = numbers;
        let [epoch, generation, incarnation, context] = words;
        let total = if op == Op::Data { total % (MESSAGE_MAX + 1) } else { total };
        let offset = if op == Op::Data { offset % (total + 1) } else { offset };
        let header = Header {
            op, flags: u8::from(keep), hops, from: Tid(from), to: Tid(to), seq, ack, credit,
            request, offset, total, epoch, generation, incarnation, context, tag,
        };
        prop_assert_eq!(Header::from_bytes(&header.to_bytes(0)), Ok((header, 0)));
    }
}
