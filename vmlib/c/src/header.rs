//! The header as data: its functions with their comments, for the man pages and for the tests.

/// The header.
pub const HEADER: &str = include_str!("../include/vm.h");

/// A function that the header declares, with its comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The name of the function.
    pub name: String,
    /// The title of the section in which it stands.
    pub section: String,
    /// The declaration, on one line, without `;`.
    pub declaration: String,
    /// The purpose of the function, in a few words.
    pub summary: String,
    /// The paragraphs between the summary and the errors.
    pub text: Vec<String>,
    /// The errors that are its own.
    pub errors: Option<String>,
}

/// The functions of a header, in its order. Each comment begins with `/* name - summary`, has paragraphs, the
/// last of them `Errors: ...`, and ends right before the declaration. A comment before an empty line begins a
/// section: its first line is the title.
pub fn functions(header: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut section = String::new();
    let mut rest = header;
    while let Some((_, after)) = rest.split_once("/*") {
        let Some((comment, behind)) = after.split_once("*/") else {
            break;
        };
        rest = behind;
        if behind.starts_with("\n\n") {
            section = comment.lines().next().unwrap_or_default().trim().to_owned();
        } else if let Some(declaration) = declaration(behind) {
            functions.push(function(comment, declaration, &section));
        }
    }
    functions
}

/// The paragraphs at the top of a header, without the one that names the file.
pub fn introduction(header: &str) -> Vec<String> {
    let comment = header.strip_prefix("/*").and_then(|it| it.split_once("*/"));
    let paragraphs = paragraphs(comment.map_or("", |(comment, _)| comment));
    paragraphs.into_iter().skip(1).collect()
}

/// The declaration of a function that follows a comment directly.
fn declaration(behind: &str) -> Option<String> {
    let code = behind.strip_prefix('\n')?;
    let (code, _) = code.split_once(';')?;
    let is_function = code.contains("vm_")
        && code.ends_with(')')
        && !code.starts_with(['#', '\n'])
        && !code.contains(['{', '/'])
        && !code.starts_with("typedef");
    is_function.then(|| code.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn function(comment: &str, declaration: String, section: &str) -> Function {
    let head = declaration.split('(').next().unwrap_or_default();
    let name = head.rsplit([' ', '*']).next().unwrap_or_default();
    let mut paragraphs = paragraphs(comment);
    let errors = paragraphs
        .pop_if(|last| last.starts_with("Errors: "))
        .map(|text| text["Errors: ".len()..].to_owned());
    let mut paragraphs = paragraphs.into_iter();
    let first = paragraphs.next().unwrap_or_default();
    let summary = first.strip_prefix(&format!("{name} - "));
    Function {
        name: name.to_owned(),
        section: section.to_owned(),
        summary: summary.unwrap_or_default().to_owned(),
        declaration,
        text: paragraphs.collect(),
        errors,
    }
}

/// The paragraphs of a comment.
fn paragraphs(comment: &str) -> Vec<String> {
    let lines: Vec<&str> = comment
        .lines()
        .map(|line| line.trim().trim_start_matches('*').trim())
        .collect();
    lines
        .split(|line| line.is_empty())
        .map(|lines| lines.join(" "))
        .filter(|text| !text.is_empty())
        .collect()
}
