//! The first cluster of the user guide, on hosts in unfavourable environments: without a default
//! route, with hosts files that give a computer's name a loopback address, with container bridges
//! that have the same address on each host, with IPv6 only. When the command that starts a daemon
//! in the background has ended, the daemon is in the machine and has its links, or the command has
//! reported the reason why not.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};
use tempfile::TempDir;
use vm_integration::cluster::{binaries, client::Client, network::Network};
use vm_wire::{
    console::{Answer, HostState, Request},
    place,
};

/// Computers named node1, node2, ..., each with a folder for its daemon.
struct Computers {
    network: Network,
    folder: TempDir,
}

impl Computers {
    /// `None` if no network can be made here; the reason is printed.
    fn new(count: usize) -> Option<Computers> {
        let network = match Network::new(count) {
            Ok(network) => network,
            Err(why) => {
                eprintln!("skipped: no network namespaces here: {why}");
                return None;
            }
        };
        let folder = tempfile::Builder::new().prefix("vm").tempdir_in("/tmp");
        let folder = folder.expect("a folder");
        for index in 0..count {
            // Debian's hosts file gives the computer's own name a loopback address.
            let own = format!("127.0.0.1 localhost\n127.0.1.1 node{}\n", index + 1);
            let name = |other: usize| {
                let address = network.address(other);
                format!("{address} node{}\n", other + 1)
            };
            let others = (0..count).filter(|other| *other != index).map(name);
            let hosts = own + &others.collect::<String>();
            fs::write(folder.path().join(format!("hosts{index}")), hosts).expect("a file");
        }
        Some(Computers { network, folder })
    }

