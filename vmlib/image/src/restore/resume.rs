//! The first code that runs in a restored process. The code is part of the image.
//!
//! 1. The restorer has put the memory in place, and jumps to [`entry`] on a stack of its own, with
//!    all signals blocked.
//! 2. `prepare` sets descriptors, limits, signal actions and timers, and makes the other threads.
//! 3. Each thread resumes by returning from the signal frame that it had when it was stopped
//!    (`live`).
//!
//! An error ends the process with [`CANNOT_GO_ON`](crate::CANNOT_GO_ON).
//!
//! **Nothing here allocates, locks, or uses thread-locals or the C library**, which are not usable
//! until the threads resume.

use crate::{
    capture::{
        affinity, cpu_clocks,
        credentials::{self, Change, Credentials},
        droppable,
        file_locks::Lock,
        files, guards, limits,
        memory_advice::{self, Advice},
        process::{self, Process},
        program, rseq, stop, terminal,
        thread::Thread,
        thread_signals,
    },
    frozen::{
        arena::{self, List},
        fault::{Fault, Outcome, Step as _, refuse},
        file_calls, left_out, scratch, turn,
    },
    options::{Carry, Hold, Moment},
    raw::{
        clone::{self, CloneArguments},
        folder_map::FolderMap,
        processor,
        records::{
            FileRecord, GROWS_DOWN, MAP_SHIFT, Mapping, MemoryMap, NAMES_MAX, Name, ROLL_BACK,
        },
        sys::{self, Errno, futex_wait, futex_wake, nr},
    },
    restore::{lock_owners, open_files, reopen::Files, wait_deadlines},
};
use std::{
    arch::asm,
    cell::UnsafeCell,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
};

/// The state that a restored process needs to resume. The image carries it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ResumePlan {
    /// The state of the process as a whole.
    pub process: &'static Process,
    /// The process's threads.
    pub threads: &'static [Thread],
    /// The open descriptors.
    pub files: &'static [FileRecord],
    /// Whose content the image carries, of the open files.
    pub carry: Carry,
    /// The locks on open files.
    pub locks: &'static [Lock],
    /// The mappings.
    pub mappings: &'static [Mapping],
    /// The advice that the kernel has for the memory.
    pub advice: &'static [Advice],
    /// Memory that the kernel may empty (MAP_DROPPABLE).
    pub droppable: &'static [[u64; 2]],
    /// The guard pages.
    pub guards: &'static [[u64; 2]],
    /// The texts that records point into.
    pub names: &'static [u8],
    /// The addresses that the kernel knows of the memory: code, data, stack, arguments.
    pub memory: MemoryMap,
    /// The descriptor that the image was written to.
    pub image: i32,
    /// Descriptors that the program manages itself, see [`OWN_MAX`]; unused entries are -1.
    pub own: [i32; OWN_MAX],
    /// Called when all threads are ready to resume.
    pub hold: Option<Hold>,
    /// The name of the process.
    pub comm: [u8; 16],
}

/// The rights of the restoring process, and how a thread gets the rights of the saved process.
#[derive(Clone, Copy)]
struct Rights {
    here: Credentials,
    change: Change,
}

/// How many of the descriptors that a program manages itself can be handed over.
pub const OWN_MAX: usize = 4;
/// Descriptors from this number on are temporary; a program's own descriptor is handed over only if
/// it is below.
const PASSING: i32 = 512;

/// Bytes of the stack on which this code runs.
const STACK: usize = 128 << 10;

#[repr(C, align(64))]
struct Stack(UnsafeCell<[u8; STACK]>);
// SAFETY: one thread uses it, and only while there is no other thread.
unsafe impl Sync for Stack {}

static STACK_ROOM: Stack = Stack(UnsafeCell::new([0; STACK]));

/// The first address above the stack for this code.
pub fn stack_top() -> usize {
    STACK_ROOM.0.get() as usize + STACK
}

