//! Handles the signal that requests an image, in a program that does not call this library.
//!
//! A program into which this library was loaded by `LD_PRELOAD` saves itself when it gets
//! [`TRIGGER`] from a [`Request`](crate::Request), which says where the image goes and how it is
//! saved. `vm image save` makes such requests.
//!
//! A program that contains this library, linked or by `LD_PRELOAD`, and has `VM_IMAGE_FILE=PATTERN`
//! in its environment saves itself to that file when any sender sends it the signal. The image gets
//! that name when it is whole; until then it is in a part file ([`crate::trigger::image_path`]). If
//! the save fails, the reason is in `FILE.error`. `VM_IMAGE_MODE` has the modes, separated by
//! commas: `rounds`, most of the memory is written while the program runs; `forked`, a copy writes
//! the rest; `exit`, the program ends after the save; `carry`, the image carries the content of
//! open files.
//!
//! **Runs in signal handlers**: nothing here allocates or locks. The code before `main` does not
//! allocate either, because the program's own `malloc` may not be ready.

use crate::{
    frozen::{
        fault::{Fault, Outcome, Shown, Text, refuse},
        interpose,
        signal::{self, TRIGGER},
        turn,
    },
    options::{Carry, Options, Until},
    raw::sys,
    restore::{resume, start},
    save::{
        forked_copy,
        precopy::{self, EndNotice},
        sequence::{self, AfterSave, SaveRequest, SaveResult},
    },
    trigger::{
        image_path::{ImagePath, PATTERN_MAX},
        packet::{self, Modes},
        request_error::LIBRARY,
        requester::Requester,
    },
};
use std::{
    ffi::CStr,
    os::raw::c_char,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// The pattern for the names of images, ended by NUL; empty: no pattern.
static mut PATTERN: [u8; PATTERN_MAX] = [0; PATTERN_MAX];
/// The modes of saves to files of that pattern: bits of [`Modes`].
static MODES: AtomicU32 = AtomicU32::new(0);
/// The save whose rounds are under way: the token of its request, or 0; the number of its part
/// file.
static BEGUN: (AtomicU64, AtomicU64) = (AtomicU64::new(0), AtomicU64::new(0));

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    start::become_other();
    // SAFETY: the program has one thread yet.
    let variable = |name: &CStr| unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    };
    let preloaded = variable(c"LD_PRELOAD").unwrap_or_default();
    let is_preloaded = preloaded
        .windows(LIBRARY.len())
        .any(|part| part == LIBRARY.as_bytes());
    let pattern = variable(c"VM_IMAGE_FILE").filter(|pattern| !pattern.is_empty());
    if pattern.is_none() && !is_preloaded {
        return;
    }
    if let Some(pattern) = pattern.filter(|pattern| pattern.len() < PATTERN_MAX) {
        // SAFETY: no other thread exists, and the handler is not installed yet.
        let place = unsafe {
            let at = &raw mut PATTERN;
            &mut *at
        };
        place[..pattern.len()].copy_from_slice(pattern);
    } else if pattern.is_some() {
        say(&Text::of(format_args!("VM_IMAGE_FILE is too long")));
    }
    let words = variable(c"VM_IMAGE_MODE").unwrap_or_default();
    let words = words.split(|byte| *byte == b',');
    for word in words.filter(|word| !word.is_empty()) {
        match Modes::of_word(word) {
            Some(mode) => MODES.store(MODES.load(Relaxed) | mode.bits(), Relaxed),
            None => say(&Text::of(format_args!(
                "VM_IMAGE_MODE: unknown mode '{}'; the modes are forked, exit, rounds, carry",
                Shown(word)
            ))),
        }
    }
    resume::look_up();
    interpose::keep_open(TRIGGER);
    // If this fails, the program runs without the handler, and a requester gets an error.
    let _ = signal::install_at(TRIGGER, on_trigger);
}

extern "C" fn on_trigger(_: i32, info: *mut libc::siginfo_t, _: *mut libc::ucontext_t) {
    if precopy::is_told(info) {
        return write_rest();
    }
    let target = match packet::token_of(info) {
        0 => Target::of_pattern(),
        // The requester may be gone: then no image is wanted.
        token => match Requester::connect(token) {
            Some(requester) => Ok(Target::Requester(requester)),
            None => return,
        },
    };
    let mut target = match target {
        Ok(target) => target,
        Err(fault) => return say(&fault.text()),
    };
    if !turn::TRIGGER.take() && !sequence::give_up_if_ended() {
        // Another save is refused until the image has its name.
        let text = format_args!("another save of this process is under way");
        return target.fail(&Fault::Refused(Text::of(text)));
    }
    let step = match target.modes().has(Modes::ROUNDS) {
        true => target.begin_rounds(),
        false => target.save(),
    };
    finish(target, step);
}

/// Writes the rest of the image, when the rounds are over.
fn write_rest() {
    let target = match BEGUN.0.load(Relaxed) {
        0 => Target::of_pattern(),
        token => match Requester::connect(token) {
            Some(requester) => Ok(Target::Requester(requester)),
            None => refuse!("the requester is gone"),
        },
    };
    match target {
        Ok(mut target) => {
            let step = target.save_rest();
            finish(target, step);
        }
        Err(_) => {
            sequence::give_up();
            turn::TRIGGER.give_back();
        }
    }
}

