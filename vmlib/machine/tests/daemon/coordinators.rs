//! The coordinator of an application dies or hangs, or its host is lost, in each phase of a move.
//! Another one replaces it, the move ends once, and orders of the former coordinator have no
//! effect.

use crate::world::{Carry, CoordinatorProcess, World, on};
use std::{collections::VecDeque, time::Duration};
use vm_coordinator::Coordinator;
use vm_machine::{ConnId, Coordinated, Input, MoveCounters, ProcessInput};
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    console::{Answer, Request},
    coordinator::Mail,
    limits,
    peer::{DrainReport, DrainWay, MovePhase, Order},
    task::FailKind,
};

impl World {
    /// Starts the process of a coordinator on a host.
    pub fn start_coordinator(&mut self, host: HostId, number: u64) {
        if self.no_coordinators {
            return self.input(host, ProcessInput::CoordinatorGone(number));
        }
        let (coordinator, first) = Coordinator::new(500 + number as u32);
        let process = CoordinatorProcess {
            coordinator,
            hangs: false,
            unread: VecDeque::new(),
            orders: Vec::new(),
        };
        self.coordinators.insert((host, number), process);
        self.input(host, Input::Coordinator(number, first));
    }

    /// A daemon sends a frame to a coordinator.
    pub fn tell_coordinator(&mut self, host: HostId, number: u64, frame: Frame) {
        let now = self.now;
        let Some(process) = self.coordinators.get_mut(&(host, number)) else {
            return;
        };
        if process.hangs {
            return process.unread.push_back(frame);
        }
        let mut out = VecDeque::new();
        let taken = process.coordinator.on_frame(now, &frame, &mut out);
        assert_eq!(taken, Ok(()));
        self.coordinator_says(host, number, out);
    }

    fn coordinator_says(&mut self, host: HostId, number: u64, frames: VecDeque<Frame>) {
        for frame in frames {
            if frame.header.op == Op::Mail
                && let Some(process) = self.coordinators.get_mut(&(host, number))
            {
                let mail = Mail::read(&frame).expect("mail");
                let order = Order::from_payload(&mail.order);
                process.orders.push(order.expect("an order"));
            }
            self.input(host, Input::Coordinator(number, frame));
        }
    }

    pub fn coordinators_due(&self) -> Option<vm_machine::Time> {
        let awake = self.coordinators.iter();
        let awake = awake.filter(|((host, _), process)| self.is_up(*host) && !process.hangs);
        awake
            .filter_map(|(_, process)| process.coordinator.deadline())
            .min()
    }

    pub fn tick_coordinators(&mut self) {
        let now = self.now;
        for (host, number) in self.coordinators.keys().copied().collect::<Vec<_>>() {
            let Some(process) = self.coordinators.get_mut(&(host, number)) else {
                continue;
            };
            let due = process.coordinator.deadline().is_some_and(|due| due <= now);
            if due && !process.hangs {
                let mut out = VecDeque::new();
                process.coordinator.tick(now, &mut out);
                self.coordinator_says(host, number, out);
            }
        }
    }

    /// The agreed coordinator of an application, and the process that serves as it.
    fn serving(&self, app: Tid) -> Option<(Coordinated, (HostId, u64))> {
        let agreed = self.daemon(1).agreement().state().coordinator(app)?;
        if !self.is_up(agreed.host) {
            return None;
        }
        let (number, term) = self.daemon(agreed.host.0).serving_coordinator(app)?;
        (term == agreed.term).then_some((agreed, (agreed.host, number)))
    }

    fn kill_coordinator(&mut self, (host, number): (HostId, u64)) {
        self.coordinators.remove(&(host, number)).expect("it lives");
        self.input(host, ProcessInput::CoordinatorGone(number));
    }
}

/// A master and its coordinator on n4, a worker on n2; n3 is free. The leader's host n1 has no
/// task.
fn setting() -> (World, Tid, Tid) {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.run_until("a coordinator", |world| world.serving(master).is_some());
    let (agreed, _) = world.serving(master).expect("waited for");
    assert_eq!((agreed.host, agreed.term), (HostId(4), 1));
    (world, master, worker)
}

