//! A ring of tasks that answer each other in handlers, in a context of their own.

use super::shared::{GO, NUMBERED, RESULT, STOP, host_names, me};
use anyhow::{Context, ensure};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use vm_wire::Tid;
use vmlib::{ContextId, Envelope, Message, Task};

const ANSWER: i32 = 101;
const DONE: i32 = 102;
/// A member asks for a new context after so many answers.
const CONTEXT_EVERY: u64 = 200;

/// Members in a ring ask their right neighbour until a line comes on standard input.
pub fn handlers(vm: &Task, count: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let library = vm.context()?;
    let spawn = me(&["handlers-member"])?.count(count as u32).on_each(hosts);
    let members = vm.spawn(&spawn.in_context(library.context_id()))?;
    for (index, member) in members.iter().enumerate() {
        let right = members[(index + 1) % members.len()];
        let left = members[(index + members.len() - 1) % members.len()];
        vm.send(*member, GO, &(left.0, right.0))?;
    }
    std::io::stdin().read_line(&mut String::new())?;
    vm.multicast(&members, STOP, &())?;
    let mut questions = 0;
    for _ in &members {
        questions += vm.recv(&members, &[RESULT])?.value::<u64>()?;
    }
    ensure!(questions > 0, "no question was answered");
    println!("handlers: {questions} messages, none lost, doubled or out of order");
    Ok(())
}

pub fn handlers_member(vm: &Task) -> anyhow::Result<()> {
    let program = vm.in_context(ContextId::PROGRAM);
    ensure!(
        vm.context_id() != program.context_id(),
        "the member begins in the context of its library"
    );
    let parent = vm.parent().context("a member has a parent")?;
    let (left, right): (u64, u64) = program.recv(parent, GO)?.value()?;
    let (left, right) = (Tid(left), Tid(right));
    let handled = Arc::new(AtomicU64::new(0));
    let next = Arc::clone(&handled);
    vm.add_handler(left, NUMBERED, move |vm: &Task, question: Message| {
        let number: u64 = question.value().expect("a number");
        assert_eq!(number, next.load(SeqCst), "questions of {left} in order");
        vm.send(left, ANSWER, &(2 * number)).expect("it is sent");
        next.store(number + 1, SeqCst);
    })?;
    let mut asked = 0u64;
    let mut decoys = 0u64;
    let mut last_context = vm.context_id();
    while program.probe(parent, STOP)?.is_none() {
        vm.send(right, NUMBERED, &asked)?;
        // In the other context, no handler gets this.
        program.send_slice(right, NUMBERED, &[asked, asked])?;
        let answer: u64 = vm.recv(&[right, parent], &[ANSWER, RESULT])?.value()?;
        ensure!(answer == 2 * asked, "{answer} is no answer to {asked}");
        asked += 1;
        decoys += drain_decoys(&program, left, decoys)?;
        if asked.is_multiple_of(CONTEXT_EVERY) {
            let context = vm.context()?.context_id();
            ensure!(
                context > last_context,
                "{context} comes after {last_context}"
            );
            last_context = context;
        }
    }
    vm.send(right, DONE, &asked)?;
    // The neighbour's last questions are answered within this call.
    let asked_by_left: u64 = vm.recv(left, DONE)?.value()?;
    ensure!(
        handled.load(SeqCst) == asked_by_left,
        "a question of {left} was lost"
    );
    while decoys < asked_by_left {
        decoys += drain_decoys(&program, left, decoys)?;
    }
    program.send(parent, RESULT, &asked)?;
    Ok(())
}

/// Receives what the left neighbour has sent in the context of the program; the number of such messages.
fn drain_decoys(program: &Task, left: Tid, first: u64) -> anyhow::Result<u64> {
    let mut count = 0;
    let is_decoy = |found: &Envelope| found.len == 16;
    let none = Some(std::time::Duration::ZERO);
    while let Some(decoy) = program.recv_if(left, NUMBERED, none, is_decoy)? {
        let number = first + count;
        ensure!(
            decoy.slice::<u64>()?[..] == [number, number],
            "message {number} of {left}"
        );
        count += 1;
    }
    Ok(count)
}
