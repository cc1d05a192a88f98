//! Circles of imports: sets of files each of which imports every other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    modules::{Import, Tree},
    sources::Source,
};

/// The root files of a crate's trees: its library, its programs, its tests.
pub fn roots(sources: &[Source], folder: &str) -> Vec<String> {
    let is_root = |name: &str| {
        let Some(inside) = name.strip_prefix(&format!("{folder}/")) else {
            return false;
        };
        match inside.split('/').collect::<Vec<_>>().as_slice() {
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
            ["src", "bin", _, "main.rs"] | ["tests", _, "main.rs"] => true,
            ["src", "bin", file] | ["tests", file] => file.ends_with(".rs"),
            ["restorer", "main.rs"] => true,
            _ => false,
        }
    };
    let names = sources.iter().map(|source| source.name.clone());
    names.filter(|name| is_root(name)).collect()
}

/// The circles of `tree`: for each, the imports of its files from each other.
pub fn of(tree: &Tree) -> Vec<String> {
    let imports = tree.imports();
    let mut direct: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in &imports {
        direct
            .entry(&import.from)
            .or_default()
            .insert(import.of.as_str());
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = direct
        .keys()
        .map(|file| (*file, reach(&direct, file)))
        .collect();
    let mutual = |one: &str, other: &str| reached[one].contains(other);
    let mut told = BTreeSet::new();
    let mut circles = Vec::new();
    for file in reached.keys() {
        if told.contains(file) || !mutual(file, file) {
            continue;
        }
        let members: BTreeSet<&str> = reached
            .keys()
            .filter(|other| mutual(file, other) && mutual(other, file))
            .copied()
            .collect();
        circles.push(message(&members, &imports));
        told.extend(members);
    }
    circles
}

/// All files that `from` reaches by imports.
fn reach<'a>(direct: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for of in direct.get(file).into_iter().flatten() {
            if reached.insert(*of) {
                open.push(of);
            }
        }
    }
    reached
}

fn message(members: &BTreeSet<&str>, imports: &[Import]) -> String {
    let mut paths: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for import in imports {
        let (from, of) = (import.from.as_str(), import.of.as_str());
        if members.contains(from) && members.contains(of) {
            let lines = paths.entry((from, of)).or_default();
            lines.entry(&import.path).or_insert(import.line);
        }
    }
    let mut text = format!("a circle of {} files:", members.len());
    for ((from, of), lines) in paths {
        let paths: Vec<String> = lines
            .iter()
            .map(|(path, line)| format!("{path} (line {line})"))
            .collect();
        text += &format!("\n  {from} -> {of}: {}", paths.join(", "));
    }
    text
}

/// The imports of one subsystem from another: each folder directly below `home` is a subsystem.
pub fn between_siblings(tree: &Tree, home: &str) -> Vec<String> {
    let subsystem = |file: &str| {
        let (folder, _) = file.strip_prefix(home)?.split_once('/')?;
        Some(folder.to_owned())
    };
    let is_between = |import: &Import| match (subsystem(&import.from), subsystem(&import.of)) {
        (Some(from), Some(of)) => from != of,
        _ => false,
    };
    let imports = tree.imports();
    let between = imports.iter().filter(|import| is_between(import));
    between
        .map(|import| format!("{}:{}: {}", import.from, import.line, import.path))
        .collect()
}