fn counters(world: &World, host: u16) -> MoveCounters {
    world.daemon(host).counters().moves
}

fn host_of(world: &World, tid: Tid) -> Option<HostId> {
    let state = world.daemon(1).agreement().state();
    state.living_task(tid).map(|task| task.host)
}

/// The phase of the only move that a coordinator drives.
fn phase(world: &World, process: (HostId, u64)) -> Option<MovePhase> {
    let coordinator = &world.coordinators.get(&process)?.coordinator;
    coordinator.moves().next().and_then(|(_, _, phase)| phase)
}

/// From now on the orders that would end this phase are lost.
fn stays_in(world: &mut World, phase: MovePhase) {
    match phase {
        MovePhase::Initialisation => {
            world.lost = Some(|order| matches!(order, Order::MoveReady(_)));
        }
        MovePhase::Copying => world.carry = Carry::Slow,
        MovePhase::Resumption => {
            world.lost = Some(|order| matches!(order, Order::MoveRelease(_)));
        }
        _ => world.carry = Carry::Held,
    }
}

fn goes_on(world: &mut World, worker: Tid) {
    world.lost = None;
    match world.carry {
        Carry::Held => world.arrive(worker),
        Carry::Slow => {
            world.carry = Carry::Whole;
            world.copied(worker);
        }
        _ => {}
    }
}

/// A move during which `happens` occurs in phase `at`: it continues under another coordinator.
fn survives(at: MovePhase, happens: impl Fn(&mut World, (HostId, u64))) -> (World, Tid, Tid) {
    let (mut world, master, worker) = setting();
    let (_, process) = world.serving(master).expect("there is one");
    stays_in(&mut world, at);
    let request = world.request_move(1, worker, 3);
    world.run_until("the phase", |world| phase(world, process) == Some(at));
    happens(&mut world, process);
    // The requester sends its request to the next coordinator, which learns the phase of the move.
    world.run_until("the next coordinator", |world| {
        world.serving(master).is_some_and(|(agreed, process)| {
            // A release that is lost for long leads to doubt, perhaps before this point.
            let learnt = phase(world, process) == Some(at) || at == MovePhase::Resumption;
            agreed.term == 2 && learnt
        })
    });
    goes_on(&mut world, worker);
    let moved = world.moved(request);
    if at != MovePhase::Resumption {
        assert_eq!(moved, Ok((HostId(2), HostId(3))));
    }
    world.run_for(Duration::from_secs(5));
    let runs = host_of(&world, worker).expect("it lives");
    assert_eq!(world.processes[&worker].host, runs);
    assert!(!world.processes[&worker].frozen);
    for number in (1..=4).filter(|number| world.is_up(HostId(*number))) {
        let underway = world.daemon(number).moves_underway();
        assert!(underway.is_empty(), "n{number}: {underway:?}");
    }
    (world, master, worker)
}

const PHASES: [MovePhase; 4] = [
    MovePhase::Initialisation,
    MovePhase::Copying,
    MovePhase::Saving,
    MovePhase::Resumption,
];

#[test]
fn the_successor_of_a_dead_coordinator_learns_the_phase_of_the_move() {
    for at in PHASES {
        let (world, _, _) = survives(at, World::kill_coordinator);
        assert_eq!(counters(&world, 4).coordinators_lost, 1, "{at}");
    }
}

#[test]
fn a_coordinator_that_hangs_is_replaced_and_its_orders_are_ignored() {
    for at in PHASES {
        let hangs = |world: &mut World, process: (HostId, u64)| {
            let hanging = world.coordinators.get_mut(&process);
            hanging.expect("it lives").hangs = true;
            // A hang is noticed at the next frame for the coordinator.
            let worker = Tid::new(crate::world::MACHINE, HostId(2), 1);
            world.request_move(1, worker, 3);
        };
        let (world, _, _) = survives(at, hangs);
        assert_eq!(counters(&world, 4).coordinators_hung, 1, "{at}");
    }
}

