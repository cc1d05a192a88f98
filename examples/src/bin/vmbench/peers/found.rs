//! Installations of MPI on this computer.

use super::launch;
use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use thiserror::Error;
use vm_examples::cluster::Interrupt;

/// The variable with prefixes of installations, separated like those of `PATH`.
pub const VARIABLE: &str = "VMBENCH_MPI";
/// The compiler and the launchers, in the folder `bin` of a prefix.
const COMPILER: &str = "mpicc";
const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];
/// The major version of Open MPI against which there are goals.
const GOAL_MAJOR: u32 = 5;
/// Bound on the time in which a launcher tells its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// Why an installation that was named cannot be used.
#[derive(Debug, Error)]
pub enum FindError {
    /// A program is missing.
    #[error(
        "{} has no program bin/{program}: name the prefix of an MPI with its compiler, \
         with --mpi DIR or in {VARIABLE}", prefix.display()
    )]
    Missing {
        prefix: PathBuf,
        program: &'static str,
    },
    /// The launcher does not tell its version.
    #[error("{} --version does not tell a version: {output}", launcher.display())]
    Version { launcher: PathBuf, output: String },
}

/// The implementations whose launchers are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    OpenMpi,
    /// MPICH, and its descendants with the launcher Hydra.
    Mpich,
    Other,
}

/// An installation of MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The implementation with its version, for people.
    pub name: String,
    family: Family,
    version: String,
    compiler: PathBuf,
    launcher: PathBuf,
}

impl Peer {
    /// The installation with that prefix.
    fn at(prefix: &Path, interrupt: &Interrupt) -> Result<Self, FindError> {
        Peer::in_folder(&prefix.join("bin"), interrupt).map_err(|error| match error {
            FindError::Missing { program, .. } => FindError::Missing {
                prefix: prefix.to_owned(),
                program,
            },
            error => error,
        })
    }

    /// The installation whose programs are in that folder.
    fn in_folder(bin: &Path, interrupt: &Interrupt) -> Result<Self, FindError> {
        let program = |names: &[&'static str]| {
            let mut paths = names.iter().map(|name| bin.join(name));
            paths.find(|path| path.is_file()).ok_or(FindError::Missing {
                prefix: bin.to_owned(),
                program: names[0],
            })
        };
        let (compiler, launcher) = (program(&[COMPILER])?, program(&LAUNCHERS)?);
        let mut ask = Command::new(&launcher);
        let output = launch::run(ask.arg("--version"), VERSION_LIMIT, interrupt);
        let output = output.unwrap_or_else(|error| error.to_string());
        let Some((family, version)) = version(&output) else {
            return Err(FindError::Version { launcher, output });
        };
        let name = match family {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
            Family::Other => "MPI",
        };
        Ok(Peer {
            name: format!("{name} {version}"),
            family,
            version: version.to_owned(),
            compiler,
            launcher,
        })
    }

    /// Whether the goals of rows are goals against this peer.
    pub fn has_goals(&self) -> bool {
        let major = self.version.split('.').next();
        self.family == Family::OpenMpi && major.and_then(|it| it.parse().ok()) == Some(GOAL_MAJOR)
    }

    /// The command that builds a C program.
    pub fn build(&self, source: &Path, program: &Path) -> Command {
        let mut command = Command::new(&self.compiler);
        command.arg("-O2").arg("-o").arg(program).arg(source);
        command
    }

    /// The command that runs a program in `tasks` processes on this computer, which has `cores`
    /// cores. No process is pinned to a core, as ours are not.
    pub fn launch(&self, program: &Path, tasks: usize, cores: usize) -> Command {
        let mut command = Command::new(&self.launcher);
        if self.family == Family::OpenMpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
            command.args(["--bind-to", "none"]);
            if tasks > cores {
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
        }
        command.args(["-n", &tasks.to_string()]).arg(program);
        command
    }
}

/// All peers: those at the prefixes, those that the variable names, and the one in `PATH`. Each
/// installation is found once.
///
/// # Errors
/// When an installation that was named cannot be used.
pub fn find(prefixes: &[PathBuf], interrupt: &Interrupt) -> Result<Vec<Peer>, FindError> {
    let variable = env::var_os(VARIABLE).unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(prefixes, &variable, &path, interrupt)
}

fn find_in(
    prefixes: &[PathBuf],
    variable: &OsStr,
    path: &OsStr,
    interrupt: &Interrupt,
) -> Result<Vec<Peer>, FindError> {
    let variable = env::split_paths(variable).filter(|prefix| !prefix.as_os_str().is_empty());
    let mut peers: Vec<Peer> = Vec::new();
    for prefix in prefixes.iter().cloned().chain(variable) {
        add(&mut peers, Peer::at(&prefix, interrupt)?);
    }
    let mut folders = env::split_paths(path);
    let folder = folders.find(|folder| folder.join(COMPILER).is_file());
    // Nobody has asked for the installation in PATH, so it may be incomplete.
    if let Some(Ok(peer)) = folder.map(|folder| Peer::in_folder(&folder, interrupt)) {
        add(&mut peers, peer);
    }
    Ok(peers)
}

