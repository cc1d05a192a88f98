//! The whole interface of the task library, used by real tasks of a real machine.
//!
//! The master runs one part, named by its first argument, and checks the results. The tasks that a
//! part starts run `vmapi worker PART`. A wrong result ends the run with an error.

use anyhow::{Context, bail, ensure};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use vmlib::{
    ANY, Event, ExitStatus, FailKind, GroupError, Incoming, RecvError, SendError, Spawn,
    SpawnError, Task, Tid,
};

/// Bound on every wait of a part.
const PATIENCE: Duration = Duration::from_secs(30);

const READY: i32 = 1;
const GO: i32 = 2;
const RESULT: i32 = 3;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let vm = vmlib::init()?;
    match args[..] {
        ["identity"] => identity(&vm),
        ["worker", "identity", ..] => identity_worker(&vm),
        ["placement"] => placement(&vm),
        ["worker", "placement"] => Ok(vm.send(parent(&vm)?, RESULT, &vm.host().0)?),
        ["messages"] => messages(&vm),
        ["worker", "messages"] => messages_worker(&vm),
        ["ends"] => ends(&vm),
        ["worker", "ends"] => ends_worker(&vm),
        ["groups"] => groups(&vm),
        ["worker", "groups", count] => groups_worker(&vm, count.parse()?),
        ["moves"] => moves(&vm),
        ["worker", "moves"] => moves_worker(&vm),
        ["refusals"] => refusals(&vm),
        ["hosts"] => hosts(&vm),
        ["status", status] => std::process::exit(status.parse()?),
        ["error"] => bail!("this master fails"),
        _ => bail!("no part {args:?}"),
    }
}

fn worker(part: &str) -> anyhow::Result<Spawn> {
    let program = std::env::current_exe()?;
    let program = program.to_str().context("a path in UTF-8")?;
    Ok(Spawn::new(program).args(["worker", part]))
}

fn parent(vm: &Task) -> anyhow::Result<Tid> {
    vm.parent().context("a worker has a parent")
}

/// Receives the next event, which must come within the time limit.
fn event(vm: &Task) -> anyhow::Result<Event> {
    vm.recv_event(Some(PATIENCE))?.context("no event came")
}

/// Arguments, environment and directory reach a task, and the task knows its tid, parent,
/// application and host.
fn identity(vm: &Task) -> anyhow::Result<()> {
    ensure!(vm.parent().is_none() && vm.app() == vm.tid());
    let folder = tempfile::tempdir()?;
    let dir = folder.path().canonicalize()?;
    let spawn = worker("identity")?
        .arg("with space")
        .env("VMAPI_LEVEL", "3")
        .dir(dir.to_str().context("a path in UTF-8")?)
        .count(3);
    let tids = vm.spawn(&spawn)?;
    for (index, tid) in tids.iter().enumerate() {
        type Told = (Vec<String>, String, String, Tid, u32, Vec<Tid>);
        let told: Told = vm.recv(*tid, RESULT)?.value()?;
        let (args, level, cwd, app, number, siblings) = told;
        ensure!(args == ["worker", "identity", "with space"], "{args:?}");
        ensure!(level == "3" && Path::new(&cwd) == dir, "{level} {cwd}");
        ensure!(app == vm.tid() && number as usize == index);
        ensure!(siblings == tids, "{siblings:?} are not {tids:?}");
    }
    Ok(())
}

fn identity_worker(vm: &Task) -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let level = std::env::var("VMAPI_LEVEL")?;
    let cwd = std::env::current_dir()?.display().to_string();
    let siblings = vm.siblings()?;
    let told = (args, level, cwd, vm.app(), vm.index(), siblings);
    Ok(vm.send(parent(vm)?, RESULT, &told)?)
}

/// Tasks start on the requested hosts, and the machine spreads tasks without a requested host.
fn placement(vm: &Task) -> anyhow::Result<()> {
    let hosts = vm.hosts()?;
    ensure!(hosts.len() >= 2, "{hosts:?}");
    let name = |index: usize| hosts[index].facts.name.clone();
    let places = |spawn: Spawn| -> anyhow::Result<Vec<u16>> {
        let tids = vm.spawn(&spawn)?;
        let place = |tid: &Tid| anyhow::Ok(vm.recv(*tid, RESULT)?.value()?);
        tids.iter().map(place).collect()
    };
    let (first, second) = (hosts[0].id.0, hosts[1].id.0);
    let there = places(worker("placement")?.count(3).on(name(1)))?;
    ensure!(there == [second; 3], "{there:?}");
    let turns = places(worker("placement")?.count(4).on_each([name(1), name(0)]))?;
    ensure!(turns == [second, first, second, first], "{turns:?}");
    let mut spread = places(worker("placement")?.count(2 * hosts.len() as u32))?;
    spread.sort_unstable();
    spread.dedup();
    ensure!(spread.len() > 1, "all on one host: {spread:?}");
    Ok(())
}

