//! Sizes of files and functions, in lines, including comments and blank lines.

use proc_macro2::Span;
use syn::{
    ImplItemFn, ItemFn, TraitItemFn,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::sources::Source;

/// One function and its size.
pub struct Function {
    /// The file that has it.
    pub file: String,
    /// Its name, without the type that it belongs to.
    pub name: String,
    /// From `fn` (or its attributes' end) to the closing brace.
    pub lines: usize,
}

/// Every function of `sources` that has more than `lines_max` lines.
pub fn long_functions(sources: &[Source], lines_max: usize) -> Vec<Function> {
    let mut found = Vec::new();
    for source in sources {
        let parsed = syn::parse_file(&source.text)
            .unwrap_or_else(|error| panic!("{}: {error}", source.name));
        let mut reader = Reader {
            file: &source.name,
            found: Vec::new(),
        };
        reader.visit_file(&parsed);
        found.extend(reader.found);
    }
    found.retain(|function| function.lines > lines_max);
    found
}

/// Every file of `sources` that has more than `lines_max` lines, with its number of lines.
pub fn long_files(sources: &[Source], lines_max: usize) -> Vec<(String, usize)> {
    sources
        .iter()
        .map(|source| (source.name.clone(), source.text.lines().count()))
        .filter(|(_, lines)| *lines > lines_max)
        .collect()
}

struct Reader<'a> {
    file: &'a str,
    found: Vec<Function>,
}

impl Reader<'_> {
    fn note(&mut self, name: &syn::Ident, first: Span, last: Span) {
        self.found.push(Function {
            file: self.file.to_owned(),
            name: name.to_string(),
            lines: last.end().line + 1 - first.start().line,
        });
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.note(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.note(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a TraitItemFn) {
        if let Some(block) = &item.default {
            self.note(&item.sig.ident, item.sig.span(), block.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}
