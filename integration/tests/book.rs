//! The pages of `docs/` are one book, which mdBook builds: `SUMMARY.md` lists each page once, and
//! every link of these pages, the README, the CHANGELOG and CONTRIBUTING leads to a file, and to a
//! heading of that file.

use mdbook_driver::MDBook;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Pages beside the book, relative to the workspace.
const BESIDE: [&str; 3] = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All pages below a folder of the workspace, by their paths from the workspace.
fn pages_below(folder: &str) -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(workspace().join(folder)).expect("a folder of pages") {
        let entry = entry.expect("an entry of the folder");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let path = format!("{folder}/{name}");
        if entry.file_type().expect("the type of an entry").is_dir() {
            pages.extend(pages_below(&path));
        } else if path.ends_with(".md") {
            pages.insert(PathBuf::from(path));
        }
    }
    pages
}

/// The links of a page and the anchors of its headings.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(workspace().join(path)).expect("a page");
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let text = heading.take().expect("the beginning of the heading");
                    page.anchors.insert(anchor(&text));
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor of a heading, as mdBook and GitHub form it.
fn anchor(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The file that a link in the page `from` leads to, from the workspace.
fn resolve(from: &Path, file: &str) -> PathBuf {
    if file.is_empty() {
        return from.to_owned();
    }
    let mut path = from.parent().expect("a page is in a folder").to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The links that lead nowhere, and the links of the book that lead out of the book.
fn faults(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, page) in pages {
        for link in page.links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = resolve(path, file);
            let mut fault = |what: &str| faults.push(format!("{}: {link}: {what}", path.display()));
            if path.starts_with("docs") && !target.starts_with("docs") {
                fault("is not in the book");
            }
            match pages.get(&target) {
                Some(page) if !anchor.is_empty() && !page.anchors.contains(anchor) => {
                    fault("no such heading");
                }
                Some(_) => {}
                None if workspace().join(&target).exists() => {}
                None => fault("no such file"),
            }
        }
    }
    faults
}

fn all_pages() -> BTreeMap<PathBuf, Page> {
    let beside = BESIDE.iter().map(PathBuf::from);
    pages_below("docs")
        .into_iter()
        .chain(beside)
        .map(|path| {
            let page = Page::read(&path);
            (path, page)
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let faults = faults(&all_pages());
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The pages that `SUMMARY.md` lists, in its order.
fn listed_pages() -> Vec<PathBuf> {
    let summary = PathBuf::from("docs/SUMMARY.md");
    let links = Page::read(&summary).links;
    links.iter().map(|link| resolve(&summary, link)).collect()
}

#[test]
fn mdbook_builds_every_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut book = MDBook::load(workspace().join("docs")).expect("a book");
    book.config.build.build_dir = folder.path().to_owned();
    book.build().expect("mdBook builds the book");
    for page in listed_pages() {
        let page = page.strip_prefix("docs").expect("a page of the book");
        let html = folder.path().join(page).with_extension("html");
        let html = fs::read_to_string(&html).unwrap_or_else(|error| panic!("{page:?}: {error}"));
        for anchor in Page::read(&Path::new("docs").join(page)).anchors {
            let id = format!("id=\"{anchor}\"");
            assert!(
                html.contains(&id),
                "{page:?}: mdBook forms no anchor '{anchor}'"
            );
        }
    }
}

#[test]
fn the_summary_lists_every_page_of_the_book_once() {
    let summary = PathBuf::from("docs/SUMMARY.md");
    let listed = listed_pages();
    let unique: BTreeSet<PathBuf> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "a page is listed twice");
    let mut pages = pages_below("docs");
    pages.remove(&summary);
    assert_eq!(unique, pages);
}

#[test]
fn a_link_to_a_missing_file_or_heading_or_out_of_the_book_is_found() {
    let page = Page::parse(
        "# One `two`\n\n[a](#one-two) [b](#three) [c](none.md) [d](../README.md) `[e](f.md)`\n",
    );
    let pages = BTreeMap::from([(PathBuf::from("docs/page.md"), page)]);
    assert_eq!(
        faults(&pages),
        [
            "docs/page.md: #three: no such heading",
            "docs/page.md: none.md: no such file",
            "docs/page.md: ../README.md: is not in the book",
        ]
    );
}
