//! Both ends of a direct connection, in one process.

use super::{Until, area, directs::Directs, keyed::RECORD_MAX};
use bytes::Bytes;
use rustix::{
    fd::OwnedFd,
    net::{SendFlags, send, sockopt::set_socket_send_buffer_size},
};
use std::{
    collections::VecDeque,
    io::Read,
    net::{TcpListener, TcpStream},
};
use vm_endpoint::{Endpoint, EndpointConfig, Filter, Received, SendProgress, Sending, Time};
use vm_wire::{
    Frame, HostId, MachineId, Op, Tid,
    direct::{OPENING, Secret, read_opening},
    task::{DirectDial, DirectOpen, RingClosed, RouteEnd},
};

const NOW: Time = Time(0);

/// One end: a task.
struct End {
    endpoint: Endpoint,
    directs: Directs,
    out: VecDeque<Frame>,
}

impl End {
    fn new(host: u16) -> Self {
        let endpoint = Endpoint::new(EndpointConfig {
            me: task(host),
            window_bytes: 1 << 20,
            inbox_bytes: 1 << 30,
            epoch: 0,
            generation: 5,
            ring_after: None,
        });
        End {
            endpoint,
            directs: Directs::default(),
            out: VecDeque::new(),
        }
    }

    /// Sends as much of a message as the connection takes.
    fn push(&mut self, sending: &mut Sending) -> SendProgress {
        let direct = self.directs.writer(sending.to()).expect("it is open");
        let ring = (direct, false);
        self.endpoint
            .poll_send_by(NOW, sending, ring, &mut self.out)
            .expect("the message is short enough")
    }

    fn read(&mut self) -> Option<Received> {
        let until = Until::Message(&Filter::ANY);
        let found = self.directs.read(&mut self.endpoint, NOW, until);
        found.or_else(|| self.endpoint.take(NOW, &Filter::ANY, &mut self.out))
    }

    fn settle(&mut self) -> Vec<RingClosed> {
        self.directs.settle(&mut self.endpoint, NOW, &mut self.out)
    }
}

fn task(host: u16) -> Tid {
    Tid::new(MachineId::from_bits(1), HostId(host), 1)
}

/// The daemon's part: reads the opening of the connection that comes.
fn admit(listener: &TcpListener, number: u64) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("a connection comes");
    let mut opening = [0; OPENING];
    stream.read_exact(&mut opening).expect("an opening comes");
    assert_eq!(read_opening(&opening).map(|(id, _)| id), Some(number));
    stream
}

/// Two tasks with a connection, which the first one has dialled.
fn ends(sealed: bool) -> [End; 2] {
    ends_of(7, sealed)
}

fn ends_of(id: u64, sealed: bool) -> [End; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let secret = Secret::new([9; 32]);
    let [mut first, mut second] = [1, 2].map(End::new);
    let dial = DirectDial {
        peer: task(2),
        id,
        addr: listener.local_addr().expect("it listens").to_string(),
        secret: secret.clone(),
        sealed,
    };
    assert_eq!(first.directs.dial(&dial, task(1), NOW), Ok(()));
    let open = DirectOpen {
        peer: task(1),
        id,
        secret,
        sealed,
    };
    // The kernel of a loaded computer completes the connection late, and only then takes the opening.
    let socket: OwnedFd = std::thread::scope(|scope| {
        let admitted = scope.spawn(|| admit(&listener, id));
        while !admitted.is_finished() {
            first.directs.flush();
        }
        admitted.join().expect("the connection is admitted").into()
    });
    assert!(second.directs.accept(&open, socket, &mut second.endpoint));
    // The first frame of the peer opens the connection for the task that dials.
    while first.directs.writer(task(2)).is_none() {
        assert!(first.read().is_none());
    }
    [first, second]
}

