//! At least one value of every message, with each variant of each enum among them, and the
//! functions that use all of them. The tests of this crate share them.

mod changes;
mod checkpoints;
mod moves;
mod raft;
mod values;

use bytes::Bytes;
pub use values::{Visitor, full_header};
use values::{bytes, facts, failed, machine, snapshot, spawn, text, tid, usage};
use vm_wire::{
    Frame, HostId, Op,
    agreed::{Change, ExitStatus},
    console::{
        self, Answer, Conf, HostRow, HostState, Request, RunEnd, RunSignal, RunStopped, TaskRow,
    },
    direct::Secret,
    peer::{
        Alive, DirectAsk, DirectClosed, DirectEnd, DirectEnds, DirectReady, DrainWay, Feed,
        FeedAsk, FlushAsk, Flushed, Grant, Hello, Join, Joined, KeepOrder, Kept, Last, LastAsk,
        LinksDown, MoveWay, OutputLines, Propose, Refused, RunHold, SignalOrder, Snapshot,
        SpawnOrder, SpawnResult, Usage, UsageAsk,
    },
    task::{
        Await, ContextAsk, ContextGiven, DirectDial, DirectOpen, Done, Ended, Enrol, Exit,
        FailKind, Failed, GroupAsk, GroupChange, GroupView, HostEvent, Hosts, HostsAsk, KeptBy,
        Located, Place, RingAsk, RingClosed, RingOpen, RouteEnd, Siblings, Signal, Spawned, Tids,
        Watch, Watched, Welcome,
    },
    version::Offer,
};

/// Passes every sample to the visitor.
pub fn visit(visitor: &mut impl Visitor) {
    channel(visitor);
    enrolment(visitor);
    task(visitor);
    places(visitor);
    group(visitor);
    peer(visitor);
    orders(visitor);
    changes::changes(visitor);
    console_requests(visitor);
    console_answers(visitor);
    run(visitor);
}

fn channel(visitor: &mut impl Visitor) {
    let data = Frame::new(full_header(Op::Data), Bytes::from_static(b"payload"));
    visitor.frame("Data", data);
    for op in [Op::Ack, Op::Resend] {
        visitor.frame(
            &format!("{op:?}"),
            Frame::new(full_header(op), Bytes::new()),
        );
    }
}

/// Messages that enrol a process, and failed requests.
fn enrolment(visitor: &mut impl Visitor) {
    for (name, token) in [
        ("Enrol", Some(0x0123_4567_89ab_cdef)),
        ("Enrol.master", None),
    ] {
        let program = text("worker");
        visitor.message(
            name,
            Enrol {
                offer: Offer {
                    oldest: 1,
                    newest: 2,
                },
                token,
                program,
            },
        );
    }
    visitor.message(
        "Welcome",
        Welcome {
            version: 1,
            machine: machine(),
            host: HostId(3),
            tid: tid(3, 17),
            parent: tid(1, 2),
            app: tid(1, 1),
            index: 5,
            epoch: 6,
            generation: 7,
            incarnation: 8,
            window_bytes: 1 << 20,
            inbox_bytes: 1 << 30,
        },
    );
    for kind in [
        FailKind::NoSuchHost,
        FailKind::NoSuchTask,
        FailKind::NoSuchGroup,
        FailKind::NotMember,
        FailKind::NoSuchProgram,
        FailKind::Limit,
        FailKind::BadRequest,
        FailKind::Version,
        FailKind::Refused,
        FailKind::HostLost,
        FailKind::System,
        FailKind::NotExecutable,
    ] {
        visitor.message(&format!("Failed.{kind:?}"), Failed::new(kind, "why"));
    }
    visitor.message("Done", Done {});
}

