//! Saves this process: what is checked before anything stops, what is done while all are stopped,
//! and what a copy of the process does afterwards.
//!
//! **Runs in signal handlers**: but for [`save`](crate::save()) itself, which may, everything here
//! allocates nothing and locks nothing.

use crate::{
    Carry, Folders, Until,
    capture::{
        blocked_signals, droppable, facts,
        file_content::{self, Known},
        file_locks::{self, Lock},
        files::{self, Wish},
        guards,
        memory::{self, Names, Of, Opened, Pages},
        memory_advice::{self, Advice},
        process::{self, Process},
        refusals, stop, thread_signals, vdso,
    },
    frozen::{
        arena,
        fault::{Outcome, refuse, refuse_now},
        memory_faults::Watch,
        scratch,
    },
    raw::{
        processor,
        records::{
            BLOCK, DENSE, FACTS, FILE, FILES, FULL, Facts, FileRecord, GONE, MAPPINGS, Mapping,
            NAMES, Plain, SHARED, THREADS, ThreadRecord,
        },
        sys,
    },
    restore::resume,
    save::{
        forked_copy::in_copy,
        image_writer::Out,
        precopy::{self, Task, Tell},
        rounds::{self, Rounds},
        spare::{self, Spare, Withheld},
    },
};
use std::{
    ops::Range,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering::SeqCst},
};

/// How a process is saved.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The image goes there.
    pub image: i32,
    /// A copy of the process writes, while this one goes on.
    pub forked: bool,
    /// Memory is compressed.
    pub compress: bool,
    /// Memory need not be copied into a pipe.
    pub lend: bool,
    /// The image has the content of these open files.
    pub carry: Carry,
    /// Where files are that are in a folder, where it is brought back.
    pub folders: Option<Folders<'a>>,
    /// Bytes of each open file that are checked.
    pub checked_max: u64,
    /// Descriptors that the program looks after itself.
    pub own: &'a [i32],
    /// How long threads may take to stop.
    pub limit_ns: u64,
    /// Called when it begins to write although a copy was to, when the image is written, or a copy
    /// writes it, and when the process was brought back, before it goes on.
    pub hold: Option<Hold>,
}

/// Where a process stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A copy was to write its image, and it has to write some of that itself before, or all: what is
    /// shared with other processes, what its files hold, or if there is no room for a copy. Somebody has
    /// to read.
    Writes,
    /// Its image is written, or a copy of the process writes it.
    Saved {
        /// Of the image; 0 while a copy writes it.
        bytes: u64,
        /// How long it took since all threads stood. Nanoseconds.
        ns: u64,
        /// That copy, or 0.
        writer: i32,
    },
    /// It was brought back.
    Back,
}

/// Called while all threads stand still. It may make bare system calls, and use atomics; it must
/// not allocate, lock, or use thread-locals or the C library.
pub type Hold = fn(Moment);

/// What a save came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Saved {
    /// Bytes of the image; 0 while a copy still writes.
    pub bytes: u64,
    /// How long the program stood still. Nanoseconds.
    pub freeze_ns: u64,
    /// The copy that writes, or 0.
    pub writer: i32,
}

/// Where a process is after a save.
#[derive(Debug, Clone, Copy)]
pub enum Now {
    /// Where it was.
    Here(Saved),
    /// It was brought back.
    Back,
}

/// Pieces of memory that are saved, at most.
const PIECES_MAX: usize = 1 << 22;
/// A mapping from this size on may do with large pages. Bytes.
const LARGE: u64 = 4 << 20;

struct Job<'a> {
    wanted: Wanted<'a>,
    /// Asked for before the stop, because it takes long.
    advice: &'static [Advice],
    rounds: *mut Rounds,
    known: Known,
    outcome: Outcome<Saved>,
}

static JOB: AtomicPtr<Job<'static>> = AtomicPtr::new(std::ptr::null_mut());
/// Whose turn it is to save.
static TURN: Turn = Turn::new();

/// What one at a time may have. A child of a process in which somebody has it has a copy of this
/// memory, but nobody there has it.
pub struct Turn(AtomicI32);

impl Turn {
    /// Nobody has it.
    pub const fn new() -> Self {
        Turn(AtomicI32::new(0))
    }

    /// Whether it was had.
    pub fn take(&self) -> bool {
        let (me, before) = (sys::getpid(), self.0.load(SeqCst));
        before != me && self.0.compare_exchange(before, me, SeqCst, SeqCst).is_ok()
    }

    /// Nobody has it any more.
    pub fn give_back(&self) {
        self.0.store(0, SeqCst);
    }
}

