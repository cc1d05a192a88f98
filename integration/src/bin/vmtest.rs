//! The programs that the cluster tests run: one binary, one role per first argument.
//!
//! A role that starts others starts this binary again. Each checks what it receives itself and
//! says on its last line that all was well; a role that finds something wrong panics.

use anyhow::{Context, bail, ensure};
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use vm_wire::Tid;
use vmlib::{ANY, Callbacks, Checkpointed, Event, Incoming, Spawn, Task};

const NUMBERED: i32 = 1;
const READY: i32 = 2;
const GO: i32 = 3;
const RESULT: i32 = 4;
const STOP: i32 = 5;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let role = args.first().context("which role?")?.clone();
    let number = |index: usize| -> anyhow::Result<u64> {
        Ok(args
            .get(index)
            .with_context(|| format!("argument {index} of {role}"))?
            .parse()?)
    };
    if role == "idle-with-threads" {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    let vm = vmlib::init()?;
    match role.as_str() {
        "ring" => ring(&vm, Some(number(1)?), number(2)?),
        "ring-until-told" => ring(&vm, None, number(1)?),
        "ring-member" => ring_member(&vm),
        "early" => early(&vm),
        "early-receiver" => early_receiver(&vm),
        "exchange" => exchange(&vm, number(1)?),
        "exchange-peer" => exchange_peer(&vm),
        "flood" => flood(&vm, number(1)?),
        "flood-sender" => flood_sender(&vm, number(1)?, Tid(number(2)?)),
        "pair" => pair(&vm, Tid(number(1)?)),
        "last-word" => last_word(&vm, number(1)?),
        "last-word-sender" => last_word_sender(&vm),
        "cut-off" => cut_off(&vm),
        "cut-off-sender" => cut_off_sender(&vm),
        "crowd" => crowd(&vm, number(1)?),
        "idle" | "idle-with-threads" => idle(&vm),
        "caller" => {
            let mib = |index: usize, default| args.get(index).map_or(default, String::as_str);
            caller(&vm, &args[1], mib(2, "8"), mib(3, "0"))
        }
        "caller-of" => caller_of(&vm, &args[1], &args[2]),
        "callee" => callee(&vm, number(1)?, number(2)?),
        "ledger" => ledger(number(1)?),
        "diary" => diary(&vm, &args[1], &args[2], number(3)?),
        "diarist" => diarist(&vm, &args[1], number(2)?),
        "saver" => saver(&vm, &args[1]),
        "saved" => saved(&vm),
        "bookkeeper" => bookkeeper(&vm, &args[1]),
        "reader" => reader(&vm, &args[1]),
        "sentinel" => sentinel(&vm, number(1)?),
        "portable" => portable(&vm, number(1)?, &args[2]),
        "portable-peer" => portable_peer(&vm, number(1)?),
        "portable-deaf" => portable_deaf(&vm),
        "portable-saver" => portable_saver(&vm, &args[1]),
        "portable-waiter" => portable_waiter(&vm),
        _ => bail!("no role {role}"),
    }
}

fn me(args: &[&str]) -> anyhow::Result<Spawn> {
    let program = std::env::current_exe()?;
    Ok(Spawn::new(program.to_string_lossy()).args(args.iter().copied()))
}

/// Sends numbers to a peer on that host, many ahead of what comes back, and gives its state at safe
/// points.
fn portable(vm: &Task, count: u64, host: &str) -> anyhow::Result<()> {
    vm.around_saves(Box::new(Teller));
    // The peer, what was sent to it, what came back.
    let begun = vm.portable(|| (Tid::NONE, 0u64, 0u64))?;
    let mut state = begun.state;
    if begun.restored {
        println!("on from {} of {}", state.2, state.1);
    } else {
        let peer = me(&["portable-peer", &count.to_string()])?;
        state.0 = vm.spawn(&peer.env("PORTABLE_PEER", "yes").on(host))?[0];
    }
    while state.2 < count {
        vm.safe_point(&state)?;
        let (peer, sent, back) = state;
        if sent < count && sent < back + 100 {
            vm.send(peer, NUMBERED, &(sent + 1, vec![7u8; 50]))?;
            state.1 += 1;
            continue;
        }
        let (number, _): (u64, Vec<u8>) = vm.recv_at(&state, peer, NUMBERED)?.value()?;
        ensure!(number == back + 1, "after {back} came {number}");
        state.2 = number;
        if number % 1_000 == 0 {
            println!("{number} came back");
        }
    }
    println!("all came back, none lost, doubled or out of order");
    Ok(())
}

