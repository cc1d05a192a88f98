//! Saves in pre-copy rounds of a program that maps, unmaps, writes, moves, protects and discards
//! memory at random. The restored process compares every page with its expected content.

#[path = "zoo/run.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod run;

use run::{User, start};
use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Once,
};
use vm_image::{
    format::{CPU, Cpu, Plain as _, Prefix, Section},
    inspect::Summary,
};

/// The folder in which the program is built.
const ALONE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/alone");

/// Builds the program once, and returns its path.
fn program() -> PathBuf {
    static BUILD: Once = Once::new();
    BUILD.call_once(|| {
        let cargo = std::env::var("CARGO").expect("cargo runs the tests");
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", "vm-image"])
            .args(["--example", "rounds"])
            // In the workspace's folder the library would be replaced by one that was compiled with other
            // features of its dependencies, and other crates of this test run could not be linked.
            .args(["--target-dir", ALONE])
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the program is built");
    });
    Path::new(ALONE).join("debug/examples/rounds")
}

fn command(arguments: &[&str], image: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg(arguments[0]).arg(image).args(&arguments[1..]);
    command
}

/// The output of a process, its errors, and its status if it failed.
fn output(mut command: Command, user: User) -> String {
    let ended = start(&mut command, user).end();
    let status = match ended.status.success() {
        true => String::new(),
        false => format!("{}\n", ended.status),
    };
    ended.output + &ended.errors + &status
}

/// The users as which the program can run.
fn users() -> &'static [User] {
    // SAFETY: the call only reads.
    match unsafe { libc::geteuid() } {
        0 if run::is_reachable(&program()) => &[User::Same, User::Ordinary],
        _ => &[User::Same],
    }
}

/// Saves and restores the program once for each seed, alternating between the users.
fn check(seeds: u32, words: &str, rounds: &str) {
    for (seed, &user) in (0..seeds).zip(users().iter().cycle()) {
        let folder = run::open_folder();
        let image = folder.path().join("image");
        let seed = seed.to_string();
        let mut save = vec!["save", &seed];
        save.extend(words.split_whitespace());
        let what = format!("{words}, seed {seed}, {user:?}");
        let here = format!("here: 0 differences, {rounds} rounds\n");
        assert_eq!(output(command(&save, &image), user), here, "{what}");
        let file = fs::File::open(&image).expect("an image");
        Summary::read(file).unwrap_or_else(|error| panic!("{what}: {error}"));
        if !words.contains("chain") {
            let back = format!("back: 0 differences, {rounds} rounds\n");
            assert_eq!(output(command(&["restore"], &image), user), back, "{what}");
            continue;
        }
        let second = image.with_extension("2");
        let third = image.with_extension("3");
        let back = format!("back: 0 differences, {rounds} rounds\n");
        for (image, wanted) in [(image, &here), (second, &here), (third, &back)] {
            let found = output(command(&["restore"], &image), user);
            assert_eq!(&found, wanted, "{what}, {}", image.display());
        }
    }
}

#[test]
fn every_page_has_its_content_of_the_freeze() {
    check(4, "", "5");
}

#[test]
fn a_copy_can_write_the_last_round() {
    check(4, "forked", "5");
}

#[test]
fn no_thread_of_the_program_has_to_wait_for_the_rounds() {
    check(6, "background", "5");
}

#[test]
fn a_save_that_is_finished_late_has_another_round() {
    check(2, "background late", "6");
}

#[test]
fn children_do_not_disturb_the_rounds() {
    check(4, "background children", "5");
}

#[test]
fn a_save_that_was_given_up_does_not_prevent_the_next_one() {
    check(2, "background dropped", "5");
}

#[test]
fn a_restored_process_can_be_saved_in_rounds() {
    check(2, "background chain children forked", "5");
}

#[test]
fn without_rounds_every_page_is_saved_too() {
    check(4, "plain", "0");
}

#[test]
fn an_executed_program_finds_no_rest_of_the_save() {
    let folder = run::open_folder();
    let found = output(command(&["exec"], &folder.path().join("image")), User::Same);
    assert_eq!(found, "itself 0 1 2\n");
}

