//! Bad input gets a clear error and harms nothing: after each test the machine still works.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use vm_integration::cluster::{Cluster, PATIENCE, binaries, client, end_with_us, wait_for};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    console::{Answer, HostState, Request},
    limits,
    peer::MoveWay,
    place,
    task::{FailKind, Place},
};

/// Checks that a program still runs across the machine.
fn works(cluster: &Cluster) {
    let mut client = cluster.nodes[0].client();
    client.run("vmtest", &["last-word", "4"]);
    let finished = client.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
}

fn failure(answer: Answer) -> (FailKind, String) {
    match answer {
        Answer::Failed(failed) => (failed.kind, failed.text),
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[test]
fn an_unknown_program_host_or_task_is_refused_by_name() {
    let cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[1].client();
    let conf = cluster.nodes[1].conf();
    let nobody = Tid::new(conf.machine, HostId(1), 999);

    let (kind, text) = failure(console.ask(&Request::Spawn(client::spawn("no-such-program", &[]))));
    assert_eq!(kind, FailKind::NoSuchProgram);
    assert!(text.contains("no-such-program"), "{text}");

    let mut elsewhere = client::spawn("no-such-program", &[]);
    elsewhere.place = Place::Host("n1".to_owned());
    let (kind, text) = failure(console.ask(&Request::Spawn(elsewhere)));
    assert_eq!(kind, FailKind::NoSuchProgram);
    assert!(
        text.contains("n1"),
        "the host where it is missing is named: {text}"
    );

    let mut nowhere = client::spawn("vmtest", &["idle"]);
    nowhere.place = Place::Host("nowhere".to_owned());
    let (kind, text) = failure(console.ask(&Request::Spawn(nowhere)));
    assert_eq!(kind, FailKind::NoSuchHost);
    assert!(text.contains("nowhere"), "{text}");

    let (kind, text) = failure(console.ask(&Request::Delete("nowhere".to_owned())));
    assert_eq!(kind, FailKind::NoSuchHost);
    assert!(text.contains("nowhere"), "{text}");

    for request in [Request::Signal(nobody, 9), Request::Check(nobody)] {
        let (kind, text) = failure(console.ask(&request));
        assert_eq!(kind, FailKind::NoSuchTask, "{request:?}");
        assert!(text.contains("t1.999"), "{text}");
    }
    works(&cluster);
}

/// Starts a daemon that is expected to end by itself, and returns its output.
fn refused(mut command: Command) -> String {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    end_with_us(&mut command);
    let mut process = command.spawn().expect("the daemon's program can be run");
    let status = wait_for("the refused daemon ends", PATIENCE, || {
        process.try_wait().expect("our child")
    });
    let mut said = String::new();
    process
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut said)
        .expect("text");
    assert!(!status.success(), "it should have been refused: {said}");
    said
}

#[test]
fn a_wrong_or_missing_secret_is_refused() {
    let mut cluster = Cluster::on_loopback(1);
    let wrong = cluster.folder().join("wrong");
    std::fs::write(&wrong, format!("{}\n", "ab".repeat(32))).expect("a file");
    std::fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("our file");
    let wrong = wrong.to_string_lossy().into_owned();
    for secret in [wrong, "/nonexistent/secret".to_owned()] {
        let address = cluster.address().expect("one lives");
        let mut command = Command::new(binaries::vmd());
        command.args(["--name", "x", "--listen", "127.0.0.1:0", "--join", &address]);
        command
            .arg("--dir")
            .arg(cluster.folder().join("x"))
            .args(["--secret-file", &secret]);
        let said = refused(command);
        assert!(said.contains("secret"), "{said}");
    }
    works(&cluster);
}

#[test]
fn a_second_daemon_of_the_same_name_is_refused() {
    let mut cluster = Cluster::on_loopback(2);
    let address = cluster.address().expect("one lives");
    let mut command = Command::new(binaries::vmd());
    command.args([
        "--name",
        "n2",
        "--listen",
        "127.0.0.1:0",
        "--join",
        &address,
    ]);
    command.arg("--dir").arg(cluster.folder().join("other"));
    command.arg("--secret-file").arg(cluster.secret_file());
    let said = refused(command);
    assert!(said.contains("n2"), "{said}");
    works(&cluster);
}

#[test]
fn the_socket_of_a_dead_daemon_is_taken_over() {
    let mut cluster = Cluster::on_loopback(1);
    cluster.nodes[0].signal(rustix::process::Signal::KILL);
    cluster.nodes[0].wait_end(PATIENCE);
    assert!(
        place::socket(&cluster.nodes[0].dir).exists(),
        "a killed daemon leaves its socket"
    );
    let mut command = Command::new(binaries::vmd());
    command.args(["--name", "n1", "--listen", "127.0.0.1:0"]);
    command
        .arg("--dir")
        .arg(&cluster.nodes[0].dir)
        .arg("--path")
        .arg(binaries::folder());
    command.arg("--secret-file").arg(cluster.secret_file());
    cluster.nodes.clear();
    cluster.start_node("n1".to_owned(), command);
    let dir = cluster.nodes[0].dir.clone();
    wait_for("the new daemon answers", PATIENCE, || {
        client::Client::connect(&dir).ok()
    });
    works(&cluster);
}

#[test]
fn a_folder_too_long_for_a_socket_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = folder.path().join("d".repeat(120));
    let mut command = Command::new(binaries::vmd());
    command
        .args(["--listen", "127.0.0.1:0"])
        .arg("--dir")
        .arg(&long);
    let said = refused(command);
    assert!(said.contains("--dir") && said.contains("socket"), "{said}");
}

