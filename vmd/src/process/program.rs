//! Finds the program of a task: a path is taken as it is, a name is looked up in the program path.

use crate::process::format::{self, Misfit};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use vm_wire::task::{FailKind, Failed};

/// The folders in which programs are looked up by name.
#[derive(Debug, Clone)]
pub struct ProgramPath(Vec<PathBuf>);

impl ProgramPath {
    /// The folders of `--path`, then those of `$PATH`.
    pub fn new(given: &[PathBuf]) -> ProgramPath {
        let system = env::var_os("PATH").unwrap_or_default();
        let folders = given.iter().cloned().chain(env::split_paths(&system));
        let mut path = Vec::new();
        for folder in folders {
            // A relative folder is resolved once, from the daemon's working folder at its start.
            if let Ok(folder) = std::path::absolute(folder)
                && !path.contains(&folder)
            {
                path.push(folder);
            }
        }
        ProgramPath(path)
    }

    /// All folders, joined as in `$PATH`; without those whose names have a `:`.
    pub fn joined(&self) -> OsString {
        let plain = |folder: &&PathBuf| !folder.as_os_str().as_encoded_bytes().contains(&b':');
        env::join_paths(self.0.iter().filter(plain)).unwrap_or_default()
    }

    /// The absolute path of `program`. A relative path starts in `dir`, or in the daemon's own
    /// working folder. Reads the disk.
    ///
    /// # Errors
    /// When there is no such program, or it may not be executed; the text names the folders.
    pub fn find(&self, program: &str, dir: Option<&str>) -> Result<String, Failed> {
        let missing = |text: String| Failed::new(FailKind::NoSuchProgram, text);
        if let Some(dir) = dir
            && !Path::new(dir).is_dir()
        {
            return Err(missing(format!(
                "the working directory {dir} does not exist on this host"
            )));
        }
        if program.contains('/') {
            let path = Path::new(dir.unwrap_or(".")).join(program);
            let path = std::path::absolute(&path).unwrap_or(path);
            return check(&path).map_err(|why| why.failed(&path));
        }
        let mut nearly = None;
        for folder in &self.0 {
            let path = folder.join(program);
            match check(&path) {
                Ok(path) => return Ok(path),
                Err(Unfit::Absent) => {}
                Err(why) => {
                    nearly.get_or_insert(why.failed(&path));
                }
            }
        }
        if let Some(nearly) = nearly {
            return Err(nearly);
        }
        let folders: Vec<_> = self.0.iter().map(|dir| dir.to_string_lossy()).collect();
        Err(missing(format!(
            "no program '{program}': give a path with a '/', or start the daemon with --path; it \
             looked in {}",
            folders.join(":")
        )))
    }
}

/// The reason why a file cannot be started as a program.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    /// The file does not exist.
    Absent,
    /// The file cannot be examined.
    Unseen(io::ErrorKind),
    /// The file is a folder.
    Folder,
    /// The file is a socket, a device or a pipe.
    NoFile,
    /// The user has no right to execute it.
    Right,
    /// Its path is not UTF-8.
    Name,
    /// The interpreter or loader of the file does not exist.
    Lacks(Misfit),
}

impl Unfit {
    fn failed(self, path: &Path) -> Failed {
        let (kind, why) = match self {
            Unfit::Absent => (
                FailKind::NoSuchProgram,
                "there is no such file on this host".to_owned(),
            ),
            Unfit::Unseen(kind) => (
                FailKind::NotExecutable,
                format!("it cannot be looked at: {kind}"),
            ),
            Unfit::Folder => (FailKind::NotExecutable, "it is a folder".to_owned()),
            Unfit::NoFile => (FailKind::NotExecutable, "it is no file".to_owned()),
            Unfit::Right => (
                FailKind::NotExecutable,
                "it may not be executed: 'chmod +x' gives the right, unless its file system is \
                 mounted with noexec"
                    .to_owned(),
            ),
            Unfit::Name => (FailKind::NotExecutable, "its path is no UTF-8".to_owned()),
            Unfit::Lacks(misfit) => (FailKind::NotExecutable, misfit.to_string()),
        };
        Failed::new(kind, format!("{}: {why}", path.display()))
    }
}

fn check(path: &Path) -> Result<String, Unfit> {
    let facts = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unfit::Absent,
        kind => Unfit::Unseen(kind),
    })?;
    if facts.is_dir() {
        return Err(Unfit::Folder);
    }
    if !facts.is_file() {
        return Err(Unfit::NoFile);
    }
    let executable = facts.permissions().mode() & 0o111 != 0
        && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if !executable {
        return Err(Unfit::Right);
    }
    let text = path.to_str().ok_or(Unfit::Name)?;
    match format::lacks(path) {
        Some(misfit) => Err(Unfit::Lacks(misfit)),
        None => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(path: &Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn a_name_is_found_in_the_first_folder_that_has_it() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let (first, second) = (temp.path().join("1"), temp.path().join("2"));
        for dir in [&first, &second] {
            fs::create_dir(dir).expect("a folder");
        }
        make(&first.join("tool"), 0o644);
        make(&second.join("tool"), 0o755);
        let path = ProgramPath::new(&[first.clone(), second.clone()]);
        let found = path
            .find("tool", None)
            .expect("the one that may be executed");
        assert_eq!(Path::new(&found), second.join("tool"));
        assert!(path.find("sh", None).expect("from $PATH").ends_with("/sh"));
    }

    #[test]
    fn a_relative_path_starts_at_the_working_directory() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        make(&temp.path().join("tool"), 0o755);
        let path = ProgramPath::new(&[]);
        let dir = temp.path().to_str();
        let found = path.find("./tool", dir).expect("there");
        assert_eq!(Path::new(&found), temp.path().join("tool"));
    }

    #[test]
    fn the_error_gives_the_remedy_first_and_then_each_folder_once() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let folder = temp.path().to_owned();
        let path = ProgramPath::new(&[folder.clone(), folder.clone()]);
        let text = path.find("no-such-program", None).expect_err("none").text;
        let folder = folder.to_str().expect("a path");
        assert_eq!(text.matches(folder).count(), 1, "{text}");
        assert!(text.find("--path") < text.find(folder), "{text}");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_explained() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        make(&temp.path().join("data"), 0o644);
        let path = ProgramPath::new(&[temp.path().to_owned()]);
        let (missing, unfit) = (FailKind::NoSuchProgram, FailKind::NotExecutable);
        for (program, dir, kind, says) in [
            ("no-such-program-anywhere", None, missing, "--path"),
            ("data", None, unfit, "may not be executed"),
            ("/", None, unfit, "a folder"),
            ("/dev/null", None, unfit, "no file"),
            ("./gone", temp.path().to_str(), missing, "no such file"),
            ("./data/x", temp.path().to_str(), missing, "no such file"),
            ("sh", Some("/no/such/dir"), missing, "/no/such/dir"),
        ] {
            let error = path.find(program, dir).expect_err(program);
            assert_eq!(error.kind, kind, "{program}");
            assert!(error.text.contains(says), "{}", error.text);
        }
    }
}
