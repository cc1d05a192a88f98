//! Requests of consoles, and programs that run as if they were local.

use crate::world::{Carry, World, on, spawn, tid};
use std::time::Duration;
use vm_machine::{ConnId, ConsoleInput, Input, ProcessInput};
use vm_wire::{
    Body, Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    console::{self, Answer, Output, Request, RunEnd, RunSignal, RunStopped, WindowSize},
    limits,
    peer::{DrainWay, Order},
    task::{Exit, FailKind, Place},
    version::Offer,
};

fn failure(answer: Answer) -> FailKind {
    match answer {
        Answer::Failed(failed) => failed.kind,
        other => panic!("{other:?}"),
    }
}

/// Runs a program on n1. Returns the console and the master.
pub fn run(world: &mut World) -> (ConnId, Tid) {
    run_on(world, 1)
}

/// The same on that host.
pub fn run_on(world: &mut World, host: u16) -> (ConnId, Tid) {
    let terminal = WindowSize {
        rows: 24,
        columns: 80,
    };
    begin_run(world, host, Some(terminal))
}

/// The same, with that terminal, or with pipes.
fn begin_run(world: &mut World, host: u16, terminal: Option<WindowSize>) -> (ConnId, Tid) {
    let conn = world.conn();
    let spawn = spawn("prog", 1, Place::Any);
    let answer = world.console(host, conn, &Request::Run { spawn, terminal });
    let Answer::Started(tids) = answer else {
        panic!("{answer:?}")
    };
    world.run_until("the master to enrol", |world| world.is_enrolled(tids[0]));
    (conn, tids[0])
}

fn output(frame: &Frame) -> Option<(Tid, String)> {
    let output = (frame.header.op == Op::Output).then(|| Output::read(frame).expect("output"))?;
    let text = String::from_utf8(output.bytes.into_vec()).expect("text");
    Some((output.tid, text))
}

pub fn shown(world: &World, conn: ConnId) -> Vec<(Tid, String)> {
    world.consoles[&conn].iter().filter_map(output).collect()
}

fn write(world: &mut World, tid: Tid, text: &str) {
    let host = world.processes[&tid].host;
    let bytes = text.as_bytes().to_vec();
    let stream = 1;
    world.input(host, ProcessInput::Output { tid, stream, bytes });
}

#[test]
fn a_run_is_tied_to_its_console() {
    let mut world = World::new(2);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    let bytes = Body::from(b"typed".to_vec());
    world.input(
        HostId(1),
        ConsoleInput::Frame(conn, console::Input { bytes }.frame()),
    );
    world.input(
        HostId(1),
        ConsoleInput::Frame(conn, RunSignal { signal: 2 }.frame()),
    );
    write(&mut world, master, "from the master\n");
    write(&mut world, worker, "from a worker\n");
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.processes[&master].input, b"typed");
    assert_eq!(world.processes[&master].signals, [2]);
    assert_eq!(
        shown(&world, conn),
        [
            (master, "from the master\n".to_owned()),
            (worker, "from a worker\n".to_owned())
        ]
    );
    world.die(master, ExitStatus::Code(3));
    world.run_for(Duration::from_millis(100));
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Code(3)));
}

/// The end of its run that this console was sent, if any.
pub fn run_end(world: &World, conn: ConnId) -> Option<RunEnd> {
    let last = world.consoles[&conn].last()?;
    (last.header.op == Op::RunEnd).then(|| RunEnd::read(last).expect("the end"))
}

/// The end of a run with that status.
pub fn ended(status: ExitStatus) -> Option<RunEnd> {
    let status = Some(status);
    Some(RunEnd { status })
}

/// The end of a run whose application continues.
const RUNS_ON: Option<RunEnd> = Some(RunEnd { status: None });

