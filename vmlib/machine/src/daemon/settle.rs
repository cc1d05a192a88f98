//! Dispatch of the consequences of an input: due timers, effects, outputs of the agreement, frames
//! and reports go to the subsystems until none is left.

use super::{Daemon, context::Timer, effect::Effect};
use crate::{AgreementOutput, Applied, HostPhase, Output};
use vm_wire::{HostId, agreed::ExitStatus};

impl Daemon {
    pub(super) fn tick(&mut self) {
        let now = self.cx.now;
        if self.cx.agreement.deadline() <= now {
            self.cx.agreement.tick(now, &mut self.cx.decisions);
        }
        self.cx.endpoint.tick(now, &mut self.cx.frames);
        self.cx.keeper.tick(now, &mut self.cx.frames);
        if self.routing.held.deadline().is_some_and(|due| due <= now) {
            self.on_held_expired();
        }
        while let Some((due, timer)) = self.cx.timers.first().copied()
            && due <= now
        {
            self.cx.timers.pop_first();
            match timer {
                Timer::Arrival => self.arrival.on_due(&mut self.cx),
                Timer::Reconnect(host) => self.on_reconnect(host),
                Timer::LinkDown(host) => {
                    let (cx, apps) = (&mut self.cx, self.consoles.applications());
                    self.unreachable.on_due(cx, host, apps);
                }
                Timer::Parked(tid, request) => self.on_parked_too_long(tid, request),
                Timer::Awaited(tid, about) => self.on_awaited_due(tid, about),
                Timer::Listing(question) => self.consoles.on_listing_due(&mut self.cx, question),
                Timer::Measure(question) => self.consoles.on_measure_due(&mut self.cx, question),
                Timer::Flush(app) => self.consoles.on_flush_due(&mut self.cx, app),
                Timer::Move(tid, incarnation) => self.on_move_due(tid, incarnation),
                Timer::Coordinator(app, number) => self.on_coordinator_due(app, number),
                Timer::Asked(number) => self.on_asked_due(number),
                Timer::AskAgain(number) => self.on_ask_again(number),
                Timer::CheckpointAsked(number) => self.on_checkpoint_asked_due(number),
                Timer::Policy(app) => self.on_policy_due(app),
                Timer::Hold(app) => self.on_hold_due(app),
                Timer::Finished(app) => self.checkpoints.finished.clear(&mut self.cx, app),
                Timer::Cut(app, epoch) => self.on_cut_due(app, epoch),
                Timer::Revive(app, generation) => {
                    self.restarts.on_restore_due(&mut self.cx, app, generation)
                }
                Timer::Recover(app) => self.restarts.review_recovery(&mut self.cx, app),
                Timer::Stock(question) => self.restarts.on_stock_due(&mut self.cx, question),
                Timer::Suspension(app) => self.suspensions.review(&mut self.cx, app),
                Timer::Room => self.suspensions.room_may_be(&mut self.cx),
                Timer::Direct(id) => self.directs.on_due(&mut self.cx, id),
                Timer::Drain => self.on_drain_due(),
                Timer::Departure => {}
            }
            self.deliver_effects();
        }
    }

    /// Carries out all consequences of an input.
    pub(super) fn settle(&mut self) {
        self.settle_queues();
        self.sweep();
        // Sweeps leave effects too.
        while !self.over && !self.cx.effects.is_empty() {
            self.settle_queues();
            self.sweep();
        }
    }

    /// Carries out the contents of the context's queues, until they are empty.
    fn settle_queues(&mut self) {
        while !self.over {
            if let Some(effect) = self.cx.effects.pop_front() {
                self.deliver(effect);
            } else if let Some(decision) = self.cx.decisions.pop_front() {
                self.carry_out(decision);
            } else if let Some(frame) = self.cx.frames.pop_front() {
                self.forward(frame, false);
            } else if std::mem::take(&mut self.routing.mail) && self.read_mail() {
            } else if self.migration.orders.has_reports() {
                self.send_reports();
            } else {
                // Requests of a drain to other daemons, and output of masters, leave in this step.
                self.review_drain();
                self.review_unsent();
                let reports = self.migration.orders.has_reports();
                if self.cx.frames.is_empty() && self.cx.decisions.is_empty() && !reports {
                    break;
                }
            }
        }
    }

