//! The order of a save of this process.
//!
//! 1. `save_alone`: while the program runs, everything that takes long is read, and what cannot be
//!    saved is refused ([`check`]).
//! 2. `frozen`: all threads are stopped, and the state of the process is captured.
//! 3. `write`: the image is written by this process or by a forked copy of it.
//!
//! A save in pre-copy rounds sends memory before that: [`begin_rounds`], then [`save_rest`].
//!
//! **Runs in signal handlers**: except for [`save`](crate::save()), everything here allocates
//! nothing and locks nothing.

use crate::{
    capture::{
        blocked_signals, droppable, facts,
        file_content::KnownSums,
        file_locks::{self, Lock},
        files::{self, FileOptions},
        mappings::{self, Listing},
        memory_advice::{self, Advice},
        names::Names,
        pages::Pages,
        process::{self, Process},
        refusals, rseq, stop, thread, thread_signals, vdso,
    },
    frozen::{
        arena,
        fault::{Outcome, refuse, refuse_now},
        memory_faults::FaultHandlers,
        scratch, turn,
    },
    options::{Moment, Options, Until},
    raw::{
        processor,
        records::{FILE, Facts, FileRecord, Mapping, SHARED},
        sys,
    },
    restore::resume,
    save::{
        forked_copy::in_copy,
        pieces,
        precopy::{self, EndNotice, SendJob},
        rounds::Rounds,
        spare::{Spare, Withheld},
        tables::Tables,
    },
};
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

/// A save that was requested.
#[derive(Debug, Clone, Copy)]
pub struct SaveRequest<'a> {
    /// The descriptor that the image is written to.
    pub image: i32,
    /// The options of the save.
    pub options: Options<'a>,
}

impl<'a> SaveRequest<'a> {
    /// A save whose image is written to the descriptor `image`.
    pub fn new(image: i32, options: Options<'a>) -> Self {
        SaveRequest { image, options }
    }