#[test]
fn the_host_of_the_lowest_task_appoints_the_successor_of_a_lost_coordinator() {
    let mut world = World::new(5);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.run_until("a coordinator", |world| world.serving(master).is_some());
    // The master leaves in order, and its coordinator stays. Then the coordinator's host is lost.
    world.exit(master, 0).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    assert!(world.serving(master).is_some());
    world.carry = Carry::Held;
    let request = world.request_move(1, worker, 3);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    world.crash(4);
    world.run_until("the next coordinator", |world| {
        world.serving(master).is_some()
    });
    let (agreed, _) = world.serving(master).expect("waited for");
    assert_eq!((agreed.host, agreed.term), (HostId(2), 2));
    world.arrive(worker);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    // The coordinator stays there though the task has moved.
    world.run_for(Duration::from_secs(1));
    world.carry = Carry::Whole;
    let back = world.request_move(5, worker, 5);
    assert_eq!(world.moved(back), Ok((HostId(3), HostId(5))));
    let (agreed, _) = world.serving(master).expect("it still serves");
    assert_eq!((agreed.host, agreed.term), (HostId(2), 2));
}

#[test]
fn a_host_that_leaves_hands_its_coordinators_over() {
    let (mut world, master, worker) = setting();
    world.exit(master, 0).expect("it may leave");
    world.input(HostId(4), Input::Stop);
    world.run_until("the next coordinator", |world| {
        world
            .serving(master)
            .is_some_and(|(agreed, _)| agreed.host == HostId(2))
    });
    world.run_for(Duration::from_secs(3));
    assert!(
        world
            .coordinators
            .keys()
            .all(|(host, _)| *host != HostId(4))
    );
    let request = world.request_move(1, worker, 3);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
}

/// A console on n1 requests the drain of a host, and waits for its end.
fn request_drain(world: &mut World, host: u16) -> (ConnId, u64) {
    let conn = world.conn();
    let request = Request::Drain(format!("n{host}"), DrainWay::default());
    (conn, world.console_request(1, conn, &request))
}