    /// Ends the requests that the log will not decide any more, and reviews a departure.
    fn sweep(&mut self) {
        if !self.over && !self.cx.agreement.is_pending() {
            self.sweep_lost_births();
            self.sweep_lost_terms();
            self.sweep_lost_memberships();
            self.sweep_lost_contexts();
            self.consoles.sweep_lost_policies(&mut self.cx);
            self.restarts.sweep_lost_restarts(&mut self.cx);
        }
        if self.departure.is_underway() && !self.over {
            self.review_departure();
        }
    }

    /// Delivers the waiting effects, in a step that continues after them.
    pub(super) fn deliver_effects(&mut self) {
        while let Some(effect) = self.cx.effects.pop_front() {
            self.deliver(effect);
        }
    }

    /// Delivers an effect to its subsystem, and then the effects that the delivery leaves.
    fn deliver(&mut self, effect: Effect) {
        let behind = std::mem::take(&mut self.cx.effects);
        match effect {
            Effect::Reply(requester, answer) => self.reply_to(requester, &answer),
            Effect::TellRun(app, text) => self.consoles.tell_run(&mut self.cx, app, &text),
            Effect::EndRun(app, status) => self.end_run(app, status),
            Effect::AttachConsole { conn, app, hosts } => {
                self.consoles.attach(&mut self.cx, conn, app, hosts);
            }
            Effect::ForgetSpawns(app) => self.forget_spawns_of(app),
            Effect::ForgetApplication(app) => self.forget_application(app),
            Effect::ReviewCoordinator(app) => self.review_coordinator(app),
            Effect::AwaitEndReport(app) => self.await_end_report(app),
            Effect::RoomMayBe => self.suspensions.room_may_be(&mut self.cx),
            Effect::Resume {
                app,
                generation,
                from,
            } => self.resume(app, generation, from),
            Effect::AbandonRestart {
                app,
                generation,
                for_good,
                why,
            } => self
                .restarts
                .propose_abandon(&mut self.cx, app, generation, for_good, &why),
            Effect::ReviewSuspension(app) => self.suspensions.review(&mut self.cx, app),
            Effect::SignalProcess(tid, signal) => self.signal_process(tid, signal),
            Effect::ExpectRestored {
                tid,
                incarnation,
                belongings,
            } => self.migration.expect_restored(tid, incarnation, belongings),
            Effect::FetchImage {
                host,
                tid,
                from,
                image,
                keep_files,
                folders,
            } => self.fetch_task(host, tid, from, (image, keep_files, folders)),
            Effect::ForgetFetched(tid) => self.checkpoints.copies.forget_fetched(tid),
            Effect::RequestCheckpoint(requester, ask) => self.request_checkpoint(requester, ask),
            Effect::PartLost(tid, why) => self.on_arrived(tid, Err(why)),
        }
        self.cx.effects.extend(behind);
    }

    pub(super) fn carry_out(&mut self, decision: AgreementOutput) {
        match decision {
            AgreementOutput::Send(host, frame) => {
                if self.cx.routes.has_link(host) {
                    self.cx.emit(Output::Peer(host, frame));
                } else {
                    self.want_link(host);
                }
            }
            AgreementOutput::Joiner(conn, frame) => self.cx.emit(Output::Joiner(conn, frame)),
            AgreementOutput::Applied(index, applied) => self.on_applied(index, applied),
            AgreementOutput::Lease(end) => self.cx.emit(Output::Lease(end)),
            AgreementOutput::Connect(host, _) => self.want_link(host),
            AgreementOutput::Lost(why) => self.on_lost(why),
        }
    }