#[test]
fn messages_of_every_length_come_in_order_in_both_directions() {
    for sealed in [true, false] {
        let mut ends = ends(sealed);
        let lengths = [0, 1, 8, 4_096, 65_536, 65_537, 1 << 20, 3 << 20];
        for (number, len) in lengths.into_iter().enumerate() {
            ends.reverse();
            let [from, to] = &mut ends;
            let (body, tag) = (vec![number as u8; len], number as i32);
            let peer = to.endpoint.me();
            let mut sending = from.endpoint.start_send(peer, 0, tag, body.into());
            let message = loop {
                if from.push(&mut sending) != SendProgress::Done || from.directs.unwritten(peer) > 0
                {
                    from.directs.flush();
                    assert!(from.read().is_none());
                }
                if let Some(message) = to.read() {
                    break message;
                }
            };
            assert_eq!((message.tag, message.body.len()), (tag, len));
            assert!(message.body.iter().all(|byte| *byte == number as u8));
            assert!(ends.iter().all(|end| end.out.is_empty()));
        }
    }
}

#[test]
fn a_chunk_that_the_kernel_does_not_take_whole_is_known_and_goes_on_later() {
    for sealed in [true, false] {
        let [mut first, mut second] = ends(sealed);
        let peer = task(2);
        let body = Bytes::from(vec![3; 60_000]);
        let mut sent = 0;
        while first.directs.unwritten(peer) == 0 {
            let mut sending = first.endpoint.start_send(peer, 0, 1, body.clone());
            // Nobody reads; the window is larger than what the kernel keeps.
            match first.push(&mut sending) {
                SendProgress::Done => sent += 1,
                _ => break,
            }
            let socket = first.directs.socket(peer);
            set_socket_send_buffer_size(socket, 4_096).expect("it may be smaller");
        }
        let rest = first.directs.unwritten(peer);
        assert_eq!(rest, sent);
        let (endpoint, out) = (&mut first.endpoint, &mut first.out);
        endpoint.resend_by_daemon(NOW, peer, rest, out);
        let again: Vec<u64> = out.iter().map(|frame| frame.header.seq).collect();
        assert_eq!(again, [rest]);
        for _ in 0..sent {
            while second.read().is_none() {
                first.directs.flush();
            }
        }
        assert_eq!(first.directs.unwritten(peer), 0);
    }
}

#[test]
fn chunks_that_wait_for_the_kernel_together_are_known_and_go_on_later() {
    for sealed in [true, false] {
        let [mut first, mut second] = ends(sealed);
        let peer = task(2);
        let body = Bytes::from(vec![3; 900_000]);
        let socket = first.directs.socket(peer);
        set_socket_send_buffer_size(socket, 4_096).expect("it may be smaller");
        let mut sending = first.endpoint.start_send(peer, 0, 1, body.clone());
        let is_whole = first.push(&mut sending) == SendProgress::Done;
        // Without the cipher all chunks wait; with it, as many as there is room for.
        assert_eq!(is_whole, !sealed);
        let rest = first.directs.unwritten(peer);
        assert!(rest > 0);
        if is_whole {
            let (endpoint, out) = (&mut first.endpoint, &mut first.out);
            endpoint.resend_by_daemon(NOW, peer, rest, out);
            let again: Vec<u64> = out.iter().map(|frame| frame.header.seq).collect();
            assert!(again.len() > 1);
            assert_eq!(again, Vec::from_iter(rest..rest + again.len() as u64));
        }
        let message = loop {
            first.push(&mut sending);
            first.directs.flush();
            if let Some(message) = second.read() {
                break message;
            }
            assert!(first.read().is_none());
        };
        assert_eq!(message.body, body);
        assert_eq!(first.directs.unwritten(peer), 0);
    }
}

