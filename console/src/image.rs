//! Images of processes: made, what is in them, whether they are whole, and their processes brought back.
//!
//! No daemon is asked. A look reads the heads of an image and compares them with this host; to
//! bring a process back, this process becomes it, so that terminal, signals and exit code need no
//! help. The prompt starts a console of its own for that, and waits.

use crate::{command::Map, exit, failure::ClientError, interrupt::Interrupt};
use anyhow::{Context as _, anyhow};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IsTerminal as _, Read, Seek, SeekFrom},
    os::{
        fd::AsFd as _,
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::Builder;
use vm_image::{
    AskError, Folders, Modes, Request, Way,
    format::{Heads, ImageError, ImageReader, Prefix},
    inspect::{Host, Needs, Summary, check_files, compare},
};

/// What is in an image, and what that means here.
#[derive(Debug)]
pub struct Report {
    /// The image.
    pub file: PathBuf,
    /// What is in it.
    pub summary: Summary,
    /// Which hosts it is good for.
    pub needs: Needs,
    /// Why it cannot be brought back on this one; none if it can.
    pub reasons: Vec<String>,
    /// Why the image is not whole, as far as it was read.
    pub damage: Option<ImageError>,
}

/// The image of a process that was just saved.
#[derive(Debug)]
pub struct Made {
    /// The image.
    pub file: PathBuf,
    /// Of which process.
    pub pid: i32,
    /// Its bytes.
    pub bytes: u64,
    /// How long the process stood still.
    pub freeze: Duration,
}

/// Has a process save itself. Until its image is whole it is in a file of its own, which nobody can
/// foresee and only this user may read: others may write to the folder.
///
/// # Errors
/// Why there is no image; whatever has that name is as it was.
pub fn save(pid: i32, file: &Path, modes: Modes, interrupt: &Interrupt) -> anyhow::Result<Made> {
    let _phase = interrupt.waiting();
    let name = file
        .file_name()
        .with_context(|| format!("{} is no name of a file", file.display()))?;
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut prefix = name.to_owned();
    prefix.push(".");
    let part = Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        .rand_bytes(16)
        .tempfile_in(folder)
        .with_context(|| format!("cannot make a file in {}", folder.display()))?;
    let asked = Request::send(pid, part.as_file().as_fd(), modes);
    let news = asked.and_then(|request| request.finish(interrupt.as_fd()));
    let news = news.map_err(|error| match error {
        AskError::Interrupted => ClientError::Interrupted.into(),
        error => anyhow!(error),
    })?;
    let kept = || {
        let bytes = part.as_file().metadata()?.len();
        // Only what is on the disk takes the place of an image that may be there.
        part.as_file().sync_all()?;
        io::Result::Ok(bytes)
    };
    let bytes = kept().with_context(|| format!("cannot write {}", part.path().display()))?;
    part.persist(file)
        .with_context(|| format!("cannot give the image the name {}", file.display()))?;
    let freeze = news.freeze;
    news.image_is_kept();
    Ok(Made {
        file: file.to_owned(),
        pid,
        bytes,
        freeze,
    })
}

/// Looks into an image; its memory is passed over where the file allows it.
///
/// # Errors
/// When the file cannot be opened, or not even the heads are good.
pub fn look(file: &Path, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let opened = open(file)?;
    let _phase = interrupt.waiting();
    let source = Watched {
        file: &opened,
        interrupt,
    };
    let mut image = ImageReader::new(source).map_err(|error| failed(file, error))?;
    let prefix = *image.prefix();
    let seekable = is_seekable(&opened);
    let heads = match seekable {
        true => image.pass_heads(),
        false => image.read_heads(),
    };
    let heads = heads.map_err(|error| failed(file, error))?;
    let (summary, needs) = (Summary::of_heads(heads), Needs::of(&prefix, heads));
    let reasons = reasons(&prefix, heads, false, &[]);
    let rest = match seekable {
        true => Summary::pass_on(&mut image),
        false => Summary::read_on(&mut image),
    };
    let (summary, damage) = match rest {
        Ok(summary) => (summary, None),
        Err(error) => (summary, Some(not_interrupted(error)?)),
    };
    Ok(Report {
        file: file.to_owned(),
        summary,
        needs,
        reasons,
        damage,
    })
}

/// A whole image, and what it takes to bring its process back.
#[derive(Debug)]
pub struct Whole {
    /// Bytes of the image.
    pub bytes: u64,
    /// Which hosts it is good for, and what has to be there.
    pub needs: Needs,
    /// Why it cannot be brought back on this one; none if it can.
    pub reasons: Vec<String>,
}

/// Reads all of an image. The inner error says where it is damaged.
///
/// # Errors
/// When the file cannot be opened or read.
pub fn verify(file: &Path, interrupt: &Interrupt) -> anyhow::Result<Result<Whole, ImageError>> {
    let opened = open(file)?;
    let _phase = interrupt.waiting();
    let source = Watched {
        file: &opened,
        interrupt,
    };
    let read = || {
        let mut image = ImageReader::new(source)?;
        Summary::read_on(&mut image)?;
        let prefix = *image.prefix();
        let bytes = image.position();
        let heads = image.read_heads()?;
        Ok(Whole {
            bytes,
            needs: Needs::of(&prefix, heads),
            reasons: reasons(&prefix, heads, false, &[]),
        })
    };
    match read() {
        Ok(whole) => Ok(Ok(whole)),
        Err(error @ ImageError::Io { .. }) => Err(failed(file, error)),
        Err(error) => Ok(Err(error)),
    }
}

/// How a process is brought back.
#[derive(Debug, Clone)]
pub struct How {
    /// The files that it writes become what they were.
    pub roll_back: bool,
    /// Where files and the working directory are looked for.
    pub maps: Vec<Map>,
}

/// Becomes the process of an image, if nothing is in the way; otherwise returns what is.
///
/// # Errors
/// When the image is not whole, or cannot be read; nothing was started.
pub fn run(file: &Path, how: &How, interrupt: &Interrupt) -> anyhow::Result<Vec<String>> {
    let maps: Vec<Folders<'_>> = how.maps.iter().map(Map::folders).collect();
    let folders: Vec<(&Path, &Path)> = how.maps.iter().map(|map| (&*map.old, &*map.new)).collect();
    let mut opened = open(file)?;
    // What is read from a pipe can be read once: then only the restorer verifies it.
    if is_seekable(&opened) {
        let _phase = interrupt.waiting();
        let source = Watched {
            file: &opened,
            interrupt,
        };
        let mut image = ImageReader::new(source).map_err(|error| failed(file, error))?;
        let prefix = *image.prefix();
        let heads = image.read_heads().map_err(|error| failed(file, error))?;
        let reasons = reasons(&prefix, heads, how.roll_back, &maps);
        Summary::read_on(&mut image).map_err(|error| failed(file, error))?;
        if !reasons.is_empty() {
            return Ok(reasons);
        }
        opened.seek(SeekFrom::Start(0))?;
    }
    let way = Way {
        roll_back: how.roll_back,
        folders: &folders,
        ..Way::default()
    };
    match vm_image::restore(opened.as_fd(), way) {
        Ok(never) => match never {},
        Err(error) => Err(error).context("cannot start the restorer"),
    }
}

/// As [`run`], in a process of its own, which prints JSON if `json`: the prompt is not to become
/// another program. Returns its exit code.
///
/// # Errors
/// When no process can be started.
pub fn run_apart(file: &Path, how: &How, interrupt: &Interrupt, json: bool) -> anyhow::Result<u8> {
    let mut console = Command::new("/proc/self/exe");
    console.arg0("vm");
    if json {
        console.arg("--json");
    }
    console.args(["image", "run"]);
    if how.roll_back {
        console.arg("--roll-back-files");
    }
    for map in &how.maps {
        let mut word = OsString::from("--map=");
        word.extend([map.old.as_os_str(), OsStr::new("="), map.new.as_os_str()]);
        console.arg(word);
    }
    console.arg("--").arg(file);
    if !io::stdin().is_terminal() {
        // There are commands.
        console.stdin(Stdio::null());
    }
    // A signal of the terminal reaches both, and is the other's.
    let _phase = interrupt.relaying();
    let modes = tcgetattr(io::stdin()).ok();
    let status = console.status().context("cannot start a console for it")?;
    if let Some(modes) = modes {
        // A terminal that is gone needs no care.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &modes);
    }
    let ended = status.signal().map(|signal| exit::SIGNALLED + signal as u8);
    Ok(ended.unwrap_or_else(|| status.code().map_or(exit::FAILED, |code| code as u8)))
}

fn reasons(prefix: &Prefix, heads: &Heads, roll_back: bool, maps: &[Folders<'_>]) -> Vec<String> {
    let obstacles = compare(prefix, heads.facts(), &Host::here());
    let obstacles = obstacles.iter().map(ToString::to_string);
    let problems = check_files(heads, roll_back, maps).into_iter();
    obstacles
        .chain(problems.map(|problem| problem.to_string()))
        .collect()
}

/// Whether that is no file, but the word for standard input.
pub fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn open(file: &Path) -> anyhow::Result<File> {
    // Opened anew, so that its position, if it has one, is nobody else's.
    let path = match is_stdin(file) {
        true => Path::new("/dev/stdin"),
        false => file,
    };
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

fn is_seekable(mut file: &File) -> bool {
    file.stream_position().is_ok()
}

/// The error of a command that could not do its work because of an image.
fn failed(file: &Path, error: ImageError) -> anyhow::Error {
    match not_interrupted(error) {
        Ok(error) => anyhow!("{}: {error}", file.display()),
        Err(interrupted) => interrupted.into(),
    }
}

/// An error of the image itself, or that the user did not want to wait for it.
fn not_interrupted(error: ImageError) -> Result<ImageError, ClientError> {
    match &error {
        ImageError::Io { source, .. }
            if source
                .get_ref()
                .is_some_and(|inner| inner.is::<ClientError>()) =>
        {
            Err(ClientError::Interrupted)
        }
        _ => Ok(error),
    }
}

/// A file that is read until the user interrupts it.
struct Watched<'a> {
    file: &'a File,
    interrupt: &'a Interrupt,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut fds = [
            PollFd::new(self.file, PollFlags::IN),
            self.interrupt.poll_fd(),
        ];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => return Err(io::ErrorKind::Interrupted.into()),
            Err(error) => return Err(error.into()),
            Ok(_) if !fds[1].revents().is_empty() => {
                return Err(io::Error::other(ClientError::Interrupted));
            }
            Ok(_) => {}
        }
        self.file.read(buffer)
    }
}

impl Seek for Watched<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_told_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "once upon a time").unwrap();
        let interrupt = Interrupt::none();
        let error = look(&file, &interrupt).unwrap_err().to_string();
        assert!(
            error.contains("text: this is no image of a process"),
            "{error}"
        );
        assert!(matches!(
            verify(&file, &interrupt),
            Ok(Err(ImageError::NotAnImage))
        ));
        let error = verify(&dir.path().join("none"), &interrupt).unwrap_err();
        assert!(format!("{error:#}").contains("cannot open"), "{error:#}");
    }
}
