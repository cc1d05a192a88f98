//! The programs that the cluster tests run: one binary, one role per first argument.
//!
//! A role that starts other roles starts this binary again. Each role checks what it receives, and
//! confirms success on its last line. A role that finds an error panics or returns it.

mod calls;
mod collectives;
mod echoes;
mod faults;
mod files;
mod garbage;
mod handlers;
mod into;
mod last_call;
mod listening;
mod pauses;
mod portable;
mod refusing;
mod requests;
mod shared;
mod traffic;

use anyhow::{Context, bail, ensure};
use shared::{NUMBERED, host_name, me};
use std::time::Duration;
use vm_wire::Tid;
use vmlib::{ANY, Event, Task};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let role = args.first().context("which role?")?.clone();
    let number = |index: usize| -> anyhow::Result<u64> {
        Ok(args
            .get(index)
            .with_context(|| format!("argument {index} of {role}"))?
            .parse()?)
    };
    if role == "refusing" {
        return refusing::refusing(&args[1], &args[2..]);
    }
    if role == "idle-with-threads" {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    if role == "idle-on" {
        let mut processors = rustix::thread::CpuSet::new();
        processors.set(number(1)? as usize);
        rustix::thread::sched_setaffinity(None, &processors)?;
    }
    let _kept = match role == "idle-reading" {
        true => Some(std::fs::File::open(&args[1])?),
        false => None,
    };
    let vm = vmlib::init()?;
    match role.as_str() {
        "ring" => traffic::ring(&vm, Some(number(1)?), number(2)?),
        "ring-until-told" => traffic::ring(&vm, None, number(1)?),
        "pauses" => pauses::pauses(&vm),
        "last-call" => last_call::last_call(&vm, &args[1], &args[2]),
        "last-call-sender" => last_call::sender(&vm, &args[1], Tid(number(2)?), &args[3]),
        "last-call-receiver" => last_call::receiver(&vm, &args[1]),
        "echoes" => echoes::echoes(&vm),
        "echo" => echoes::echo(&vm),
        "talker" => pauses::talker(&vm, Tid(number(1)?)),
        "ring-member" => traffic::ring_member(&vm),
        "duet" => faults::duet(&vm, &args[1], &args[2]),
        "duet-member" => faults::duet_member(&vm, number(1)?, number(2)?),
        "survivors" => faults::survivors(&vm, number(1)?, &args[2]),
        "survivor" => faults::survivor(&vm, &args[1]),
        "garbage" => garbage::garbage(&vm, number(1)?),
        "garbage-reader" => garbage::garbage_reader(&vm),
        "garbage-writer" => garbage::garbage_writer(&vm, number(1)?),
        "collectives-until-told" => collectives::collectives(&vm, number(1)?),
        "collectives-member" => collectives::collectives_member(&vm, number(1)?),
        "handlers-until-told" => handlers::handlers(&vm, number(1)?),
        "handlers-member" => handlers::handlers_member(&vm),
        "into-until-told" => into::into(&vm, number(1)?),
        "into-member" => into::into_member(&vm),
        "requests-until-told" => requests::requests(&vm, number(1)?, number(2)?),
        "requests-member" => requests::requests_member(&vm),
        "early" => traffic::early(&vm),
        "early-receiver" => traffic::early_receiver(&vm),
        "exchange" => traffic::exchange(&vm, number(1)?),
        "exchange-peer" => traffic::exchange_peer(&vm),
        "flood" => traffic::flood(&vm, number(1)?),
        "flood-sender" => traffic::flood_sender(&vm, number(1)?, Tid(number(2)?)),
        "pair" => traffic::pair(&vm, Tid(number(1)?)),
        "last-word" => traffic::last_word(&vm, number(1)?),
        "last-word-sender" => traffic::last_word_sender(&vm),
        "cut-off" => traffic::cut_off(&vm),
        "cut-off-sender" => traffic::cut_off_sender(&vm),
        "crowd" => crowd(&vm, number(1)?),
        "idle" | "idle-with-threads" | "idle-on" | "idle-reading" => idle(&vm),
        "caller" => {
            let mib = |index: usize, default| args.get(index).map_or(default, String::as_str);
            calls::caller(&vm, &args[1], mib(2, "8"), mib(3, "0"))
        }
        "caller-of" => calls::caller_of(&vm, &args[1], &args[2]),
        "callee" => calls::callee(&vm, number(1)?, number(2)?),
        "ledger" => files::ledger(number(1)?),
        "rewriter" => files::rewriter(number(1)?),
        "diary" => files::diary(&vm, &args[1], &args[2], number(3)?),
        "diarist" => files::diarist(&vm, &args[1], number(2)?),
        "saver" => files::saver(&vm, &args[1]),
        "saved" => files::saved(&vm),
        "bookkeeper" => files::bookkeeper(&vm, &args[1]),
        "reader" => files::reader(&vm, &args[1]),
        "writer" => writer(&args[1]),
        "leaver" => leaver(&args[1], &args[2]),
        "sentinel" => sentinel(&vm, number(1)?),
        "portable" => portable::portable(&vm, number(1)?, &args[2]),
        "portable-peer" => portable::portable_peer(&vm, number(1)?),
        "portable-deaf" => portable::portable_deaf(&vm),
        "portable-saver" => portable::portable_saver(&vm, &args[1]),
        "listening" => listening::listening(&vm, &args[1], &args[2]),
        "listener" => listening::listener(&vm, &args[1]),
        "portable-waiter" => portable::portable_waiter(&vm),
        _ => bail!("no role {role}"),
    }
}

