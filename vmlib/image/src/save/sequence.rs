//! Saves this process: what is checked before anything stops, what is done while all are stopped,
//! and what a copy of the process does afterwards.
//!
//! **Runs in signal handlers**: but for [`save`](crate::save()) itself, which may, everything here
//! allocates nothing and locks nothing.

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
    /// The descriptor that the image goes to.
    pub image: i32,
    /// How the process is saved.
    pub options: Options<'a>,
}

impl<'a> SaveRequest<'a> {
    /// A save into `image`.
    pub fn new(image: i32, options: Options<'a>) -> Self {
        SaveRequest { image, options }
    }

    /// How long threads may take to stop. Nanoseconds.
    fn limit_ns(&self) -> u64 {
        u64::try_from(self.options.limit.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The result of a save.
#[derive(Debug, Clone, Copy, Default)]
pub struct SaveResult {
    /// Bytes of the image; 0 while a copy still writes.
    pub bytes: u64,
    /// How long the program was frozen. Nanoseconds.
    pub freeze_ns: u64,
    /// The copy that writes, or 0.
    pub writer: i32,
}

/// How the call of a save ends.
#[derive(Debug, Clone, Copy)]
pub enum AfterSave {
    /// In the process that was saved.
    Saved(SaveResult),
    /// In the restored process.
    Restored,
}

struct Job<'a> {
    request: SaveRequest<'a>,
    /// Asked for before the stop, because it takes long.
    advice: &'static [Advice],
    rounds: *mut Rounds,
    known: KnownSums,
    outcome: Outcome<SaveResult>,
}

static JOB: AtomicPtr<Job<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// Saves this process.
///
/// # Errors
/// What cannot be saved, or what failed. The process runs on as if no save had been requested.
pub fn save(request: SaveRequest<'_>) -> Outcome<AfterSave> {
    claim()?;
    let result = prepare().and_then(|()| save_alone(request, None, 0));
    if !matches!(result, Ok(AfterSave::Restored)) {
        turn::SAVE.give_back();
    }
    result
}

/// Begins to save this process: a thread of its own sends memory while all others run. With
/// `checked`, what could not be saved now is refused at once. `tell` says how the end of the rounds
/// is told.
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

/// Finishes a save that was begun in rounds; if they have been over for some time, perhaps with
/// another one before. `sent` is called with the bytes of each.
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
    // In a restored process there is no such thread.
    if !matches!(result, Ok(AfterSave::Restored)) {
        give_up();
    }
    result
}

/// Gives up a save that was begun in rounds, and waits until nothing of it is left.
pub fn give_up() {
    precopy::end();
    turn::SAVE.give_back();
}

/// Whether a save in rounds was given up just now, because the thread that sent memory was ended.
pub fn give_up_if_ended() -> bool {
    let ended = precopy::was_ended();
    if ended {
        turn::SAVE.give_back();
    }
    ended
}

/// Takes the turn to save.
fn claim() -> Outcome<()> {
    match turn::SAVE.take() {
        true => Ok(()),
        false => refuse_now!("another save of this process is under way"),
    }
}

/// Gets the memory that a save needs.
pub fn prepare() -> Outcome<()> {
    arena::reset()?;
    scratch::reserve()
}

/// `left_out` is a thread that is none of the program's, or 0.
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
    // Asked while the program still runs, because that is slow on virtual machines.
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
    // SAFETY: nor are those of the save.
    unsafe { arena::discard(mark) };
    // SAFETY: `work` wrote it, in this thread.
    unsafe { (&raw const job.outcome).read_volatile() }.map(AfterSave::Saved)
}

/// Whether this process could be saved now. Reads its files, which may take long.
///
/// # Errors
/// The first thing that cannot be saved.
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

/// All threads are stopped, and this is the handler of the one that saves.
extern "C" fn work() {
    // The kernel writes into that place whenever the thread changes its processor.
    let was_registered = rseq::leave();
    // SAFETY: one save at a time, and the stack was reserved.
    unsafe { scratch::call(work_aside) };
    if was_registered {
        rseq::enter();
    }
}

extern "C" fn work_aside() {
    // SAFETY: `save_alone` waits in this very thread. Copied: the original is in the image.
    let job = unsafe { &mut *JOB.load(SeqCst) };
    // SAFETY: null, or of the thread that sent memory, which waits until this is done.
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

/// Writes the image, or as much of it as has to be written before a copy goes on.
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
    // SAFETY: it is written before it is read.
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
        // They are found together with the pages that have content.
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
    if request.options.forked && rounds.is_none() && !is_shared && !is_carried {
        // The copy has all that there is to write, and time to look for it; but for each page that
        // it gets, the program may pay with a fault.
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
    // While the program waits for a copy, nobody looks for zeros: that takes time.
    let zeros = (!request.options.forked).then_some(Spare::default());
    let (mut out, pieces) =
        tables.write(request.image, request.options, rounds, mappings, zeros)?;
    if request.options.forked {
        // What is shared is not copied by a fork.
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