/// The process was just brought back.
pub fn came_back() {
    processor::forget();
    TURN.give_back();
}

/// Saves this process.
///
/// # Errors
/// What cannot be saved, or what failed. The process goes on as if nothing had been.
pub fn save(wanted: Wanted<'_>) -> Outcome<Now> {
    claim()?;
    let result = prepare().and_then(|()| save_alone(wanted, None, 0));
    if !matches!(result, Ok(Now::Back)) {
        release();
    }
    result
}

/// Begins to save this process: a thread of its own sends memory while all others run. With
/// `checked`, what could not be saved now is refused at once. `tell` says how the end of the rounds
/// is told.
///
/// # Errors
/// As for [`save`].
pub fn begin_rounds(wanted: Wanted<'_>, until: Until, checked: bool, tell: Tell) -> Outcome<()> {
    claim()?;
    let begun = prepare().and_then(|()| {
        let mark = arena::mark();
        if checked {
            check(wanted, &mut Known::new()?)?;
            // SAFETY: the tables of the check are of no more use.
            unsafe { arena::discard(mark) };
        }
        Ok(())
    });
    if begun.is_err() {
        release();
        return begun;
    }
    precopy::begin(Task {
        image: wanted.image,
        compress: wanted.compress,
        lend: wanted.lend,
        until,
        tell,
    });
    Ok(())
}

/// Finishes a save that was begun in rounds; if they have been over for some time, perhaps with
/// another one before. `sent` is called with the bytes of each.
///
/// # Errors
/// As for [`save`].
pub fn save_rest(wanted: Wanted<'_>, one_more: bool, sent: impl FnOnce(&[u64])) -> Outcome<Now> {
    let result = precopy::await_rounds(one_more).and_then(|mut rounds| {
        sent(precopy::sent());
        if let Some(rounds) = &mut rounds {
            rounds.go_on_at(wanted.image)?;
        }
        save_alone(wanted, rounds, precopy::tid())
    });
    // In a process that was brought back there is no such thread.
    if !matches!(result, Ok(Now::Back)) {
        give_up();
    }
    result
}

/// Gives up a save that was begun in rounds, and waits until nothing of it is left.
pub fn give_up() {
    precopy::end();
    release();
}

/// Whether a save in rounds was given up just now, because the thread that sent memory was ended.
pub fn give_up_if_ended() -> bool {
    let ended = precopy::was_ended();
    if ended {
        release();
    }
    ended
}

/// Keeps all others from saving.
fn claim() -> Outcome<()> {
    match TURN.take() {
        true => Ok(()),
        false => refuse_now!("another save of this process is under way"),
    }
}

/// Others may save again.
pub fn release() {
    TURN.give_back();
}

/// Gets the memory that a save needs.
pub fn prepare() -> Outcome<()> {
    arena::reset()?;
    scratch::reserve()
}

/// `left_out` is a thread that is none of the program's, or 0.
fn save_alone(wanted: Wanted<'_>, rounds: Option<&mut Rounds>, left_out: i32) -> Outcome<Now> {
    let advice = memory_advice::capture()?;
    let mut known = Known::new()?;
    let mark = arena::mark();
    check(wanted, &mut known)?;
    blocked_signals::refuse_any(wanted.limit_ns, left_out)?;
    // Asked while the program still runs, because that is slow on virtual machines.
    processor::known();
    // SAFETY: the tables of the check are of no more use.
    unsafe { arena::discard(mark) };
    let lives = stop::lives();
    let mut job = Job {
        wanted,
        advice,
        rounds: rounds.map_or(std::ptr::null_mut(), |rounds| rounds),
        known,
        outcome: refuse!("no thread could save"),
    };
    JOB.store((&raw mut job).cast(), SeqCst);
    stop::with_stopped(work, wanted.limit_ns, left_out)?;
    if stop::lives() != lives {
        return Ok(Now::Back);
    }
    // SAFETY: nor are those of the save.
    unsafe { arena::discard(mark) };
    // SAFETY: `work` wrote it, in this thread.
    unsafe { (&raw const job.outcome).read_volatile() }.map(Now::Here)
}

/// Whether this process could be saved now. Reads its files, which may take long.
///
/// # Errors
/// The first thing that cannot be saved.
pub fn check(wanted: Wanted<'_>, known: &mut Known) -> Outcome<()> {
    refusals::check()?;
    vdso::find()?;
    process::check()?;
    let mut names = Names::new(wanted.folders)?;
    let locks = file_locks::capture()?;
    let files = files::capture(wish(wanted, locks), &mut names, known)?;
    let mappings = memory::mappings(&mut names, Of::Whole, files)?;
    let mut pages = Pages::open()?;
    for mapping in mappings.iter() {
        pages.refuse_guards(mapping)?;
    }
    for mapping in mappings.iter().filter(|mapping| mapping.kind == FILE) {
        let is_mapped = |file: &&FileRecord| names.get(file.name) == names.get(mapping.name);
        files
            .iter()
            .filter(is_mapped)
            .for_each(|file| known.forget(file));
    }
    Ok(())
}

