//! Saves a computation by a signal at random moments, and continues it from each image. Its result
//! must be that of a run without saves. `VM_STRESS_SAVES` is the number of saves; the default is
//! 25.

#[path = "zoo/run.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod run;

use run::{Ended, Running, User, start};
use std::{
    env, fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// The longest time from the start of a process to its save.
const PAUSE_MAX: Duration = Duration::from_millis(40);
/// The time limit for an image.
const IMAGE_MAX: Duration = Duration::from_secs(60);

/// The mode of the saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The process ends after the save.
    Exit,
    /// The process runs on until it is killed, when the image is there.
    Forked,
    /// Most of the memory is saved in pre-copy rounds; then the process ends.
    Rounds,
    /// Most of the memory is saved in pre-copy rounds, and a copy saves the rest. The process runs
    /// on until it is killed.
    RoundsForked,
}

impl Mode {
    fn words(self) -> &'static str {
        match self {
            Mode::Exit => "exit",
            Mode::Forked => "forked",
            Mode::Rounds => "rounds,exit",
            Mode::RoundsForked => "rounds,forked",
        }
    }

    fn ends(self) -> bool {
        matches!(self, Mode::Exit | Mode::Rounds)
    }
}

fn saves() -> u32 {
    match env::var("VM_STRESS_SAVES") {
        Ok(text) => text.parse().expect("VM_STRESS_SAVES is a number"),
        Err(_) => 25,
    }
}

/// A random pause. The seed is not fixed, because the moments depend on the scheduler anyway.
fn random_pause() -> Duration {
    let random = RandomState::new().build_hasher().finish();
    PAUSE_MAX.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

fn program(name: &str, rounds: u32) -> Command {
    let mut command = Command::new(run::zoo());
    command.arg(name).env("ZOO_ROUNDS", rounds.to_string());
    command
}

/// The result that a process prints. The process must succeed; `None` if it printed no result,
/// because it was saved.
fn result(running: Running) -> Option<String> {
    let ended = running.end();
    assert!(
        ended.status.success() && ended.errors.is_empty(),
        "{ended:?}"
    );
    result_of(&ended)
}

fn result_of(ended: &Ended) -> Option<String> {
    let line = ended
        .output
        .lines()
        .find(|line| line.starts_with("result "));
    line.map(str::to_owned)
}

struct Stress {
    mode: Mode,
    image: PathBuf,
    expected: String,
    saves: u32,
}

impl Stress {
    /// Saves the process after a random pause. Returns the result if the process printed one;
    /// otherwise the process has ended and its image is there.
    fn save(&mut self, mut running: Running) -> Option<String> {
        // The moment of the save is what is tested: this is no synchronisation.
        thread::sleep(random_pause());
        running.signal(vm_image::TRIGGER);
        if self.mode.ends() {
            return result(running);
        }
        let began = Instant::now();
        while !self.image.exists() {
            if running.has_said_all() {
                return result(running);
            }
            assert!(began.elapsed() < IMAGE_MAX, "no image; {}", self.error());
            thread::sleep(Duration::from_millis(1));
        }
        // The process may have printed the result before the save of the copy, and the copy would
        // not print it again.
        running.signal(libc::SIGKILL);
        result_of(&running.end())
    }

    fn error(&self) -> String {
        let path = self.image.with_extension("error");
        fs::read_to_string(path).unwrap_or_else(|_| "and no reason".to_owned())
    }

    /// Runs the computation from its start to its result, with saves in between.
    fn once(&mut self, mut command: Command, wanted: u32) {
        let mut running = start(&mut command, User::Same);
        assert_eq!(running.line().as_deref(), Some("ready\n"));
        loop {
            if self.saves == wanted {
                // The last process is not saved.
                let found = result(running).expect("a result");
                return assert_eq!(found, self.expected);
            }
            if let Some(found) = self.save(running) {
                // The process printed the result before it was saved, or after a save near its end.
                assert!(
                    !self.image.with_extension("error").exists(),
                    "{}",
                    self.error()
                );
                // The image may not exist.
                let _ = fs::remove_file(&self.image);
                return assert_eq!(found, self.expected, "after {} saves", self.saves);
            }
            self.saves += 1;
            let image = next_name(&self.image);
            running = start(&mut resume(&image), User::Same);
        }
    }
}

/// Renames the image, so that the next image can be told from it.
fn next_name(image: &Path) -> PathBuf {
    let taken = image.with_extension("taken");
    fs::rename(image, &taken).expect("the image is there");
    taken
}

/// A command that restores an image with the signal blocked: the signal may come before the handler
/// is there, and stays pending.
fn resume(image: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = run::restore(image);
    // SAFETY: bare system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, vm_image::TRIGGER);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        });
    }
    command
}

/// Repeats the computation until it was saved often enough.
fn check(name: &str, rounds: u32, mode: Mode) {
    let folder = run::open_folder();
    let left_alone = result(start(&mut program(name, rounds), User::Same));
    let mut stress = Stress {
        mode,
        image: folder.path().join("image"),
        expected: left_alone.expect("a result"),
        saves: 0,
    };
    let wanted = saves();
    let mut runs = 0;
    while stress.saves < wanted {
        let mut command = program(name, rounds);
        command.env("VM_IMAGE_FILE", &stress.image);
        command.env("VM_IMAGE_MODE", mode.words());
        stress.once(command, wanted);
        runs += 1;
        assert!(
            runs < 10 + wanted,
            "{runs} runs, but only {} saves",
            stress.saves
        );
    }
}

#[test]
fn one_thread_saved_at_any_moment_computes_the_same() {
    check("stress_alone", 400, Mode::Exit);
}

#[test]
fn one_thread_saved_at_any_moment_by_a_copy_computes_the_same() {
    check("stress_alone", 400, Mode::Forked);
}

#[test]
fn sixteen_threads_saved_at_any_moment_compute_the_same() {
    check("stress_threads", 400, Mode::Exit);
}

#[test]
fn sixteen_threads_saved_at_any_moment_by_a_copy_compute_the_same() {
    check("stress_threads", 400, Mode::Forked);
}

#[test]
fn one_thread_saved_in_rounds_at_any_moment_computes_the_same() {
    check("stress_alone", 400, Mode::Rounds);
}

#[test]
fn one_thread_saved_in_rounds_and_by_a_copy_computes_the_same() {
    check("stress_alone", 400, Mode::RoundsForked);
}

#[test]
fn sixteen_threads_saved_in_rounds_at_any_moment_compute_the_same() {
    check("stress_threads", 400, Mode::Rounds);
}

#[test]
fn sixteen_threads_saved_in_rounds_and_by_a_copy_compute_the_same() {
    check("stress_threads", 400, Mode::RoundsForked);
}
