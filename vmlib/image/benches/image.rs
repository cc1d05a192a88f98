//! Measures saving and restoring processes, compared with what the system takes to move the same
//! bytes. Prints a table of rows with their goals, or JSON. The exit status is 1 when a goal is
//! missed.
//!
//! Each row has a subject: this program in a process of its own, which fills memory and saves
//! itself. Measurements of the library and of the raw system take turns, after one turn of each
//! that does not count, because memory that was used recently is cheaper than memory that the host
//! must find.

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use serde::Serialize;
use std::{
    env,
    fs::{self, File},
    hint::black_box,
    io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    ptr,
    time::{Duration, Instant},
};
use vm_image::{Options, RestoreOptions, Saved, Section};

/// Bytes of one system call in raw measurements.
const PIECE: usize = 1 << 20;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Whether a higher or a lower figure is better.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// The result of a row.
#[derive(Debug, Clone, Serialize)]
struct Row {
    name: &'static str,
    unit: &'static str,
    ours: f64,
    raw: Option<f64>,
    ratio: f64,
    goal: String,
    ok: bool,
}

impl Row {
    fn new(name: &'static str, unit: &'static str, figures: (f64, Option<f64>), goal: Goal) -> Row {
        let (ours, raw) = figures;
        let ratio = raw.map_or(ours, |raw| ours / raw);
        let (goal, ok) = match goal {
            Goal::AtLeast(least) => (format!(">= {least}"), ratio >= least),
            Goal::AtMost(most) => (format!("<= {most}"), ratio <= most),
        };
        Row {
            name,
            unit,
            ours,
            raw,
            ratio,
            goal,
            ok,
        }
    }
}

/// Measure how processes are saved and restored
#[derive(Debug, Parser)]
struct Arguments {
    /// Memory of the process. MiB
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Turns of each way in a row; more are steadier
    #[arg(long, default_value_t = 11)]
    turns: usize,
    /// Only rows whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Print one line of JSON instead of a table
    #[arg(long)]
    json: bool,
    /// An argument that cargo gives every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<ExitCode> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Some(("subject", rest)) = words.split_first().map(|(first, rest)| (&first[..], rest)) {
        subject_main(rest)?;
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse();
    Ok(ExitCode::from(u8::from(!run(&arguments)?)))
}

