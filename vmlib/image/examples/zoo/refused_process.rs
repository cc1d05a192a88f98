//! States of a process that cannot be restored: the save names them, and no thread is stopped.

use crate::{
    memory::{PAGE, get, guard, put},
    point::{refused, until},
};
use std::{
    fs,
    process::{Command, Stdio},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("refused_child", refused_child),
    ("refused_child_that_ended", refused_child_that_ended),
    ("refused_blocked_signal", refused_blocked_signal),
    ("refused_without_leader", refused_without_leader),
    ("refused_not_dumpable", refused_not_dumpable),
    ("refused_system_v_memory", refused_system_v_memory),
    ("refused_hidden_memory", refused_hidden_memory),
    (
        "refused_directory_that_is_gone",
        refused_directory_that_is_gone,
    ),
    ("refused_second_save", refused_second_save),
    ("refused_protection_keys", refused_protection_keys),
    ("refused_rights_of_a_thread", refused_rights_of_a_thread),
    (
        "refused_memory_in_the_restorers_place",
        refused_memory_in_the_restorers_place,
    ),
];

/// Content below guard pages in shared memory is visible again when the guard pages are removed,
/// but a save cannot read it (Linux 6.15).
fn refused_hidden_memory() {
    const LEN: usize = 16 * PAGE;
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    let memory = unsafe {
        let flags = rustix::mm::MapFlags::SHARED;
        let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(ptr::null_mut(), LEN, prot, flags)
    };
    let memory = memory.expect("memory can be had").cast();
    put(memory, 3, 7);
    if !guard(memory, 3..4, true) {
        return println!("note: this kernel has no guard pages in shared memory");
    }
    refused("guard pages hide a part of shared memory");
    assert!(guard(memory, 3..4, false) && get(memory, 3) == 7);
}

fn refused_child() {
    let mut command = Command::new("/bin/cat");
    // The child ends with this process, because its standard input ends then.
    let mut child = command.stdin(Stdio::piped()).spawn().expect("a child");
    // The child gets its name a little after the spawn has returned.
    let comm = format!("/proc/{}/comm", child.id());
    until("it is named", || {
        fs::read_to_string(&comm).is_ok_and(|name| name == "cat\n")
    });
    refused(&format!("it has a child process, {} (cat)", child.id()));
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

/// The child has ended, but was not waited for.
fn refused_child_that_ended() {
    let mut child = Command::new("/bin/true").spawn().expect("a child");
    let stat = format!("/proc/{}/stat", child.id());
    until("it ends", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
    });
    refused(&format!("it has a child process, {} (true)", child.id()));
    child.wait().expect("it ended");
}

/// A thread blocks all signals by a bare system call, which the interposed functions do not see.
fn refused_blocked_signal() {
    let step = Arc::new(AtomicU32::new(0));
    let thread = deaf(step.clone());
    until("it is blocked", || step.load(SeqCst) == 1);
    refused("(deaf, state");
    refused("blocks signal 62, which stops threads");
    step.store(2, SeqCst);
    thread.join().expect("it ran on");
}

/// Starts a thread that blocks all signals, sets the step to 1, and waits until it is 2.
fn deaf(step: Arc<AtomicU32>) -> thread::JoinHandle<()> {
    let work = move || {
        let (all, old) = ([!0u64], [0u64]);
        // SAFETY: the kernel reads one set and writes the other.
        unsafe {
            let old = old.as_ptr().cast_mut();
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                all.as_ptr(),
                old,
                8,
            )
        };
        step.store(1, SeqCst);
        until("it is over", || step.load(SeqCst) == 2);
    };
    let thread = thread::Builder::new().name("deaf".into());
    thread.spawn(work).expect("a thread")
}

