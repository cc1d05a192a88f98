//! The daemon's work on the folder of checkpoints, in the thread for jobs
//! ([`crate::event_loop::jobs`]). Helper processes read and write images
//! ([`crate::image::images`]).

use anyhow::{Context as _, anyhow, bail, ensure};
use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};
use vm_bucket::Tie;
use vm_machine::placement::ANY_ARCH;
use vm_store::{CheckpointId, Depth, Flaw, Manifest, SavedTask, Stocked, Store, StoreError, name};
use vm_wire::{
    HostId, MachineId, Tid,
    checkpoint::{AgreedPart, AgreedTask, Checkpoint, Committed, Loaded, SavedPart},
    decode, encode, limits,
    stores::StockRow,
    task::{FailKind, Failed},
};

/// Bound on the applications that an error names.
const APPS_SHOWN: usize = 16;

/// A request for checkpoints of one application, and how closely each is examined.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointQuery {
    /// The application.
    pub app: Tid,
    /// The checkpoint to examine; none: the last one that is whole.
    pub from: Option<CheckpointId>,
    /// Whether lengths or hashes are compared.
    pub depth: Depth,
}

/// The location of this daemon's store, and the name under which the daemon writes.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    /// The folder.
    pub root: PathBuf,
    /// The name of this host.
    pub host: String,
    /// Bound on the bytes in the store; 0: no bound.
    pub quota: u64,
    /// Whether the store is this host's own; else all hosts share it.
    pub local: bool,
    /// The time at which this daemon started ([`now_ms`]).
    pub started_ms: u64,
}

impl StoreLocation {
    fn open(&self) -> Result<Store, StoreError> {
        let store = Store::open(&self.root)?;
        Ok(match self.local {
            true => store.of_host(&self.host),
            false => store,
        })
    }

    /// The contents of the checkpoint that the query names, or else of the last one that is whole,
    /// as far as the query's depth shows.
    ///
    /// # Errors
    /// The reason why the checkpoint cannot be read, or that there is none.
    pub fn load(&self, look: CheckpointQuery) -> Result<Loaded, Failed> {
        load(&self.root, look).map_err(|error| {
            let text = format!("the checkpoint cannot be read: {error}");
            Failed::new(FailKind::System, text)
        })
    }

    /// Removes the files of a checkpoint that was not committed.
    pub fn drop_checkpoint(&self, app: Tid, id: CheckpointId) {
        let dropped = self.open().and_then(|store| store.give_up(app, id));
        if let Err(error) = dropped {
            log::warn!("what is in the store of a checkpoint that was given up stays: {error}");
        }
    }

    /// The inventory of this store: the checkpoints of an application, or the one that the query
    /// names.
    ///
    /// # Errors
    /// The reason why the store cannot be read.
    pub fn stock(&self, look: CheckpointQuery) -> Result<Vec<StockRow>, Failed> {
        let CheckpointQuery { app, from, depth } = look;
        let stocked = self
            .open()
            .and_then(|store| store.stock(app, from, depth, limits::STOCK_MAX));
        match stocked {
            Ok(stocked) => Ok(stocked.into_iter().map(row).collect()),
            Err(error) => Err(Failed::new(FailKind::System, error.to_string())),
        }
    }

    /// Removes all checkpoints of an application.
    pub fn forget(&self, app: Tid) {
        let tie = Tie::new(&self.root);
        if matches!(tie.address(), Ok(Some(_)))
            && let Err(error) = tie.remove(app)
        {
            log::warn!(
                "checkpoints of {} stay in the bucket: {error}",
                name::app(app)
            );
        }
        if let Err(error) = self.open().and_then(|store| store.forget(app)) {
            log::warn!(
                "checkpoints of {} stay in the store: {error}",
                name::app(app)
            );
        }
    }

