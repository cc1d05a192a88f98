//! The facts of an image: its first record, on the process as a whole and the host.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{names::Names, proc, process::Process, program, stop, vdso},
    frozen::{
        arena,
        fault::{Outcome, refuse},
    },
    raw::{
        processor,
        records::{Facts, MemoryMap, ThreadRecord},
        sys::{self, nr},
    },
};

/// The records of the stopped threads.
pub fn thread_records() -> Outcome<&'static [ThreadRecord]> {
    let threads = stop::threads();
    // SAFETY: zeros are values of all fields.
    let records = unsafe { arena::take::<ThreadRecord>(threads.len())? };
    for (record, thread) in records.iter_mut().zip(threads) {
        (record.tid, record.name) = (thread.tid as u32, thread.name);
    }
    Ok(records)
}

/// The name of the first thread, which is the name of the process.
pub fn comm() -> Outcome<[u8; 16]> {
    let pid = sys::getpid();
    let leader = stop::threads().iter().find(|thread| thread.tid == pid);
    match leader {
        Some(thread) => Ok(thread.name),
        None => refuse!("the first thread has ended, and other threads still run"),
    }
}

/// The facts, except the addresses at which the process resumes (entry, stack, argument).
pub fn facts(process: &Process, names: &mut Names<'_>) -> Outcome<Facts> {
    // SAFETY: zeros are a value, and the kernel writes it.
    let host = unsafe {
        let mut host: libc::utsname = std::mem::zeroed();
        sys::call1(nr::UNAME, &raw mut host as usize);
        host
    };
    let mut text = |field: &[libc::c_char]| {
        let len = field.iter().position(|byte| *byte == 0).unwrap_or(0);
        // SAFETY: the same bytes.
        names.add(unsafe { std::slice::from_raw_parts(field.as_ptr().cast(), len) })
    };
    let (kernel, host) = (text(&host.release)?, text(&host.nodename)?);
    let memory = memory_map()?;
    let vdso = vdso::find()?;
    let Some((program, library)) = program::known() else {
        return refuse!("the program's file is not known");
    };
    let command = proc::read_file(b"/proc/self/cmdline\0", "reading the command line")?;
    let comm = comm()?;
    let comm_len = comm.iter().position(|byte| *byte == 0).unwrap_or(16);
    let dir = process.directory();
    Ok(Facts {
        cpu: processor::known(),
        saved_at_ns: sys::clock_ns(libc::CLOCK_REALTIME),
        monotonic_ns: process.monotonic_ns,
        pid: sys::getpid() as u32,
        threads: stop::threads().len() as u32,
        kernel,
        host,
        exe: names.add(program.path())?,
        exe_size: program.size,
        exe_changed_ns: program.changed_ns,
        library: names.add(library.path())?,
        command: names.add(command)?,
        dir: names.add(dir)?,
        comm: names.add(&comm[..comm_len])?,
        vdso_area: vdso.area,
        vdso_area_len: vdso.end - vdso.area,
        vdso: vdso.start,
        vdso_len: vdso.end - vdso.start,
        vdso_check: vdso.check,
        vdso_copy: vdso.copy,
        entry: 0,
        stack: 0,
        argument: 0,
        memory,
        user: process.credentials.user(),
        group: process.credentials.group(),
        ordinary: process.credentials.are_ordinary().into(),
        reserved: 0,
    })
}

/// The kernel's addresses of this process's memory, from `/proc/self/stat`.
fn memory_map() -> Outcome<MemoryMap> {
    let stat = proc::read_file(b"/proc/self/stat\0", "reading the state of the process")?;
    // The name is in brackets and may contain any characters.
    let after = stat
        .iter()
        .rposition(|byte| *byte == b')')
        .map_or(0, |at| at + 2);
    let mut fields = [0u64; 52];
    for (index, word) in (3..).zip(proc::words(&stat[after..])) {
        let word = word.strip_suffix(b"\n").unwrap_or(word);
        if let Some(field) = fields.get_mut(index) {
            *field = proc::decimal(word).unwrap_or(0);
        }
    }
    let auxv = proc::read_file(b"/proc/self/auxv\0", "reading the auxiliary vector")?;
    // SAFETY: the call only reads the end of the heap of `sbrk`.
    let brk = unsafe { sys::call1(nr::BRK, 0) } as u64;
    // The fields are numbered from 1, as in proc(5).
    Ok(MemoryMap {
        start_code: fields[26],
        end_code: fields[27],
        start_data: fields[45],
        end_data: fields[46],
        start_brk: fields[47],
        brk,
        start_stack: fields[28],
        arg_start: fields[48],
        arg_end: fields[49],
        env_start: fields[50],
        env_end: fields[51],
        auxv: auxv.as_ptr() as u64,
        auxv_size: auxv.len() as u32,
        exe_fd: u32::MAX,
    })
}
