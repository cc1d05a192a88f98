//! A daemon under a filter that refuses system calls, as in a sandbox.

mod common;

use common::{Daemon, console::Console};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::{collections::BTreeMap, thread};
use vm_wire::agreed::ExitStatus;

/// `__NR_memfd_create` and `__NR_pidfd_open` of x86-64 and of aarch64.
const MEMFD_CREATE: i64 = if cfg!(target_arch = "x86_64") {
    319
} else {
    279
};
const PIDFD_OPEN: i64 = 434;

/// A daemon for which the kernel refuses that call (EPERM).
fn daemon_without(call: i64) -> Daemon {
    let architecture = std::env::consts::ARCH
        .try_into()
        .expect("one that filters know");
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(1),
        architecture,
    );
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    // The filter holds for this thread, and for the processes that it starts.
    let started = thread::spawn(move || {
        seccompiler::apply_filter(&program).expect("the kernel takes a filter");
        Daemon::start()
    });
    started.join().expect("it starts")
}

#[test]
fn a_refused_call_without_which_no_process_can_be_watched_is_named() {
    let daemon = daemon_without(PIDFD_OPEN);
    let mut console = Console::connect(&daemon);
    console.run("exec sleep 1000", None);
    let (status, _, err) = console.finish();
    let said = String::from_utf8_lossy(&err);
    assert!(said.contains("pidfd_open"), "{said}");
    assert_eq!(status, ExitStatus::NotStarted);
}

#[test]
fn without_memory_files_programs_run() {
    let daemon = daemon_without(MEMFD_CREATE);
    let mut console = Console::connect(&daemon);
    console.run("echo there; exit 4", None);
    let (status, out, _) = console.finish();
    assert_eq!((status, out), (ExitStatus::Code(4), b"there\n".to_vec()));
}
