//! Determines how much memory is to spare, and which processes the kernel kills first if memory
//! runs out.
//!
//! The spare memory is the least of what the host has free and what each control group of this
//! daemon leaves (cgroups(7)): batch systems and containers limit jobs by control groups. Both
//! versions of control groups are considered, and every group above the daemon's, because a limit
//! holds for all groups below. Files in the kernel's cache count as spare, because the kernel can
//! drop them.
//!
//! If memory still runs out, the kernel kills the process with the most memory, plus its
//! `oom_score_adj` (proc(5)) in thousandths of all memory. A user may only raise that score. So a
//! daemon keeps the score that it was started with, and its tasks start with [`TASK_SCORE`] more.
//! Processes whose work can be repeated (transfer processes, restorers, copies that write an image)
//! get the highest score, so they are killed first. The loss of a daemon loses all of them, so the
//! daemon is killed last.

use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, getpid},
};
use std::{
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};
use vm_machine::Room;

/// Added to a daemon's score for its tasks, in thousandths of all memory.
pub const TASK_SCORE: i32 = 300;
/// The score of processes that are to be killed first: the highest that exists.
pub const SCORE_MAX: i32 = 1000;
/// The file with the score of this process.
const OWN: &str = "/proc/self/oom_score_adj";
/// A limit of version 1 from here on means no limit: the kernel reports the largest number of
/// pages. Bytes.
const NO_LIMIT: u64 = 1 << 60;

/// Bytes that the host and its control groups have to spare; none if the system does not report
/// them.
pub fn room() -> Option<Room> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let of_groups = groups(Path::new("/proc/self"));
    let left = of_groups.iter().filter_map(Group::spare).min();
    Some(Room {
        host: available(&text)?,
        groups: left.unwrap_or(u64::MAX),
    })
}

/// Bytes that the host has to spare, from /proc/meminfo.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The control group of this process in a hierarchy that may limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    version: Version,
    /// Where the hierarchy is mounted.
    mounted: PathBuf,
    /// Path of the group below `mounted`.
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The groups, of both versions, of the process whose folder in /proc is `process`.
fn groups(process: &Path) -> Vec<Group> {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let (of_process, mounts) = (read("cgroup"), read("mountinfo"));
    let of = |(version, path): (Version, &str)| {
        let (root, mounted) = mounts.lines().find_map(|line| mount(line, version))?;
        let path = Path::new(path).strip_prefix(&root).ok();
        // A group outside of the mounted part cannot be read; the root of the mounted part can.
        let path = path
            .filter(|path| !path.starts_with(".."))
            .unwrap_or(Path::new(""));
        Some(Group {
            version,
            mounted,
            path: path.to_owned(),
        })
    };
    of_process
        .lines()
        .filter_map(hierarchy)
        .filter_map(of)
        .collect()
}

/// Parses a line of /proc/PID/cgroup (number, controllers, path), if that hierarchy may limit
/// memory.
fn hierarchy(line: &str) -> Option<(Version, &str)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    match controllers.split(',').any(|name| name == "memory") {
        true => Some((Version::One, path)),
        false => (number == "0" && controllers.is_empty()).then_some((Version::Two, path)),
    }
}

/// Parses a line of /proc/PID/mountinfo, if it mounts such a hierarchy: the group at the root of
/// the mount, and the mount point.
fn mount(line: &str, version: Version) -> Option<(PathBuf, PathBuf)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let is_it = match (version, file_system.next()?) {
        (Version::Two, "cgroup2") => true,
        (Version::One, "cgroup") => file_system.nth(1)?.split(',').any(|name| name == "memory"),
        _ => false,
    };
    let mut words = mount.split(' ').skip(3);
    let (root, mounted) = (words.next()?, words.next()?);
    is_it.then(|| (unescaped(root), unescaped(mounted)))
}

