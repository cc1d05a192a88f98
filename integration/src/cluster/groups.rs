//! Control groups that limit the resources of a daemon and its descendants, as a batch system does
//! for a job. They require root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

/// How often, and at what interval, the removal of a group is tried: processes that were killed may
/// still be leaving the group.
const TRIES: u32 = 200;
const PACE: Duration = Duration::from_millis(10);

/// A control group of this test, of version 1 or 2. Drop it after the cluster whose daemons are in
/// it: the group is removed then.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// A group with `mib` MiB of memory. `None` if no group can be made; the reason goes to
    /// standard error.
    pub fn of_memory(mib: u64) -> Option<Group> {
        let limit = &(mib << 20).to_string();
        let one = ("memory", &[("memory.limit_in_bytes", limit.as_str())][..]);
        let two = ("", &[("memory.max", limit.as_str())][..]);
        Self::new([one, two])
    }

    /// Like [`Group::of_memory`], a group with only these processors, as in `0-3,6`.
    pub fn of_processors(list: &str) -> Option<Group> {
        let one = [("cpuset.cpus", list), ("cpuset.mems", "0")];
        Self::new([("cpuset", &one[..]), ("", &[("cpuset.cpus", list)][..])])
    }

    fn new(ways: [(&str, &[(&str, &str)]); 2]) -> Option<Group> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("vm-test-{}-{}", id(), NUMBER.fetch_add(1, SeqCst));
        for (hierarchy, files) in ways {
            let group = Group(Path::new("/sys/fs/cgroup").join(hierarchy).join(&name));
            let set = |(file, text): &(&str, &str)| fs::write(group.0.join(file), text).is_ok();
            if fs::create_dir(&group.0).is_ok() && files.iter().all(set) {
                return Some(group);
            }
        }
        eprintln!("skipped: no such control group can be made here");
        None
    }

    /// A command that runs `inner` in the group.
    pub fn command(&self, inner: &Command) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ >"$0" && exec "$@""#]);
        command.arg(self.0.join("cgroup.procs"));
        command.arg(inner.get_program()).args(inner.get_args());
        command
    }

    /// Number of the group's processes that the kernel has killed because memory ran out.
    pub fn killed(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let texts = files.map(|name| fs::read_to_string(self.0.join(name)).unwrap_or_default());
        let lines = texts.iter().flat_map(|text| text.lines());
        let mut counts = lines.filter_map(|line| line.strip_prefix("oom_kill "));
        let count = counts.next().expect("the kernel counts them");
        count.trim().parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::park_timeout(PACE);
        }
        eprintln!("the control group {} is left", self.0.display());
    }
}
