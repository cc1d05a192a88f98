//! The input of one turn: frames, images, reports of tasks, signals, results of threads.

use crate::{clock, context::Source, event_loop::shell::EventLoop, process::signals};
use std::time::Duration;
use vm_machine::{Input, StoreInput, Time};
use vm_wire::limits;

/// Time that a turn may spend on reading before it writes.
const READ_TIME: Duration = Duration::from_micros(500);
/// Bound on the reports of one task that are read in a row.
const REPORTS: u32 = 16;
/// Number of stop signals after which the daemon ends without leaving the machine in order.
const STOPS: u32 = 3;

impl EventLoop {
    /// Reads from the sources that are ready, a share from each in turn.
    pub(super) fn read(&mut self, start: Time) {
        // Starters come first: a process that was just started may have sent something already.
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
                        if let (Input::Store(StoreInput::Committed(it)), Some(pusher)) =
                            (&answer, &self.pusher)
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

    /// Hands over new connections that bring images.
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

    /// Hands over the requests of daemons that want to join.
    fn take_joins(&mut self) {
        for asked in self.links.take_joins() {
            let (daemon, links) = (&self.daemon, &mut self.links);
            self.arrival.asked(asked, daemon, links, &mut self.context);
        }
    }

    /// Reads a task's reports on its orders. Returns whether there may be more.
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
            // Each signal is logged once: a timer may send it again and again.
            if self.noted.insert(signal) {
                log::warn!("{} came, which means nothing here", signals::name(signal));
            }
        }
    }

    /// Handles a signal that asks the daemon to end. A batch system sends several such signals at
    /// one time, to a process and to its group; so may a terminal. Signals that come close together
    /// count as one.
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

    /// Takes the results of the threads that start processes.
    fn hear_starters(&mut self) {
        let carriers = self.moves.take_started(&self.processes, &mut self.context);
        let tasks = self.processes.take_started(&mut self.context);
        let coordinators = self.coordinators.take_started();
        if carriers || tasks || coordinators {
            self.moves.brought_back(&mut self.context);
            self.reap();
        }
    }

    /// Waits for some of the children that have ended; the others are waited for in the next turn.
    fn reap(&mut self) {
        let (coordinators, context) = (&mut self.coordinators, &mut self.context);
        self.reaps_on = self.processes.reap_some(coordinators, context);
        if self.reaps_on {
            self.context.ready.push(Source::Signals);
        }
        self.moves.reaped(&self.processes, &mut self.context);
    }
}