type Measure = fn(&Bench, &'static str) -> Result<Row>;

/// Measures the rows. Returns whether all goals are met.
fn run(arguments: &Arguments) -> Result<bool> {
    let bench = Bench {
        turns: arguments.turns,
        mib: arguments.mib,
    };
    let all: [(&'static str, Measure); 8] = [
        ("save to /dev/shm", Bench::save),
        ("restore from /dev/shm", Bench::restore),
        ("save and restore over a socket", Bench::socket),
        ("freeze of a forked save", Bench::forked),
        ("freeze of a forked save, 20 MB, 8 threads", Bench::small),
        ("sparse memory, bytes beyond its pages", Bench::sparse_bytes),
        ("sparse memory, time to save", Bench::sparse_time),
        ("a section's guard", Bench::guard),
    ];
    let mut rows = Vec::new();
    for (name, measure) in all {
        if name.contains(&arguments.only) {
            eprintln!("{name} ...");
            rows.push(measure(&bench, name).context(name)?);
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&rows)?);
    } else {
        show(&rows);
    }
    Ok(rows.iter().all(|row| row.ok))
}

fn show(rows: &[Row]) {
    println!(
        "{:44} {:>9} {:>9}      {:>7}  goal",
        "row", "ours", "raw", "ratio"
    );
    for row in rows {
        let raw = row.raw.map_or("-".to_owned(), |raw| format!("{raw:.3}"));
        let missed = if row.ok { "" } else { "missed" };
        println!(
            "{:44} {:9.3} {raw:>9} {:4} {:7.2}  {} {missed}",
            row.name, row.ours, row.unit, row.ratio, row.goal
        );
    }
}

/// The median; of an even number of values, the lower of the two middle ones.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

struct Bench {
    turns: usize,
    mib: usize,
}

impl Bench {
    fn bytes(&self) -> f64 {
        (self.mib << 20) as f64
    }

    /// The figures that a subject prints, one a line.
    fn subject(&self, role: &str) -> Result<Vec<Vec<f64>>> {
        let mut child = subject(&[role, &self.mib.to_string(), &self.turns.to_string()])?;
        let mut figures = Vec::new();
        let output = child.0.stdout.take().context("its output")?;
        for line in BufReader::new(output).lines() {
            let line = line?;
            let words: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
            figures.push(words.with_context(|| format!("the subject says: {line}"))?);
        }
        let status = child.0.wait()?;
        ensure!(status.success(), "the subject ended with {status}");
        Ok(figures)
    }

    fn save(&self, name: &'static str) -> Result<Row> {
        let turns = self.subject("save")?;
        let rate = |which: usize| {
            let seconds = median(turns.iter().map(|turn| turn[which]).collect());
            self.bytes() / seconds / 1e9
        };
        let figures = (rate(0), Some(rate(1)));
        Ok(Row::new(name, "GB/s", figures, Goal::AtLeast(0.92)))
    }

    fn restore(&self, name: &'static str) -> Result<Row> {
        let image = Scratch::new("image");
        let plain = Scratch::new("plain");
        let path = image.0.to_str().context("a path")?;
        let status = subject(&["image", &self.mib.to_string(), path])?.0.wait()?;
        ensure!(status.success(), "the subject ended with {status}");
        write_plain(&plain.0, &filled(self.mib))?;
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..=self.turns {
            let began = Instant::now();
            let mut child = subject(&["restore", path])?;
            wait_back(&mut child)?;
            ours.push(began.elapsed().as_secs_f64());
            drop(child);
            raw.push(read_plain(&plain.0, self.mib)?);
        }
        let rate = |times: Vec<f64>| self.bytes() / median(times[1..].to_vec()) / 1e9;
        let figures = (rate(ours), Some(rate(raw)));
        Ok(Row::new(name, "GB/s", figures, Goal::AtLeast(0.9)))
    }

    fn socket(&self, name: &'static str) -> Result<Row> {
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..=self.turns {
            for (role, times) in [("send", &mut ours), ("send-plain", &mut raw)] {
                let (near, far) = UnixStream::pair()?;
                let mut sender = command(&[role, &self.mib.to_string()])?;
                sender.stdin(OwnedFd::from(near));
                let mut sender = Reaped(sender.spawn()?);
                // The subject is ready when it has filled its memory.
                wait_back(&mut sender)?;
                let receive = if role == "send" {
                    "restore"
                } else {
                    "receive-plain"
                };
                let mut receiver = command(&[receive, "-", &self.mib.to_string()])?;
                receiver.stdin(OwnedFd::from(far));
                let began = Instant::now();
                let mut receiver = Reaped(receiver.spawn()?);
                let go = sender.0.id() as libc::pid_t;
                // SAFETY: the process is our child, which waits for the signal.
                unsafe { libc::kill(go, libc::SIGUSR1) };
                wait_back(&mut receiver)?;
                times.push(began.elapsed().as_secs_f64());
            }
        }
        let rate = |times: Vec<f64>| self.bytes() / median(times[1..].to_vec()) / 1e9;
        let figures = (rate(ours), Some(rate(raw)));
        Ok(Row::new(name, "GB/s", figures, Goal::AtLeast(0.6)))
    }

    fn forked(&self, name: &'static str) -> Result<Row> {
        let turns = self.subject("fork")?;
        let time = |which: usize| median(turns.iter().map(|turn| 1e3 * turn[which]).collect());
        let figures = (time(0), Some(time(1)));
        Ok(Row::new(name, "ms", figures, Goal::AtMost(1.3)))
    }

    fn small(&self, name: &'static str) -> Result<Row> {
        let turns = self.subject("small")?;
        let time = median(turns.iter().map(|turn| 1e3 * turn[0]).collect());
        Ok(Row::new(name, "ms", (time, None), Goal::AtMost(3.0)))
    }

    fn sparse_bytes(&self, name: &'static str) -> Result<Row> {
        let turns = self.subject("sparse")?;
        let bytes = median(turns.iter().map(|turn| turn[1]).collect());
        let beyond = (bytes - 1000.0 * PAGE as f64) / 1e6;
        Ok(Row::new(name, "MB", (beyond, None), Goal::AtMost(5.0)))
    }

    fn sparse_time(&self, name: &'static str) -> Result<Row> {
        let turns = self.subject("sparse")?;
        let time = median(turns.iter().map(|turn| 1e3 * turn[0]).collect());
        Ok(Row::new(name, "ms", (time, None), Goal::AtMost(20.0)))
    }

    fn guard(&self, name: &'static str) -> Result<Row> {
        const ROUNDS: u32 = 10_000_000;
        let time = |work: fn(u32)| {
            let began = Instant::now();
            (0..ROUNDS).for_each(work);
            began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..=self.turns {
            with.push(time(|round| {
                let _section = Section::enter();
                black_box(round);
            }));
            without.push(time(|round| {
                black_box(round);
            }));
        }
        let cost = median(with) - median(without);
        Ok(Row::new(name, "ns", (cost, None), Goal::AtMost(5.0)))
    }
}

/// A child process that is killed when the value is dropped.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file that is removed when the value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("vmbench-{}-{name}", std::process::id());
        Scratch(Path::new("/dev/shm").join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The file may not exist.
        let _ = fs::remove_file(&self.0);
    }
}

fn command(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("subject").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: one system call. A descriptor inherited from the starter of this program could not be
    // saved.
    unsafe {
        command.pre_exec(|| {
            libc::syscall(
                libc::SYS_close_range,
                3,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            Ok(())
        });
    }
    Ok(command)
}

fn subject(arguments: &[&str]) -> Result<Reaped> {
    Ok(Reaped(command(arguments)?.spawn()?))
}

/// Waits until a process reports that it is ready.
fn wait_back(child: &mut Reaped) -> Result<()> {
    let mut byte = [0];
    let output = child.0.stdout.as_mut().context("its output")?;
    output
        .read_exact(&mut byte)
        .context("the process ended too early")
}

/// Memory without a zero word.
fn filled(mib: usize) -> Vec<u64> {
    (0..(mib << 17) as u64)
        .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
        .collect()
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn write_plain(path: &Path, words: &[u64]) -> Result<f64> {
    let mut file = File::create(path)?;
    let began = Instant::now();
    for piece in bytes(words).chunks(PIECE) {
        file.write_all(piece)?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// New memory that may use large pages.
fn fresh(mib: usize) -> Result<&'static mut [u8]> {
    let len = mib << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory, which no other code knows.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0);
        ensure!(start != libc::MAP_FAILED, "there is no memory");
        libc::madvise(start, len, libc::MADV_HUGEPAGE);
        Ok(std::slice::from_raw_parts_mut(start.cast(), len))
    }
}

fn release(memory: &'static mut [u8]) {
    // SAFETY: no code uses the memory any more.
    unsafe { libc::munmap(memory.as_mut_ptr().cast(), memory.len()) };
}

fn read_plain(path: &Path, mib: usize) -> Result<f64> {
    let mut file = File::open(path)?;
    let began = Instant::now();
    let memory = fresh(mib)?;
    for piece in memory.chunks_mut(PIECE) {
        file.read_exact(piece)?;
    }
    let time = began.elapsed().as_secs_f64();
    release(memory);
    Ok(time)
}

/// Runs as a subject.
fn subject_main(arguments: &[String]) -> Result<()> {
    let number = |index: usize| -> Result<usize> {
        Ok(arguments.get(index).context("too few arguments")?.parse()?)
    };
    match arguments.first().map(String::as_str) {
        Some("save") => subject_save(number(1)?, number(2)?),
        Some("image") => subject_image(number(1)?, Path::new(&arguments[2])),
        Some("restore") => subject_restore(&arguments[1]),
        Some("send") => subject_send(number(1)?, true),
        Some("send-plain") => subject_send(number(1)?, false),
        Some("receive-plain") => subject_receive(number(2)?),
        Some("fork") => subject_fork(number(1)?, number(2)?),
        Some("small") => subject_small(number(2)?),
        Some("sparse") => subject_sparse(number(2)?),
        other => bail!("no subject does {other:?}"),
    }
}

fn save_to(file: &File, forked: bool) -> Result<Duration> {
    let options = Options {
        forked,
        ..Options::default()
    };
    match vm_image::save(file.as_fd(), options)? {
        Saved::Whole { freeze, .. } => Ok(freeze),
        Saved::Underway(writer) => {
            let freeze = writer.freeze();
            writer.finish()?;
            Ok(freeze)
        }
        Saved::Restored => bail!("nothing was to restore it"),
    }
}

fn subject_save(mib: usize, turns: usize) -> Result<()> {
    let words = filled(mib);
    let (image, plain) = (Scratch::new("save"), Scratch::new("plain"));
    for turn in 0..=turns {
        let file = File::create(&image.0)?;
        let began = Instant::now();
        save_to(&file, false)?;
        let ours = began.elapsed().as_secs_f64();
        fs::remove_file(&image.0)?;
        drop(file);
        let raw = write_plain(&plain.0, &words)?;
        fs::remove_file(&plain.0)?;
        if turn > 0 {
            println!("{ours} {raw}");
        }
    }
    black_box(&words);
    Ok(())
}

fn say(byte: u8) {
    // A process that waits for the byte sees the end of the file otherwise.
    let _ = std::io::stdout().write_all(&[byte, b'\n']);
}

fn subject_image(mib: usize, path: &Path) -> Result<()> {
    let words = filled(mib);
    let file = File::create(path)?;
    if matches!(
        vm_image::save(file.as_fd(), Options::default())?,
        Saved::Restored
    ) {
        say(b'b');
    }
    black_box(&words);
    // Freeing the memory would take time that is not to be measured.
    std::process::exit(0)
}

fn subject_restore(path: &str) -> Result<()> {
    let stdin = std::io::stdin();
    let error = if path == "-" {
        // Another file becomes the standard input.
        let image = stdin.as_fd().try_clone_to_owned()?;
        vm_image::restore(image.as_fd(), RestoreOptions::default())
    } else {
        vm_image::restore(File::open(path)?.as_fd(), RestoreOptions::default())
    };
    match error {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}

fn subject_send(mib: usize, ours: bool) -> Result<()> {
    let words = filled(mib);
    // SAFETY: standard input is a socket, which no other code here uses.
    let mut socket = unsafe { UnixStream::from_raw_fd(libc::dup(0)) };
    let null = File::open("/dev/null")?;
    // SAFETY: two system calls: they block the signal to be waited for, and set an input that can
    // be saved.
    let signals = unsafe {
        libc::dup2(null.as_raw_fd(), 0);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut());
        set
    };
    drop(null);
    say(b'r');
    let mut number = 0;
    // SAFETY: the call waits.
    unsafe { libc::sigwait(&signals, &mut number) };
    if ours {
        match vm_image::save(socket.as_fd(), Options::default())? {
            Saved::Restored => say(b'b'),
            _ => drop(socket),
        }
    } else {
        for piece in bytes(&words).chunks(PIECE) {
            socket.write_all(piece)?;
        }
    }
    black_box(&words);
    std::process::exit(0)
}

fn subject_receive(mib: usize) -> Result<()> {
    let memory = fresh(mib)?;
    let mut stdin = std::io::stdin().lock();
    for piece in memory.chunks_mut(PIECE) {
        stdin.read_exact(piece)?;
    }
    say(b'b');
    std::process::exit(0)
}

fn subject_fork(mib: usize, turns: usize) -> Result<()> {
    let len = mib << 20;
    let memory = fresh(mib)?;
    // SAFETY: the memory is the program's own; the advice concerns the size of pages.
    unsafe { libc::madvise(memory.as_mut_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    let image = Scratch::new("fork");
    for turn in 0..=turns {
        let mut file = File::create(&image.0)?;
        let ours = save_to(&file, true)?.as_secs_f64();
        file.rewind()?;
        fs::remove_file(&image.0)?;
        drop(file);
        let began = Instant::now();
        // SAFETY: the child ends at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(0) };
        }
        let raw = began.elapsed().as_secs_f64();
        // SAFETY: the process is our child.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if turn > 0 {
            println!("{ours} {raw}");
        }
    }
    black_box(memory);
    Ok(())
}

fn subject_small(turns: usize) -> Result<()> {
    let words = filled(20);
    for _ in 0..7 {
        std::thread::spawn(|| {
            loop {
                black_box((0..1000u64).sum::<u64>());
            }
        });
    }
    let image = Scratch::new("small");
    for turn in 0..=turns {
        let file = File::create(&image.0)?;
        let freeze = save_to(&file, true)?.as_secs_f64();
        fs::remove_file(&image.0)?;
        if turn > 0 {
            println!("{freeze}");
        }
    }
    black_box(&words);
    std::process::exit(0)
}

fn subject_sparse(turns: usize) -> Result<()> {
    const LEN: usize = 64 << 30;
    let memory = fresh(LEN >> 20)?;
    // SAFETY: the memory is the program's own; the advice concerns the size of pages.
    unsafe { libc::madvise(memory.as_mut_ptr().cast(), LEN, libc::MADV_NOHUGEPAGE) };
    for page in 0..1000 {
        memory[page * (LEN / 1000) / PAGE * PAGE] = 1;
    }
    let image = Scratch::new("sparse");
    for turn in 0..=turns {
        let file = File::create(&image.0)?;
        let freeze = save_to(&file, false)?.as_secs_f64();
        let bytes = file.metadata()?.len();
        fs::remove_file(&image.0)?;
        if turn > 0 {
            println!("{freeze} {bytes}");
        }
    }
    black_box(memory);
    Ok(())
}