/// Adds a peer whose programs are not those of another.
fn add(peers: &mut Vec<Peer>, peer: Peer) {
    let place = |peer: &Peer| peer.launcher.canonicalize().ok();
    if !peers.iter().any(|other| place(other) == place(&peer)) {
        peers.push(peer);
    }
}

/// The implementation and the version in the reply of a launcher to `--version`.
fn version(output: &str) -> Option<(Family, &str)> {
    let family = if output.contains("(Open MPI)") {
        Family::OpenMpi
    } else if output.contains("HYDRA build details") {
        Family::Mpich
    } else {
        Family::Other
    };
    let mut words = output.split_whitespace();
    let version = words.find(|word| {
        let digits = word.split('.').next().unwrap_or_default();
        word.contains('.') && digits.parse::<u32>().is_ok()
    })?;
    Some((family, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const OPEN_MPI: &str = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/";
    const HYDRA: &str = "HYDRA build details:\n    Version:    5.0.2\n    CC:    cc\n";

    /// A prefix with a compiler and a launcher that tells this version.
    fn installation(output: &str) -> tempfile::TempDir {
        let prefix = tempfile::tempdir().expect("a folder");
        let bin = prefix.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        let script = format!("#!/bin/sh\ncat <<'END'\n{output}\nEND\n");
        for name in [COMPILER, LAUNCHERS[1]] {
            fs::write(bin.join(name), &script).expect("a program");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(bin.join(name), mode).expect("its mode");
        }
        prefix
    }

    fn peer(prefix: &tempfile::TempDir) -> Peer {
        Peer::at(prefix.path(), &Interrupt::default()).expect("a peer")
    }

    fn find_with(
        prefixes: &[PathBuf],
        variable: &OsStr,
        path: &OsStr,
    ) -> Result<Vec<Peer>, FindError> {
        find_in(prefixes, variable, path, &Interrupt::default())
    }

    fn words(command: &Command) -> Vec<&str> {
        command.get_args().filter_map(OsStr::to_str).collect()
    }

    #[test]
    fn launchers_tell_their_versions() {
        assert_eq!(version(OPEN_MPI), Some((Family::OpenMpi, "5.0.11")));
        assert_eq!(version(HYDRA), Some((Family::Mpich, "5.0.2")));
        assert_eq!(version("Some MPI 1.2"), Some((Family::Other, "1.2")));
        assert_eq!(version("usage: mpirun"), None);
    }

    #[test]
    fn peers_are_found_once_each_in_prefixes_the_variable_and_path() {
        let (open, mpich) = (installation(OPEN_MPI), installation(HYDRA));
        let (other, none) = (installation("An MPI 1.0"), OsStr::new(""));
        let path = env::join_paths([none.into(), other.path().join("bin"), mpich.path().into()]);
        let path = path.expect("a path");
        let prefixes = [open.path().to_owned(), open.path().to_owned()];
        let peers = find_with(&prefixes, mpich.path().as_os_str(), &path).expect("peers");
        let names: Vec<_> = peers.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names, ["Open MPI 5.0.11", "MPICH 5.0.2", "MPI 1.0"]);
        assert_eq!(find_with(&[], none, none).expect("no peers"), []);
    }

    #[test]
    fn a_named_prefix_without_a_compiler_is_an_error_that_says_what_to_do() {
        let empty = tempfile::tempdir().expect("a folder");
        let error = find_with(&[empty.path().into()], OsStr::new(""), OsStr::new(""));
        let text = error.expect_err("it is empty").to_string();
        assert!(text.contains(&empty.path().display().to_string()), "{text}");
        assert!(
            text.contains("bin/mpicc") && text.contains("--mpi"),
            "{text}"
        );
    }

    #[test]
    fn the_processes_of_open_mpi_yield_when_they_are_more_than_the_cores() {
        let (open, mpich) = (installation(OPEN_MPI), installation(HYDRA));
        let open = peer(&open);
        let mpich = peer(&mpich);
        let program = Path::new("works");
        assert!(!words(&open.launch(program, 2, 2)).contains(&"mpi_yield_when_idle"));
        assert!(words(&open.launch(program, 3, 2)).contains(&"mpi_yield_when_idle"));
        assert_eq!(words(&mpich.launch(program, 3, 2)), ["-n", "3", "works"]);
    }

    #[test]
    fn goals_are_against_open_mpi_5() {
        for (output, has_goals) in [
            (OPEN_MPI, true),
            ("mpirun (Open MPI) 4.1.4", false),
            ("mpirun (Open MPI) 50.1", false),
            (HYDRA, false),
        ] {
            let installation = installation(output);
            assert_eq!(peer(&installation).has_goals(), has_goals, "{output}");
        }
    }
}