/// Tells what it is told.
struct Teller;

impl Callbacks for Teller {
    fn before_save(&mut self) -> Result<(), String> {
        println!("before a save");
        Ok(())
    }

    fn after_save(&mut self) {
        println!("after a save");
    }

    fn after_resume(&mut self) {
        println!("resumed");
    }
}

/// Has its application saved after each step, waits after the third, and goes on to the fifth when it
/// was brought back.
fn portable_saver(vm: &Task, host: &str) -> anyhow::Result<()> {
    // Steps made, and another task.
    let begun = vm.portable(|| (0, Tid::NONE))?;
    let mut state: (u32, Tid) = begun.state;
    if !begun.restored {
        state.1 = vm.spawn(&me(&["portable-waiter"])?.on(host))?[0];
    }
    while state.0 < 5 {
        if state.0 == 3 && !begun.restored {
            println!("three steps");
            vm.recv_at(&state, ANY, GO)?;
        }
        state.0 += 1;
        match vm.checkpoint_at(&state)? {
            Checkpointed::Saved(report) => println!("step {} is e{}", state.0, report.epoch),
            Checkpointed::Restored => bail!("the other process says so"),
        }
    }
    vm.send(state.1, STOP, &())?;
    Ok(())
}

fn portable_waiter(vm: &Task) -> anyhow::Result<()> {
    vm.portable(|| ())?;
    vm.recv_at(&(), ANY, STOP)?;
    Ok(())
}

fn portable_peer(vm: &Task, count: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("no parent")?;
    let mut last = vm.portable(|| 0u64)?.state;
    ensure!(std::env::var("PORTABLE_PEER")? == "yes", "a variable");
    while last < count {
        let message = vm.recv_at(&last, parent, NUMBERED)?;
        let (number, body): (u64, Vec<u8>) = message.value()?;
        ensure!(number == last + 1, "after {last} came {number}");
        vm.send(parent, NUMBERED, &(number, body))?;
        last = number;
    }
    Ok(())
}

/// Is portable, and comes to no safe point.
fn portable_deaf(vm: &Task) -> anyhow::Result<()> {
    vm.portable(|| ())?;
    loop {
        println!("it goes");
        vm.recv_timeout(ANY, STOP, Duration::from_millis(200))?;
    }
}

/// Has so many MiB of memory, of which it changes each hundredth page whenever there is a line on
/// standard input; when that ends it looks whether all of it is as it should be.
fn ledger(mib: u64) -> anyhow::Result<()> {
    const PAGE: usize = 4096 / size_of::<u64>();
    let whole = || -> Vec<u64> {
        let words = (mib << 20) / size_of::<u64>() as u64;
        let word = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number >> 7;
        (0..words).map(word).collect()
    };
    let change = |memory: &mut [u64], number: usize| {
        for page in memory.chunks_mut(PAGE).skip(number % 100).step_by(100) {
            page[number] ^= number as u64;
        }
    };
    let mut memory = whole();
    let mut changes = 0;
    println!("it goes");
    while std::io::stdin().read_line(&mut String::new())? > 0 {
        changes += 1;
        change(&mut memory, changes);
        println!("change {changes} is made");
    }
    let mut expected = whole();
    (1..=changes).for_each(|number| change(&mut expected, number));
    ensure!(memory == expected, "the ledger is wrong");
    println!("the ledger is right after {changes} changes");
    Ok(())
}

