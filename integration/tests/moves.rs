//! Tasks that move from host to host while all of them exchange numbered messages.
//!
//! `VM_MOVES=1000 cargo test --test moves` makes 1000 moves.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use vm_integration::cluster::{
    Cluster, Node, PATIENCE,
    client::{Client, spawn},
    processes, wait_for, wanted_moves,
};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    limits,
    peer::MoveWay,
    task::FailKind,
};

const MOVES: u32 = 24;
const MEMBERS: usize = 8;

/// The living tasks except the master, once all have enrolled and can be moved.
fn members(node: &Node) -> Vec<Tid> {
    let members = wait_for("the members of the ring", Duration::from_secs(20), || {
        let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let members: Vec<Tid> = rows.iter().skip(1).map(|row| row.tid).collect();
        (members.len() == MEMBERS).then_some(members)
    });
    node.await_movable(&members);
    members
}

/// Open descriptors, children and resident kilobytes of a daemon.
fn holds(node: &Node) -> (usize, usize, u64) {
    let proc = format!("/proc/{}", node.pid());
    let descriptors = fs::read_dir(format!("{proc}/fd")).expect("it runs").count();
    let children = node.children().len();
    let status = fs::read_to_string(format!("{proc}/status")).expect("it runs");
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_whitespace().next())
        .and_then(|number| number.parse().ok());
    (descriptors, children, resident.expect("a size"))
}

#[test]
fn a_ring_of_eight_loses_and_doubles_nothing_while_its_members_move() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let before: Vec<_> = cluster.nodes.iter().map(holds).collect();
    let mut run = node.client();
    // The ring ends when it gets a line on its standard input.
    run.run("vmtest", &["ring-until-told", "1048576"]);
    let members = members(node);
    let mut restoring = 0;
    for number in 0..wanted_moves(MOVES) {
        // Each member in turn moves to the next host.
        let tid = members[number as usize % MEMBERS];
        let answer = node
            .client()
            .ask(&Request::Move(tid, None, MoveWay::default()));
        let Answer::Moved(report) = answer else {
            panic!("move {number}, of {tid}: {answer:?}");
        };
        assert_ne!(report.from, report.to);
        assert!(report.bytes > 0);
        restoring += report.restore_us;
    }
    // The source saw the end of the image before the target had restored the task.
    assert!(restoring > 0);
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    let told = "none lost, doubled or out of order";
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
    println!("{} moves; {}", wanted_moves(MOVES), finished.stdout);
    for (node, before) in cluster.nodes.iter().zip(before) {
        wait_for("nothing is left", Duration::from_secs(10), || {
            let (descriptors, children, _) = holds(node);
            (descriptors <= before.0 + 2 && children == before.1).then_some(())
        });
        // Queues and tables have their final size by now; a leak would grow with each move.
        let grown = holds(node).2.saturating_sub(before.2);
        assert!(
            grown < 20_000 + 10 * u64::from(wanted_moves(MOVES)),
            "{grown} KiB"
        );
    }
}

#[test]
fn a_task_that_cannot_be_moved_stays_and_the_reason_is_reported() {
    let cluster = Cluster::on_loopback(2);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["ring-until-told", "8"]);
    let members = members(node);
    let refused = |tid: Tid, host: Option<&str>| {
        let asked = Request::Move(tid, host.map(str::to_owned), MoveWay::default());
        match node.client().ask(&asked) {
            Answer::Failed(failed) => failed,
            answer => panic!("{answer:?}"),
        }
    };
    let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
        panic!("ps has no such answer");
    };
    let member = rows.iter().find(|row| row.tid == members[0]);
    let there = member.expect("it is there").host.clone();
    let failed = refused(members[0], Some(&there));
    assert!(failed.text.contains("already"), "{failed}");
    let failed = refused(members[0], Some("nowhere"));
    assert_eq!(failed.kind, FailKind::NoSuchHost, "{failed}");
    // The master reads its input from this console.
    let failed = refused(rows[0].tid, None);
    assert!(failed.text.contains("comes from a console"), "{failed}");
    // A stopped task is refused with that reason, in `check` as well.
    let stopped = node.client().ask(&Request::Signal(members[1], 19));
    assert!(matches!(stopped, Answer::Done), "{stopped:?}");
    let is_stopped = |reasons: &[String]| reasons.iter().any(|it| it.contains("stopped"));
    while !is_stopped(&reasons_of(node, members[1])) {}
    let failed = refused(members[1], None);
    assert_eq!(failed.kind, FailKind::Refused, "{failed}");
    assert!(failed.text.contains("vm sig CONT"), "{failed}");
    node.client().ask(&Request::Signal(members[1], 18));
    while is_stopped(&reasons_of(node, members[1])) {}
    // A task that does not use the library cannot be moved either.
    let Answer::Started(tids) = node.client().ask(&Request::Spawn(spawn("sleep", &["600"]))) else {
        panic!("sleep can be started");
    };
    let failed = refused(tids[0], None);
    assert!(failed.text.contains("vmlib::init"), "{failed}");
    node.client().ask(&Request::Signal(tids[0], 9));
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    let failed = refused(members[0], None);
    assert_eq!(failed.kind, FailKind::NoSuchTask, "{failed}");
}

