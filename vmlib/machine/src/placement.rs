//! Placement: the choice of hosts for tasks.
//!
//! Placement reads only the agreed state and the tasks under way, so it is deterministic. Another
//! daemon may place tasks at the same moment, so a placement may be wrong when the tasks start.
//! Then the log refuses the tasks that do not fit, and the requester gets an error. Leaving hosts
//! take no tasks.
//!
//! Tasks spread by load, the number of tasks per core. Each task goes to the host where it will
//! have the largest share of a core, the lowest host number first among equals. The indices of the
//! tasks on one host follow each other: neighbours by index are neighbours by place, and each host
//! gets one short order.

use crate::{Agreed, Host, HostPhase};
use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};
use vm_wire::{
    HostId,
    task::{FailKind, Failed, Place},
};

/// The tasks for one host: first index and count of each stretch without a gap.
pub type Runs = Vec<(u32, u32)>;

/// A host with room, ordered by its load with one more task.
struct Candidate {
    host: HostId,
    tasks: u64,
    cpus: u64,
    room: u64,
}

impl Candidate {
    fn new(state: &Agreed, host: HostId, found: &Host, underway: u64) -> Self {
        let tasks = state.task_count(host) as u64 + underway;
        Candidate {
            host,
            tasks,
            cpus: u64::from(found.facts.cpus.max(1)),
            room: u64::from(found.facts.tasks_max).saturating_sub(tasks),
        }
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = (self.tasks + 1) * other.cpus;
        let theirs = (other.tasks + 1) * self.cpus;
        ours.cmp(&theirs).then(self.host.cmp(&other.host))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Places `count` tasks. `underway` gives the number of tasks that were ordered from each host and
/// are not in the agreed state yet.
///
/// # Errors
/// [`FailKind::NoSuchHost`] for a name that no living host has, [`FailKind::Limit`] when the hosts
/// allow fewer tasks, [`FailKind::BadRequest`] for an empty list of hosts.
pub fn place(
    state: &Agreed,
    place: &Place,
    count: u32,
    underway: &BTreeMap<HostId, u64>,
) -> Result<BTreeMap<HostId, Runs>, Failed> {
    match place {
        Place::Any => spread(state, count, underway),
        Place::Host(name) => in_turn(state, &[name.as_str()], count, underway),
        Place::Hosts(names) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            in_turn(state, &names, count, underway)
        }
    }
}

fn spread(
    state: &Agreed,
    count: u32,
    underway: &BTreeMap<HostId, u64>,
) -> Result<BTreeMap<HostId, Runs>, Failed> {
    let mut heap: BinaryHeap<Reverse<Candidate>> = state
        .hosts()
        .filter(|(_, host)| host.phase == HostPhase::Living)
        .map(|(id, host)| Candidate::new(state, id, host, known(underway, id)))
        .filter(|candidate| candidate.room > 0)
        .map(Reverse)
        .collect();
    let mut counts: BTreeMap<HostId, u32> = BTreeMap::new();
    for placed in 0..count {
        let Some(Reverse(mut best)) = heap.pop() else {
            return Err(full("the machine", u64::from(placed), count));
        };
        *counts.entry(best.host).or_default() += 1;
        best.tasks += 1;
        best.room -= 1;
        if best.room > 0 {
            heap.push(Reverse(best));
        }
    }
    let mut next = 0;
    let runs = counts.into_iter().map(|(host, count)| {
        let first = next;
        next += count;
        (host, vec![(first, count)])
    });
    Ok(runs.collect())
}

fn in_turn(
    state: &Agreed,
    names: &[&str],
    count: u32,
    underway: &BTreeMap<HostId, u64>,
) -> Result<BTreeMap<HostId, Runs>, Failed> {
    if names.is_empty() {
        let text = "the list of hosts to spawn on is empty";
        return Err(Failed::new(FailKind::BadRequest, text));
    }
    let mut hosts = Vec::with_capacity(names.len());
    let mut room: BTreeMap<HostId, u64> = BTreeMap::new();
    for name in names {
        let id = living_host(state, name)?;
        if let Some(host) = state.host(id) {
            let candidate = Candidate::new(state, id, host, known(underway, id));
            room.insert(id, candidate.room);
        }
        hosts.push((id, *name));
    }
    let mut placed: BTreeMap<HostId, Runs> = BTreeMap::new();
    for (index, (host, name)) in (0..count).zip(hosts.iter().cycle()) {
        match room.get_mut(host) {
            Some(room) if *room > 0 => *room -= 1,
            _ => {
                let fits = known(&tally(&placed), *host);
                let wanted = (index..count).step_by(hosts.len()).len() as u64 + fits;
                return Err(full(&format!("host {name}"), fits, wanted as u32));
            }
        }
        let runs = placed.entry(*host).or_default();
        match runs.last_mut() {
            Some((first, count)) if *first + *count == index => *count += 1,
            _ => runs.push((index, 1)),
        }
    }
    Ok(placed)
}

/// The living host of that name.
///
/// # Errors
/// [`FailKind::NoSuchHost`], with the names of the living hosts.
pub fn living_host(state: &Agreed, name: &str) -> Result<HostId, Failed> {
    let living = |id: &HostId| state.is_living(*id);
    if let Some(id) = state.host_called(name).filter(living) {
        return Ok(id);
    }
    if state.host_called(name).is_none() {
        return Err(no_such_host(state, name));
    }
    let text = state
        .host_called(name)
        .map(|host| takes_no_tasks(state, host))
        .unwrap_or_default();
    Err(Failed::new(FailKind::NoSuchHost, text))
}

/// The reason why a host that is not living takes no tasks, for users.
pub fn takes_no_tasks(state: &Agreed, host: HostId) -> String {
    let found = state.host(host);
    let name = found.map_or_else(|| host.to_string(), |found| found.facts.name.clone());
    match found.map(|found| found.phase) {
        Some(HostPhase::Draining) => {
            format!("host '{name}' is draining and takes no tasks (vm drain --undo {name})")
        }
        Some(HostPhase::Gone | HostPhase::Dead) | None => format!("host '{name}' is gone"),
        _ => format!("host '{name}' is leaving the machine and takes no tasks"),
    }
}

/// The reason why a process of host `from` cannot continue on host `to`; `None`: the hosts are
/// alike.
pub fn unlike(state: &Agreed, from: HostId, to: HostId) -> Option<String> {
    let (from, to) = (&state.host(from)?.facts, &state.host(to)?.facts);
    (from.arch != to.arch).then(|| {
        let (here, there) = (&from.arch, &to.arch);
        format!(
            "it is a process of {here}, and host '{}' is {there}",
            to.name
        )
    })
}

/// The target of a move of a task of `from` whose requester named none: the living host of the same
/// architecture, with room, none of `except`, with the smallest load. `coming` gives the number of
/// tasks that move to each host and are not in the agreed state yet.
///
/// # Errors
/// [`FailKind::Refused`] when no other host takes tasks, or none of the same architecture;
/// [`FailKind::Limit`] when none of those has room.
pub fn best_target(
    state: &Agreed,
    from: HostId,
    except: &BTreeSet<HostId>,
    coming: &BTreeMap<HostId, u64>,
) -> Result<HostId, Failed> {
    let others: Vec<(HostId, &Host)> = state
        .hosts()
        .filter(|(id, host)| *id != from && host.phase == HostPhase::Living)
        .filter(|(id, _)| !except.contains(id))
        .collect();
    let like = |(id, _): &&(HostId, &Host)| unlike(state, from, *id).is_none();
    let candidate =
        |(id, host): &(HostId, &Host)| Candidate::new(state, *id, host, known(coming, *id));
    let best = others.iter().filter(like).map(candidate);
    if let Some(best) = best.filter(|candidate| candidate.room > 0).min() {
        return Ok(best.host);
    }
    let (kind, text) = if others.is_empty() {
        let text = "there is no other host that takes tasks; add one (vm add), or have one that \
                    drains take tasks again (vm drain --undo)";
        (FailKind::Refused, text)
    } else if !others.iter().any(|other| like(&other)) {
        let text = "no other host that takes tasks has its architecture; add one (vm add)";
        (FailKind::Refused, text)
    } else {
        let text = "no other host has room for one more task (see vmd --max-tasks)";
        (FailKind::Limit, text)
    };
    Err(Failed::new(kind, text))
}

/// The architecture of a portable task, which can be restored on any host.
pub const ANY_ARCH: &str = "any";

/// Places the tasks of a checkpoint, given the names and architectures of their former hosts
/// ([`ANY_ARCH`] fits every host). A task goes to the host with that name, which may have its part
/// nearby, else to the host that a new task would get. The first task goes to `first`, if given.
///
/// # Errors
/// [`FailKind::Limit`] when no host of the architecture has room.
pub fn place_again<'a>(
    state: &Agreed,
    tasks: impl Iterator<Item = (&'a str, &'a str)>,
    mut first: Option<HostId>,
) -> Result<Vec<HostId>, Failed> {
    let mut placed: BTreeMap<HostId, u64> = BTreeMap::new();
    let mut hosts = Vec::new();
    for (name, arch) in tasks {
        let only = first.take();
        let candidates = state.hosts().filter(|(host, found)| {
            found.phase == HostPhase::Living
                && (found.facts.arch == arch || arch == ANY_ARCH)
                && only.is_none_or(|only| only == *host)
        });
        let candidates = candidates
            .map(|(host, found)| {
                (
                    host,
                    Candidate::new(state, host, found, known(&placed, host)),
                )
            })
            .filter(|(_, candidate)| candidate.room > 0);
        let named = |host: HostId| state.host(host).is_some_and(|it| it.facts.name == name);
        let best = candidates.min_by(|(a, ours), (b, theirs)| {
            let strangers = (!named(*a)).cmp(&!named(*b));
            strangers.then(ours.cmp(theirs))
        });
        let Some((host, _)) = best else {
            let whose = match only.and_then(|only| state.host(only)) {
                Some(found) => format!("host '{}'", found.facts.name),
                None if arch == ANY_ARCH => "no host".to_owned(),
                None => format!("no host of architecture {arch}"),
            };
            let text = match only {
                Some(_) if arch == ANY_ARCH => format!(
                    "{whose}, where the application's console is, has no room; use --detach, or \
                     restart it on another host"
                ),
                Some(_) => format!(
                    "{whose}, where the application's console is, is not of architecture {arch} or \
                     has no room; use --detach, or restart it on another host"
                ),
                None => format!("{whose} has room for one more task (see vmd --max-tasks)"),
            };
            return Err(Failed::new(FailKind::Limit, text));
        };
        *placed.entry(host).or_default() += 1;
        hosts.push(host);
    }
    Ok(hosts)
}