/// Messages about tasks that start, end and are watched.
fn task(visitor: &mut impl Visitor) {
    for (name, place) in [
        ("Spawn.Any", Place::Any),
        ("Spawn.Host", Place::Host(text("node1"))),
        (
            "Spawn.Hosts",
            Place::Hosts(vec![text("node1"), text("node2")]),
        ),
    ] {
        visitor.message(name, spawn(place));
    }
    let failures = vec![(text("node2"), failed())];
    visitor.message(
        "Spawned",
        Spawned {
            tids: vec![tid(1, 2), tid(2, 2)],
            failures,
        },
    );
    visitor.message(
        "Exit",
        Exit {
            status: -1,
            last: vec![(tid(1, 2), 300)],
        },
    );
    visitor.message(
        "Signal",
        Signal {
            tid: tid(1, 2),
            signal: 15,
        },
    );
    for (name, what) in [
        ("Watch.Task", Watched::Task(tid(1, 2))),
        ("Watch.HostAdded", Watched::HostAdded),
        ("Watch.HostDeleted", Watched::HostDeleted),
    ] {
        visitor.message(name, Watch { what, on: true });
    }
    visitor.message("Await", Await { tid: tid(1, 2) });
    visitor.message("RingAsk", RingAsk { peer: tid(1, 2) });
    let (peer, id) = (tid(1, 2), 7);
    visitor.message(
        "RingOpen",
        RingOpen {
            peer,
            id,
            end: 1,
            pid: 300,
        },
    );
    for why in [RouteEnd::Closed, RouteEnd::GivenUp, RouteEnd::NotMade] {
        let closed = RingClosed { peer, id, why };
        visitor.message(&format!("RingClosed.{why:?}"), closed);
    }
    let (secret, sealed) = (Secret::new([8; 32]), true);
    let dial = DirectDial {
        peer,
        id,
        addr: text("10.0.0.2:4567"),
        secret: secret.clone(),
        sealed,
    };
    visitor.message("DirectDial", dial);
    let open = DirectOpen {
        peer,
        id,
        secret,
        sealed,
    };
    visitor.message("DirectOpen", open);
    for (name, status) in [
        ("Ended.Left", ExitStatus::Left(0)),
        ("Ended.Code", ExitStatus::Code(1)),
        ("Ended.Signal", ExitStatus::Signal(9)),
        ("Ended.NotStarted", ExitStatus::NotStarted),
        ("Ended.HostLost", ExitStatus::HostLost),
        ("Ended.Suspended", ExitStatus::Suspended),
        ("Ended.RolledBack", ExitStatus::RolledBack),
        ("Ended.Unknown", ExitStatus::Unknown),
    ] {
        let last = status.in_order().then_some(300);
        visitor.message(
            name,
            Ended {
                tid: tid(1, 2),
                status,
                last,
                keeper: HostId(2),
                watched: true,
            },
        );
    }
}

/// Messages between daemons about direct connections.
fn directs(visitor: &mut impl Visitor) {
    let ends = DirectEnds {
        dials: tid(1, 2),
        accepts: tid(2, 3),
        dials_incarnation: 4,
        accepts_incarnation: 5,
        generation: 6,
    };
    let (request, id, sealed) = (7, 300, true);
    let ask = DirectAsk {
        request,
        ends,
        sealed,
        is_only_way: false,
    };
    visitor.message("DirectAsk", ask);
    let ready = DirectReady {
        request,
        ends,
        id,
        secret: Secret::new([8; 32]),
        sealed,
    };
    visitor.message("DirectReady", ready);
    use DirectEnd::{GivenUp, Late, Left, NotMade};
    for why in [Left, GivenUp, NotMade, Late] {
        let closed = DirectClosed {
            id,
            from: tid(1, 2),
            to: tid(2, 3),
            why,
        };
        visitor.message(&format!("DirectClosed.{why:?}"), closed);
    }
}

/// Messages that locate hosts and tasks.
fn places(visitor: &mut impl Visitor) {
    for (name, by) in [("KeptBy.elsewhere", Some(HostId(3))), ("KeptBy.lost", None)] {
        let host = HostId(2);
        visitor.message(name, KeptBy { host, by });
    }
    let hosts = vec![HostId(3), HostId(7)];
    let (of, number) = (HostId(2), 5);
    visitor.message("LinksDown", LinksDown { of, number, hosts });
    directs(visitor);
    visitor.message(
        "HostEvent",
        HostEvent {
            host: HostId(4),
            name: text("node4"),
            added: true,
        },
    );
    visitor.message(
        "Located",
        Located {
            peer: Some(tid(1, 2)),
            host: HostId(4),
            incarnation: 3,
        },
    );
    visitor.message(
        "Located.host",
        Located {
            peer: None,
            host: HostId(4),
            incarnation: 0,
        },
    );
    visitor.message("HostsAsk", HostsAsk {});
    visitor.message(
        "Hosts",
        Hosts {
            hosts: vec![(HostId(1), facts(), 12)],
        },
    );
    visitor.message("Siblings", Siblings {});
    visitor.message(
        "Tids",
        Tids {
            tids: vec![tid(1, 2), tid(2, 2)],
        },
    );
}