fn reasons_of(node: &Node, tid: Tid) -> Vec<String> {
    match node.client().ask(&Request::Check(tid)) {
        Answer::Check(reasons) => reasons,
        answer => panic!("{answer:?}"),
    }
}

/// A diarist on the first host, which has written its first line.
fn diarist(cluster: &Cluster, folder: &Path, bytes: u64) -> (Client, Tid) {
    let mut run = cluster.nodes[0].client();
    let (folder, bytes) = (folder.display().to_string(), bytes.to_string());
    run.run("vmtest", &["diary", "n1", &folder, &bytes]);
    run.input(b"one\n");
    run.output_until("written on n1, read 0");
    let Answer::Ps(rows) = cluster.nodes[0].client().ask(&Request::Ps(None)) else {
        panic!("ps has no such answer");
    };
    (run, rows[1].tid)
}

fn move_to(cluster: &Cluster, tid: Tid, host: &str) -> Answer {
    let asked = Request::Move(tid, Some(host.to_owned()), MoveWay::default());
    cluster.nodes[0].client().ask(&asked)
}

fn assert_moves(cluster: &Cluster, tid: Tid, host: &str) {
    let answer = move_to(cluster, tid, host);
    assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
}

fn assert_ends(mut run: Client) {
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn open_files_are_carried_to_hosts_that_do_not_have_them() {
    let Some(cluster) = Cluster::with_own_folders(2) else {
        return;
    };
    let (folder, first) = cluster.own_folder(0);
    let (_, second) = cluster.own_folder(1);
    let (mut run, tid) = diarist(&cluster, &folder, 1 << 20);
    assert_eq!(text(&first.join("diary")), "one\n");
    assert!(!second.join("diary").exists());
    assert_moves(&cluster, tid, "n2");
    run.input(b"two\n");
    run.output_until("written on n2, read 1");
    assert_eq!(text(&second.join("diary")), "one\ntwo\n");
    assert_eq!(text(&first.join("diary")), "one\n");
    let books = [&first, &second].map(|folder| fs::read(folder.join("book")).expect("a book"));
    assert!(books[0] == books[1]);
    // Back to a host where the diary lacks the last line.
    assert_moves(&cluster, tid, "n1");
    run.input(b"three\n");
    run.output_until("written on n1, read 2");
    assert_eq!(text(&first.join("diary")), "one\ntwo\nthree\n");
    assert_eq!(text(&second.join("diary")), "one\ntwo\n");
    assert_ends(run);
}

#[test]
fn a_long_open_file_has_to_be_at_the_target() {
    let Some(cluster) = Cluster::with_own_folders(2) else {
        return;
    };
    let (folder, first) = cluster.own_folder(0);
    let (_, second) = cluster.own_folder(1);
    let (mut run, tid) = diarist(&cluster, &folder, limits::MOVE_FILES + 8);
    let book = folder.join("book").display().to_string();
    let is_refused = |why: &str| match move_to(&cluster, tid, "n2") {
        Answer::Failed(failed) => {
            let text = failed.to_string();
            assert!(text.contains(&book) && text.contains(why), "{text}");
        }
        answer => panic!("{answer:?}"),
    };
    is_refused("is missing");
    is_refused(&format!("up to {} bytes of open files", limits::MOVE_FILES));
    run.input(b"two\n");
    run.output_until("written on n1, read 1");
    fs::write(second.join("book"), "another").expect("it can be written");
    is_refused("has changed");
    assert_eq!(text(&second.join("book")), "another");
    run.input(b"three\n");
    run.output_until("written on n1, read 2");
    fs::copy(first.join("book"), second.join("book")).expect("it can be copied");
    assert_moves(&cluster, tid, "n2");
    run.input(b"four\n");
    run.output_until("written on n2, read 3");
    assert_eq!(text(&second.join("diary")), "one\ntwo\nthree\nfour\n");
    assert_ends(run);
}

#[test]
fn files_below_the_working_folder_are_looked_for_below_that_of_the_host_at_a_restart() {
    let mut first = Cluster::on_loopback(0);
    let mut next = Cluster::on_loopback(0);
    let (one, other) = (first.folder().join("one"), next.folder().join("other"));
    for (cluster, folder) in [(&mut first, &one), (&mut next, &other)] {
        fs::create_dir(folder).expect("a folder");
        cluster.add(&["--work-dir", folder.to_str().expect("text")]);
    }
    let book = one.join("book");
    fs::write(&book, "what it reads").expect("room");
    let wanted = spawn("vmtest", &["idle-reading", book.to_str().expect("text")]);
    let mut console = first.nodes[0].client();
    let Answer::Started(tids) = console.ask(&Request::Spawn(wanted)) else {
        panic!("it cannot be started");
    };
    // A program that has not called the library yet cannot be saved.
    wait_for("a checkpoint", PATIENCE, || {
        console.save(tids[0], true).ok()
    });
    first.copy_store_to(&next);
    fs::rename(&book, other.join("book")).expect("they are on one disk");
    fs::remove_dir(&one).expect("it is empty");
    let mut run = next.nodes[0].client();
    run.restart(tids[0]).expect("it can be brought back");
    let Answer::Ps(rows) = next.nodes[0].client().ask(&Request::Ps(None)) else {
        panic!("ps has no such answer");
    };
    let pid = rows[0].usage.as_ref().expect("its host answers").pid;
    let here = fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs");
    assert_eq!(here, other);
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let mut open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    assert!(open.any(|path| path == other.join("book")));
}

#[test]
fn files_below_the_working_folder_are_looked_for_below_that_of_the_target() {
    let mut cluster = Cluster::on_loopback(0);
    let folders = ["one", "other"].map(|name| cluster.folder().join(name));
    for folder in &folders {
        fs::create_dir(folder).expect("a folder");
        cluster.add(&["--work-dir", folder.to_str().expect("text")]);
    }
    let (mut run, tid) = diarist(&cluster, &folders[0], 1 << 20);
    let here = || {
        let Answer::Ps(rows) = cluster.nodes[0].client().ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let pid = rows[1].usage.as_ref().expect("its host answers").pid;
        fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs")
    };
    assert_eq!(here(), folders[0]);
    assert_moves(&cluster, tid, "n2");
    assert_eq!(here(), folders[1]);
    run.input(b"two\n");
    run.output_until("written on n2, read 1");
    assert_moves(&cluster, tid, "n1");
    assert_eq!(here(), folders[0]);
    run.input(b"three\n");
    run.output_until("written on n1, read 2");
    assert_eq!(text(&folders[0].join("diary")), "one\ntwo\nthree\n");
    assert_eq!(text(&folders[1].join("diary")), "one\ntwo\n");
    assert_ends(run);
}

#[test]
fn a_file_that_both_hosts_share_stays_one() {
    let cluster = Cluster::on_loopback(2);
    let folder = cluster.folder().to_owned();
    let (mut run, tid) = diarist(&cluster, &folder, 1 << 20);
    let inodes =
        || ["book", "diary"].map(|name| fs::metadata(folder.join(name)).expect("a file").ino());
    let before = inodes();
    assert_moves(&cluster, tid, "n2");
    run.input(b"two\n");
    run.output_until("written on n2, read 1");
    assert_eq!(inodes(), before);
    assert_eq!(text(&folder.join("diary")), "one\ntwo\n");
    assert_ends(run);
}

/// A task has the limit that its daemon was started with, or that of its image. A restorer has
/// descriptors with numbers above this limit.
#[test]
fn a_low_limit_of_open_files_stops_no_task_from_arriving() {
    let mut cluster = Cluster::on_loopback(1);
    let command = cluster.command("n2", &[]);
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", "ulimit -Sn 64; exec \"$@\"", "sh"]);
    limited.arg(command.get_program()).args(command.get_args());
    cluster.add_node("n2".to_owned(), limited);
    let (mut run, tid) = diarist(&cluster, cluster.folder(), 1 << 10);
    assert_moves(&cluster, tid, "n2");
    run.input(b"two\n");
    run.output_until("written on n2, read 1");
    assert_ends(run);
}