/// A path of mountinfo, in which a blank, for example, is a backslash and three octal digits.
fn unescaped(word: &str) -> PathBuf {
    let bytes = word.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = word.get(at + 1..at + 4);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (bytes[at], byte) {
            (b'\\', Some(byte)) => {
                path.push(byte);
                at += 4;
            }
            (byte, _) => {
                path.push(byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(path).into()
}

impl Group {
    /// Bytes that the group and all groups above it leave, if any of them has a limit.
    fn spare(&self) -> Option<u64> {
        let all = self.path.ancestors();
        let all = all.map(|group| self.mounted.join(group));
        all.filter_map(|folder| self.version.spare_of(&folder))
            .min()
    }
}

impl Version {
    /// Bytes that a group leaves, without regard to the groups above it.
    fn spare_of(self, group: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        // The word "max" is not a number and means no limit.
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (limits, used, files): (&[&str], _, _) = match self {
            Version::One => (
                &["memory.limit_in_bytes"],
                "memory.usage_in_bytes",
                ["total_active_file", "total_inactive_file"],
            ),
            // Above "high" the kernel slows the group down until it uses less.
            Version::Two => (
                &["memory.max", "memory.high"],
                "memory.current",
                ["active_file", "inactive_file"],
            ),
        };
        let limits = limits.iter().filter_map(|name| number(name));
        let limit = limits.filter(|limit| *limit < NO_LIMIT).min()?;
        let used = number(used)?;
        let stat = read("memory.stat").unwrap_or_default();
        let pairs = stat.lines().filter_map(|line| line.split_once(' '));
        let cached = pairs.filter(|(name, _)| files.contains(name));
        let cached: u64 = cached.filter_map(|(_, it)| it.parse::<u64>().ok()).sum();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// Sets the score of this process. May be called between fork and exec: it makes system calls only.
pub fn begin_with(score: Digits) {
    let file = open(OWN, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    // If a lower score is not allowed, the process keeps the one that it has.
    let _ = file.and_then(|file| rustix::io::write(file, &score.0));
}

/// A score as text, without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct Digits([u8; 5]);

impl From<i32> for Digits {
    /// The score must be between -1000 and 1000.
    fn from(score: i32) -> Self {
        let mut digits = [b' '; 5];
        let text = format!("{score}");
        let len = text.len().min(digits.len());
        digits[..len].copy_from_slice(&text.as_bytes()[..len]);
        Digits(digits)
    }
}

/// Gives a process that has become its task the score of tasks, unless the process has set a score
/// of its own.
pub fn becomes_task(process: Pid) {
    if score(process).is_ok_and(|score| score == SCORE_MAX) {
        // If that is not allowed, the process keeps the highest score.
        let _ = set_score(process, task_score());
    }
}

/// The score that this daemon's tasks start with.
pub fn task_score() -> i32 {
    let own = score(getpid()).unwrap_or(0);
    (own + TASK_SCORE).min(SCORE_MAX)
}

/// The score of a process.
///
/// # Errors
/// The error of the system call.
pub fn score(process: Pid) -> io::Result<i32> {
    let text = fs::read_to_string(score_file(process))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Sets the score of a process.
///
/// # Errors
/// The error of the system call, for example because the user may not lower the score that far.
pub fn set_score(process: Pid, score: i32) -> io::Result<()> {
    fs::write(score_file(process), score.to_string())
}

fn score_file(process: Pid) -> PathBuf {
    format!("/proc/{}/oom_score_adj", process.as_raw_pid()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder in the form of /proc/PID with these files, in a hierarchy of control groups that is
    /// a folder.
    fn process(cgroup: &str, mountinfo: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().display().to_string().replace(' ', "\\040");
        let write = |name, text: &str| fs::write(folder.path().join(name), text).expect("room");
        write("cgroup", cgroup);
        write("mountinfo", &mountinfo.replace("HERE", &here));
        folder
    }

    /// Bytes that the groups of a process leave.
    fn spare(process: &Path) -> Option<u64> {
        groups(process).iter().filter_map(Group::spare).min()
    }

    const TWO: &str = "24 1 0:22 / HERE rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const ONE: &str = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                       31 23 0:27 / HERE rw,nosuid shared:9 - cgroup cgroup rw,memory\n";

    #[test]
    fn every_group_of_version_2_that_a_daemon_is_in_counts() {
        let process = process("0::/job/step\n", TWO);
        let groups = process.path();
        fs::create_dir_all(groups.join("job/step")).expect("folders");
        assert_eq!(spare(groups), None);
        let write = |name: &str, text| fs::write(groups.join(name), text).expect("room");
        write("job/step/memory.max", "max\n");
        write("job/step/memory.high", "max\n");
        write("job/step/memory.current", "10\n");
        assert_eq!(spare(groups), None);
        write("job/memory.max", "100\n");
        write("job/memory.current", "30\n");
        assert_eq!(spare(groups), Some(70));
        let stat = "anon 5\nactive_file 8\ninactive_file 12\n";
        write("job/memory.stat", stat);
        assert_eq!(spare(groups), Some(90));
        write("job/memory.high", "60\n");
        assert_eq!(spare(groups), Some(50));
        write("job/step/memory.max", "5\n");
        assert_eq!(spare(groups), Some(0));
    }

    #[test]
    fn every_group_of_version_1_that_a_daemon_is_in_counts() {
        let process = process("5:cpu,cpuacct:/other\n3:memory:/job/step\n0::/\n", ONE);
        let groups = process.path();
        fs::create_dir_all(groups.join("job/step")).expect("folders");
        let write = |name: &str, text| fs::write(groups.join(name), text).expect("room");
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("memory.usage_in_bytes", "1000\n");
        assert_eq!(spare(groups), None);
        write("job/memory.limit_in_bytes", "100\n");
        write("job/memory.usage_in_bytes", "90\n");
        assert_eq!(spare(groups), Some(10));
        // Figures of the group alone do not count; figures of all groups below it do.
        let stat = "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 5\n";
        write("job/memory.stat", stat);
        assert_eq!(spare(groups), Some(35));
        write("job/step/memory.limit_in_bytes", "50\n");
        write("job/step/memory.usage_in_bytes", "30\n");
        assert_eq!(spare(groups), Some(20));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        // Without a namespace of groups the path is the host's. With one, it is below the root, or
        // begins with the part outside of the namespace.
        for (path, root) in [
            ("/docker/7/step", "/docker/7"),
            ("/step", "/"),
            ("/../other", "/"),
        ] {
            let mount = format!("31 23 0:27 {root} HERE ro - cgroup cgroup rw,memory\n");
            let process = process(&format!("3:memory:{path}\n"), &mount);
            let groups = process.path();
            fs::write(groups.join("memory.limit_in_bytes"), "100\n").expect("room");
            fs::write(groups.join("memory.usage_in_bytes"), "40\n").expect("room");
            assert_eq!(spare(groups), Some(60), "{path} in {root}");
        }
    }

    #[test]
    fn the_spare_memory_of_a_host_is_read() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:    7 kB\n"),
            Some(7168)
        );
        assert!(room().expect("Linux tells").host > 1 << 20);
    }

    #[test]
    fn a_score_can_be_raised_and_lowered_to_its_former_value() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        let pid = Pid::from_child(&child);
        let before = score(pid);
        let raised = set_score(pid, SCORE_MAX).and_then(|()| score(pid));
        becomes_task(pid);
        let lowered = score(pid);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(
            before.expect("Linux tells"),
            score(getpid()).expect("Linux tells")
        );
        assert_eq!(raised.expect("it may be raised"), SCORE_MAX);
        assert_eq!(lowered.expect("it was as low"), task_score());
    }
}
