//! The cuts that are under way on this host, and the parts of its tasks in them.

use super::{
    commits::Commit,
    part::{PartState, Saving},
};
use crate::{
    LaunchSpec, Time, Written,
    daemon::context::{Context, Timer},
};
use std::collections::BTreeMap;
use vm_wire::{
    Frame, HostId, Tid,
    checkpoint::{AgreedPart, Checkpoint, CheckpointEnd, Part, SavedPart},
    limits,
    peer::Belongings,
    task::Failed,
};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Cuts {
    /// By application.
    underway: BTreeMap<Tid, Cut>,
    postponed: Vec<Postponed>,
}

/// A reply to a request of a task, that waits until this daemon has carried out the cut of the
/// task's application.
#[derive(Debug)]
pub(in crate::daemon) struct Postponed {
    pub tid: Tid,
    pub request: u64,
    pub reply: Frame,
}

/// A cut of an application.
#[derive(Debug)]
struct Cut {
    generation: u32,
    epoch: u32,
    /// The application ends with the cut.
    ends_app: bool,
    /// The log has let the tasks resume.
    resumed: bool,
    began: Time,
    /// The parts of the tasks here.
    parts: BTreeMap<Tid, PartState>,
    /// Tasks that were spawned while the application was frozen.
    launches: Vec<LaunchSpec>,
    /// The agreed part of the checkpoint, for the coordinator; none if this daemon does not know it.
    agreed: Option<AgreedPart>,
    /// The commit that the coordinator has requested.
    commit: Option<Commit>,
    /// If the application ends with the cut: the results that go to daemons then.
    ends: Vec<(HostId, CheckpointEnd)>,
}

/// The cut that a task is saved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) struct SavedFor {
    pub app: Tid,
    pub generation: u32,
    pub epoch: u32,
    /// The application ends with the cut.
    pub ends_app: bool,
}

/// The tasks here of a cut whose application resumes.
#[derive(Debug)]
pub(in crate::daemon) struct Resumed {
    /// Tasks that are frozen for their parts.
    pub frozen: Vec<Tid>,
    /// Tasks that can be started now.
    pub launches: Vec<LaunchSpec>,
}

/// The tasks here that a cut has waited for, in vain so far.
#[derive(Debug)]
pub(in crate::daemon) struct Late {
    /// Tasks that are starting, or that are moving to this host.
    pub waiting: Vec<Tid>,
    /// Tasks that run although they were told to freeze, if they had [`limits::SAFE_POINT`] for it.
    pub running: Vec<Tid>,
    /// The cut has lasted for [`limits::CUT_TIME`].
    pub is_over: bool,
}

/// A cut that the log has ended.
#[derive(Debug)]
pub(in crate::daemon) struct Ended {
    pub app: Tid,
    pub generation: u32,
    /// The tasks here that had parts in the cut.
    pub tids: Vec<Tid>,
    /// Tasks that were spawned while the application was frozen, and that were not started since.
    pub launches: Vec<LaunchSpec>,
    pub agreed: Option<AgreedPart>,
    /// If the application ends with the cut: the results that go to daemons then.
    pub ends: Vec<(HostId, CheckpointEnd)>,
}

/// Cuts, from their log entries to their ends.
impl Cuts {
    /// The log has cut an application.
    pub fn begin(&mut self, cx: &mut Context, app: Tid, epoch: u32, agreed: Option<AgreedPart>) {
        let epochs = cx.agreement.state().epochs(app);
        let cut = Cut {
            generation: epochs.generation,
            epoch,
            ends_app: epochs.cut.is_some_and(|cut| cut.stop.is_some()),
            resumed: false,
            began: cx.now,
            parts: BTreeMap::new(),
            launches: Vec::new(),
            agreed,
            commit: None,
            ends: Vec::new(),
        };
        self.underway.insert(app, cut);
        for wait in [limits::CUT_START, limits::SAFE_POINT, limits::CUT_TIME] {
            cx.set_timer(cx.now + wait, Timer::Cut(app, epoch));
        }
    }

    /// Whether a cut of an application is under way here.
    pub fn has(&self, app: Tid) -> bool {
        self.underway.contains_key(&app)
    }

    /// The epochs of the cuts that are under way here, with their applications.
    pub fn epochs(&self) -> Vec<(Tid, u32)> {
        let cuts = self.underway.iter();
        cuts.map(|(app, cut)| (*app, cut.epoch)).collect()
    }

    /// The epoch of an application's cut and what was agreed when the cut was made, if this daemon
    /// knows that.
    pub fn made(&self, app: Tid) -> Option<(u32, Option<&AgreedPart>)> {
        let cut = self.underway.get(&app)?;
        Some((cut.epoch, cut.agreed.as_ref()))
    }

    /// The epoch of an application's cut, if the application has not resumed.
    pub fn frozen(&self, app: Tid) -> Option<u32> {
        let cut = self.underway.get(&app).filter(|cut| !cut.resumed)?;
        Some(cut.epoch)
    }

