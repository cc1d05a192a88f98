//! Requests for checkpoints, at the daemon where they were made: by consoles, by tasks, or by the
//! daemon, where the policy of an application says so.

use crate::{
    Time,
    daemon::{
        context::{Context, Timer},
        effect::Effect,
        requester::Requester,
    },
};
use std::collections::BTreeMap;
use vm_wire::{
    HostId, Tid,
    checkpoint::{CheckpointAsk, CheckpointEnd, Stop},
    console::Answer,
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

/// The requests that were made on this host, by the numbers that this daemon gave them.
#[derive(Debug, Default)]
pub(in crate::daemon) struct CheckpointRequests {
    made: BTreeMap<u64, CheckpointRequest>,
}

/// One of them.
#[derive(Debug)]
struct CheckpointRequest {
    requester: Requester,
    ask: CheckpointAsk,
    /// When it was last sent, or something was last heard of it.
    at: Time,
    /// The last epoch of the application at that time.
    epoch: u32,
    progress: Progress,
    /// The result, while the log here does not say yet that the application has ended with the
    /// checkpoint.
    result: Option<CheckpointEnd>,
}

/// How far a request is, as this daemon knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It was sent to the coordinator.
    Sent,
    /// A cut was under way when the request was last looked at: the cut is of this request, or the
    /// request waits for the end of the cut.
    DuringCut,
    /// The log says that the checkpoint was made and that the application has ended with it.
    AppEnded,
}

impl CheckpointRequests {
    /// Makes a request for an application, and sends it to the coordinator.
    pub fn make(&mut self, cx: &mut Context, requester: Requester, app: Tid, stop: Option<Stop>) {
        let request = cx.next_request;
        cx.next_request += 1;
        let ask = CheckpointAsk {
            request,
            app,
            generation: cx.agreement.state().epochs(app).generation,
            stop,
        };
        let made = CheckpointRequest {
            requester,
            ask,
            at: cx.now,
            epoch: 0,
            progress: Progress::Sent,
            result: None,
        };
        self.made.insert(request, made);
        self.send(cx, ask);
    }

    /// Whether there is a request of this requester.
    pub fn has_of(&self, requester: Requester) -> bool {
        self.made.values().any(|made| made.requester == requester)
    }

    fn send(&mut self, cx: &mut Context, ask: CheckpointAsk) {
        if let Some(made) = self.made.get_mut(&ask.request) {
            made.at = cx.now;
            made.epoch = cx.agreement.state().epochs(ask.app).epoch;
        }
        let due = cx.now + limits::COORDINATOR_WAIT;
        cx.set_timer(due, Timer::CheckpointAsked(ask.request));
        match cx.where_to_ask(ask.app) {
            Some(host) if host == cx.me => self.on_ask(cx, host, ask),
            Some(host) => {
                cx.send_order(host, &Order::CheckpointAsk(ask));
            }
            None => {}
        }
    }

    /// Looks whether a coordinator has taken up a request. A coordinator that did has made a cut, or
    /// it waits for the end of another cut. Returned is the application whose coordinator did not.
    pub fn on_due(&mut self, cx: &mut Context, request: u64) -> Option<Tid> {
        let made = self.made.get_mut(&request)?;
        if made.result.is_some() && cx.now < made.at + limits::COORDINATOR_WAIT {
            return None;
        }
        if let Some(end) = made.result.take() {
            self.reply(cx, end);
            return None;
        }
        let app = made.ask.app;
        let state = cx.agreement.state();
        let epoch = state.epochs(app).epoch;
        let due = match made.progress {
            Progress::AppEnded => {
                if cx.now >= made.at + limits::COORDINATOR_WAIT {
                    let result = Err(end_untold(cx, app));
                    let end = CheckpointEnd {
                        request,
                        app,
                        result,
                    };
                    self.on_end(cx, end);
                }
                return None;
            }
            Progress::Sent | Progress::DuringCut if state.is_cut(app) => {
                (made.at, made.epoch) = (cx.now, epoch);
                made.progress = Progress::DuringCut;
                cx.now + limits::COORDINATOR_WAIT
            }
            Progress::DuringCut => {
                // The next cut may be of this request: the log here does not know of it yet.
                made.progress = Progress::Sent;
                let ask = made.ask;
                self.send(cx, ask);
                return None;
            }
            Progress::Sent if made.epoch != epoch => return None,
            // Before the coordinator makes a cut it waits for portable tasks.
            Progress::Sent => made.at + limits::COORDINATOR_WAIT + limits::SAFE_POINT,
        };
        if cx.now >= due {
            return Some(app);
        }
        cx.set_timer(due, Timer::CheckpointAsked(request));
        None
    }

