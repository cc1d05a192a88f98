//! The rings and descriptors of the processes of tasks, from /proc.

use super::{Node, PATIENCE, wait_for};
use std::fs;
use vm_wire::console::TaskRow;

/// Resources of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// Rings that it has mapped.
    pub rings: usize,
    /// Ranges of its memory.
    pub mappings: usize,
    /// Its open descriptors.
    pub descriptors: usize,
    /// Its eventfds.
    pub eventfds: usize,
    /// Its descriptors of memory without a name.
    pub memfds: usize,
    /// Its own memory, without shared memory and files. KiB.
    pub memory_kib: u64,
}

/// The process of a task.
///
/// # Panics
/// If its host has not told it yet.
pub fn pid(row: &TaskRow) -> u32 {
    row.usage.as_ref().expect("its host has said so").pid
}

/// The resources of a process; `None` if it has ended.
pub fn holdings(pid: u32) -> Option<Holdings> {
    let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let maps = read("maps")?;
    let status = read("status")?;
    let memory = status.lines().find_map(|line| {
        let line = line.strip_prefix("RssAnon:")?.strip_suffix("kB")?;
        line.trim().parse().ok()
    });
    let mut holdings = Holdings {
        rings: maps.matches("/memfd:vm-ring").count(),
        mappings: maps.lines().count(),
        descriptors: 0,
        eventfds: 0,
        memfds: 0,
        memory_kib: memory?,
    };
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        holdings.descriptors += 1;
        // A descriptor may have been closed meanwhile.
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        holdings.eventfds += usize::from(target.contains("[eventfd]"));
        holdings.memfds += usize::from(target.contains("/memfd:"));
    }
    Some(holdings)
}

/// How many of these tasks have rings.
pub fn with_rings(tasks: &[TaskRow]) -> usize {
    let has_ring = |row: &&TaskRow| holdings(pid(row)).is_some_and(|holdings| holdings.rings > 0);
    tasks.iter().filter(has_ring).count()
}

/// Waits until `count` of the first master's `members` have rings. Returns the members.
///
/// # Panics
/// After [`PATIENCE`].
pub fn await_rings(node: &Node, members: usize, count: usize) -> Vec<TaskRow> {
    wait_for("rings between the members", PATIENCE, || {
        let members = node.members(members);
        (with_rings(&members) >= count).then_some(members)
    })
}
