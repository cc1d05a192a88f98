//! The checkpoints in a store, which needs no daemon.

use anyhow::{Context as _, bail};
use std::{collections::BTreeMap, path::Path};
use vm_store::{CheckpointId, State, Store, Summary, name};
use vm_wire::Tid;

/// One of them.
#[derive(Debug)]
pub struct Row {
    /// The application.
    pub app: Tid,
    /// Which of its checkpoints.
    pub id: CheckpointId,
    /// What is in it, if that can be known.
    pub summary: Option<Summary>,
    /// Why it is of no use.
    pub damaged: Option<String>,
}

impl Row {
    /// The application's name in the store.
    pub fn app_name(&self) -> String {
        name::app(self.app)
    }
}

/// All that are in the store, by application, oldest first; each is read whole if `verify`. One that
/// is just being made is left out.
///
/// # Errors
/// When there is no such folder, or it cannot be read.
pub fn list(root: &Path, verify: bool) -> anyhow::Result<Vec<Row>> {
    if !root.exists() {
        return Ok(Vec::new());
    }
    let shown = root.display();
    let store = Store::open(root).with_context(|| format!("the store {shown}"))?;
    let entries = store.list().with_context(|| format!("the store {shown}"))?;
    let row = |entry: vm_store::Entry| {
        let (app, id) = (entry.app, entry.id);
        let (summary, damaged) = match entry.state {
            State::Unfinished { .. } => return None,
            State::Damaged(why) => (None, Some(why.to_string())),
            State::Committed(summary) => {
                let verdict = verify.then(|| store.verify(app, id).err()).flatten();
                (Some(summary), verdict.map(|why| why.to_string()))
            }
        };
        Some(Row {
            app,
            id,
            summary,
            damaged,
        })
    };
    Ok(entries.into_iter().filter_map(row).collect())
}

/// The application of which there are checkpoints, if it is the only one.
///
/// # Errors
/// When there is none, or there are several: then their names are said.
pub fn only(root: &Path) -> anyhow::Result<Tid> {
    let mut apps: Vec<Tid> = list(root, false)?.iter().map(|row| row.app).collect();
    apps.dedup();
    match apps[..] {
        [app] => Ok(app),
        [] => bail!("no checkpoint is in the store {}", root.display()),
        _ => {
            let names: Vec<String> = apps.iter().map(|app| name::app(*app)).collect();
            bail!(
                "checkpoints of several applications are in the store: say which of {}",
                names.join(", ")
            )
        }
    }
}

/// The applications whose masters ran a program of that name, by the times of their last checkpoints.
///
/// # Errors
/// As [`list`].
pub fn of_program(root: &Path, program: &str) -> anyhow::Result<Vec<Tid>> {
    let mut last: BTreeMap<Tid, u64> = BTreeMap::new();
    for row in list(root, false)? {
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

/// Removes all checkpoints of an application.
///
/// # Errors
/// When there is no such store, or something in it cannot be removed.
pub fn remove(root: &Path, app: Tid) -> anyhow::Result<()> {
    let shown = root.display();
    let store = Store::open(root).with_context(|| format!("the store {shown}"))?;
    store
        .forget(app)
        .with_context(|| format!("the store {shown}"))
}