#[test]
fn strangers_on_the_network_harm_nothing() {
    let mut cluster = Cluster::on_loopback(2);
    let address = cluster.address().expect("one lives");
    let mut silent = Vec::new();
    for bytes in [
        &b""[..],
        b"GET / HTTP/1.0\r\n\r\n",
        &[0xff; 100_000],
        // A length of 2^60 in the place of a length field.
        &[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0],
        &[0, 48, 1, 2, 3],
    ] {
        let mut stream = TcpStream::connect(&address).expect("the daemon listens");
        // The daemon may close the connection before all bytes are written.
        let _ = stream.write_all(bytes);
        silent.push(stream);
    }
    for stream in &mut silent {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a limit");
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(
                error.kind(),
                std::io::ErrorKind::ConnectionReset,
                "a stranger's connection is closed within its time"
            ),
        }
    }
    works(&cluster);
}

/// Connections to the ports of daemons that stay silent. A connection that a daemon closes is
/// replaced.
struct Crowd {
    over: Arc<AtomicBool>,
    holds: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Makes `each` connections to each address. Returns once all were made.
    fn gather(addresses: &[String], each: usize) -> Crowd {
        let connect = |address: &String| {
            let stream = TcpStream::connect(address).expect("the daemon listens");
            stream.set_nonblocking(true).expect("our socket");
            stream
        };
        let all = addresses.iter().cycle().take(each * addresses.len());
        let mut crowd: Vec<_> = all.map(|of| (of.clone(), connect(of))).collect();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let holds = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                for (address, stream) in &mut crowd {
                    let open =
                        |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
                    if !stream.peek(&mut [0]).is_err_and(open) {
                        *stream = connect(address);
                    }
                }
                // The pause only sets the pace; it does not synchronise.
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        Crowd {
            over,
            holds: Some(holds),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread ends by itself if a daemon has ended.
        let _ = self.holds.take().map(JoinHandle::join);
    }
}

#[test]
fn a_crowd_of_silent_connections_ends_no_daemon_and_stops_no_move() {
    let mut cluster = Cluster::on_loopback(0);
    for name in ["n1", "n2", "n3"] {
        let mut command = cluster.command(name, &[]);
        command.env("VM_FAULT", "link-cut");
        cluster.add_node(name.to_owned(), command);
    }
    let conf = cluster.nodes[0].conf();
    let addresses: Vec<_> = conf.hosts.into_iter().map(|row| row.facts.addr).collect();
    let crowd = Crowd::gather(&addresses, 300);
    for node in &cluster.nodes {
        node.signal(rustix::process::Signal::USR1);
    }
    for node in &cluster.nodes {
        wait_for("all links are cut", PATIENCE, || {
            node.log().contains("all links are cut").then_some(())
        });
    }
    // The program needs links to both other hosts.
    works(&cluster);
    for node in &mut cluster.nodes {
        let ended = node.process.try_wait().expect("our child");
        assert_eq!(ended, None, "{} has ended", node.name);
    }
    let mut idle = client::spawn("vmtest", &["idle"]);
    idle.place = Place::Host("n1".to_owned());
    let tid = match cluster.nodes[0].client().ask(&Request::Spawn(idle)) {
        Answer::Started(tids) => tids[0],
        answer => panic!("{answer:?}"),
    };
    cluster.nodes[0].await_movable(&[tid]);
    for host in ["n2", "n3", "n1"] {
        let asked = Request::Move(tid, Some(host.to_owned()), MoveWay::default());
        match cluster.nodes[0].client().ask(&asked) {
            Answer::Moved(report) => assert!(report.total_us < 3_000_000, "{report:?}"),
            answer => panic!("{answer:?}"),
        }
    }
    drop(crowd);
    for node in &cluster.nodes {
        let told = node.log().matches("so far)").count();
        let most = limits::OFFENCES_TOLD as usize * 2;
        assert!((1..=most).contains(&told), "{told} lines");
    }
}

#[test]
fn garbage_on_the_local_socket_closes_that_connection_alone() {
    let cluster = Cluster::on_loopback(1);
    let mut huge = [0u8; 96];
    huge[4] = vm_wire::Op::ConsoleRequest as u8;
    huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    for bytes in [&[0xff; 200][..], &huge, &[7; 50]] {
        let mut stream =
            UnixStream::connect(place::socket(&cluster.nodes[0].dir)).expect("the daemon listens");
        let _ = stream.write_all(bytes);
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("half of the connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a limit");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    works(&cluster);
}

#[test]
fn a_console_killed_in_the_middle_takes_its_run_with_it_and_nothing_else() {
    let cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[0].client();
    console.run("vmtest", &["sentinel", "2"]);
    console.output_until("round");
    drop(console);
    wait_for("the application ends", PATIENCE, || {
        match cluster.nodes[0].client().ask(&Request::Ps(None)) {
            Answer::Ps(rows) => rows.is_empty().then_some(()),
            other => panic!("{other:?}"),
        }
    });
    works(&cluster);
}

#[test]
fn a_host_added_by_hand_and_deleted_leaves_nothing() {
    let mut cluster = Cluster::on_loopback(3);
    let answer = cluster.nodes[0]
        .client()
        .ask(&Request::Delete("n3".to_owned()));
    assert_eq!(answer, Answer::Done);
    cluster.await_state(0, &["n3"], HostState::Gone);
    assert!(cluster.nodes[2].wait_end(PATIENCE).success());
    assert!(!place::socket(&cluster.nodes[2].dir).exists());
    assert_eq!(cluster.nodes[0].client().ask(&Request::Halt), Answer::Done);
    for node in &mut cluster.nodes[..2] {
        assert!(node.wait_end(PATIENCE).success());
        assert!(!place::socket(&node.dir).exists());
    }
}
