//! The paths that a piece of code names, found in its tokens, so that those inside of macros are
//! found as well.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One path that code names.
#[derive(Clone, Debug)]
pub struct NamedPath {
    /// Its names, `crate`, `self` and `super` included.
    pub names: Vec<String>,
    /// The line of its first name, or of its last where it stands in a group.
    pub line: usize,
}

/// All paths of `tokens`; names of fields and methods are none.
pub fn of(tokens: TokenStream) -> Vec<NamedPath> {
    let mut found = Vec::new();
    scan(tokens, &mut found);
    found
}

fn scan(tokens: TokenStream, found: &mut Vec<NamedPath>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => scan(group.stream(), found),
            TokenTree::Ident(name) if name == "pub" => {
                // `pub(crate)` names no path.
                if matches!(tokens.get(at + 1), Some(TokenTree::Group(group))
                    if group.delimiter() == Delimiter::Parenthesis)
                {
                    at += 1;
                }
            }
            TokenTree::Ident(_) if !continues(&tokens, at) => {
                at = path(&tokens, at, &[], found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether the name at `at` belongs to what stands before it: a field, a method, a lifetime, or a
/// path that begins with `::`, which is of another crate.
fn continues(tokens: &[TokenTree], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|index| &tokens[index]);
    let punct = |token: Option<&TokenTree>, wanted: char| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    let range = punct(before(1), '.') && punct(before(2), '.');
    (punct(before(1), '.') && !range)
        || punct(before(1), '\'')
        || (punct(before(1), ':') && punct(before(2), ':'))
}

/// Reads the path that begins at `at`, behind the names of `prefix`; returns where it ends. A group
/// at its end, as `use` has it, is read as well.
fn path(
    tokens: &[TokenTree],
    mut at: usize,
    prefix: &[String],
    found: &mut Vec<NamedPath>,
) -> usize {
    let mut names = prefix.to_vec();
    let mut line = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        if line == 0 {
            line = name.span().start().line;
        }
        names.push(name.to_string());
        let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        at += 1;
        if !(colon(at) && colon(at + 1)) {
            break;
        }
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(_)) => at += 2,
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                group_of_uses(group.stream(), &names, found);
                return at + 3;
            }
            _ => break,
        }
    }
    found.push(NamedPath { names, line });
    at
}

fn group_of_uses(tokens: TokenStream, prefix: &[String], found: &mut Vec<NamedPath>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        at = match &tokens[at] {
            TokenTree::Ident(_) => {
                let end = path(&tokens, at, prefix, found);
                // The new name after `as` is no path.
                match tokens.get(end) {
                    Some(TokenTree::Ident(word)) if word == "as" => end + 2,
                    _ => end,
                }
            }
            _ => at + 1,
        };
    }
}