/// Has a task on that host, and all of the application saved for each line on standard input and for
/// its end; says what it sees of that.
fn saver(vm: &Task, host: &str) -> anyhow::Result<()> {
    let other = vm.spawn(&me(&["saved"])?.on(host))?[0];
    println!("it goes");
    loop {
        let is_last = std::io::stdin().read_line(&mut String::new())? == 0;
        match vm.checkpoint()? {
            Checkpointed::Saved(report) => {
                println!("{} tasks saved as e{}", report.tasks, report.epoch);
            }
            Checkpointed::Restored => println!("brought back"),
        }
        if is_last {
            break;
        }
    }
    Ok(vm.send(other, STOP, &())?)
}

/// Is saved with the others, until it is told to end.
fn saved(vm: &Task) -> anyhow::Result<()> {
    vm.recv(vm.parent().context("a parent")?, STOP)?;
    Ok(())
}

/// Has a caller work on a host of its own, which tells it to end when there is a line on standard
/// input.
fn caller_of(vm: &Task, host: &str, callees: &str) -> anyhow::Result<()> {
    let caller = vm.spawn(&me(&["caller", callees])?.on(host))?[0];
    vm.watch_task(caller)?;
    // Its end counts as a line.
    std::io::stdin().read_line(&mut String::new())?;
    vm.send(caller, STOP, &())?;
    match vm.next(caller, ANY, None)? {
        Some(Incoming::Event(Event::TaskEnded { status, .. })) => {
            ensure!(
                status == vmlib::ExitStatus::Left(0),
                "the caller ended: {status:?}"
            );
            Ok(())
        }
        other => bail!("{other:?}"),
    }
}

/// Exchanges numbers with a task on that host until it is told to end: by a line on standard input,
/// or by its parent, if it has one; or until that task has ended. Each number comes back once, in
/// order. That task has so many MiB of memory that it uses, and so many that it never does.
fn caller(vm: &Task, host: &str, used: &str, unused: &str) -> anyhow::Result<()> {
    const AHEAD: u64 = 64;
    let callee = vm.spawn(&me(&["callee", used, unused])?.on(host))?[0];
    vm.watch_task(callee)?;
    let told = Arc::new(AtomicBool::new(false));
    let sees = told.clone();
    let parent = vm.parent();
    if parent.is_none() {
        std::thread::spawn(move || {
            // Its end counts as a line.
            let _ = std::io::stdin().read_line(&mut String::new());
            sees.store(true, SeqCst);
        });
    }
    let (mut sent, mut back) = (0u64, 0u64);
    while !told.load(SeqCst) || back < sent {
        while !told.load(SeqCst) && sent < back + AHEAD {
            vm.send_bytes(callee, NUMBERED, body(sent, size(sent, 1 << 16)))?;
            sent += 1;
        }
        if let Some(parent) = parent
            && vm.try_recv(parent, STOP)?.is_some()
        {
            told.store(true, SeqCst);
        }
        match vm.next(callee, NUMBERED, Some(Duration::from_millis(10)))? {
            Some(Incoming::Message(message)) => {
                ensure!(
                    message.bytes() == body(back, size(back, 1 << 16)),
                    "number {back}"
                );
                back += 1;
                if back == 1 {
                    println!("it goes");
                }
            }
            Some(Incoming::Event(Event::TaskEnded { status, .. })) => {
                println!("the other ended: {status:?}");
                return Ok(());
            }
            _ => {}
        }
    }
    vm.send(callee, STOP, &())?;
    let came: u64 = vm.recv(callee, RESULT)?.value()?;
    ensure!(came == sent, "{sent} numbers were sent, and {came} came");
    println!("{came} numbers, none lost, doubled or out of order");
    Ok(())
}