/// The number of threads that are ready to resume.
static READY: AtomicU32 = AtomicU32::new(0);
/// 1 when all threads may resume.
static GO: AtomicU32 = AtomicU32::new(0);
static PLAN: AtomicPtr<ResumePlan> = AtomicPtr::new(std::ptr::null_mut());
/// How each thread gets the rights of the saved process.
static RIGHTS: AtomicPtr<Rights> = AtomicPtr::new(std::ptr::null_mut());
/// Ids of the new threads, by index.
static IDS: AtomicPtr<i32> = AtomicPtr::new(std::ptr::null_mut());

/// Looks up state that only the C library knows. To be called once, outside of signal handlers.
pub fn look_up() {
    program::remember();
    cpu_clocks::look_up();
    lock_owners::look_up();
    rseq::look_up();
}

/// The first instruction of the image in a restored process. `restorer` is the memory of the
/// restorer, `image` the descriptor of the image, `contents` the descriptor of the carried content,
/// or -1. `files` has the bit [`ROLL_BACK`] and the descriptor of a [`FolderMap`].
pub extern "C" fn entry(
    plan: *mut ResumePlan,
    restorer: usize,
    restorer_len: usize,
    image: i32,
    contents: i32,
    files: u64,
) -> ! {
    // SAFETY: the restorer has ended, and no code returns to it.
    let _ = unsafe { sys::unmap(restorer, restorer_len) };
    // SAFETY: the plan is in the image, as the saver wrote it.
    let known = unsafe { &*plan };
    PLAN.store(plan, SeqCst);
    match prepare(known, image, contents, files) {
        Ok(leader) => live(leader),
        Err(fault) => give_up(&fault),
    }
}

/// Reports why the process cannot resume, and ends it. The caller of the restore does not exist any
/// more.
fn give_up(fault: &Fault) -> ! {
    use std::fmt::Write as _;
    struct Stderr;
    impl std::fmt::Write for Stderr {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            // There is no other place for the report.
            let _ = sys::write(2, text.as_bytes());
            Ok(())
        }
    }
    let _ = match fault {
        Fault::Refused(text) => writeln!(Stderr, "the process cannot resume: {}", text.as_str()),
        Fault::Failed(text, errno) => {
            let (text, errno) = (text.as_str(), errno.0);
            writeln!(Stderr, "the process cannot resume: {text}: error {errno}")
        }
    };
    sys::exit_group(crate::CANNOT_GO_ON)
}

