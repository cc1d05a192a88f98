//! Saves a program that knows nothing of it: by a signal from outside.
//!
//! With `VM_CHECKPOINT_FILE=PATH` in its environment, a program that has this library in it - linked
//! or by `LD_PRELOAD` - saves itself to `PATH` whenever it gets [`TRIGGER`]. The image appears
//! under that name when it is whole; until then its name ends with `.part`. If the save fails, the
//! reason is in `PATH.error`. `VM_CHECKPOINT_MODE` says how, one or more of these with commas
//! between: `rounds`, most is written while the program runs; `forked`, a copy writes the rest;
//! `exit`, the program ends then; `carry`, the image has the content of open files.
//!
//! **Runs in signal handlers**: everything here allocates nothing and locks nothing, but what is
//! done before `main`.

use crate::{
    Carry, Until, copied,
    fault::{Fault, Outcome, Shown, Step as _, Text},
    precopy::{self, Tell},
    raw::sys,
    restore, resume, save,
    save::{Now, Turn, Wanted},
    signal,
};
use std::{
    ffi::CStr,
    os::raw::c_char,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// The signal that asks for a save.
pub const TRIGGER: i32 = 61;

/// Bytes of the path with all that is added.
const PATH_MAX: usize = 1024;

/// Paths: whole, being written, error. Each ended by NUL.
struct Paths([[u8; PATH_MAX]; 3]);

static mut PATHS: Paths = Paths([[0; PATH_MAX]; 3]);
/// Had until the image has its name.
static UNDERWAY: Turn = Turn::new();
static MODE: AtomicU32 = AtomicU32::new(0);

/// Bits of [`MODE`].
const MODES: [(&[u8], u32); 4] = [
    (b"forked", FORKED),
    (b"exit", EXIT),
    (b"rounds", ROUNDS),
    (b"carry", CARRY),
];
const FORKED: u32 = 1;
const EXIT: u32 = 2;
const ROUNDS: u32 = 4;
const CARRY: u32 = 8;

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    restore::become_other();
    // SAFETY: the program has one thread yet.
    let (path, mode) = unsafe {
        let variable = |name: &CStr| {
            let value: *const c_char = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
        };
        (
            variable(c"VM_CHECKPOINT_FILE"),
            variable(c"VM_CHECKPOINT_MODE"),
        )
    };
    let Some(path) = path.filter(|path| path.len() + 8 < PATH_MAX) else {
        return;
    };
    let words = mode.unwrap_or_default().split(|byte| *byte == b',');
    for word in words.filter(|word| !word.is_empty()) {
        match MODES.iter().find(|(name, _)| *name == word) {
            Some((_, bit)) => MODE.store(MODE.load(Relaxed) | bit, Relaxed),
            None => say(&Text::of(format_args!(
                "VM_CHECKPOINT_MODE: '{}' is not known; there are forked, exit, rounds, carry",
                Shown(word)
            ))),
        }
    }
    // SAFETY: no other thread is there, and the handler is not installed yet.
    let paths = unsafe {
        let at = &raw mut PATHS.0;
        &mut *at
    };
    for (room, end) in paths.iter_mut().zip([&b""[..], b".part", b".error"]) {
        room[..path.len()].copy_from_slice(path);
        room[path.len()..path.len() + end.len()].copy_from_slice(end);
    }
    resume::look_up();
    crate::interpose::link();
    // The program runs without it, and its user sees that no image comes.
    let _ = signal::install_at(TRIGGER, on_trigger);
}

extern "C" fn on_trigger(_: i32, info: *mut libc::siginfo_t, _: *mut libc::ucontext_t) {
    // SAFETY: nobody writes them any more.
    let [whole, part, error] = unsafe {
        let at = &raw const PATHS.0;
        &*at
    };
    let step = if precopy::is_told(info) {
        save_rest_to(whole, part)
    } else if !UNDERWAY.take() && !save::give_up_if_ended() {
        // Until the image has its name, another save would write into the same file.
        let text = format_args!("another save of this process is under way");
        return tell(error, &Fault::Refused(Text::of(text)));
    } else {
        // What an earlier one failed of is true no more.
        unlink(error);
        match MODE.load(Relaxed) & ROUNDS != 0 {
            true => begin_rounds_to(part),
            false => save_to(whole, part),
        }
    };
    match step {
        // Another thread may be saving here already; or the rounds tell their end.
        Ok(End::Back | End::Begun) => return,
        Ok(End::Saved) => {}
        Err(fault) => {
            unlink(part);
            tell(error, &fault);
        }
    }
    UNDERWAY.give_back();
}

