//! The bytes of every message, so that a review shows each change of the protocol.
//!
//! `golden/messages.txt` has one line for each sample: its name and its frame in hexadecimal, the
//! 96 bytes of the header and then the body. `UPDATE_GOLDENFILES=1 cargo test -p vm-wire --test
//! golden` writes the file anew after an intended change.

mod samples;

use samples::{Visitor, full_header, visit};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Debug, Write},
    fs,
    path::PathBuf,
};
use vm_wire::{Frame, FrameReader, HEADER_LEN, Header, HostId, MachineId, Message, Op, Tid, peer};

#[derive(Default)]
struct Golden {
    lines: BTreeMap<String, String>,
    ops: BTreeSet<Op>,
}

impl Visitor for Golden {
    fn message<M: Message + PartialEq + Debug>(&mut self, name: &str, message: M) {
        let from = Tid::new(MachineId::from_bits(1), HostId(2), 3);
        let frame = message.frame().between(from, Tid::NONE).asked(4);
        self.frame(name, frame.clone());
        assert_eq!(M::read(&frame), Ok(message), "{name}");
    }

    fn frame(&mut self, name: &str, frame: Frame) {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        assert_eq!(bytes.len(), frame.len());
        let mut hex = String::new();
        for byte in &bytes {
            write!(hex, "{byte:02x}").expect("a string takes all");
        }
        hex.insert(2 * HEADER_LEN, ' ');
        self.ops.insert(frame.header.op);
        let double = self.lines.insert(name.to_owned(), hex);
        assert_eq!(double, None, "two samples are called {name}");

        let mut reader = FrameReader::new();
        reader.push(&bytes);
        assert_eq!(reader.next_frame(), Ok(Some(frame)), "{name}");
        assert_eq!(reader.next_frame(), Ok(None), "{name}");
    }
}

fn samples() -> Golden {
    let mut golden = Golden::default();
    visit(&mut golden);
    golden
}

#[test]
fn every_opcode_has_a_sample() {
    let ops = samples().ops;
    let missing: Vec<_> = Op::ALL.iter().filter(|op| !ops.contains(op)).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
}

#[test]
fn the_bytes_of_every_message_are_those_of_the_golden_file() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.txt");
    let lines = samples().lines;
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let text: String = lines
            .iter()
            .map(|(name, hex)| format!("{name} {hex}\n"))
            .collect();
        fs::write(&file, text).expect("the golden file can be written");
        return;
    }
    let text = fs::read_to_string(&file).expect("the golden file is there");
    let golden: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, hex)| (name.to_owned(), hex.to_owned()))
        .collect();
    for name in golden.keys().chain(lines.keys()) {
        assert_eq!(
            golden.get(name),
            lines.get(name),
            "{name} (left: as it was, right: as it is)"
        );
    }
}

#[test]
fn the_layout_of_the_header_matches_its_documentation() {
    let bytes = full_header(Op::Data).to_bytes(7);
    let expected = "07000000\
        01 01 02 00\
        0111111111111111 0222222222222222 0333333333333333 0444444444444444\
        0555555555555555 0666666666666666 0777770700000000 0888880800000000\
        09999999 0aaaaaaa 0bbbbbbb 0ccccccc f3ffffff 00000000";
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.replace(char::is_whitespace, ""));
    assert_eq!(Header::from_bytes(&bytes), Ok((full_header(Op::Data), 7)));
}

#[test]
fn an_order_is_its_opcode_and_its_body() {
    let order = peer::LastAsk {
        ended: Tid(1),
        watcher: Tid(2),
    };
    let payload = peer::Order::LastAsk(order.clone()).to_payload();
    assert_eq!(payload, [Op::LastAsk as u8, 0x92, 1, 2]);
    let read = peer::Order::from_payload(&payload);
    assert_eq!(read, Ok(peer::Order::LastAsk(order)));
    for bad in [&[][..], &[0], &[Op::Hello as u8, 0x90], &payload[..3]] {
        assert!(peer::Order::from_payload(bad).is_err(), "{bad:?}");
    }
}
