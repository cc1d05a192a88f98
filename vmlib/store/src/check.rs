//! Checks whether a manifest can be true: machine and application, then tasks, groups, retained
//! messages and parts. A manifest is checked before it is written and after it is read, because its
//! names become file names.

use crate::{
    error::ManifestError,
    manifest::{Manifest, Part, SavedGroup, SavedTask},
    name,
};
use std::collections::BTreeSet;
use vm_wire::{CheckpointId, MachineId, Tid, limits};

impl Manifest {
    /// Checks whether the manifest can be true.
    ///
    /// # Errors
    /// [`ManifestError::Impossible`]: a task, group or part is named twice, a part's name is not
    /// that of its task, a name holds a separator or is too long, or there are too many of a kind.
    pub fn check(&self) -> Result<(), ManifestError> {
        let machine = self.machine.get() <= MachineId::MAX;
        ensure(machine, || "its machine has no such number".to_owned())?;
        ensure(name::is_task(self.app), || {
            format!("its application {} is no task", self.app)
        })?;
        check_program(&self.program)?;
        check_count("tasks", self.tasks.len(), limits::TASKS_LIVE_MAX)?;
        check_count("groups", self.groups.len(), limits::GROUPS_MAX)?;
        let mut tids = BTreeSet::new();
        for task in &self.tasks {
            ensure(tids.insert(task.tid), || {
                format!("task {} is there twice", self.show(task.tid))
            })?;
            self.check_task(task)?;
        }
        let mut names = BTreeSet::new();
        for group in &self.groups {
            ensure(names.insert(&group.name), || {
                format!("group {:?} is there twice", group.name)
            })?;
            check_group(group)?;
        }
        let mut pairs = BTreeSet::new();
        for kept in &self.kept {
            let (from, to) = (kept.order.from, kept.order.to);
            ensure(tids.contains(&to), || {
                format!("what is kept for {} is for no task of it", self.show(to))
            })?;
            ensure(name::is_task(from) && pairs.insert((from, to)), || {
                format!(
                    "what is kept of {} is wrong, or there twice",
                    self.show(from)
                )
            })?;
        }
        let bytes: usize = self.kept.iter().map(|kept| kept.bytes()).sum();
        check_count("bytes that are kept", bytes, limits::KEPT_SAVED_MAX)?;
        let own = CheckpointId::new(self.generation, self.epoch);
        for part in self.parts() {
            let name = &part.name;
            let Some(base) = part.base else {
                ensure(part.stored == part.bytes, || {
                    format!("{name} has two lengths and no base")
                })?;
                continue;
            };
            let base = CheckpointId::new(base.generation, base.epoch);
            ensure(base < own && self.base() == Some(base), || {
                format!("{name} has the base {base}, which is later, or not that of the others")
            })?;
        }
        Ok(())
    }

    fn check_task(&self, task: &SavedTask) -> Result<(), ManifestError> {
        let shown = self.show(task.tid);
        ensure(name::is_task(task.tid), || format!("{shown} is no task"))?;
        check_name("host", &task.host)?;
        check_name("architecture", &task.arch)?;
        check_program(&task.program)?;
        let (found, right) = (&task.image.name, name::image(self.app, task.tid));
        ensure(*found == right, || {
            format!("the image of {shown} is called {found:?}, not {right}")
        })?;
        check_part(&task.image)
    }

    fn show(&self, tid: Tid) -> String {
        tid.show(self.app.machine())
    }
}

fn check_group(group: &SavedGroup) -> Result<(), ManifestError> {
    let name = &group.name;
    let fits = !name.is_empty() && name.len() <= limits::NAME_MAX;
    ensure(fits, || format!("{name:?} is no name of a group"))?;
    let count = group.members.len();
    check_count("members", count, limits::GROUP_MEMBERS_MAX)?;
    let numbers: BTreeSet<_> = group.members.iter().map(|(number, _)| number).collect();
    let tids: BTreeSet<_> = group.members.iter().map(|(_, tid)| tid).collect();
    ensure(numbers.len() == count && tids.len() == count, || {
        format!("group {name:?} has a member twice")
    })
}

fn check_part(part: &Part) -> Result<(), ManifestError> {
    check_name("host", &part.place)?;
    let Some(copy) = &part.copy else {
        return Ok(());
    };
    check_name("host", copy)?;
    ensure(*copy != part.place, || {
        format!("{} has its copy on the same host, {copy}", part.name)
    })
}

/// An unknown program has an empty name.
fn check_program(program: &str) -> Result<(), ManifestError> {
    match program {
        "" => Ok(()),
        _ => check_name("program", program),
    }
}

fn check_name(what: &str, name: &str) -> Result<(), ManifestError> {
    let fits = !name.is_empty() && name.len() <= limits::NAME_MAX;
    ensure(fits && !name.contains(['/', '\0']), || {
        format!("{name:?} is no name of a {what}")
    })
}

fn check_count(what: &str, count: usize, max: usize) -> Result<(), ManifestError> {
    ensure(count <= max, || {
        format!("it has {count} {what}, and {max} are the most")
    })
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), ManifestError> {
    match holds {
        true => Ok(()),
        false => Err(ManifestError::Impossible { what: what() }),
    }
}
