//! Bad input gets a clear error and harms nothing: after each test the machine still works.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::Duration,
};
use vm_integration::cluster::{Cluster, PATIENCE, binaries, client, end_with_us, wait_for};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    console::{Answer, HostState, Request},
    place,
    task::{FailKind, Place},
};

/// A whole program still runs across the machine.
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
fn what_is_unknown_is_refused_by_name() {
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

/// Starts a daemon that is expected to end by itself, and returns what it said.
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
        // A length of 2^60 where a length may stand.
        &[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0],
        &[0, 48, 1, 2, 3],
    ] {
        let mut stream = TcpStream::connect(&address).expect("the daemon listens");
        // The daemon may close before all is written.
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
