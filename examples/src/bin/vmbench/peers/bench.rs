//! The turns of ours and of the peers.

use super::{
    found::Peer,
    launch::{self, LaunchError},
    measured::{Beside, Measured},
    works::{RESULT, Work},
};
use crate::rows::median;
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};
use tempfile::TempDir;
use vm_examples::cluster::{Cluster, Interrupt, Programs, Watched};

/// The program of the peers.
const MPI: &str = include_str!("../../../../peers/mpi.c");
/// Bound on the time of one turn of one side.
const LIMIT: Duration = Duration::from_secs(60);
/// Time of the operations of a turn, at which their number aims. Microseconds.
const TURN_MICROS: f64 = 300_000.0;
/// The part of the operations of a turn that the first turn does.
const FIRST_TURN: usize = 50;

/// The machine, the peers and the options that all works share.
pub struct Bench<'a> {
    cluster: Cluster,
    peers: Vec<Built<'a>>,
    cores: usize,
    turns: u32,
    interrupt: &'a Interrupt,
}

impl<'a> Bench<'a> {
    /// Starts a machine, and builds the program of each peer.
    pub fn new(
        peers: &'a [Peer],
        programs: &Programs,
        turns: u32,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let built = peers.iter().map(|peer| Built::new(peer, interrupt));
        Ok(Bench {
            peers: built.collect::<Result<_>>()?,
            cluster: Cluster::start(programs, &["nodeA"], interrupt)?,
            cores: thread::available_parallelism()?.get(),
            turns,
            interrupt,
        })
    }

    /// Stops the machine.
    pub fn end(self) -> Result<()> {
        self.cluster.halt()
    }

    /// Measures a work of ours and of some of the peers. The sides take turns.
    pub fn measure(&self, work: &Work, peers: &[usize]) -> Result<Measured> {
        let mut ours = Times::new(work);
        let mut theirs = Vec::from_iter(peers.iter().map(|_| Some(Times::new(work))));
        for _ in 0..=self.turns {
            ours.add(self.ours(work, ours.count)?);
            for (peer, times) in peers.iter().zip(&mut theirs) {
                if let Some(old) = times {
                    match self.peer(&self.peers[*peer], work, old.count)? {
                        Some(micros) => old.add(micros),
                        None => *times = None,
                    }
                }
            }
        }
        let beside = peers.iter().zip(theirs).map(|(peer, times)| {
            let peer = self.peers[*peer].peer;
            Beside {
                name: peer.name.clone(),
                micros: times.map(Times::median),
                has_goals: peer.has_goals(),
            }
        });
        Ok(Measured {
            work: work.clone(),
            ours: ours.median(),
            peers: beside.collect(),
        })
    }

    /// One turn of ours: microseconds for each operation.
    fn ours(&self, work: &Work, count: usize) -> Result<f64> {
        let mut run = self.cluster.console();
        run.args(["run", "--no-terminal", "vmbench", "work"]);
        run.args(work.words(count)).arg(work.tasks.to_string());
        let mut run = Watched::start(run, self.interrupt)?;
        let (_, line) = run.line(RESULT, LIMIT)?;
        let (status, _) = run.end(LIMIT)?;
        ensure!(status.success(), "the master ended with {status}");
        let micros = work.micros(&line, count);
        micros.with_context(|| format!("the master has printed: {line}"))
    }

    /// One turn of a peer: microseconds for each operation; none if it has failed.
    fn peer(&self, built: &Built<'_>, work: &Work, count: usize) -> Result<Option<f64>> {
        let Some(program) = &built.program else {
            return Ok(None);
        };
        let mut launch = self.launch(built, program, work);
        launch.args(work.words(count));
        let output = launch::run(&mut launch, LIMIT, self.interrupt);
        let Some(output) = unless_failed(built.peer, &work.name, output)? else {
            return Ok(None);
        };
        let micros = work.micros(&output, count);
        if micros.is_none() {
            eprintln!("{}, {}: no result in: {output}", built.peer.name, work.name);
        }
        Ok(micros)
    }

    fn launch(&self, built: &Built<'_>, program: &Path, work: &Work) -> Command {
        let mut launch = built.peer.launch(program, work.tasks, self.cores);
        launch.env("TMPDIR", built.folder.path());
        launch
    }
}

/// A peer with its program.
struct Built<'a> {
    peer: &'a Peer,
    /// None if the build has failed, which was reported.
    program: Option<PathBuf>,
    /// Holds the program, and the temporary files of the peer.
    folder: TempDir,
}

impl<'a> Built<'a> {
    fn new(peer: &'a Peer, interrupt: &Interrupt) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vm").tempdir()?;
        let (source, program) = (folder.path().join("mpi.c"), folder.path().join("works"));
        fs::write(&source, MPI)?;
        let mut build = peer.build(&source, &program);
        let built = launch::run(&mut build, LIMIT, interrupt);
        let built = unless_failed(peer, "the build", built)?;
        Ok(Built {
            peer,
            program: built.map(|_| program),
            folder,
        })
    }
}

/// The output of a peer; none if it has failed, which is reported.
fn unless_failed(
    peer: &Peer,
    what: &str,
    output: Result<String, LaunchError>,
) -> Result<Option<String>> {
    match output {
        Ok(output) => Ok(Some(output)),
        Err(LaunchError::Interrupted) => bail!("interrupted"),
        Err(error) => {
            eprintln!("{}, {what}: {error}", peer.name);
            Ok(None)
        }
    }
}

/// The figures of one side in its turns. Microseconds for each operation.
struct Times {
    times: Vec<f64>,
    /// Number of operations of the next turn.
    count: usize,
    count_max: usize,
    /// Whether the first turn is over.
    is_warm: bool,
}

impl Times {
    fn new(work: &Work) -> Self {
        Times {
            times: Vec::new(),
            count: work.count_max.div_ceil(FIRST_TURN),
            count_max: work.count_max,
            is_warm: false,
        }
    }

    fn add(&mut self, micros: f64) {
        if self.is_warm {
            self.times.push(micros);
        } else {
            self.is_warm = true;
            self.count = ((TURN_MICROS / micros) as usize).clamp(2, self.count_max);
        }
    }

    fn median(self) -> f64 {
        median(self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::works::{Kind, works},
        *,
    };
    use clap::ValueEnum;

    #[test]
    fn the_words_of_kinds_are_those_of_the_command_line_and_of_the_c_program() {
        for kind in Kind::value_variants() {
            let value = kind.to_possible_value().expect("no kind is skipped");
            assert_eq!(value.get_name(), kind.word());
            assert!(MPI.contains(&format!("{{\"{}\", ", kind.word())));
        }
    }

    #[test]
    fn the_first_turn_sets_the_number_of_operations_and_does_not_count() {
        let mut times = Times::new(&works()[0]);
        assert_eq!(times.count, 2000);
        times.add(100.0);
        assert_eq!(times.count, 3000);
        times.add(7.0);
        assert_eq!(times.count, 3000);
        assert_eq!(times.median(), 7.0);
        let mut slow = Times::new(&works()[0]);
        slow.add(1e9);
        assert_eq!(slow.count, 2);
    }
}
