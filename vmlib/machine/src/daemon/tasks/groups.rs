//! Requests of tasks about groups. The agreed state contains the groups.

use crate::{
    Void,
    daemon::{
        Daemon,
        task_request::{Reply, Waiting},
    },
};
use vm_wire::{
    Frame, Message, Tid,
    agreed::Change,
    limits,
    task::{FailKind, Failed, GroupAsk, GroupChange, GroupView},
};

impl Daemon {
    pub(in crate::daemon) fn change_group(&mut self, tid: Tid, change: GroupChange) -> Reply {
        if let Err(failed) = check_name(&change.group) {
            return Reply::Now(failed.frame());
        }
        self.propose_membership(tid, &change);
        let waiting = self.parked.by_group.entry(change.group.clone());
        waiting.or_default().insert(tid);
        Reply::Later(Waiting::Membership(change))
    }

    pub(in crate::daemon) fn propose_membership(&mut self, tid: Tid, change: &GroupChange) {
        let group = change.group.clone();
        let generation = self.cx.generation_of(tid);
        self.cx.agreement.propose(match change.join {
            true => Change::GroupJoin {
                group,
                tid,
                generation,
            },
            false => Change::GroupLeave {
                group,
                tid,
                generation,
            },
        });
    }

    /// No proposal of this daemon is pending any more: membership changes that requests still wait
    /// for were void, and this daemon was not notified. Proposes these changes again. (A daemon
    /// that is far behind receives a snapshot, and not the result of each change.)
    pub(in crate::daemon) fn sweep_lost_memberships(&mut self) {
        if self.parked.by_group.is_empty() {
            return;
        }
        let waiting = self.parked.by_group.values().flatten();
        let lost = waiting.filter_map(|tid| match &self.tasks.get(tid)?.waiting {
            Some(Waiting::Membership(change)) => Some((*tid, change.clone())),
            _ => None,
        });
        for (tid, change) in lost.collect::<Vec<_>>() {
            self.propose_membership(tid, &change);
        }
    }

    pub(in crate::daemon) fn ask_group(&mut self, tid: Tid, ask: GroupAsk) -> Reply {
        if let Err(failed) = check_name(&ask.group) {
            return Reply::Now(failed.frame());
        }
        if let Some(answer) = self.view_since(&ask) {
            return Reply::Now(answer);
        }
        let waiting = self.parked.by_group.entry(ask.group.clone());
        waiting.or_default().insert(tid);
        Reply::Later(Waiting::GroupVersion(ask))
    }

    /// The reply to a request for a group; `None` if the request has to wait for its version.
    /// Versions increase over all groups. A request for a version that a removed group had
    /// therefore fails, and a request for a higher version waits until the group is created.
    fn view_since(&self, ask: &GroupAsk) -> Option<Frame> {
        match self.cx.agreement.state().group(&ask.group) {
            Some(group) if group.version >= ask.version => Some(self.view(&ask.group).frame()),
            None if ask.version == 0
                || ask.version <= self.cx.agreement.state().group_version() =>
            {
                let text = format!("there is no group '{}'", ask.group);
                Some(Failed::new(FailKind::NoSuchGroup, text).frame())
            }
            _ => None,
        }
    }

    fn view(&self, name: &str) -> GroupView {
        let group = self.cx.agreement.state().group(name);
        let members = group.map(|group| group.members.iter().map(|(i, tid)| (*i, *tid)).collect());
        GroupView {
            group: name.to_owned(),
            version: group.map_or(0, |group| group.version),
            members: members.unwrap_or_default(),
        }
    }

    /// A group has changed: replies to the requests that waited for the change.
    pub(in crate::daemon) fn on_group_changed(&mut self, name: &str) {
        let Some(waiting) = self.parked.by_group.remove(name) else {
            return;
        };
        for tid in waiting {
            let Some(task) = self.tasks.get(&tid) else {
                continue;
            };
            let request = task.asked;
            let answer = match &task.waiting {
                Some(Waiting::Membership(change)) if change.group == name => {
                    self.membership_reached(tid, change)
                }
                Some(Waiting::GroupVersion(ask)) if ask.group == name => self.view_since(ask),
                _ => continue,
            };
            match answer {
                Some(answer) => self.answer_task(tid, request, answer),
                None => {
                    let waiting = self.parked.by_group.entry(name.to_owned());
                    waiting.or_default().insert(tid);
                }
            }
        }
    }

    /// The reply to a join or leave, if the agreed state contains its effect.
    fn membership_reached(&self, tid: Tid, change: &GroupChange) -> Option<Frame> {
        let group = self.cx.agreement.state().group(&change.group);
        let member = group.is_some_and(|group| group.instance(tid).is_some());
        (member == change.join).then(|| self.view(&change.group).frame())
    }

    /// The log has voided a change of a membership.
    pub(in crate::daemon) fn on_membership_void(
        &mut self,
        tid: Tid,
        name: &str,
        join: bool,
        why: Void,
    ) {
        // A request of an earlier generation has no task that waits. The task that waits now has
        // made its request in this generation.
        let task = self.tasks.get(&tid).filter(|_| why != Void::Generation);
        let Some(task) = task else {
            return;
        };
        let change = match &task.waiting {
            Some(Waiting::Membership(change)) if change.group == name && change.join == join => {
                change.clone()
            }
            _ => return,
        };
        let request = task.asked;
        let answer = match (why, join) {
            // Joining twice changes nothing.
            (Void::Member, true) => self.view(name).frame(),
            (Void::Member, false) => {
                let text = format!("{tid} is no member of group '{name}'");
                Failed::new(FailKind::NotMember, text).frame()
            }
            (Void::Limit, _) => {
                let text = format!("group '{name}' is full, or there are too many groups");
                Failed::new(FailKind::Limit, text).frame()
            }
            (why, _) => Failed::new(FailKind::Refused, why.to_string()).frame(),
        };
        if let Some(waiting) = self.parked.by_group.get_mut(&change.group) {
            waiting.remove(&tid);
            if waiting.is_empty() {
                self.parked.by_group.remove(&change.group);
            }
        }
        self.answer_task(tid, request, answer);
    }
}

fn check_name(name: &str) -> Result<(), Failed> {
    if name.is_empty() || name.len() > limits::NAME_MAX {
        let max = limits::NAME_MAX;
        let text = format!("a group's name has 1 to {max} bytes");
        return Err(Failed::new(FailKind::BadRequest, text));
    }
    Ok(())
}
