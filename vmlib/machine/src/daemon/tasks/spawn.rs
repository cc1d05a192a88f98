//! How tasks are born.
//!
//! The daemon of the requester places the tasks and orders them from the daemons of those hosts
//! ([`SpawnOrder`]), which may include itself. Each ordered daemon looks the program up, numbers
//! the tasks, has their birth applied by the log, launches them and reports. The daemon of the
//! requester replies when all have reported *and* its own log knows all the tasks. The requester's
//! next request about these tasks can then be handled.
//!
//! If the program of a born task cannot be executed, the task ends with [`ExitStatus::NotStarted`],
//! and its watchers are notified.

use super::{
    enrol::program_name,
    spawning::{Ordered, SpawnRequester, Spawning},
};
use crate::{
    LaunchSpec, ProcessOutput, Void,
    daemon::{Daemon, context::Question, local_task::LocalTask},
    placement::{self, Runs},
};
use std::collections::BTreeMap;
use vm_wire::{
    HostId, Message, Tid,
    agreed::{Change, ExitStatus, SpawnRecord},
    limits,
    peer::{Order, SpawnOrder, SpawnResult},
    task::{FailKind, Failed, Place, Spawn, Spawned},
};

impl Daemon {
    /// Begins a spawn.
    #[allow(clippy::too_many_arguments)] // Each is a fact of its own about the request.
    pub(in crate::daemon) fn spawn(
        &mut self,
        requester: Tid,
        request: u64,
        app: Tid,
        console: HostId,
        spawn: Spawn,
        who: SpawnRequester,
    ) -> Result<(), Failed> {
        check_spawn(&spawn)?;
        // A task repeats its request if it was rolled back after some of the tasks had been born,
        // or if its daemon was lost at that time.
        let state = self.cx.agreement.state();
        let born: BTreeMap<u32, Tid> = match who {
            SpawnRequester::Task => state.born(requester, request).collect(),
            SpawnRequester::Console(..) => BTreeMap::new(),
        };
        let missing: Vec<u32> = (0..spawn.count)
            .filter(|index| !born.contains_key(index))
            .collect();
        let mut taken = self.underway();
        if spawn.place == Place::Any {
            // An order cannot reach a host to which this host has no link.
            let cut_off = self.unreachable.cut_off(&self.cx).iter();
            taken.extend(cut_off.map(|host| (*host, u64::from(u32::MAX))));
        }
        let placed = match missing.len() as u32 {
            0 => BTreeMap::new(),
            count => placement::place(state, &spawn.place, count, &taken)?,
        };
        let siblings = spawn.count;
        let generation = self.cx.agreement.state().epochs(app).generation;
        let spawning = Spawning {
            who,
            generation,
            awaited: placement::tally(&placed),
            tids: born.into_iter().collect(),
            failures: Vec::new(),
        };
        self.births.spawnings.insert((requester, request), spawning);
        let Spawn {
            program,
            args,
            env,
            dir,
            ..
        } = spawn;
        for (host, runs) in placed {
            let order = SpawnOrder {
                requester,
                request,
                app,
                generation,
                runs: placement::of_these(&runs, &missing),
                siblings,
                console,
                program: program.clone(),
                args: args.clone(),
                env: env.clone(),
                dir: dir.clone(),
            };
            self.order_spawn(host, order);
        }
        if missing.is_empty() {
            self.finish_spawning((requester, request));
        }
        Ok(())
    }

    /// The tasks that this daemon has ordered and that are not in the agreed state yet, by host.
    fn underway(&self) -> BTreeMap<HostId, u64> {
        let mut underway = BTreeMap::new();
        for (host, count) in self.births.spawnings.values().flat_map(|s| &s.awaited) {
            *underway.entry(*host).or_default() += count;
        }
        underway
    }

    fn order_spawn(&mut self, host: HostId, order: SpawnOrder) {
        if host == self.cx.me {
            return self.on_spawn_order(host, order);
        }
        let (requester, request, generation) = (order.requester, order.request, order.generation);
        let failed = if self.unreachable.cut_off(&self.cx).contains(&host) {
            Some(Failed::new(FailKind::Refused, self.cx.cannot_reach(host)))
        } else if !self.cx.send_order(host, &Order::SpawnOrder(order)) {
            let text = "too many orders wait to be sent there; try again";
            Some(Failed::new(FailKind::Limit, text))
        } else {
            None
        };
        if failed.is_some() {
            let result = SpawnResult {
                requester,
                request,
                generation,
                tids: Vec::new(),
                failed,
            };
            self.on_spawn_result(host, result);
        }
    }

