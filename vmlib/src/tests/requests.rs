//! Requests, and how a process becomes a task.

use super::relay::{Relay, private_folder};
use crate::{
    FailKind, InitError, RequestError, Spawn, SpawnError,
    init::{Environment, enrol},
};
use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket},
    thread::set_thread_res_uid,
};
use std::{io::Read, net::Shutdown, os::unix::net::UnixListener, thread};
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
    let folder = private_folder();
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
    let folder = private_folder();
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

#[test]
fn another_users_process_at_the_socket_is_refused_and_sent_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can listen as another user");
        return;
    }
    let folder = private_folder();
    let path = folder.path().join("vmd.sock");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    // The kernel notes the user of the thread that begins to listen.
    let listener = thread::spawn(|| {
        let other = rustix::process::Uid::from_raw(65_534);
        set_thread_res_uid(other, other, other).unwrap();
        listen(&listener, 1).unwrap();
        UnixListener::from(listener)
    });
    let listener = listener.join().unwrap();
    // Closes at once: a library that waits for an answer does not do so for long.
    let stranger = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut sent = Vec::new();
        peer.read_to_end(&mut sent).unwrap();
        sent
    });
    let token = Some(7);
    let refused = enrol(&Environment {
        socket: path,
        token,
    });
    let text = refused.expect_err("it is not ours").to_string();
    assert!(text.contains("a process of user 65534"), "{text}");
    assert!(stranger.join().unwrap().is_empty());
}