#[test]
fn a_run_ends_after_the_last_line_of_tasks_that_left_before() {
    let mut world = World::new(3);
    let (conn, master) = run(&mut world);
    let here = world.spawn(master, "worker", 1, on(1)).tids[0];
    let there = world.spawn(master, "worker", 1, on(2)).tids[0];
    let lives = world.spawn(master, "worker", 1, on(3)).tids[0];
    for worker in [here, there] {
        world.leave(worker, 0).expect("it may leave");
    }
    world.exit(master, 0).expect("it may leave");
    world.run_for(Duration::from_millis(100));
    for worker in [there, here] {
        assert_eq!(run_end(&world, conn), None);
        write(&mut world, worker, "done\n");
        world.die(worker, ExitStatus::Code(0));
        world.run_for(Duration::from_millis(20));
    }
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Code(0)));
    assert_eq!(shown(&world, conn).len(), 2);
    assert!(world.is_alive(lives));
}

#[test]
fn a_run_does_not_wait_long_for_a_process_that_lives_on() {
    let mut world = World::new(2);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.leave(worker, 0).expect("it may leave");
    world.exit(master, 0).expect("it may leave");
    world.run_for(Duration::from_millis(100));
    assert_eq!(run_end(&world, conn), None);
    world.run_for(vm_wire::limits::FLUSH_WAIT);
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Code(0)));
}

#[test]
fn lines_of_a_task_that_ends_precede_the_end_of_its_run_though_its_host_is_behind() {
    let mut world = World::new(3);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.behind = Some(HostId(2));
    let exit = Exit {
        status: 0,
        last: Vec::new(),
    };
    let number = world.request(worker, &exit);
    world.run_for(Duration::from_millis(50));
    let state = world.daemon(1).agreement().state();
    assert!(state.living_task(worker).is_none());
    world.exit(master, 0).expect("it may leave");
    world.run_for(Duration::from_millis(50));
    assert!(world.answers(worker, number).is_empty(), "it is behind");
    assert_eq!(run_end(&world, conn), None);
    write(&mut world, worker, "done\n");
    world.die(worker, ExitStatus::Code(0));
    world.run_for(Duration::from_millis(50));
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Code(0)));
    assert_eq!(shown(&world, conn), [(worker, "done\n".to_owned())]);
}

#[test]
fn output_without_a_console_goes_to_the_log() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    write(&mut world, worker, "a line\n");
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.log, [(worker, "a line\n".to_owned())]);
}

#[test]
fn a_console_that_does_not_read_holds_up_the_tasks_that_write() {
    let mut world = World::new(2);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.input(HostId(1), ConsoleInput::Full(conn));
    write(&mut world, worker, "lost\n");
    world.run_for(Duration::from_millis(100));
    assert!(world.noted.contains(&format!("pause {master}")));
    let new = world.spawn(master, "worker", 1, on(1)).tids[0];
    assert!(!world.noted.contains(&format!("pause {new}")));
    write(&mut world, new, "first\n");
    world.run_for(Duration::from_millis(10));
    assert!(world.noted.contains(&format!("pause {new}")));
    world.input(HostId(1), ConsoleInput::Room(conn));
    write(&mut world, worker, "seen\n");
    world.run_for(Duration::from_millis(100));
    assert!(world.noted.contains(&format!("resume {master}")));
    let lines = [(new, "first\n".to_owned()), (worker, "seen\n".to_owned())];
    assert_eq!(shown(&world, conn), lines);
    let frames = world.consoles[&conn].iter();
    let outputs = frames.filter(|frame| frame.header.op == Output::OP);
    let dropped = outputs.map(|frame| Output::read(frame).expect("output").dropped);
    let dropped: u64 = dropped.sum();
    assert_eq!(dropped, 5);
}

#[test]
fn a_run_whose_console_is_gone_gets_a_hangup() {
    let mut world = World::new(1);
    let (conn, master) = run(&mut world);
    world.input(HostId(1), Input::ConnGone(conn));
    write(&mut world, master, "to nobody\n");
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.processes[&master].signals, [1]);
    assert_eq!(world.log, [(master, "to nobody\n".to_owned())]);
}

