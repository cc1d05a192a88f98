//! The modules of one compiled tree of sources (a library, a program, a test), and what each of
//! its files imports from the others.
//!
//! An import is a path in code that leads to an item of another file: in a `use`, or where the item
//! is named. A path that goes through a re-export counts for the file that defines the item. A
//! `pub use` of a child's item is a re-export and no import, unless the parent's own code names the
//! item. Code that only tests have is not read.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::{Attribute, Expr, ImplItem, Item, ItemMod, Lit, Meta, UseTree, Visibility};

use crate::{
    paths::{self, NamedPath},
    sources::{Source, attributes, attributes_inside, only_for_tests},
};

/// An import of one file from another.
pub struct Import {
    /// The file that imports.
    pub from: String,
    /// The file that defines what is imported.
    pub of: String,
    /// The line of the import in `from`.
    pub line: usize,
    /// The path as it is written in `from`.
    pub path: String,
}

/// The modules below one root file.
#[derive(Default)]
pub struct Tree {
    modules: BTreeMap<Vec<String>, Module>,
}

/// One module: a file, or an inline module of one.
#[derive(Default)]
struct Module {
    file: String,
    /// Names of the items that are defined here.
    items: BTreeSet<String>,
    /// Names of the child modules.
    children: BTreeSet<String>,
    uses: Vec<Use>,
    /// All paths that the code names, apart from `use` items.
    mentions: Vec<NamedPath>,
}

/// One name that a `use` brings into a module.
#[derive(Clone)]
struct Use {
    path: NamedPath,
    /// The name in this module; none for `*`.
    name: Option<String>,
    public: bool,
}

/// The item or module to which a path leads.
enum Place {
    Module(Vec<String>),
    Item(String),
}

impl Tree {
    /// Reads the tree below the file `root`; its other files are looked for in `sources`.
    pub fn of(sources: &[Source], root: &str) -> Tree {
        let texts = sources
            .iter()
            .map(|source| (source.name.as_str(), source.text.as_str()))
            .collect();
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut tree = Tree::default();
        let reader = Reader { texts };
        reader.file(root, folder, Vec::new(), &mut tree);
        tree
    }

