//! The scene of a cell: a machine, a caller and a callee with one checkpoint or two, and the
//! console of the application.

use crate::cell::{At, Cell, Deed, Work};
use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};
use vm_integration::cluster::{
    Cluster, Node,
    client::Client,
    disk::{SmallDisk, flip_a_bit, last_image},
    processes, wait_for,
};
use vm_store::{CheckpointId, Entry, State, Store, name};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    checkpoint::{Policy, Recover},
    console::{Answer, Request, TaskRow},
};

/// Bound on the consequences of a fault.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The quota of the store at the member. Bytes.
const QUOTA: u64 = 1 << 30;

/// A machine in the middle of its work. The disk is dropped before the cluster's folder.
pub struct Scene {
    pub disk: Option<SmallDisk>,
    pub cluster: Cluster,
    /// The console of the application.
    pub run: Client,
    /// The application, which is the caller.
    pub app: Tid,
}

impl Scene {
    /// Starts the machine and the application. `None` if this computer lacks what the cell needs;
    /// the reason is printed.
    pub fn begin(cell: &Cell) -> Option<Scene> {
        let mut cluster = match cell.takes_network() {
            true => Cluster::in_empty_namespaces(3)?,
            false => Cluster::on_loopback(0),
        };
        let disk = match cell.deed {
            Deed::StoreFull => Some(SmallDisk::mount(&cluster.store(), 64)?),
            _ => None,
        };
        let (at, point, action) = cell.fault;
        for at_here in [At::Leader, At::Home, At::Member] {
            let name = format!("n{}", at_here as usize + 1);
            let quota = QUOTA.to_string();
            let extra: &[&str] = match (cell.deed, at_here) {
                (Deed::QuotaReached, At::Member) => &["--store-quota", &quota],
                _ => &[],
            };
            let mut command = cluster.command(&name, extra);
            if at == at_here {
                command.env("VM_FAULT", format!("{point}:{action}"));
                command.env("VM_FAULT_FROM", armed(&cluster));
            }
            cluster.add_node(name, command);
        }
        let home = &cluster.nodes[At::Home as usize];
        wait_for("three voters", PATIENCE, || {
            let hosts = home.conf().hosts;
            (hosts.iter().filter(|host| host.voter).count() == 3).then_some(())
        });
        let mut run = home.client();
        let app = run.run("vmtest", &["caller", "n3"]);
        run.output_until("it goes");
        let scene = Scene {
            disk,
            cluster,
            run,
            app,
        };
        Some(scene)
    }

    /// Prepares the state before the fault: one checkpoint; for a restart, a second one with which
    /// the application has ended.
    pub fn prepare(&mut self, cell: &Cell) {
        let mut console = self.node(At::Home).client();
        if cell.recovers {
            let policy = Policy {
                recover: Recover::Kill,
                ..Policy::default()
            };
            let answer = console.ask(&Request::Policy(self.app, policy));
            assert_eq!(answer, Answer::Done);
        }
        console
            .save(self.app, false)
            .expect("the first one is made");
        if cell.work != Work::Checkpoint {
            let stop = cell.work == Work::Restart;
            console
                .save(self.app, stop)
                .expect("the second one is made");
            if stop {
                assert_eq!(self.run.finish().status, ExitStatus::Suspended);
            }
        }
        match cell.deed {
            Deed::StoreFull => self.disk.as_ref().expect("it was mounted").fill(),
            Deed::QuotaReached => self.reach_quota(),
            Deed::Damaged => self.damage_last(),
            _ => {}
        }
        fs::write(armed(&self.cluster), "").expect("a file");
    }

    /// The daemon of the host `at`.
    pub fn node(&self, at: At) -> &Node {
        &self.cluster.nodes[at as usize]
    }

    /// The living tasks, as the daemon at `at` sees them.
    pub fn tasks(&self, at: At) -> Vec<TaskRow> {
        match self.node(at).client().ask(&Request::Ps(None)) {
            Answer::Ps(rows) => rows,
            other => panic!("ps has no such answer: {other:?}"),
        }
    }

    /// Waits until the cell's fault has struck.
    pub fn await_fault(&self, cell: &Cell) {
        let (at, point, _) = cell.fault;
        wait_for(&format!("{point} is reached"), PATIENCE, || {
            let role = match point {
                "writer" => "store-writer",
                "reader" => "store-reader",
                _ => return self.has_struck(at, point).then_some(()),
            };
            let mut pids = processes::children(self.node(at).pid()).into_iter();
            let there = pids.any(|pid| processes::words(pid).any(|word| word == role));
            there.then_some(())
        });
    }

    fn has_struck(&self, at: At, point: &str) -> bool {
        let line = format!("fault at {point}:");
        self.node(at).log().contains(&line)
    }

    /// The process of the callee.
    pub fn callee(&self) -> i32 {
        let is_callee = |pid: &i32| processes::words(*pid).any(|word| word == "callee");
        let mut children = processes::children(self.node(At::Member).pid()).into_iter();
        children.find(is_callee).expect("it lives")
    }

    /// Waits until no process but the daemons runs in the cluster's folder.
    pub fn await_silence(&self) {
        let daemons: BTreeSet<i32> = self.cluster.nodes.iter().map(Node::pid).collect();
        wait_for("no process is left over", PATIENCE, || {
            let mut left = processes::of_folder(self.cluster.folder());
            left.all(|pid| daemons.contains(&pid)).then_some(())
        });
    }

    /// The committed checkpoints of the application, and the number of those that are not
    /// committed. The last committed one must be whole.
    pub fn stored(&self) -> (Vec<CheckpointId>, usize) {
        let store = Store::open(self.cluster.store()).expect("a store");
        let entries = store.list().expect("it can be listed").into_iter();
        let entries: Vec<Entry> = entries.filter(|entry| entry.app == self.app).collect();
        let committed = |entry: &&Entry| matches!(entry.state, State::Committed(_));
        let ids: Vec<CheckpointId> = entries.iter().filter(committed).map(|it| it.id).collect();
        let left = entries.len() - ids.len();
        (ids, left)
    }

    /// Verifies the last committed checkpoint.
    pub fn verify_last(&self) -> CheckpointId {
        let last = *self.stored().0.last().expect("a checkpoint");
        let store = Store::open(self.cluster.store()).expect("a store");
        store.verify(self.app, last).expect("it is whole");
        last
    }

    /// Flips a bit in the middle of the callee's image of the second checkpoint.
    fn damage_last(&self) {
        let id = CheckpointId::new(0, 2).to_string();
        let folder = self.cluster.store().join(name::app(self.app)).join(id);
        flip_a_bit(&last_image(&folder));
    }

    /// Uses up the quota of the member with the checkpoint of another application, or fills the
    /// disk.
    fn reach_quota(&self) {
        let path = self.ballast();
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let file = fs::File::create(path).expect("a file");
        file.set_len(QUOTA).expect("a length");
    }

    /// Frees the space again.
    pub fn relieve(&self, cell: &Cell) {
        match cell.deed {
            Deed::StoreFull => self.disk.as_ref().expect("it was mounted").relieve(),
            Deed::QuotaReached => fs::remove_file(self.ballast()).expect("it is there"),
            _ => {}
        }
    }

    fn ballast(&self) -> PathBuf {
        let other = Tid(self.app.0 + 100);
        let id = CheckpointId::new(0, 1).to_string();
        let folder = self.cluster.store().join(name::app(other)).join(id);
        folder.join(name::image(other, other))
    }
}

/// Faults strike only once this file exists.
fn armed(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("armed")
}
