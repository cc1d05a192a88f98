//! The paths that a piece of code names. They are found in its tokens, so that paths inside of
//! macros are found, too.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One path that code names.
#[derive(Clone, Debug)]
pub struct NamedPath {
    /// Its names, `crate`, `self` and `super` included.
    pub names: Vec<String>,
    /// The line of its first name; if the path is in a group, of its last name.
    pub line: usize,
}

/// All paths of `tokens`. Names of fields and methods are not paths.
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

/// Whether the name at `at` continues the tokens before it: a field, a method, a lifetime, or a
/// path that begins with `::`, which belongs to another crate.
fn continues(tokens: &[TokenTree], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|index| &tokens[index]);
    let punct = |token: Option<&TokenTree>, wanted: char| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    let range = punct(before(1), '.') && punct(before(2), '.');
    (punct(before(1), '.') && !range)
        || punct(before(1), '\'')
        || (punct(before(1), ':') && punct(before(2), ':'))
}

/// Reads the path that begins at `at`, after the names of `prefix`. Also reads a group at its end,
/// as in a `use`. Returns the index after the path.
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
                // The new name after `as` is not a path.
                match tokens.get(end) {
                    Some(TokenTree::Ident(word)) if word == "as" => end + 2,
                    _ => end,
                }
            }
            _ => at + 1,
        };
    }
}