/// Restores everything but the registers of this thread. Returns the index of this thread, the
/// leader.
fn prepare(plan: &ResumePlan, image: i32, contents: i32, files: u64) -> Outcome<usize> {
    stop::forget();
    scratch::forget();
    processor::forget();
    turn::forget();
    READY.store(0, SeqCst);
    GO.store(0, SeqCst);
    let memory = plan.memory;
    // SAFETY: the addresses are those of the image. If the call fails, `sbrk` fails and the process
    // shows another command line, which is no reason to end.
    unsafe {
        let (what, at) = (libc::PR_SET_MM as usize, &raw const memory as usize);
        const PR_SET_MM_MAP: usize = 14;
        sys::call5(
            nr::PRCTL,
            what,
            PR_SET_MM_MAP,
            at,
            size_of::<MemoryMap>(),
            0,
        );
    }
    // Descriptors are moved to numbers that may be above the limit of the restoring process.
    limits::lift_limits();
    droppable::make(plan.droppable)?;
    left_out::map_again().step("mapping memory that no image has")?;
    memory_advice::give(plan.advice)?;
    // These checks come before the first file is changed.
    look_at_rights(plan)?;
    look_at_limits(plan, contents >= 0)?;
    read_folders((files >> MAP_SHIFT) as i32 - 1)?;
    let contents = take_over(plan, image, contents)?;
    shift_deadlines(plan);
    // SAFETY: the map was just written, and no code writes it while this runs.
    let folders = unsafe { &*FOLDERS.0.get() };
    process::restore(plan.process, folders)?;
    let (records, names) = here(folders, plan.files, plan.names)?;
    let roll_back = files & ROLL_BACK != 0;
    let files = Files {
        records,
        names,
        locks: plan.locks,
        contents,
        carry: plan.carry,
        roll_back,
    };
    open_files::restore(&files)?;
    keep_place(plan);
    files.lock(plan.locks.iter())?;
    // SAFETY: any numbers are values.
    let ids = unsafe { arena::take::<i32>(plan.threads.len())? };
    IDS.store(ids.as_mut_ptr(), SeqCst);
    let first = leader(plan);
    for (index, id) in ids.iter_mut().enumerate() {
        if index != first {
            *id = make_thread(plan, index)?;
        }
    }
    become_leader(&plan.threads[first]);
    ids[first] = sys::getpid();
    while (READY.load(SeqCst) as usize) < plan.threads.len() - 1 {
        let ready = READY.load(SeqCst);
        if (ready as usize) < plan.threads.len() - 1 {
            futex_wait(&READY, ready);
        }
    }
    lock_owners::rename(plan.threads, ids, plan.mappings);
    cpu_clocks::rename(plan.threads, ids);
    // From here on no code reads memory that guard pages may hide.
    guards::make(plan.guards)?;
    process::restore_timers(plan.process, |tid| {
        let index = plan.threads.iter().position(|thread| thread.tid == tid);
        index.map_or(0, |index| ids[index])
    })?;
    limits::restore(&plan.process.limits);
    let leader = &plan.threads[first];
    process::restore_thread(leader);
    take_rights(plan, leader)?;
    affinity::try_all(plan.threads);
    process::put_back(plan.process.waiting)?;
    terminal::give_modes(&plan.process.terminals);
    if let Some(hold) = plan.hold {
        hold(Moment::Restored);
    }
    Ok(first)
}

/// Refuses a hard limit that is too low for the state of the process.
fn look_at_limits(plan: &ResumePlan, has_contents: bool) -> Outcome<()> {
    let highest = plan.files.iter().map(|record| u64::from(record.fd)).max();
    // The ends of pipes are made above all other descriptors.
    let mut files = highest.map_or(3, |fd| fd + 3);
    if has_contents || plan.own.iter().any(|fd| *fd >= 0) {
        files = files.max(PASSING as u64 + OWN_MAX as u64 + 1);
    }
    let is_stack = |mapping: &&Mapping| mapping.flags & GROWS_DOWN != 0;
    let stacks = plan.mappings.iter().filter(is_stack);
    let stack = stacks.map(|mapping| mapping.end - mapping.start).sum();
    let process = plan.process;
    let limits = [
        (libc::RLIMIT_NOFILE, "open files (RLIMIT_NOFILE)", files),
        (libc::RLIMIT_STACK, "the stack (RLIMIT_STACK)", stack),
        (
            libc::RLIMIT_SIGPENDING,
            "pending signals (RLIMIT_SIGPENDING)",
            process.pending() as u64,
        ),
    ];
    for (which, name, wanted) in limits {
        let here = limits::hard_limit(which);
        if here < wanted {
            return refuse!(
                "the limit on {name} is {here} here, and the process needs {wanted}: raise it"
            );
        }
    }
    Ok(())
}

/// Determines how this process gets the rights of the saved process. Refused if it cannot get them.
fn look_at_rights(plan: &ResumePlan) -> Outcome<()> {
    let here = credentials::capture()?;
    let change = plan.process.credentials.change_from(&here)?;
    // SAFETY: the place is written before it is read.
    let place = unsafe { &mut arena::take::<std::mem::MaybeUninit<Rights>>(1)?[0] };
    RIGHTS.store(place.write(Rights { here, change }), SeqCst);
    Ok(())
}

/// Gives this thread the rights of the saved process.
fn take_rights(plan: &ResumePlan, thread: &Thread) -> Outcome<()> {
    // SAFETY: `look_at_rights` wrote them.
    let rights = unsafe { &*RIGHTS.load(SeqCst) };
    let credentials = &plan.process.credentials;
    credentials.take(rights.change, &rights.here, thread.death_signal)
}

