//! The steps of the daemon on whose host a restart was requested: it chooses the checkpoint, places
//! the tasks, proposes the restart to the log, and replies with the result.

use super::{
    query::Holders,
    table::{LastRestart, Restart, RestartRequest, Restarts},
};
use crate::{
    Agreed, Reviving, StoreOutput, Void,
    daemon::{
        context::{Context, Question},
        effect::Effect,
        requester::Requester,
    },
    placement,
};
use vm_wire::{
    CheckpointId, HostId, RequestKey, Tid,
    agreed::{Change, Revival, RevivedTask},
    checkpoint::{Checkpoint, KeptChunks, Loaded, RestartReport},
    console::Answer,
    encode, limits,
    task::{FailKind, Failed},
};

impl Restarts {
    /// A restart is requested on this host. The reply comes when the application runs, or cannot run.
    pub fn request(
        &mut self,
        cx: &mut Context,
        requester: Requester,
        restart: Restart,
    ) -> Result<(), Failed> {
        let app = restart.app;
        let shown = app.show(cx.machine);
        let by_itself = matches!(requester, Requester::Recovery(..));
        if !by_itself && cx.agreement.state().recovering(app).is_some() {
            let text = format!("application {shown} lost a host and is going back by itself");
            return Err(Failed::new(FailKind::Refused, text));
        }
        if cx.agreement.state().tasks_of(app).next().is_some() {
            let text = format!(
                "application {shown} runs in this machine, or is just ending: end it first, or try \
                 again"
            );
            return Err(Failed::new(FailKind::Refused, text));
        }
        if self.is_requested(app) {
            let text = format!("application {shown} is just being restarted");
            return Err(Failed::new(FailKind::Refused, text));
        }
        let request = cx.next_request;
        cx.next_request += 1;
        let asked = RestartRequest {
            requester,
            restart,
            began: cx.now,
            passed_over: Vec::new(),
            chosen: None,
            holders: Holders::new(),
            manifest: None,
            failed: None,
            proposed: false,
        };
        self.requests.insert(request, asked);
        self.choose_checkpoint(cx, request, restart);
        Ok(())
    }

    fn choose_checkpoint(&mut self, cx: &mut Context, request: u64, restart: Restart) {
        if cx.has_own_stores() {
            return self.gather(cx, request, (restart.app, restart.from), restart.verify);
        }
        let question = cx.question(Question::Restart(request));
        cx.emit(StoreOutput::Load {
            question,
            app: restart.app,
            from: restart.from,
            verify: restart.verify,
        });
    }

    /// Stores which hosts have the images of the chosen checkpoint.
    pub fn found_stock(&mut self, request: u64, holders: Holders, passed_over: Vec<String>) {
        if let Some(asked) = self.requests.get_mut(&request) {
            (asked.holders, asked.passed_over) = (holders, passed_over);
        }
    }

    /// Replies to a request with a failure.
    pub fn fail(&mut self, cx: &mut Context, request: u64, failed: Failed) {
        self.reply(cx, request, Answer::Failed(failed));
    }

    /// The manifest of a checkpoint that is being restarted by a request of this host, and its age
    /// in ms.
    pub fn manifest_at_hand(&self, app: Tid, from: CheckpointId) -> Option<(Checkpoint, u64)> {
        let mut asked = self.requests.values();
        let asked = asked.find(|asked| asked.restart.app == app)?;
        let (checkpoint, _) = asked.manifest.as_ref()?;
        let agreed = &checkpoint.agreed;
        let id = CheckpointId::new(agreed.generation, agreed.epoch);
        (id == from).then(|| asked.manifest.clone()).flatten()
    }

    /// Whether a restart of that application was requested on this host.
    pub fn is_requested(&self, app: Tid) -> bool {
        let mut asked = self.requests.values();
        asked.any(|asked| asked.restart.app == app)
    }

    /// Whether this daemon is resuming an application without a request of a user.
    pub fn is_resuming(&self) -> bool {
        let mut asked = self.requests.values();
        asked.any(|asked| matches!(asked.requester, Requester::Resume(..)))
    }