    /// A daemon, possibly this one, orders tasks from this host.
    pub(in crate::daemon) fn on_spawn_order(&mut self, from: HostId, order: SpawnOrder) {
        let key = (order.requester, order.request);
        // Tasks that were ordered in an earlier generation are not born.
        let known = self.births.ordered.get(&key);
        if known.is_some_and(|known| known.order.generation >= order.generation) {
            return;
        }
        let failed = self.check_order(&order).err();
        let (program, dir) = (order.program.clone(), order.dir.clone());
        let ordered = Ordered {
            from,
            left: count_of(&order.runs),
            order,
            program: None,
            tids: Vec::new(),
            failed,
        };
        let refused = ordered.failed.is_some();
        self.births.ordered.insert(key, ordered);
        if refused {
            return self.finish_order(key);
        }
        let question = self.cx.question(Question::Program(key.0, key.1));
        self.cx.emit(ProcessOutput::FindProgram {
            question,
            program,
            dir,
        });
    }

    fn check_order(&self, order: &SpawnOrder) -> Result<(), Failed> {
        let count = count_of(&order.runs);
        let whole = |(index, count): &(u32, u32)| *count > 0 && index.checked_add(*count).is_some();
        if count == 0 || count > u64::from(limits::SPAWN_COUNT_MAX) || !order.runs.iter().all(whole)
        {
            let text = "a malformed order to spawn";
            return Err(Failed::new(FailKind::BadRequest, text));
        }
        if self.is_departing() {
            let text = placement::takes_no_tasks(self.cx.agreement.state(), self.cx.me);
            return Err(Failed::new(FailKind::Refused, text));
        }
        let room = self.room();
        if count > room {
            let text = format!(
                "the host has room for {room} more tasks, not for {count} (see vmd --max-tasks)"
            );
            return Err(Failed::new(FailKind::Limit, text));
        }
        Ok(())
    }

    pub(in crate::daemon) fn on_program_found(
        &mut self,
        question: u64,
        found: Result<String, Failed>,
    ) {
        let Some(Question::Program(requester, request)) = self.cx.questions.remove(&question)
        else {
            return;
        };
        let key = (requester, request);
        let Some(ordered) = self.births.ordered.get_mut(&key) else {
            return;
        };
        let program = match found {
            Ok(program) => program,
            Err(failed) => {
                ordered.failed = Some(failed);
                return self.finish_order(key);
            }
        };
        let name = program_name(&program);
        ordered.program = Some(program);
        let (app, runs) = (ordered.order.app, ordered.order.runs.clone());
        let (generation, console) = (ordered.order.generation, ordered.order.console);
        for (index, count) in runs {
            let Some(first) = self.cx.number_tasks(count) else {
                let text = "the host has no task numbers left; restart its daemon";
                self.not_born(key, u64::from(count), Failed::new(FailKind::Limit, text));
                continue;
            };
            self.cx.agreement.propose(Change::Spawn(SpawnRecord {
                requester,
                request,
                host: self.cx.me,
                index,
                first,
                count,
                app,
                program: name.clone(),
                enrolled: false,
                generation,
                console,
            }));
        }
    }

    /// Tasks of an order are not born, for the reason `failed`.
    fn not_born(&mut self, key: (Tid, u64), count: u64, failed: Failed) {
        if let Some(ordered) = self.births.ordered.get_mut(&key) {
            ordered.left = ordered.left.saturating_sub(count);
            ordered.failed = Some(failed);
            if ordered.left == 0 {
                self.finish_order(key);
            }
        }
    }

    /// The log has applied the birth of tasks, on any host.
    pub(in crate::daemon) fn on_spawned(&mut self, record: &SpawnRecord) {
        let key = (record.requester, record.request);
        for tid in tids_of(self.cx.machine, record).map(|(_, tid)| tid) {
            self.cx.routes.born(tid, record.host);
            self.review_offer(tid, record.host, 1);
        }
        self.consoles.add_hosts(record.app, [record.host]);
        if record.host == self.cx.me {
            match record.enrolled {
                true => self.on_enrolled(record),
                false => self.launch_born(record),
            }
        }
        self.finish_spawning(key);
        self.release_held();
        self.release_parked();
    }

