//! Processes, from /proc. A process that has ended has no words and no children.

use std::{fs, path::Path};

/// The numbers of all processes.
fn all() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok()
    })
}

fn read(pid: i32, name: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

/// The words of a process's command line.
pub fn words(pid: i32) -> impl Iterator<Item = String> {
    let line = String::from_utf8_lossy(&read(pid, "cmdline")).into_owned();
    let words: Vec<String> = line.split('\0').map(str::to_owned).collect();
    words.into_iter()
}

/// All children of a process, made by any of its threads, except a daemon's guardian.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let lists = threads.flatten().flatten().map(|thread| {
        let list = fs::read_to_string(thread.path().join("children"));
        list.unwrap_or_default()
    });
    let lists: String = lists.collect();
    let pids = lists.split_whitespace().map(|pid| pid.parse());
    let pids = pids.map(|pid| pid.expect("a number"));
    let guards = |pid: i32| words(pid).nth(2).is_some_and(|word| word == "guardian");
    pids.filter(|pid| !guards(*pid)).collect()
}

/// Whether a process runs: a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    let stat = String::from_utf8_lossy(&read(pid, "stat")).into_owned();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

/// The processes whose command line or environment names a path in a folder.
pub fn of_folder(folder: &Path) -> impl Iterator<Item = i32> {
    let mark = format!("{}/", folder.display());
    let names = move |pid: i32, name| String::from_utf8_lossy(&read(pid, name)).contains(&mark);
    all().filter(move |pid| names(*pid, "environ") || names(*pid, "cmdline"))
}

/// Whether a process is a descendant of another one.
pub fn is_descendant(pid: i32, ancestor: i32) -> bool {
    let parent = |pid: &i32| {
        let status = String::from_utf8_lossy(&read(*pid, "status")).into_owned();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.and_then(|number| number.trim().parse().ok())
    };
    std::iter::successors(parent(&pid), parent).any(|it| it == ancestor)
}
