//! Source files of the workspace, as text.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use quote::ToTokens;
use syn::{Attribute, ImplItem, Item, Meta};

/// One source file: its path from the workspace's folder, and its text.
pub struct Source {
    /// The path, with `/` between folders.
    pub name: String,
    /// The file's content.
    pub text: String,
}

impl Source {
    /// A source that a test makes up.
    pub fn new(name: &str, text: &str) -> Source {
        Source {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }
}

/// The absolute path of the workspace's folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the workspace is above")
}

/// Every Rust source below `folder`, sorted by name.
pub fn below(folder: &str) -> Vec<Source> {
    let root = workspace();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry of that folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("below the root");
                found.push(Source {
                    name: name.display().to_string(),
                    text: fs::read_to_string(&path).expect("a source file"),
                });
            }
        }
    }
    assert!(!found.is_empty(), "{folder} holds sources");
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The folders of the workspace's crates.
pub const CRATES: [&str; 16] = [
    "vmlib/wire",
    "vmlib/local",
    "vmlib/store",
    "vmlib/bucket",
    "vmlib/image",
    "vmlib/endpoint",
    "vmlib/raft-build",
    "vmlib/machine",
    "vmlib/coordinator",
    "vmlib/c",
    "vmlib",
    "vmlib/python",
    "vmd",
    "console",
    "examples",
    "integration",
];

/// Every Rust source of the crate in `folder`, its tests included, but no crate below it.
pub fn of_crate(folder: &str) -> Vec<Source> {
    let inner: Vec<String> = CRATES
        .iter()
        .filter(|other| **other != folder && other.starts_with(&format!("{folder}/")))
        .map(|other| format!("{other}/"))
        .collect();
    below(folder)
        .into_iter()
        .filter(|source| !inner.iter().any(|other| source.name.starts_with(other)))
        .collect()
}

/// The lines of a source that are code, with their numbers: without comments, and without items for
/// tests only.
pub fn code(text: &str) -> Vec<(usize, &str)> {
    let for_tests = tested_lines(text);
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter(|(number, _)| !for_tests.iter().any(|lines| lines.contains(number)))
        .collect()
}

/// The lines of the items for tests only, as one range for each item.
fn tested_lines(text: &str) -> Vec<RangeInclusive<usize>> {
    let lines = |item: &dyn ToTokens| {
        let mut spans = item.to_token_stream().into_iter().map(|token| token.span());
        let first = spans.next().expect("an item has tokens");
        first.start().line..=spans.last().unwrap_or(first).end().line
    };
    let mut found = Vec::new();
    for item in &syn::parse_file(text).expect("a source that compiles").items {
        if only_for_tests(attributes(item)) {
            found.push(lines(item));
        } else if let Item::Impl(block) = item {
            let tested = block
                .items
                .iter()
                .filter(|item| only_for_tests(attributes_inside(item)));
            found.extend(tested.map(|item| lines(item)));
        }
    }
    found
}

/// Whether one of an item's attributes is `#[cfg(test)]`.
pub fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == "test")
    })
}

/// The attributes of an item of a file or of a module.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item of an `impl` block.
pub fn attributes_inside(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The lines of code that contain one of `words`.
pub fn lines_with(sources: &[Source], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for Source { name, text } in sources {
        for (number, line) in code(text) {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    found
}
