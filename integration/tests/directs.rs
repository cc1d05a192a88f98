//! Tasks of different hosts that exchange messages past their daemons, while they are moved, stopped and
//! saved.
//!
//! `VM_MOVES=1000 cargo test --test directs` makes 1000 moves.

use rustix::process::{Pid, Signal, kill_process};
use std::{collections::BTreeSet, fs, net::SocketAddr, thread, time::Duration};
use vm_integration::cluster::{
    Cluster, Node,
    client::{Client, NONE_LOST},
    rings::pid,
    wait_for, wanted_moves,
};
use vm_wire::{
    Tid,
    console::{Answer, Request, TaskRow},
    peer::{MovePhase, MoveWay},
};

const MOVES: u32 = 24;
const MEMBERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// The state of a connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// The established TCP connections of the host on which a process runs: the fields of their rows in
/// `/proc/net/tcp`.
fn established(pid: u32) -> Vec<Vec<String>> {
    let table = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    let table = table.map(Result::unwrap_or_default).concat();
    let fields = table
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect());
    fields
        .filter(|fields: &Vec<String>| fields.len() > 9 && fields[3] == ESTABLISHED)
        .collect()
}

/// Direct connections of a process: a task has no other connection of TCP.
fn directs(pid: u32) -> usize {
    let rows = established(pid).into_iter();
    let established: BTreeSet<String> = rows
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter(|link| link.to_str().is_some_and(|link| established.contains(link)))
        .count()
}

/// Waits until `count` of the members have direct connections.
fn await_directs(node: &Node, members: usize, count: usize) -> Vec<TaskRow> {
    wait_for("direct connections between the members", LIMIT, || {
        let members = node.members(members);
        let connected = members.iter().filter(|row| directs(pid(row)) > 0);
        (connected.count() >= count).then_some(members)
    })
}

#[test]
fn nothing_is_lost_while_tasks_with_direct_connections_move_and_stop() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    // The ring ends when it gets a line on its standard input.
    run.run("vmtest", &["ring-until-told", "1048576"]);
    let all = await_directs(node, MEMBERS, MEMBERS);
    let tids: Vec<Tid> = all.iter().map(|row| row.tid).collect();
    node.await_movable(&tids);
    for number in 0..wanted_moves(MOVES) as usize {
        // A peer that stands still for the time of a move must not hold the others up for good.
        let stopped = node.members(MEMBERS)[(number + 3) % MEMBERS].clone();
        let process = Pid::from_raw(pid(&stopped) as i32).expect("it runs");
        kill_process(process, Signal::STOP).expect("it runs");
        node.client().move_elsewhere(tids[number % MEMBERS]);
        kill_process(process, Signal::CONT).expect("it runs");
    }
    await_directs(node, MEMBERS, 2);
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn an_application_with_direct_connections_restarts_from_its_checkpoint() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let master = run.run("vmtest", &["ring", "20", "200000"]);
    await_directs(node, MEMBERS, MEMBERS);
    let mut console = node.client();
    for _ in 0..2 {
        console.save(master, false).expect("it is saved");
        // The tasks that run on keep their connections.
        await_directs(node, MEMBERS, MEMBERS);
    }
    console.restarts_well(&mut run, master);
}

#[test]
fn a_message_of_the_last_call_of_its_sender_follows_a_receiver_that_moves() {
    a_last_message_arrives("anywhere");
}

#[test]
fn it_follows_also_while_an_order_to_stop_waits_for_the_next_call_of_its_sender() {
    a_last_message_arrives("around-saves");
}

