//! What each command does: questions to the daemon, and events for the renderer.

use crate::{
    bucket,
    checkpoints::{self, Folder},
    client::Client,
    command::{self, AppArg, Command, Run, TidArg},
    event::Event,
    exit,
    failure::{self, ClientError, UsageError},
    hosts, image,
    interrupt::Interrupt,
    launch,
    progress::{self, Moving},
    render::{Audience, Renderer},
    run, terminal,
};
use anyhow::{Context, bail};
use std::{
    env,
    io::{self, BufRead, IsTerminal, Write},
    iter,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use vm_image::Modes;
use vm_wire::{
    MachineId, Tid,
    checkpoint::Policy,
    console::{Answer, Conf, Request, SuspendedRow, TaskRow},
    peer::{DrainWay, MoveWay},
    task,
};

mod stored;

/// How long the end of a daemon that was told to end is awaited.
const END_TIME: Duration = Duration::from_secs(10);
/// How often what is under way is looked at, to show how far it is.
const LOOK: Duration = Duration::from_millis(200);
/// How long an answer for the completion at the prompt may take.
const COMPLETION_TIME: Duration = Duration::from_millis(1500);

/// Everything that a command works with.
pub struct Console {
    dir: PathBuf,
    interrupt: Rc<Interrupt>,
    /// Shows what commands have to say.
    pub renderer: Renderer,
    /// Whether commands come from standard input, which then is not a program's to read.
    commands_on_stdin: bool,
    /// The connection, once a command needed it.
    client: Option<Client>,
}

impl Console {
    /// A console for the daemon in `dir`.
    pub fn new(
        dir: PathBuf,
        interrupt: Rc<Interrupt>,
        renderer: Renderer,
        commands_on_stdin: bool,
    ) -> Self {
        Console {
            dir,
            interrupt,
            renderer,
            commands_on_stdin,
            client: None,
        }
    }

    /// Does what the command says; returns the exit code.
    ///
    /// # Errors
    /// When it could not be done. What is wrong with one of several tasks or hosts is shown, and
    /// said by the exit code.
    pub fn execute(&mut self, command: &Command) -> anyhow::Result<u8> {
        let result = self.command(command);
        if let Err(error) = &result
            && let Some(error) = error.downcast_ref::<ClientError>()
            && !matches!(error, ClientError::Refused(_) | ClientError::Late(_))
        {
            // The next command finds out whether there is a daemon again.
            self.client = None;
        }
        result
    }

    fn command(&mut self, command: &Command) -> anyhow::Result<u8> {
        match command {
            Command::Run(args) => self.run(args),
            Command::Spawn(args) => {
                let cwd = current_dir()?;
                let request = args.program.spawn(args.count, args.place(), &cwd);
                let Answer::Started(tids) =
                    self.client_or_start()?.ask(&Request::Spawn(request))?
                else {
                    return Err(ClientError::Unexpected.into());
                };
                self.renderer.show(&Event::Started(&tids))?;
                Ok(exit::DONE)
            }
            Command::Ps { app } => {
                let app = app.as_ref().map(|app| self.resolve(app)).transpose()?;
                let rows = self.tasks(app, None)?;
                let mut suspended = self.suspended()?;
                suspended.retain(|row| app.is_none_or(|app| row.app == app));
                self.renderer.show(&Event::Tasks(&rows, &suspended))?;
                Ok(exit::DONE)
            }
            Command::Kill { tids } => self.signal(libc::SIGKILL, tids),
            Command::Sig { signal, tids } => self.signal(*signal, tids),
            Command::Check { tid } => {
                let tid = self.resolve(tid)?;
                let Answer::Check(reasons) = self.client()?.ask(&Request::Check(tid))? else {
                    return Err(ClientError::Unexpected.into());
                };
                self.renderer.show(&Event::Check(tid, &reasons))?;
                Ok(if reasons.is_empty() {
                    exit::DONE
                } else {
                    exit::FAILED
                })
            }
            Command::Move {
                tid,
                host,
                no_precopy,
                compress,
            } => {
                let way = MoveWay {
                    precopy: !no_precopy,
                    compress: *compress,
                    suspended: false,
                };
                self.move_task(tid, host.as_deref(), way)
            }
            Command::Checkpoint {
                every: Some(every),
                mtbf,
                keep,
                recover,
                compress,
                blocking,
                tid,
            } => {
                let tid = self.resolve(tid)?;
                let policy = Policy {
                    compress: *compress,
                    blocking: *blocking,
                    ..command::policy(Some(*every), *mtbf, *keep, *recover)
                };
                let Answer::Done = self.client()?.ask(&Request::Policy(tid, policy))? else {
                    return Err(ClientError::Unexpected.into());
                };
                self.renderer.show(&Event::Policy(tid, policy))?;
                Ok(exit::DONE)
            }
            Command::Checkpoint { tid, .. } => {
                let tid = self.resolve(tid)?;
                let request = Request::Checkpoint(tid, false);
                let Answer::Checkpointed(report) = self.client()?.ask(&request)? else {
                    return Err(ClientError::Unexpected.into());
                };
                self.renderer.show(&Event::Checkpointed(&report))?;
                Ok(exit::DONE)
            }
            Command::Stop { tid, .. } => {
                let tid = self.resolve(tid)?;
                let request = Request::Checkpoint(tid, true);
                let Answer::Checkpointed(report) = self.client()?.ask(&request)? else {
                    return Err(ClientError::Unexpected.into());
                };
                self.renderer.show(&Event::Stopped(&report))?;
                Ok(exit::DONE)
            }
            Command::Suspend { time, app } => {
                let app = self.resolve(app)?;
                let for_ms = time.map_or(0, |time| time.as_millis() as u64);
                let request = Request::Suspend(app, for_ms);
                match self.client()?.ask(&request)? {
                    Answer::Checkpointed(report) => {
                        self.renderer.show(&Event::Suspended(app, &report))?;
                    }
                    Answer::Moved(report) => {
                        let conf = self.conf(None)?;
                        let event = Event::TaskSuspended(app, &report, &conf);
                        self.renderer.show(&event)?;
                    }
                    _ => return Err(ClientError::Unexpected.into()),
                }
                Ok(exit::DONE)
            }
            Command::Resume { app, host } => {
                let tid = self.resolve(app)?;
                let conf = self.conf(None)?;
                let request = Request::Resume(tid, host.clone());
                match self.client()?.ask(&request)? {
                    Answer::Restarted(report) => {
                        self.renderer.show(&Event::Resumed(&report, &conf))?;
                    }
                    Answer::Moved(report) => {
                        let event = Event::TaskResumed(tid, &report, &conf);
                        self.renderer.show(&event)?;
                    }
                    _ => return Err(ClientError::Unexpected.into()),
                }
                Ok(exit::DONE)
            }
            Command::Restart {
                app,
                from,
                detach,
                keep_files,
            } => {
                let app = match app {
                    Some(AppArg::Named(app)) => *app,
                    Some(AppArg::Master(tid)) => self.resolve(tid)?,
                    None => self.only_stored()?,
                };
                let way = (!detach, *keep_files);
                self.restart_stored(app, *from, way, None)
            }
            Command::Checkpoints {
                store,
                verify,
                remove,
            } => {
                let folder = match store {
                    Some(root) => Folder::at(root),
                    None => Folder::of(&self.conf(None)?),
                };
                if store.is_some() && !folder.root.exists() {
                    bail!("there is no store {}", folder.root.display());
                }
                if let Some(app) = remove {
                    if store.is_none() {
                        self.may_be_removed(*app)?;
                    }
                    let known = checkpoints::knows(&folder, *app);
                    self.remove_checkpoints(&folder, *app)?;
                    // What other hosts and a bucket had of it is not known here.
                    if !known? && folder.host.is_none() && !bucket::has(&folder) {
                        bail!(checkpoints::none_of(&folder, *app));
                    }
                }
                let mut rows = checkpoints::list(&folder, *verify)?;
                if folder.host.is_some() {
                    self.ask_stores(&mut rows, *verify)?;
                }
                let known = bucket::mark(&mut rows, &folder)?;
                self.renderer
                    .show(&Event::Checkpoints(&rows, known.as_ref(), &folder.root))?;
                let damaged = rows.iter().any(|row| row.damaged.is_some());
                if *verify && !damaged {
                    self.renderer.notice("all was read, and is whole")?;
                }
                Ok(if damaged { exit::FAILED } else { exit::DONE })
            }
            Command::Store { action } => self.store(action),
            Command::Drain {
                undo: true, host, ..
            } => {
                let Answer::Done = self.client()?.ask(&Request::Undrain(host.clone()))? else {
                    return Err(ClientError::Unexpected.into());
                };
                self.renderer.show(&Event::HostResumed(host))?;
                Ok(exit::DONE)
            }
            Command::Drain {
                undo: false,
                checkpoint,
                suspend,
                host,
            } => {
                let (checkpoint, suspend) = (*checkpoint, *suspend);
                self.drain(
                    host,
                    DrainWay {
                        checkpoint,
                        suspend,
                    },
                )
            }
            Command::Conf { all } => {
                let mut conf = self.conf(None)?;
                conf.hosts.retain(|row| *all || hosts::is_present(row));
                self.renderer.show(&Event::Conf(&conf))?;
                Ok(exit::DONE)
            }
            Command::Add(args) => {
                self.client_or_start()?;
                // `client_or_start` has just made sure that it is there.
                let client = self.client.as_mut().ok_or(ClientError::Lost(None))?;
                let ok = launch::add(client, args, &self.dir, &mut self.renderer)?;
                Ok(if ok { exit::DONE } else { exit::FAILED })
            }
            Command::Delete { hosts } => self.delete(hosts),
            Command::Halt { yes } => self.halt(*yes),
            Command::Image { action } => self.image(action),
            Command::Version => {
                let daemon = match self.client() {
                    Ok(client) => Some(client.daemon().clone()),
                    Err(ClientError::NoDaemon { .. }) => None,
                    Err(error) => return Err(error.into()),
                };
                self.renderer.show(&Event::Version(daemon.as_ref()))?;
                Ok(exit::DONE)
            }
            Command::Help { command } => {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                let text = command::help(&command)?;
                self.renderer.show(&Event::Help(&text))?;
                Ok(exit::DONE)
            }
            Command::Quit => Ok(exit::DONE),
        }
    }

    /// The connection; made if there is none.
    fn client(&mut self) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let client = Client::connect(&self.dir, self.interrupt.clone())?;
                self.renderer.set_machine(client.daemon().machine);
                client
            }
        };
        Ok(self.client.insert(client))
    }

    /// The connection; if there is no daemon, one is started first, which is said.
    ///
    /// # Errors
    /// When none can be started.
    pub fn client_or_start(&mut self) -> anyhow::Result<&mut Client> {
        match self.client() {
            Ok(_) => {}
            Err(ClientError::NoDaemon { .. }) => {
                launch::start_local(&self.dir)?;
                let machine = self.machine()?;
                let dir = self.dir.display();
                let text = format!("no daemon ran in {dir}: started one, a new machine {machine}");
                self.renderer.announce("DaemonStarted", &text)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.client()?)
    }

    fn machine(&mut self) -> Result<MachineId, ClientError> {
        Ok(self.client()?.daemon().machine)
    }

    fn resolve(&mut self, tid: &TidArg) -> anyhow::Result<Tid> {
        Ok(tid.resolve(self.machine()?)?)
    }

    fn conf(&mut self, time: Option<Duration>) -> Result<Conf, ClientError> {
        match self.ask(&Request::Conf, time)? {
            Answer::Conf(conf) => Ok(conf),
            _ => Err(ClientError::Unexpected),
        }
    }

    fn tasks(
        &mut self,
        app: Option<Tid>,
        time: Option<Duration>,
    ) -> Result<Vec<TaskRow>, ClientError> {
        match self.ask(&Request::Ps(app), time)? {
            Answer::Ps(rows) => Ok(rows),
            _ => Err(ClientError::Unexpected),
        }
    }

    fn suspended(&mut self) -> Result<Vec<SuspendedRow>, ClientError> {
        match self.ask(&Request::Suspended, None)? {
            Answer::Suspended(rows) => Ok(rows),
            _ => Err(ClientError::Unexpected),
        }
    }

    fn ask(&mut self, request: &Request, time: Option<Duration>) -> Result<Answer, ClientError> {
        let client = self.client()?;
        match time {
            Some(time) => client.ask_within(request, time),
            None => client.ask(request),
        }
    }

    /// The names of the hosts, for completion: quick, and empty rather than an error.
    pub fn host_names(&mut self) -> Vec<String> {
        let Ok(conf) = self.conf(Some(COMPLETION_TIME)) else {
            return Vec::new();
        };
        conf.hosts
            .into_iter()
            .filter(hosts::is_present)
            .map(|row| row.facts.name)
            .collect()
    }

    /// The living tasks, for completion: quick, and empty rather than an error.
    pub fn task_names(&mut self) -> Vec<String> {
        let Ok(rows) = self.tasks(None, Some(COMPLETION_TIME)) else {
            return Vec::new();
        };
        let Ok(machine) = self.machine() else {
            return Vec::new();
        };
        rows.iter().map(|row| row.tid.show(machine)).collect()
    }

    /// A run has a connection of its own, so that its end is seen by the daemon even if this
    /// console goes on.
    fn run(&mut self, args: &Run) -> anyhow::Result<u8> {
        let cwd = current_dir()?;
        let mut request = args.program.spawn(1, task::Place::Any, &cwd);
        request.env = environment(env::vars_os(), &args.program.env);
        let people = self.renderer.audience() == Audience::People;
        let terminal =
            people && !args.no_terminal && terminal::is_ours() && io::stdin().is_terminal();
        let reads = terminal || !self.commands_on_stdin;
        let program = Path::new(&args.program.words[0]).file_name();
        let name = program.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let every = args.checkpoint_every;
        let policy = Policy {
            compress: args.compress,
            blocking: args.blocking,
            ..command::policy(every, args.mtbf, args.keep, args.recover)
        };
        let policy = (policy != Policy::default()).then_some(policy);
        let mut goes_on = false;
        let outcome = self.client_or_start().map(drop).and_then(|()| {
            if args.resume_or_start {
                let folder = Folder::of(&self.conf(None)?);
                let here = checkpoints::of_program(&folder, &name)?.pop();
                let app = match (here, bucket::has(&folder)) {
                    (None, true) => match bucket::mirror(&folder.root, None)? {
                        Some(mirror) => mirror.of_program(&name)?,
                        None => None,
                    },
                    (here, _) => here,
                };
                if let Some(app) = app {
                    let way = (true, args.keep_files);
                    goes_on = true;
                    return self.restart_stored(app, None, way, policy);
                }
            }
            let input = reads.then(rustix::stdio::stdin);
            run::run(
                &self.dir,
                &self.interrupt,
                (request, policy),
                terminal,
                input,
                &mut self.renderer,
            )
        });
        match outcome {
            Ok(exit::DONE) if args.resume_or_start => {
                let folder = Folder::of(&self.conf(None)?);
                for app in checkpoints::of_program(&folder, &name)? {
                    self.remove_checkpoints(&folder, app)?;
                }
                Ok(exit::DONE)
            }
            Ok(code) => Ok(code),
            Err(error) => {
                if !failure::is_broken_pipe(&error) {
                    report(&mut self.renderer, &error)?;
                }
                Ok(exit::of_failed_run(&error, goes_on))
            }
        }
    }

    /// Asks the hosts, each of which has a store of its own, what they have of these checkpoints.
    fn ask_stores(&mut self, rows: &mut [checkpoints::Row], verify: bool) -> anyhow::Result<()> {
        let mut apps: Vec<Tid> = rows.iter().map(|row| row.app).collect();
        apps.dedup();
        for app in apps {
            let Answer::Stock(stock) = self.client()?.ask(&Request::Stock(app, verify))? else {
                return Err(ClientError::Unexpected.into());
            };
            checkpoints::merge(rows, app, &stock);
        }
        Ok(())
    }

    /// Brings an application back. Attached, that has a connection of its own, as a run.
    fn restart(&mut self, request: &Request, policy: Option<Policy>) -> anyhow::Result<u8> {
        let conf = self.conf(None)?;
        if let Request::Restart { attach: true, .. } = request {
            let renderer = &mut self.renderer;
            let request = (request, policy);
            return run::restart(&self.dir, &self.interrupt, request, &conf, renderer);
        }
        let Answer::Restarted(report) = self.client()?.ask(request)? else {
            return Err(ClientError::Unexpected.into());
        };
        self.renderer.show(&Event::Restarted(&report, &conf))?;
        Ok(exit::DONE)
    }

    fn image(&mut self, action: &command::Image) -> anyhow::Result<u8> {
        if self.commands_on_stdin && action.file().is_some_and(image::is_stdin) {
            let text = "commands are read from standard input here: give the image's file";
            return Err(UsageError(text.to_owned()).into());
        }
        let renderer = &mut self.renderer;
        match action {
            command::Image::Help { action } => {
                let command: Vec<&str> = iter::once("image").chain(action.as_deref()).collect();
                renderer.show(&Event::Help(&command::help(&command)?))?;
                Ok(exit::DONE)
            }
            command::Image::Save {
                rounds,
                forked,
                exit,
                carry,
                pid,
                file,
            } => {
                let wanted = [
                    (*rounds, Modes::ROUNDS),
                    (*forked, Modes::FORKED),
                    (*exit, Modes::EXIT),
                    (*carry, Modes::CARRY),
                ];
                let wanted = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
                let modes = wanted.fold(Modes::default(), |all, (_, mode)| all.with(mode));
                let made = image::save(*pid, file, modes, &self.interrupt)?;
                renderer.show(&Event::ImageMade(&made))?;
                Ok(exit::DONE)
            }
            command::Image::Info { file } => {
                let report = image::look(file, &self.interrupt)?;
                renderer.show(&Event::Image(&report))?;
                Ok(match report.damage {
                    None => exit::DONE,
                    Some(_) => exit::FAILED,
                })
            }
            command::Image::Verify { file } => {
                let verdict = image::verify(file, &self.interrupt)?;
                renderer.show(&Event::ImageVerified(file, &verdict))?;
                Ok(match verdict {
                    Ok(_) => exit::DONE,
                    Err(_) => exit::FAILED,
                })
            }
            command::Image::Run {
                file,
                roll_back_files,
                map,
            } if self.commands_on_stdin => {
                let how = image::How {
                    roll_back: *roll_back_files,
                    maps: map.clone(),
                };
                let json = renderer.audience() == Audience::Programs;
                image::run_apart(file, &how, &self.interrupt, json)
            }
            command::Image::Run {
                file,
                roll_back_files,
                map,
            } => {
                let how = image::How {
                    roll_back: *roll_back_files,
                    maps: map.clone(),
                };
                match image::run(file, &how, &self.interrupt) {
                    Ok(reasons) => reasons.iter().try_for_each(|reason| {
                        let text =
                            format!("{} cannot be brought back here: {reason}", file.display());
                        renderer.failure("Obstacle", &text)
                    })?,
                    Err(error) => report(renderer, &error)?,
                }
                Ok(exit::NOT_RESTORED)
            }
        }
    }

    fn signal(&mut self, signal: i32, tids: &[TidArg]) -> anyhow::Result<u8> {
        let mut code = exit::DONE;
        for tid in tids {
            let tid = self.resolve(tid)?;
            match self.client()?.ask(&Request::Signal(tid, signal)) {
                Ok(Answer::Done) => self.renderer.show(&Event::Signalled(tid, signal))?,
                Ok(_) => return Err(ClientError::Unexpected.into()),
                Err(error @ ClientError::Refused(_)) => {
                    self.renderer.failure(&error.kind(), &error.to_string())?;
                    code = exit::of_client_error(&error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(code)
    }

    fn delete(&mut self, hosts: &[String]) -> anyhow::Result<u8> {
        let conf = self.conf(None)?;
        let mut code = exit::DONE;
        for host in hosts {
            let row = hosts::called(&conf, host);
            let is_here = row.is_some_and(|row| row.host == conf.here);
            let name = row.map_or(host, |row| &row.facts.name);
            match self.client()?.ask(&Request::Delete(host.clone())) {
                Ok(Answer::Done) if is_here => self.await_end()?,
                Ok(Answer::Done) => {}
                Ok(_) => return Err(ClientError::Unexpected.into()),
                // The daemon that was asked is the one that goes.
                Err(error) if is_here && error.is_lost() => self.client = None,
                Err(error @ ClientError::Refused(_)) => {
                    self.renderer.failure(&error.kind(), &error.to_string())?;
                    code = exit::of_client_error(&error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            self.renderer.show(&Event::HostDeleted(name))?;
        }
        Ok(code)
    }

    fn move_task(&mut self, tid: &TidArg, host: Option<&str>, way: MoveWay) -> anyhow::Result<u8> {
        let tid = self.resolve(tid)?;
        let name = tid.show(self.machine()?).to_string();
        let mut moving = Moving::new(self.renderer.audience(), tid, &name);
        let request = Request::Move(tid, host.map(str::to_owned), way);
        let answer = self.client()?.ask_while(&request, LOOK, |client| {
            let Answer::Moves(rows) = client.ask(&Request::Moves)? else {
                return Err(ClientError::Unexpected);
            };
            moving.show(&rows);
            Ok(())
        });
        moving.end();
        if let Err(ClientError::Interrupted) = answer {
            let text = format!("the move of {name} goes on: 'vm ps' shows on which host it is");
            self.renderer.notice(&text)?;
        }
        let Answer::Moved(report) = answer? else {
            return Err(ClientError::Unexpected.into());
        };
        let conf = self.conf(None)?;
        self.renderer.show(&Event::Moved(tid, &report, &conf))?;
        Ok(exit::DONE)
    }

    fn drain(&mut self, host: &str, way: DrainWay) -> anyhow::Result<u8> {
        let bar = progress::of_host(self.renderer.audience(), host);
        let request = Request::Drain(host.to_owned(), way);
        let answer = self.client()?.ask_while(&request, LOOK, |client| {
            let Answer::Conf(conf) = client.ask(&Request::Conf)? else {
                return Err(ClientError::Unexpected);
            };
            if let Some(row) = hosts::called(&conf, host) {
                bar.set_message(progress::left_there(row.tasks));
            }
            Ok(())
        });
        bar.finish_and_clear();
        if let Err(ClientError::Interrupted) = answer {
            let text =
                format!("the drain of {host} goes on: 'vm conf' shows how many tasks are left");
            self.renderer.notice(&text)?;
        }
        let Answer::Drained(report) = answer? else {
            return Err(ClientError::Unexpected.into());
        };
        let conf = self.conf(None)?;
        self.renderer.show(&Event::Drained(&report, &conf))?;
        Ok(match report.refused_count {
            0 => exit::DONE,
            _ => exit::FAILED,
        })
    }

    fn halt(&mut self, yes: bool) -> anyhow::Result<u8> {
        let client = self.client()?;
        if !yes && io::stdin().is_terminal() && !confirmed()? {
            return Ok(exit::FAILED);
        }
        match client.ask(&Request::Halt) {
            Ok(Answer::Done) => self.await_end()?,
            Ok(_) => return Err(ClientError::Unexpected.into()),
            // It was quicker to end than to answer.
            Err(error) if error.is_lost() => self.client = None,
            Err(error) => return Err(error.into()),
        }
        self.renderer.show(&Event::Halted)?;
        Ok(exit::DONE)
    }

    /// Waits until the daemon that said it would end has done so.
    fn await_end(&mut self) -> anyhow::Result<()> {
        let Some(mut client) = self.client.take() else {
            return Ok(());
        };
        loop {
            match client.next_frame(Some(END_TIME)) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(ClientError::Late(END_TIME).into()),
                Err(error) if error.is_lost() => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Shows an error to whom it concerns.
///
/// # Errors
/// What writing said.
pub fn report(renderer: &mut Renderer, error: &anyhow::Error) -> io::Result<()> {
    renderer.failure(&failure::kind(error), &format!("{error:#}"))
}

fn current_dir() -> anyhow::Result<PathBuf> {
    env::current_dir().context("cannot find the working directory")
}

fn confirmed() -> io::Result<bool> {
    eprint!("End the machine, with all its tasks and daemons? [y/N] ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(
        line.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// What a program that runs here sees: this console's environment, then what the user set. Not
/// passed on: who the console itself is to a machine, and what is not text.
fn environment(
    ours: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    set: &[(String, String)],
) -> Vec<(String, String)> {
    ours.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name != task::ENV_SOCKET && name != task::ENV_TOKEN)
        .chain(set.iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_the_environment_but_not_whose_task_the_console_is() {
        let ours = [("A", "1"), ("VM_TOKEN", "7"), ("VM_SOCKET", "/s")]
            .map(|(name, value)| (name.into(), value.into()));
        let set = [("B".to_owned(), "2".to_owned())];
        let pairs = environment(ours.into_iter(), &set);
        let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["A", "B"]);
    }
}