#[test]
fn chunks_that_went_by_the_daemon_are_not_held_by_the_connection() {
    let [mut first, mut second] = ends(false);
    let peer = task(2);
    let body = Bytes::from(vec![3; 900_000]);
    let socket = first.directs.socket(peer);
    set_socket_send_buffer_size(socket, 4_096).expect("it may be smaller");
    let mut sending = first.endpoint.start_send(peer, 0, 1, body.clone());
    assert_eq!(first.push(&mut sending), SendProgress::Done);
    drop(sending);
    let rest = first.directs.unwritten(peer);
    let (endpoint, out) = (&mut first.endpoint, &mut first.out);
    endpoint.resend_by_daemon(NOW, peer, rest, out);
    first.directs.rest_went_by_daemon(peer);
    let mut last = 0;
    for frame in first.out.drain(..) {
        last = frame.header.seq;
        second.endpoint.handle(NOW, frame, &mut second.out);
    }
    first.endpoint.ring_acknowledged(NOW, peer, last, u64::MAX);
    assert!(body.is_unique());
    let message = loop {
        first.directs.flush();
        if let Some(message) = second.read() {
            break message;
        }
    };
    assert_eq!(message.body, body);
}

#[test]
fn what_a_closed_connection_may_have_lost_goes_by_the_daemon_once() {
    let [mut first, second] = ends(true);
    let peer = task(2);
    for tag in 1..=3 {
        let mut sending = first
            .endpoint
            .start_send(peer, 0, tag, Bytes::from_static(b"x"));
        assert_eq!(first.push(&mut sending), SendProgress::Done);
    }
    assert!(first.out.is_empty());
    drop(second);
    let closed = loop {
        assert!(first.read().is_none());
        let closed = first.settle();
        if !closed.is_empty() {
            break closed;
        }
    };
    let why = RouteEnd::GivenUp;
    assert_eq!(closed, [RingClosed { peer, id: 7, why }]);
    let again: Vec<(Op, u64)> = first
        .out
        .drain(..)
        .map(|frame| (frame.header.op, frame.header.seq))
        .collect();
    assert_eq!(again, [(Op::Data, 1), (Op::Data, 2), (Op::Data, 3)]);
    assert!(first.directs.is_empty() && first.settle().is_empty());
    assert!(first.out.is_empty());
}

#[test]
fn what_connections_that_are_given_up_may_lose_goes_by_the_daemon_at_once() {
    let [mut first, mut second] = ends_of(13, true);
    let (peer, body) = (task(2), Bytes::from_static(b"x"));
    let mut sending = first.endpoint.start_send(peer, 0, 1, body.clone());
    assert_eq!(first.push(&mut sending), SendProgress::Done);
    let mut sending = second.endpoint.start_send(task(1), 0, 2, body);
    assert_eq!(second.push(&mut sending), SendProgress::Done);
    let directs = &mut first.directs;
    directs.give_up_all(&mut first.endpoint, NOW, &mut first.out);
    assert!(directs.is_empty());
    let again = first
        .out
        .iter()
        .map(|frame| (frame.header.op, frame.header.seq));
    assert!(again.clone().any(|frame| frame == (Op::Data, 1)));
    let mut sending = first.endpoint.start_send(peer, 0, 1, Bytes::new());
    let ring = (&mut vm_endpoint::NoRing, true);
    let sent = first
        .endpoint
        .poll_send_by(NOW, &mut sending, ring, &mut first.out);
    assert_eq!(sent, Ok(SendProgress::Done));
}

#[test]
fn the_daemons_order_sends_again_in_a_handler_and_not_a_second_time() {
    let [mut first, _second] = ends_of(11, true);
    let peer = task(2);
    let mut sending = first
        .endpoint
        .start_send(peer, 0, 4, Bytes::from_static(b"x"));
    assert_eq!(first.push(&mut sending), SendProgress::Done);
    area::note_lost(8);
    assert_eq!(first.directs.lost().count(), 0);
    area::note_lost(11);
    let mut written = Vec::new();
    let lost: Vec<Tid> = first.directs.lost().collect();
    assert_eq!(lost, [peer]);
    let mut write = |header: &vm_wire::Header, body: &[u8]| {
        written.push((header.seq, body.to_vec()));
    };
    first.endpoint.resend_in_handler(peer, &mut write);
    first.endpoint.resend_in_handler(peer, &mut write);
    assert_eq!(written, [(1, b"x".to_vec())]);
    first
        .directs
        .after_freeze(&mut first.endpoint, &mut first.out);
    assert!(first.out.is_empty() && first.directs.writer(peer).is_none());
}