fn callee(vm: &Task, used: u64, unused: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("a callee has a parent")?;
    let words = 0..(used << 20) / 8;
    let memory: Vec<u64> = words.clone().collect();
    // The system gives it, and no page of it before it is used.
    let unused = vec![0u8; usize::try_from(unused << 20)?];
    let mut came = 0;
    loop {
        let message = vm.recv(parent, ANY)?;
        if message.tag() == STOP {
            break;
        }
        ensure!(
            message.bytes() == body(came, size(came, 1 << 16)),
            "number {came}"
        );
        vm.send_bytes(parent, NUMBERED, message.into_bytes())?;
        came += 1;
    }
    ensure!(memory.iter().copied().eq(words), "its memory");
    ensure!(unused.iter().all(|byte| *byte == 0), "its unused memory");
    vm.send(parent, RESULT, &came)?;
    Ok(())
}

/// Has a task on that host write each line of standard input into its diary in that folder, and tells
/// where it did so, and what it has read meanwhile in a book of so many bytes.
fn diary(vm: &Task, host: &str, folder: &str, bytes: u64) -> anyhow::Result<()> {
    let diarist = me(&["diarist", folder, &bytes.to_string()])?.on(host);
    let diarist = vm.spawn(&diarist)?[0];
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == "end" {
            break;
        }
        vm.send(diarist, GO, &line)?;
        let (host, read): (String, u64) = vm.recv(diarist, RESULT)?.value()?;
        println!("written on {host}, read {read}");
    }
    vm.send(diarist, STOP, &())?;
    Ok(())
}

/// Opens a book for reading and a diary for appending, both new. Each line that comes is written there,
/// and the next number is read.
fn diarist(vm: &Task, folder: &str, bytes: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("a diarist has a parent")?;
    let (book, diary) = (format!("{folder}/book"), format!("{folder}/diary"));
    let numbers: Vec<u8> = (0..bytes / 8).flat_map(u64::to_le_bytes).collect();
    std::fs::write(&book, numbers)?;
    let mut book = File::open(book)?;
    let mut options = OpenOptions::new();
    let mut diary = options.create(true).append(true).open(diary)?;
    loop {
        let message = vm.recv(parent, ANY)?;
        if message.tag() == STOP {
            return Ok(());
        }
        let line: String = message.value()?;
        writeln!(diary, "{line}")?;
        let mut number = [0; 8];
        book.read_exact(&mut number)?;
        vm.send(
            parent,
            RESULT,
            &(host_name(vm)?, u64::from_le_bytes(number)),
        )?;
    }
}

/// Keeps books in that folder: as many steps as each line of standard input says, then up to a hundred.
/// A task on the second host has one of the files open for writing, too.
fn bookkeeper(vm: &Task, folder: &str) -> anyhow::Result<()> {
    let mut books = Books::open(folder)?;
    let reader = vm.spawn(&me(&["reader", folder])?.on("n2"))?[0];
    vm.recv(reader, READY)?;
    for line in std::io::stdin().lines() {
        for _ in 0..line?.trim().parse()? {
            books.step()?;
        }
        println!("step {}", books.steps);
    }
    while books.steps < 100 {
        books.step()?;
    }
    vm.send(reader, STOP, &Books::board(books.steps))?;
    vm.recv(reader, RESULT)?;
    println!("the books are closed");
    Ok(())
}

fn reader(vm: &Task, folder: &str) -> anyhow::Result<()> {
    let parent = vm.parent().context("a reader has a parent")?;
    let board = format!("{folder}/board");
    let board = File::options().read(true).write(true).open(board)?;
    vm.send(parent, READY, &())?;
    let wanted: String = vm.recv(parent, STOP)?.value()?;
    let mut found = vec![0; usize::try_from(board.metadata()?.len())?];
    board.read_exact_at(&mut found, 0)?;
    ensure!(found == wanted.as_bytes(), "the board: {found:?}");
    vm.send(parent, RESULT, &())?;
    Ok(())
}

/// A log that grows, a table that is written here and there, and a board that is written anew. Each
/// step begins only if they are what the last one left.
struct Books {
    steps: u64,
    log: File,
    log_len: u64,
    table: File,
    /// What the table holds: more than goes along with a move.
    numbers: Vec<u8>,
    board: File,
}

