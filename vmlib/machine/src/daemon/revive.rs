//! Applications that are brought back from a checkpoint (DESIGN section 6, "Restart").
//!
//! ```text
//! asked daemon   looks at the checkpoint, reads its manifest, places the tasks
//! log            Revive: the tasks live again, under a higher generation
//! each owner     reads the manifest, brings its tasks back; they stand
//! log            Standing, of each owner
//! each owner     lets them go on
//! ```
//!
//! Until the last `Standing` nothing has run. Whatever goes wrong before it - an image that is not
//! whole, a process that ends, a host that dies - ends all of it (`Abandon`, or the end of a task), and
//! the checkpoint is in the store as before.
//!
//! An image is verified while its task is brought back, and does not bring it back if it is damaged.
//! So the last checkpoint is chosen by a look at its lengths alone. If that one fails, the next choice
//! is made by reading all of it: either it is whole, and the failure is what it is; or it is passed
//! over, and the one before is brought back.
//!
//! What a daemon knew of a task at the cut is in the manifest and belongs to it again. Its process may
//! still be here, from before: the new one is made when that has ended.

use super::{
    Daemon,
    arriving::Arriving,
    asked::MoveAsker,
    context::{Question, Timer},
    effect::Effect,
    moves::frame_of,
    recover::Again,
    stock::Holders,
};
use crate::{Agreed, Output, Reviving, Time, Void, placement};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    agreed::{Change, Revival, RevivedTask},
    checkpoint::{Checkpoint, KeptChunks, Loaded, RestartReport},
    console::Answer,
    encode, limits,
    task::{FailKind, Failed},
};

/// How an application is to be brought back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restart {
    pub app: Tid,
    /// From the checkpoint of that generation and epoch; none: from the last one that is whole.
    pub from: Option<(u32, u32)>,
    /// The asker is its console from then on.
    pub attach: bool,
    /// Files that its tasks write are used as they are.
    pub keep_files: bool,
    /// The last whole one is found by reading all of it: the choice by a look has failed.
    pub verify: bool,
    /// Only if it is suspended with that checkpoint.
    pub resumes: bool,
}

impl Restart {
    /// As it goes back by itself, after so many failures.
    pub fn of(app: Tid, failures: u32) -> Self {
        Restart {
            app,
            from: None,
            attach: false,
            keep_files: false,
            verify: failures > 0,
            resumes: false,
        }
    }

    /// From the checkpoint with which it was suspended.
    pub fn suspended(app: Tid, from: (u32, u32)) -> Self {
        Restart {
            app,
            from: Some(from),
            attach: false,
            keep_files: false,
            verify: false,
            resumes: true,
        }
    }
}

/// A wish to bring an application back, by the number that this daemon gave it.
#[derive(Debug)]
pub(super) struct RestartAsked {
    asker: MoveAsker,
    wish: Restart,
    began: Time,
    /// Newer checkpoints that are not whole.
    passed_over: Vec<String>,
    /// The checkpoint that was chosen, and, if hosts have stores of their own, on which of them the image
    /// of each task is read.
    chosen: Option<((u32, u32), Vec<HostId>)>,
    /// If hosts have stores of their own: what they have of it, and its manifest.
    holders: Holders,
    manifest: Option<(Checkpoint, u64)>,
    /// Why that was not brought back, while all of it is read.
    failed: Option<Failed>,
    /// The log is to bring it back.
    proposed: bool,
}

impl RestartAsked {
    /// Whether it may be that another checkpoint has to be chosen. Where the application goes back by
    /// itself, the next trial does that.
    fn may_choose_again(&self) -> bool {
        let by_itself = matches!(self.asker, MoveAsker::Recovery(..));
        !by_itself && self.wish.from.is_none() && !self.wish.verify
    }
}

/// An application that is being brought back, as an owner of some of its tasks sees it.
#[derive(Debug)]
pub(super) struct Revived {
    generation: u32,
    from: (u32, u32),
    keep_files: bool,
    /// The tasks that are to live here, and whether they stand.
    tasks: BTreeMap<Tid, bool>,
    /// The manifest was asked for; of another host.
    loads: bool,
    asked: bool,
    /// What tasks that had ended had left for them.
    kept: Vec<KeptChunks>,
}

