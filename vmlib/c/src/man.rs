//! Manual pages (section 3), made of the comments of the header: one for each function, and `libvm` with what
//! all have in common.

use crate::header::{Function, HEADER, functions, introduction};

/// Name and content of each page.
pub fn pages() -> Vec<(String, String)> {
    let functions = functions(HEADER);
    let mut pages = vec![("libvm.3".to_owned(), overview(&functions))];
    for function in &functions {
        pages.push((format!("{}.3", function.name), page(function, &functions)));
    }
    pages
}

/// The page of one function.
fn page(function: &Function, all: &[Function]) -> String {
    let mut page = head(&function.name, &function.summary);
    page.push_str(".SH SYNOPSIS\n.nf\n.B #include <vm.h>\n.PP\n");
    for line in wrapped(&format!("{};", function.declaration)) {
        page.push_str(&format!(".B \"{}\"\n", escaped(&line)));
    }
    page.push_str(".fi\n");
    page.push_str(".SH DESCRIPTION\n");
    page.push_str(&paragraph(&sentence(&function.summary)));
    for text in &function.text {
        page.push_str(".PP\n");
        page.push_str(&paragraph(text));
    }
    if let Some(errors) = &function.errors {
        page.push_str(".SH ERRORS\n");
        page.push_str(&paragraph(&sentence(errors)));
        page.push_str(".PP\n");
        page.push_str(&paragraph("libvm(3) lists the errors of every call."));
    }
    let others = all
        .iter()
        .filter(|other| other.section == function.section && other.name != function.name)
        .map(|other| format!("{}(3)", other.name));
    let others: Vec<String> = others.chain(["libvm(3)".to_owned()]).collect();
    page.push_str(".SH SEE ALSO\n");
    page.push_str(&paragraph(&others.join(", ")));
    page
}

/// A declaration in lines that fit on a terminal.
fn wrapped(declaration: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in declaration.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= 70 => line.push_str(word),
            Some(_) => lines.push(format!("    {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// The page `libvm`: what the header says at its top, the codes, and the functions of each section.
fn overview(functions: &[Function]) -> String {
    let mut page = head("libvm", "the task library of the virtual parallel machine");
    page.push_str(".SH SYNOPSIS\n.nf\n.B #include <vm.h>\n.PP\n");
    page.push_str(".B cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs vm)\n.fi\n");
    page.push_str(".SH DESCRIPTION\n");
    let texts = introduction(HEADER);
    let texts = texts
        .iter()
        .filter(|text| !text.starts_with("Compile with"));
    let texts: Vec<String> = texts.map(|text| paragraph(text)).collect();
    page.push_str(&texts.join(".PP\n"));
    page.push_str(".SH STATUSES AND ERRORS\n");
    for (code, text) in codes(HEADER) {
        page.push_str(&format!(".TP\n.B {}\n{}", escaped(&code), paragraph(&text)));
    }
    page.push_str(".SH FUNCTIONS\n");
    let mut section = "";
    for function in functions {
        if function.section != section {
            section = &function.section;
            page.push_str(&format!(".SS {}\n", escaped(section)));
        }
        page.push_str(&format!(".TP\n.BR {} (3)\n", function.name));
        page.push_str(&paragraph(&function.summary));
    }
    page
}

/// The errors that a header defines, each with the comment behind it.
fn codes(header: &str) -> Vec<(String, String)> {
    header
        .lines()
        .filter_map(|line| line.strip_prefix("#define ")?.split_once(' '))
        .filter(|(name, _)| name.starts_with("VM_E"))
        .filter_map(|(name, rest)| {
            let text = rest.split_once("/* ")?.1.strip_suffix(" */")?;
            Some((name.to_owned(), text.to_owned()))
        })
        .filter(|(name, _)| !name.starts_with("VM_END_") && !name.starts_with("VM_EVENT_"))
        .collect()
}

fn head(name: &str, summary: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".TH {name} 3 \"\" \"libvm {version}\" \"Virtual parallel machine\"\n.SH NAME\n{name} \\- {}\n",
        escaped(summary)
    )
}

/// With a full stop, and a capital letter in front.
fn sentence(text: &str) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    let first = letters.next().unwrap_or_default();
    let is_name = text.starts_with("vm_") || text.starts_with("libvm");
    let first = if is_name {
        first
    } else {
        first.to_ascii_uppercase()
    };
    format!("{first}{}.", letters.as_str())
}

/// Text of a page, with names of the interface in bold.
fn paragraph(text: &str) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut line = String::new();
    for word in text.split_inclusive(|letter| !is_name(letter)) {
        let end = word.find(|letter| !is_name(letter)).unwrap_or(word.len());
        let (name, rest) = word.split_at(end);
        if name.starts_with("vm_") || name.starts_with("VM_") {
            line.push_str(&format!("\\fB{name}\\fR{}", escaped(rest)));
        } else {
            line.push_str(&escaped(word));
        }
    }
    // A line that begins with one of these is a command of the formatter.
    let guard = if line.starts_with(['.', '\'']) {
        "\\&"
    } else {
        ""
    };
    format!("{guard}{line}\n")
}

/// Text in which no letter is a command of the formatter.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('"', "\\(dq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_page_with_its_declaration_and_its_errors() {
        let pages = pages();
        assert_eq!(pages.len(), functions(HEADER).len() + 1);
        let (_, send) = pages.iter().find(|it| it.0 == "vm_send.3").expect("a page");
        for part in [
            ".TH vm_send 3",
            "vm_send \\- sends bytes to a task",
            ".B \"int vm_send(vm_task *vm, vm_tid to, int32_t tag, const void *data,\"",
            "\\fBVM_ETOOLONG\\fR",
            "\\fBvm_multicast\\fR(3)",
        ] {
            assert!(send.contains(part), "{part} in\n{send}");
        }
        for (name, page) in &pages {
            let unknown = page.lines().find(|line| {
                line.starts_with(['.', '\''])
                    && ![
                        ".TH", ".SH", ".SS", ".TP", ".PP", ".B ", ".BI ", ".BR ", ".nf", ".fi",
                    ]
                    .iter()
                    .any(|known| line.starts_with(known))
            });
            assert_eq!(unknown, None, "{name}");
            assert!(!page.contains(".SS \n"), "{name}");
        }
    }

    #[test]
    fn the_overview_lists_every_code_and_every_function() {
        let page = overview(&functions(HEADER));
        for (name, _, _) in crate::code::CODES {
            assert!(page.contains(&format!(".B {name}\n")), "{name}");
        }
        for function in functions(HEADER) {
            assert!(page.contains(&format!(".BR {} (3)", function.name)));
        }
        assert!(page.contains(".SS Sending\n"), "{page}");
    }
}
