//! A writer and a reader of one lane, in one process.

use super::{
    lane::{BODIES, LANE_BYTES, Lane, SLOTS, Sleep, State},
    lent::LEND_MIN,
    reader::Reader,
    watch::{Outgoing, Watch},
    writer::Writer,
};
use bytes::Bytes;
use std::{collections::VecDeque, ops::Range, process, sync::atomic::Ordering::SeqCst, thread};
use vm_endpoint::{
    Buffer, Endpoint, EndpointConfig, Filter, Posted, Ring, RingError, RingRead, Room, Time,
};
use vm_wire::{Frame, Header, HostId, MachineId, Op, Tid, limits};

/// The memory of a lane, aligned as a page is.
struct Memory(Box<[u64]>);

impl Memory {
    fn new() -> Self {
        Memory(vec![0; LANE_BYTES / 8].into())
    }

    fn lane(&self) -> Lane {
        Lane::at(self.0.as_ptr() as usize)
    }
}

fn task(number: u32) -> Tid {
    Tid::new(MachineId::from_bits(1), HostId(1), number)
}

/// A chunk at the beginning of a message of `total` bytes.
fn chunk(seq: u64, len: usize, total: u64) -> Frame {
    let mut header = Header::new(Op::Data);
    header.from = task(1);
    header.to = task(2);
    header.seq = seq;
    header.total = total;
    header.tag = -7;
    header.context = 3;
    header.generation = 5;
    let body: Vec<u8> = (0..len).map(|byte| (byte as u64 + seq) as u8).collect();
    Frame::new(header, Bytes::from(body))
}

fn whole(seq: u64, len: usize) -> Frame {
    chunk(seq, len, len as u64)
}

/// Reads the next chunk, and states that.
fn read(reader: &mut Reader) -> Option<Frame> {
    let slot = reader.peek(task(1), task(2))?;
    let mut body = Vec::new();
    assert!(reader.fill(&slot, Room::End(&mut body)));
    reader.tail += 1;
    reader
        .lane
        .set_progress(reader.tail, slot.header.seq, u64::MAX);
    Some(Frame::new(slot.header, body.into()))
}

fn ends(memory: &Memory) -> (Writer, Reader) {
    let lane = memory.lane();
    lane.set_state(State::Reads);
    (Writer::new(lane), Reader::new(lane, process::id()))
}

/// The endpoint of the reader.
fn endpoint() -> Endpoint {
    Endpoint::new(EndpointConfig {
        me: task(2),
        window_bytes: 1 << 20,
        inbox_bytes: 1 << 20,
        epoch: 0,
        generation: 5,
        ring_after: None,
    })
}

#[test]
fn chunks_of_every_length_come_out_as_they_went_in_however_often_the_lane_is_used_up() {
    let memory = Memory::new();
    let (mut writer, mut reader) = ends(&memory);
    let lengths = [
        0,
        1,
        24,
        25,
        1_000,
        4_096,
        LEND_MIN - 1,
        LEND_MIN,
        limits::CHUNK_MAX,
    ];
    for seq in 1..=3 * SLOTS {
        let len = lengths[seq as usize % lengths.len()];
        let sent = match seq % 2 {
            0 => whole(seq, len),
            _ => chunk(seq, len, 1 << 20),
        };
        assert_eq!(writer.push(&sent), Ok(()), "chunk {seq}");
        assert_eq!(read(&mut reader), Some(sent));
        assert_eq!(read(&mut reader), None);
    }
}

#[test]
fn a_full_lane_takes_a_chunk_again_when_one_was_read() {
    for (len, room) in [(8, SLOTS), (16 * 1024, 8)] {
        let memory = Memory::new();
        let (mut writer, mut reader) = ends(&memory);
        let mut seqs = 1..;
        let mut push = |writer: &mut Writer| {
            let chunk = whole(seqs.next().unwrap_or_default(), len);
            writer.push(&chunk)
        };
        let pushed = (0..=room).take_while(|_| push(&mut writer).is_ok()).count();
        assert_eq!(pushed as u64, room);
        assert_eq!(push(&mut writer), Err(RingError::Full));
        assert!(read(&mut reader).is_some());
        assert_eq!(push(&mut writer), Ok(()));
        assert_eq!(push(&mut writer), Err(RingError::Full));
    }
}