#[test]
fn a_run_that_cannot_start_gives_the_reason() {
    let mut world = World::new(2);
    let conn = world.conn();
    let run = |program: &str, count, place| Request::Run {
        spawn: spawn(program, count, place),
        terminal: None,
    };
    let missing = world.console(1, conn, &run("missing", 1, Place::Any));
    assert_eq!(failure(missing), FailKind::NoSuchProgram);
    let elsewhere = world.console(1, conn, &run("prog", 1, on(2)));
    assert_eq!(failure(elsewhere), FailKind::Refused);
    let several = world.console(1, conn, &run("prog", 2, Place::Any));
    assert_eq!(failure(several), FailKind::BadRequest);
    let broken = world.console(1, conn, &run("broken", 1, Place::Any));
    assert!(matches!(broken, Answer::Started(_)));
    world.run_for(Duration::from_millis(100));
    assert_eq!(run_end(&world, conn), ended(ExitStatus::NotStarted));
}

#[test]
fn the_listing_shows_the_usage_of_every_task() {
    let mut world = World::new(3);
    let (one, two) = (world.master(1, "one"), world.master(2, "two"));
    let worker = world.spawn(one, "worker", 1, on(3)).tids[0];
    let conn = world.conn();
    let listed = |answer| match answer {
        Answer::Ps(rows) => rows,
        other => panic!("{other:?}"),
    };
    let all = listed(world.console(2, conn, &Request::Ps(None)));
    let tids: Vec<Tid> = all.iter().map(|row| row.tid).collect();
    assert_eq!(tids, [one, two, worker]);
    assert!(all.iter().all(|row| row.usage.is_some()));
    assert_eq!(
        (all[2].parent, all[2].app, all[2].host.as_str()),
        (one, one, "n3")
    );
    let some = listed(world.console(2, conn, &Request::Ps(Some(one))));
    assert_eq!(some.len(), 2);
    // A host that does not reply costs the usage, not the listing.
    world.cut(2, 3, true);
    let all = listed(world.console(2, conn, &Request::Ps(None)));
    assert_eq!(all.iter().filter(|row| row.usage.is_some()).count(), 2);
    let unknown = world.console(2, conn, &Request::Ps(Some(tid(9, 9))));
    assert_eq!(failure(unknown), FailKind::NoSuchTask);
}

#[test]
fn the_listing_waits_for_processes_that_start() {
    let mut world = World::new(2);
    let conn = world.conn();
    let start = |world: &mut World, program| {
        let ask = Request::Spawn(spawn(program, 1, on(2)));
        match world.console(1, conn, &ask) {
            Answer::Started(tids) => tids[0],
            other => panic!("{other:?}"),
        }
    };
    let measured = |world: &mut World, meanwhile: &dyn Fn(&mut World)| {
        let number = world.console_request(1, conn, &Request::Ps(None));
        world.run_for(limits::START_WAIT / 2);
        assert_eq!(world.console_answer(conn, number), None);
        meanwhile(world);
        world.run_until("the listing", |world| {
            world.console_answer(conn, number).is_some()
        });
        let Some(Answer::Ps(rows)) = world.console_answer(conn, number) else {
            panic!("no listing")
        };
        let measured = rows.into_iter().filter(|row| row.usage.is_some());
        measured.map(|row| row.tid).collect::<Vec<_>>()
    };
    let (old, late) = (start(&mut world, "silent"), start(&mut world, "slow"));
    // A process that does not start costs no usage of other tasks, and is awaited once.
    assert_eq!(measured(&mut world, &|_| {}), [old]);
    let number = world.console_request(1, conn, &Request::Ps(None));
    world.run_for(limits::START_WAIT / 2);
    assert!(world.console_answer(conn, number).is_some());
    world.start_slow(true);
    let slow = start(&mut world, "slow");
    let starts = |world: &mut World| world.start_slow(true);
    assert_eq!(measured(&mut world, &starts), [old, late, slow]);
    start(&mut world, "slow");
    let fails = |world: &mut World| world.start_slow(false);
    assert_eq!(measured(&mut world, &fails), [old, late, slow]);
}

