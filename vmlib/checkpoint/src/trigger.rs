//! Saves a program that knows nothing of it: by a signal from outside.
//!
//! With `VM_CHECKPOINT_FILE=PATH` in its environment, a program that has this library in it - linked
//! or by `LD_PRELOAD` - saves itself to `PATH` whenever it gets [`TRIGGER`]. The image appears
//! under that name when it is whole; until then its name ends with `.part`. If the save fails, the
//! reason is in `PATH.error`. `VM_CHECKPOINT_MODE` has words with commas between: `forked`; or `exit`,
//! the program ends then; `carry`, the image has the content of open files.
//!
//! **Runs in signal handlers**: everything here allocates nothing and locks nothing, but what is
//! done before `main`.

use crate::{
    fault::{Fault, Outcome, Step as _, Text},
    raw::sys,
    restore, resume, save,
    save::{Now, Wanted},
    signal,
};
use std::{
    ffi::CStr,
    os::raw::c_char,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

/// The signal that asks for a save.
pub const TRIGGER: i32 = 61;

/// Bytes of the path with all that is added.
const PATH_MAX: usize = 1024;

/// Paths: whole, being written, error. Each ended by NUL.
struct Paths([[u8; PATH_MAX]; 3]);

static mut PATHS: Paths = Paths([[0; PATH_MAX]; 3]);
/// Whether somebody saves, or gives the image its name.
static UNDERWAY: AtomicBool = AtomicBool::new(false);
static MODE: AtomicU32 = AtomicU32::new(IN_PLACE);
static CARRY: AtomicBool = AtomicBool::new(false);

const IN_PLACE: u32 = 0;
const FORKED: u32 = 1;
const EXIT: u32 = 2;

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
    for word in mode.unwrap_or_default().split(|byte| *byte == b',') {
        match word {
            b"forked" => MODE.store(FORKED, Relaxed),
            b"exit" => MODE.store(EXIT, Relaxed),
            b"carry" => CARRY.store(true, Relaxed),
            _ => {}
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

extern "C" fn on_trigger(_: i32, _: *mut libc::siginfo_t, _: *mut libc::ucontext_t) {
    // SAFETY: nobody writes them any more.
    let [whole, part, error] = unsafe {
        let at = &raw const PATHS.0;
        &*at
    };
    // Until the image has its name, another save would write into the same file.
    if UNDERWAY.swap(true, SeqCst) {
        let text = format_args!("another save of this process is under way");
        return tell(error, &Fault::Refused(Text::of(text)));
    }
    match save_to(whole, part) {
        // Another thread may be saving here already.
        Ok(End::Back) => return,
        Ok(End::Saved) => {}
        Err(fault) => tell(error, &fault),
    }
    UNDERWAY.store(false, SeqCst);
}

/// The process was just brought back.
pub fn came_back() {
    UNDERWAY.store(false, SeqCst);
}

/// What a save came to.
enum End {
    Saved,
    Back,
}

fn save_to(whole: &[u8], part: &[u8]) -> Outcome<End> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let ended = |path: &[u8]| {
        path.iter()
            .position(|byte| *byte == 0)
            .map_or(0, |at| at + 1)
    };
    let part = &part[..ended(part)];
    let image = sys::open(part, flags, 0o600).step("opening the image's file")?;
    let mode = MODE.load(Relaxed);
    let result = save::save(Wanted {
        image,
        forked: mode == FORKED,
        compress: false,
        carry_files: CARRY.load(Relaxed),
        checked_max: u64::MAX,
        own: &[],
        limit_ns: 2_000_000_000,
        hold: None,
    });
    sys::close(image);
    let saved = match result? {
        Now::Back => return Ok(End::Back),
        Now::Here(saved) => saved,
    };
    if saved.writer != 0 {
        save::finish(saved.writer)?;
    }
    const RENAME: usize = 82;
    // SAFETY: both paths are ended by NUL.
    let renamed = unsafe { sys::call2(RENAME, part.as_ptr() as usize, whole.as_ptr() as usize) };
    sys::check(renamed).step("giving the image its name")?;
    if mode == EXIT {
        // What is buffered is in the image: nothing may be written twice.
        sys::exit_group(0);
    }
    Ok(End::Saved)
}

fn tell(path: &[u8], fault: &Fault) {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let len = path
        .iter()
        .position(|byte| *byte == 0)
        .map_or(0, |at| at + 1);
    if let Ok(fd) = sys::open(&path[..len], flags, 0o600) {
        let (Fault::Refused(text) | Fault::Failed(text, _)) = fault;
        // There is no other place to tell it.
        let _ = sys::write(fd, text.as_str().as_bytes());
        sys::close(fd);
    }
}