#[test]
fn garbage_ends_the_connection_and_nothing_else() {
    for sealed in [true, false] {
        for garbage in [&[0xff; 200][..], &[0; 200]] {
            let [mut first, mut second] = ends(sealed);
            let sent = send(second.directs.socket(task(1)), garbage, SendFlags::NOSIGNAL);
            assert_eq!(sent, Ok(200));
            while first.settle().is_empty() {
                assert!(first.read().is_none());
            }
            assert!(first.directs.is_empty());
            assert!(second.read().is_none());
        }
    }
}

#[test]
fn a_connection_that_cannot_be_made_is_given_up() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = closed.local_addr().expect("it listened").to_string();
    drop(closed);
    let mut end = End::new(1);
    let mut dial = DirectDial {
        peer: task(2),
        id: 7,
        addr: address,
        secret: Secret::new([9; 32]),
        sealed: true,
    };
    let made = end.directs.dial(&dial, task(1), NOW);
    let why = made.err().unwrap_or_else(|| {
        loop {
            end.directs.flush();
            if let Some(closed) = end.settle().first() {
                return closed.why;
            }
        }
    });
    assert_eq!(why, RouteEnd::NotMade);
    dial.addr = "nowhere".to_owned();
    let made = end.directs.dial(&dial, task(1), NOW);
    assert_eq!(made, Err(RouteEnd::NotMade));
    assert!(end.directs.is_empty());
    const { assert!(RECORD_MAX > OPENING) };
}

#[test]
fn a_wait_learns_of_frames_that_were_read_with_an_earlier_one() {
    for sealed in [true, false] {
        let [mut first, mut second] = ends(sealed);
        for tag in [1, 2] {
            let mut sending = first.endpoint.start_send(task(2), 0, tag, "x".into());
            assert_eq!(first.push(&mut sending), SendProgress::Done);
        }
        let mut tags = Vec::new();
        while tags.len() < 2 {
            if let Some(message) = second.read() {
                tags.push(message.tag);
                assert!(second.directs.have_more());
            }
        }
        assert_eq!(tags, [1, 2]);
        assert!(second.read().is_none() && !second.directs.have_more());
    }
}

#[test]
fn a_connection_that_the_daemon_has_closed_before_the_task_hears_of_it_is_refused() {
    let id = 0x00C1_05ED;
    super::area::note_lost(id);
    let mut end = End::new(2);
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let open = DirectOpen {
        peer: task(1),
        id,
        secret: Secret::new([9; 32]),
        sealed: true,
    };
    assert!(!end.directs.accept(&open, socket.into(), &mut end.endpoint));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let dial = DirectDial {
        peer: task(1),
        id,
        addr: listener.local_addr().expect("it listens").to_string(),
        secret: Secret::new([9; 32]),
        sealed: true,
    };
    // The host can be reached.
    let made = end.directs.dial(&dial, task(2), NOW);
    assert_eq!(made, Err(RouteEnd::GivenUp));
    assert!(end.directs.is_empty());
}

#[test]
fn threads_that_take_places_at_once_get_different_ones() {
    let barrier = std::sync::Barrier::new(2);
    let bases = || -> Vec<usize> {
        let take = |_| {
            let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
            barrier.wait();
            let place = area::Private::take(socket.into(), 7).expect("a place is free");
            barrier.wait();
            place.base()
        };
        (0..2_000).map(take).collect()
    };
    let [first, second] = std::thread::scope(|scope| {
        let threads = [scope.spawn(bases), scope.spawn(bases)];
        threads.map(|thread| thread.join().expect("it ends"))
    });
    assert!(first.iter().zip(&second).all(|(one, other)| one != other));
}
