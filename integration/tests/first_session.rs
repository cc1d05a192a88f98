//! The commands of `docs/first-session.md` are run, and print what the page shows.
//!
//! The blocks marked `console` are one session of one shell. A line that begins with `$ ` is a
//! command, the lines after it are what it prints. `…` stands for any characters of one line, a run
//! of blanks for any other.

use std::{
    fs,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;
use vm_integration::cluster::{binaries, end_with_us};

/// Printed between the outputs of two commands.
const MARK: &str = "--- next command ---";

/// One command of the page.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    prints: Vec<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step {
                    command: command.to_owned(),
                    prints: Vec::new(),
                }),
                None => {
                    let step = steps.last_mut().expect("a block begins with a command");
                    step.prints.push(line.to_owned());
                }
            },
        }
    }
    steps
}

/// The line with each run of blanks replaced by one blank.
fn even(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `line` matches the page's `pattern`.
fn fits(pattern: &str, line: &str) -> bool {
    let (pattern, line) = (even(pattern), even(line));
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// The shell of the session. Its daemons are ended even if the test fails.
struct Session {
    shell: Child,
    folder: TempDir,
}

impl Session {
    fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("script");
        fs::write(&file, script).expect("a file");
        let mut path = vec![binaries::folder().to_owned()];
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        let mut shell = Command::new("sh");
        shell
            .arg(file)
            .current_dir(&folder)
            .env("PATH", std::env::join_paths(path).expect("a search path"))
            .env_remove("VM_DIR")
            .env_remove("VM_LAUNCHER")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0);
        end_with_us(&mut shell);
        let shell = shell.spawn().expect("there is a shell");
        Session { shell, folder }
    }

    /// The folders of the session's daemons.
    fn daemons(&self) -> Vec<PathBuf> {
        let session = self.folder.path().join("session");
        fs::read_dir(session)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect()
    }
}

impl Drop for Session {
    /// The daemons in the background outlive the shell of the session.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        for dir in self.daemons() {
            if std::thread::panicking() {
                let log = fs::read_to_string(dir.join("vmd.log")).unwrap_or_default();
                eprintln!("--- {}\n{log}", dir.join("vmd.log").display());
            }
            end_daemon(&dir);
        }
    }
}

fn end_daemon(dir: &Path) {
    let pid = fs::read_to_string(dir.join("pid")).unwrap_or_default();
    if let Some(pid) = pid
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // The process may have ended since.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[test]
fn the_first_session_prints_what_its_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/first-session.md");
    let steps = steps(&fs::read_to_string(page).expect("the page"));
    let mut script = String::from("exec 2>&1\n");
    for step in &steps {
        script += &format!("{}\necho '{MARK}'\n", step.command);
    }
    let mut session = Session::start(&script);
    let mut printed = String::new();
    let mut stdout = session.shell.stdout.take().expect("a pipe");
    stdout.read_to_string(&mut printed).expect("text");

    let outputs: Vec<&str> = printed.split(&format!("{MARK}\n")).collect();
    for (number, step) in steps.iter().enumerate() {
        let output = outputs
            .get(number)
            .copied()
            .unwrap_or("(nothing: the session ended)");
        let lines: Vec<&str> = output.lines().collect();
        let same = lines.len() == step.prints.len()
            && step
                .prints
                .iter()
                .zip(&lines)
                .all(|(pattern, line)| fits(pattern, line));
        assert!(
            same,
            "$ {}\nprints\n{output}\nand not\n{}",
            step.command,
            step.prints.join("\n")
        );
    }
}

#[test]
fn a_pattern_stands_for_what_it_should() {
    for (pattern, line, expected) in [
        ("", "", true),
        ("a  b", "a b", true),
        ("a b", "a c", false),
        ("t….…: sent", "t2.17: sent", true),
        ("t….…: sent", "t2: sent", false),
        ("…: added", "beta: added", true),
        ("vm: …no…", "vm: there is no such", true),
        ("7", "77", false),
        ("in … s", "in 0.1 s", true),
    ] {
        assert_eq!(fits(pattern, line), expected, "{pattern} | {line}");
    }
}

#[test]
fn the_page_is_read_command_by_command() {
    let page = "text\n```sh\n$ no\n```\n```console\n$ one\nline\n\n$ two\n```\n";
    let step = |command: &str, prints: &[&str]| Step {
        command: command.to_owned(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(steps(page), [step("one", &["line", ""]), step("two", &[])]);
}
