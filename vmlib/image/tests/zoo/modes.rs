//! The modes in which each program of the zoo is saved and restored.

use crate::run::{self, Ended, User, restore, start};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// The kind of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The program is restored while the saved process runs on.
    Copied,
    /// The program changes files when it runs on, so the saved process ends.
    Moved,
    /// The program itself tests that a save is refused.
    Refused,
}

struct Mode {
    name: &'static str,
    saves: u32,
    settings: &'static [(&'static str, &'static str)],
    foreign: bool,
}

const IN_PLACE: Mode = Mode {
    name: "in place",
    saves: 1,
    settings: &[],
    foreign: false,
};

const MODES: [Mode; 7] = [
    IN_PLACE,
    Mode {
        name: "moved",
        settings: &[("ZOO_LEAVE", "1")],
        ..IN_PLACE
    },
    Mode {
        name: "forked",
        settings: &[("ZOO_FORKED", "1")],
        ..IN_PLACE
    },
    Mode {
        name: "in rounds",
        saves: 2,
        settings: &[
            ("ZOO_SAVES", "2"),
            ("ZOO_IN_ROUNDS", "1"),
            ("ZOO_BUSY", "1"),
        ],
        ..IN_PLACE
    },
    Mode {
        name: "chain",
        saves: 3,
        settings: &[("ZOO_SAVES", "3")],
        ..IN_PLACE
    },
    Mode {
        name: "busy",
        settings: &[("ZOO_BUSY", "4")],
        ..IN_PLACE
    },
    Mode {
        name: "foreign vdso",
        saves: 2,
        settings: &[("ZOO_SAVES", "2")],
        foreign: true,
    },
];

/// A program of the zoo.
pub struct Program {
    /// The name that the program prints on success.
    pub name: &'static str,
    /// The file of the program.
    pub path: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
    /// The kind of the program.
    pub kind: Kind,
}

impl Program {
    /// A Rust program of the zoo.
    pub fn of_zoo(name: &'static str, kind: Kind) -> Self {
        Program {
            name,
            path: run::zoo(),
            arguments: vec![name.into()],
            kind,
        }
    }

    /// Runs the program in all modes, as an ordinary user and as the user of the tests.
    pub fn check(&self) {
        // SAFETY: the call only reads.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || !run::is_reachable(&self.path) {
            if is_root {
                println!(
                    "note: an ordinary user cannot reach {}",
                    self.path.display()
                );
            }
            self.modes()
                .for_each(|mode| self.check_in(mode, User::Same));
            return;
        }
        self.modes()
            .for_each(|mode| self.check_in(mode, User::Ordinary));
        self.check_in(&IN_PLACE, User::Same);
    }

    fn modes(&self) -> impl Iterator<Item = &'static Mode> {
        let is_wanted = |mode: &&Mode| self.kind != Kind::Refused || mode.name == IN_PLACE.name;
        MODES.iter().filter(is_wanted)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env("ZOO_IMAGE", folder.join("image"))
            .env("ZOO_FOLDER", folder);
        command
    }

    fn check_in(&self, mode: &Mode, user: User) {
        let folder = run::open_folder();
        let mut command = self.command(folder.path());
        command.envs(mode.settings.iter().copied());
        let leaves = self.kind == Kind::Moved || mode.name == "moved";
        if leaves {
            command.env("ZOO_LEAVE", "1");
        }
        let well = format!("ok {}", self.name);
        let expect = |step: &str, wanted: &str, ended: Ended| {
            let (name, mode) = (self.name, mode.name);
            assert!(
                ended.is_well(wanted),
                "{name}, {mode}, {user:?}, {step}: {ended:?}"
            );
        };
        let leaving = if leaves { "" } else { &well };
        let ended = start(&mut command, user).end();
        if self.kind == Kind::Refused {
            return expect("refused", &well, ended);
        }
        expect("saved", leaving, ended);
        for number in 1..=mode.saves {
            let mut command = restore(&folder.path().join(format!("image.{number}")));
            if mode.foreign {
                command.arg("foreign");
            }
            let wanted = if number < mode.saves { leaving } else { &well };
            expect(
                &format!("brought back {number}"),
                wanted,
                start(&mut command, user).end(),
            );
        }
    }
}