/// The program of a process.
fn program(pid: i32) -> String {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    let name = exe.file_name().expect("a program has a name");
    name.to_string_lossy().into_owned()
}

fn signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process");
    kill_process(pid, signal).expect("it runs");
}

#[test]
fn a_coordinator_that_is_killed_or_stopped_costs_no_move() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["ring-until-told", "4096"]);
    let members = members(node);
    let moves = |tid: Tid| match node
        .client()
        .ask(&Request::Move(tid, None, MoveWay::default()))
    {
        Answer::Moved(report) => assert_ne!(report.from, report.to),
        answer => panic!("{tid}: {answer:?}"),
    };
    // The master forked the coordinator, which has only its socket open.
    let forked = node.coordinator(None);
    assert_eq!(program(forked), "vmtest");
    wait_for("nothing but a socket", Duration::from_secs(5), || {
        let open = fs::read_dir(format!("/proc/{forked}/fd")).expect("it runs");
        (open.count() == 4).then_some(())
    });
    moves(members[0]);
    assert_eq!(node.coordinators(), [forked]);
    // The coordinator is killed: the daemon starts another one, and a requester waits for that.
    signal(forked, Signal::KILL);
    moves(members[1]);
    let started = node.coordinator(Some(forked));
    assert_eq!(program(started), "vmd");
    // The coordinator is stopped: the daemon notices when there is work for it, and kills it.
    signal(started, Signal::STOP);
    moves(members[2]);
    let next = node.coordinator(Some(started));
    assert!(!fs::exists(format!("/proc/{started}/exe")).expect("a look"));
    moves(members[0]);
    assert_eq!(node.coordinators(), [next]);
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    let told = "none lost, doubled or out of order";
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
    wait_for(
        "the end of the coordinator",
        Duration::from_secs(10),
        || node.coordinators().is_empty().then_some(()),
    );
}