impl Books {
    fn open(folder: &str) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true);
        let log = options.clone().append(true).open(format!("{folder}/log"))?;
        let options = options.write(true);
        let table = options.open(format!("{folder}/table"))?;
        let numbers = vec![0; 5 << 20];
        table.set_len(5 << 20)?;
        let board = options.open(format!("{folder}/board"))?;
        Ok(Books {
            steps: 0,
            log,
            log_len: 0,
            table,
            numbers,
            board,
        })
    }

    fn step(&mut self) -> anyhow::Result<()> {
        let len = self.log.metadata()?.len();
        ensure!(len == self.log_len, "the log has {len} bytes");
        let mut found = vec![0; self.numbers.len()];
        self.table.read_exact_at(&mut found, 0)?;
        ensure!(found == self.numbers, "the table");
        self.steps += 1;
        let line = format!("step {}\n", self.steps);
        self.log.write_all(line.as_bytes())?;
        self.log_len += line.len() as u64;
        let at = self.steps as usize * 40_961;
        let number = self.steps.to_le_bytes();
        self.numbers[at..at + 8].copy_from_slice(&number);
        self.table.write_all_at(&number, at as u64)?;
        self.board.set_len(0)?;
        self.board
            .write_all_at(Books::board(self.steps).as_bytes(), 0)?;
        Ok(())
    }

    /// What is on the board after so many steps: longer, and shorter again.
    fn board(steps: u64) -> String {
        format!("{steps}: {}", "#".repeat(steps as usize % 7))
    }
}

/// The name of the host on which this task runs.
fn host_name(vm: &Task) -> anyhow::Result<String> {
    let here = vm.hosts()?.into_iter().find(|host| host.id == vm.host());
    Ok(here.context("this host is in the machine")?.facts.name)
}

/// The names of all hosts.
fn host_names(vm: &Task) -> anyhow::Result<Vec<String>> {
    let hosts = vm.hosts()?.into_iter();
    Ok(hosts.map(|host| host.facts.name).collect())
}

/// A body of `len` bytes that is different for every number, and can be checked.
fn body(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len.max(8)];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let last = bytes.len() - 1;
    bytes[last] = (number >> if last < 8 { 56 } else { 0 }) as u8;
    bytes
}

/// Sizes from 8 B to `largest`, most of them small, the large ones rare.
fn size(number: u64, largest: u64) -> usize {
    let scrambled = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let bits = 64 - largest.leading_zeros() as u64;
    let exponent = 3 + if scrambled.is_multiple_of(97) {
        scrambled / 97 % (bits - 3)
    } else {
        scrambled % 10
    };
    (1u64 << exponent).min(largest).max(8) as usize
}

/// Eight tasks in a ring send numbered messages to their right for `seconds`, or until there is a
/// line on standard input.
fn ring(vm: &Task, seconds: Option<u64>, largest: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let members = vm.spawn(&me(&["ring-member"])?.count(8).on_each(hosts))?;
    ensure!(members.len() == 8, "eight members");
    for (index, member) in members.iter().enumerate() {
        let right = members[(index + 1) % members.len()];
        let left = members[(index + members.len() - 1) % members.len()];
        vm.send(*member, GO, &(left.0, right.0, seconds, largest))?;
    }
    if seconds.is_none() {
        std::io::stdin().read_line(&mut String::new())?;
        for member in &members {
            vm.send(*member, STOP, &())?;
        }
    }
    let (mut messages, mut bytes) = (0, 0);
    for member in members {
        let (received, volume): (u64, u64) = vm.recv(member, RESULT)?.value()?;
        messages += received;
        bytes += volume;
    }
    println!("ring: {messages} messages, {bytes} bytes, none lost, doubled or out of order");
    Ok(())
}