/// A task sends a message and makes no call any more, then its receiver moves. With `around-saves` the
/// sender is to move before that, and is stopped in its calls alone.
fn a_last_message_arrives(how: &str) {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().to_str().expect("the path is text");
    let sign = |name: &str| fs::write(folder.path().join(name), "").expect("it can be written");
    let mut run = node.client();
    run.run("vmtest", &["last-call", path, how]);
    let both = await_directs(node, 2, 2);
    sign("talked");
    wait_for("the last message", LIMIT, || {
        folder.path().join("said").exists().then_some(())
    });
    let (here, elsewhere) = both
        .iter()
        .partition::<Vec<_>, _>(|row| row.host == node.name);
    let (sender, receiver) = (here[0].tid, elsewhere[0].tid);
    thread::scope(|scope| {
        if how == "around-saves" {
            // The order waits until the sender ends.
            let request = Request::Move(sender, None, MoveWay::default());
            scope.spawn(move || node.client().ask(&request));
            wait_for("the order to stop", LIMIT, || {
                let Answer::Moves(rows) = node.client().ask(&Request::Moves) else {
                    panic!("that has no such answer");
                };
                let is_ordered = rows.first()?.phase? == MovePhase::Interruption;
                is_ordered.then_some(())
            });
        }
        // The message is in the connection, and its sender makes no call any more.
        assert!(both.iter().all(|row| directs(pid(row)) > 0));
        node.client().move_elsewhere(receiver);
        sign("hears");
        run.output_until("heard the last message");
        sign("end");
    });
    run.ends_well("and the last one");
}

/// A run of `vmtest echoes`.
struct Echoes {
    run: Client,
    rounds: usize,
}

impl Echoes {
    fn new(node: &Node) -> Self {
        let mut run = node.client();
        run.run("vmtest", &["echoes"]);
        Echoes { run, rounds: 0 }
    }

    fn round(&mut self) {
        self.run.input(b"go\n");
        self.run
            .output_until(&format!("round {} is over", self.rounds));
        self.rounds += 1;
        eprintln!(
            "ROUND {} {:?}",
            self.rounds,
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
        );
    }

    /// Makes rounds until `ready`.
    fn rounds_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
        wait_for(what, LIMIT, || {
            self.round();
            ready().then_some(())
        });
    }
}

/// The port of a daemon, and the ports of its peers on the connections that it has accepted.
fn ports(node: &Node) -> (u16, Vec<u16>) {
    let address = fs::read_to_string(node.dir.join("address")).expect("it listens");
    let address: SocketAddr = address.trim().parse().expect("an address");
    let port = |text: &String| {
        let (_, port) = text.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    let rows = established(node.process.id()).into_iter();
    let accepted = rows.filter(|fields| port(&fields[1]) == Some(address.port()));
    let peers = accepted.filter_map(|fields| port(&fields[2])).collect();
    (address.port(), peers)
}

/// How many TCP connections were begun on the host of a daemon.
fn begun(node: &Node) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/net/snmp", node.pid())).expect("it runs");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let mut fields = || lines.next().expect("a line of TCP").split_whitespace();
    let place = fields().position(|name| name == "ActiveOpens");
    let value = fields()
        .nth(place.expect("the counter"))
        .expect("its value");
    value.parse().expect("a number")
}

#[test]
fn tasks_whose_connections_are_blocked_use_their_daemons_and_do_not_try_for_a_while() {
    let Some(cluster) = Cluster::in_namespaces(2) else {
        return;
    };
    let network = cluster.network.as_ref().expect("there is one");
    let nodes = &cluster.nodes;
    for (index, node) in nodes.iter().enumerate() {
        let (port, peers) = ports(node);
        network.block_port(index, port, &peers);
    }
    let before = nodes.iter().map(begun).collect::<Vec<_>>();
    let notes = |node: &Node| {
        let text = format!("cannot connect to host '{}'", node.name);
        node.log().matches(&text).count()
    };
    let mut echoes = Echoes::new(&nodes[0]);
    echoes.rounds_until("both daemons say so", || {
        nodes.iter().all(|node| notes(node) > 0)
    });
    let tried = nodes.iter().map(begun).collect::<Vec<_>>();
    assert!((0..2).all(|index| tried[index] > before[index]));
    // A task asks for a route again, at the latest, after as many chunks as it has sent.
    for _ in 0..=echoes.rounds {
        echoes.round();
    }
    assert_eq!(nodes.iter().map(begun).collect::<Vec<_>>(), tried);
    assert_eq!(nodes.iter().map(notes).collect::<Vec<_>>(), [1, 1]);
    assert!(nodes.iter().all(|node| node.conf().links_down.is_empty()));

    // A new link between the hosts ends the pause.
    (0..2).for_each(|index| network.open_port(index));
    network.destroy_connections(0);
    let peer = pid(&nodes[0].members(1)[0]);
    echoes.rounds_until("a direct connection", || directs(peer) > 0);
    echoes.run.input(b"end\n");
    echoes.run.ends_well(NONE_LOST);
}