/// Every kind of message to tasks of every host, and back.
fn messages(vm: &Task) -> anyhow::Result<()> {
    let hosts: Vec<String> = vm
        .hosts()?
        .into_iter()
        .map(|host| host.facts.name)
        .collect();
    let count = 2 * hosts.len() as u32;
    let tids = vm.spawn(&worker("messages")?.count(count).on_each(hosts))?;
    let numbers: Vec<f64> = (0..300_000).map(|n| f64::from(n) / 7.0).collect();
    vm.multicast(&tids, 10, &("value", [1u8, 2, 3]))?;
    vm.multicast_bytes(&tids, 11, &b"bytes"[..])?;
    vm.multicast_slice(&tids, 12, &numbers)?;
    for _ in &tids {
        let sum = vm.recv(ANY, RESULT)?;
        ensure!(sum.value::<f64>()? == numbers.iter().sum::<f64>());
    }
    for tid in &tids {
        for n in 0..100u64 {
            ensure!(vm.recv(*tid, 13)?.value::<u64>()? == n);
        }
    }
    ensure!(vm.try_recv(ANY, ANY)?.is_none());
    ensure!(vm.probe(tids[0], ANY)?.is_none());
    let begun = Instant::now();
    let limit = Duration::from_millis(50);
    ensure!(vm.recv_timeout(ANY, ANY, limit)?.is_none() && begun.elapsed() >= limit);
    Ok(())
}

fn messages_worker(vm: &Task) -> anyhow::Result<()> {
    let parent = parent(vm)?;
    // Tags select messages, in any order of arrival.
    let mut numbers = vec![0.0; 300_000];
    vm.recv(parent, 12)?.read_into(&mut numbers)?;
    ensure!(vm.recv(ANY, 11)?.bytes() == b"bytes");
    let value: (String, [u8; 3]) = vm.recv(parent, ANY)?.value()?;
    ensure!(value == ("value".to_owned(), [1, 2, 3]));
    for n in 0..100u64 {
        vm.send(parent, 13, &n)?;
    }
    Ok(vm.send(parent, RESULT, &numbers.iter().sum::<f64>())?)
}

/// The end of a task is reported whatever its kind, after the task's last message.
fn ends(vm: &Task) -> anyhow::Result<()> {
    let hosts: Vec<String> = vm
        .hosts()?
        .into_iter()
        .map(|host| host.facts.name)
        .collect();
    let tids = vm.spawn(&worker("ends")?.count(6).on_each(hosts))?;
    for tid in &tids {
        vm.watch_task(*tid)?;
        vm.recv(*tid, READY)?;
    }
    let [leaver, early, killed, signalled, aborted, unwatched] = tids[..] else {
        bail!("{} tasks instead of 6", tids.len());
    };
    vm.unwatch_task(unwatched)?;
    vm.send(unwatched, GO, "leave")?;
    vm.recv(unwatched, RESULT)?;

    vm.send(leaver, GO, "leave")?;
    // The message comes before the event, although the task did not wait for the message until now.
    let Some(Incoming::Message(last)) = vm.next(leaver, ANY, Some(PATIENCE))? else {
        bail!("no last message");
    };
    ensure!(last.len() == 3_000_000);
    let ended = |tid, status| Event::TaskEnded { tid, status };
    ensure!(event(vm)? == ended(leaver, ExitStatus::Left(7)));
    // The end of a task that ended long ago is reported at once, once.
    vm.watch_task(leaver)?;
    ensure!(event(vm)? == ended(leaver, ExitStatus::Left(7)));

    vm.send(early, GO, "exit early")?;
    ensure!(event(vm)? == ended(early, ExitStatus::Left(9)));
    vm.recv(early, RESULT)?;
    vm.kill(killed)?;
    ensure!(event(vm)? == ended(killed, ExitStatus::Signal(9)));
    vm.signal(signalled, 10)?;
    ensure!(event(vm)? == ended(signalled, ExitStatus::Signal(10)));
    vm.send(aborted, GO, "abort")?;
    ensure!(event(vm)? == ended(aborted, ExitStatus::Signal(6)));
    // Messages to tasks that have ended, and to a task that never existed, are dropped.
    vm.multicast(&tids, 4, "late")?;
    let never = Tid::new(leaver.machine(), leaver.host(), Tid::SEQUENCE_MAX);
    vm.send(never, 4, "to nobody")?;
    let daemon = Tid::daemon(leaver.machine(), leaver.host());
    ensure!(matches!(
        vm.send(daemon, 4, "no"),
        Err(SendError::NoTask { .. })
    ));
    // A receive from such a task is an error, even if the task was not watched.
    let gone = [
        (leaver, ExitStatus::Left(7)),
        (killed, ExitStatus::Signal(9)),
        (unwatched, ExitStatus::Left(7)),
        (never, ExitStatus::Unknown),
    ];
    for (tid, expected) in gone {
        match vm.recv(tid, ANY) {
            Err(RecvError::Ended { from, status }) => {
                ensure!((from, status) == (tid, expected), "{from}: {status}");
            }
            other => bail!("{other:?} from {tid}, which has ended"),
        }
    }
    ensure!(vm.try_recv(ANY, ANY)?.is_none() && vm.recv_event(Some(Duration::ZERO))?.is_none());
    Ok(())
}