    /// Whether the log has cut an application and this daemon has not carried that out: the agreed
    /// state is ahead of this daemon by the entries that came together.
    pub fn is_ahead(&self, cx: &Context, app: Tid) -> bool {
        let state = cx.agreement.state();
        let known = self.underway.get(&app).map(|cut| cut.epoch);
        state.is_standing(app) && known != Some(state.epochs(app).epoch)
    }

    /// Keeps a reply until this daemon has carried out the cut of the task's application.
    pub fn postpone(&mut self, tid: Tid, request: u64, reply: Frame) {
        self.postponed.push(Postponed {
            tid,
            request,
            reply,
        });
    }

    pub fn take_postponed(&mut self) -> Vec<Postponed> {
        std::mem::take(&mut self.postponed)
    }

    /// Keeps a spawned task until its application resumes. The task is returned if the application is
    /// not frozen.
    pub fn delay(&mut self, app: Tid, spec: LaunchSpec) -> Option<LaunchSpec> {
        match self.underway.get_mut(&app) {
            Some(cut) if !cut.resumed => {
                cut.launches.push(spec);
                None
            }
            _ => Some(spec),
        }
    }

    /// The log lets an application resume. None if this daemon has no such cut, or if the application
    /// was restarted since: the tasks of the cut have ended.
    pub fn resume(&mut self, cx: &Context, app: Tid, epoch: u32) -> Option<Resumed> {
        let generation = cx.agreement.state().epochs(app).generation;
        let cut = self.at(app, epoch)?;
        cut.resumed = true;
        if cut.generation != generation {
            return None;
        }
        let mut frozen = Vec::new();
        for (tid, part) in &mut cut.parts {
            if let PartState::Saving(saving) = part {
                saving.on_resumed(cx.now);
                frozen.push(*tid);
            }
        }
        let launches = std::mem::take(&mut cut.launches);
        Some(Resumed { frozen, launches })
    }

    /// The tasks that a cut still waits for. None if this daemon has no such cut.
    pub fn late(&self, cx: &Context, app: Tid, epoch: u32) -> Option<Late> {
        let cut = self.underway.get(&app).filter(|cut| cut.epoch == epoch)?;
        let is_late = cut.began + limits::SAFE_POINT <= cx.now;
        let tids_of = |which: &dyn Fn(&PartState) -> bool| {
            let parts = cut.parts.iter().filter(|(_, part)| which(part));
            parts.map(|(tid, _)| *tid).collect()
        };
        // The last timer of a cut is that of its end.
        let timer = Timer::Cut(app, epoch);
        Some(Late {
            waiting: tids_of(&|part| matches!(part, PartState::Waiting)),
            running: tids_of(&|part| match part {
                PartState::Saving(saving) => is_late && saving.runs(),
                _ => false,
            }),
            is_over: !cx.timers.iter().any(|(_, other)| *other == timer),
        })
    }

    /// The coordinator has all parts: begins the commit of the checkpoint. Whether it began now.
    pub fn begin_commit(&mut self, cx: &mut Context, checkpoint: &Checkpoint) -> bool {
        let agreed = &checkpoint.agreed;
        let cut = self.at(agreed.app, agreed.epoch);
        let Some(cut) = cut.filter(|cut| cut.commit.is_none()) else {
            return false;
        };
        cut.commit = Some(Commit::begin(cx, checkpoint));
        true
    }

    /// A host has committed a checkpoint, has failed to, or is lost. Returned is the result once no
    /// host is awaited any more.
    pub fn end_commit_at(
        &mut self,
        host: HostId,
        app: Tid,
        epoch: u32,
        result: Result<(), Failed>,
    ) -> Option<Result<(), Failed>> {
        let commit = self.at(app, epoch)?.commit.as_mut()?;
        commit.end_at(host, result)
    }

    /// The coordinator ends a cut with which its application ends: notes the results that go to
    /// daemons then.
    pub fn note_ends(&mut self, app: Tid, ends: Vec<(HostId, CheckpointEnd)>) {
        if let Some(cut) = self.underway.get_mut(&app) {
            cut.ends = ends;
            cut.ends.truncate(1 + limits::CHECKPOINTS_WAITING_MAX);
        }
    }

    /// The log has ended a cut.
    pub fn end(&mut self, cx: &mut Context, app: Tid, epoch: u32) -> Option<Ended> {
        self.at(app, epoch)?;
        let cut = self.underway.remove(&app)?;
        cx.cancel_timer(Timer::Cut(app, epoch));
        Some(Ended {
            app,
            generation: cut.generation,
            tids: cut.parts.into_keys().collect(),
            launches: cut.launches,
            agreed: cut.agreed,
            ends: cut.ends,
        })
    }

    /// The cut of an application, if it has that epoch.
    fn at(&mut self, app: Tid, epoch: u32) -> Option<&mut Cut> {
        let cut = self.underway.get_mut(&app);
        cut.filter(|cut| cut.epoch == epoch)
    }
}

