//! The checkpoints in a store, read without a daemon. If each host has a store of its own, each has the
//! manifests of all checkpoints and the parts of some tasks; the daemons reply which parts they have.

use anyhow::{Context as _, bail};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use vm_store::{CheckpointId, State, Store, Summary, name};
use vm_wire::{
    Tid,
    console::Conf,
    stores::{HostStock, StockRow},
};

/// The folder of a store.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The path of the folder.
    pub root: PathBuf,
    /// The host, if each host has a store of its own; none if all hosts share the store.
    pub host: Option<String>,
}

impl Folder {
    /// A folder that the user named, taken for a shared store.
    pub fn at(root: &Path) -> Self {
        let root = root.to_owned();
        Folder { root, host: None }
    }

    /// The store of this host's daemon.
    pub fn of(conf: &Conf) -> Self {
        let here = conf.hosts.iter().find(|row| row.host == conf.here);
        let here = here.filter(|row| row.facts.store_local);
        Folder {
            root: PathBuf::from(&conf.store),
            host: here.map(|row| row.facts.name.clone()),
        }
    }

    fn open(&self) -> anyhow::Result<Store> {
        let store = Store::open(&self.root);
        let store = store.with_context(|| format!("the store {}", self.root.display()))?;
        Ok(match &self.host {
            // No parts are looked for here: the daemons do that.
            Some(_) => store.of_host(""),
            None => store,
        })
    }
}

/// A checkpoint.
#[derive(Debug)]
pub struct Row {
    /// The application.
    pub app: Tid,
    /// Its generation and epoch.
    pub id: CheckpointId,
    /// The summary of its manifest, unless that is damaged.
    pub summary: Option<Summary>,
    /// The reason why the checkpoint cannot be used.
    pub damaged: Option<String>,
    /// If hosts have stores of their own: the number of images of which only one host in the machine has
    /// a part.
    pub alone: usize,
    /// If the store has a bucket: whether the checkpoint is there too.
    pub in_bucket: Option<bool>,
}

impl Row {
    /// The application's name in the store.
    pub fn app_name(&self) -> String {
        name::app(self.app)
    }
}

/// All checkpoints in the store, by application, oldest first; with `verify`, all parts are read.
/// Checkpoints that are not committed are left out.
///
/// # Errors
/// If the folder cannot be read.
pub fn list(folder: &Folder, verify: bool) -> anyhow::Result<Vec<Row>> {
    if !folder.root.exists() {
        return Ok(Vec::new());
    }
    let shown = folder.root.display();
    let store = folder.open()?;
    let entries = store.list().with_context(|| format!("the store {shown}"))?;
    let row = |entry: vm_store::Entry| {
        let (app, id) = (entry.app, entry.id);
        let (summary, damaged) = match entry.state {
            State::Unfinished { .. } => return None,
            State::Damaged(why) => (None, Some(why.to_string())),
            State::Committed(summary) => {
                let verify = verify && folder.host.is_none();
                let verdict = verify.then(|| store.verify(app, id).err()).flatten();
                (Some(summary), verdict.map(|why| why.to_string()))
            }
        };
        Some(Row {
            app,
            id,
            summary,
            damaged,
            alone: 0,
            in_bucket: None,
        })
    };
    Ok(entries.into_iter().filter_map(row).collect())
}

/// Sets, for each checkpoint of an application, whether the hosts together have all parts, from the
/// inventories of their stores.
pub fn merge(rows: &mut [Row], app: Tid, stock: &[HostStock]) {
    let of_all: Vec<&StockRow> = stock
        .iter()
        .flat_map(|host| host.result.iter().flatten())
        .collect();
    for row in rows.iter_mut().filter(|row| row.app == app) {
        let is_it =
            |it: &&&StockRow| (it.generation, it.epoch) == (row.id.generation, row.id.epoch);
        let of_it: Vec<&&StockRow> = of_all.iter().filter(is_it).collect();
        let Some(tasks) = of_it.iter().map(|it| it.tasks as usize).max() else {
            continue;
        };
        let mut copies: BTreeMap<Tid, usize> = BTreeMap::new();
        for tid in of_it.iter().flat_map(|it| &it.here) {
            *copies.entry(*tid).or_default() += 1;
        }
        row.alone = copies.values().filter(|count| **count == 1).count();
        let missing = tasks.saturating_sub(copies.len());
        let flaw = of_it.iter().find_map(|it| it.flaws.first().cloned());
        row.damaged = match (missing, tasks) {
            (0, 1..) => None,
            _ => flaw.or(Some(format!(
                "{missing} of its {tasks} images are on no host of the machine"
            ))),
        };
    }
}

/// The only application with a checkpoint among `rows`.
///
/// # Errors
/// If there is none, or there are several: then the error has their names.
pub fn only(folder: &Folder, rows: &[Row]) -> anyhow::Result<Tid> {
    let mut apps: Vec<Tid> = rows.iter().map(|row| row.app).collect();
    apps.dedup();
    match apps[..] {
        [app] => Ok(app),
        [] => bail!("no checkpoint is in the store {}", folder.root.display()),
        _ => {
            let names: Vec<String> = apps.iter().map(|app| name::app(*app)).collect();
            bail!(
                "checkpoints of several applications are in the store: give one of {}",
                names.join(", ")
            )
        }
    }
}

/// The applications whose masters ran a program of that name, by the time of their last checkpoint.
///
/// # Errors
/// As [`list`].
pub fn of_program(folder: &Folder, program: &str) -> anyhow::Result<Vec<Tid>> {
    let mut last: BTreeMap<Tid, u64> = BTreeMap::new();
    for row in list(folder, false)? {
        let summary = row.summary.filter(|summary| summary.program == program);
        if let Some(summary) = summary {
            let newest = last.entry(row.app).or_default();
            *newest = summary.taken_ms.max(*newest);
        }
    }
    let mut apps: Vec<(u64, Tid)> = last.into_iter().map(|(app, taken)| (taken, app)).collect();
    apps.sort_unstable();
    Ok(apps.into_iter().map(|(_, app)| app).collect())
}

/// Whether the store has a checkpoint of that application, damaged or not.
///
/// # Errors
/// As [`list`].
pub fn knows(folder: &Folder, app: Tid) -> anyhow::Result<bool> {
    Ok(list(folder, false)?.iter().any(|row| row.app == app))
}

/// The error text for an application without a checkpoint in the store.
pub fn none_of(folder: &Folder, app: Tid) -> String {
    format!(
        "no checkpoint of {} is in the store {}: 'vm checkpoints' lists the store",
        name::app(app),
        folder.root.display()
    )
}

/// Removes all checkpoints of an application.
///
/// # Errors
/// If the store cannot be opened, or something in it cannot be removed.
pub fn remove(folder: &Folder, app: Tid) -> anyhow::Result<()> {
    let shown = folder.root.display();
    let removed = folder.open()?.forget(app);
    removed.with_context(|| format!("the store {shown}"))
}