    fn dir(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("node{}", index + 1))
    }

    /// Runs lines in a shell on that computer. Returns the output.
    fn shell(&self, index: usize, lines: &str) -> Output {
        let name = format!("node{}", index + 1);
        let hosts = self.folder.path().join(format!("hosts{index}"));
        let script = format!(
            "mount --bind {} /etc/hosts && hostname {name} && export VM_DIR={} && PATH={}:$PATH\n\
             {lines}",
            hosts.display(),
            self.dir(index).display(),
            binaries::folder().display()
        );
        let mut command = self.network.command(index, Path::new("unshare"));
        command.args(["--uts", "sh", "-c", &script]);
        command.env_remove("VM_DIR").env_remove("RUST_LOG");
        let output = command.stdin(Stdio::null()).output();
        output.expect("ip, unshare and a shell can be run")
    }

    /// Like [`Computers::shell`]; the lines must succeed.
    fn does(&self, index: usize, lines: &str) -> String {
        let output = self.shell(index, lines);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{lines}: {said}{}", self.logs());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Like [`Computers::shell`]; the lines must fail. Returns the error output.
    fn fails(&self, index: usize, lines: &str) -> String {
        let output = self.shell(index, lines);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{lines}: {said}{}", self.logs());
        said
    }

    /// Copies the machine's secret from the first computer to the others.
    fn share_secret(&self) {
        let secret = fs::read(self.dir(0).join(place::SECRET_FILE)).expect("the founder made it");
        for index in 1.. {
            if !self.folder.path().join(format!("hosts{index}")).exists() {
                break;
            }
            let dir = self.dir(index);
            let file = dir.join(place::SECRET_FILE);
            fs::create_dir(&dir).expect("a folder");
            fs::write(&file, &secret).expect("a file");
            for (path, mode) in [(dir, 0o700), (file, 0o600)] {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
            }
        }
    }

    /// Names and addresses of the living hosts, as the daemon in that folder sees them.
    fn hosts(&self, dir: &Path) -> Vec<(String, String)> {
        let mut console = Client::connect(dir).expect("the daemon answers");
        let Answer::Conf(conf) = console.ask(&Request::Conf) else {
            panic!("conf has no such answer");
        };
        let live = conf.hosts.into_iter();
        let live = live.filter(|row| row.state == HostState::Live);
        live.map(|row| (row.facts.name, row.facts.addr)).collect()
    }

    fn addresses(&self, index: usize) -> Vec<String> {
        let hosts = self.hosts(&self.dir(index));
        hosts.into_iter().map(|(_, addr)| addr).collect()
    }

    fn pid(dir: &Path) -> Option<Pid> {
        let text = fs::read_to_string(dir.join("pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn daemons(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.folder.path()).into_iter().flatten();
        let dirs = found.flatten().map(|entry| entry.path());
        dirs.filter(|path| path.is_dir()).collect()
    }

    fn logs(&self) -> String {
        let log = |dir: PathBuf| {
            let text = fs::read_to_string(dir.join(place::LOG_FILE)).unwrap_or_default();
            format!("\n--- {}\n{text}", dir.display())
        };
        self.daemons().into_iter().map(log).collect()
    }
}

impl Drop for Computers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for pid in self.daemons().iter().filter_map(|dir| Self::pid(dir)) {
            // The process may have ended since.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Checks that a program runs on each host.
fn works(computers: &Computers, names: &[&str]) {
    for name in names {
        let said = computers.does(0, &format!("vm spawn --on {name} sleep 1000"));
        assert!(said.starts_with('t'), "{said}");
    }
}

#[test]
fn the_first_cluster_of_the_guide_works_on_hosts_without_a_default_route() {
    let Some(computers) = Computers::new(3) else {
        return;
    };
    computers.does(0, "vmd --detach");
    computers.share_secret();
    let address = computers.dir(0).join("address");
    let join = format!("vmd --detach --join \"$(cat {})\"", address.display());
    computers.does(1, &join);
    computers.does(2, "vmd --detach --join node1:7170");
    let addresses = ["10.97.0.1:7170", "10.97.0.2:7170", "10.97.0.3:7170"];
    for index in 0..3 {
        assert_eq!(computers.addresses(index), addresses);
    }
    works(&computers, &["node1", "node2", "node3"]);
    // A second daemon on the first computer. The name stands for a loopback address there.
    let second = computers.folder.path().join("second");
    let secret = computers.dir(0).join(place::SECRET_FILE);
    computers.does(
        0,
        &format!(
            "vmd --detach --dir {} --name second --secret-file {} --join node1:7170",
            second.display(),
            secret.display()
        ),
    );
    let told = ("second".to_owned(), "10.97.0.1:7171".to_owned());
    assert!(computers.hosts(&second).contains(&told));
    works(&computers, &["second"]);
    // After the loss of a host, a request for a program on that host is refused.
    let pid = Computers::pid(&computers.dir(1)).expect("it runs");
    kill_process(pid, Signal::KILL).expect("it runs");
    let said = computers.fails(1, "vm run sh -c true");
    let join = format!("--join {}", addresses[0]);
    assert!(said.contains(&join) && said.contains("--found"), "{said}");
    computers.does(
        1,
        "vmd --detach --found && vm run sh -c true && vm halt --yes",
    );
}

#[test]
fn the_address_of_a_container_bridge_is_not_published() {
    let Some(computers) = Computers::new(2) else {
        return;
    };
    for index in 0..2 {
        for words in [
            "link add docker0 type bridge",
            "address add 172.17.0.1/16 dev docker0",
            "link set docker0 up",
            "route add default via 172.17.0.2 dev docker0",
        ] {
            computers.network.configure(index, words).expect("a bridge");
        }
    }
    computers.does(0, "vmd --detach");
    computers.share_secret();
    computers.does(1, "vmd --detach --join node1:7170");
    for index in 0..2 {
        let addresses = computers.addresses(index);
        assert_eq!(addresses, ["10.97.0.1:7170", "10.97.0.2:7170"]);
    }
    works(&computers, &["node2"]);
}

#[test]
fn hosts_with_only_ipv6_form_a_machine() {
    if !Path::new("/proc/net/if_inet6").exists() {
        eprintln!("skipped: this system has no IPv6");
        return;
    }
    let Some(computers) = Computers::new(2) else {
        return;
    };
    for index in 0..2 {
        let number = index + 1;
        for words in [
            format!("address delete 10.97.0.{number}/24 dev eth0"),
            format!("address add fd97::{number}/64 dev eth0 nodad"),
        ] {
            computers.network.configure(index, &words).expect("IPv6");
        }
    }
    computers.does(0, "vmd --detach");
    computers.share_secret();
    computers.does(1, "vmd --detach --join '[fd97::1]:7170'");
    let addresses = ["[fd97::1]:7170", "[fd97::2]:7170"];
    assert_eq!(computers.addresses(1), addresses);
    works(&computers, &["node2"]);
}

#[test]
fn a_later_address_is_published_and_the_first_joining_host_corrects_it() {
    let Some(computers) = Computers::new(2) else {
        return;
    };
    let configure = |words: &str| computers.network.configure(0, words).expect("an address");
    configure("address delete 10.97.0.1/24 dev eth0");
    computers.does(0, "vmd --detach");
    assert_eq!(computers.addresses(0), ["127.0.0.1:7170"]);
    // The address that it finds first is not one at which other hosts reach it.
    configure("address add 10.5.0.1/32 dev eth0");
    configure("address add 10.97.0.1/24 dev eth0");
    computers.share_secret();
    computers.does(1, "vmd --detach --join node1:7170");
    let addresses = ["10.97.0.1:7170", "10.97.0.2:7170"];
    assert_eq!(computers.addresses(1), addresses);
    works(&computers, &["node2"]);
}

#[test]
fn a_daemon_that_cannot_join_or_stay_reports_the_reason() {
    let Some(computers) = Computers::new(2) else {
        return;
    };
    computers.does(0, "vmd --detach --advertise 10.97.0.99");
    computers.share_secret();
    // The address leads to the founder on the founder's computer. On this computer it leads to the
    // joining daemon itself.
    let said = computers.fails(1, "vmd --detach --join 127.0.0.1:7170");
    assert!(said.contains("this daemon itself"), "{said}");
    let said = computers.fails(1, "vmd --detach --listen 127.0.0.1:0 --join node1:7170");
    assert!(
        said.contains("127.0.0.1") && said.contains("--listen"),
        "{said}"
    );
    let said = computers.fails(1, "vmd --detach --listen node2:0 --join node1:7170");
    assert!(
        said.contains("127.0.1.1") && said.contains("node2"),
        "{said}"
    );
    // All addresses of a name are tried, and named in the error.
    let hosts = computers.folder.path().join("hosts1");
    let text = fs::read_to_string(&hosts).expect("a file");
    fs::write(&hosts, format!("127.0.0.1 node1\n{text}")).expect("a file");
    let secret = computers.folder.path().join("wrong");
    fs::write(&secret, "ab".repeat(32)).expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("ours");
    let wrong = format!(
        "vmd --detach --secret-file {} --join node1:7170",
        secret.display()
    );
    let said = computers.fails(1, &wrong);
    let both = [
        "127.0.0.1:7170: that is this daemon",
        "10.97.0.1:7170: it has another secret",
    ];
    assert!(both.iter().all(|part| said.contains(part)), "{said}");
    // Neither daemon reaches the other at its published address.
    let said = computers.fails(1, "vmd --detach --advertise 10.97.0.98 --join node1:7170");
    assert!(said.contains("10.97.0.99"), "{said}");
}
