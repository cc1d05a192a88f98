//! A program whose system refuses one system call, as a container or a hardened system may.
//!
//! The `unsafe` parts here are the calls that install the filter.

use anyhow::{Context, bail};
use std::{ffi::c_long, io, os::unix::process::CommandExt, process::Command};

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` of Linux.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Places in the data of a filter: number of the call, architecture.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// Becomes `program`. That process and all its descendants get EPERM from one system call.
pub fn refusing(call: &str, program: &[String]) -> anyhow::Result<()> {
    refuse(match call {
        "memfd_create" => libc::SYS_memfd_create,
        "process_vm_readv" => libc::SYS_process_vm_readv,
        _ => bail!("the number of {call} is not known here"),
    })?;
    let (program, args) = program.split_first().context("no program")?;
    Err(Command::new(program).args(args).exec().into())
}

fn refuse(call: c_long) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut steps = [
        step(load, 0, 0, ARCHITECTURE_AT),
        step(compare, 0, 3, ARCHITECTURE),
        step(load, 0, 0, NUMBER_AT),
        step(compare, 0, 1, call as u32),
        step(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers alone.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the filter and its steps exist until the call has returned, which copies them.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