/// Writes numbered lines, each in two pieces, until the file `until` exists; then half a line, and
/// ends with exit code 7.
fn writer(until: &str) -> anyhow::Result<()> {
    let out = std::io::stdout();
    for number in 0.. {
        // The write bypasses the buffer of the standard library, which would keep a line together.
        for piece in [format!("line {number}"), " is whole\n".to_owned()] {
            rustix::io::write(&out, piece.as_bytes())?;
        }
        if std::fs::exists(until)? {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    rustix::io::write(&out, b"last")?;
    std::process::exit(7);
}

/// Once the file `go` exists, starts a process in a session of its own, which writes its number
/// into the file `left`. Ends once `go` is gone.
fn leaver(go: &str, left: &str) -> anyhow::Result<()> {
    while !std::fs::exists(go)? {
        std::thread::sleep(Duration::from_millis(10));
    }
    let script = format!("sh -c 'echo $$ > {left}; exec sleep 1000' >/dev/null 2>&1 &");
    let started = std::process::Command::new("setsid")
        .args(["sh", "-c", &script])
        .status()?;
    ensure!(started.success(), "{started}");
    while std::fs::exists(go)? {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Replies to numbered messages until it is killed.
fn idle(vm: &Task) -> anyhow::Result<()> {
    loop {
        let message = vm.recv(ANY, NUMBERED)?;
        let from = message.from();
        vm.send_bytes(from, NUMBERED, message.into_bytes())?;
    }
}

/// Starts `count` tasks on its own host, receives a message from each, and ends them.
fn crowd(vm: &Task, count: u64) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let tasks = vm.spawn(&me(&["idle"])?.count(count as u32).on(here))?;
    ensure!(tasks.len() as u64 == count);
    for task in &tasks {
        vm.send(*task, NUMBERED, &task.0)?;
    }
    for task in &tasks {
        let back: u64 = vm.recv(*task, NUMBERED)?.value()?;
        ensure!(back == task.0);
    }
    println!("crowd: {count} tasks answered");
    for task in tasks {
        vm.kill(task)?;
    }
    Ok(())
}

/// Keeps `count` tasks on every host and watches all of them. Reports each end on a line. Exchanges
/// messages with the remaining tasks, which shows that they still run.
fn sentinel(vm: &Task, count: u64) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for host in vm.hosts()? {
        let born = vm.spawn(&me(&["idle"])?.count(count as u32).on(host.facts.name))?;
        for task in born {
            vm.watch_task(task)?;
            tasks.push(task);
        }
    }
    vm.watch_hosts()?;
    println!("watching {}", tasks.len());
    let mut number = 0u64;
    loop {
        for task in &tasks {
            vm.send(*task, NUMBERED, &number)?;
        }
        number += 1;
        let mut gone = Vec::new();
        while let Some(event) = vm.recv_event(Some(Duration::from_millis(20)))? {
            match event {
                Event::TaskEnded { tid, status } => {
                    println!("ended {tid} {status}");
                    gone.push(tid);
                }
                Event::HostAdded { name, .. } => println!("added {name}"),
                Event::HostDeleted { name, .. } => println!("deleted {name}"),
            }
        }
        tasks.retain(|task| !gone.contains(task));
        while vm.try_recv(ANY, NUMBERED)?.is_some() {}
        if number.is_multiple_of(50) {
            println!("round {number} with {}", tasks.len());
        }
    }
}