fn group(visitor: &mut impl Visitor) {
    visitor.message(
        "GroupChange",
        GroupChange {
            group: text("ring"),
            join: true,
        },
    );
    visitor.message(
        "GroupAsk",
        GroupAsk {
            group: text("ring"),
            version: 9,
        },
    );
    let members = vec![(0, tid(1, 2)), (2, tid(2, 2))];
    visitor.message(
        "GroupView",
        GroupView {
            group: text("ring"),
            version: 9,
            members,
        },
    );
    visitor.message("ContextAsk", ContextAsk {});
    visitor.message("ContextGiven", ContextGiven { context: 3 });
}

fn peer(visitor: &mut impl Visitor) {
    let offer = Offer {
        oldest: 1,
        newest: 2,
    };
    let host = HostId(2);
    let name = text("node2");
    visitor.message(
        "Hello",
        Hello {
            offer,
            machine: Some(machine()),
            host,
            name,
        },
    );
    visitor.message(
        "Join",
        Join {
            nonce: 0x0123_4567_89ab_cdef,
            facts: facts(),
        },
    );
    visitor.message(
        "Joined",
        Joined {
            host: HostId(2),
            snapshot: snapshot(),
        },
    );
    visitor.message("Refused", Refused { why: failed() });
    raft::visit(visitor);
    let changes = vec![Change::Halt, Change::HostDead(HostId(3))];
    visitor.message(
        "Propose",
        Propose {
            proposer: HostId(2),
            number: 300,
            changes,
        },
    );
    visitor.message("FeedAsk", FeedAsk { after: 999 });
    let entries = vec![bytes(b"entry"), bytes(b"")];
    visitor.message(
        "Feed",
        Feed {
            first: 1000,
            entries,
            voters: vec![HostId(1)],
        },
    );
    visitor.message(
        "Snapshot",
        Snapshot {
            snapshot: snapshot(),
        },
    );
    visitor.message(
        "Alive",
        Alive {
            number: 70_000,
            applied: 999,
        },
    );
    let voters = vec![HostId(1)];
    visitor.message(
        "Grant",
        Grant {
            number: 70_000,
            leader: HostId(1),
            voters,
        },
    );
}

fn orders(visitor: &mut impl Visitor) {
    visitor.message(
        "SpawnOrder",
        SpawnOrder {
            requester: tid(1, 2),
            request: 300,
            app: tid(1, 1),
            generation: 3,
            runs: vec![(0, 2), (5, 1)],
            siblings: 6,
            console: HostId(1),
            program: text("worker"),
            args: vec![text("-n")],
            env: vec![(text("KEY"), text("value"))],
            dir: None,
        },
    );
    visitor.message(
        "SpawnResult",
        SpawnResult {
            requester: tid(1, 2),
            request: 300,
            generation: 3,
            tids: vec![(0, tid(2, 7)), (1, tid(2, 8))],
            failed: Some(failed()),
        },
    );
    visitor.message(
        "SignalOrder",
        SignalOrder {
            tid: tid(1, 2),
            signal: 9,
        },
    );
    let (ended, watcher) = (tid(1, 2), tid(2, 2));
    visitor.message("LastAsk", LastAsk { ended, watcher });
    visitor.message(
        "Last",
        Last {
            ended,
            watcher,
            last: Some(300),
        },
    );
    let line = bytes(b"line\n");
    visitor.message(
        "OutputLines",
        OutputLines {
            tid: ended,
            stream: 2,
            bytes: line,
            dropped: 5,
        },
    );
    visitor.message(
        "KeepOrder",
        KeepOrder {
            from: ended,
            to: watcher,
            last: 300,
        },
    );
    visitor.message(
        "Kept",
        Kept {
            frame: bytes(b"frame"),
        },
    );
    let (app, number) = (ended, 300);
    visitor.message("FlushAsk", FlushAsk { app, number });
    visitor.message("Flushed", Flushed { app, number });
    let hold = RunHold {
        tid: tid(1, 1),
        hold: true,
    };
    visitor.message("RunHold", hold);
    moves::moves(visitor);
    checkpoints::visit(visitor);
    checkpoints::restart(visitor);
    moves::coordinator(visitor);
    visitor.message("UsageAsk", UsageAsk { question: 300 });
    visitor.message(
        "Usage",
        Usage {
            question: 300,
            rows: vec![usage()],
        },
    );
}

