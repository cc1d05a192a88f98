//! What follows from an input: due timers, decisions of the agreement, frames, and reports are
//! delivered to the subsystems until nothing is left.

use super::{Daemon, context::Timer, effect::Effect};
use crate::{AgreementOutput, Applied, HostPhase, Output};
use vm_wire::agreed::ExitStatus;

impl Daemon {
    pub(super) fn tick(&mut self) {
        let now = self.cx.now;
        if self.cx.agreement.deadline() <= now {
            self.cx.agreement.tick(now, &mut self.cx.decisions);
        }
        self.cx.endpoint.tick(now, &mut self.cx.frames);
        self.keeper.tick(now, &mut self.cx.frames);
        if self.held.deadline().is_some_and(|due| due <= now) {
            self.on_held_expired();
        }
        while let Some((due, timer)) = self.cx.timers.first().copied()
            && due <= now
        {
            self.cx.timers.pop_first();
            match timer {
                Timer::Arrival => self.on_arrival_due(),
                Timer::Reconnect(host) => self.on_reconnect(host),
                Timer::LinkDown(host) => self.on_link_down_due(host),
                Timer::Parked(tid, request) => self.on_parked_too_long(tid, request),
                Timer::Awaited(tid, about) => self.on_awaited_due(tid, about),
                Timer::Listing(question) => self.on_listing_over(question),
                Timer::Measure(question) => self.on_measure_due(question),
                Timer::Flush(app) => self.on_flush_over(app),
                Timer::Move(tid, incarnation) => self.on_move_due(tid, incarnation),
                Timer::Coordinator(app, number) => self.on_coordinator_due(app, number),
                Timer::Asked(number) => self.on_asked_due(number),
                Timer::AskAgain(number) => self.on_ask_again(number),
                Timer::CheckpointAsked(number) => self.on_checkpoint_asked_due(number),
                Timer::Policy(app) => self.on_policy_due(app),
                Timer::Hold(app) => self.on_hold_due(app),
                Timer::Finished(app) => self.clear_finished(app),
                Timer::Cut(app, epoch) => self.on_cut_due(app, epoch),
                Timer::Revive(app, generation) => self.on_revive_due(app, generation),
                Timer::Recover(app) => self.review_recovery(app),
                Timer::Stock(question) => self.on_stock_due(question),
                Timer::Suspension(app) => self.review_suspension(app),
                Timer::Room => self.room_may_be(),
                Timer::Drain => self.on_drain_due(),
                Timer::Departure => {}
            }
        }
    }

    /// Carries out all that follows from an input.
    pub(super) fn settle(&mut self) {
        while !self.over {
            if let Some(effect) = self.cx.effects.pop_front() {
                self.deliver(effect);
            } else if let Some(decision) = self.cx.decisions.pop_front() {
                self.carry_out(decision);
            } else if let Some(frame) = self.cx.frames.pop_front() {
                self.forward(frame, false);
            } else if std::mem::take(&mut self.mail) && self.read_mail() {
            } else if self.move_orders.has_reports() {
                self.send_reports();
            } else {
                // What a drain wants of other daemons goes out now, and so does output of masters.
                self.review_drain();
                self.review_unsent();
                let reports = self.move_orders.has_reports();
                if self.cx.frames.is_empty() && self.cx.decisions.is_empty() && !reports {
                    break;
                }
            }
        }
        if !self.over && !self.cx.agreement.is_pending() {
            self.sweep_lost_births();
            self.sweep_lost_terms();
            self.sweep_lost_memberships();
            self.sweep_lost_policies();
            self.sweep_lost_restarts();
        }
        if self.departure.is_some() && !self.over {
            self.review_departure();
        }
    }

    /// Has the subsystem that it concerns carry out an effect, and then what follows from it.
    fn deliver(&mut self, effect: Effect) {
        let behind = std::mem::take(&mut self.cx.effects);
        match effect {
            Effect::Reply(asker, answer) => self.answer_asker(asker, &answer),
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
                self.review_recoveries();
                self.review_suspensions();
            }
            Applied::HostAddress(host) => self.on_host_address(host),
            Applied::HostDraining(host) => self.on_host_draining(host),
            Applied::HostResumed(host) => {
                self.on_host_resumed(host);
                self.review_suspensions();
            }
            Applied::HostLeaving(host) => {
                self.on_host_leaving(host);
                self.review_coordinators();
                self.review_recoveries();
                self.review_suspensions();
            }
            Applied::HostGone(host) | Applied::HostDead(host) => {
                self.on_host_lost(host);
                self.review_arrival();
                self.review_coordinators();
                self.review_recoveries();
                self.review_suspensions();
            }
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
                    // The state may know of its next life already.
                    self.end_moves(|driven| driven.ask.tid == tid);
                }
                self.review_coordinator_of(tid);
                self.room_may_be();
            }
            Applied::Relocated {
                tid,
                to,
                incarnation,
                suspended,
                ..
            } => {
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
                asker,
                why,
            } => self.on_abandoned(app, generation, asker, &why),
            Applied::RolledBack(app) => self.on_rolled_back(app),
            Applied::Finished { app, host } => self.on_finished(app, host),
            Applied::GivenUp { app, why } => self.on_given_up(app, &why),
            Applied::Suspended(app) => self.on_suspended(app),
            Applied::NotResumed { app, why } => self.on_not_resumed(app, &why),
            Applied::Unsuspended { app, why } => self.on_unsuspended(app, why),
            Applied::Halted => self.on_halted(index),
            Applied::Void(change, why) => self.on_void(change, why),
        }
    }

    /// Whether this host takes no new tasks.
    pub(super) fn is_departing(&self) -> bool {
        let here = self.cx.agreement.state().host(self.cx.me);
        self.departure.is_some() || here.is_none_or(|host| host.phase != HostPhase::Living)
    }
}