#[test]
fn versions_configuration_and_checks_are_reported() {
    let mut world = World::new(3);
    let conn = world.conn();
    match world.console(2, conn, &Request::Version(Offer::OURS)) {
        Answer::Version { version, host, .. } => {
            assert_eq!((version, host), (vm_wire::version::CURRENT, HostId(2)))
        }
        other => panic!("{other:?}"),
    }
    let future = Offer {
        oldest: 90,
        newest: 99,
    };
    assert_eq!(
        failure(world.console(2, conn, &Request::Version(future))),
        FailKind::Version
    );
    match world.console(2, conn, &Request::Conf) {
        Answer::Conf(conf) => {
            assert_eq!((conf.here, conf.leader), (HostId(2), HostId(1)));
            assert!(conf.hosts.iter().all(|row| row.voter));
        }
        other => panic!("{other:?}"),
    }
    let master = world.master(1, "master");
    match world.console(2, conn, &Request::Check(master)) {
        Answer::Check(reasons) => assert_eq!(reasons, [""; 0]),
        other => panic!("{other:?}"),
    }
    let unknown = world.console(2, conn, &Request::Check(tid(1, 9)));
    assert_eq!(failure(unknown), FailKind::NoSuchTask);
    let unknown = world.console(2, conn, &Request::Signal(tid(1, 9), 15));
    assert_eq!(failure(unknown), FailKind::NoSuchTask);
}

#[test]
fn a_spawn_that_succeeds_in_part_names_the_started_tasks() {
    let mut world = World::new(2);
    let conn = world.conn();
    world.cut(1, 2, true);
    let place = Place::Hosts(vec!["n1".to_owned(), "n2".to_owned()]);
    let request = Request::Spawn(spawn("prog", 2, place));
    let number = world.console_request(1, conn, &request);
    world.run_for(Duration::from_millis(100));
    world.crash(2);
    world.run_until("the answer", |world| {
        world.console_answer(conn, number).is_some()
    });
    match world.console_answer(conn, number) {
        Some(Answer::Failed(failed)) => {
            assert_eq!(failed.kind, FailKind::HostLost);
            assert!(failed.text.contains("only t1.1 started"), "{failed}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signal_at_the_console_reaches_a_master_that_has_left_and_still_runs() {
    let mut world = World::new(2);
    let (conn, master) = run(&mut world);
    world.leave(master, 0).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    let frame = RunSignal { signal: 10 }.frame();
    world.input(HostId(1), ConsoleInput::Frame(conn, frame));
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.processes[&master].signals, [10]);
    world.input(HostId(1), Input::ConnGone(conn));
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.processes[&master].signals, [10, 1]);
}

#[test]
fn a_listing_of_any_task_is_that_of_its_application() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.master(2, "another");
    for tid in [master, worker] {
        let conn = world.conn();
        let number = world.console_request(1, conn, &Request::Ps(Some(tid)));
        world.run_until("the listing", |world| {
            world.console_answer(conn, number).is_some()
        });
        let Some(Answer::Ps(rows)) = world.console_answer(conn, number) else {
            panic!("no listing");
        };
        let tids: Vec<Tid> = rows.iter().map(|row| row.tid).collect();
        assert_eq!(tids, [master, worker]);
    }
}

/// Runs a program on n1 without a terminal.
fn piped(world: &mut World, input: &[&[u8]]) -> (ConnId, Tid) {
    let (conn, master) = begin_run(world, 1, None);
    for bytes in input {
        let bytes = Body::from(bytes.to_vec());
        let typed = console::Input { bytes };
        world.input(HostId(1), ConsoleInput::Frame(conn, typed.frame()));
    }
    world.run_for(Duration::from_millis(10));
    (conn, master)
}

/// Moves a task. Returns source and target, or the reason why the task stays.
fn go(world: &mut World, tid: Tid, to: u16) -> Result<(HostId, HostId), String> {
    let request = world.request_move(1, tid, to);
    let moved = world.moved(request);
    moved.map_err(|failed| failed.text)
}

