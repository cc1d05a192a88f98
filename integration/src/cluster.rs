//! Clusters of real daemons for the tests: on loopback, or as hosts in network namespaces.
//!
//! A [`Cluster`] owns everything that it starts: the daemons die with the test process (by a
//! parent-death signal), and dropping the cluster ends them and removes its namespaces and its
//! folder, even if a test fails. The logs of the daemons are shown then.

pub mod binaries;
pub mod client;
pub mod compiled;
pub mod disk;
pub mod foreign;
pub mod groups;
pub mod network;
pub mod objects;
pub mod processes;
pub mod rings;

use client::{Client, read_some};
use network::Network;
use std::{
    fs::{File, TryLockError},
    io::{self, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use vm_wire::{
    Tid,
    console::{Answer, Conf, HostState, Request, TaskRow},
};

/// Bound on a wait of a test for an event, unless the test gives another limit.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The number of moves that a test makes: the one that the variable `VM_MOVES` says, or else `usual`.
///
/// # Panics
/// If the variable is no number.
pub fn wanted_moves(usual: u32) -> u32 {
    let wanted = std::env::var("VM_MOVES").ok();
    wanted.map_or(usual, |text| text.parse().expect("VM_MOVES is a number"))
}

/// Calls `ready` again and again until it returns a value.
///
/// # Panics
/// After `limit`, naming `what`.
pub fn wait_for<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ready() {
            return answer;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} in vain: {what}");
        // The pause only sets the pace of the calls; it does not synchronise.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Reads the output of a console until it contains `end`. Returns what was read.
///
/// # Panics
/// If the output ends before.
pub fn read_until(output: &mut impl Read, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let mut bytes = [0; 256];
        let count = read_some(output, &mut bytes).expect("the output");
        assert!(count > 0, "the output ends without '{end}': {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    text
}

/// A daemon of the cluster.
#[derive(Debug)]
pub struct Node {
    /// The name of the host in the machine.
    pub name: String,
    /// The daemon's folder (`--dir`).
    pub dir: PathBuf,
    /// The daemon's process, a child of the test.
    pub process: Child,
}

impl Node {
    /// The daemon's process id.
    pub fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// Sends a signal to the daemon alone.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("the daemon is our child");
    }

    /// Waits until the guardian of an ended daemon has written its note into the folder. The wait
    /// has a limit and does not panic: it also runs when a test fails.
    fn await_guardian(&self) {
        let start = Instant::now();
        let folder = File::open(&self.dir);
        let has = |folder: &File| matches!(folder.try_lock(), Err(TryLockError::WouldBlock));
        while folder.as_ref().is_ok_and(has) && start.elapsed() < PATIENCE {
            // The pause only sets the pace of the checks; it does not synchronise.
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// A new console of this daemon.
    pub fn client(&self) -> Client {
        Client::connect(&self.dir).expect("the daemon answers a console")
    }

    /// The machine as this daemon sees it.
    pub fn conf(&self) -> Conf {
        match self.client().ask(&Request::Conf) {
            Answer::Conf(conf) => conf,
            other => panic!("conf was answered with {other:?}"),
        }
    }

    /// Waits until these tasks have called `vmlib::init`, and can be moved.
    ///
    /// # Panics
    /// After [`PATIENCE`].
    pub fn await_movable(&self, tids: &[Tid]) {
        for tid in tids {
            wait_for("a task that can be moved", PATIENCE, || {
                let answer = self.client().ask(&Request::Check(*tid));
                (answer == Answer::Check(Vec::new())).then_some(())
            });
        }
    }

    /// The `count` living tasks beside the first master, once their hosts have told of their
    /// processes.
    ///
    /// # Panics
    /// After [`PATIENCE`].
    pub fn members(&self, count: usize) -> Vec<TaskRow> {
        wait_for("the members and their processes", PATIENCE, || {
            let Answer::Ps(rows) = self.client().ask(&Request::Ps(None)) else {
                panic!("ps has no such answer");
            };
            let members: Vec<TaskRow> = rows.into_iter().skip(1).collect();
            let run = members.iter().all(|row| row.usage.is_some());
            (run && members.len() == count).then_some(members)
        })
    }

    /// The coordinators that are children of the daemon.
    pub fn coordinators(&self) -> Vec<i32> {
        let named = |pid: &i32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "vm-coordinator")
        };
        self.children().into_iter().filter(named).collect()
    }

    /// The processes that are children of the daemon's.
    pub fn children(&self) -> Vec<i32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        let of = |thread: std::fs::DirEntry| {
            let children = std::fs::read_to_string(thread.path().join("children"));
            // A thread may have ended meanwhile.
            let children = children.unwrap_or_default();
            let pids = children.split_whitespace().map(|pid| pid.parse());
            Vec::from_iter(pids.map(|pid| pid.expect("a number")))
        };
        threads
            .flat_map(|thread| of(thread.expect("a thread")))
            .collect()
    }

    /// Waits for the only coordinator of the daemon other than `before`.
    pub fn coordinator(&self, before: Option<i32>) -> i32 {
        wait_for(
            "a coordinator",
            PATIENCE,
            || match self.coordinators()[..] {
                [pid] if Some(pid) != before => Some(pid),
                _ => None,
            },
        )
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }

    /// Waits until the daemon's process has ended by itself.
    pub fn wait_end(&mut self, limit: Duration) -> std::process::ExitStatus {
        let name = self.name.clone();
        let process = &mut self.process;
        wait_for(&format!("the end of {name}"), limit, || {
            process.try_wait().expect("the daemon is our child")
        })
    }
}

/// A machine of real daemons.
#[derive(Debug)]
pub struct Cluster {
    /// The daemons, in the order in which they were started.
    pub nodes: Vec<Node>,
    /// The namespaces, for a cluster that has some.
    pub network: Option<Network>,
    folder: TempDir,
    /// Whether each daemon has a store of its own.
    own_stores: bool,
}

impl Cluster {
    /// A machine of `hosts` daemons on the loopback address; all have joined.
    pub fn on_loopback(hosts: usize) -> Cluster {
        Self::start(hosts, None, folder())
    }

    /// Like [`Cluster::on_loopback`], but each daemon has a store of its own
    /// ([`Cluster::store_of`]).
    pub fn with_own_stores(hosts: usize) -> Cluster {
        let mut cluster = Self::start(0, None, folder());
        cluster.own_stores = true;
        for _ in 0..hosts {
            cluster.add(&[]);
        }
        cluster
    }

    /// A machine of `hosts` daemons, each in a network namespace of its own; all have joined.
    /// `None` if namespaces cannot be made (that takes root and `ip`); the reason goes to standard
    /// error.
    pub fn in_namespaces(hosts: usize) -> Option<Cluster> {
        let mut cluster = Self::in_empty_namespaces(hosts)?;
        for _ in 0..hosts {
            cluster.add(&[]);
        }
        Some(cluster)
    }

    /// Like [`Cluster::in_namespaces`], without the daemons.
    pub fn in_empty_namespaces(hosts: usize) -> Option<Cluster> {
        match Network::new(hosts) {
            Ok(network) => Some(Self::start(0, Some(network), folder())),
            Err(why) => {
                eprintln!("skipped: no network namespaces here: {why}");
                None
            }
        }
    }

    /// Like [`Cluster::in_namespaces`], and [`Cluster::own_folder`] is a different folder on each
    /// host, as `/tmp` is on real hosts.
    pub fn with_own_folders(hosts: usize) -> Option<Cluster> {
        let folder = folder();
        let own = folder.path().join("own");
        std::fs::create_dir(&own).expect("a folder");
        match Network::new(hosts) {
            Ok(mut network) => {
                network.own = Some(own);
                Some(Self::start(hosts, Some(network), folder))
            }
            Err(why) => {
                eprintln!("skipped: no network namespaces here: {why}");
                None
            }
        }
    }

    fn start(hosts: usize, network: Option<Network>, folder: TempDir) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            network,
            folder,
            own_stores: false,
        };
        for _ in 0..hosts {
            cluster.add(&[]);
        }
        cluster
    }

    /// The folder of the whole cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder that is different on each host: its path on the host, and the path at which the
    /// test reaches that of daemon `index`.
    pub fn own_folder(&self, index: usize) -> (PathBuf, PathBuf) {
        let own = self.folder().join("own");
        let root = format!("/proc/{}/root", self.nodes[index].pid());
        let reached = PathBuf::from(format!("{root}{}", own.display()));
        (own, reached)
    }

    /// The folder of the store that all daemons share.
    pub fn store(&self) -> PathBuf {
        self.folder().join("store")
    }

    /// The folder of the store of the daemon `name`, if each daemon has its own.
    pub fn store_of(&self, name: &str) -> PathBuf {
        self.folder().join(format!("store-{name}"))
    }

    /// Copies the store to the path of the store of another cluster, which has none yet.
    ///
    /// # Panics
    /// If the copy fails.
    pub fn copy_store_to(&self, other: &Cluster) {
        let copied = Command::new("cp")
            .arg("-rp")
            .args([self.store(), other.store()])
            .status();
        assert!(copied.expect("cp runs").success());
    }

    /// The file with the machine's secret.
    pub fn secret_file(&self) -> PathBuf {
        self.folder().join("secret")
    }

    /// The address at which the first living daemon can be joined.
    pub fn address(&mut self) -> Option<String> {
        let living = self.nodes.iter_mut().find_map(|node| {
            matches!(node.process.try_wait(), Ok(None)).then(|| node.dir.clone())
        })?;
        Some(wait_for("the daemon's address", PATIENCE, || {
            let text = std::fs::read_to_string(living.join("address")).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        }))
    }

    /// The command that starts the next daemon, named `n1`, `n2`, ...; for `start_node`.
    pub fn command(&mut self, name: &str, extra: &[&str]) -> Command {
        let index = self.nodes.len();
        let (vmd, path) = (binaries::vmd(), binaries::folder());
        let mut command = match &self.network {
            Some(network) => network.command(index, vmd),
            None => Command::new(vmd),
        };
        let listen = match &self.network {
            Some(network) => format!("{}:0", network.address(index)),
            None => "127.0.0.1:0".to_owned(),
        };
        command.args(["--name", name, "--listen", &listen]);
        command.arg("--dir").arg(self.folder().join(name));
        command.arg("--secret-file").arg(self.secret_file());
        command.arg("--path").arg(path);
        match self.own_stores {
            true => {
                command.arg("--store").arg(self.store_of(name));
                command.arg("--store-local")
            }
            false => command.arg("--store").arg(self.store()),
        };
        if let Some(address) = self.address() {
            command.args(["--join", &address]);
        }
        command.args(extra);
        command
    }

    /// Starts one more daemon and waits until it is in the machine. Returns its index.
    pub fn add(&mut self, extra: &[&str]) -> usize {
        let name = format!("n{}", self.nodes.len() + 1);
        let command = self.command(&name, extra);
        self.add_node(name, command)
    }

    /// Like [`Cluster::add`], with a command that [`Cluster::command`] made.
    pub fn add_node(&mut self, name: String, command: Command) -> usize {
        self.start_node(name.clone(), command);
        let index = self.nodes.len() - 1;
        let dir = self.nodes[index].dir.clone();
        let node = &mut self.nodes[index];
        let mut client = wait_for(&format!("{name} answers a console"), PATIENCE, || {
            if let Ok(Some(status)) = node.process.try_wait() {
                panic!("{name} ended with {status}:\n{}", node.log());
            }
            Client::connect(&dir).ok()
        });
        assert_eq!(client.ask(&Request::AwaitHost(name)), Answer::Done);
        index
    }

    /// Starts a command that [`Cluster::command`] made, as a daemon of this cluster.
    pub fn start_node(&mut self, name: String, mut command: Command) {
        let dir = self.folder().join(&name);
        let log = File::create(dir.with_extension("log")).expect("a log file");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        end_with_us(&mut command);
        let process = command.spawn().expect("the daemon's program can be run");
        self.nodes.push(Node { name, dir, process });
    }

    /// Waits until daemon `index` sees every host of `names` in `state`. Returns the time that this
    /// took.
    pub fn await_state(&self, index: usize, names: &[&str], state: HostState) -> Duration {
        let start = Instant::now();
        let node = &self.nodes[index];
        wait_for(
            &format!("{} sees {names:?} {state:?}", node.name),
            PATIENCE,
            || {
                let conf = node.conf();
                let there = |name: &&str| {
                    conf.hosts
                        .iter()
                        .any(|row| row.facts.name == **name && row.state == state)
                };
                names.iter().all(there).then_some(())
            },
        );
        start.elapsed()
    }

    /// Index of the leading daemon, as daemon `index` sees it.
    pub fn leader(&self, index: usize) -> usize {
        wait_for("a leader", PATIENCE, || {
            let conf = self.nodes[index].conf();
            let row = conf.hosts.iter().find(|row| row.host == conf.leader)?;
            self.nodes
                .iter()
                .position(|node| node.name == row.facts.name)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.process.kill();
            let _ = node.process.wait();
        }
        for node in &self.nodes {
            node.await_guardian();
        }
        if std::thread::panicking() {
            for node in &self.nodes {
                eprintln!("--- log of {}\n{}", node.name, node.log());
            }
        }
    }
}

/// The prefix is short, because the path of a socket has at most 107 bytes.
fn folder() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("vm").tempdir_in("/tmp").expect("a folder")
}

/// Makes the kernel end the process when the test ends, in whatever way.
///
/// The signal belongs to the thread that forks, and each test runs in a thread of its own: so a
/// failing test ends its processes even before a value is dropped.
pub fn end_with_us(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
                .map_err(io::Error::from)
        });
    }
}