    /// The manifest is read: places the tasks and proposes the restart.
    fn begin_restart(
        &mut self,
        cx: &mut Context,
        request: u64,
        loaded: Loaded,
    ) -> Result<(), Failed> {
        let Some(asked) = self.requests.get_mut(&request) else {
            return Ok(());
        };
        asked.passed_over.extend(loaded.passed_over);
        let age_ms = loaded.age_ms;
        let (checkpoint, restart) = (loaded.checkpoint, asked.restart);
        let (agreed, app) = (&checkpoint.agreed, restart.app);
        let holders = std::mem::take(&mut asked.holders);
        let failed = asked.failed.take();
        let mut tasks: Vec<_> = agreed.tasks.iter().collect();
        // The master comes first, because it may have to be on the host of its console.
        tasks.sort_by_key(|task| (task.tid != app, task.tid));
        let has_master = tasks.first().is_some_and(|task| task.tid == app);
        if restart.attach && !has_master {
            let text = "the master of the application had ended: use --detach";
            return Err(Failed::new(FailKind::Refused, text));
        }
        let at_console = restart.attach.then_some(cx.me);
        let state = cx.agreement.state();
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
            requester: task.requester,
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
        let chosen = (
            CheckpointId::new(agreed.generation, agreed.epoch),
            own.map(read).collect(),
        );
        let chosen = Some(chosen);
        if let Some(asked) = self.requests.get_mut(&request) {
            let again = asked.chosen == chosen;
            asked.chosen = chosen;
            if let Some(failed) = failed.filter(|_| again) {
                // The chosen checkpoint is whole, so it did not cause the failure.
                return Err(failed);
            }
        }
        let revival = Change::Revive(Revival {
            app,
            requester: (cx.me, request),
            from: CheckpointId::new(agreed.generation, agreed.epoch),
            age_ms,
            cut: (agreed.machine == cx.machine).then_some(agreed.index),
            console: if restart.attach { cx.me } else { HostId::NONE },
            tasks: revived,
            groups: agreed.groups.clone(),
            context: agreed.context,
            policy: agreed.policy,
            keep_files: restart.keep_files,
            resumes: restart.resumes,
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
        cx.agreement.propose(revival);
        let manifest = cx.has_own_stores().then_some((checkpoint, age_ms));
        if let Some(asked) = self.requests.get_mut(&request) {
            (asked.proposed, asked.manifest) = (true, manifest);
        }
        Ok(())
    }

    /// No proposal of this daemon is pending any more. If the state contains no restart for a
    /// request, this daemon received a snapshot instead of the entries with its result. (See
    /// [`Daemon::sweep_lost_births`](crate::Daemon::sweep_lost_births).)
    pub fn sweep_lost_restarts(&mut self, cx: &mut Context) {
        if self.requests.is_empty() {
            return;
        }
        let state = cx.agreement.state();
        let is_lost = |(request, asked): &(&u64, &RestartRequest)| {
            let reviving = state.reviving(asked.restart.app);
            let requester = RequestKey::new(cx.me, **request);
            asked.proposed && reviving.is_none_or(|reviving| reviving.requester != requester)
        };
        let lost = self.requests.iter().filter(is_lost);
        let lost: Vec<_> = lost.map(|(number, it)| (*number, it.restart.app)).collect();
        for (request, app) in lost {
            let shown = app.show(cx.machine);
            let text = format!(
                "this daemon was behind and does not know what became of application {shown}: \
                 'vm ps' shows whether it runs"
            );
            self.fail(cx, request, Failed::new(FailKind::System, text));
            self.review_recovery(cx, app);
            cx.effect(Effect::ReviewSuspension(app));
        }
    }

    /// The log has voided a restart.
    pub fn on_not_revived(&mut self, cx: &mut Context, revival: &Revival, why: Void) {
        let (host, request) = revival.requester;
        if host == cx.me {
            let shown = revival.app.show(cx.machine);
            let text = format!("application {shown} cannot be restarted: {why}; try again");
            let failed = Failed::new(FailKind::Refused, text);
            self.reply(cx, request, Answer::Failed(failed));
        }
    }

    fn reply(&mut self, cx: &mut Context, request: u64, answer: Answer) {
        if let Some(asked) = self.requests.remove(&request) {
            cx.effect(Effect::Reply(asked.requester, answer));
        }
    }

    /// Replies to the requester. If the request says so, its console becomes the console of the
    /// application.
    fn report(&mut self, cx: &mut Context, app: Tid, generation: u32, reviving: &Reviving) {
        let request = reviving.requester.number;
        let Some(asked) = self.requests.get(&request) else {
            return;
        };
        let hosts = cx.places_of(app);
        let report = RestartReport {
            app,
            from: reviving.from,
            generation,
            hosts: hosts.iter().map(|(host, count)| (*host, *count)).collect(),
            total_us: cx.now.since(asked.began).as_micros() as u64,
            passed_over: asked.passed_over.clone(),
        };
        if let Requester::Console(conn, _) = asked.requester
            && asked.restart.attach
        {
            let hosts = hosts.into_keys().collect();
            cx.effect(Effect::AttachConsole { conn, app, hosts });
        }
        self.reply(cx, request, Answer::Restarted(report));
    }

    /// The shell has read a checkpoint, or cannot read it.
    pub fn on_loaded(
        &mut self,
        cx: &mut Context,
        question: u64,
        result: Result<Box<Loaded>, Failed>,
    ) {
        match cx.questions.remove(&question) {
            Some(Question::Restart(request)) => {
                let begun = result.and_then(|loaded| self.begin_restart(cx, request, *loaded));
                if let Err(failed) = begun {
                    self.reply(cx, request, Answer::Failed(failed));
                }
            }
            Some(Question::Revive(app, generation)) => {
                if result.is_err() && self.ask_requesting_host(cx, app, generation) {
                    return;
                }
                let brought = result
                    .and_then(|loaded| self.restore_tasks(cx, app, generation, loaded.checkpoint));
                if let Err(failed) = brought {
                    self.abandon(cx, app, generation, &failed.text);
                }
            }
            Some(Question::Manifest(host, question)) => {
                self.send_manifest(cx, host, question, result);
            }
            _ => {}
        }
    }

    /// All tasks of an application are restored. Returns its tasks on this host, and the messages
    /// kept for them.
    pub fn on_started(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
        reviving: Option<Reviving>,
    ) -> (Vec<Tid>, Vec<KeptChunks>) {
        let restored = self.forget_restoring(cx, app, generation);
        self.on_recovered(cx, app, reviving.as_ref());
        let last = LastRestart {
            at: cx.now,
            by_itself: reviving.as_ref().is_some_and(|how| how.lost.is_some()),
        };
        self.last.insert(app, last);
        let mine = reviving.filter(|reviving| reviving.requester.host == cx.me);
        if let Some(reviving) = mine {
            self.report(cx, app, generation, &reviving);
        }
        restored
    }

    /// The log has abandoned a restart: chooses another checkpoint, or replies with the failure.
    pub fn on_abandoned(&mut self, cx: &mut Context, app: Tid, requester: RequestKey, why: &str) {
        let RequestKey {
            host,
            number: request,
        } = requester;
        if host != cx.me {
            return;
        }
        let shown = app.show(cx.machine);
        let text = format!(
            "application {shown} cannot be brought back: {why}; its checkpoints are in the store as \
             before: try again, or another one with --from"
        );
        let failed = Failed::new(FailKind::System, text);
        let asked = self.requests.get_mut(&request);
        match asked.filter(|asked| asked.may_choose_again()) {
            Some(asked) => {
                asked.failed = Some(failed);
                asked.restart.verify = true;
                asked.proposed = false;
                let restart = asked.restart;
                self.choose_checkpoint(cx, request, restart);
            }
            None => self.reply(cx, request, Answer::Failed(failed)),
        }
    }
}

/// The name of the preferred host for a task that was on the host named `before`: `before` itself
/// if it has the image, or if no other living host has; otherwise a living host that has the image.
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

/// The host that sends the image of a task that is restarted on `host`: the first of `holders`, or
/// [`HostId::NONE`] if `host` has the image.
fn source(host: HostId, holders: Option<&Vec<HostId>>) -> HostId {
    match holders {
        Some(holders) if !holders.contains(&host) => holders.first().copied(),
        _ => None,
    }
    .unwrap_or(HostId::NONE)
}