struct FolderRoom(UnsafeCell<FolderMap>);
// SAFETY: one thread uses it, and only while there is no other thread.
unsafe impl Sync for FolderRoom {}

/// The folders that have another name on this host.
static FOLDERS: FolderRoom = FolderRoom(UnsafeCell::new(FolderMap::none()));

/// Reads the map of folders. A negative descriptor means that there is none.
fn read_folders(fd: i32) -> Outcome<()> {
    // SAFETY: there is one thread yet.
    let folders = unsafe { &mut *FOLDERS.0.get() };
    folders.clear();
    match fd {
        ..0 => Ok(()),
        fd => folders.read(fd).step("reading the map of folders"),
    }
}

/// The records of open files, with the paths that they have on this host.
fn here(
    folders: &FolderMap,
    files: &'static [FileRecord],
    names: &'static [u8],
) -> Outcome<(&'static [FileRecord], &'static [u8])> {
    if folders.is_none() {
        return Ok((files, names));
    }
    // SAFETY: any numbers are values, and zeros are values of all fields.
    let (records, mut text) = unsafe {
        let records = arena::take::<FileRecord>(files.len())?;
        (records, List::<u8>::new(NAMES_MAX)?)
    };
    records.copy_from_slice(files);
    for record in &mut *records {
        let (at, len) = (record.name.at as usize, record.name.len as usize);
        let (folder, rest) = folders.here(&names[at..at + len]);
        record.name = Name {
            at: text.all().len() as u32,
            len: (folder.len() + rest.len()) as u32,
        };
        for part in [folder, rest, &[0]] {
            text.extend(part, "names of files")?;
        }
    }
    Ok((records, text.into_static()))
}

/// Closes the descriptors of the restoring process, except those that it hands over: they follow
/// the image's descriptor, in the order of [`ResumePlan::own`], and are moved to the numbers in it.
/// Returns the new descriptor of the carried content, which no record uses, or -1.
fn take_over(plan: &ResumePlan, image: i32, contents: i32) -> Outcome<i32> {
    let own = || plan.own.iter().filter(|fd| (0..PASSING).contains(*fd));
    let mut passed = [-1; OWN_MAX];
    for (place, index) in passed.iter_mut().zip(1..).take(own().count()) {
        // A restoring process without such descriptors hands over none.
        *place = file_calls::control(image + index, libc::F_DUPFD_CLOEXEC, PASSING as usize)
            .map_or(-1, |fd| fd as i32);
    }
    let mut kept = -1;
    if contents >= 0 {
        let moved = file_calls::control(contents, libc::F_DUPFD_CLOEXEC, PASSING as usize);
        kept = moved.step("moving the content of files")? as i32;
    }
    files::close_between(3, PASSING - 1);
    for (from, to) in passed.into_iter().zip(own()).filter(|(from, _)| *from >= 0) {
        move_to(from, *to).step("handing descriptors over")?;
    }
    if kept < 0 {
        files::close_between(PASSING, i32::MAX);
        return Ok(-1);
    }
    let is_free = |fd: &i32| {
        let is_opened = plan.files.iter().any(|record| record.fd == *fd as u32);
        !is_opened && !own().any(|own| own == fd)
    };
    let place = (3..).find(is_free).unwrap_or(kept);
    move_to(kept, place).step("moving the content of files")?;
    files::close_between(PASSING, (place - 1).max(PASSING - 1));
    files::close_between((place + 1).max(PASSING), i32::MAX);
    Ok(place)
}

fn move_to(from: i32, to: i32) -> sys::Result<()> {
    if from == to {
        return Ok(());
    }
    // SAFETY: no code uses the descriptor that is replaced.
    sys::check(unsafe {
        let flags = libc::O_CLOEXEC as usize;
        sys::call3(nr::DUP3, from as usize, to as usize, flags)
    })
    .map(|_| ())
}

