//! Tasks that send requests to others and wait for the replies.

use super::shared::{NUMBERED, RESULT, STOP, body, me, size};
use anyhow::{Context, bail, ensure};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use vmlib::{ANY, Event, Incoming, Task};

/// Starts a caller on the given host. Tells it to end when a line comes on standard input.
pub fn caller_of(vm: &Task, host: &str, callees: &str) -> anyhow::Result<()> {
    let caller = vm.spawn(&me(&["caller", callees])?.on(host))?[0];
    vm.watch_task(caller)?;
    // The end of the input counts as a line.
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

/// Exchanges numbers with a task on `host` until it is told to end (by a line on standard input, or
/// by its parent, if it has one), or until the other task has ended. Each number must come back
/// once, in order. `used` and `unused`: MiB of memory of the other task that it writes, and that it
/// never touches.
pub fn caller(vm: &Task, host: &str, used: &str, unused: &str) -> anyhow::Result<()> {
    const AHEAD: u64 = 64;
    let callee = vm.spawn(&me(&["callee", used, unused])?.on(host))?[0];
    vm.watch_task(callee)?;
    let told = Arc::new(AtomicBool::new(false));
    let sees = told.clone();
    let parent = vm.parent();
    if parent.is_none() {
        std::thread::spawn(move || {
            // The end of the input counts as a line.
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

pub fn callee(vm: &Task, used: u64, unused: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("a callee has a parent")?;
    // Each number occurs twice, so that the memory compresses to well below half of its size.
    let words = (0..(used << 20) / 8).map(|word| word / 2);
    let memory: Vec<u64> = words.clone().collect();
    // The system allocates no page of this memory before the page is used.
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