#[test]
fn nobody_writes_to_a_lane_that_is_not_read_yet_or_not_any_more() {
    let memory = Memory::new();
    let mut writer = Writer::new(memory.lane());
    assert_eq!(writer.push(&whole(1, 8)), Err(RingError::Closed));
    memory.lane().set_state(State::Reads);
    assert_eq!(writer.push(&whole(1, 8)), Ok(()));
    memory.lane().set_state(State::Closed);
    assert_eq!(writer.push(&whole(2, 8)), Err(RingError::Closed));
}

#[test]
fn a_reader_that_claims_what_was_never_written_frees_nothing() {
    let memory = Memory::new();
    let (mut writer, _) = ends(&memory);
    for seq in 1..=SLOTS {
        assert_eq!(writer.push(&whole(seq, 8)), Ok(()));
    }
    for claimed in [SLOTS + 1, u64::MAX] {
        memory.lane().set_progress(claimed, 0, 0);
        assert_eq!(writer.push(&whole(SLOTS + 1, 8)), Err(RingError::Full));
    }
}

#[test]
fn garbage_in_a_slot_ends_the_lane_and_nothing_else() {
    let long = limits::CHUNK_MAX as u64 + 1;
    let garbage = [
        // No number.
        [0, 0, 0, 0, 0, 0, 0],
        // A kind that does not exist.
        [1, 0, 0, 9, 0, 0, 8],
        // More bytes than a slot or a chunk has.
        [1, 0, 0, 25 << 32, 0, 0, 0],
        [1, 0, 0, 1 | long << 32, 0, 0, long],
        // Bytes behind the end of their message.
        [1, 0, 0, 1 | 8 << 32, 0, 1, 8],
        [1, 0, 0, 1 | 8 << 32, 0, u64::MAX, 8],
        // A message that is too long.
        [1, 0, 0, 1 | 8 << 32, 0, 0, limits::MESSAGE_MAX + 1],
    ];
    for words in garbage {
        let memory = Memory::new();
        let (_, mut reader) = ends(&memory);
        memory.lane().write(0, &words);
        assert!(reader.peek(task(1), task(2)).is_none(), "{words:?}");
        assert!(reader.is_broken());
    }
}

#[test]
fn a_body_outside_of_the_lane_or_of_the_senders_memory_is_not_read() {
    for words in [
        [1, 0, 0, 1 | 8 << 32, BODIES - 7, 0, 8],
        [1, 0, 0, 1 | 8 << 32, u64::MAX, 0, 8],
        [1, 0, 0, 2 | 8 << 32, 8, 0, 8],
    ] {
        let memory = Memory::new();
        let (_, mut reader) = ends(&memory);
        memory.lane().write(0, &words);
        let slot = reader.peek(task(1), task(2)).unwrap();
        let mut body = vec![1];
        assert!(!reader.fill(&slot, Room::End(&mut body)), "{words:?}");
        assert_eq!(body, [1]);
    }
}

#[test]
fn long_bodies_go_through_the_lane_if_the_reader_cannot_read_the_senders_memory() {
    let memory = Memory::new();
    let (mut writer, mut reader) = ends(&memory);
    // No process has that id.
    reader.pid = Some(u32::MAX >> 1);
    let total = 1 << 20;
    assert_eq!(writer.chunk_max(total), limits::CHUNK_MAX);
    let sent = chunk(1, LEND_MIN, total as u64);
    assert_eq!(writer.push(&sent), Ok(()));
    let slot = reader.peek(task(1), task(2)).unwrap();
    assert!(!reader.fill(&slot, Room::End(&mut Vec::new())));
    assert!(writer.chunk_max(total) < LEND_MIN);
    reader.tail += 1;
    let sent = chunk(2, writer.chunk_max(total), total as u64);
    assert_eq!(writer.push(&sent), Ok(()));
    assert_eq!(read(&mut reader), Some(sent));
}