fn console_requests(visitor: &mut impl Visitor) {
    let terminal = Some(console::WindowSize {
        rows: 24,
        columns: 80,
    });
    let at_once = MoveWay {
        precopy: false,
        compress: true,
        suspended: true,
    };
    for (name, request) in [
        (
            "Version",
            Request::Version(Offer {
                oldest: 1,
                newest: 2,
            }),
        ),
        ("Conf", Request::Conf),
        ("Ps", Request::Ps(Some(tid(1, 1)))),
        (
            "Run",
            Request::Run {
                spawn: spawn(Place::Any),
                terminal,
            },
        ),
        ("Spawn", Request::Spawn(spawn(Place::Any))),
        ("Signal", Request::Signal(tid(1, 1), 2)),
        ("Delete", Request::Delete(text("node2"))),
        ("AwaitHost", Request::AwaitHost(text("node2"))),
        ("Check", Request::Check(tid(1, 1))),
        (
            "Move",
            Request::Move(tid(1, 1), Some(text("node2")), MoveWay::default()),
        ),
        ("Move.anywhere", Request::Move(tid(1, 1), None, at_once)),
        ("Moves", Request::Moves),
        ("Checkpoint", Request::Checkpoint(tid(2, 5), true)),
        ("Suspend", Request::Suspend(tid(1, 1), 7_200_000)),
        ("Resume", Request::Resume(tid(1, 1), Some(text("node3")))),
        ("Suspended", Request::Suspended),
        ("Drain", Request::Drain(text("node2"), DrainWay::default())),
        ("Undrain", Request::Undrain(text("node2"))),
        ("Halt", Request::Halt),
    ] {
        visitor.message(&format!("ConsoleRequest.{name}"), request);
    }
}

fn console_answers(visitor: &mut impl Visitor) {
    let states = [
        HostState::Live,
        HostState::Draining,
        HostState::Leaving,
        HostState::Gone,
        HostState::Dead,
    ];
    let hosts = states.map(|state| HostRow {
        host: HostId(1),
        facts: facts(),
        tasks: 12,
        voter: true,
        state,
    });
    let conf = Conf {
        machine: machine(),
        here: HostId(2),
        leader: HostId(1),
        applied: 999,
        store: text("/s"),
        hosts: hosts.to_vec(),
        links_down: vec![(HostId(1), HostId(3))],
    };
    let version = Answer::Version {
        version: 1,
        release: text("0.1.0"),
        machine: machine(),
        host: HostId(2),
    };
    let task = TaskRow {
        tid: tid(3, 17),
        parent: tid(1, 1),
        app: tid(1, 1),
        host: text("node3"),
        incarnation: 2,
        program: text("worker"),
        usage: Some(usage()),
        suspended: true,
    };
    for (name, answer) in [
        ("Version", version),
        ("Conf", Answer::Conf(conf)),
        ("Ps", Answer::Ps(vec![task])),
        ("Started", Answer::Started(vec![tid(1, 1)])),
        ("Done", Answer::Done),
        ("Check", Answer::Check(vec![text("why not")])),
        ("Moved", Answer::Moved(moves::move_report())),
        ("Moves", Answer::Moves(vec![moves::move_row()])),
        ("Checkpointed", Answer::Checkpointed(checkpoints::report())),
        (
            "Suspended",
            Answer::Suspended(vec![checkpoints::suspended()]),
        ),
        ("Drained", Answer::Drained(moves::drain_report())),
        ("Failed", Answer::Failed(failed())),
    ] {
        visitor.message(&format!("ConsoleAnswer.{name}"), answer);
    }
}

fn run(visitor: &mut impl Visitor) {
    visitor.message(
        "Input",
        console::Input {
            bytes: bytes(b"typed"),
        },
    );
    let output = console::Output {
        tid: tid(1, 1),
        stream: 1,
        bytes: bytes(b"out"),
        dropped: 5,
    };
    visitor.message("Output", output);
    visitor.message(
        "WindowSize",
        console::WindowSize {
            rows: 24,
            columns: 80,
        },
    );
    visitor.message("RunSignal", RunSignal { signal: 2 });
    visitor.message(
        "RunEnd",
        RunEnd {
            status: Some(ExitStatus::Code(3)),
        },
    );
    visitor.message("RunStopped", RunStopped { stopped: true });
}
