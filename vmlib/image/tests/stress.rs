//! A computation is saved at moments that nobody chose, from outside, and goes on from each image;
//! its result is that of a run that was left alone. `VM_STRESS_SAVES` says how many saves; 25 by
//! default.

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

/// The longest time from a beginning to the save.
const PAUSE_MAX: Duration = Duration::from_millis(40);
/// How long an image may take.
const IMAGE_MAX: Duration = Duration::from_secs(60);

/// How the process is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It ends then.
    Exit,
    /// It goes on until it is killed, when the image is there.
    Forked,
    /// Most is saved while it computes on; then it ends.
    Rounds,
    /// The same, but a copy saves the rest, and it goes on until it is killed.
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

/// Numbers that differ from run to run; the moments are random anyway.
fn random_pause() -> Duration {
    let random = RandomState::new().build_hasher().finish();
    PAUSE_MAX.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

fn program(name: &str, rounds: u32) -> Command {
    let mut command = Command::new(run::zoo());
    command.arg(name).env("ZOO_ROUNDS", rounds.to_string());
    command
}

/// The result of a process that ends well; `None` if it says none, as it does when it was saved.
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
    /// Saves it a random time from now; then it has ended, or has the result.
    fn save(&mut self, mut running: Running) -> Option<String> {
        // The moment is what is tested; nobody waits for anything here.
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
        // It may have said the result when the copy was made, and the copy would not say it again.
        running.signal(libc::SIGKILL);
        result_of(&running.end())
    }

    fn error(&self) -> String {
        let path = self.image.with_extension("error");
        fs::read_to_string(path).unwrap_or_else(|_| "and no reason".to_owned())
    }

    /// From the beginning to the result, with saves between.
    fn once(&mut self, mut command: Command, wanted: u32) {
        let mut running = start(&mut command, User::Same);
        assert_eq!(running.line().as_deref(), Some("ready\n"));
        loop {
            if self.saves == wanted {
                // The last one is left alone.
                let found = result(running).expect("a result");
                return assert_eq!(found, self.expected);
            }
            if let Some(found) = self.save(running) {
                // It was done before it was saved; or it was saved, and had little left to do.
                assert!(
                    !self.image.with_extension("error").exists(),
                    "{}",
                    self.error()
                );
                // There may be none.
                let _ = fs::remove_file(&self.image);
                return assert_eq!(found, self.expected, "after {} saves", self.saves);
            }
            self.saves += 1;
            let image = next_name(&self.image);
            running = start(&mut resume(&image), User::Same);
        }
    }
}

/// Moves the image, so that the next one can be told from it.
fn next_name(image: &Path) -> PathBuf {
    let taken = image.with_extension("taken");
    fs::rename(image, &taken).expect("the image is there");
    taken
}

/// The signal may come at any moment from now on, even before there is a handler: it waits.
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

/// Runs it as often as it takes for all the saves.
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
