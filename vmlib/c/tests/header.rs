//! The header and the functions are the same interface: each declared function is exported, with arguments
//! of the same kinds, and the other way round; each comment says what the function does and its errors.

use std::{collections::BTreeMap, fs, path::Path};
use vm::header::{Function, HEADER, functions};

/// A signature: the types of the arguments, and that of the result.
type Signature = (Vec<String>, String);

/// The type of Rust that stands for a type of C; the table of the border.
fn rust_type(c_type: &str) -> String {
    let handle = |name: &str| {
        let of = match name {
            "vm_task" => "Task",
            "vm_message" => "Message",
            "vm_spawn" => "Description",
            "vm_request" => "Request",
            "vm_group" => "Membership",
            "vm_blocks" => "Blocks",
            _ => return None,
        };
        Some(format!("Handle<{of}>"))
    };
    let value = |name: &str| {
        Some(match name {
            "int" | "vm_type" | "vm_op" => "c_int",
            "int32_t" => "i32",
            "uint32_t" => "u32",
            "int64_t" => "i64",
            "vm_tid" => "u64",
            "size_t" => "usize",
            "char" => "c_char",
            "void" => "c_void",
            "vm_envelope" => "Envelope",
            "vm_event" => "Event",
            "vm_host_info" => "HostInfo",
            "vm_member" => "Member",
            "vm_move_report" => "MoveReport",
            "vm_drain_report" => "DrainReport",
            "vm_checkpoint_report" => "CheckpointReport",
            "vm_function" => "Function",
            "vm_question" => "Question",
            "vm_before_save" => "Before",
            "vm_after_save" => "After",
            _ => return None,
        })
    };
    let stars = c_type.matches('*').count();
    let is_const = c_type.starts_with("const ");
    let name = c_type.trim_start_matches("const ");
    let name = name.split(['*', ' ']).next().unwrap_or_default();
    match (handle(name), value(name), stars, is_const) {
        (Some(handle), _, 1, _) => handle,
        (Some(handle), _, 2, false) => format!("&{handle}"),
        (None, Some(value), 0, false) => value.to_owned(),
        (None, Some("c_char"), 1, true) => "Text".to_owned(),
        (None, Some("c_char"), 2, true) => "In<Text>".to_owned(),
        (None, Some("c_void"), 2, true) => "&*const c_void".to_owned(),
        (None, Some(value), 1, true) => format!("In<{value}>"),
        (None, Some(value), 1, false) => format!("&{value}"),
        _ => panic!("no type of the border stands for {c_type}"),
    }
}

/// The declared signature, in types of Rust. `&T` stands for both `Out<T>` and `Room<T>`.
fn declared(function: &Function) -> Signature {
    let (head, rest) = function.declaration.split_once('(').expect("a function");
    let arguments = rest.trim_end_matches(')');
    let argument = |text: &str| {
        let end = text.rfind([' ', '*']).expect("a type and a name");
        rust_type(text[..=end].trim())
    };
    let arguments = match arguments {
        "void" => Vec::new(),
        arguments => arguments.split(", ").map(argument).collect(),
    };
    let result = match head[..head.len() - function.name.len()].trim() {
        "const char *" => "*const c_char".to_owned(),
        "const void *" => "*const c_void".to_owned(),
        value => rust_type(value),
    };
    (arguments, result)
}

/// The exported functions of the sources, with their signatures.
fn exported() -> BTreeMap<String, Signature> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("a source").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for part in text
            .split("#[unsafe(no_mangle)]\npub extern \"C\" fn ")
            .skip(1)
        {
            let (name, rest) = part.split_once('(').expect("a function");
            let (arguments, rest) = rest.split_once(") -> ").expect("a function");
            let result = rest.split(" {").next().expect("a function");
            let arguments: String = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
            let types = arguments
                .replace("r#type", "type")
                .split(": ")
                .skip(1)
                .map(normal)
                .collect();
            found.insert(name.to_owned(), (types, result.to_owned()));
        }
    }
    found
}

/// A type as it stands in a list of arguments, without lifetimes; behind it is the name of the next one.
fn normal(text: &str) -> String {
    let text = text.replace("'_, ", "").replace("<'_>", "");
    let end = text.find(", ").unwrap_or(text.len());
    let name = text[..end].trim_end_matches(',').to_owned();
    for place in ["Out<", "Room<"] {
        if let Some(inside) = name.strip_prefix(place) {
            return format!("&{}", &inside[..inside.len() - 1]);
        }
    }
    match name.as_str() {
        "*mut c_void" => "&c_void".to_owned(),
        _ => name,
    }
}

#[test]
fn the_header_declares_exactly_the_exported_functions() {
    let exported = exported();
    let declared: BTreeMap<String, Signature> = functions(HEADER)
        .iter()
        .map(|function| (function.name.clone(), declared(function)))
        .collect();
    for (name, signature) in &declared {
        assert_eq!(
            exported.get(name),
            Some(signature),
            "{name}: exported, declared"
        );
    }
    for name in exported.keys() {
        assert!(
            declared.contains_key(name),
            "{name} is exported and not declared"
        );
    }
    assert!(declared.len() > 90, "{}", declared.len());
}

#[test]
fn every_function_has_a_comment_with_its_name_and_its_errors() {
    for function in functions(HEADER) {
        assert!(
            !function.summary.is_empty(),
            "{}: /* name - summary",
            function.name
        );
        assert!(function.errors.is_some(), "{}: Errors: ...", function.name);
    }
}

#[test]
fn the_guide_names_every_function() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/c.md");
    let page = fs::read_to_string(page).expect("the page");
    for function in functions(HEADER) {
        let name = format!("`{}`", function.name);
        assert!(page.contains(&name), "{name} is not in the table of calls");
    }
}

#[test]
fn every_code_in_a_comment_is_defined() {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    for word in HEADER.split(|letter| !is_word(letter)) {
        if word.starts_with("VM_") && word != "VM_H" {
            let is_defined = HEADER.contains(&format!("#define {word} "))
                || HEADER.contains(&format!("#define {word}\n"))
                || HEADER.contains(&format!("#define {word}("))
                || HEADER.contains(&format!("{word}..."));
            assert!(is_defined, "{word}");
        }
    }
}
