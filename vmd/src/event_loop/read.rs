//! What comes in during one turn: frames, images, reports of tasks, signals, answers of threads.

use crate::{clock, context::Source, event_loop::shell::EventLoop, process::signals};
use std::time::Duration;
use vm_machine::{Input, Time};
use vm_wire::limits;

/// How long a turn reads before it writes.
const READ_TIME: Duration = Duration::from_micros(500);
/// Reports of one task that are read in a row.
const REPORTS: u32 = 16;
/// So many times the user has to ask before the daemon ends without its farewells.
const STOPS: u32 = 3;

impl EventLoop {
    /// Reads from those that are ready, a share from each in turn.
    pub(super) fn read(&mut self, start: Time) {
        // First, since what was started may have sent something already.
        self.hear_starters();
        while let Some(source) = self.context.ready.pop() {
            let context = &mut self.context;
            let more = match source {
                Source::Local(place) => self.locals.serve(place, context),
                Source::Link(place) => {
                    let more = self.links.serve(place, context);
                    self.take_images();
                    self.take_joins();
                    more
                }
                Source::Interrupt(place) => self.hear_reports(place),
                Source::Process(place) => self.processes.serve(place, context),
                Source::Coordinator(place) => self.coordinators.serve(place, context),
                Source::LocalListener => self.locals.accept(context),
                Source::LinkListener => self.links.accept(context),
                Source::Signals => {
                    self.heed_signals();
                    false
                }
                Source::Jobs => {
                    while let Ok(listener) = self.doors.1.try_recv() {
                        self.locals.listen(listener, context);
                    }
                    while let Some(answer) = self.jobs.answer() {
                        if let (Input::Committed(it), Some(pusher)) = (&answer, &self.pusher)
                            && it.result.is_ok()
                        {
                            pusher.push();
                        }
                        self.context.inbox.push_back(answer);
                    }
                    self.processes.hear_tokens(&self.coordinators);
                    false
                }
            };
            self.step_all();
            if more {
                self.context.ready.push(source);
            }
            if clock::now().since(start) > READ_TIME {
                return;
            }
        }
    }

    /// Connections that bring images have come.
    fn take_images(&mut self) {
        for (ticket, socket) in self.links.take_images() {
            let (locals, processes) = (&mut self.locals, &mut self.processes);
            let context = &mut self.context;
            if !self
                .moves
                .arrive(ticket, socket, locals, processes, context)
            {
                self.links.tell_unawaited(context);
            }
        }
    }

    /// Daemons want to join.
    fn take_joins(&mut self) {
        for asked in self.links.take_joins() {
            let (daemon, links) = (&self.daemon, &mut self.links);
            self.arrival.asked(asked, daemon, links, &mut self.context);
        }
    }

    /// A task reports what became of its orders. Returns whether there may be more.
    fn hear_reports(&mut self, place: usize) -> bool {
        for _ in 0..REPORTS {
            match self.locals.interrupts.read(place) {
                None => return false,
                Some(None) => {}
                Some(Some((tid, reported))) => {
                    let processes = &mut self.processes;
                    self.moves
                        .reported(tid, reported, processes, &mut self.context);
                }
            }
        }
        true
    }

    fn heed_signals(&mut self) {
        let asked = self.signals.take();
        if asked.reap || self.reaps_on {
            self.reap();
        }
        if asked.fault {
            log::warn!("all links are cut, as a test wants");
            self.links.cut_all(&mut self.context);
        }
        if let Some(signal) = asked.stop {
            self.heed_stop(signal);
        }
        for signal in asked.noted {
            // Once each: they may come from a timer.
            if self.noted.insert(signal) {
                log::warn!("{} came, which means nothing here", signals::name(signal));
            }
        }
    }

    /// A signal asks the daemon to end. Batch systems send several at one time, to a process and to
    /// its group, or with one by a terminal: those count as one.
    fn heed_stop(&mut self, signal: i32) {
        let now = self.context.now;
        if let Some(last) = self.stop_at
            && now.since(last) < limits::STOP_AGAIN
        {
            return;
        }
        log::info!("{} came: it asks this host to leave", signals::name(signal));
        self.stop_at = Some(now);
        self.stops += 1;
        if self.stops >= STOPS {
            self.ended = Some(Ok("the user insists".to_owned()));
        }
        self.context.inbox.push_back(Input::Stop);
    }

    /// Takes in which processes were started.
    fn hear_starters(&mut self) {
        let carriers = self.moves.take_started(&self.processes, &mut self.context);
        let tasks = self.processes.take_started(&mut self.context);
        let coordinators = self.coordinators.take_started();
        if carriers || tasks || coordinators {
            self.moves.brought_back(&mut self.context);
            self.reap();
        }
    }

    /// Waits for children that have ended, for the next ones in the next turn.
    fn reap(&mut self) {
        let (coordinators, context) = (&mut self.coordinators, &mut self.context);
        self.reaps_on = self.processes.reap_some(coordinators, context);
        if self.reaps_on {
            self.context.ready.push(Source::Signals);
        }
        self.moves.reaped(&self.processes, &mut self.context);
    }
}