#[test]
fn a_program_can_end_during_the_rounds() {
    let folder = run::open_folder();
    let found = output(command(&["end"], &folder.path().join("image")), User::Same);
    assert_eq!(found, "ended\n");
}

#[test]
fn a_child_of_a_process_that_is_being_saved_can_be_saved() {
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let found = output(command(&["child"], &image), User::Same);
    let refused = "the save was begun by the process that this one is a child of";
    let wanted = format!(
        "child: this process cannot be saved: {refused}\nchild: saved\nsaved in 2 rounds\n"
    );
    assert_eq!(found, wanted);
    let found = output(
        command(&["restore"], &image.with_extension("child")),
        User::Same,
    );
    assert_eq!(found, "child: back\n");
    let found = output(command(&["restore"], &image), User::Same);
    assert_eq!(found, "back\n");
}

#[test]
fn direct_reads_put_all_memory_into_the_last_round() {
    check(2, "direct", "5");
}

#[test]
fn a_missing_processor_feature_is_refused_before_memory_is_read() {
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let saved = output(command(&["save", "1"], &image), User::Same);
    assert!(saved.starts_with("here: 0"), "{saved}");
    let mut bytes = fs::read(&image).expect("the image");
    let start = Prefix::LEN + Section::LEN;
    bytes.truncate(start + Cpu::LEN);
    let mut cpu = Cpu::from_prefix(&bytes[start..]).expect("the processor");
    cpu.leaf_7_ebx = !0;
    cpu.leaf_7_ecx = !0;
    let head = Section::new(CPU, 0, 0, cpu.bytes());
    bytes[Prefix::LEN..start].copy_from_slice(head.bytes());
    bytes[start..].copy_from_slice(cpu.bytes());
    fs::write(&image, bytes).expect("it can be changed");
    let found = output(command(&["restore"], &image), User::Same);
    assert!(found.contains("this host's processor lacks"), "{found}");
}

const PROCESS_VM_READV: u32 = 310;
const USERFAULTFD: u32 = 323;
const IOCTL: u32 = 16;
const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// Has the kernel refuse a system call, or only those calls of it whose second argument is
/// `argument`.
fn refuse(command: &mut Command, call: u32, argument: Option<u32>, error: i32) {
    // Instructions of a seccomp filter: load, compare and skip, return.
    let load = |at| libc::sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: at,
    };
    let compare = |jf, k| libc::sock_filter {
        code: 0x15,
        jt: 0,
        jf,
        k,
    };
    let end = |k| libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    };
    let (compares_argument, value) = match argument {
        Some(value) => (2, value),
        None => (0, 0),
    };
    let mut filter = vec![load(0), compare(compares_argument + 1, call)];
    if argument.is_some() {
        filter.extend([load(24), compare(1, value)]);
    }
    filter.extend([end(0x0005_0000 | error as u32), end(0x7fff_0000)]);
    // SAFETY: bare system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_ptr().cast_mut(),
            };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

#[test]
fn without_a_write_watch_memory_is_saved_without_rounds() {
    for (call, argument, error) in [
        (USERFAULTFD, None, libc::ENOSYS),
        (USERFAULTFD, None, libc::EPERM),
        (IOCTL, Some(PAGEMAP_SCAN), libc::ENOTTY),
        (IOCTL, Some(PAGEMAP_SCAN), libc::EPERM),
        (PROCESS_VM_READV, None, libc::EPERM),
    ] {
        for words in ["", "background", "background forked"] {
            let folder = run::open_folder();
            let image = folder.path().join("image");
            let mut save = vec!["save", "1"];
            save.extend(words.split_whitespace());
            let mut save = command(&save, &image);
            refuse(&mut save, call, argument, error);
            let what = format!("{words}, call {call}, error {error}");
            let here = "here: 0 differences, 0 rounds\n";
            assert_eq!(output(save, User::Same), here, "{what}");
            let back = output(command(&["restore"], &image), User::Same);
            assert_eq!(back, "back: 0 differences, 0 rounds\n", "{what}");
        }
    }
}