/// The failure for an unknown host name, with the names of the living hosts.
pub fn no_such_host(state: &Agreed, name: &str) -> Failed {
    let names: Vec<&str> = state
        .hosts()
        .take(NAMES_SHOWN)
        .map(|(_, host)| host.facts.name.as_str())
        .collect();
    let text = format!(
        "no host '{name}' in this machine; there are: {}",
        names.join(", ")
    );
    Failed::new(FailKind::NoSuchHost, text)
}

/// Most hosts that an error names.
const NAMES_SHOWN: usize = 16;

/// Converts runs of places in the ascending list `indices` to runs of these indices.
pub fn of_these(runs: &Runs, indices: &[u32]) -> Runs {
    let places = runs.iter().flat_map(|(first, count)| *first..first + count);
    let mut found = Runs::new();
    for index in places.map(|place| indices[place as usize]) {
        match found.last_mut() {
            Some((first, count)) if *first + *count == index => *count += 1,
            _ => found.push((index, 1)),
        }
    }
    found
}

/// Number of tasks placed on each host.
pub fn tally(placed: &BTreeMap<HostId, Runs>) -> BTreeMap<HostId, u64> {
    let count = |runs: &Runs| runs.iter().map(|(_, count)| u64::from(*count)).sum();
    placed
        .iter()
        .map(|(host, runs)| (*host, count(runs)))
        .collect()
}