/// The first thread ends, and the other threads run on.
fn refused_without_leader() {
    let leader = crate::point::tid();
    thread::spawn(move || {
        until("the first thread ends", || {
            let stat = fs::read_to_string(format!("/proc/{leader}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        });
        refused("the first thread has ended");
        println!("ok refused_without_leader");
        std::process::exit(0);
    });
    // SAFETY: the call ends this thread alone, which no code needs any more.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

fn refused_not_dumpable() {
    let set = |value: i32| {
        // SAFETY: the call sets a flag of the process.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, value, 0, 0, 0) }
    };
    set(0);
    let outcome = std::panic::catch_unwind(|| refused("not dumpable"));
    set(1);
    outcome.expect("refused by that name");
}

fn refused_system_v_memory() {
    // SAFETY: a new segment, which ends with its last user.
    let (id, at) = unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, 8192, 0o600);
        assert!(id >= 0, "there is no such memory here");
        let at = libc::shmat(id, ptr::null(), 0);
        libc::shmctl(id, libc::IPC_RMID, ptr::null_mut());
        (id, at)
    };
    refused("memory is shared with other processes");
    // SAFETY: no code uses the memory.
    unsafe { libc::shmdt(at) };
    assert!(id >= 0);
}

fn refused_directory_that_is_gone() {
    let dir = format!("{}/gone", crate::point::folder());
    fs::create_dir(&dir).expect("a folder");
    std::env::set_current_dir(&dir).expect("it is there");
    fs::remove_dir(&dir).expect("it is empty");
    refused("the working directory was removed");
}

fn refused_protection_keys() {
    // SAFETY: a key that no memory has.
    let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) };
    if key < 0 {
        return println!("note: this processor has no protection keys");
    }
    refused("protection keys");
}

/// Two threads save at once: at least one gets its image, and the process is not harmed.
fn refused_second_save() {
    use std::os::fd::AsFd as _;
    use vm_image::{Options, SaveError, Saved, save};
    let folder = crate::point::folder();
    let threads: Vec<_> = (0..2)
        .map(|n| {
            let path = format!("{folder}/image {n}");
            thread::spawn(move || {
                let mut whole = 0;
                for _ in 0..5 {
                    let file = fs::File::create(&path).expect("a file");
                    let own = [];
                    let options = Options {
                        own: &own,
                        ..Options::default()
                    };
                    match save(file.as_fd(), options) {
                        Ok(Saved::Whole { .. }) => whole += 1,
                        Err(SaveError::Refused(why)) => {
                            assert!(why.contains("another save"), "refused because {why}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
                whole
            })
        })
        .collect();
    let whole: u32 = threads
        .into_iter()
        .map(|thread| thread.join().expect("unhurt"))
        .sum();
    assert!(whole > 0, "nobody got an image");
}

/// One thread gave up rights that the others have; a restore would give all threads the same
/// rights.
fn refused_rights_of_a_thread() {
    let step = Arc::new(AtomicU32::new(0));
    let its_step = step.clone();
    let work = move || {
        // SAFETY: the call concerns this thread alone.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        its_step.store(1, SeqCst);
        until("it is over", || its_step.load(SeqCst) == 2);
    };
    let thread = thread::Builder::new().name("modest".into());
    let thread = thread.spawn(work).expect("a thread");
    until("it has given them up", || step.load(SeqCst) == 1);
    refused("(modest) has other rights than the thread that saves (NoNewPrivs: 1 in place of 0)");
    step.store(2, SeqCst);
    thread.join().expect("it ran on");
}

/// Memory at the restorer's addresses, as thread sanitizers have it.
fn refused_memory_in_the_restorers_place() {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let start = vm_image::format::RESTORER.start as usize;
    // SAFETY: new memory, which replaces none.
    let at = unsafe { libc::mmap(ptr::without_provenance_mut(start), 1 << 44, 0, flags, -1, 0) };
    assert_eq!(at as usize, start);
    refused("is at the addresses that the restorer needs");
    // SAFETY: no code uses the memory.
    unsafe { libc::munmap(at, 1 << 44) };
}