#[test]
fn a_body_beside_a_wrong_cookie_is_discarded_and_comes_by_the_daemon() {
    let memory = Memory::new();
    let (mut writer, mut reader) = ends(&memory);
    let mut endpoint = endpoint();
    let total = 2 * LEND_MIN + 1024 * 1024;
    let sent = chunk(1, LEND_MIN, total as u64);
    assert_eq!(writer.push(&sent), Ok(()));
    // Another process has the sender's id and something at the body's address.
    let (address, cookie) = memory.lane().cookie(0);
    memory.lane().set_cookies(address, !cookie);
    let mut watch = Watch::default();
    watch.outgoing(Outgoing {
        lane: memory.lane(),
        tail: writer.tail(),
        taken: 0,
        lends: true,
    });
    assert!(!watch.is_ready());
    let take = |reader: &mut Reader, endpoint: &mut Endpoint| {
        let slot = reader.peek(task(1), task(2)).unwrap();
        let fill = |room: Room<'_>| reader.fill(&slot, room);
        let read = endpoint.read_ring(&slot.header, slot.len, None, fill);
        reader.tail += u64::from(read == RingRead::Taken(None));
        read
    };
    assert_eq!(take(&mut reader, &mut endpoint), RingRead::Unread);
    assert_eq!(endpoint.taken().next(), Some((task(1), 0)));
    // The sender sees that, even if it has no credit for the rest of the message.
    assert!(watch.is_ready());
    endpoint.handle(Time(1), sent, &mut VecDeque::new());
    assert_eq!(endpoint.taken().next(), Some((task(1), 1)));
    // The slot is a duplicate now, and the next body goes through the lane.
    assert_eq!(take(&mut reader, &mut endpoint), RingRead::Taken(None));
    let len = writer.chunk_max(total);
    let mut next = chunk(2, len, total as u64);
    next.header.offset = LEND_MIN as u64;
    assert_eq!(writer.push(&next), Ok(()));
    assert_eq!(take(&mut reader, &mut endpoint), RingRead::Taken(None));
    assert_eq!(endpoint.taken().next(), Some((task(1), 2)));
}

#[test]
fn a_message_lands_in_a_posted_buffer_from_the_memory_of_its_sender_the_lane_and_the_daemon() {
    let memory = Memory::new();
    let (mut writer, mut reader) = ends(&memory);
    let mut endpoint = endpoint();
    let pieces = [LEND_MIN, 8 * LEND_MIN, 8 * LEND_MIN + 1_000];
    let total = 8 * LEND_MIN + 1_010;
    let filter = Filter {
        context: 3,
        from: None,
        tag: Some(-7),
        handled: false,
    };
    let buffer = Buffer::Own(vec![0; total].into());
    assert!(endpoint.post(Posted::new(filter, 1, buffer)));
    let message: Vec<u8> = (0..total).map(|at| (at / 7) as u8).collect();
    let cut = |seq: u64, range: Range<usize>| {
        let mut chunk = chunk(seq, 0, total as u64);
        chunk.header.offset = range.start as u64;
        chunk.body = Bytes::copy_from_slice(&message[range]);
        chunk
    };
    let mut take = |endpoint: &mut Endpoint, sent: &Frame| {
        assert_eq!(writer.push(sent), Ok(()));
        let slot = reader.peek(task(1), task(2)).unwrap();
        let fill = |room: Room<'_>| {
            assert!(matches!(room, Room::Part(_)));
            reader.fill(&slot, room)
        };
        let read = endpoint.read_ring(&slot.header, slot.len, None, fill);
        reader.tail += u64::from(read == RingRead::Taken(None));
        read
    };
    // Lent, by the daemon, in the lane twice: a body is lent from 32 KiB on.
    let taken = RingRead::Taken(None);
    assert_eq!(take(&mut endpoint, &cut(1, 0..pieces[0])), taken);
    endpoint.handle(Time(1), cut(2, pieces[0]..pieces[1]), &mut VecDeque::new());
    let last = cut(3, pieces[1]..pieces[2]);
    assert_eq!(take(&mut endpoint, &last), taken);
    assert!(!endpoint.has_landed());
    assert_eq!(take(&mut endpoint, &cut(4, pieces[2]..total)), taken);
    let (found, buffer) = endpoint.claim_posted().expect("the message is whole");
    assert_eq!((found.from, found.len), (task(1), total));
    assert!(buffer.bytes() == message);
}

