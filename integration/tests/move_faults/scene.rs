//! The scene of a cell: a machine, a caller, a callee that is to move, and the console of the
//! application.

use crate::cell::{At, Cell, Deed};
use std::{collections::BTreeSet, os::unix::fs::symlink, time::Duration};
use vm_integration::cluster::{
    Cluster, Node, client::Client, disk::SmallDisk, processes, wait_for,
};
use vm_wire::{
    Tid,
    console::{Answer, Request, TaskRow},
};

/// Bound on the consequences of a fault.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Memory that the callee has and never touches, in the cells that need a large task. MiB.
const LARGE: &str = "1024";

/// A machine in the middle of its work. The disk is dropped before the cluster's folder.
pub struct Scene {
    disk: Option<SmallDisk>,
    pub cluster: Cluster,
    /// The console of the application.
    pub run: Client,
    /// The task that is to move.
    pub callee: Tid,
    /// The task that exchanges numbers with the callee.
    pub caller: Tid,
    requester: usize,
}

impl Scene {
    /// Starts the machine and the application. `None` if this computer lacks what the cell needs;
    /// the reason is printed.
    pub fn begin(cell: &Cell) -> Option<Scene> {
        let apart = cell.deed == Deed::LeaderKilled;
        let hosts = if apart { 4 } else { 3 };
        let mut cluster = match cell.takes_network() {
            true => Cluster::in_empty_namespaces(hosts)?,
            false => Cluster::on_loopback(0),
        };
        let requester = if apart { 3 } else { 0 };
        let mut disk = None;
        for number in 0..hosts {
            let name = format!("n{}", number + 1);
            if cell.deed == Deed::DiskFull && number == place(At::Target) {
                let folder = cluster.folder().join(&name);
                disk = Some(SmallDisk::mount(&folder, 1)?);
                symlink(folder.join("log"), folder.with_extension("log")).expect("a link");
            }
            let mut command = cluster.command(&name, &[]);
            for (at, point, action) in [Some(cell.fault), cell.also].into_iter().flatten() {
                if number == place_of(at, requester) {
                    command.env("VM_FAULT", format!("{point}:{action}"));
                }
            }
            cluster.add_node(name.clone(), command);
            let await_host = Request::AwaitHost(name);
            assert_eq!(cluster.nodes[0].client().ask(&await_host), Answer::Done);
        }
        let node = &cluster.nodes[requester];
        if apart {
            let voters = || {
                let hosts = node.conf().hosts;
                hosts.iter().filter(|host| host.voter).count()
            };
            wait_for("three voters", PATIENCE, || (voters() >= 3).then_some(()));
            assert_eq!(
                cluster.leader(requester),
                0,
                "who founds a machine leads it"
            );
        }
        let mut run = node.client();
        match cell.deed {
            Deed::CallerMoves => run.run("vmtest", &["caller-of", "n1", "n2"]),
            Deed::MemoryFull => run.run("vmtest", &["caller", "n2", "8", LARGE]),
            _ => run.run("vmtest", &["caller", "n2"]),
        };
        run.output_until("it goes");
        let tasks = tasks(node);
        let row = tasks.iter().find(|row| !has_child(&tasks, row.tid));
        let callee = row.expect("the callee");
        let (callee, caller) = (callee.tid, callee.parent);
        Some(Scene {
            disk,
            cluster,
            run,
            callee,
            caller,
            requester,
        })
    }

    /// The daemon of the host `at`.
    pub fn node(&self, at: At) -> &Node {
        &self.cluster.nodes[place_of(at, self.requester)]
    }

    /// The index of the host `at` in the cluster.
    pub fn place(&self, at: At) -> usize {
        place_of(at, self.requester)
    }

    /// The host of a task, if it lives.
    pub fn host_of(&self, tid: Tid) -> Option<String> {
        let tasks = tasks(self.node(At::SpawnRequester)).into_iter();
        let mut of = tasks.filter(|row| row.tid == tid);
        of.next().map(|row| row.host)
    }

    /// Fills the target's disk, if the cell is about a full disk.
    pub fn fill_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.fill();
        }
    }

    /// Waits until the cell's fault has struck.
    pub fn await_fault(&self, (at, point, _): (At, &str, &str)) {
        let node = self.node(at);
        let what = format!("{point} is reached");
        wait_for(&what, PATIENCE, || {
            let struck = match point {
                "sender" => carries(node, "transfer-sender"),
                _ => node.log().contains(&format!("fault at {point}:")),
            };
            struck.then_some(())
        });
    }

    /// The pids of the callee's processes: those of this cluster with its name.
    pub fn copies(&self) -> BTreeSet<i32> {
        let is_callee = |pid: &i32| processes::words(*pid).any(|word| word == "callee");
        processes::of_folder(self.cluster.folder())
            .filter(is_callee)
            .collect()
    }
}

fn place(at: At) -> usize {
    place_of(at, 0)
}

fn place_of(at: At, requester: usize) -> usize {
    match at {
        At::SpawnRequester => requester,
        At::Source => 1,
        At::Target => 2,
    }
}

fn tasks(node: &Node) -> Vec<TaskRow> {
    match node.client().ask(&Request::Ps(None)) {
        Answer::Ps(rows) => rows,
        other => panic!("ps has no such answer: {other:?}"),
    }
}

fn has_child(tasks: &[TaskRow], tid: Tid) -> bool {
    tasks.iter().any(|row| row.parent == tid)
}

/// Whether a transfer process of that daemon has the given role.
fn carries(node: &Node, role: &str) -> bool {
    let mut pids = processes::children(node.pid()).into_iter();
    pids.any(|pid| processes::words(pid).any(|word| word == role))
}