/// The process was just brought back.
pub fn came_back() {
    UNDERWAY.give_back();
}

/// What a step came to.
enum End {
    /// The rounds have begun.
    Begun,
    Saved,
    Back,
}

/// The part of a path up to its NUL.
fn ended(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| *byte == 0);
    &path[..end.map_or(0, |at| at + 1)]
}

fn wanted(image: i32) -> Wanted<'static> {
    Wanted {
        image,
        forked: MODE.load(Relaxed) & FORKED != 0,
        compress: false,
        lend: false,
        folders: None,
        carry: match MODE.load(Relaxed) & CARRY {
            0 => Carry::Nothing,
            _ => Carry::All,
        },
        checked_max: u64::MAX,
        own: &[],
        limit_ns: 2_000_000_000,
        hold: None,
    }
}

fn open(part: &[u8], flags: i32) -> Outcome<i32> {
    let flags = flags | libc::O_RDWR | libc::O_CLOEXEC;
    sys::open(ended(part), flags, 0o600).step("opening the image's file")
}

fn save_to(whole: &[u8], part: &[u8]) -> Outcome<End> {
    let image = open(part, libc::O_CREAT | libc::O_TRUNC)?;
    let result = save::save(wanted(image));
    sys::close(image);
    name(result?, whole, part)
}

/// The thread that sends has the file open; the program has no descriptor for it meanwhile.
fn begin_rounds_to(part: &[u8]) -> Outcome<End> {
    let image = open(part, libc::O_CREAT | libc::O_TRUNC)?;
    let begun = save::begin_rounds(wanted(image), Until::default(), true, Tell::Signal(TRIGGER));
    sys::close(image);
    begun.map(|()| End::Begun)
}

fn save_rest_to(whole: &[u8], part: &[u8]) -> Outcome<End> {
    let image = open(part, 0).inspect_err(|_| save::give_up())?;
    let result = save::save_rest(wanted(image), false, |_| ());
    sys::close(image);
    name(result?, whole, part)
}

/// Gives an image its name when it is whole.
fn name(now: Now, whole: &[u8], part: &[u8]) -> Outcome<End> {
    let saved = match now {
        Now::Back => return Ok(End::Back),
        Now::Here(saved) => saved,
    };
    if saved.writer != 0 {
        copied::finish(saved.writer)?;
    }
    const RENAME: usize = 82;
    let (part, whole) = (
        ended(part).as_ptr() as usize,
        ended(whole).as_ptr() as usize,
    );
    // SAFETY: both paths are ended by NUL.
    let renamed = unsafe { sys::call2(RENAME, part, whole) };
    sys::check(renamed).step("giving the image its name")?;
    if MODE.load(Relaxed) & EXIT != 0 {
        // What is buffered is in the image: nothing may be written twice.
        sys::exit_group(0);
    }
    Ok(End::Saved)
}

fn unlink(path: &[u8]) {
    const UNLINK: usize = 87;
    // SAFETY: the path is ended by NUL. If it is not there, so much the better.
    unsafe { sys::call1(UNLINK, ended(path).as_ptr() as usize) };
}

/// Into the file for it; if there can be none, to whoever reads the program's errors.
fn tell(path: &[u8], fault: &Fault) {
    let (Fault::Refused(text) | Fault::Failed(text, _)) = fault;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    if let Ok(fd) = sys::open(ended(path), flags, 0o600) {
        let text = Text::of(format_args!("{}\n", text.as_str()));
        // There is no other place to tell it.
        let _ = sys::write(fd, text.as_str().as_bytes());
        sys::close(fd);
    } else {
        say(text);
    }
}

fn say(text: &Text) {
    let line = Text::of(format_args!("vm-checkpoint: {}\n", text.as_str()));
    // Nobody can be told if not so.
    let _ = sys::write(2, line.as_str().as_bytes());
}