#[test]
fn a_master_without_a_terminal_or_input_moves_and_its_output_arrives_in_order() {
    let mut world = World::new(3);
    let (conn, master) = piped(&mut world, &[b""]);
    let mut written = Vec::new();
    let mut say = |world: &mut World, text: &str| {
        write(world, master, text);
        written.push((master, text.to_owned()));
    };
    say(&mut world, "here");
    assert_eq!(go(&mut world, master, 2), Ok((HostId(1), HostId(2))));
    say(&mut world, "there\n");
    // Its output has to reach the console's host before it may continue at the target.
    world.cut(1, 2, true);
    say(&mut world, "late");
    let request = world.request_move(1, master, 3);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.processes[&master].host, HostId(2));
    world.heal(1, 2);
    assert_eq!(world.moved(request).map(|(_, to)| to), Ok(HostId(3)));
    say(&mut world, "far");
    assert_eq!(go(&mut world, master, 1), Ok((HostId(3), HostId(1))));
    say(&mut world, "back");
    assert_eq!(go(&mut world, master, 2), Ok((HostId(1), HostId(2))));
    say(&mut world, "last");
    world.die(master, ExitStatus::Code(7));
    world.run_for(Duration::from_secs(1));
    assert_eq!(shown(&world, conn), written);
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Code(7)));
}

/// Number of times that the output of a task was paused, or resumed (`what`).
fn count(world: &World, what: &str, tid: Tid) -> usize {
    let what = format!("{what} {tid}");
    world.noted.iter().filter(|it| **it == what).count()
}

/// From now on the orders that `lost` selects are lost. The host sends its other orders to the
/// console's host again.
fn lose(world: &mut World, host: u16, lost: Option<fn(&Order) -> bool>) {
    world.lost = lost;
    world.cut(1, host, false);
}

/// A master writes at least that many bytes, in numbered pieces. Returns the pieces.
fn write_much(world: &mut World, master: Tid, bytes: usize) -> Vec<(Tid, String)> {
    let pieces = 0..=bytes / limits::LINE_MAX;
    let pieces = pieces.map(|number| {
        (
            master,
            format!("{number:0width$}", width = limits::LINE_MAX),
        )
    });
    let pieces: Vec<_> = pieces.collect();
    for (_, piece) in &pieces {
        write(world, master, piece);
    }
    world.run_for(Duration::from_millis(10));
    pieces
}

#[test]
fn a_moved_master_waits_while_its_console_does_not_read_and_loses_no_output() {
    let mut world = World::new(3);
    let (conn, master) = piped(&mut world, &[b""]);
    go(&mut world, master, 2).expect("it moves");
    world.input(HostId(1), ConsoleInput::Full(conn));
    world.run_for(Duration::from_millis(100));
    let paused = count(&world, "pause", master);
    assert!(paused > 0);
    write(&mut world, master, "under way");
    go(&mut world, master, 3).expect("it moves");
    world.run_for(Duration::from_millis(100));
    assert!(
        count(&world, "pause", master) > paused,
        "its new host knows"
    );
    let resumed = count(&world, "resume", master);
    world.input(HostId(1), ConsoleInput::Room(conn));
    world.run_for(Duration::from_millis(100));
    assert!(count(&world, "resume", master) > resumed);
    // More than the channel takes at once.
    world.cut(1, 3, true);
    let much = write_much(&mut world, master, 2 * limits::RUN_QUEUE_BYTES);
    world.heal(1, 3);
    world.run_for(Duration::from_secs(1));
    let first = vec![(master, "under way".to_owned())];
    assert_eq!(shown(&world, conn), [first, much].concat());
}