impl Daemon {
    /// Somebody here wants an application brought back. The answer comes when it runs, or does not.
    pub(super) fn ask_restart(&mut self, asker: MoveAsker, wish: Restart) -> Result<(), Failed> {
        let app = wish.app;
        let shown = app.show(self.cx.machine);
        let by_itself = matches!(asker, MoveAsker::Recovery(..));
        if !by_itself && self.cx.agreement.state().recovering(app).is_some() {
            let text = format!("application {shown} lost a host and is going back by itself");
            return Err(Failed::new(FailKind::Refused, text));
        }
        if self.cx.agreement.state().tasks_of(app).next().is_some() {
            let text = format!(
                "application {shown} runs in this machine, or is just ending: end it first, or try \
                 again"
            );
            return Err(Failed::new(FailKind::Refused, text));
        }
        if self.is_restart_asked(app) {
            let text = format!("application {shown} is just being restarted");
            return Err(Failed::new(FailKind::Refused, text));
        }
        let request = self.cx.next_request;
        self.cx.next_request += 1;
        let asked = RestartAsked {
            asker,
            wish,
            began: self.cx.now,
            passed_over: Vec::new(),
            chosen: None,
            holders: Holders::new(),
            manifest: None,
            failed: None,
            proposed: false,
        };
        self.asked_restarts.insert(request, asked);
        self.choose_checkpoint(request, wish);
        Ok(())
    }

    fn choose_checkpoint(&mut self, request: u64, wish: Restart) {
        if self.cx.has_own_stores() {
            return self.gather(request, (wish.app, wish.from), wish.verify);
        }
        let question = self.cx.question(Question::Restart(request));
        self.cx.emit(Output::Load {
            question,
            app: wish.app,
            from: wish.from,
            verify: wish.verify,
        });
    }

    /// What hosts have in their stores of the checkpoint that was chosen.
    pub(super) fn found_stock(&mut self, request: u64, holders: Holders, passed_over: Vec<String>) {
        if let Some(asked) = self.asked_restarts.get_mut(&request) {
            (asked.holders, asked.passed_over) = (holders, passed_over);
        }
    }

    /// A wish comes to nothing.
    pub(super) fn fail_restart(&mut self, request: u64, failed: Failed) {
        self.answer_restart(request, &Answer::Failed(failed));
    }

    /// What the manifest of a checkpoint says that is just being restarted from here, and how old it is.
    pub(super) fn manifest_at_hand(&self, app: Tid, from: (u32, u32)) -> Option<(Checkpoint, u64)> {
        let mut asked = self.asked_restarts.values();
        let asked = asked.find(|asked| asked.wish.app == app)?;
        let (checkpoint, _) = asked.manifest.as_ref()?;
        let id = (checkpoint.agreed.generation, checkpoint.agreed.epoch);
        (id == from).then(|| asked.manifest.clone()).flatten()
    }

    /// Whether somebody here wants that application brought back.
    pub(super) fn is_restart_asked(&self, app: Tid) -> bool {
        let mut asked = self.asked_restarts.values();
        asked.any(|asked| asked.wish.app == app)
    }

    /// Whether this daemon resumes an application that nobody asked it to.
    pub(super) fn resumes_one(&self) -> bool {
        let mut asked = self.asked_restarts.values();
        asked.any(|asked| matches!(asked.asker, MoveAsker::Resume(..)))
    }

    /// What a checkpoint holds, or why that cannot be read.
    pub(super) fn on_loaded(&mut self, question: u64, result: Result<Box<Loaded>, Failed>) {
        match self.cx.questions.remove(&question) {
            Some(Question::Restart(request)) => {
                let begun = result.and_then(|loaded| self.begin_restart(request, *loaded));
                if let Err(failed) = begun {
                    self.answer_restart(request, &Answer::Failed(failed));
                }
            }
            Some(Question::Revive(app, generation)) => {
                if result.is_err() && self.ask_asker(app, generation) {
                    return;
                }
                let brought =
                    result.and_then(|loaded| self.bring_back(app, generation, loaded.checkpoint));
                if let Err(failed) = brought {
                    self.abandon(app, generation, &failed.text);
                }
            }
            Some(Question::Manifest(host, question)) => {
                self.send_manifest(host, question, result);
            }
            _ => {}
        }
    }

    /// Asks for the manifest where the restart was asked for, if it is not in the store here. Whether
    /// that was possible, and new.
    fn ask_asker(&mut self, app: Tid, generation: u32) -> bool {
        let (own, me) = (self.cx.has_own_stores(), self.cx.me);
        let asker = self.cx.agreement.state().reviving(app).map(|it| it.asker.0);
        let revived = self.revived.get_mut(&app);
        let Some(revived) = revived.filter(|it| own && it.generation == generation) else {
            return false;
        };
        let asker = asker.filter(|asker| *asker != me);
        let (Some(asker), false) = (asker, std::mem::replace(&mut revived.asked, true)) else {
            return false;
        };
        let from = revived.from;
        let question = self.cx.question(Question::Revive(app, generation));
        self.ask_manifest(asker, question, (app, from));
        true
    }