fn wish<'a>(wanted: Wanted<'a>, locks: &'a [Lock]) -> Wish<'a> {
    Wish {
        image: wanted.image,
        own: wanted.own,
        locks,
        carry: wanted.carry,
        checked_max: wanted.checked_max,
    }
}

/// All threads are stopped, and this is the handler of the one that saves.
extern "C" fn work() {
    // The kernel writes into that place whenever the thread changes its processor.
    let rseq = resume::leave_rseq();
    // SAFETY: one save at a time, and the stack was reserved.
    unsafe { scratch::call(work_aside) };
    if rseq {
        resume::enter_rseq();
    }
}

extern "C" fn work_aside() {
    // SAFETY: `save_alone` waits in this very thread. Copied: the original is in the image.
    let job = unsafe { &mut *JOB.load(SeqCst) };
    // SAFETY: null, or of the thread that sent memory, which waits until this is done.
    let rounds = unsafe { job.rounds.as_mut() };
    job.outcome = frozen(job.wanted, job.advice, rounds, &mut job.known);
}

fn frozen(
    wanted: Wanted<'_>,
    advice: &'static [Advice],
    rounds: Option<&mut Rounds>,
    known: &mut Known,
) -> Outcome<Saved> {
    let began = sys::clock_ns(libc::CLOCK_MONOTONIC);
    thread_signals::check()?;
    let mut signals = process::no_signals()?;
    let written = process::capture(wanted.folders, &mut signals).and_then(|process| {
        let _watch = Watch::begin()?;
        write(wanted, advice, rounds, known, process)
    });
    if let (Ok((bytes, writer)), Some(hold)) = (&written, wanted.hold) {
        let (bytes, writer) = (*bytes, *writer);
        let ns = sys::clock_ns(libc::CLOCK_MONOTONIC) - began;
        hold(Moment::Saved { bytes, ns, writer });
    }
    stop::put_back_at_end(&signals);
    let (bytes, writer) = written?;
    Ok(Saved {
        bytes,
        freeze_ns: sys::clock_ns(libc::CLOCK_MONOTONIC) - began,
        writer,
    })
}

/// Writes the image, or as much of it as has to be written before a copy goes on.
fn write(
    wanted: Wanted<'_>,
    advice: &'static [Advice],
    rounds: Option<&mut Rounds>,
    known: &mut Known,
    process: &'static Process,
) -> Outcome<(u64, i32)> {
    let mut names = Names::new(wanted.folders)?;
    let all_locks = file_locks::capture()?;
    let files = files::capture(wish(wanted, all_locks), &mut names, known)?;
    let locks = file_locks::of(all_locks, files)?;
    let mappings = memory::mappings(&mut names, Of::Whole, files)?;
    // SAFETY: zeros are values of all fields.
    let kept = unsafe { arena::take::<Mapping>(mappings.len())? };
    kept.copy_from_slice(mappings);
    let facts = facts::facts(process, &mut names)?;
    let records = facts::thread_records()?;
    // SAFETY: it is written before it is read.
    let place = unsafe { &mut arena::take::<std::mem::MaybeUninit<resume::Plan>>(1)?[0] };
    let plan = place.write(resume::Plan {
        process,
        threads: stop::threads(),
        files,
        carry: wanted.carry,
        locks,
        mappings: kept,
        advice,
        droppable: droppable::find(kept, advice)?,
        // They are found together with the pages that have content.
        guards: &[],
        // SAFETY: the names stay in the arena.
        names: unsafe { std::slice::from_raw_parts(names.all().as_ptr(), names.all().len()) },
        memory: facts.memory,
        image: wanted.image,
        own: std::array::from_fn(|index| wanted.own.get(index).copied().unwrap_or(-1)),
        hold: wanted.hold,
        comm: facts::comm()?,
    });
    let facts = Facts {
        argument: &raw const *plan as u64,
        entry: resume::entry as *const () as u64,
        stack: resume::stack_top() as u64,
        ..facts
    };
    // From here on nothing is written that the image needs.
    let mut tables = Tables {
        facts,
        names: plan.names,
        files,
        records,
        plan,
        locks: all_locks,
    };
    let is_shared = mappings.iter().any(|mapping| mapping.kind == SHARED);
    let is_carried = files.iter().any(|file| file.carried != 0);
    if wanted.forked && rounds.is_none() && !is_shared && !is_carried {
        // The copy has all that there is to write, and time to look for it; but for each page that it
        // gets, the program may pay with a fault.
        let spare = Spare::of(mappings)?;
        let withheld = Withheld::of(mappings, spare)?;
        let writer = in_copy(wanted.image, advice, withheld, || {
            let (mut out, pieces) = tables.write(wanted, None, mappings, Some(spare))?;
            out.give_back(spare);
            pages(&mut out, mappings, pieces, |_| true)?;
            out.finish()
        });
        if let Some(writer) = writer {
            return Ok((0, writer));
        }
    }
    if let (true, Some(hold)) = (wanted.forked, wanted.hold) {
        hold(Moment::Writes);
    }
    let spare = Spare::of(mappings)?;
    // While the program waits for a copy, nobody looks for zeros: that takes time.
    let zeros = (!wanted.forked).then_some(Spare::default());
    let (mut out, pieces) = tables.write(wanted, rounds, mappings, zeros)?;
    if wanted.forked {
        // What is shared is not copied by a fork.
        pages(&mut out, mappings, pieces, |mapping| mapping.kind == SHARED)?;
        let mut rest = |spare| {
            out.give_back(spare);
            pages(&mut out, mappings, pieces, |mapping| mapping.kind != SHARED)?;
            out.finish()
        };
        return match in_copy(wanted.image, advice, Withheld::default(), || rest(spare)) {
            Some(writer) => Ok((0, writer)),
            None => Ok((rest(Spare::default())?, 0)),
        };
    }
    pages(&mut out, mappings, pieces, |_| true)?;
    Ok((out.finish()?, 0))
}