    /// The time limit for stopping all threads. Nanoseconds.
    fn limit_ns(&self) -> u64 {
        u64::try_from(self.options.limit.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The result of a save, in the process that was saved.
#[derive(Debug, Clone, Copy, Default)]
pub struct SaveResult {
    /// Size of the image. Bytes; 0 while a copy writes.
    pub bytes: u64,
    /// The freeze time. Nanoseconds.
    pub freeze_ns: u64,
    /// The process id of the copy that writes, or 0.
    pub writer: i32,
}

/// The two ways in which a call of a save returns.
#[derive(Debug, Clone, Copy)]
pub enum AfterSave {
    /// The call returned in the process that was saved.
    Saved(SaveResult),
    /// The call returned in the restored process.
    Restored,
}

struct Job<'a> {
    request: SaveRequest<'a>,
    /// Captured before the stop, because that takes long.
    advice: &'static [Advice],
    rounds: *mut Rounds,
    known: KnownSums,
    outcome: Outcome<SaveResult>,
}

static JOB: AtomicPtr<Job<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// Saves this process.
///
/// # Errors
/// A refusal, or a failed step. The process runs on as if no save had been requested.
pub fn save(request: SaveRequest<'_>) -> Outcome<AfterSave> {
    claim()?;
    let result = prepare().and_then(|()| save_alone(request, None, 0));
    if !matches!(result, Ok(AfterSave::Restored)) {
        turn::SAVE.give_back();
    }
    result
}

/// Begins a save in pre-copy rounds: a thread of its own sends memory while the program's threads
/// run. With `checked`, the state of the process is checked at once, and a refusal is returned here
/// instead of by [`save_rest`]. `tell` says how the end of the rounds is reported.
///
/// # Errors
/// As for [`save`].
pub fn begin_rounds(
    request: SaveRequest<'_>,
    until: Until,
    checked: bool,
    tell: EndNotice,
) -> Outcome<()> {
    claim()?;
    let begun = prepare().and_then(|()| {
        let mark = arena::mark();
        if checked {
            check(request, &mut KnownSums::new()?)?;
            // SAFETY: the tables of the check are not used any more.
            unsafe { arena::discard(mark) };
        }
        Ok(())
    });
    if begun.is_err() {
        turn::SAVE.give_back();
        return begun;
    }
    precopy::begin(SendJob {
        image: request.image,
        compress: request.options.compress,
        lend: request.options.lend,
        until,
        tell,
    });
    Ok(())
}

/// Finishes a save that [`begin_rounds`] began. With `one_more`, there is another round first if
/// the earlier rounds are over already. `sent` is called with the bytes of each round.
///
/// # Errors
/// As for [`save`].
pub fn save_rest(
    request: SaveRequest<'_>,
    one_more: bool,
    sent: impl FnOnce(&[u64]),
) -> Outcome<AfterSave> {
    let result = precopy::await_rounds(one_more).and_then(|mut rounds| {
        sent(precopy::sent());
        if let Some(rounds) = &mut rounds {
            rounds.go_on_at(request.image)?;
        }
        save_alone(request, rounds, scratch::sender_tid())
    });
    // A restored process has no thread that sends memory.
    if !matches!(result, Ok(AfterSave::Restored)) {
        give_up();
    }
    result
}

/// Gives up a save that was begun in rounds. Returns when the thread that sends memory has ended.
pub fn give_up() {
    precopy::end();
    turn::SAVE.give_back();
}

/// Gives up a save in rounds if the thread that sent memory has ended too early. Returns whether it
/// had.
pub fn give_up_if_ended() -> bool {
    let ended = precopy::was_ended();
    if ended {
        turn::SAVE.give_back();
    }
    ended
}

/// Takes the right to save, which one save at a time has.
fn claim() -> Outcome<()> {
    match turn::SAVE.take() {
        true => Ok(()),
        false => refuse_now!("another save of this process is under way"),
    }
}

/// Reserves the memory that a save needs.
pub fn prepare() -> Outcome<()> {
    arena::reset()?;
    scratch::reserve()
}

/// Checks, stops all threads, and saves. `left_out` is the id of the thread that sends memory,
/// which is not stopped, or 0.
fn save_alone(
    request: SaveRequest<'_>,
    rounds: Option<&mut Rounds>,
    left_out: i32,
) -> Outcome<AfterSave> {
    let advice = memory_advice::capture()?;
    let mut known = KnownSums::new()?;
    let mark = arena::mark();
    check(request, &mut known)?;
    blocked_signals::refuse_any(request.limit_ns(), left_out)?;
    // Read while the program runs, because CPUID is slow on virtual machines.
    processor::known();
    // SAFETY: the tables of the check are not used any more.
    unsafe { arena::discard(mark) };
    let restores = thread::restores();
    let mut job = Job {
        request,
        advice,
        rounds: rounds.map_or(std::ptr::null_mut(), |rounds| rounds),
        known,
        outcome: refuse!("no thread could save"),
    };
    JOB.store((&raw mut job).cast(), SeqCst);
    stop::with_stopped(work, request.limit_ns(), left_out)?;
    if thread::restores() != restores {
        return Ok(AfterSave::Restored);
    }
    // SAFETY: the tables of the save are not used any more.
    unsafe { arena::discard(mark) };
    // SAFETY: `work` wrote the outcome, in this thread.
    unsafe { (&raw const job.outcome).read_volatile() }.map(AfterSave::Saved)
}

/// Whether this process could be saved now. Reads the open files for their checksums, which may
/// take long; `known` keeps the checksums for the save.
///
/// # Errors
/// The first refusal that is found.
pub fn check(request: SaveRequest<'_>, known: &mut KnownSums) -> Outcome<()> {
    refusals::check()?;
    vdso::find()?;
    process::check()?;
    let mut names = Names::new(request.options.folders)?;
    let locks = file_locks::capture()?;
    let files = files::capture(file_options(request, locks), &mut names, known)?;
    let mappings = mappings::mappings(&mut names, Listing::Stopped, files)?;
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

fn file_options<'a>(request: SaveRequest<'a>, locks: &'a [Lock]) -> FileOptions<'a> {
    FileOptions {
        image: request.image,
        own: request.options.own,
        locks,
        carry: request.options.carry,
        checked_max: request.options.checked_max,
    }
}

/// The work of the saving thread in its signal handler, while all other threads are stopped.
extern "C" fn work() {
    // The kernel writes into the registered memory whenever the thread changes its processor.
    let was_registered = rseq::leave();
    // SAFETY: there is one save at a time, and the stack was reserved.
    unsafe { scratch::call(work_aside) };
    if was_registered {
        rseq::enter();
    }
}

extern "C" fn work_aside() {
    // SAFETY: `save_alone` waits in this very thread. The job is copied before use, because the
    // original is in the image.
    let job = unsafe { &mut *JOB.load(SeqCst) };
    // SAFETY: null, or owned by the thread that sent memory, which waits until this function
    // returns.
    let rounds = unsafe { job.rounds.as_mut() };
    job.outcome = frozen(job.request, job.advice, rounds, &mut job.known);
}

fn frozen(
    request: SaveRequest<'_>,
    advice: &'static [Advice],
    rounds: Option<&mut Rounds>,
    known: &mut KnownSums,
) -> Outcome<SaveResult> {
    let began = sys::clock_ns(libc::CLOCK_MONOTONIC);
    if let Some(hold) = request.options.hold {
        hold(Moment::Stopped);
    }
    thread_signals::check()?;
    let mut signals = process::no_signals()?;
    let written = process::capture(request.options.folders, &mut signals).and_then(|process| {
        let _handlers = FaultHandlers::begin()?;
        write(request, advice, rounds, known, process)
    });
    if let (Ok((bytes, writer)), Some(hold)) = (&written, request.options.hold) {
        let (bytes, writer) = (*bytes, *writer);
        let ns = sys::clock_ns(libc::CLOCK_MONOTONIC) - began;
        hold(Moment::Saved { bytes, ns, writer });
    }
    stop::put_back_at_end(&signals);
    let (bytes, writer) = written?;
    Ok(SaveResult {
        bytes,
        freeze_ns: sys::clock_ns(libc::CLOCK_MONOTONIC) - began,
        writer,
    })
}

/// Writes the image. In a forked save, writes only what the copy cannot write, starts the copy, and
/// returns its process id.
fn write(
    request: SaveRequest<'_>,
    advice: &'static [Advice],
    rounds: Option<&mut Rounds>,
    known: &mut KnownSums,
    process: &'static Process,
) -> Outcome<(u64, i32)> {
    let mut names = Names::new(request.options.folders)?;
    let all_locks = file_locks::capture()?;
    let files = files::capture(file_options(request, all_locks), &mut names, known)?;
    let locks = file_locks::of(all_locks, files)?;
    let mappings = mappings::mappings(&mut names, Listing::Stopped, files)?;
    // SAFETY: zeros are values of all fields.
    let kept = unsafe { arena::take::<Mapping>(mappings.len())? };
    kept.copy_from_slice(mappings);
    let facts = facts::facts(process, &mut names)?;
    let records = facts::thread_records()?;
    // SAFETY: the place is written before it is read.
    let place = unsafe { &mut arena::take::<std::mem::MaybeUninit<resume::ResumePlan>>(1)?[0] };
    let plan = place.write(resume::ResumePlan {
        process,
        threads: stop::threads(),
        files,
        carry: request.options.carry,
        locks,
        mappings: kept,
        advice,
        droppable: droppable::find(kept, advice)?,
        // The guard pages are found together with the pages that have content.
        guards: &[],
        // SAFETY: the names stay in the arena.
        names: unsafe { std::slice::from_raw_parts(names.all().as_ptr(), names.all().len()) },
        memory: facts.memory,
        image: request.image,
        own: std::array::from_fn(|index| request.options.own.get(index).copied().unwrap_or(-1)),
        hold: request.options.hold,
        comm: facts::comm()?,
    });
    let facts = Facts {
        argument: &raw const *plan as u64,
        entry: resume::entry as *const () as u64,
        stack: resume::stack_top() as u64,
        ..facts
    };
    // From here on, this process writes to no memory whose content the image needs.
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
    if request.options.forked && rounds.is_none() && !is_shared && !is_carried {
        // The copy writes the whole image and also looks for zeros, which may take long. But each
        // page that the copy has may cost the program a page fault.
        let spare = Spare::of(mappings)?;
        let withheld = Withheld::of(mappings, spare)?;
        let writer = in_copy(request.image, advice, withheld, || {
            let (mut out, pieces) =
                tables.write(request.image, request.options, None, mappings, Some(spare))?;
            out.give_back(spare);
            pieces::pages(&mut out, mappings, pieces, |_| true)?;
            out.finish()
        });
        if let Some(writer) = writer {
            return Ok((0, writer));
        }
    }
    if let (true, Some(hold)) = (request.options.forked, request.options.hold) {
        hold(Moment::Writes);
    }
    let spare = Spare::of(mappings)?;
    // A forked save skips the search for zeros here, because it would make the freeze time longer.
    let zeros = (!request.options.forked).then_some(Spare::default());
    let (mut out, pieces) =
        tables.write(request.image, request.options, rounds, mappings, zeros)?;
    if request.options.forked {
        // A fork does not copy shared memory.
        pieces::pages(&mut out, mappings, pieces, |mapping| mapping.kind == SHARED)?;
        let mut rest = |spare| {
            out.give_back(spare);
            pieces::pages(&mut out, mappings, pieces, |mapping| mapping.kind != SHARED)?;
            out.finish()
        };
        return match in_copy(request.image, advice, Withheld::default(), || rest(spare)) {
            Some(writer) => Ok((0, writer)),
            None => Ok((rest(Spare::default())?, 0)),
        };
    }
    pieces::pages(&mut out, mappings, pieces, |_| true)?;
    Ok((out.finish()?, 0))
}