    /// The checkpoint that is wanted is there: its tasks get places.
    fn begin_restart(&mut self, request: u64, loaded: Loaded) -> Result<(), Failed> {
        let Some(asked) = self.asked_restarts.get_mut(&request) else {
            return Ok(());
        };
        asked.passed_over.extend(loaded.passed_over);
        let age_ms = loaded.age_ms;
        let (checkpoint, wish) = (loaded.checkpoint, asked.wish);
        let (agreed, app) = (&checkpoint.agreed, wish.app);
        let holders = std::mem::take(&mut asked.holders);
        let failed = asked.failed.take();
        let mut tasks: Vec<_> = agreed.tasks.iter().collect();
        // The master first: it may have to be where its console is.
        tasks.sort_by_key(|task| (task.tid != app, task.tid));
        let has_master = tasks.first().is_some_and(|task| task.tid == app);
        if wish.attach && !has_master {
            let text = "the master of the application had ended: use --detach";
            return Err(Failed::new(FailKind::Refused, text));
        }
        let at_console = wish.attach.then_some(self.cx.me);
        let state = self.cx.agreement.state();
        let places = tasks.iter().map(|task| {
            let near = near(state, &task.place.0, holders.get(&task.tid));
            (near, &*task.place.1)
        });
        let hosts = placement::place_again(state, places, at_console)?;
        let placed = tasks.into_iter().zip(hosts);
        let revived = placed.map(|(task, host)| RevivedTask {
            tid: task.tid,
            host,
            incarnation: task.incarnation,
            asker: task.asker,
            request: task.request,
            index: task.index,
            program: task.program.clone(),
            source: source(host, holders.get(&task.tid)),
        });
        let revived: Vec<RevivedTask> = revived.collect();
        let read = |task: &RevivedTask| match task.source {
            HostId::NONE => task.host,
            source => source,
        };
        let own = revived.iter().filter(|_| !holders.is_empty());
        let chosen = ((agreed.generation, agreed.epoch), own.map(read).collect());
        let chosen = Some(chosen);
        if let Some(asked) = self.asked_restarts.get_mut(&request) {
            let again = asked.chosen == chosen;
            asked.chosen = chosen;
            if let Some(failed) = failed.filter(|_| again) {
                // It is whole: that was not the reason.
                return Err(failed);
            }
        }
        let revival = Change::Revive(Revival {
            app,
            asker: (self.cx.me, request),
            from: (agreed.generation, agreed.epoch),
            age_ms,
            cut: (agreed.machine == self.cx.machine).then_some(agreed.index),
            console: if wish.attach {
                self.cx.me
            } else {
                HostId::NONE
            },
            tasks: revived,
            groups: agreed.groups.clone(),
            policy: agreed.policy,
            keep_files: wish.keep_files,
            resumes: wish.resumes,
        });
        let bytes = encode(&revival).len();
        if bytes > limits::REVIVAL_MAX {
            let count = agreed.tasks.len();
            let text = format!(
                "the application has {count} tasks and takes {bytes} bytes in the log, more than \
                 the {} that are possible",
                limits::REVIVAL_MAX
            );
            return Err(Failed::new(FailKind::Limit, text));
        }
        self.cx.agreement.propose(revival);
        let manifest = self.cx.has_own_stores().then_some((checkpoint, age_ms));
        if let Some(asked) = self.asked_restarts.get_mut(&request) {
            (asked.proposed, asked.manifest) = (true, manifest);
        }
        Ok(())
    }

    /// Nothing of this daemon is on its way into the log any more: what became of a restart of which
    /// the log says nothing now was in entries that this daemon was spared. (See
    /// [`Daemon::sweep_lost_births`].)
    pub(super) fn sweep_lost_restarts(&mut self) {
        let state = self.cx.agreement.state();
        let is_lost = |(request, asked): &(&u64, &RestartAsked)| {
            let reviving = state.reviving(asked.wish.app);
            let asker = (self.cx.me, **request);
            asked.proposed && reviving.is_none_or(|reviving| reviving.asker != asker)
        };
        let lost = self.asked_restarts.iter().filter(is_lost);
        let lost: Vec<_> = lost.map(|(number, it)| (*number, it.wish.app)).collect();
        for (request, app) in lost {
            let shown = app.show(self.cx.machine);
            let text = format!(
                "this daemon was behind and does not know what became of application {shown}: \
                 'vm ps' shows whether it runs"
            );
            self.fail_restart(request, Failed::new(FailKind::System, text));
            self.review_recovery(app);
            self.review_suspension(app);
        }
    }