    /// An application has ended with a checkpoint. The daemon of its coordinator sends the result,
    /// unless that daemon is lost.
    pub fn await_end_report(&mut self, cx: &mut Context, app: Tid) {
        let due = cx.now + limits::COORDINATOR_WAIT;
        for (request, made) in &mut self.made {
            if made.ask.app == app {
                made.at = cx.now;
                made.progress = Progress::AppEnded;
                cx.set_timer(due, Timer::CheckpointAsked(*request));
            }
        }
    }

    /// A daemon requests a checkpoint of the coordinator here.
    pub fn on_ask(&mut self, cx: &mut Context, requester: HostId, ask: CheckpointAsk) {
        let state = cx.agreement.state();
        let is_over = ask.generation < state.epochs(ask.app).generation;
        if is_over || state.tasks_of(ask.app).next().is_none() {
            let end = CheckpointEnd {
                request: ask.request,
                app: ask.app,
                result: Err(cx.no_such_task(ask.app)),
            };
            return self.send_end(cx, requester, end);
        }
        cx.effect(Effect::RequestCheckpoint(requester, ask));
    }

    /// Sends the result of a request to the daemon where it was made.
    pub fn send_end(&mut self, cx: &mut Context, requester: HostId, end: CheckpointEnd) {
        if requester == cx.me {
            self.on_end(cx, end);
        } else {
            cx.send_order(requester, &Order::CheckpointEnd(end));
        }
    }

    /// An application has another coordinator, which knows no request that was sent to the last one.
    /// Requests of an earlier generation are over.
    pub fn send_again(&mut self, cx: &mut Context, app: Tid) {
        let generation = cx.agreement.state().epochs(app).generation;
        let has_ended = |made: &CheckpointRequest| made.progress == Progress::AppEnded;
        self.end_those(cx, app, |made| {
            made.ask.generation != generation && !has_ended(made)
        });
        let made = self.made.values();
        let asks: Vec<CheckpointAsk> = made
            .filter(|made| made.ask.app == app && !has_ended(made))
            .map(|made| made.ask)
            .collect();
        for ask in asks {
            self.send(cx, ask);
        }
    }

    /// A request that was made here has its result. If the application ends with the checkpoint, the
    /// reply is sent once the log here says so, too: what the requester requests next of this daemon
    /// may depend on that.
    pub fn on_end(&mut self, cx: &mut Context, end: CheckpointEnd) {
        let state = cx.agreement.state();
        if let Some(made) = self.made.get_mut(&end.request)
            && made.ask.stop.is_some()
            && end.result.is_ok()
            && state.epochs(end.app).generation == made.ask.generation
            && state.tasks_of(end.app).next().is_some()
        {
            let due = cx.now + limits::COORDINATOR_WAIT;
            cx.set_timer(due, Timer::CheckpointAsked(end.request));
            (made.at, made.result) = (cx.now, Some(end));
            return;
        }
        self.reply(cx, end);
    }

    fn reply(&mut self, cx: &mut Context, end: CheckpointEnd) {
        if let Some(made) = self.made.remove(&end.request) {
            let answer = end.result.map_or_else(Answer::Failed, Answer::Checkpointed);
            cx.effect(Effect::Reply(made.requester, answer));
        }
    }

    /// An application has ended, and with it its coordinator. If the application was stopped with a
    /// checkpoint, the daemon of the coordinator sends the result.
    pub fn on_app_ended(&mut self, cx: &mut Context, app: Tid) {
        if cx.agreement.state().was_stopped(app) {
            self.end_those(cx, app, |made| made.result.is_some());
            return self.await_end_report(cx, app);
        }
        self.end_those(cx, app, |_| true);
    }

    /// Replies to those requests for an application: with their results, or that it has ended.
    fn end_those(
        &mut self,
        cx: &mut Context,
        app: Tid,
        which: impl Fn(&CheckpointRequest) -> bool,
    ) {
        let of_app = |_: &u64, made: &mut CheckpointRequest| made.ask.app == app && which(made);
        for (_, made) in self.made.extract_if(.., of_app) {
            let result = made.result.map(|end| end.result);
            let result = result.unwrap_or_else(|| Err(cx.no_such_task(app)));
            let answer = result.map_or_else(Answer::Failed, Answer::Checkpointed);
            cx.effect(Effect::Reply(made.requester, answer));
        }
    }
}

fn end_untold(cx: &Context, app: Tid) -> Failed {
    let (ended, shows) = match cx.agreement.state().suspended(app) {
        Some(_) => ("was suspended", "vm ps"),
        None => ("has ended with a checkpoint", "vm checkpoints"),
    };
    let text = format!(
        "application {} {ended}, but who could tell how that went is lost: '{shows}' shows it",
        app.show(cx.machine)
    );
    Failed::new(FailKind::HostLost, text)
}
