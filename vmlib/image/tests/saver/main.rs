//! A process that is told when to save itself: what becomes of the files that it has open, and of a
//! save that fails halfway.

mod broken;
mod files;
mod roll_back;
#[path = "../zoo/run.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod run;
mod spare;
mod trigger;

use run::{Ended, Running, User, start_with};
use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};
use vm_image::{format::ImageError, inspect::Summary};

/// A pipe with a name.
fn make_pipe(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RWXU, 0).expect("a pipe");
}

/// A process that waits for what it is told.
struct Saver(Running);

impl Saver {
    fn start(file: Option<&Path>) -> Self {
        let mut saver = Saver::of(Command::new(run::example("saver")).args(file));
        assert_eq!(saver.0.line().as_deref(), Some("ready\n"));
        saver
    }

    fn of(command: &mut Command) -> Self {
        Saver(start_with(command, User::Same, Stdio::piped()))
    }

    /// Brings one back.
    fn restore(image: &Path) -> Self {
        Saver::of(
            Command::new(run::example("saver"))
                .arg("restore")
                .arg(image),
        )
    }

    /// Brings one back, and its files with it.
    fn roll_back(image: &Path) -> Self {
        let mut command = Command::new(run::example("saver"));
        Saver::of(command.arg("restore").arg(image).arg("roll-back"))
    }

    /// Tells it something, and returns its answer.
    fn ask(&mut self, line: &str) -> String {
        self.0.say(line);
        self.heard()
    }

    fn heard(&mut self) -> String {
        let line = self.0.line().unwrap_or_default();
        line.trim_end().to_owned()
    }

    fn save(&mut self, image: &Path, words: &str) -> String {
        self.ask(&format!("save {} {words}", image.display()))
    }

    /// It ends when it is told no more.
    fn end(self) -> Ended {
        self.0.end()
    }
}

/// Whether an image is whole.
fn verify(image: &Path) -> Result<Summary, ImageError> {
    Summary::read(File::open(image).expect("an image"))
}