    /// Every import of one file of the tree from another. A module that a `use` brings in counts
    /// once, not each time that the code names it.
    pub fn imports(&self) -> Vec<Import> {
        let mut found = Vec::new();
        for (at, module) in &self.modules {
            let mut note = |path: &NamedPath, file: String| {
                if file != module.file {
                    found.push(Import {
                        from: module.file.clone(),
                        of: file,
                        line: path.line,
                        path: path.names.join("::"),
                    });
                }
            };
            let mut noted = BTreeSet::new();
            for one in module.uses.iter().filter(|one| !self.is_re_export(at, one)) {
                if let Some(Place::Item(file)) = self.place(at, &one.path.names, 0) {
                    noted.extend(one.name.as_deref());
                    note(&one.path, file);
                }
            }
            for path in &module.mentions {
                let first = path.names[0].as_str();
                if noted.contains(first) {
                    continue;
                }
                match self.place(at, &path.names, 0) {
                    Some(Place::Item(file)) => note(path, file),
                    // A `use` of a module inside of a function.
                    Some(Place::Module(of)) if ["crate", "self", "super"].contains(&first) => {
                        note(path, self.modules[&of].file.clone());
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Whether a `use` re-exports an item of a child of this module.
    fn is_re_export(&self, at: &[String], one: &Use) -> bool {
        let names: Vec<&str> = one.path.names.iter().map(String::as_str).collect();
        let first = match names.as_slice() {
            ["self", first, ..] => first,
            [first, ..] => first,
            [] => return false,
        };
        one.public && self.modules[at].children.contains(*first)
    }

    /// The place to which a path in the module `at` leads. `depth` bounds the number of re-exports
    /// on the way.
    fn place(&self, at: &[String], names: &[String], depth: usize) -> Option<Place> {
        let (first, rest) = names.split_first()?;
        match first.as_str() {
            "crate" => self.inside(&[], rest, depth),
            "self" => self.inside(at, rest, depth),
            "super" => {
                let (_, above) = at.split_last()?;
                let rest_of_supers = rest.iter().take_while(|name| *name == "super").count();
                let above = &above[..above.len().checked_sub(rest_of_supers)?];
                self.inside(above, &rest[rest_of_supers..], depth)
            }
            name if self.knows(at, name, depth) => self.inside(at, names, depth),
            _ => None,
        }
    }

    /// Whether `name` is known in the module `at`, by itself or through a `use`.
    fn knows(&self, at: &[String], name: &str, depth: usize) -> bool {
        let module = &self.modules[at];
        module.children.contains(name)
            || module.items.contains(name)
            || module
                .uses
                .iter()
                .any(|one| one.name.as_deref() == Some(name))
            || self.through_stars(at, name, depth).is_some()
    }

    /// The place to which the path `names` leads, from within the module `at`.
    fn inside(&self, at: &[String], names: &[String], depth: usize) -> Option<Place> {
        let Some((first, rest)) = names.split_first() else {
            return Some(Place::Module(at.to_vec()));
        };
        let module = self.modules.get(at)?;
        if module.children.contains(first) {
            let mut below = at.to_vec();
            below.push(first.clone());
            if self.modules.contains_key(&below) {
                return self.inside(&below, rest, depth);
            }
        }
        if module.items.contains(first) {
            return Some(Place::Item(module.file.clone()));
        }
        if depth > 8 {
            return None;
        }
        let used = module
            .uses
            .iter()
            .find(|one| one.name.as_ref() == Some(first) && one.path.names != names);
        if let Some(one) = used {
            return match self.place(at, &one.path.names, depth + 1)? {
                Place::Module(below) => self.inside(&below, rest, depth + 1),
                item => Some(item),
            };
        }
        if let Some(item) = self.through_stars(at, first, depth) {
            return Some(item);
        }
        // An item that a macro makes has no name here, so it counts as an item of this file.
        Some(Place::Item(module.file.clone()))
    }

    /// The item that a `use ...::*` of the module `at` brings under the name `name`.
    fn through_stars(&self, at: &[String], name: &str, depth: usize) -> Option<Place> {
        if depth > 8 {
            return None;
        }
        let module = &self.modules[at];
        let stars = module.uses.iter().filter(|one| one.name.is_none());
        stars
            .filter_map(|star| match self.place(at, &star.path.names, depth + 1)? {
                Place::Module(of) if of != at => Some(of),
                _ => None,
            })
            .find_map(|of| {
                let there = &self.modules[&of];
                let known = there.items.contains(name)
                    || there.children.contains(name)
                    || there
                        .uses
                        .iter()
                        .any(|one| one.name.as_deref() == Some(name));
                if known {
                    self.inside(&of, &[name.to_owned()], depth + 1)
                } else {
                    self.through_stars(&of, name, depth + 1)
                }
            })
    }
}

/// Reads the files of a tree.
struct Reader<'a> {
    texts: BTreeMap<&'a str, &'a str>,
}

impl Reader<'_> {
    /// Reads `file`, which is the module `at`; its children's files are in `folder`.
    fn file(&self, file: &str, folder: &str, at: Vec<String>, tree: &mut Tree) {
        let text = self.texts[file];
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.items(&parsed.items, file, folder, at, tree);
    }

    fn items(&self, items: &[Item], file: &str, folder: &str, at: Vec<String>, tree: &mut Tree) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        for item in items {
            if only_for_tests(attributes(item)) {
                continue;
            }
            module.note(item);
            if let Item::Mod(child) = item {
                let mut below = at.clone();
                below.push(child.ident.to_string());
                self.child(child, file, folder, below, tree);
            }
        }
        // If the target selects one of two files for a module, the first file stands for both.
        tree.modules.entry(at).or_insert(module);
    }

    fn child(&self, child: &ItemMod, file: &str, folder: &str, at: Vec<String>, tree: &mut Tree) {
        let name = child.ident.to_string();
        let folder_below = format!("{folder}/{name}");
        if let Some((_, items)) = &child.content {
            return self.items(items, file, &folder_below, at, tree);
        }
        if let Some(path) = path_attribute(&child.attrs) {
            let of_file = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            let path = normal(&format!("{of_file}/{path}"));
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            return self.file(&path, folder, at, tree);
        }
        let in_folder = format!("{folder_below}/mod.rs");
        let beside = format!("{folder_below}.rs");
        let found = [in_folder, beside]
            .into_iter()
            .find(|file| self.texts.contains_key(file.as_str()))
            .unwrap_or_else(|| panic!("{file} declares {name}, which has no file"));
        self.file(&found, &folder_below, at, tree);
    }
}

impl Module {
    fn note(&mut self, item: &Item) {
        let name = match item {
            Item::Use(item) => {
                let public = !matches!(item.vis, Visibility::Inherited);
                // `use ::name` names another crate.
                if item.leading_colon.is_none() {
                    self.uses_of(&item.tree, Vec::new(), public);
                }
                return;
            }
            Item::Mod(item) => {
                self.children.insert(item.ident.to_string());
                return;
            }
            Item::Impl(block) => {
                self.mentions.extend(mentions_of_impl(block));
                return;
            }
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.items.extend(name.map(ToString::to_string));
        self.mentions.extend(paths::of(item.to_token_stream()));
    }

    fn uses_of(&mut self, tree: &UseTree, mut names: Vec<String>, public: bool) {
        let (ident, name) = match tree {
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.uses_of(tree, names.clone(), public);
                }
                return;
            }
            UseTree::Path(path) => {
                names.push(path.ident.to_string());
                return self.uses_of(&path.tree, names, public);
            }
            UseTree::Glob(star) => {
                let line = star.star_token.spans[0].start().line;
                let path = NamedPath { names, line };
                self.uses.push(Use {
                    path,
                    name: None,
                    public,
                });
                return;
            }
            UseTree::Name(one) => (&one.ident, &one.ident),
            UseTree::Rename(one) => (&one.ident, &one.rename),
        };
        let line = ident.span().start().line;
        let mut name = name.to_string();
        if ident != "self" {
            names.push(ident.to_string());
        } else if name == "self" {
            name = names.last().cloned().unwrap_or_default();
        }
        self.uses.push(Use {
            path: NamedPath { names, line },
            name: Some(name),
            public,
        });
    }
}

/// The paths in an `impl` block, without those of its items for tests only.
fn mentions_of_impl(block: &syn::ItemImpl) -> Vec<NamedPath> {
    let mut block = block.clone();
    block
        .items
        .retain(|item: &ImplItem| !only_for_tests(attributes_inside(item)));
    paths::of(block.to_token_stream())
}

/// The value of `#[path = "..."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            Expr::Lit(value) if pair.path.is_ident("path") => match &value.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        }
    })
}

/// Removes each `..` and the folder before it from `path`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