    /// Commits a checkpoint, all of whose parts were written.
    pub fn commit(&self, checkpoint: &Checkpoint) -> Committed {
        let agreed = &checkpoint.agreed;
        let result = self.open().map_err(anyhow::Error::from);
        let result = result.and_then(|store| {
            check_alone(&store, agreed, self.started_ms)?;
            commit(&store, checkpoint)
        });
        let result = result.map_err(|error| {
            let mut text = format!("the checkpoint cannot be committed: {error}");
            if let Some(StoreError::Part {
                flaw: Flaw::Missing { place },
                ..
            }) = error.downcast_ref()
                && *place != self.host
                && !self.local
            {
                let (here, root) = (&self.host, self.root.display());
                text = format!(
                    "what '{place}' has saved is not in the store of '{here}', {root}: all daemons \
                     of a machine have to be given the same folder (vmd --store), or each one of \
                     its own (--store-local)"
                );
            }
            if self.local {
                // Other hosts may still need the checkpoint, but not from this host's own store.
                log::warn!("{text}");
            }
            Failed::new(FailKind::System, text)
        });
        Committed {
            app: agreed.app,
            epoch: agreed.epoch,
            result,
        }
    }
}

/// Checks that no other machine has taken the application over. An application has its checkpoints
/// from one machine at a time. Of two machines that share a store, one may take the other for lost,
/// and restart an application that the other one still runs. Then the other machine no longer saves
/// or removes checkpoints of the application in that store.
fn check_alone(store: &Store, agreed: &AgreedPart, started_ms: u64) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for id in store.ids(agreed.app)? {
        // A damaged manifest proves nothing.
        if let Ok(manifest) = store.read(agreed.app, id) {
            found.push((manifest.machine, manifest.generation, manifest.taken_ms));
        }
    }
    let own = (agreed.machine, agreed.generation);
    if let Some(machine) = taken_over(own, started_ms, &found) {
        bail!(
            "machine {machine} has restarted the application meanwhile, and saves it: end it in one \
             of the two machines (vm kill)"
        );
    }
    Ok(())
}

/// The machine that, by the checkpoints in the store, has restarted the application since this
/// machine last saved it: the machine, the generation, and the time of the checkpoint. Each restart
/// gives an application a higher generation than that of the checkpoint.
fn taken_over(
    (machine, generation): (MachineId, u32),
    started_ms: u64,
    found: &[(MachineId, u32, u64)],
) -> Option<MachineId> {
    let own = found.iter().filter(|(of, ..)| *of == machine);
    let since = own.map(|(.., taken)| *taken).fold(started_ms, u64::max);
    let mut others = found.iter().filter(|(of, ..)| *of != machine);
    let other = others.find(|(_, of, taken)| *of >= generation && *taken > since);
    other.map(|(of, ..)| *of)
}

fn commit(store: &Store, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let agreed = &checkpoint.agreed;
    let id = CheckpointId::new(agreed.generation, agreed.epoch);
    let manifest = manifest(checkpoint)?;
    store.begin(agreed.app, id)?.commit(&manifest)?;
    // The checkpoint is committed, even if the removal of older ones fails.
    let keep = match agreed.policy.keep {
        0 => limits::CHECKPOINTS_KEPT,
        keep => keep,
    };
    if let Err(error) = store.prune(agreed.app, keep as usize, Depth::Lengths) {
        log::warn!("older checkpoints stay in the store: {error}");
    }
    Ok(())
}

fn manifest(checkpoint: &Checkpoint) -> anyhow::Result<Manifest> {
    let agreed = &checkpoint.agreed;
    ensure!(
        agreed.tasks.len() == checkpoint.parts.len(),
        "parts are missing"
    );
    let tasks = agreed.tasks.iter().zip(&checkpoint.parts);
    let tasks = tasks.map(|(task, part)| SavedTask {
        tid: task.tid,
        host: task.place.0.clone(),
        arch: match part.belongings.portable {
            true => ANY_ARCH.to_owned(),
            false => task.place.1.clone(),
        },
        incarnation: task.incarnation,
        requester: task.requester,
        request: task.request,
        index: task.index,
        program: task.program.clone(),
        image: part.image.clone(),
        freeze_us: part.freeze_us,
        unacknowledged: part.unacknowledged,
        belongings: encode(&part.belongings).into(),
    });
    let master = agreed.tasks.iter().find(|task| task.tid == agreed.app);
    let first = master.or(agreed.tasks.first());
    Ok(Manifest {
        machine: agreed.machine,
        app: agreed.app,
        program: first.map(|task| task.program.clone()).unwrap_or_default(),
        generation: agreed.generation,
        epoch: agreed.epoch,
        index: agreed.index,
        taken_ms: now_ms(),
        took_us: checkpoint.took_us,
        policy: agreed.policy,
        tasks: tasks.collect(),
        groups: agreed.groups.clone(),
        kept: checkpoint.kept.clone(),
        context: agreed.context,
    })
}

