//! The prompt, and files of commands.

use super::*;
use crate::screen::{Guarded, Screen, terminal, vm_on, vm_with};
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

#[test]
fn a_line_holds_several_commands_and_aliases_stand_for_their_words() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        for number in [1, 2, 3] {
            let reasons = match number {
                3 => vec!["it is stopped".to_owned()],
                _ => Vec::new(),
            };
            let request = daemon.answer_next(&Answer::Check(reasons));
            assert_eq!(request, Request::Check(tid(1, number)));
        }
        assert!(daemon.frame().is_none());
    });
    let nested = dir.path().join("nested.vm");
    std::fs::write(&nested, "echo 'a; b' # not this; nor that\nalias c check\n").unwrap();
    let file = dir.path().join("commands.vm");
    let lines = format!(
        "source {}\nc t1.1; c t1.2\nalias c; --json alias\nunalias c; --json echo -x; check t1.3; echo no\necho no\n",
        nested.display()
    );
    std::fs::write(&file, lines).unwrap();
    let output = vm(dir.path()).arg("source").arg(&file).output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "a; b\nt1.1 can be moved\nt1.2 can be moved\nalias c check\n\
         {\"aliases\":[{\"name\":\"c\",\"words\":[\"check\"]}]}\n{\"echo\":[\"-x\"]}\n\
         t1.3 cannot be moved: it is stopped\n"
    );
    assert_eq!(output.status.code(), Some(1));
    daemon.join().unwrap();
}

#[test]
fn a_file_of_commands_that_cannot_be_read_or_reads_itself_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("itself.vm");
    std::fs::write(&file, format!("echo again; source {}\n", file.display())).unwrap();
    let refused = |file: &str, why: &str| {
        let output = vm(dir.path()).args(["source", file]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(why), "{output:?}");
        text(&output.stdout).lines().count()
    };
    assert_eq!(refused(file.to_str().unwrap(), "files read each other"), 16);
    assert_eq!(
        refused(
            "/does/not/exist",
            "cannot read commands from /does/not/exist"
        ),
        0
    );
    let output = vm(dir.path()).args(["alias", "a", "ps"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_prompt_begins_with_the_start_up_file() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        assert!(daemon.frame().is_none());
    });
    let file = dir.path().join("rc");
    std::fs::write(&file, "alias bye quit\nfrobnicate\n").unwrap();
    let (ours, theirs) = terminal();
    let mut console = vm_with(&theirs, dir.path(), &[], &file);
    let mut screen = Screen::new(ours);
    screen.wait_for("unrecognized subcommand");
    screen.wait_for("vm> ");
    screen.type_keys("bye\r");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
}
