//! Hosts made of network namespaces: one namespace per host, and one with the bridge that joins
//! them, so that nothing of the computer's own network is touched.
//!
//! A host's end of its cable is `eth0`; the bridge's end of the cable of host `i` is `cable<i>`. To
//! cut a cable, the bridge's end is set down: packets are lost, and connections stay until TCP
//! gives up.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Distinguishes the networks of one test process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Priority of the rules for connections to a blocked port that stay.
const KEPT: u32 = 100;
/// Priority of the rule that blocks a port.
const BLOCKED: u32 = 200;

/// Namespaces joined by a bridge; removed on drop.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    hosts: usize,
    /// A folder that is a different one on each host.
    pub own: Option<PathBuf>,
}

impl Network {
    /// Hosts `0..hosts` with the addresses 10.97.0.1, 10.97.0.2, ...
    ///
    /// # Errors
    /// If a step is not allowed or `ip` is missing; the error has the output of `ip`.
    pub fn new(hosts: usize) -> io::Result<Network> {
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::other("this takes root"));
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = Network {
            prefix: format!("vm{}-{number}", std::process::id()),
            hosts: 0,
            own: None,
        };
        let hub = network.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
        let mut network = network;
        for _ in 0..hosts {
            network.add_host()?;
        }
        Ok(network)
    }

    /// Adds one more host. Returns its index.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn add_host(&mut self) -> io::Result<usize> {
        let index = self.hosts;
        self.hosts += 1;
        let (hub, host, cable) = (self.hub(), self.namespace(index), cable(index));
        let address = format!("{}/24", self.address(index));
        ip(&["netns", "add", &host])?;
        ip(&[
            "-n", &hub, "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns",
            &host,
        ])?;
        ip(&["-n", &hub, "link", "set", &cable, "master", "bridge", "up"])?;
        ip(&["-n", &host, "address", "add", &address, "dev", "eth0"])?;
        ip(&["-n", &host, "link", "set", "eth0", "up"])?;
        ip(&["-n", &host, "link", "set", "lo", "up"])?;
        Ok(index)
    }

    /// The address of host `index`.
    pub fn address(&self, index: usize) -> String {
        format!("10.97.0.{}", index + 1)
    }

    /// Runs `ip` on host `index` with the given words.
    ///
    /// # Errors
    /// The error output of `ip`.
    pub fn configure(&self, index: usize, words: &str) -> io::Result<()> {
        let namespace = self.namespace(index);
        let words: Vec<&str> = words.split_whitespace().collect();
        ip(&[&["-n", &namespace], &words[..]].concat())
    }

    /// A command that runs `program` on host `index`. The process of the child becomes the program.
    pub fn command(&self, index: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(index)]);
        if let Some(own) = &self.own {
            // The mount is visible only to this process and its children.
            let mount = "mount -t tmpfs own \"$0\" && exec \"$@\"";
            command.args(["sh", "-c", mount]).arg(own);
        }
        command.arg(program);
        command
    }

    /// Disconnects the cable of host `index`, or connects it again.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn set_cable(&self, index: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&["-n", &self.hub(), "link", "set", &cable(index), state]).expect("a cable can be set");
    }

    /// Isolates these hosts from each other, or ends that. Packets between two isolated hosts are
    /// lost; each of them reaches all other hosts.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn set_apart(&self, hosts: &[usize], apart: bool) {
        let (hub, state) = (self.hub(), if apart { "on" } else { "off" });
        for index in hosts {
            let of = ["type", "bridge_slave", "isolated", state];
            let cable = cable(*index);
            let words = [["-n", &hub, "link", "set", &cable].as_slice(), &of].concat();
            ip(&words).expect("a port of a bridge can be set");
        }
    }

    /// Cuts the hosts of `side` off from all others. The hosts of `side` stay connected to each
    /// other.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn partition(&self, side: &[usize]) {
        let hub = self.hub();
        ip(&["-n", &hub, "link", "add", "island", "type", "bridge"]).expect("a second bridge");
        ip(&["-n", &hub, "link", "set", "island", "up"]).expect("a bridge can be set up");
        for index in side {
            ip(&[
                "-n",
                &hub,
                "link",
                "set",
                &cable(*index),
                "master",
                "island",
            ])
            .expect("a cable can be moved");
        }
    }

    /// Destroys every TCP connection of host `index`, as a firewall that sends resets would.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn destroy_connections(&self, index: usize) {
        ip(&[
            "netns",
            "exec",
            &self.namespace(index),
            "ss",
            "-K",
            "-t",
            "state",
            "established",
        ])
        .expect("connections can be destroyed");
    }

    /// Blocks new TCP connections to a port of host `index`, as a firewall that drops packets would. The
    /// connections to that port from the ports `kept` stay.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn block_port(&self, index: usize, port: u16, kept: &[u16]) {
        let rule = |words: String| {
            let words = format!("rule add ipproto tcp sport {port} {words}");
            self.configure(index, &words).expect("a rule can be added");
        };
        for peer in kept {
            rule(format!("dport {peer} priority {KEPT} lookup main"));
        }
        // The host has no route for its replies.
        rule(format!("priority {BLOCKED} blackhole"));
    }

    /// Ends the block of [`Network::block_port`].
    ///
    /// # Panics
    /// When no port is blocked.
    pub fn open_port(&self, index: usize) {
        self.configure(index, &format!("rule delete priority {BLOCKED}"))
            .expect("a rule can be deleted");
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    fn namespace(&self, index: usize) -> String {
        format!("{}-{index}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for index in 0..self.hosts {
            let _ = ip(&["netns", "delete", &self.namespace(index)]);
        }
        let _ = ip(&["netns", "delete", &self.hub()]);
    }
}

fn cable(index: usize) -> String {
    format!("cable{index}")
}

fn ip(args: &[&str]) -> io::Result<()> {
    let output = Command::new("ip")
        .args(args)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "ip {}: {}",
        args.join(" "),
        said.trim()
    )))
}