    /// The log did not take it.
    pub(super) fn on_not_revived(&mut self, revival: &Revival, why: Void) {
        let (host, request) = revival.asker;
        if host == self.cx.me {
            let shown = revival.app.show(self.cx.machine);
            let text = format!("application {shown} cannot be restarted: {why}; try again");
            let failed = Failed::new(FailKind::Refused, text);
            self.answer_restart(request, &Answer::Failed(failed));
        }
    }

    fn answer_restart(&mut self, request: u64, answer: &Answer) {
        if let Some(asked) = self.asked_restarts.remove(&request) {
            self.cx.effect(Effect::Reply(asked.asker, answer.clone()));
        }
    }

    /// The log says where the tasks of an application are to live again.
    pub(super) fn on_revived(&mut self, app: Tid, generation: u32) {
        let state = self.cx.agreement.state();
        let owned = |tid: Tid| {
            state
                .living_task(tid)
                .map(|it| (tid, it.host, it.incarnation))
        };
        let tasks: Vec<_> = state.tasks_of(app).filter_map(owned).collect();
        let awaited = state
            .reviving(app)
            .filter(|it| it.awaited.contains(&self.cx.me));
        let how = awaited.cloned();
        if let Some(run) = self.runs.get_mut(&app) {
            run.hosts.extend(tasks.iter().map(|(_, host, _)| *host));
        }
        for (tid, host, incarnation) in &tasks {
            self.keeper.lives_again(*tid);
            self.cx.routes.moved(*tid, *host, *incarnation);
            self.tell_located(*tid, *host, *incarnation);
        }
        self.release_held();
        let here = tasks.iter().filter(|(_, host, _)| *host == self.cx.me);
        let here: BTreeMap<Tid, bool> = here.map(|(tid, ..)| (*tid, false)).collect();
        if let Some(how) = how {
            let revived = Revived {
                generation,
                from: how.from,
                keep_files: how.keep_files,
                tasks: here,
                loads: false,
                asked: false,
                kept: Vec::new(),
            };
            self.revived.insert(app, revived);
            let due = self.cx.now + limits::REVIVE_TIME;
            self.cx.set_timer(due, Timer::Revive(app, generation));
            self.review_revived(app);
        }
    }

    /// Reads the manifest once no process of before is here. Where no task is to be, that is all.
    pub(super) fn review_revived(&mut self, app: Tid) {
        let Some(revived) = self.revived.get_mut(&app) else {
            return;
        };
        let lingers = self.tasks.values().any(|task| task.app == app);
        if lingers || std::mem::replace(&mut revived.loads, true) {
            return;
        }
        if revived.tasks.is_empty() {
            let generation = revived.generation;
            return self.stand(app, generation);
        }
        let (generation, from) = (revived.generation, revived.from);
        let question = self.cx.question(Question::Revive(app, generation));
        self.cx.emit(Output::Load {
            question,
            app,
            from: Some(from),
            verify: false,
        });
    }