/// What comes before the memory.
struct Tables<'a> {
    facts: Facts,
    names: &'a [u8],
    files: &'a [FileRecord],
    records: &'a [ThreadRecord],
    plan: &'a mut resume::Plan,
    locks: &'a [Lock],
}

impl Tables<'_> {
    /// Writes it, and says what memory is to follow; with `zeros`, all but pages of zeros, of which
    /// it gives back what is spare.
    fn write(
        &mut self,
        wanted: Wanted<'_>,
        rounds: Option<&mut Rounds>,
        mappings: &mut [Mapping],
        zeros: Option<Spare>,
    ) -> Outcome<(Out, &'static [[u64; 2]])> {
        let files = self.files;
        let (mut out, mut pieces, guards, gone) = match rounds {
            None => {
                let out = Out::begin(wanted.image, wanted.compress, wanted.lend)?;
                let mut scan = Pages::open_to_note()?;
                let pieces = pieces(&mut scan, mappings, Since::default(), zeros)?;
                (out, pieces, scan.guards(), None)
            }
            Some(rounds) => {
                let taken = rounds.take()?;
                // A device that writes past the processor leaves no trace.
                let traces = !files
                    .iter()
                    .any(|file| file.flags & libc::O_DIRECT as u32 != 0);
                let since = Since {
                    missed: traces.then_some(taken.missed),
                    sent: taken.sent,
                };
                let changed = pieces(&mut Pages::open()?, mappings, since, zeros)?;
                let mut scan = Pages::open_to_note()?;
                let present = present(&mut scan, mappings)?;
                let gone = rounds::gone(taken.sent, present)?;
                (taken.out, changed, scan.guards(), Some(gone))
            }
        };
        // Only now it is known; where it lies, its memory may have been passed over as empty.
        self.plan.guards = guards;
        if let Some(place) = guards::place_of(guards) {
            pieces.insert(place, "pieces of memory")?;
        }
        out.section(FACTS, 0, self.facts.bytes())?;
        out.section(NAMES, 0, self.names)?;
        out.section(THREADS, 0, ThreadRecord::all_bytes(self.records))?;
        out.section(FILES, 0, FileRecord::all_bytes(files))?;
        out.section(MAPPINGS, 0, Mapping::all_bytes(mappings))?;
        let gone = gone.as_ref().map_or(&[][..], |gone| gone.all());
        for part in gone.chunks(BLOCK / 16) {
            // SAFETY: pairs of numbers, as bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts(part.as_ptr().cast(), size_of_val(part)) };
            out.section(GONE, 0, bytes)?;
        }
        // Nobody but this process may write into its files, and it stands still only now.
        for (number, record) in files.iter().enumerate() {
            if record.carried != 0 {
                file_content::carry(&mut out, self.locks, number, record)?;
            }
        }
        Ok((out, pieces.into_static()))
    }
}