fn known(counts: &BTreeMap<HostId, u64>, host: HostId) -> u64 {
    counts.get(&host).copied().unwrap_or(0)
}

fn full(what: &str, fits: u64, wanted: u32) -> Failed {
    Failed::new(
        FailKind::Limit,
        format!("{what} has room for {fits} more tasks, not for {wanted} (see vmd --max-tasks)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::{
        MachineId,
        agreed::{Change, Entry, HostFacts},
    };

    /// A machine with hosts n1, n2 and so on, of these cores and task limits.
    fn machine(hosts: &[(u32, u32)]) -> Agreed {
        let facts = |number: usize| HostFacts {
            name: format!("n{number}"),
            addr: format!("10.0.0.{number}:1"),
            cpus: hosts[number - 1].0,
            tasks_max: hosts[number - 1].1,
            arch: "x86_64".to_owned(),
            store_local: false,
        };
        let mut state = Agreed::founded(MachineId::from_bits(1), 0, facts(1), 1);
        for number in 2..=hosts.len() {
            let change = Change::HostJoin {
                nonce: number as u64,
                facts: facts(number),
            };
            apply(&mut state, change);
        }
        state
    }

    fn apply(state: &mut Agreed, change: Change) {
        let entry = Entry {
            proposer: HostId::FOUNDER,
            number: 0,
            changes: vec![change],
        };
        state.apply(state.index() + 1, &entry);
    }

    fn placed(state: &Agreed, at: Place, count: u32) -> Result<Vec<(u16, Runs)>, FailKind> {
        place(state, &at, count, &BTreeMap::new())
            .map(|placed| {
                placed
                    .into_iter()
                    .map(|(host, runs)| (host.0, runs))
                    .collect()
            })
            .map_err(|failed| failed.kind)
    }

    fn hosts(names: &[&str]) -> Place {
        Place::Hosts(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn tasks_spread_by_cores_and_neighbours_stay_together() {
        let state = machine(&[(2, 100), (4, 100), (2, 100)]);
        assert_eq!(
            placed(&state, Place::Any, 8),
            Ok(vec![
                (1, vec![(0, 2)]),
                (2, vec![(2, 4)]),
                (3, vec![(6, 2)])
            ])
        );
        assert_eq!(placed(&state, Place::Any, 1), Ok(vec![(2, vec![(0, 1)])]));
    }

    #[test]
    fn tasks_under_way_count_as_load() {
        let state = machine(&[(1, 100), (1, 100)]);
        let underway = BTreeMap::from([(HostId(1), 1)]);
        let placed = place(&state, &Place::Any, 1, &underway).map(|p| tally(&p));
        assert_eq!(placed, Ok(BTreeMap::from([(HostId(2), 1)])));
    }

    #[test]
    fn a_full_host_gets_nothing_and_a_full_machine_is_an_error() {
        let state = machine(&[(8, 1), (1, 3)]);
        assert_eq!(
            placed(&state, Place::Any, 4),
            Ok(vec![(1, vec![(0, 1)]), (2, vec![(1, 3)])])
        );
        assert_eq!(placed(&state, Place::Any, 5), Err(FailKind::Limit));
        assert_eq!(placed(&state, hosts(&["n1"]), 2), Err(FailKind::Limit));
    }

    #[test]
    fn named_hosts_are_served_in_turn() {
        let state = machine(&[(1, 100), (1, 100)]);
        assert_eq!(
            placed(&state, hosts(&["n2", "n1"]), 3),
            Ok(vec![(1, vec![(1, 1)]), (2, vec![(0, 1), (2, 1)])])
        );
        assert_eq!(
            placed(&state, hosts(&["n2", "n2"]), 3),
            Ok(vec![(2, vec![(0, 3)])])
        );
        assert_eq!(
            placed(&state, Place::Host("n1".to_owned()), 2),
            Ok(vec![(1, vec![(0, 2)])])
        );
    }

    #[test]
    fn unknown_and_leaving_hosts_are_refused_by_name() {
        let mut state = machine(&[(1, 100), (1, 100)]);
        assert_eq!(placed(&state, hosts(&["n3"]), 1), Err(FailKind::NoSuchHost));
        assert_eq!(placed(&state, hosts(&[]), 1), Err(FailKind::BadRequest));
        apply(&mut state, Change::HostLeaving(HostId(2)));
        assert_eq!(placed(&state, hosts(&["n2"]), 1), Err(FailKind::NoSuchHost));
        assert_eq!(placed(&state, Place::Any, 2), Ok(vec![(1, vec![(0, 2)])]));
    }
}