/// The parts of tasks here.
impl Cuts {
    /// A task of that application is here: notes its part, if its application is frozen and the part
    /// was not begun. Returned is the cut that the task is to be saved for.
    pub fn expect_part(&mut self, app: Tid, tid: Tid) -> Option<SavedFor> {
        let cut = self.underway.get_mut(&app).filter(|cut| !cut.resumed)?;
        let part = cut.parts.entry(tid).or_insert(PartState::Waiting);
        let is_waiting = matches!(part, PartState::Waiting);
        is_waiting.then(|| cut.saved_for(app))
    }

    /// A task is told to freeze. Its image gets a copy on the second host, if there is one.
    pub fn begin_part(
        &mut self,
        app: Tid,
        tid: Tid,
        belongings: Belongings,
        second: Option<HostId>,
    ) {
        if let Some(cut) = self.underway.get_mut(&app) {
            let saving = Box::new(Saving::new(belongings, second));
            cut.parts.insert(tid, PartState::Saving(saving));
        }
    }

    /// The cut that a task is being saved for. The task may have ended meanwhile.
    pub fn saved_for(&self, tid: Tid) -> Option<SavedFor> {
        let mut cuts = self.underway.iter();
        let (app, cut) = cuts.find(|(_, cut)| cut.saves(tid))?;
        Some(cut.saved_for(*app))
    }

    /// Whether a task of that application is frozen for its part, or was told to freeze.
    pub fn is_frozen(&self, app: Tid, tid: Tid) -> bool {
        let cut = self.underway.get(&app).filter(|cut| !cut.resumed);
        cut.is_some_and(|cut| cut.saves(tid))
    }

    /// A task is frozen. It has written its image, or a copy of it writes the image.
    pub fn on_frozen(&mut self, now: Time, tid: Tid, written: Written) {
        if let Some(saving) = self.saving(tid) {
            saving.on_frozen(now, written);
        }
    }

    /// A task has come to a call of the library, where it freezes if it was told to.
    pub fn on_call(&mut self, tid: Tid) {
        if let Some(saving) = self.saving(tid) {
            saving.on_call();
        }
    }

    /// A task has become portable: whether it was told to freeze, and is not frozen.
    pub fn on_portable(&mut self, tid: Tid) -> bool {
        self.saving(tid).is_some_and(Saving::on_portable)
    }

    /// The image of a task is in the store here. Returned is the host that is to copy it, if any is.
    pub fn on_stored(&mut self, tid: Tid, part: Part) -> Option<HostId> {
        self.saving(tid)?.on_stored(part)
    }

    /// The image of a task that a second host copies.
    pub fn copying(&self, app: Tid, tid: Tid, host: HostId) -> Option<&Part> {
        match self.underway.get(&app)?.parts.get(&tid)? {
            PartState::Saving(saving) => saving.copying(host),
            _ => None,
        }
    }

    /// The second host, which has this name, has copied the image of a task.
    pub fn on_copied(&mut self, tid: Tid, name: String) {
        if let Some(saving) = self.saving(tid) {
            saving.on_copied(name);
        }
    }

    /// The tasks whose images are to have a second copy on that host, each after its application.
    pub fn copied_to(&self, host: HostId) -> Vec<(Tid, Tid)> {
        let mut tids = Vec::new();
        for (app, cut) in &self.underway {
            for (tid, part) in &cut.parts {
                if matches!(part, PartState::Saving(saving) if saving.is_copied_to(host)) {
                    tids.push((*app, *tid));
                }
            }
        }
        tids
    }

    /// The saved part of a task, with its application, once the part is complete. It is returned
    /// once.
    pub fn take_saved(&mut self, now: Time, tid: Tid) -> Option<(Tid, SavedPart)> {
        let of = self.saved_for(tid)?;
        let saved = self.saving(tid)?.take_saved(of.ends_app.then_some(now))?;
        Some((of.app, saved))
    }

    /// The result of a task's part is reported: the epoch of its cut.
    pub fn report(&mut self, app: Tid, tid: Tid) -> Option<u32> {
        let cut = self.underway.get_mut(&app)?;
        cut.parts.insert(tid, PartState::Reported);
        Some(cut.epoch)
    }

    /// A task belongs to another host. If its application was cut before that, it is saved there.
    pub fn forget_waiting(&mut self, tid: Tid) {
        for cut in self.underway.values_mut() {
            if matches!(cut.parts.get(&tid), Some(PartState::Waiting)) {
                cut.parts.remove(&tid);
            }
        }
    }

    fn saving(&mut self, tid: Tid) -> Option<&mut Saving> {
        let mut cuts = self.underway.values_mut();
        cuts.find_map(|cut| match cut.parts.get_mut(&tid)? {
            PartState::Saving(saving) => Some(&mut **saving),
            _ => None,
        })
    }
}

impl Cut {
    fn saved_for(&self, app: Tid) -> SavedFor {
        SavedFor {
            app,
            generation: self.generation,
            epoch: self.epoch,
            ends_app: self.ends_app,
        }
    }

    fn saves(&self, tid: Tid) -> bool {
        matches!(self.parts.get(&tid), Some(PartState::Saving(_)))
    }
}