    pub(super) fn on_applied(&mut self, index: u64, applied: Applied) {
        match applied {
            Applied::HostJoined { host, .. } => {
                self.on_host_joined(host);
                self.restarts.review_recoveries(&mut self.cx);
                self.suspensions.review_all(&mut self.cx);
            }
            Applied::HostAddress(host) => self.on_host_address(host),
            Applied::HostDraining(host) => self.on_host_draining(host),
            Applied::HostResumed(host) => {
                self.on_host_resumed(host);
                self.suspensions.review_all(&mut self.cx);
            }
            Applied::HostLeaving(host) => {
                self.on_host_leaving(host);
                self.review_coordinators();
                self.restarts.review_recoveries(&mut self.cx);
                self.suspensions.review_all(&mut self.cx);
            }
            Applied::HostGone(host) | Applied::HostDead(host) => self.on_host_departed(host),
            Applied::Spawned(record) => {
                self.on_spawned(&record);
                self.tell_runs_of_links();
                self.review_coordinator(record.app);
            }
            Applied::Exited {
                tid, host, status, ..
            } => {
                self.on_exited(tid, host, status);
                if status == ExitStatus::RolledBack {
                    // The state may contain the restarted task already.
                    self.end_moves(|driven| driven.ask.tid == tid);
                }
                self.review_coordinator_of(tid);
                self.suspensions.room_may_be(&mut self.cx);
            }
            Applied::Relocated {
                tid,
                to,
                incarnation,
                suspended,
                ..
            } => {
                self.directs.peer_moved(&mut self.cx, tid, to);
                self.on_moved(tid, to, incarnation, Some(suspended));
                self.tell_runs_of_links();
                self.review_coordinator_of(tid);
            }
            Applied::Stayed {
                tid,
                host,
                incarnation,
            } => {
                self.on_moved(tid, host, incarnation, None);
                self.review_coordinator_of(tid);
            }
            Applied::Group { group, .. } => self.on_group_changed(&group),
            Applied::Context { tid, context } => self.on_context(tid, context),
            Applied::Coordinator { app, .. } => self.on_coordinated(app),
            Applied::Cut { app, epoch, agreed } => {
                self.on_cut(app, epoch, agreed.map(|agreed| *agreed));
            }
            Applied::CutGone { app, epoch } => self.on_cut_gone(app, epoch),
            Applied::CutEnded { app, epoch, saved } => self.on_cut_ended(app, epoch, saved),
            Applied::Policy(app) => self.on_policy(app),
            Applied::Revived { app, generation } => self.on_revived(app, generation),
            Applied::Started {
                app,
                generation,
                reviving,
            } => self.on_started(app, generation, reviving),
            Applied::Abandoned {
                app,
                generation,
                requester,
                why,
            } => self.on_abandoned(app, generation, requester, &why),
            Applied::RolledBack(app) => self.restarts.on_rolled_back(&mut self.cx, app),
            Applied::Finished { app, host } => {
                let finished = &mut self.checkpoints.finished;
                finished.on_finished(&mut self.cx, app, host);
            }
            Applied::GivenUp { app, why } => self.restarts.on_given_up(&mut self.cx, app, &why),
            Applied::Suspended(app) => self.suspensions.on_suspended(&mut self.cx, app),
            Applied::NotResumed { app, why } => {
                self.suspensions.on_not_resumed(&mut self.cx, app, &why)
            }
            Applied::Unsuspended { app, why } => {
                self.suspensions.room_may_be(&mut self.cx);
                self.suspensions.on_unsuspended(&mut self.cx, app, why);
            }
            Applied::Halted => self.on_halted(index),
            Applied::Void(change, why) => self.on_void(change, why),
        }
    }

    fn on_host_departed(&mut self, host: HostId) {
        self.on_host_lost(host);
        self.arrival.review(&mut self.cx);
        self.review_coordinators();
        self.restarts.review_recoveries(&mut self.cx);
        self.suspensions.review_all(&mut self.cx);
    }

    /// Whether this host takes no new tasks.
    pub(super) fn is_departing(&self) -> bool {
        let here = self.cx.agreement.state().host(self.cx.me);
        self.departure.is_underway() || here.is_none_or(|host| host.phase != HostPhase::Living)
    }
}
