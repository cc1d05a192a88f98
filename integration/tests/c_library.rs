//! The library for C, on a machine of real daemons: C programs that were compiled against the installed
//! library run, move, and go on from checkpoints as Rust programs do.

use std::{collections::BTreeSet, fs, path::Path, process::Command};
use vm_integration::cluster::{
    Cluster,
    client::{Finished, NONE_LOST},
    compiled::{Library, installed},
};
use vm_wire::agreed::ExitStatus;

const C: &[&str] = &["-std=c11", "-pedantic", "-D_POSIX_C_SOURCE=200809L"];

/// The path of a C program of this test, or of the examples.
fn c_program(source: &str) -> String {
    installed().program("cc", source, C).display().to_string()
}

#[test]
fn the_example_computes_pi_while_a_worker_moves() {
    let cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[0].client();
    console.run(&c_program("examples/c/pi.c"), &["3"]);
    let finished = console.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
    assert!(
        finished.stdout.contains("pi is 3.1415926536"),
        "{finished:?}"
    );
    assert!(finished.stdout.contains(" moved from h"), "{finished:?}");
}

#[test]
fn the_shared_library_exports_exactly_the_functions_of_the_header() {
    let prefix = installed().prefix();
    let header = fs::read_to_string(prefix.join("include/vm.h")).expect("the header");
    let is_declaration = |line: &&str| {
        line.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && !line.starts_with("typedef")
    };
    let declared = header.lines().filter(is_declaration);
    let declared = declared.filter_map(|line| {
        let (head, _) = line.split_once('(')?;
        head.rsplit([' ', '*']).next()
    });
    let declared: BTreeSet<&str> = declared.filter(|name| name.starts_with("vm_")).collect();
    let mut list = Command::new("nm");
    list.args(["--dynamic", "--defined-only", "--format=just-symbols"]);
    let list = list
        .arg(prefix.join("lib/libvm.so"))
        .output()
        .expect("nm runs");
    let list = String::from_utf8(list.stdout).expect("names");
    let exported: BTreeSet<&str> = list
        .lines()
        // Those of the images of processes have a header of their own.
        .filter(|name| name.starts_with("vm_") && !name.starts_with("vm_image_"))
        .collect();
    assert_eq!(exported, declared);
}

/// Runs a C program of this test on two hosts; its output must have this line.
fn passes(source: &str, line: &str) {
    let cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[0].client();
    let program = c_program(&format!("integration/tests/c_library/{source}"));
    console.run(&program, &[]);
    console.ends_well(line);
}

#[test]
fn every_collective_call_has_the_right_result_while_members_move() {
    passes("collectives.c", "all collective calls are right");
}

#[test]
fn requests_callbacks_and_calls_to_the_machine_have_the_right_results() {
    passes("requests.c", "all requests are right");
}

#[test]
fn threads_share_the_handles_of_a_task_that_moves() {
    passes("threads.c", "all threads are right");
}

#[test]
fn a_program_with_the_library_in_itself_moves_too() {
    let source = "examples/c/pi.c";
    let program = installed().linked(Library::Static, "cc", source, C);
    let cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[0].client();
    console.run(&program.display().to_string(), &["2"]);
    let finished = console.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
    assert!(finished.stdout.contains(" moved from h"), "{finished:?}");
}

#[test]
fn bad_input_of_every_kind_is_refused_with_words() {
    passes("bad_input.c", "all bad input is refused");
}

#[test]
fn a_cpp_program_is_a_task() {
    let cluster = Cluster::on_loopback(1);
    let options = ["-std=c++17", "-pedantic"];
    let source = "integration/tests/c_library/plus.cpp";
    let program = installed().program("c++", source, &options);
    let mut console = cluster.nodes[0].client();
    console.run(&program.display().to_string(), &[]);
    console.ends_well("there is no such task");
}

/// Runs a Fortran program on two hosts. `None`: there is no compiler here.
fn fortran(source: &str) -> Option<Finished> {
    if Command::new("gfortran").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gfortran here; see .ci/run");
        return None;
    }
    let library = installed();
    let prefix = library.prefix().display().to_string();
    let module = format!("{prefix}/include/vm.f90");
    let options = ["-std=f2018", "-J", &prefix, &module];
    let program = library.program("gfortran", source, &options);
    let cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[0].client();
    console.run(&program.display().to_string(), &[]);
    Some(console.finish())
}

#[test]
fn the_fortran_example_computes_pi_while_a_member_moves() {
    let Some(finished) = fortran("examples/fortran/pi.f90") else {
        return;
    };
    assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
    let output = &finished.stdout;
    assert!(output.contains("a member moved from h"), "{finished:?}");
    assert!(output.contains("pi is 3.14159265"), "{finished:?}");
}

#[test]
fn arguments_of_every_kind_go_from_fortran_to_the_library_and_back() {
    let Some(finished) = fortran("integration/tests/c_library/calls.f90") else {
        return;
    };
    assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
    let line = "all calls of Fortran are right";
    assert!(finished.stdout.contains(line), "{finished:?}");
}

#[test]
fn the_program_of_the_guide_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/c.md");
    let page = fs::read_to_string(page).expect("the page");
    let program = page.split("```c\n").nth(1).expect("a program");
    let program = program.split("```").next().expect("the end of the program");
    let library = installed();
    let source = library.prefix().join("guide.c");
    fs::write(&source, program).expect("a source");
    let program = library.program("cc", &source.display().to_string(), C);
    let cluster = Cluster::on_loopback(1);
    let mut console = cluster.nodes[0].client();
    console.run(&program.display().to_string(), &[]);
    console.ends_well("the answer is 42");
}

#[test]
fn c_tasks_move_and_lose_and_double_no_message() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run(
        &c_program("integration/tests/c_library/caller.c"),
        &["n2", "n3"],
    );
    run.output_until("it goes");
    let callees: Vec<_> = node.members(2).iter().map(|row| row.tid).collect();
    node.await_movable(&callees);
    for _ in 0..4 {
        callees
            .iter()
            .for_each(|tid| node.client().move_elsewhere(*tid));
    }
    run.input(b"\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn a_c_application_goes_on_from_a_checkpoint_on_other_hosts() {
    let cluster = Cluster::on_loopback(2);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let program = c_program("integration/tests/c_library/caller.c");
    let master = run.run(&program, &["n1", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    console
        .save(master, false)
        .expect("it is saved while it runs");
    console.save(master, true).expect("it is saved, and ends");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    // The input of the restarted caller ends.
    console.restart(master).expect("it is restored");
    console.ends_well(NONE_LOST);
}