/// A row of the inventory for other hosts.
fn row(stocked: Stocked) -> StockRow {
    let Stocked { id, here, .. } = stocked;
    let (tasks, unread) = match stocked.manifest {
        Ok(manifest) => (manifest.tasks.len() as u32, None),
        Err(why) => (0, Some(why)),
    };
    let flaws = unread.into_iter().chain(stocked.flaws);
    let flaws = flaws.take(limits::FLAWS_MAX).map(|why| why.to_string());
    StockRow {
        generation: id.generation,
        epoch: id.epoch,
        tasks,
        here,
        flaws: flaws.collect(),
    }
}

fn load(
    root: &Path,
    CheckpointQuery { app, from, depth }: CheckpointQuery,
) -> anyhow::Result<Loaded> {
    let store = Store::open(root)?;
    let mut passed_over = Vec::new();
    let manifest = match from {
        Some(id) => store.read(app, id)?,
        None => {
            let last = store.last_good(app, depth)?;
            let newer = last.passed_over.into_iter();
            passed_over.extend(newer.map(|(id, why)| format!("{id}: {why}")));
            last.good
                .with_context(|| none_good(&store, app, &passed_over))?
                .1
        }
    };
    let mut tasks = Vec::new();
    let mut parts = Vec::new();
    for task in manifest.tasks {
        parts.push(SavedPart {
            image: task.image,
            belongings: decode(&task.belongings)
                .map_err(|cause| anyhow!("what belongs to task {}: {cause}", task.tid))?,
            freeze_us: task.freeze_us,
            unacknowledged: task.unacknowledged,
        });
        tasks.push(AgreedTask {
            tid: task.tid,
            // The number of the host may be that of another machine, so only the name is used.
            host: HostId::NONE,
            place: (task.host, task.arch),
            incarnation: task.incarnation,
            requester: task.requester,
            request: task.request,
            index: task.index,
            program: task.program,
        });
    }
    let agreed = AgreedPart {
        machine: manifest.machine,
        app,
        generation: manifest.generation,
        epoch: manifest.epoch,
        index: manifest.index,
        tasks,
        keepers: Vec::new(),
        groups: manifest.groups,
        policy: manifest.policy,
        context: manifest.context,
    };
    let kept = manifest.kept;
    let checkpoint = Checkpoint {
        agreed,
        parts,
        kept,
        took_us: manifest.took_us,
    };
    Ok(Loaded {
        checkpoint,
        passed_over,
        age_ms: now_ms().saturating_sub(manifest.taken_ms),
    })
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// The reason why no checkpoint of an application can be used, and the applications that have one.
fn none_good(store: &Store, app: Tid, damaged: &[String]) -> String {
    let (name, root) = (name::app(app), store.root().display());
    if let Some(first) = damaged.first() {
        return format!("none of {name} is whole (vm checkpoints --verify): {first}");
    }
    let mut apps: Vec<Tid> = store
        .list()
        .into_iter()
        .flatten()
        .map(|it| it.app)
        .collect();
    apps.dedup();
    let apps = apps.into_iter().take(APPS_SHOWN).map(name::app);
    match &apps.collect::<Vec<_>>()[..] {
        [] => format!("there is none of {name}, nor of another application, in {root}"),
        names => format!(
            "there is none of {name} in {root}, but of {}",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machine_that_restarted_an_application_last_saves_it() {
        let [former, later] = [1, 2].map(MachineId::from_bits);
        let began = 100;
        // Another machine has restarted the application from the former machine's last checkpoint.
        let found = [(former, 7, 200), (later, 8, 300)];
        assert_eq!(taken_over((former, 7), began, &found), Some(later));
        assert_eq!(taken_over((later, 8), began, &found), None);
        // The same holds after the later machine has removed the former machine's checkpoints.
        assert_eq!(taken_over((former, 7), began, &found[1..]), Some(later));
        // The former machine has restarted the application again: its generation is the next.
        assert_eq!(taken_over((former, 9), began, &found), None);
        // A later machine, started after the former one ended, has restarted from an older
        // checkpoint of it.
        assert_eq!(taken_over((later, 3), 250, &[(former, 7, 200)]), None);
        assert_eq!(taken_over((former, 1), began, &[]), None);
    }
}
