//! Requests, and how a process becomes a task.

use super::relay::Relay;
use crate::{
    FailKind, InitError, RequestError, Spawn, SpawnError,
    init::{Environment, enrol},
};
use vm_wire::Op;

#[test]
fn a_request_is_asked_again_under_its_number_until_it_is_answered() {
    let relay = Relay::new();
    let a = relay.task();
    relay.with(|inner| inner.deaf = 1);
    assert_eq!(a.hosts().unwrap(), []);
    assert_eq!(a.hosts().unwrap(), []);
    let asked = relay.with(|inner| inner.asked.clone());
    let request = |number| (a.tid(), Op::HostsAsk, number);
    assert_eq!(asked, [request(1), request(1), request(2)]);
}

#[test]
fn a_refused_request_tells_the_kind_of_failure() {
    let relay = Relay::new();
    let a = relay.task();
    match a.siblings() {
        Err(RequestError::Refused(failed)) => assert_eq!(failed.kind, FailKind::BadRequest),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_spawn_that_succeeds_in_part_tells_both_parts() {
    let relay = Relay::new();
    let a = relay.task();
    assert_eq!(a.spawn(&Spawn::new("one")).unwrap().len(), 1);
    match a.spawn(&Spawn::new("two").count(2)) {
        Err(error @ SpawnError::Partly { .. }) => {
            let text = error.to_string();
            assert_eq!(
                text,
                "2 of two started, the others not: node2: no such program"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_daemon_the_error_says_how_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vmd.sock");
    let missing = enrol(&Environment {
        socket: socket.clone(),
        token: None,
    });
    let text = missing.unwrap_err().to_string();
    assert!(text.contains("vm run ./program"), "{text}");

    // A socket that a dead daemon left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let stale = enrol(&Environment {
        socket,
        token: None,
    });
    assert!(matches!(stale, Err(InitError::NoDaemon { .. })));
}

#[test]
fn a_refused_enrolment_tells_why() {
    let relay = Relay::new();
    match relay.enrol(Some(0)) {
        Err(InitError::Refused(failed)) => assert_eq!(failed.text, "this token is not known"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_daemon_that_answers_nonsense_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vmd.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, &[0xff; 200]).unwrap();
        stream
    });
    let answer = enrol(&Environment {
        socket,
        token: None,
    });
    assert!(
        matches!(answer, Err(InitError::Protocol { .. })),
        "{answer:?}"
    );
    daemon.join().unwrap();
}
