//! Each check of the structure fires on a small made-up source that is wrong, and does not fire on
//! one that is right.

use super::{
    RANDOM_ORDER, SUBSYSTEMS, circles, crates_in,
    modules::Tree,
    sizes,
    sources::{Source, code, lines_with},
    unsafe_elsewhere,
};

/// The circles of a crate of these files, the first of which is its root.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(name, text)| Source::new(name, text))
        .collect();
    circles::of(&Tree::of(&sources, files[0].0))
}

#[test]
fn a_table_of_random_order_is_found_in_code_only() {
    let wrong = Source::new(
        "a.rs",
        "use std::collections::HashMap;\nfn keys(map: &HashMap<u8, u8>) -> usize {\n    map.keys().len()\n}\n",
    );
    assert_eq!(
        lines_with(&[wrong], RANDOM_ORDER),
        [
            "a.rs:1: use std::collections::HashMap;",
            "a.rs:2: fn keys(map: &HashMap<u8, u8>) -> usize {"
        ]
    );
    let right = Source::new("a.rs", "// No HashMap.\nuse std::collections::BTreeMap;\n");
    assert!(lines_with(&[right], RANDOM_ORDER).is_empty());
}

#[test]
fn code_behind_an_item_of_the_tests_is_still_code() {
    let text = "#[cfg(test)]\nmod tests;\n\nuse std::net;\n";
    assert_eq!(code(text), [(3, ""), (4, "use std::net;")]);
    let text = "struct A;\nimpl A {\n    #[cfg(test)]\n    fn f() {\n    }\n    fn g() {}\n}\n";
    let lines: Vec<usize> = code(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 2, 6, 7]);
}

#[test]
fn unsafe_code_is_found_outside_of_its_homes() {
    let text = "fn f() {\n    unsafe { g() }\n}\n";
    let sources = [
        Source::new("vmd/src/main.rs", text),
        Source::new("vmlib/image/src/stop.rs", text),
    ];
    assert_eq!(
        unsafe_elsewhere(&sources),
        ["vmd/src/main.rs:2: unsafe { g() }"]
    );
}

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let found = circles_of(&[
        ("c/src/lib.rs", "mod a;\nmod b;\n"),
        ("c/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
        (
            "c/src/b.rs",
            "pub struct B;\nfn f() {\n    debug!(\"{:?}\", super::a::A);\n}\n",
        ),
    ]);
    assert_eq!(
        found,
        ["a circle of 2 files:\n  \
          c/src/a.rs -> c/src/b.rs: crate::b::B (line 1)\n  \
          c/src/b.rs -> c/src/a.rs: super::a::A (line 3)"]
    );
}

#[test]
fn a_circle_through_a_third_file_and_through_groups_is_found() {
    let found = circles_of(&[
        ("c/src/main.rs", "mod a;\nmod b;\nmod d;\nfn main() {}\n"),
        (
            "c/src/a.rs",
            "use crate::{b::{self, B as C}};\npub fn f() { b::g(); }\n",
        ),
        (
            "c/src/b.rs",
            "pub fn g() {\n    use super::{d};\n    d::h();\n}\npub struct B;\n",
        ),
        ("c/src/d/mod.rs", "pub fn h() { crate::a::f(); }\n"),
    ]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("a circle of 3 files:"), "{}", found[0]);
}

#[test]
fn a_parent_that_only_hands_on_what_its_children_define_is_in_no_circle() {
    let parent =
        "mod a;\nmod b;\npub use a::{A, made};\npub(crate) use self::b::*;\npub struct Limit;\n";
    let a = (
        "c/src/a.rs",
        "use crate::{B, Limit};\npub struct A(B, Limit);\npub fn made() {}\n",
    );
    let b = ("c/src/b.rs", "pub struct B;\n");
    assert_eq!(circles_of(&[("c/src/lib.rs", parent), a, b]), [""; 0]);

    // The parent's own code names what a child defines, and the child what the parent defines.
    let parent = format!("{parent}pub fn f() {{ made(); }}\n");
    assert_eq!(
        circles_of(&[("c/src/lib.rs", &parent), a, b]),
        ["a circle of 2 files:\n  \
          c/src/a.rs -> c/src/lib.rs: crate::Limit (line 1)\n  \
          c/src/lib.rs -> c/src/a.rs: made (line 6)"]
    );
}

