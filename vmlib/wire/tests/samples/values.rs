//! The visitor of the samples, and values that several samples contain.

use std::fmt::Debug;
use vm_wire::{
    Body, Frame, Header, HostId, MachineId, Message, Op, Tid,
    agreed::{HostFacts, SnapshotAt},
    peer::UsageRow,
    task::{FailKind, Failed, Place, Spawn},
};

/// A function that is applied to all samples.
pub trait Visitor {
    /// Takes one message, under a unique name.
    fn message<M: Message + PartialEq + Debug>(&mut self, name: &str, message: M);
    /// Takes one frame whose body is not MessagePack.
    fn frame(&mut self, name: &str, frame: Frame);
}

pub fn machine() -> MachineId {
    MachineId::from_bits(0xabcdef)
}

pub fn tid(host: u16, sequence: u32) -> Tid {
    Tid::new(machine(), HostId(host), sequence)
}

pub fn text(text: &str) -> String {
    text.to_owned()
}

pub fn bytes(bytes: &[u8]) -> Body {
    Body::from(bytes.to_vec())
}

pub fn facts() -> HostFacts {
    HostFacts {
        name: text("node1"),
        addr: text("10.0.0.1:7000"),
        cpus: 4,
        tasks_max: 4096,
        arch: text("x86_64"),
        store_local: false,
    }
}

pub fn failed() -> Failed {
    Failed::new(FailKind::NoSuchHost, "no host 'x'")
}

pub fn snapshot() -> SnapshotAt {
    SnapshotAt {
        machine: machine(),
        index: 1000,
        voters: vec![HostId(1), HostId(2), HostId(3)],
        state: bytes(b"state"),
    }
}

pub fn usage() -> UsageRow {
    UsageRow {
        tid: tid(3, 17),
        pid: 4242,
        cpu_ms: 1500,
        memory: 1 << 20,
        state: 'R',
    }
}

pub fn spawn(place: Place) -> Spawn {
    Spawn {
        program: text("worker"),
        args: vec![text("-n"), text("5")],
        env: vec![(text("KEY"), text("value"))],
        dir: Some(text("/work")),
        count: 3,
        place,
    }
}

/// A header whose fields have different bytes, so that exchanged fields are noticed.
pub fn full_header(op: Op) -> Header {
    let mut header = Header::new(op);
    header.flags = Header::KEEP;
    header.hops = 2;
    header.from = Tid(0x1111_1111_1111_1101);
    header.to = Tid(0x2222_2222_2222_2202);
    header.seq = 0x3333_3333_3333_3303;
    header.ack = 0x4444_4444_4444_4404;
    header.credit = 0x5555_5555_5555_5505;
    header.request = 0x6666_6666_6666_6606;
    header.offset = 0x0777_7707;
    header.total = 0x0888_8808;
    header.epoch = 0x9999_9909;
    header.generation = 0xaaaa_aa0a;
    header.incarnation = 0xbbbb_bb0b;
    header.context = 0xcccc_cc0c;
    header.tag = -0x0d;
    header
}