fn drained(world: &mut World, (conn, number): (ConnId, u64)) -> DrainReport {
    world.run_until("the end of the drain", |world| {
        world.console_answer(conn, number).is_some()
    });
    match world.console_answer(conn, number) {
        Some(Answer::Drained(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drain_continues_under_the_next_coordinator() {
    let (mut world, master, worker) = setting();
    world.spawn(master, "worker", 5, on(2));
    let (_, process) = world.serving(master).expect("there is one");
    world.carry = Carry::Held;
    let request = request_drain(&mut world, 2);
    world.run_until("an image", |world| world.processes[&worker].frozen);
    // The coordinator drives each move of the drain.
    let driven = world.coordinators[&process].coordinator.moves().count();
    assert_eq!(driven, limits::DRAIN_MOVES);
    world.kill_coordinator(process);
    world.run_until("the next coordinator", |world| {
        world
            .serving(master)
            .is_some_and(|(agreed, _)| agreed.term == 2)
    });
    world.carry = Carry::Whole;
    let stand = world.processes.iter().filter(|(_, process)| process.frozen);
    for tid in stand.map(|(tid, _)| *tid).collect::<Vec<_>>() {
        world.arrive(tid);
    }
    let report = drained(&mut world, request);
    assert_eq!((report.moved_count, report.refused_count), (6, 0));
    assert_eq!(counters(&world, 2).went, 6);
}

#[test]
fn a_draining_host_keeps_its_coordinators_until_it_leaves() {
    let (mut world, master, worker) = setting();
    let request = request_drain(&mut world, 4);
    assert_eq!(drained(&mut world, request).moved_count, 1);
    let back = world.request_move(1, worker, 3);
    assert_eq!(world.moved(back), Ok((HostId(2), HostId(3))));
    let (agreed, _) = world.serving(master).expect("it still serves");
    assert_eq!((agreed.host, agreed.term), (HostId(4), 1));
    world.input(HostId(4), Input::Stop);
    world.run_until("the next coordinator", |world| {
        world
            .serving(master)
            .is_some_and(|(agreed, _)| (agreed.host, agreed.term) == (HostId(3), 2))
    });
}

#[test]
fn the_end_of_an_application_is_the_end_of_its_coordinator() {
    let (mut world, master, worker) = setting();
    world.exit(worker, 0).expect("it may leave");
    world.exit(master, 0).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    assert!(world.coordinators.is_empty());
    let request = world.request_move(1, worker, 3);
    let failed = world.moved(request).expect_err("it has ended");
    assert_eq!(failed.kind, FailKind::NoSuchTask);
}

#[test]
fn orders_of_a_former_coordinator_have_no_effect() {
    let (mut world, master, worker) = setting();
    let (_, process) = world.serving(master).expect("there is one");
    world.exit(master, 0).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    world.carry = Carry::Held;
    // The order is on its way while the coordinator's host leaves the machine.
    world.cut(4, 2, true);
    let request = world.request_move(1, worker, 3);
    world.run_for(Duration::from_millis(500));
    assert!(!world.coordinators[&process].orders.is_empty());
    world.input(HostId(4), Input::Stop);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    assert_eq!(counters(&world, 2).orders_stale, 0);
    world.heal(4, 2);
    world.run_for(Duration::from_secs(3));
    assert!(counters(&world, 2).orders_stale >= 1);
    assert!(world.processes[&worker].frozen);
    world.arrive(worker);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    assert_eq!(counters(&world, 2).went, 1);
}

#[test]
fn an_order_of_a_process_that_no_longer_serves_is_not_passed_on() {
    let (mut world, master, worker) = setting();
    let (_, process) = world.serving(master).expect("there is one");
    world
        .coordinators
        .get_mut(&process)
        .expect("it lives")
        .hangs = true;
    let request = world.request_move(1, worker, 3);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    // The former coordinator wakes up, reads its frames, and orders the move again.
    let hanging = world.coordinators.remove(&process);
    assert!(hanging.is_none(), "its daemon has ended it");
    let (now, _) = world.serving(master).expect("another serves");
    assert_eq!(now.term, 2);
    let stale = vm_wire::peer::MoveOrder {
        term: 1,
        requester: HostId(1),
        request: 99,
        tid: worker,
        incarnation: 1,
        to: HostId(2),
        way: vm_wire::peer::MoveWay::default(),
    };
    let mail = Mail {
        host: HostId(3),
        order: vm_wire::Body::from(Order::MoveOrder(stale).to_payload()),
    };
    world.input(HostId(4), Input::Coordinator(process.1, mail.frame()));
    world.run_for(Duration::from_secs(3));
    assert_eq!(host_of(&world, worker), Some(HostId(3)));
    assert_eq!(counters(&world, 3).went, 0);
}

#[test]
fn a_move_that_takes_too_long_is_aborted() {
    let (mut world, master, worker) = setting();
    stays_in(&mut world, MovePhase::Initialisation);
    let request = world.request_move(1, worker, 3);
    let failed = world.moved(request).expect_err("it was cancelled");
    assert!(
        failed.text.contains("initialisation took too long"),
        "{failed}"
    );
    assert_eq!(counters(&world, 2).cancelled, 1);
    world.lost = None;
    world.run_for(Duration::from_secs(10));
    let again = world.request_move(1, worker, 3);
    assert_eq!(world.moved(again), Ok((HostId(2), HostId(3))));
    assert!(world.serving(master).is_some());
}

#[test]
fn an_owner_that_the_log_of_the_coordinators_host_does_not_know_yet_does_not_count_as_lost() {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    world.run_until("a coordinator", |world| world.serving(master).is_some());
    world.behind = Some(HostId(4));
    world.join(HostId::FOUNDER, "n5").expect("there is room");
    world.run_for(Duration::from_secs(1));
    let request = world.request_move(3, worker, 5);
    assert_eq!(world.moved(request), Ok((HostId(3), HostId(5))));
    let request = world.request_move(5, worker, 2);
    world.run_for(Duration::from_millis(100));
    world.behind = None;
    assert_eq!(world.moved(request), Ok((HostId(5), HostId(2))));
}

#[test]
fn a_request_for_a_move_gets_a_reply_though_no_coordinator_can_be_started() {
    let mut world = World::new(3);
    world.no_coordinators = true;
    let master = world.master(2, "master");
    let asked = world.now;
    let request = world.request_move(1, master, 3);
    let failed = world.moved(request).expect_err("nobody drives it");
    assert_eq!(failed.kind, FailKind::System);
    assert!(world.now.since(asked) >= limits::COORDINATOR_WAIT);
    // The start is tried again and again, with pauses.
    let tried = counters(&world, 2).coordinators_lost;
    assert!((10..=20).contains(&tried), "{tried}");
    world.no_coordinators = false;
    world.run_until("a coordinator", |world| world.serving(master).is_some());
    let again = world.request_move(1, master, 3);
    assert_eq!(world.moved(again), Ok((HostId(2), HostId(3))));
}

#[test]
fn a_master_from_a_shell_has_a_coordinator() {
    let mut world = World::new(2);
    world.enrol_from_shell(2);
    let master = Tid::new(crate::world::MACHINE, HostId(2), 1);
    world.run_until("a coordinator", |world| world.serving(master).is_some());
    let request = world.request_move(1, master, 1);
    let failed = world.moved(request).expect_err("it is the shell's");
    assert!(failed.text.contains("started from a shell"), "{failed}");
}

#[test]
fn many_moves_at_one_time_end_once_each() {
    let (mut world, master, worker) = setting();
    let mut tasks = world.spawn(master, "worker", 7, on(2)).tids;
    tasks.push(worker);
    let requests: Vec<_> = tasks
        .iter()
        .map(|tid| world.request_move(1, *tid, 3))
        .collect();
    for request in requests {
        assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    }
    assert_eq!(counters(&world, 2).went, 8);
}

#[test]
fn an_ended_move_is_not_repeated_though_its_requester_lacks_the_result() {
    let (mut world, master, worker) = setting();
    let (_, process) = world.serving(master).expect("there is one");
    // The move fails, and its end does not reach the requester.
    world.carry = Carry::Refused;
    world.cut(2, 3, true);
    let request = world.request_move(3, worker, 1);
    world.run_until("the end at the source", |world| {
        counters(world, 2).saves_refused == 1
    });
    world.run_for(Duration::from_millis(100));
    // The next coordinator gets the request and orders the move, which would now succeed.
    world.carry = Carry::Whole;
    world.kill_coordinator(process);
    world.run_until("the next coordinator", |world| {
        world.serving(master).is_some_and(|(agreed, process)| {
            agreed.term == 2 && !world.coordinators[&process].orders.is_empty()
        })
    });
    world.run_for(Duration::from_secs(3));
    assert_eq!(host_of(&world, worker), Some(HostId(2)));
    assert_eq!(counters(&world, 2).went, 0);
    world.heal(2, 3);
    let failed = world
        .moved(request)
        .expect_err("as it ended the first time");
    assert!(failed.text.contains("no process here"), "{failed}");
    assert_eq!(world.coordinators.len(), 1);
}

#[test]
fn an_application_whose_only_host_leaves_keeps_a_coordinator_there() {
    let mut world = World::new(3);
    world.stubborn = true;
    let master = world.master(3, "master");
    world.run_until("a coordinator", |world| world.serving(master).is_some());
    let (_, process) = world.serving(master).expect("waited for");
    world.input(HostId(3), Input::Stop);
    world.run_for(Duration::from_millis(500));
    world.kill_coordinator(process);
    world.run_for(Duration::from_millis(1_200));
    let (agreed, _) = world.serving(master).expect("before its tasks are killed");
    assert_eq!((agreed.host, agreed.term), (HostId(3), 2));
}

#[test]
fn a_new_coordinator_gets_no_request_during_the_pause_after_a_refusal() {
    let (mut world, master, worker) = setting();
    world.busy.insert(worker, 3);
    let request = world.request_move(1, worker, 3);
    world.run_until("the last refusal", |world| world.busy[&worker] == 0);
    let refused = world.now;
    world.run_for(Duration::from_millis(10));
    let (first, process) = world.serving(master).expect("a coordinator");
    world.kill_coordinator(process);
    world.run_until("the next coordinator", |world| {
        let serving = world.serving(master);
        serving.is_some_and(|(next, _)| next.term > first.term)
    });
    assert!(world.now.since(refused) < limits::busy_pause(3));
    // The request may name a host that the task has left by then.
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    assert!(world.now.since(refused) >= limits::busy_pause(3));
}
