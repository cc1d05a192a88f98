//! Tests with a process that saves itself on command: its open files, and saves that fail halfway.

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

/// Makes a named pipe.
fn make_pipe(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RWXU, 0).expect("a pipe");
}

/// A process that executes the commands it reads.
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

    /// Restores the process of an image.
    fn restore(image: &Path) -> Self {
        Saver::of(
            Command::new(run::example("saver"))
                .arg("restore")
                .arg(image),
        )
    }

    /// Restores the process of an image, and rolls back its files.
    fn roll_back(image: &Path) -> Self {
        let mut command = Command::new(run::example("saver"));
        Saver::of(command.arg("restore").arg(image).arg("roll-back"))
    }

    /// Sends a command, and returns the reply.
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

    /// Closes the input of the process, and waits for its end.
    fn end(self) -> Ended {
        self.0.end()
    }
}

/// The summary of an image, if the image is whole.
fn verify(image: &Path) -> Result<Summary, ImageError> {
    Summary::read(File::open(image).expect("an image"))
}