fn finish(mut target: Target, step: Outcome<End>) {
    match step {
        // After a restore, another thread may be saving already. After the beginning of rounds, the
        // turn is kept until the rounds are over.
        Ok(End::Restored | End::Begun) => return,
        Ok(End::Saved(saved)) => target.succeed(saved),
        Err(fault) => target.fail(&fault),
    }
    turn::TRIGGER.give_back();
}

/// The result of a step.
enum End {
    /// The rounds have begun.
    Begun,
    Saved(SaveResult),
    Restored,
}

/// The destination of an image, and of the report on the save.
#[expect(clippy::large_enum_variant, reason = "there is no allocator")]
enum Target {
    /// The file of this name, and the number of its part file.
    File(ImagePath, Option<u64>),
    /// The requester, which has made a file.
    Requester(Requester),
}

impl Target {
    fn of_pattern() -> Outcome<Self> {
        // SAFETY: no code writes the pattern any more.
        let pattern = unsafe {
            let at = &raw const PATTERN;
            &*at
        };
        let len = pattern.iter().position(|byte| *byte == 0).unwrap_or(0);
        match len {
            0 => refuse!("signal {TRIGGER} requests an image, and VM_IMAGE_FILE is not set"),
            len => Ok(Target::File(ImagePath::of(&pattern[..len])?, None)),
        }
    }

    fn modes(&self) -> Modes {
        match self {
            Target::File(..) => Modes::from_bits(MODES.load(Relaxed)),
            Target::Requester(requester) => requester.modes(),
        }
    }

    /// Opens the destination.
    fn open(&mut self) -> Outcome<i32> {
        match self {
            Target::File(path, number) => {
                // The error of an earlier save does not hold any more.
                path.error()?.remove();
                let (image, made) = path.make_part()?;
                *number = Some(made);
                Ok(image)
            }
            Target::Requester(requester) => requester.take_image(),
        }
    }

    /// Calls `work` with a request for the descriptor `image`, and closes the descriptor.
    fn with<T>(
        &mut self,
        image: i32,
        work: impl FnOnce(SaveRequest<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let own = match self {
            Target::File(..) => [-1],
            Target::Requester(requester) => [requester.socket()],
        };
        let modes = self.modes();
        let options = Options {
            forked: modes.has(Modes::FORKED),
            carry: match modes.has(Modes::CARRY) {
                true => Carry::All,
                false => Carry::Nothing,
            },
            own: &own,
            ..Options::default()
        };
        let result = work(SaveRequest::new(image, options));
        sys::close(image);
        result
    }

    fn save(&mut self) -> Outcome<End> {
        let image = self.open()?;
        self.with(image, sequence::save).and_then(end_of)
    }

    /// The sending thread has the file open; the program has no descriptor for it during the
    /// rounds.
    fn begin_rounds(&mut self) -> Outcome<End> {
        let image = self.open()?;
        let (token, number) = match self {
            Target::File(_, number) => (0, number.unwrap_or(0)),
            Target::Requester(requester) => (requester.token(), 0),
        };
        BEGUN.0.store(token, Relaxed);
        BEGUN.1.store(number, Relaxed);
        self.with(image, |request| {
            sequence::begin_rounds(request, Until::default(), true, EndNotice::Signal(TRIGGER))
        })?;
        if let Target::Requester(requester) = self {
            requester.say_begun();
        }
        Ok(End::Begun)
    }

    fn save_rest(&mut self) -> Outcome<End> {
        let image = match self {
            Target::File(path, number) => {
                let begun = BEGUN.1.load(Relaxed);
                *number = Some(begun);
                path.open_part(begun)
            }
            Target::Requester(requester) => requester.take_image(),
        };
        let image = image.inspect_err(|_| sequence::give_up())?;
        let rest = |request: SaveRequest<'_>| sequence::save_rest(request, false, |_| ());
        self.with(image, rest).and_then(end_of)
    }

    /// Gives the image its name, or reports it to the requester. Ends the process in the mode for
    /// that.
    fn succeed(&mut self, saved: SaveResult) {
        let exits = self.modes().has(Modes::EXIT);
        let is_named = match self {
            Target::File(path, number) => {
                let named = number.map_or(Ok(()), |number| path.take_part(number));
                if let Err(fault) = named {
                    return self.fail(&fault);
                }
                true
            }
            Target::Requester(requester) => requester.say_saved(saved, exits),
        };
        if exits && is_named {
            // Ends without flushing: buffered output is in the image, and must not be written
            // twice.
            sys::exit_group(0);
        }
    }

    /// Reports why there is no image.
    fn fail(&mut self, fault: &Fault) {
        match self {
            Target::File(path, number) => {
                number.iter().for_each(|number| path.remove_part(*number));
                let text = Text::of(format_args!("{}\n", fault.text().as_str()));
                let told = path.error().and_then(|path| path.write(&text));
                if told.is_err() {
                    say(&fault.text());
                }
            }
            Target::Requester(requester) => requester.say_refused(&fault.text()),
        }
    }
}

/// Waits for the copy that writes the image, if there is one.
fn end_of(now: AfterSave) -> Outcome<End> {
    match now {
        AfterSave::Restored => Ok(End::Restored),
        AfterSave::Saved(saved) => {
            if saved.writer != 0 {
                forked_copy::finish(saved.writer)?;
            }
            Ok(End::Saved(saved))
        }
    }
}

fn say(text: &Text) {
    let line = Text::of(format_args!("vm-image: {}\n", text.as_str()));
    // There is no other place for a report that cannot be written.
    let _ = sys::write(2, line.as_str().as_bytes());
}