    fn launch_born(&mut self, record: &SpawnRecord) {
        let key = (record.requester, record.request);
        let doomed = self.cx.agreement.state().is_forsaken(record.app);
        for (index, tid) in tids_of(self.cx.machine, record) {
            let app = if record.app.is_none() {
                tid
            } else {
                record.app
            };
            let Some(spec) = self.launch_spec(key, tid).filter(|_| !doomed) else {
                // The order does not exist any more, or the application is being ended.
                self.tasks
                    .insert(tid, LocalTask::new(app, HostId::NONE, None));
                self.on_process_ended(tid, ExitStatus::NotStarted);
                continue;
            };
            let mut task = LocalTask::new(app, HostId::NONE, Some(spec.token));
            if let Some(ordered) = self.births.ordered.get_mut(&key) {
                ordered.tids.push((index, tid));
                task.console = ordered.order.console;
                task.siblings = ordered.order.siblings as usize;
            }
            self.births.tokens.insert(spec.token, tid);
            self.tasks.insert(tid, task);
            self.launch(app, spec);
            self.attach_run(key, tid);
        }
        if let Some(ordered) = self.births.ordered.get_mut(&key) {
            ordered.left = ordered.left.saturating_sub(u64::from(record.count));
            if ordered.left == 0 {
                self.finish_order(key);
            }
        }
    }

    fn launch_spec(&mut self, key: (Tid, u64), tid: Tid) -> Option<LaunchSpec> {
        let token = self.cx.token();
        let ordered = self.births.ordered.get(&key)?;
        let run = match self.births.spawnings.get(&key).map(|spawning| spawning.who) {
            Some(SpawnRequester::Console(_, _, run)) => run,
            _ => None,
        };
        Some(LaunchSpec {
            tid,
            token,
            program: ordered.program.clone()?,
            args: ordered.order.args.clone(),
            env: ordered.order.env.clone(),
            dir: ordered.order.dir.clone(),
            console: run.map(|run| run.terminal),
        })
    }

    /// Begins the run of a launched master, if a console of this host requested it.
    fn attach_run(&mut self, key: (Tid, u64), tid: Tid) {
        if let Some(spawning) = self.births.spawnings.get(&key)
            && let SpawnRequester::Console(conn, _, Some(asked)) = spawning.who
        {
            self.consoles.begin_run(&mut self.cx, conn, tid, asked);
        }
    }

    /// The log has voided a birth.
    pub(in crate::daemon) fn on_not_spawned(&mut self, record: &SpawnRecord, why: Void) {
        if record.host != self.cx.me {
        } else if record.enrolled {
            self.on_not_enrolled(record.request, &why.to_string());
        } else {
            let kind = match why {
                Void::Limit => FailKind::Limit,
                _ => FailKind::Refused,
            };
            let failed = Failed::new(kind, why.to_string());
            let key = (record.requester, record.request);
            let ordered = self.births.ordered.get(&key);
            if ordered.is_some_and(|it| it.order.generation == record.generation) {
                self.not_born(key, u64::from(record.count), failed);
            }
        }
    }

    /// No proposal of this daemon is pending any more: births whose results it does not know were
    /// void. (A daemon that is far behind receives a snapshot, and not the result of each change.)
    pub(in crate::daemon) fn sweep_lost_births(&mut self) {
        if self.births.ordered.is_empty() && self.births.enrolling.is_empty() {
            return;
        }
        let why = "the log has not taken it; try again";
        let looked_up = |ordered: &Ordered| ordered.program.is_some() && ordered.left > 0;
        let lost: Vec<_> = self
            .births
            .ordered
            .iter()
            .filter(|(_, ordered)| looked_up(ordered))
            .map(|(key, ordered)| (*key, ordered.left))
            .collect();
        for (key, left) in lost {
            self.not_born(key, left, Failed::new(FailKind::Refused, why));
        }
        for request in self.births.enrolling.keys().copied().collect::<Vec<_>>() {
            self.on_not_enrolled(request, why);
        }
    }

    fn finish_order(&mut self, key: (Tid, u64)) {
        let Some(ordered) = self.births.ordered.remove(&key) else {
            return;
        };
        let result = SpawnResult {
            requester: key.0,
            request: key.1,
            generation: ordered.order.generation,
            tids: ordered.tids,
            failed: ordered.failed,
        };
        if ordered.from == self.cx.me {
            self.on_spawn_result(self.cx.me, result);
        } else {
            self.cx
                .send_order(ordered.from, &Order::SpawnResult(result));
        }
    }

    /// A host reports on its spawn order.
    pub(in crate::daemon) fn on_spawn_result(&mut self, host: HostId, result: SpawnResult) {
        let key = (result.requester, result.request);
        let name = self.cx.host_name(host);
        let asked = |it: &&mut Spawning| it.generation == result.generation;
        let Some(spawning) = self.births.spawnings.get_mut(&key).filter(asked) else {
            return;
        };
        if spawning.awaited.remove(&host).is_none() {
            return;
        }
        spawning.tids.extend(result.tids);
        spawning
            .failures
            .extend(result.failed.map(|failed| (name, failed)));
        self.finish_spawning(key);
    }

