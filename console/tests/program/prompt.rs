//! The prompt, and files of commands.

use super::*;
use crate::screen::{Guarded, Screen, terminal, vm_on};
use std::io::Write;
use tempfile::TempDir;
use vm_wire::console::{Answer, Request};

/// A console at its prompt on a terminal of its own.
fn prompt(dir: &TempDir) -> (Guarded, Screen) {
    let (ours, theirs) = terminal();
    let console = vm_on(&theirs, dir.path(), &[]);
    (console, Screen::new(ours))
}

#[test]
fn a_script_ends_at_its_first_failure_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        daemon.answer_next(&Answer::Ps(Vec::new()));
        let request = daemon.answer_next(&Answer::Suspended(Vec::new()));
        assert_eq!(request, Request::Suspended);
        let request = daemon.answer_next(&Answer::Check(vec!["it is stopped".to_owned()]));
        assert_eq!(request, Request::Check(tid(1, 1)));
        assert!(daemon.frame().is_none());
    });
    let mut script = tempfile::tempfile().unwrap();
    script
        .write_all(b"# what runs\n\n  ps --json\ncheck 't1.1'\nps\n")
        .unwrap();
    std::io::Seek::rewind(&mut script).unwrap();
    let output = vm(dir.path()).stdin(script).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "{\"suspended\":[],\"tasks\":[]}\nt1.1 cannot be moved: it is stopped\n"
    );
    daemon.join().unwrap();
}

#[test]
fn the_prompt_completes_from_grammar_and_machine_and_survives_errors() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        // The tab after `check t1.` makes the console request the tasks.
        let request = daemon.answer_next(&Answer::Ps(vec![row(tid(1, 7))]));
        assert_eq!(request, Request::Ps(None));
        let request = daemon.answer_next(&Answer::Check(Vec::new()));
        assert_eq!(request, Request::Check(tid(1, 7)));
        assert!(daemon.frame().is_none());
    });
    let (mut console, mut screen) = prompt(&dir);
    for (keys, shown) in [
        ("", "vm> "),
        ("frobnicate\r", "unrecognized subcommand"),
        ("", "vm> "),
        // The word is completed as far as all commands that begin so agree; for a single one, with
        // the blank.
        ("che\t", "check"),
        ("p\t", "checkp"),
        ("\u{15}mo\t", "move "),
        ("\u{15}check t1.\t", "t1.7 "),
        ("\r", "t1.7 can be moved"),
        ("", "vm> "),
    ] {
        screen.type_keys(keys);
        screen.wait_for(shown);
    }
    screen.type_keys("quit\r");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
}

#[test]
fn lines_typed_ahead_at_the_prompt_are_all_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        for number in 1..=3 {
            let request = daemon.answer_next(&Answer::Check(Vec::new()));
            assert_eq!(request, Request::Check(tid(1, number)));
        }
        assert!(daemon.frame().is_none());
    });
    let (mut console, mut screen) = prompt(&dir);
    screen.wait_for("vm> ");
    screen.type_keys("check t1.1\rcheck t1.2\rcheck t1.3\rquit\r");
    screen.wait_for("t1.3 can be moved");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
}