#[test]
fn a_master_waits_also_if_its_target_hears_of_the_full_console_before_the_move_is_committed() {
    let mut world = World::new(3);
    let (conn, master) = piped(&mut world, &[b""]);
    go(&mut world, master, 2).expect("it moves");
    world.input(HostId(1), ConsoleInput::Full(conn));
    world.run_for(Duration::from_millis(100));
    // The log of the target is behind the log of the console's host.
    world.behind = Some(HostId(3));
    let request = world.request_move(1, master, 3);
    world.run_for(Duration::from_millis(100));
    let state = world.daemon(1).agreement().state();
    assert_eq!(state.living_task(master).map(|it| it.host), Some(HostId(3)));
    assert!(world.processes[&master].frozen);
    world.behind = None;
    world.moved(request).expect("it moves");
    world.run_until("it has come", |world| !world.processes[&master].frozen);
    assert_eq!(world.processes[&master].host, HostId(3));
    let paused = count(&world, "pause", master);
    write(&mut world, master, "first");
    world.run_for(Duration::from_millis(100));
    assert!(count(&world, "pause", master) > paused);
    world.input(HostId(1), ConsoleInput::Room(conn));
    write(&mut world, master, "second");
    world.run_for(Duration::from_millis(100));
    let all = ["first", "second"].map(|text| (master, text.to_owned()));
    assert_eq!(shown(&world, conn), all);
}

#[test]
fn a_master_that_moves_on_waits_for_room_in_the_channel_to_its_console() {
    for to in [3, 1] {
        let mut world = World::new(3);
        let (conn, master) = piped(&mut world, &[b""]);
        go(&mut world, master, 2).expect("it moves");
        world.carry = Carry::Held;
        let request = world.request_move(1, master, to);
        world.run_until("the image", |world| world.processes[&master].frozen);
        world.lost = Some(|order| matches!(order, Order::OutputLines(_)));
        let mut written = write_much(&mut world, master, limits::QUEUE_BYTES);
        world.arrive(master);
        world.run_for(Duration::from_secs(1));
        assert!(world.processes[&master].frozen);
        assert_eq!(world.processes[&master].host, HostId(2));
        lose(&mut world, 2, None);
        assert_eq!(world.moved(request), Ok((HostId(2), HostId(to))));
        write(&mut world, master, "at last");
        world.run_for(Duration::from_secs(1));
        written.push((master, "at last".to_owned()));
        assert!(shown(&world, conn) == written, "to n{to}");
        assert_eq!(world.daemon(2).counters().output_dropped, 0);
    }
}

#[test]
fn output_of_an_ended_master_that_could_not_be_sent_is_counted() {
    let mut world = World::new(3);
    let (conn, master) = piped(&mut world, &[b""]);
    go(&mut world, master, 2).expect("it moves");
    world.lost = Some(|order| matches!(order, Order::OutputLines(_)));
    let written = write_much(&mut world, master, 2 * limits::QUEUE_BYTES);
    world.die(master, ExitStatus::Code(0));
    world.run_for(Duration::from_millis(100));
    lose(&mut world, 2, None);
    world.run_until("the end of the run", |world| run_end(world, conn).is_some());
    world.run_for(Duration::from_secs(1));
    let shown = shown(&world, conn);
    let dropped = world.daemon(2).counters().output_dropped;
    assert!(dropped > limits::QUEUE_BYTES as u64 / 2, "{dropped}");
    let left = written.len() - dropped as usize / limits::LINE_MAX;
    assert!(shown == written[..left]);
}