fn ring_member(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a member has a parent")?;
    let (left, right, seconds, largest): (u64, u64, Option<u64>, u64) =
        vm.recv(parent, GO)?.value()?;
    let (left, right) = (Tid(left), Tid(right));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut sent, mut received, mut volume) = (0u64, 0u64, 0u64);
    let mut left_done = false;
    let mut done = false;
    while !left_done || !done {
        if !done {
            // An empty message says that no more come.
            done = match end {
                Some(end) => Instant::now() >= end,
                None => vm.probe(parent, STOP)?.is_some(),
            };
            if done {
                vm.send_bytes(right, NUMBERED, Vec::new())?;
            } else {
                vm.send_bytes(right, NUMBERED, body(sent, size(sent, largest)))?;
                sent += 1;
            }
        }
        // Not more than a few ahead of the left neighbour, so that inboxes stay small.
        while !left_done && (done || received + 16 < sent || vm.probe(left, NUMBERED)?.is_some()) {
            let message = vm.recv(left, NUMBERED)?;
            if message.is_empty() {
                left_done = true;
                break;
            }
            let want = body(received, size(received, largest));
            ensure!(
                message.bytes() == want,
                "message {received} from {left} is not what was sent"
            );
            received += 1;
            volume += want.len() as u64;
        }
    }
    vm.send(parent, RESULT, &(received, volume))?;
    Ok(())
}

/// Sends to tasks that have hardly started, and does not enter the library again until the test says
/// so: nothing can be sent a second time.
fn early(vm: &Task) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let receivers = vm.spawn(&me(&["early-receiver"])?.count(12).on_each(hosts))?;
    for receiver in receivers {
        vm.send(receiver, GO, &())?;
    }
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn early_receiver(vm: &Task) -> anyhow::Result<()> {
    vm.recv(vm.parent().context("a receiver has a parent")?, GO)?;
    println!("received");
    Ok(())
}

/// Two tasks send each other `bytes` before either receives.
fn exchange(vm: &Task, bytes: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let pair = vm.spawn(&me(&["exchange-peer"])?.count(2).on_each(hosts))?;
    vm.send(pair[0], GO, &(pair[1].0, bytes))?;
    vm.send(pair[1], GO, &(pair[0].0, bytes))?;
    for peer in pair {
        let received: u64 = vm.recv(peer, RESULT)?.value()?;
        ensure!(received == bytes);
    }
    println!("exchange: both received {bytes} bytes");
    Ok(())
}

fn exchange_peer(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a peer has a parent")?;
    let (other, bytes): (u64, u64) = vm.recv(parent, GO)?.value()?;
    let part = 1_000_000.min(bytes) as usize;
    let parts = bytes / part as u64;
    for number in 0..parts {
        vm.send_bytes(Tid(other), NUMBERED, body(number, part))?;
    }
    let mut received = 0;
    for number in 0..parts {
        let message = vm.recv(Tid(other), NUMBERED)?;
        ensure!(message.bytes() == body(number, part));
        received += message.len() as u64;
    }
    vm.send(parent, RESULT, &received)?;
    Ok(())
}

/// This task reads nothing while `bytes` are sent to it; two others exchange messages over the
/// same link meanwhile. The test says on standard input when to go on.
fn flood(vm: &Task, bytes: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let here = host_name(vm)?;
    let there = hosts
        .iter()
        .find(|name| **name != here)
        .context("a second host")?
        .clone();
    let partner = vm.spawn(&me(&["idle"])?.on(here))?[0];
    let pair = vm.spawn(&me(&["pair", &partner.0.to_string()])?.on(there.clone()))?[0];
    vm.send(pair, GO, &"quiet")?;
    vm.recv(pair, RESULT)?;
    let sender =
        vm.spawn(&me(&["flood-sender", &bytes.to_string(), &pair.0.to_string()])?.on(there))?[0];
    // Nothing here enters the library until the test says so.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let mut received = 0u64;
    while received < bytes {
        received += vm.recv(sender, NUMBERED)?.len() as u64;
    }
    println!("flood: {received} bytes received in the end");
    vm.kill(partner)?;
    vm.kill(pair)?;
    Ok(())
}