#[test]
fn a_body_that_cannot_be_read_into_a_posted_buffer_comes_by_the_daemon() {
    let memory = Memory::new();
    let (mut writer, mut reader) = ends(&memory);
    // No process has that id.
    reader.pid = Some(u32::MAX >> 1);
    let mut endpoint = endpoint();
    let total = 8 * LEND_MIN;
    let filter = Filter {
        context: 3,
        from: Some(task(1)),
        tag: None,
        handled: false,
    };
    let buffer = Buffer::Own(vec![0; total].into());
    assert!(endpoint.post(Posted::new(filter, 1, buffer)));
    let sent = chunk(1, LEND_MIN, total as u64);
    assert_eq!(writer.push(&sent), Ok(()));
    let slot = reader.peek(task(1), task(2)).unwrap();
    let fill = |room: Room<'_>| reader.fill(&slot, room);
    let read = endpoint.read_ring(&slot.header, slot.len, None, fill);
    assert_eq!(read, RingRead::Unread);
    endpoint.handle(Time(1), sent.clone(), &mut VecDeque::new());
    // The call leaves: the rest of the message comes into the inbox.
    endpoint.withdraw();
    let mut whole = sent.body.to_vec();
    for seq in 2..=(total / LEND_MIN) as u64 {
        let mut next = chunk(seq, LEND_MIN, total as u64);
        next.header.offset = whole.len() as u64;
        whole.extend_from_slice(&next.body);
        endpoint.handle(Time(1), next, &mut VecDeque::new());
    }
    let message = endpoint.take(Time(1), &filter, &mut VecDeque::new());
    assert!(message.expect("the message is whole").body == whole);
}

#[test]
fn two_threads_exchange_a_million_bytes_in_order() {
    let memory = Memory::new();
    let (mut writer, mut reader) = ends(&memory);
    let count = 20_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=count {
                let sent = whole(seq, seq as usize % 100);
                while writer.push(&sent) != Ok(()) {
                    thread::yield_now();
                }
            }
        });
        for seq in 1..=count {
            let received = loop {
                match read(&mut reader) {
                    Some(received) => break received,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(received, whole(seq, seq as usize % 100));
        }
    });
}

#[test]
fn a_wait_for_one_task_is_ended_by_its_messages_and_by_long_ones_of_others() {
    let memories = [Memory::new(), Memory::new()];
    let [(mut wanted, _), (mut other, _)] = memories.each_ref().map(ends);
    let mut watch = Watch::default();
    watch.incoming(memories[0].lane(), 0, true);
    watch.incoming(memories[1].lane(), 0, false);
    assert!(watch.is_narrow() && !watch.sleep());
    let sleeps = |at: usize| memories[at].lane().reader_sleeps().load(SeqCst);

    assert_eq!(other.push(&whole(1, 1_000)), Ok(()));
    assert_eq!(sleeps(1), Sleep::UntilLong as u32, "nobody was woken");
    assert!(watch.is_ready() && !watch.is_over());
    assert_eq!(other.push(&chunk(2, 1_000, 1 << 20)), Ok(()));
    assert_eq!(sleeps(1), Sleep::Awake as u32);

    assert_eq!(sleeps(0), Sleep::UntilAny as u32);
    assert_eq!(wanted.push(&whole(1, 8)), Ok(()));
    assert_eq!(sleeps(0), Sleep::Awake as u32);
    assert!(watch.is_over());
}

#[test]
fn a_full_lane_wakes_a_reader_that_waits_for_another_task() {
    let memory = Memory::new();
    let (mut writer, _) = ends(&memory);
    let sleeps = memory.lane();
    let sleeps = sleeps.reader_sleeps();
    sleeps.store(Sleep::UntilLong as u32, SeqCst);
    for seq in 1..=SLOTS {
        assert_eq!(writer.push(&whole(seq, 8)), Ok(()));
    }
    assert_eq!(sleeps.load(SeqCst), Sleep::UntilLong as u32);
    assert_eq!(writer.push(&whole(SLOTS + 1, 8)), Err(RingError::Full));
    assert_eq!(sleeps.load(SeqCst), Sleep::Awake as u32);
}