    /// A host that had to report is lost.
    pub(in crate::daemon) fn lose_spawns_of(&mut self, host: HostId) {
        let waits = |spawning: &Spawning| spawning.awaited.contains_key(&host);
        let keys: Vec<_> = self
            .births
            .spawnings
            .iter()
            .filter(|(_, spawning)| waits(spawning))
            .map(|(key, spawning)| (*key, spawning.generation))
            .collect();
        for ((requester, request), generation) in keys {
            let failed = Failed::new(FailKind::HostLost, "the host was lost meanwhile");
            let result = SpawnResult {
                requester,
                request,
                generation,
                tids: Vec::new(),
                failed: Some(failed),
            };
            self.on_spawn_result(host, result);
        }
    }

    /// Replies to a spawn once all hosts have reported and the local log knows all tasks.
    fn finish_spawning(&mut self, key: (Tid, u64)) {
        let Some(spawning) = self.births.spawnings.get(&key) else {
            return;
        };
        let state = self.cx.agreement.state();
        // A task is unknown only if the local log is behind; then its host is still present in the
        // local state.
        let known = |tid: Tid| state.task(tid).is_some() || !state.is_present(tid.host());
        let complete = spawning.awaited.is_empty();
        if !complete || !spawning.tids.iter().all(|(_, tid)| known(*tid)) {
            return;
        }
        let Some(mut spawning) = self.births.spawnings.remove(&key) else {
            return;
        };
        spawning.tids.sort_unstable();
        let tids = spawning.tids.into_iter().map(|(_, tid)| tid).collect();
        let failures = spawning.failures;
        match spawning.who {
            SpawnRequester::Task => {
                let answer = Spawned { tids, failures }.frame();
                self.answer_task(key.0, key.1, answer);
            }
            SpawnRequester::Console(conn, request, _) => {
                self.answer_spawn(conn, request, tids, failures);
            }
        }
    }

    /// An application is rolled back: its tasks repeat their spawn requests after the restart.
    pub(in crate::daemon) fn forget_spawns_of(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let is_of = |tid: Tid| state.task(tid).is_some_and(|task| task.app == app);
        self.births
            .spawnings
            .retain(|(requester, _), _| !is_of(*requester));
    }
}

fn check_spawn(spawn: &Spawn) -> Result<(), Failed> {
    let bad = |text: String| Err(Failed::new(FailKind::BadRequest, text));
    let text: usize = [&spawn.program]
        .into_iter()
        .chain(&spawn.args)
        .chain(spawn.env.iter().flat_map(|(key, value)| [key, value]))
        .map(|text| text.len() + 1)
        .sum();
    let nul = |text: &String| text.contains('\0');
    let variable = |(key, value): &(String, String)| {
        key.is_empty() || key.contains('=') || nul(key) || nul(value)
    };
    if spawn.program.is_empty() || spawn.program.len() > limits::PATH_MAX {
        bad("the program's name is empty or too long".to_owned())
    } else if spawn.count == 0 || spawn.count > limits::SPAWN_COUNT_MAX {
        let max = limits::SPAWN_COUNT_MAX;
        bad(format!(
            "{} tasks; from 1 to {max} are possible at once",
            spawn.count
        ))
    } else if text > limits::SPAWN_TEXT_MAX {
        let max = limits::SPAWN_TEXT_MAX;
        bad(format!(
            "arguments and environment of {text} bytes; at most {max} are possible"
        ))
    } else if nul(&spawn.program)
        || spawn.args.iter().any(nul)
        || spawn.env.iter().any(variable)
        || spawn
            .dir
            .as_ref()
            .is_some_and(|dir| dir.len() > limits::PATH_MAX || nul(dir))
    {
        bad("a name, argument, variable or directory that no program can be given".to_owned())
    } else {
        Ok(())
    }
}

fn count_of(runs: &Runs) -> u64 {
    runs.iter().map(|(_, count)| u64::from(*count)).sum()
}

/// The tasks of a record, with their indices.
fn tids_of(
    machine: vm_wire::MachineId,
    record: &SpawnRecord,
) -> impl Iterator<Item = (u32, Tid)> + use<> {
    let SpawnRecord {
        host,
        index,
        first,
        count,
        ..
    } = *record;
    (0..count).map(move |i| (index + i, Tid::new(machine, host, first + i)))
}
