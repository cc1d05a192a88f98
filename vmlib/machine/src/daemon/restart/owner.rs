//! The steps of a host that owns restarted tasks: it reads the manifest, restores its tasks, and
//! resumes them when all tasks of the application are restored.

use super::table::{Restarts, Restoring};
use crate::{
    MoveOutput, StoreOutput,
    daemon::{
        context::{Context, Question, Timer},
        effect::Effect,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    agreed::Change,
    checkpoint::{Checkpoint, KeptChunks},
    limits,
    peer::Belongings,
    task::{Ended, FailKind, Failed, KeptBy},
};

impl Restarts {
    /// Requests the manifest from the host where the restart was requested. `false` if that is not
    /// possible, or was done already.
    pub(super) fn ask_requesting_host(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
    ) -> bool {
        let (own, me) = (cx.has_own_stores(), cx.me);
        let requester = cx
            .agreement
            .state()
            .reviving(app)
            .map(|it| it.requester.host);
        let revived = self.restoring.get_mut(&app);
        let Some(revived) = revived.filter(|it| own && it.generation == generation) else {
            return false;
        };
        let requester = requester.filter(|requester| *requester != me);
        let (Some(requester), false) = (requester, std::mem::replace(&mut revived.asked, true))
        else {
            return false;
        };
        let from = revived.from;
        let question = cx.question(Question::Revive(app, generation));
        self.ask_manifest(cx, requester, question, (app, from));
        true
    }

    /// The log has applied a restart, with the host of each task.
    pub fn on_revived(&mut self, cx: &mut Context, app: Tid, generation: u32, lingers: bool) {
        let state = cx.agreement.state();
        let owned = |tid: Tid| {
            state
                .living_task(tid)
                .map(|it| (tid, it.host, it.incarnation))
        };
        let tasks: Vec<_> = state.tasks_of(app).filter_map(owned).collect();
        let awaited = state.reviving(app).filter(|it| it.awaited.contains(&cx.me));
        let how = awaited.cloned();
        let here = tasks.iter().filter(|(_, host, _)| *host == cx.me);
        let here: BTreeMap<Tid, bool> = here.map(|(tid, ..)| (*tid, false)).collect();
        if let Some(how) = how {
            let revived = Restoring {
                generation,
                from: how.from,
                keep_files: how.keep_files,
                tasks: here,
                loads: false,
                asked: false,
                kept: Vec::new(),
            };
            self.restoring.insert(app, revived);
            let due = cx.now + limits::REVIVE_TIME;
            cx.set_timer(due, Timer::Revive(app, generation));
            self.review_restoring(cx, app, lingers);
        }
    }

    /// Reads the manifest, unless a process of the earlier generation is still on this host
    /// (`lingers`). A host without a task of the application has nothing to read.
    pub fn review_restoring(&mut self, cx: &mut Context, app: Tid, lingers: bool) {
        let Some(revived) = self.restoring.get_mut(&app) else {
            return;
        };
        if lingers || std::mem::replace(&mut revived.loads, true) {
            return;
        }
        if revived.tasks.is_empty() {
            let generation = revived.generation;
            return self.propose_standing(cx, app, generation);
        }
        let (generation, from) = (revived.generation, revived.from);
        let question = cx.question(Question::Revive(app, generation));
        cx.emit(StoreOutput::Load {
            question,
            app,
            from: Some(from),
            verify: false,
        });
    }

    /// Restores an application's tasks of this host.
    pub(super) fn restore_tasks(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
        checkpoint: Checkpoint,
    ) -> Result<(), Failed> {
        let revived = self.restoring.get(&app);
        let Some(revived) = revived.filter(|revived| revived.generation == generation) else {
            return Ok(());
        };
        let (from, keep_files) = (revived.from, revived.keep_files);
        let console = cx.agreement.state().console_of(app);
        let reviving = cx.agreement.state().reviving(app);
        let sources = reviving.map(|it| it.sources.clone()).unwrap_or_default();
        let mut awaited: BTreeSet<Tid> = revived.tasks.keys().copied().collect();
        let mut kept = checkpoint.kept;
        kept.retain(|kept| awaited.contains(&kept.order.to));
        let bytes: usize = kept.iter().map(KeptChunks::bytes).sum();
        if cx.keeper.bytes() + bytes as u64 > limits::KEEPER_BYTES {
            let text = "this host keeps too many messages of tasks that have ended";
            return Err(Failed::new(FailKind::Limit, text));
        }
        for (task, part) in checkpoint.agreed.tasks.iter().zip(checkpoint.parts) {
            let tid = task.tid;
            if !awaited.remove(&tid) {
                continue;
            }
            let mut belongings = part.belongings;
            let folders = cx.folders_here(belongings.work_dir.take());
            belongings.console = console;
            belongings.awaits = HostId::NONE;
            tell_kept_here(cx, tid, &mut belongings, &kept);
            let incarnation = cx.agreement.state().living_task(tid);
            cx.effect(Effect::ExpectRestored {
                tid,
                incarnation: incarnation.map_or(0, |task| task.incarnation),
                belongings,
            });
            if let Some(host) = sources.get(&tid) {
                cx.effect(Effect::FetchImage {
                    host: *host,
                    tid,
                    from: (app, from),
                    image: part.image,
                    keep_files,
                    folders,
                });
                continue;
            }
            cx.emit(MoveOutput::Restore {
                tid,
                app,
                from,
                image: part.image,
                keep_files,
                folders,
            });
        }
        if let Some(revived) = self.restoring.get_mut(&app) {
            revived.kept = kept;
        }
        if let Some(tid) = awaited.first() {
            let shown = tid.show(cx.machine);
            let text = format!("task {shown} is not in the checkpoint");
            return Err(Failed::new(FailKind::System, text));
        }
        Ok(())
    }

    /// A task is restored and frozen, or could not be restored.
    pub fn on_restored(&mut self, cx: &mut Context, tid: Tid, result: Result<(), Failed>) {
        let app = cx.agreement.state().living_task(tid).map(|task| task.app);
        let Some((app, revived)) = app.and_then(|app| Some((app, self.restoring.get_mut(&app)?)))
        else {
            return;
        };
        let generation = revived.generation;
        if let Err(failed) = result {
            let (shown, name) = (tid.show(cx.machine), &cx.config.facts.name);
            let why = format!("task {shown} on '{name}': {}", failed.text);
            return self.abandon(cx, app, generation, &why);
        }
        revived.tasks.insert(tid, true);
        if revived.tasks.values().all(|stands| *stands) {
            self.propose_standing(cx, app, generation);
        }
    }

    /// Proposes that all tasks of an application on this host are restored and frozen, and that no
    /// process of an earlier generation runs here.
    fn propose_standing(&mut self, cx: &mut Context, app: Tid, generation: u32) {
        let host = cx.me;
        cx.agreement.propose(Change::Standing {
            app,
            generation,
            host,
        });
    }

    pub fn abandon(&mut self, cx: &mut Context, app: Tid, generation: u32, why: &str) {
        self.propose_abandon(cx, app, generation, false, why);
    }

    pub fn propose_abandon(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
        for_good: bool,
        why: &str,
    ) {
        let end = why.floor_char_boundary(limits::REASON_MAX);
        cx.agreement.propose(Change::Abandon {
            app,
            generation,
            for_good,
            why: why[..end].to_owned(),
        });
    }

    /// The restore takes longer than [`limits::REVIVE_TIME`].
    pub fn on_restore_due(&mut self, cx: &mut Context, app: Tid, generation: u32) {
        let revived = self.restoring.get(&app);
        if revived.is_some_and(|revived| revived.generation == generation) {
            let why = format!("not all of it stood after {:?}", limits::REVIVE_TIME);
            self.abandon(cx, app, generation, &why);
        }
    }

    /// Ends the restore of an application here. Returns its tasks on this host, and the messages
    /// kept for them.
    pub fn forget_restoring(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
    ) -> (Vec<Tid>, Vec<KeptChunks>) {
        let of_it = |revived: &Restoring| revived.generation == generation;
        match self.restoring.get(&app).is_some_and(of_it) {
            true => {
                cx.cancel_timer(Timer::Revive(app, generation));
                let revived = self.restoring.remove(&app);
                for tid in revived.iter().flat_map(|it| it.tasks.keys()) {
                    cx.effect(Effect::ForgetFetched(*tid));
                }
                let of_it = |it: Restoring| (it.tasks.into_keys().collect(), it.kept);
                revived.map(of_it).unwrap_or_default()
            }
            false => Default::default(),
        }
    }
}

/// Messages that other hosts kept for a restored task are kept on this host now. Changes the task's
/// notifications, so that they name this host as the keeper.
fn tell_kept_here(cx: &Context, tid: Tid, belongings: &mut Belongings, kept: &[KeptChunks]) {
    let of_it = || kept.iter().filter(|kept| kept.order.to == tid);
    for bytes in &mut belongings.untaken {
        if let Some(mut frame) = Frame::of_body(bytes).filter(|frame| frame.header.op == Op::Ended)
            && let Ok(mut ended) = Ended::read(&frame)
            && of_it().any(|kept| kept.order.from == ended.tid)
        {
            ended.keeper = cx.me;
            frame.body = ended.frame().body;
            *bytes = frame.to_body();
        }
    }
    let by = Some(cx.me);
    for host in of_it().map(|kept| kept.host).collect::<BTreeSet<_>>() {
        let mut frame = KeptBy { host, by }.frame().between(cx.tid, tid);
        belongings.told += 1;
        frame.header.seq = belongings.told;
        belongings.untaken.push(frame.to_body());
    }
}