fn flood_sender(vm: &Task, bytes: u64, pair: Tid) -> anyhow::Result<()> {
    let parent = vm.parent().context("a sender has a parent")?;
    let part = 1_000_000;
    for number in 0..bytes / part {
        if number == 1 {
            vm.send(pair, GO, &"flooded")?;
        }
        vm.send_bytes(parent, NUMBERED, body(number, part as usize))?;
    }
    Ok(())
}

/// Measures round trips with the partner when it is told to, and prints them.
fn pair(vm: &Task, partner: Tid) -> anyhow::Result<()> {
    let parent = vm.parent().context("a pair has a parent")?;
    loop {
        let when: String = vm.recv(ANY, GO)?.value()?;
        let mut times: Vec<f64> = Vec::new();
        for number in 0..2000u64 {
            let start = Instant::now();
            vm.send(partner, NUMBERED, &number)?;
            let back: u64 = vm.recv(partner, NUMBERED)?.value()?;
            ensure!(back == number);
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        println!("round trip {when}: {:.1} us", times[times.len() / 2] * 1e6);
        vm.send(parent, RESULT, &())?;
    }
}

/// Answers numbered messages until it is killed.
fn idle(vm: &Task) -> anyhow::Result<()> {
    loop {
        let message = vm.recv(ANY, NUMBERED)?;
        let from = message.from();
        vm.send_bytes(from, NUMBERED, message.into_bytes())?;
    }
}

/// Tasks that send one message and end at once; it is received after they are gone.
fn last_word(vm: &Task, count: u64) -> anyhow::Result<()> {
    let senders = vm.spawn(&me(&["last-word-sender"])?.count(count as u32))?;
    for sender in &senders {
        vm.watch_task(*sender)?;
    }
    for _ in 0..count {
        match vm.recv_event(Some(Duration::from_secs(60)))? {
            Some(Event::TaskEnded { tid, status }) => {
                ensure!(status.in_order(), "{tid} {status}");
                let message = vm.try_recv(tid, NUMBERED)?;
                let message =
                    message.with_context(|| format!("{tid}'s end overtook its message"))?;
                ensure!(message.bytes() == body(7, 3_000_000));
            }
            other => bail!("no end was told but {other:?}"),
        }
    }
    println!("last-word: {count} messages of tasks that had ended");
    Ok(())
}

fn last_word_sender(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a sender has a parent")?;
    vm.send_bytes(parent, NUMBERED, body(7, 3_000_000))?;
    Ok(())
}

/// A task is killed in the middle of sending a large message: nothing of it is delivered.
fn cut_off(vm: &Task) -> anyhow::Result<()> {
    let sender = vm.spawn(&me(&["cut-off-sender"])?)?[0];
    vm.watch_task(sender)?;
    vm.recv(sender, READY)?;
    // Computes for a while, so that the sender stands in the middle for want of credit.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        std::hint::black_box(start);
    }
    vm.kill(sender)?;
    match vm.recv_event(Some(Duration::from_secs(60)))? {
        Some(Event::TaskEnded { tid, status }) => ensure!(tid == sender && !status.in_order()),
        other => bail!("no end was told but {other:?}"),
    }
    ensure!(
        vm.try_recv(sender, NUMBERED)?.is_none(),
        "a part was delivered"
    );
    ensure!(
        vm.recv_timeout(ANY, NUMBERED, Duration::from_millis(200))?
            .is_none()
    );
    println!("cut-off: nothing was delivered in part");
    Ok(())
}

fn cut_off_sender(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a sender has a parent")?;
    vm.send(parent, READY, &())?;
    vm.send_bytes(parent, NUMBERED, body(1, 64 << 20))?;
    bail!("a message of 64 MiB fitted into the window")
}

/// Starts `count` tasks on its own host, hears from each, and ends them.
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

/// Keeps `count` tasks on every host, all of them watched, and tells what ends, one line each;
/// exchanges messages with those that are left, so that it is seen that they go on.
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