fn ends_worker(vm: &Task) -> anyhow::Result<()> {
    let parent = parent(vm)?;
    vm.send(parent, READY, &())?;
    match vm.recv(parent, GO)?.value::<String>()?.as_str() {
        "leave" => {
            vm.send_bytes(parent, RESULT, vec![1; 3_000_000])?;
            std::process::exit(7)
        }
        "exit early" => {
            vm.send(parent, RESULT, &())?;
            vm.exit(9)?;
            ensure!(vm.send(parent, RESULT, &()).is_err());
            // The process has left the machine, so this status must not be reported.
            std::process::exit(1)
        }
        "abort" => std::process::abort(),
        other => bail!("{other}"),
    }
}

/// Groups across hosts: instances, barrier, broadcast, joins and leaves.
fn groups(vm: &Task) -> anyhow::Result<()> {
    let hosts: Vec<String> = vm
        .hosts()?
        .into_iter()
        .map(|host| host.facts.name)
        .collect();
    let count = 2 * hosts.len();
    let spawn = worker("groups")?.arg(count.to_string());
    let tids = vm.spawn(&spawn.count(count as u32).on_each(hosts))?;
    let mut instances = Vec::new();
    for tid in &tids {
        instances.push(vm.recv(*tid, RESULT)?.value::<u32>()?);
    }
    instances.sort_unstable();
    ensure!(
        instances.iter().copied().eq(0..count as u32),
        "{instances:?}"
    );
    // When the end of a task is reported, the task has left the group.
    for tid in &tids {
        vm.watch_task(*tid)?;
    }
    for _ in &tids {
        let Event::TaskEnded { tid, status } = event(vm)? else {
            bail!("an event that is no end");
        };
        ensure!(status == ExitStatus::Left(0), "{tid} {status}");
    }
    match vm.group("grid") {
        Ok(members) => ensure!(members.size() == 0, "{members:?}"),
        Err(GroupError::Refused(failed)) => ensure!(failed.kind == FailKind::NoSuchGroup),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn groups_worker(vm: &Task, count: usize) -> anyhow::Result<()> {
    let mut group = vm.join("grid")?;
    vm.await_members(&mut group, count)?;
    let me = group.instance();
    let members = group.members().clone();
    ensure!(members.tid(me) == Some(vm.tid()) && group.size() == count);
    for round in 0..20u32 {
        // Each member receives, after the barrier, the message that was sent before the barrier of
        // the same round.
        let right = members.tid((me + 1) % count as u32).context("a member")?;
        vm.send(right, 5, &round)?;
        vm.barrier(&mut group)?;
        ensure!(vm.recv(ANY, 5)?.value::<u32>()? == round);
        let root = round % count as u32;
        let mut value = (me, vec![me; 40_000]);
        vm.broadcast(&group, root, &mut value)?;
        ensure!(value == (root, vec![root; 40_000]));
    }
    vm.send(parent(vm)?, RESULT, &me)?;
    // Members with an odd number leave the group; the others continue and end without leaving.
    if me % 2 == 1 {
        return Ok(vm.leave(group)?);
    }
    for _ in 0..3 {
        vm.barrier(&mut group)?;
    }
    Ok(())
}

/// Each impossible request is refused, with its kind and a text.
fn refusals(vm: &Task) -> anyhow::Result<()> {
    let kind = |spawn: Spawn| match vm.spawn(&spawn) {
        Err(SpawnError::Refused { cause, .. }) => Ok(cause.kind),
        Err(SpawnError::Partly { failures, .. }) => Ok(failures[0].1.kind),
        other => bail!("{other:?}"),
    };
    ensure!(kind(Spawn::new("no-such-program"))? == FailKind::NoSuchProgram);
    ensure!(kind(worker("x")?.on("no-such-host"))? == FailKind::NoSuchHost);
    ensure!(kind(worker("x")?.count(0))? == FailKind::BadRequest);
    let nobody = Tid::new(vm.machine(), vm.host(), 999_999);
    match vm.kill(nobody) {
        Err(vmlib::RequestError::Refused(failed)) => ensure!(failed.kind == FailKind::NoSuchTask),
        other => bail!("{other:?}"),
    }
    match vm.group("no-such-group") {
        Err(GroupError::Refused(failed)) => ensure!(failed.kind == FailKind::NoSuchGroup),
        other => bail!("{other:?}"),
    }
    Ok(())
}

/// Hosts that join and leave are reported.
fn hosts(vm: &Task) -> anyhow::Result<()> {
    vm.watch_hosts()?;
    println!("watching");
    for _ in 0..2 {
        match event(vm)? {
            Event::HostAdded { name, .. } => println!("added {name}"),
            Event::HostDeleted { name, .. } => println!("deleted {name}"),
            other => bail!("{other:?}"),
        }
    }
    Ok(())
}

/// The master runs at a console and cannot move. Its first worker moves the other worker, then
/// itself.
fn moves(vm: &Task) -> anyhow::Result<()> {
    let reasons = vm.can_move(vm.tid())?;
    let fed = |reason: &String| reason.contains("its standard input comes from a console");
    ensure!(reasons.iter().any(fed), "{reasons:?}");
    match vm.move_task(vm.tid(), None) {
        Err(vmlib::RequestError::Refused(failed)) => {
            ensure!(failed.kind == FailKind::Refused, "{failed}");
            ensure!(failed.text.ends_with(&reasons[0]), "{failed}");
        }
        other => bail!("{other:?}"),
    }
    let workers = vm.spawn(&worker("moves")?.count(2))?;
    let moved: u32 = vm.recv(workers[0], RESULT)?.value()?;
    ensure!(moved == 3, "{moved} moves");
    Ok(())
}

fn moves_worker(vm: &Task) -> anyhow::Result<()> {
    let workers = vm.siblings()?;
    let master = parent(vm)?;
    if vm.index() == 1 {
        // This worker is moved while it waits.
        let goal: vmlib::HostId = vm.recv(workers[0], RESULT)?.value()?;
        ensure!(vm.host() == goal, "it is on {}", vm.host());
        vm.send(workers[0], RESULT, &vm.host())?;
        vm.recv(workers[0], RESULT)?;
        return Ok(());
    }
    let name = |host| -> anyhow::Result<String> {
        let hosts = vm.hosts()?;
        let found = hosts.iter().find(|found| found.id == host);
        Ok(found.context("a host is gone")?.facts.name.clone())
    };
    let other = workers[1];
    wait_until_movable(vm, other)?;
    let report = vm.move_task(other, None)?;
    ensure!(report.from != report.to, "{report:?}");
    vm.send(other, RESULT, &report.to)?;
    let told: vmlib::HostId = vm.recv(other, RESULT)?.value()?;
    ensure!(told == report.to, "{told}");

    // The worker moves itself: the call returns on the target.
    let before = vm.host();
    let goal = vm.hosts()?.into_iter().find(|host| host.id != before);
    let goal = goal.context("there is no other host")?;
    let report = vm.move_task(vm.tid(), Some(&goal.facts.name))?;
    ensure!((report.from, report.to) == (before, goal.id), "{report:?}");
    ensure!(vm.host() == goal.id, "it is on {}", vm.host());

    // The worker drains its own host: the report comes after its own move.
    let report = vm.drain(&name(vm.host())?)?;
    let mine = report.moved.iter().find(|(tid, _)| *tid == vm.tid());
    let (_, mine) = mine.context("the report does not know of this task")?;
    ensure!(report.host == goal.id && mine.to == vm.host(), "{report:?}");
    ensure!(vm.host() != goal.id, "it is still there");
    match vm.move_task(vm.tid(), Some(&goal.facts.name)) {
        Err(vmlib::RequestError::Refused(failed)) => {
            ensure!(failed.text.contains("draining"), "{failed}");
        }
        other => bail!("{other:?}"),
    }
    vm.send(other, RESULT, &())?;
    vm.send(master, RESULT, &3u32)?;
    Ok(())
}

/// A task that has just been spawned may not have enrolled, or the log of this host may not know it
/// yet.
fn wait_until_movable(vm: &Task, tid: Tid) -> anyhow::Result<()> {
    loop {
        let reasons = match vm.can_move(tid) {
            Ok(reasons) => reasons,
            Err(vmlib::RequestError::Refused(failed)) if failed.kind == FailKind::NoSuchTask => {
                vec!["it is not known yet; try again".to_owned()]
            }
            Err(error) => return Err(error.into()),
        };
        match reasons.as_slice() {
            [] => return Ok(()),
            [reason] if reason.ends_with("try again") => std::thread::yield_now(),
            _ => bail!("{reasons:?}"),
        }
    }
}