#[test]
fn a_late_confirmation_for_a_cancelled_move_does_not_release_the_next_move() {
    // The coordinator is on another host than the console.
    let mut world = World::new(1);
    let (conn, master) = piped(&mut world, &[b""]);
    let suspends = DrainWay {
        suspend: true,
        ..DrainWay::default()
    };
    let other = world.conn();
    let drained = world.console(1, other, &Request::Drain("n1".to_owned(), suspends));
    assert!(matches!(drained, Answer::Drained(_)), "{drained:?}");
    for name in ["n2", "n3", "n4"] {
        world.join(HostId(1), name).expect("let in");
    }
    world.run_until("it runs again", |world| world.is_enrolled(master));
    world.run_for(Duration::from_secs(1));
    let coordinator = world.daemon(1).agreement().state().coordinator(master);
    assert_eq!(coordinator.map(|it| it.host), Some(HostId(2)));
    assert_eq!(world.processes[&master].host, HostId(2));
    let before = shown(&world, conn).len();

    world.lost = Some(|order| matches!(order, Order::OutputLines(_) | Order::FlushAsk(_)));
    let first = world.request_move(4, master, 3);
    world.run_for(Duration::from_millis(100));
    assert!(world.processes[&master].frozen);
    world.crash(3);
    world.moved(first).expect_err("its target is lost");
    write(&mut world, master, "here");
    let second = world.request_move(4, master, 4);
    world.run_for(Duration::from_millis(100));
    assert!(world.processes[&master].frozen);
    // The request of the first move arrives, and gets its reply.
    let output = |order: &Order| matches!(order, Order::OutputLines(_));
    lose(&mut world, 2, Some(output));
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.processes[&master].host, HostId(2));
    lose(&mut world, 2, None);
    assert_eq!(world.moved(second), Ok((HostId(2), HostId(4))));
    write(&mut world, master, "there");
    world.run_for(Duration::from_secs(1));
    let all = ["here", "there"].map(|text| (master, text.to_owned()));
    assert_eq!(shown(&world, conn)[before..], all);
}

#[test]
fn a_master_with_a_terminal_or_input_is_not_moved_and_the_reason_is_given() {
    let mut world = World::new(2);
    let (_, on_terminal) = run(&mut world);
    let mut stays = vec![(on_terminal, "its terminal")];
    let inputs: [&[&[u8]]; 3] = [&[], &[b"typed"], &[b"typed", b""]];
    for input in inputs {
        stays.push((piped(&mut world, input).1, "'</dev/null'"));
    }
    for (master, why) in stays {
        let refused = go(&mut world, master, 2).expect_err("it stays");
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_console_with_a_terminal_stops_with_its_master() {
    let mut world = World::new(1);
    let (conn, on_terminal) = run(&mut world);
    let (other, without) = piped(&mut world, &[b""]);
    for stopped in [true, false] {
        for master in [on_terminal, without] {
            world.input(HostId(1), ProcessInput::Stopped(master, stopped));
        }
    }
    world.run_for(Duration::from_millis(10));
    let told = |conn| {
        let frames = world.consoles[&conn].iter();
        let frames = frames.filter(|frame| frame.header.op == Op::RunStopped);
        let stops = frames.map(|frame| RunStopped::read(frame).expect("a stop").stopped);
        stops.collect::<Vec<_>>()
    };
    assert_eq!(told(conn), [true, false]);
    assert!(told(other).is_empty());
}

#[test]
fn a_console_whose_host_leaves_learns_that_its_application_runs_on() {
    let mut world = World::new(1);
    world.join(HostId::FOUNDER, "n2").expect("let in");
    let (conn, master) = begin_run(&mut world, 2, None);
    let end = console::Input {
        bytes: Body::from(Vec::new()),
    };
    world.input(HostId(2), ConsoleInput::Frame(conn, end.frame()));
    world.run_for(Duration::from_millis(10));
    go(&mut world, master, 1).expect("it moves");
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_secs(5));
    assert_eq!(run_end(&world, conn), RUNS_ON);
    write(&mut world, master, "to nobody\n");
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.log, [(master, "to nobody\n".to_owned())]);
}

#[test]
fn a_run_whose_master_has_moved_ends_with_the_machine() {
    let mut world = World::new(2);
    let (conn, master) = piped(&mut world, &[b""]);
    go(&mut world, master, 2).expect("it moves");
    let other = world.conn();
    world.console_request(1, other, &Request::Halt);
    world.run_for(Duration::from_secs(5));
    assert!(!world.is_alive(master));
    assert!(world.end_of(1).is_some() && world.end_of(2).is_some());
    assert!(matches!(
        run_end(&world, conn),
        Some(RunEnd { status: Some(_) })
    ));
}
