//! The descendants of a process.

use anyhow::Result;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::{collections::BTreeMap, fs};

/// All living descendants of a process.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn of(ancestor: u32) -> Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some((pid, parent)) = pid.and_then(|pid| Some((pid, parent(pid)?))) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while let Some(one) = found.get(next) {
        found.extend(children.remove(one).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

/// Whether a process has ended. A child of this process is waited for.
pub fn has_ended(pid: u32) -> bool {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // Most of the processes are not children of this one.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
    parent(pid).is_none()
}

/// The command line of a process; empty once it has ended. For people.
pub fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    words.join(" ").trim_end().to_owned()
}

/// The parent of a living process.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain any characters, brackets too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{self, Command};

    #[test]
    fn children_of_children_are_found_until_they_have_ended() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & wait"]);
        let mut shell = shell.spawn().expect("a shell");
        let sleeper = loop {
            let found = of(shell.id()).expect("processes");
            if let Some(found) = found.iter().find(|one| command(**one) == "sleep 1000") {
                break *found;
            }
        };
        let all = of(process::id()).expect("processes");
        assert!(all.contains(&shell.id()) && all.contains(&sleeper));
        shell.kill().expect("a child");
        assert!(!has_ended(sleeper));
        let pid = Pid::from_raw(sleeper as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
        while !has_ended(sleeper) {}
        shell.wait().expect("a child");
        assert!(!of(process::id()).expect("processes").contains(&sleeper));
    }
}