/// All memory that has content, by address.
fn present(scan: &mut Pages, mappings: &[Mapping]) -> Outcome<&'static [[u64; 2]]> {
    // SAFETY: zeros are a value.
    let mut list = unsafe { arena::List::<[u64; 2]>::new(PIECES_MAX)? };
    for mapping in mappings {
        scan.for_each(mapping, |range| {
            list.push([range.start, range.end], "pieces of memory")
        })?;
    }
    Ok(list.into_static())
}

/// What is known of the rounds before the last one, if there were any.
#[derive(Clone, Copy, Default)]
struct Since<'a> {
    /// What they have left to it, if it is known what was written since.
    missed: Option<&'a [[u64; 2]]>,
    sent: &'a [[u64; 2]],
}

/// The memory to be saved, by address: all that has content, or after rounds what was written since,
/// and what these have missed. With `zeros` pages of zeros are left out that no round has sent, and
/// given back if they are spare. Says of each mapping whether that is most of it.
fn pieces(
    scan: &mut Pages,
    mappings: &mut [Mapping],
    since: Since<'_>,
    zeros: Option<Spare>,
) -> Outcome<arena::List<[u64; 2]>> {
    // SAFETY: zeros are a value.
    let mut list = unsafe { arena::List::<[u64; 2]>::new(PIECES_MAX)? };
    for mapping in mappings {
        let first = list.all().len();
        let mut add = |range: Range<u64>| list.push([range.start, range.end], "pieces of memory");
        let is_anonymous = memory::is_anonymous(mapping);
        let is_open = mapping.prot & libc::PROT_READ as u32 != 0;
        let missed = since.missed.filter(|_| is_anonymous);
        let zeros = zeros.filter(|_| is_anonymous && is_open);
        let mut add_worth = |range: Range<u64>| match zeros {
            // SAFETY: private, readable, and of no file.
            Some(spare) => unsafe {
                spare::without_zeros(range.clone(), range.start, since.sent, spare, &mut add)
            },
            None => add(range),
        };
        match missed.map(|missed| (missed, scan.written(mapping, &mut add_worth))) {
            // Watched since it was there.
            Some((missed, Ok(told))) => {
                told?;
                let from = missed.partition_point(|[_, end]| *end <= mapping.start);
                let to = missed.partition_point(|[start, _]| *start < mapping.end);
                for &[start, end] in &missed[from..to] {
                    let part = Mapping {
                        start: start.max(mapping.start),
                        end: end.min(mapping.end),
                        ..*mapping
                    };
                    scan.for_each(&part, &mut add)?;
                }
                if from < to {
                    list.join(first);
                }
            }
            // It is not watched.
            _ => scan.for_each(mapping, add_worth)?,
        }
        let bytes: u64 = list.all()[first..]
            .iter()
            .map(|[start, end]| end - start)
            .sum();
        mapping.flags &= !memory::OF_FILE;
        mapping.flags |= filling(mapping, bytes);
        if mapping.object_len == memory::FROM_FILE {
            mapping.object_len = 0;
        }
    }
    Ok(list)
}

/// How much of a mapping's memory is in the image, as flags of it.
pub fn filling(mapping: &Mapping, bytes: u64) -> u32 {
    let len = mapping.end - mapping.start;
    match len >= LARGE {
        true if bytes >= len / 16 * 15 => DENSE | FULL,
        true if bytes >= len / 4 * 3 => DENSE,
        _ => 0,
    }
}

/// Saves the memory of some mappings. Most can be read, and then what lies side by side in the list
/// is written in one go, so that two workers have enough to do.
fn pages(
    out: &mut Out,
    mappings: &[Mapping],
    pieces: &[[u64; 2]],
    wanted: impl Fn(&Mapping) -> bool,
) -> Outcome<()> {
    let mut run = 0..0;
    let mut at = 0;
    for mapping in mappings {
        let own = at..pieces.partition_point(|[start, _]| *start < mapping.end);
        at = own.end;
        if own.is_empty() || !wanted(mapping) {
            continue;
        }
        let is_open = mapping.prot & libc::PROT_READ as u32 != 0;
        if is_open && run.end == own.start {
            run.end = own.end;
            continue;
        }
        memory_of(out, &pieces[run])?;
        run = own;
        if !is_open {
            let opened = Opened::new(mapping);
            memory_of(out, &pieces[run])?;
            drop(opened);
            run = at..at;
        }
    }
    memory_of(out, &pieces[run])
}

fn memory_of(out: &mut Out, ranges: &[[u64; 2]]) -> Outcome<()> {
    // SAFETY: mapped, readable, and nobody else runs.
    unsafe { out.memory(ranges) }
}