#[test]
fn a_master_that_has_threads_is_not_forked_and_has_a_coordinator_nevertheless() {
    let mut cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let master = run.run("vmtest", &["idle-with-threads"]);
    let first = node.coordinator(None);
    assert_eq!(program(first), "vmd");
    let signalled = node.client().ask(&Request::Signal(master, 9));
    assert_eq!(signalled, Answer::Done);
    assert_eq!(run.finish().status, ExitStatus::Signal(9));
    // A stopped coordinator does not outlive its daemon.
    let mut run = node.client();
    let master = run.run("vmtest", &["idle"]);
    let left = node.coordinator(Some(first));
    assert_eq!(program(left), "vmtest");
    let here = node.conf().hosts[0].facts.name.clone();
    match node
        .client()
        .ask(&Request::Move(master, Some(here), MoveWay::default()))
    {
        Answer::Failed(failed) => assert!(failed.text.contains("already"), "{failed}"),
        answer => panic!("{answer:?}"),
    }
    signal(left, Signal::STOP);
    cluster.nodes[0].signal(Signal::KILL);
    cluster.nodes[0].wait_end(Duration::from_secs(10));
    wait_for(
        "the end of the coordinator",
        Duration::from_secs(10),
        || {
            let stat = fs::read_to_string(format!("/proc/{left}/stat"));
            // The new parent of an orphan may not have waited for it yet.
            stat.map_or(true, |stat| stat.contains(") Z "))
                .then_some(())
        },
    );
}

#[test]
fn the_end_of_a_moved_task_ends_processes_that_it_started_in_another_session() {
    let cluster = Cluster::on_loopback(2);
    let [go, left] = ["go", "left"].map(|name| cluster.folder().join(name));
    let words = [
        "leaver",
        go.to_str().expect("text"),
        left.to_str().expect("text"),
    ];
    let mut console = cluster.nodes[0].client();
    let Answer::Started(tids) = console.ask(&Request::Spawn(spawn("vmtest", &words))) else {
        panic!("it cannot be started");
    };
    cluster.nodes[0].await_movable(&tids);
    // The task has forked the coordinator, which has the task's token, too.
    let (home, coordinator) = wait_for("a coordinator", PATIENCE, || {
        let mut nodes = cluster.nodes.iter();
        nodes.find_map(|node| Some((node, *node.coordinators().first()?)))
    });
    assert_eq!(program(coordinator), "vmtest");
    // The task moves there and back: for a second the first host looks for processes that the task
    // has left.
    for _ in 0..2 {
        let answer = console.ask(&Request::Move(tids[0], None, MoveWay::default()));
        assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
    }
    let came = Instant::now();
    fs::write(&go, "").expect("room");
    let process = wait_for("the process in another session", PATIENCE, || {
        let text = fs::read_to_string(&left).ok()?;
        text.trim().parse().ok().filter(|_| text.ends_with('\n'))
    });
    wait_for("the end of the search for orphans", PATIENCE, || {
        assert!(processes::is_alive(process), "it lives as long as the task");
        (came.elapsed() > Duration::from_millis(1_500)).then_some(())
    });
    assert_eq!(home.coordinators(), [coordinator]);
    fs::remove_file(&go).expect("it was there");
    wait_for("the end of the process", PATIENCE, || {
        (!processes::is_alive(process)).then_some(())
    });
}
