//! Refusals that concern the process as a whole. Refusals of descriptors are in `files`, those of
//! memory in `mappings` and `pages`.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        credentials,
        proc::{self, NumberPath},
    },
    frozen::fault::{Outcome, Shown, refuse, refuse_now},
    raw::sys::{self, nr},
};

/// Returns the first of these refusals.
pub fn check() -> Outcome<()> {
    refuse_without_leader()?;
    refuse_children()?;
    refuse_shadow_stack()?;
    refuse_protection_keys()?;
    refuse_tiles()?;
    refuse_not_dumpable()?;
    credentials::check()
}

fn refuse_not_dumpable() -> Outcome<()> {
    // SAFETY: the call only reads.
    let dumpable = unsafe { sys::call1(nr::PRCTL, libc::PR_GET_DUMPABLE as usize) };
    if dumpable != 1 {
        return refuse!(
            "the process is not dumpable (it changed its user), so its memory is closed"
        );
    }
    Ok(())
}

/// Refuses a shadow stack: a second stack of return addresses, which only the kernel can make and
/// write.
fn refuse_shadow_stack() -> Outcome<()> {
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    let mut features = 0u64;
    let to = &raw mut features as usize;
    // SAFETY: the kernel writes the features that this thread uses, if it knows of any.
    let told = unsafe { sys::call2(nr::ARCH_PRCTL, ARCH_SHSTK_STATUS, to) };
    match told == 0 && features != 0 {
        true => {
            refuse!("it has a shadow stack; start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off")
        }
        false => Ok(()),
    }
}

/// Refuses memory protection keys. The kernel allocates the lowest free key, so a key above the
/// first one shows that the program has some.
fn refuse_protection_keys() -> Outcome<()> {
    const PKEY_ALLOC: usize = 330;
    const PKEY_FREE: usize = 331;
    /// The initial right of a thread for a new key: no access.
    const PKEY_DISABLE_ACCESS: usize = 1;
    // SAFETY: no other code knows the key, and no memory has it.
    let key = unsafe {
        let key = sys::call2(PKEY_ALLOC, 0, PKEY_DISABLE_ACCESS);
        if key > 0 {
            sys::call1(PKEY_FREE, key as usize);
        }
        key
    };
    match key > 1 {
        true => refuse!("it uses protection keys for its memory"),
        false => Ok(()),
    }
}

/// Refuses matrix registers (AMX). A process must request them, and then the signal frames of its
/// threads are larger. In a process that has not requested them, these frames would lose all vector
/// registers.
fn refuse_tiles() -> Outcome<()> {
    const ARCH_GET_XCOMP_PERM: usize = 0x1022;
    const TILE_DATA: u64 = 1 << 18;
    let mut permitted = 0u64;
    let to = &raw mut permitted as usize;
    // SAFETY: the kernel writes the features that this process may use, if it knows the call.
    let told = unsafe { sys::call2(nr::ARCH_PRCTL, ARCH_GET_XCOMP_PERM, to) };
    match told == 0 && permitted & TILE_DATA != 0 {
        true => refuse!(
            "it has requested the processor's matrix registers (AMX); \
             for oneDNN, start it with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        ),
        false => Ok(()),
    }
}

/// Refuses a process without its first thread: the kernel then shows an empty table of mappings.
fn refuse_without_leader() -> Outcome<()> {
    let stat = proc::read_file(b"/proc/self/stat\0", "reading the state of the process")?;
    // The name is in brackets and may contain any characters.
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    match name_end.and_then(|at| stat.get(at + 2)) {
        Some(b'Z') => refuse!("the first thread has ended, and other threads still run"),
        _ => Ok(()),
    }
}

/// Refuses child processes, which would be left behind. A kernel without the list of children in
/// `/proc` reports none.
fn refuse_children() -> Outcome<()> {
    proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        let path = NumberPath::new("/proc/self/task/", tid, "/children");
        match proc::read_file(path.bytes(), "listing the children") {
            Ok(children) => match proc::words(children).next() {
                Some(child) => refuse_now!(
                    "it has a child process, {} ({}), which has to end and be waited for first",
                    Shown(child),
                    Shown(name_of(child)),
                ),
                None => Ok(()),
            },
            Err(_) => Ok(()),
        }
    })
}

/// The name of a process; empty if the process has just ended.
fn name_of(pid: &[u8]) -> &'static [u8] {
    let pid = proc::decimal(pid).unwrap_or(0) as i32;
    let path = NumberPath::new("/proc/", pid, "/comm");
    let name = proc::read_file(path.bytes(), "reading the name of a child");
    name.unwrap_or_default().trim_ascii_end()
}