    /// Makes the processes of an application's tasks here.
    fn bring_back(
        &mut self,
        app: Tid,
        generation: u32,
        checkpoint: Checkpoint,
    ) -> Result<(), Failed> {
        let revived = self.revived.get(&app);
        let Some(revived) = revived.filter(|revived| revived.generation == generation) else {
            return Ok(());
        };
        let (from, keep_files) = (revived.from, revived.keep_files);
        let console = self.cx.agreement.state().console_of(app);
        let reviving = self.cx.agreement.state().reviving(app);
        let sources = reviving.map(|it| it.sources.clone()).unwrap_or_default();
        let mut awaited: BTreeSet<Tid> = revived.tasks.keys().copied().collect();
        let mut kept = checkpoint.kept;
        kept.retain(|kept| awaited.contains(&kept.order.to));
        let bytes: usize = kept.iter().map(KeptChunks::bytes).sum();
        if self.keeper.bytes() + bytes as u64 > limits::KEEPER_BYTES {
            let text = "this host keeps too many messages of tasks that have ended";
            return Err(Failed::new(FailKind::Limit, text));
        }
        for (task, part) in checkpoint.agreed.tasks.iter().zip(checkpoint.parts) {
            let tid = task.tid;
            if !awaited.remove(&tid) {
                continue;
            }
            let mut belongings = part.belongings;
            let folders = self.cx.folders_here(belongings.work_dir.take());
            belongings.console = console;
            belongings.awaits = HostId::NONE;
            self.tell_kept_here(tid, &mut belongings, &kept);
            let incarnation = self.cx.agreement.state().living_task(tid);
            let arriving = Arriving {
                from: HostId::NONE,
                incarnation: incarnation.map_or(0, |task| task.incarnation),
                belongings: Some(belongings),
                lost: false,
                said: Vec::new(),
            };
            self.arriving.insert(tid, arriving);
            if let Some(host) = sources.get(&tid) {
                let (image, from) = ((part.image, keep_files, folders), (app, from));
                self.fetch_task(*host, tid, from, image);
                continue;
            }
            self.cx.emit(Output::Restore {
                tid,
                app,
                from,
                image: part.image,
                keep_files,
                folders,
            });
        }
        if let Some(revived) = self.revived.get_mut(&app) {
            revived.kept = kept;
        }
        if let Some(tid) = awaited.first() {
            let shown = tid.show(self.cx.machine);
            let text = format!("task {shown} is not in the checkpoint");
            return Err(Failed::new(FailKind::System, text));
        }
        Ok(())
    }

    /// The process of a task that is brought back stands, or there is none.
    pub(super) fn on_brought_back(&mut self, tid: Tid, result: Result<(), Failed>) {
        let app = self
            .cx
            .agreement
            .state()
            .living_task(tid)
            .map(|task| task.app);
        let Some((app, revived)) = app.and_then(|app| Some((app, self.revived.get_mut(&app)?)))
        else {
            return;
        };
        let generation = revived.generation;
        if let Err(failed) = result {
            let (shown, name) = (tid.show(self.cx.machine), &self.cx.config.facts.name);
            let why = format!("task {shown} on '{name}': {}", failed.text);
            return self.abandon(app, generation, &why);
        }
        revived.tasks.insert(tid, true);
        if revived.tasks.values().all(|stands| *stands) {
            self.stand(app, generation);
        }
    }

    /// All of an application that is to be here stands, and nothing else of it runs here.
    fn stand(&mut self, app: Tid, generation: u32) {
        let host = self.cx.me;
        self.cx.agreement.propose(Change::Standing {
            app,
            generation,
            host,
        });
    }

    pub(super) fn abandon(&mut self, app: Tid, generation: u32, why: &str) {
        self.propose_abandon(app, generation, false, why);
    }

    pub(super) fn propose_abandon(&mut self, app: Tid, generation: u32, for_good: bool, why: &str) {
        let end = why.floor_char_boundary(limits::REASON_MAX);
        self.cx.agreement.propose(Change::Abandon {
            app,
            generation,
            for_good,
            why: why[..end].to_owned(),
        });
    }

    /// It takes too long.
    pub(super) fn on_revive_due(&mut self, app: Tid, generation: u32) {
        let revived = self.revived.get(&app);
        if revived.is_some_and(|revived| revived.generation == generation) {
            let why = format!("not all of it stood after {:?}", limits::REVIVE_TIME);
            self.abandon(app, generation, &why);
        }
    }

    /// All of an application stands: it goes on.
    pub(super) fn on_started(&mut self, app: Tid, generation: u32, reviving: Option<Reviving>) {
        let (here, kept) = self.forget_revived(app, generation);
        self.on_recovered(app, reviving.as_ref());
        let again = Again {
            at: self.cx.now,
            by_itself: reviving.as_ref().is_some_and(|how| how.lost.is_some()),
        };
        self.again.insert(app, again);
        let mine = reviving.filter(|reviving| reviving.asker.0 == self.cx.me);
        if let Some(reviving) = mine {
            self.end_restart(app, generation, &reviving);
        }
        // Whoever is told of an end hears up to which number to wait.
        for kept in &kept {
            self.keeper.take_over(&kept.order);
        }
        for tid in here {
            let task = self.cx.agreement.state().living_task(tid);
            if let Some(incarnation) = task.map(|task| task.incarnation) {
                self.settle_here(tid, incarnation, None);
                self.release_held();
            }
        }
        for kept in kept {
            self.keep_again(&kept, generation);
        }
        self.review_coordinator(app);
        self.review_policy(app);
    }

