//! Tasks that write and read files, and make checkpoints of their application.

use super::shared::{GO, READY, RESULT, STOP, host_name, me};
use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::FileExt as _,
};
use vmlib::{ANY, Checkpointed, Task};

/// Has `mib` MiB of memory. Changes each hundredth page when a line comes on standard input. At the
/// end of the input, checks that all of the memory has its expected content.
pub fn ledger(mib: u64) -> anyhow::Result<()> {
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

/// Has `mib` MiB of memory, and writes the number of the round to all of it, round after round,
/// until there is input.
pub fn rewriter(mib: u64) -> anyhow::Result<()> {
    // The words are not zero: zero pages would be allocated only at the first write, and the task
    // would grow after this line.
    let mut memory = vec![u64::MAX; (mib as usize) << 17];
    println!("it goes");
    let at_once = Timespec::default();
    for round in 1.. {
        memory.fill(round);
        let stdin = std::io::stdin();
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        if poll(&mut polled, Some(&at_once))? > 0 {
            ensure!(memory.iter().all(|word| *word == round), "{round}");
            break;
        }
    }
    println!("all of it is of one round");
    Ok(())
}

/// Starts a task on `host`. Makes a checkpoint of the application for each line on standard input
/// and for the end of the input, and reports the result of each.
pub fn saver(vm: &Task, host: &str) -> anyhow::Result<()> {
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

/// Is saved with the other tasks, until it is told to end.
pub fn saved(vm: &Task) -> anyhow::Result<()> {
    vm.recv(vm.parent().context("a parent")?, STOP)?;
    Ok(())
}

/// Has a task on `host` write each line of standard input into its diary in `folder`. Reports the
/// host that wrote the line, and the number that the task has read from a book of `bytes` bytes.
pub fn diary(vm: &Task, host: &str, folder: &str, bytes: u64) -> anyhow::Result<()> {
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

/// Creates a book, opened for reading, and a diary, opened for appending. Writes each received line
/// to the diary, and then reads the next number from the book.
pub fn diarist(vm: &Task, folder: &str, bytes: u64) -> anyhow::Result<()> {
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

/// Keeps books in `folder`: makes as many steps as each line of standard input says, then more up
/// to a hundred. A task on the second host also has one of the files open for writing.
pub fn bookkeeper(vm: &Task, folder: &str) -> anyhow::Result<()> {
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

pub fn reader(vm: &Task, folder: &str) -> anyhow::Result<()> {
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

/// A log that grows, a table that is written at different offsets, and a board that is rewritten.
/// Each step begins with a check that the files are as the step before left them.
struct Books {
    steps: u64,
    log: File,
    log_len: u64,
    table: File,
    /// The content of the table: more bytes than a move carries with an open file.
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

    /// The content of the board after `steps` steps; its length grows and shrinks.
    fn board(steps: u64) -> String {
        format!("{steps}: {}", "#".repeat(steps as usize % 7))
    }
}
