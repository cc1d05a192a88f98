//! The header as data: its functions with their comments, for the man pages and for the tests.

/// The header.
pub const HEADER: &str = include_str!("../include/vm.h");

/// A function that the header declares, with its comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The name of the function.
    pub name: String,
    /// The declaration, on one line, without `;`.
    pub declaration: String,
    /// What the function does, in a few words.
    pub summary: String,
    /// The paragraphs between the summary and the errors.
    pub text: Vec<String>,
    /// The errors that are its own.
    pub errors: Option<String>,
}

/// The functions of a header, in its order. Each comment begins with `/* name - summary`, has paragraphs, the
/// last of them `Errors: ...`, and ends right before the declaration.
pub fn functions(header: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("/*") {
        let _ = before;
        let Some((comment, behind)) = after.split_once("*/") else {
            break;
        };
        rest = behind;
        if let Some(declaration) = declaration(behind) {
            functions.push(function(comment, declaration));
        }
    }
    functions
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

fn function(comment: &str, declaration: String) -> Function {
    let head = declaration.split('(').next().unwrap_or_default();
    let name = head
        .rsplit([' ', '*'])
        .next()
        .unwrap_or_default()
        .to_owned();
    let lines: Vec<&str> = comment
        .lines()
        .map(|line| line.trim().trim_start_matches('*').trim())
        .collect();
    let mut paragraphs: Vec<String> = lines
        .split(|line| line.is_empty())
        .map(|lines| lines.join(" "))
        .filter(|text| !text.is_empty())
        .collect();
    let errors = paragraphs
        .pop_if(|last| last.starts_with("Errors: "))
        .map(|text| text["Errors: ".len()..].to_owned());
    let head = if paragraphs.is_empty() {
        String::new()
    } else {
        paragraphs.remove(0)
    };
    let summary = head.strip_prefix(&format!("{name} - ")).unwrap_or_default();
    Function {
        name,
        declaration,
        summary: summary.to_owned(),
        text: paragraphs,
        errors,
    }
}