#[test]
fn siblings_that_import_each_other_through_their_parent_are_a_circle() {
    let found = circles_of(&[
        (
            "c/src/lib.rs",
            "mod a;\nmod b;\npub use a::A;\npub use b::B;\n",
        ),
        (
            "c/src/a.rs",
            "use super::*;\npub struct A;\nfn f(_: B) {}\n",
        ),
        ("c/src/b.rs", "use crate::A;\npub struct B(A);\n"),
    ]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("a circle of 2 files:"), "{}", found[0]);
}

#[test]
fn what_only_tests_import_makes_no_circle() {
    let found = circles_of(&[
        ("c/src/lib.rs", "mod a;\nmod b;\n"),
        ("c/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
        (
            "c/src/b.rs",
            "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\nimpl B {\n    #[cfg(test)]\n    fn of(_: crate::a::A) {}\n}\n",
        ),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_subsystem_that_reaches_for_another_is_found() {
    let daemon = |inside: &str| format!("{SUBSYSTEMS}{inside}");
    let sources = [
        Source::new("vmlib/machine/src/lib.rs", "pub mod daemon;\n"),
        Source::new(
            &daemon("mod.rs"),
            "mod checkpoint;\nmod console;\nmod context;\nmod settle;\n",
        ),
        Source::new(&daemon("context.rs"), "pub struct Context;\n"),
        Source::new(
            &daemon("settle.rs"),
            "fn settle() { super::console::show(); super::checkpoint::cut::begin(); }\n",
        ),
        Source::new(
            &daemon("console/mod.rs"),
            "use crate::daemon::{context::Context};\npub fn show(_: &mut Context) {\n    super::checkpoint::begin();\n}\n",
        ),
        Source::new(
            &daemon("checkpoint/mod.rs"),
            "mod cut;\npub use cut::begin;\n",
        ),
        Source::new(
            &daemon("checkpoint/cut.rs"),
            "use super::super::console;\npub fn begin() {\n    console::show();\n}\n",
        ),
    ];
    let mut found =
        circles::between_siblings(&Tree::of(&sources, "vmlib/machine/src/lib.rs"), SUBSYSTEMS);
    found.sort();
    assert_eq!(
        found,
        [
            "vmlib/machine/src/daemon/checkpoint/cut.rs:3: console::show",
            "vmlib/machine/src/daemon/console/mod.rs:3: super::checkpoint::begin"
        ]
    );
}

#[test]
fn functions_and_files_above_their_limit_are_found() {
    let text = "/// Text.\nfn short() {\n}\n\nimpl A {\n    fn long() {\n        f();\n        g();\n    }\n}\n";
    let sources = [Source::new("a.rs", text)];
    let found = sizes::long_functions(&sources, 3);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (
            found[0].file.as_str(),
            found[0].name.as_str(),
            found[0].lines
        ),
        ("a.rs", "long", 4)
    );
    assert_eq!(sizes::long_files(&sources, 9), [("a.rs".to_owned(), 10)]);
    assert!(sizes::long_files(&sources, 10).is_empty());
}

#[test]
fn a_crate_that_a_tree_lists_again_counts_once() {
    let tree = "vmlib v0.1.0\nbytes v1.12.1\nserde v1.0.0\n\nbytes v1.12.1 (*)\nserde v2.0.0\n";
    let crates: Vec<&str> = crates_in(tree).into_iter().collect();
    assert_eq!(
        crates,
        [
            "bytes v1.12.1",
            "serde v1.0.0",
            "serde v2.0.0",
            "vmlib v0.1.0"
        ]
    );
}