    /// What a task that had ended left for one that lives again here is kept here from now on.
    fn keep_again(&mut self, kept: &KeptChunks, generation: u32) {
        let to = kept.order.to;
        let incarnation = self.cx.agreement.state().living_task(to);
        let incarnation = incarnation.map_or(0, |task| task.incarnation);
        for mut frame in kept.chunks.iter().filter_map(|bytes| frame_of(bytes)) {
            frame.header.generation = generation;
            frame.header.incarnation = incarnation;
            // There is room: that was looked at.
            let _ = self.keeper.keep(self.cx.now, frame, &mut self.cx.frames);
        }
    }

    /// The hosts on which tasks of an application live, and how many.
    pub(super) fn places_of(&self, app: Tid) -> BTreeMap<HostId, u32> {
        let state = self.cx.agreement.state();
        let mut hosts = BTreeMap::new();
        for task in state.tasks_of(app).filter_map(|tid| state.task(tid)) {
            *hosts.entry(task.host).or_default() += 1;
        }
        hosts
    }

    /// Who asked for it is told, and becomes its console.
    fn end_restart(&mut self, app: Tid, generation: u32, reviving: &Reviving) {
        let request = reviving.asker.1;
        let Some(asked) = self.asked_restarts.get(&request) else {
            return;
        };
        let hosts = self.places_of(app);
        let report = RestartReport {
            app,
            from: reviving.from,
            generation,
            hosts: hosts.iter().map(|(host, count)| (*host, *count)).collect(),
            total_us: self.cx.now.since(asked.began).as_micros() as u64,
            passed_over: asked.passed_over.clone(),
        };
        if let MoveAsker::Console(conn, _) = asked.asker
            && asked.wish.attach
        {
            self.make_console(conn, app, hosts.into_keys().collect());
        }
        self.answer_restart(request, &Answer::Restarted(report));
    }

    /// An application is not brought back.
    pub(super) fn on_abandoned(
        &mut self,
        app: Tid,
        generation: u32,
        asker: (HostId, u64),
        why: &str,
    ) {
        for tid in self.forget_revived(app, generation).0 {
            self.discard(tid);
        }
        let (host, request) = asker;
        if host != self.cx.me {
            return;
        }
        let shown = app.show(self.cx.machine);
        let text = format!(
            "application {shown} cannot be brought back: {why}; its checkpoints are in the store as \
             before: try again, or another one with --from"
        );
        let failed = Failed::new(FailKind::System, text);
        let asked = self.asked_restarts.get_mut(&request);
        match asked.filter(|asked| asked.may_choose_again()) {
            Some(asked) => {
                asked.failed = Some(failed);
                asked.wish.verify = true;
                asked.proposed = false;
                let wish = asked.wish;
                self.choose_checkpoint(request, wish);
            }
            None => self.answer_restart(request, &Answer::Failed(failed)),
        }
    }

    /// Its tasks that were to live here, and what is kept for them.
    fn forget_revived(&mut self, app: Tid, generation: u32) -> (Vec<Tid>, Vec<KeptChunks>) {
        let of_it = |revived: &Revived| revived.generation == generation;
        match self.revived.get(&app).is_some_and(of_it) {
            true => {
                self.cx.cancel_timer(Timer::Revive(app, generation));
                let revived = self.revived.remove(&app);
                for tid in revived.iter().flat_map(|it| it.tasks.keys()) {
                    self.forget_fetched(*tid);
                }
                let of_it = |it: Revived| (it.tasks.into_keys().collect(), it.kept);
                revived.map(of_it).unwrap_or_default()
            }
            false => Default::default(),
        }
    }
}

/// The name of the host where a task is best brought back that was on the host of name `before`: there,
/// if its image is there or that is no matter, else where its image is.
fn near<'a>(state: &'a Agreed, before: &'a str, holders: Option<&Vec<HostId>>) -> &'a str {
    let named = |host: &HostId| state.host(*host).map(|host| host.facts.name.as_str());
    let living = holders
        .into_iter()
        .flatten()
        .filter(|host| state.is_living(**host));
    let names: Vec<&str> = living.filter_map(named).collect();
    match names.first() {
        Some(first) if !names.contains(&before) => first,
        _ => before,
    }
}

/// Where the image of a task is read that is brought back on `host`: there, or on the first of those
/// that have it.
fn source(host: HostId, holders: Option<&Vec<HostId>>) -> HostId {
    match holders {
        Some(holders) if !holders.contains(&host) => holders.first().copied(),
        _ => None,
    }
    .unwrap_or(HostId::NONE)
}
