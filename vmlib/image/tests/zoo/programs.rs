//! Unmodified programs of Debian, each saved, ended and restored three times. Their output and
//! files must be those of a run without saves.
//!
//! If a program is not installed, its test prints a note. `.ci/run` installs them all.

use crate::run::{self, Running, User, restore, start};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The time limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);
/// A process is saved whenever it has used this fraction of its whole processor time.
const SHARE: u32 = 6;
/// The unit of times in /proc, USER_HZ, which is the same on every Linux. Milliseconds.
const TICK_MS: u32 = 10;

/// A file of the zoo.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo").join(name)
}

/// A program that runs in a folder; `None`, with a note, if it is not installed.
fn program(name: &str, folder: &Path) -> Option<Command> {
    let path = std::env::var_os("PATH")?;
    let file = std::env::split_paths(&path).map(|folder| folder.join(name));
    let Some(file) = file.into_iter().find(|file| file.is_file()) else {
        println!("note: {name} is not installed");
        return None;
    };
    let mut command = Command::new(file);
    command.current_dir(folder);
    Some(command)
}

/// The processor time of a process, which may have ended but not been waited for. Milliseconds.
fn computed(process: &Running) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it is a child");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let times = fields.split(' ').skip(11).take(2);
    times
        .map(|ticks| ticks.parse::<u32>().expect("a number") * TICK_MS)
        .sum()
}

/// Waits until a condition holds.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "waited {LIMIT:?} in vain: {what}");
        // The interval of the checks, not a synchronisation.
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// Whether a process has a handler for the signal that requests a save, so that its program runs.
fn is_there(process: &Running) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).expect("a child");
    let mut lines = status.lines();
    let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    caught.is_some_and(|set| set & 1 << (vm_image::TRIGGER - 1) != 0)
}

/// Runs a program without saves in one folder, and with three saves in another. Output and files,
/// as `left` reports them for a folder, must be the same.
fn goes_on_three_times(make: impl Fn(&Path) -> Option<Command>, left: impl Fn(&Path) -> String) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut command) = make(folder.path()) else {
        return;
    };
    let mut process = start(&mut command, User::Same);
    wait_until("the end of the program", || process.has_said_all());
    let all = computed(&process);
    let ended = process.end();
    assert!(ended.status.success(), "{ended:?}");
    let expected = (ended.output, left(folder.path()));

    let folder = tempfile::tempdir().expect("a folder");
    let images = tempfile::tempdir().expect("a folder");
    let (image, last) = (images.path().join("image"), images.path().join("last"));
    let mut command = make(folder.path()).expect("it was there before");
    command
        .env("LD_PRELOAD", run::built().join("libvm_image.so"))
        .env("VM_IMAGE_FILE", &image)
        .env("VM_IMAGE_MODE", "exit,carry");
    let mut said = String::new();
    for number in 1..=3 {
        let mut process = start(&mut command, User::Same);
        wait_until("the program is there", || is_there(&process));
        let before = computed(&process);
        wait_until("it has computed", || {
            let part = computed(&process) - before;
            // A program that has ended computes no more, and gets no signal.
            part >= all / SHARE || process.has_said_all()
        });
        process.signal(vm_image::TRIGGER);
        let ended = process.end();
        let why = fs::read_to_string(images.path().join("image.error"));
        assert!(
            image.exists(),
            "no image {number} of a program that computes for {all} ms: {why:?}, {ended:?}. If the \
             program ended by itself, it computes for too short a time: before a save stops it, \
             the checksums of its files are computed"
        );
        assert!(ended.status.success(), "{number}: {ended:?}");
        said.push_str(&ended.output);
        fs::rename(&image, &last).expect("the image is whole");
        command = restore(&last);
    }
    let ended = start(&mut command, User::Same).end();
    assert!(ended.status.success(), "{ended:?}");
    said.push_str(&ended.output);
    assert_eq!((said, left(folder.path())), expected);
}

fn nothing(_: &Path) -> String {
    String::new()
}

/// A virtual machine with threads of its own for compilation and garbage collection, and with
/// memory that it manages itself.
#[test]
fn java() {
    let make = |folder: &Path| {
        let mut compiler = program("javac", folder)?;
        let compiled = compiler.arg("-d").arg(folder).arg(source("Words.java"));
        let compiled = compiled.stdin(Stdio::null()).status();
        assert!(compiled.expect("the compiler runs").success());
        let mut java = program("java", folder)?;
        // The virtual machine's file of counters has the number of the first process in its name.
        // The next virtual machine that starts would remove the file, because that process has
        // ended.
        java.args(["-XX:-UsePerfData", "-XX:+UseSerialGC", "-Xmx64m", "Words"]);
        Some(java)
    };
    goes_on_three_times(make, nothing);
}

/// A database in a file, with its journal and its locks.
#[test]
fn sqlite() {
    let make = |folder: &Path| {
        let mut sqlite = program("sqlite3", folder)?;
        sqlite
            .arg("-init")
            .arg(source("rows.sql"))
            .args(["rows.db", ".quit"]);
        Some(sqlite)
    };
    let left = |folder: &Path| {
        let mut sqlite = program("sqlite3", folder).expect("it was there before");
        let rows = sqlite.args(["rows.db", "SELECT sum(number * value), max(word) FROM rows"]);
        let rows = rows.output().expect("it runs");
        String::from_utf8(rows.stdout).expect("text")
    };
    goes_on_three_times(make, left);
}

/// Files that several threads read, write and merge.
#[test]
fn samtools() {
    let make = |folder: &Path| {
        let mut samtools = program("samtools", folder)?;
        fs::write(folder.join("reads.sam"), reads()).expect("room");
        samtools.args(["sort", "-m", "4M", "-@", "2", "-O", "sam", "--no-PG"]);
        samtools.args(["-o", "sorted.sam", "reads.sam"]);
        Some(samtools)
    };
    let left =
        |folder: &Path| fs::read_to_string(folder.join("sorted.sam")).expect("it was written");
    goes_on_three_times(make, left);
}

/// Short reads of one sequence, in any order.
fn reads() -> String {
    let mut text = "@SQ\tSN:one\tLN:1000000\n".to_owned();
    let mut state = 1u64;
    for number in 0..120_000 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let bases: String = (0..29)
            .map(|at| b"ACGT"[(state >> at) as usize & 3] as char)
            .collect();
        let place = (state >> 33) % 900_000 + 1;
        let quality = "I".repeat(bases.len());
        text += &format!("r{number}\t0\tone\t{place}\t60\t29M\t*\t0\t0\t{bases}\t{quality}\n");
    }
    text
}

/// An interpreter with regular expressions.
#[test]
fn perl() {
    let make = |folder: &Path| {
        let mut perl = program("perl", folder)?;
        perl.arg(source("words.pl")).env("PERL_HASH_SEED", "1");
        Some(perl)
    };
    goes_on_three_times(make, nothing);
}

/// An interpreter with large tables.
#[test]
fn gawk() {
    let make = |folder: &Path| {
        let mut gawk = program("gawk", folder)?;
        gawk.arg("-f").arg(source("sums.awk"));
        Some(gawk)
    };
    goes_on_three_times(make, nothing);
}