/// Adjusts deadlines of waiting threads to the clock of this host.
fn shift_deadlines(plan: &ResumePlan) {
    let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
    let then = plan.process.monotonic_ns;
    for thread in plan.threads {
        wait_deadlines::shift(
            thread,
            then,
            i128::from(now) - i128::from(then),
            plan.mappings,
        );
    }
}

/// Opens `/dev/null` under the number of the image's descriptor. The caller of the save still owns
/// that number and may close it.
fn keep_place(plan: &ResumePlan) {
    if let Ok(null) = sys::open(b"/dev/null\0", libc::O_RDWR | libc::O_CLOEXEC, 0)
        && null != plan.image
    {
        // SAFETY: the number is free, as it was the image's.
        unsafe {
            let flags = libc::O_CLOEXEC as usize;
            sys::call3(nr::DUP3, null as usize, plan.image as usize, flags)
        };
        sys::close(null);
    }
}

/// The index of the thread whose id was the process's. That thread becomes the first thread of the
/// restored process.
fn leader(plan: &ResumePlan) -> usize {
    // A save makes sure that there is such a thread.
    let is_leader = |thread: &Thread| thread.tid == plan.process.pid;
    plan.threads.iter().position(is_leader).unwrap_or(0)
}

fn become_leader(thread: &Thread) {
    const ARCH_SET_FS: usize = 0x1002;
    // SAFETY: the addresses are those of the saved thread.
    unsafe {
        sys::call2(nr::ARCH_PRCTL, ARCH_SET_FS, thread.fs);
        sys::call1(nr::SET_TID_ADDRESS, thread.tid_address);
        if thread.tid_address != 0 {
            (thread.tid_address as *mut i32).write(sys::getpid());
        }
    }
}

fn make_thread(plan: &ResumePlan, index: usize) -> Outcome<i32> {
    let thread = &plan.threads[index];
    let mut flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    if thread.tid_address != 0 {
        flags |= libc::CLONE_CHILD_CLEARTID | libc::CLONE_CHILD_SETTID;
    }
    let given = CloneArguments {
        flags: flags as usize,
        tid_address: thread.tid_address,
        tls: thread.fs,
    };
    // Below the signal frame lies the stack of the handler, to which no code returns.
    let top = thread.frame - 512;
    // SAFETY: the stack is that thread's own.
    let made = sys::check(unsafe { clone::spawn(given, top, begin, index) });
    match made {
        Err(Errno(libc::EAGAIN)) => refuse!(
            "a thread cannot be made: the limit on processes (RLIMIT_NPROC, which is {} here, or \
             pids.max of a control group) is reached",
            limits::hard_limit(libc::RLIMIT_NPROC)
        ),
        made => made.map(|tid| tid as i32).step("making a thread again"),
    }
}

extern "C" fn begin(index: usize) {
    live(index)
}

/// Resumes as the saved thread with this index.
fn live(index: usize) -> ! {
    // SAFETY: the plan is in the image.
    let plan = unsafe { &*PLAN.load(SeqCst) };
    let thread = &plan.threads[index];
    if index != leader(plan) {
        process::restore_thread(thread);
        if let Err(fault) = take_rights(plan, thread) {
            give_up(&fault);
        }
    }
    rseq::register(thread);
    // The address is read now and not where it is used: the thread that resumes first may save
    // again at once, and then the plan does not exist any more.
    // SAFETY: the plan still exists here.
    let frame = unsafe { (&raw const thread.frame).read_volatile() };
    thread_signals::put_back(thread.tid);
    if index == leader(plan) {
        GO.store(1, SeqCst);
        futex_wake(&GO);
    } else {
        READY.fetch_add(1, SeqCst);
        futex_wake(&READY);
        while GO.load(SeqCst) == 0 {
            futex_wait(&GO, 0);
        }
    }
    // SAFETY: the frame is as the kernel wrote it when the thread was stopped.
    unsafe {
        asm!(
            "mov rsp, {frame}",
            "mov eax, {number}",
            "syscall",
            "ud2",
            frame = in(reg) frame,
            number = const nr::RT_SIGRETURN,
            options(noreturn),
        )
    }
}
