//! The Fortran module, made of the header: constants, types and interfaces of all functions.
//!
//! `fortran/vm.f90` is what this writes; a test compares the two.

use crate::header::{Function, HEADER, functions};

/// Arguments that a Fortran program may leave out: the function gets NULL.
const OPTIONAL: &[&str] = &["report", "envelope", "started"];

/// The functions whose message, or messages, the program may not want.
const REQUESTS: &[&str] = &["vm_test", "vm_wait", "vm_wait_any", "vm_wait_all"];

/// Arguments that are arrays, by name.
const ARRAYS: &[&str] = &[
    "tids",
    "to",
    "hosts",
    "members",
    "instances",
    "counts",
    "requests",
    "messages",
];

/// The module.
pub fn module() -> String {
    let mut module = include_str!("fortran/begin.f90").to_owned();
    for (name, value) in constants(HEADER) {
        module.push_str(&format!(
            "  {}, parameter, public :: {name} = {}\n",
            value.0, value.1
        ));
    }
    for structure in structures(HEADER) {
        module.push_str(&structure);
    }
    module.push_str("\n  interface\n");
    for function in functions(HEADER) {
        module.push_str(&interface(&function));
    }
    module.push_str("  end interface\n");
    module.push_str(include_str!("fortran/end.f90"));
    module
}

/// The constants of the header: name, type and value.
fn constants(header: &str) -> Vec<(String, (&'static str, String))> {
    let defined = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define VM_")?.split_once(' '));
    defined
        // A macro with arguments is no constant.
        .filter(|(name, _)| !name.contains('('))
        .map(|(name, rest)| {
            let value = rest.split("/*").next().unwrap_or_default().trim();
            let typed = match value {
                "UINT64_MAX" => ("integer(c_int64_t)", "-1_c_int64_t".to_owned()),
                "((vm_tid)0)" => ("integer(c_int64_t)", "0_c_int64_t".to_owned()),
                "INT32_MIN" => ("integer(c_int32_t)", "-huge(0_c_int32_t) - 1".to_owned()),
                "(-1)" if name == "FOREVER" => ("integer(c_int64_t)", "-1_c_int64_t".to_owned()),
                value => {
                    let number = value.trim_start_matches('(').trim_end_matches(')');
                    ("integer(c_int)", number.to_owned())
                }
            };
            (format!("VM_{name}"), typed)
        })
        .collect()
}

/// The type of Fortran for a field or an argument that is no address.
fn value_type(c_type: &str) -> &'static str {
    match c_type {
        "int" => "integer(c_int)",
        "int32_t" | "uint32_t" | "vm_type" | "vm_op" => "integer(c_int32_t)",
        "int64_t" | "uint64_t" | "vm_tid" => "integer(c_int64_t)",
        "size_t" => "integer(c_size_t)",
        "char" => "character(kind=c_char)",
        "vm_function" | "vm_question" | "vm_before_save" | "vm_after_save" => "type(c_funptr)",
        other => panic!("no type of Fortran stands for {other}"),
    }
}

/// The structures of the header as types.
fn structures(header: &str) -> Vec<String> {
    let parts = header.split("typedef struct ").skip(1);
    parts
        .filter_map(|part| part.split_once(" {\n"))
        .filter(|(name, _)| !name.contains(';'))
        .map(|(name, rest)| {
            let mut text = format!("\n  type, bind(C), public :: {name}\n");
            let fields = rest.split("\n}").next().unwrap_or_default();
            for line in fields.lines() {
                let (field, comment) = line.split_once(';').expect("a field");
                let (c_type, field) = field.trim().split_once(' ').expect("a field");
                let comment = comment
                    .trim()
                    .trim_start_matches("/*")
                    .trim_end_matches("*/");
                text.push_str(&format!("    !{}\n", comment.trim_end()));
                let (field, size) = match field.split_once('[') {
                    Some((field, size)) => (field, format!("({}", size.replace(']', ")"))),
                    None => (field, String::new()),
                };
                text.push_str(&format!("    {} :: {field}{size}\n", value_type(c_type)));
            }
            text + &format!("  end type {name}\n")
        })
        .collect()
}

/// The interface of one function.
fn interface(function: &Function) -> String {
    let (head, arguments) = function.declaration.split_once('(').expect("a function");
    let arguments = match arguments.trim_end_matches(')') {
        "void" => Vec::new(),
        arguments => arguments.split(", ").map(split).collect(),
    };
    let names: Vec<&str> = arguments.iter().map(|(_, name)| renamed(name)).collect();
    let name = &function.name;
    let result = match head[..head.len() - name.len()].trim() {
        address if address.ends_with('*') => "type(c_ptr)",
        value => value_type(value),
    };
    let mut text = format!("\n    ! {name} - {}\n", function.summary);
    text.push_str(&format!("    function {name}({}) &\n", names.join(", ")));
    text.push_str(&format!(
        "        result(returned) bind(C, name=\"{name}\")\n      import\n"
    ));
    for ((c_type, argument), name) in arguments.iter().zip(names) {
        let fortran = argument_type(function, c_type, argument);
        let dimension = match is_array(c_type, argument) {
            true => "(*)",
            false => "",
        };
        text.push_str(&format!("      {fortran} :: {name}{dimension}\n"));
    }
    text + &format!("      {result} :: returned\n    end function {name}\n")
}

/// Type and name of an argument.
fn split(text: &str) -> (&str, &str) {
    let end = text.rfind([' ', '*']).expect("a type and a name") + 1;
    (text[..end].trim(), &text[end..])
}

/// The name of an argument; words of the language would confuse readers.
fn renamed(name: &str) -> &str {
    match name {
        "type" => "numbers",
        "function" => "operation",
        "result" => "results",
        "data" => "bytes",
        name => name,
    }
}

fn is_array(c_type: &str, name: &str) -> bool {
    let is_memory = matches!(
        c_type,
        "const void *" | "void *" | "const char *" | "char *"
    );
    is_memory && name != "context" || c_type.ends_with('*') && ARRAYS.contains(&name)
}

/// Type, attributes and intent of an argument.
fn argument_type(function: &Function, c_type: &str, name: &str) -> String {
    let is_handle = |c_type: &str| {
        let names = [
            "vm_task",
            "vm_message",
            "vm_spawn",
            "vm_request",
            "vm_group",
            "vm_blocks",
        ];
        let name = c_type.trim_start_matches("const ");
        names
            .iter()
            .any(|it| name.strip_prefix(it).is_some_and(|rest| rest.trim() == "*"))
    };
    let of_requests = REQUESTS.contains(&function.name.as_str()) && name.starts_with("message");
    let host = function.name == "vm_move" && name == "host";
    let optional = match OPTIONAL.contains(&name) || of_requests || host {
        true => ", optional",
        false => "",
    };
    match c_type {
        "const void *" => "type(*), intent(in)".to_owned(),
        "void *" if name == "context" => "type(c_ptr), value".to_owned(),
        "void *" => "type(*), intent(inout)".to_owned(),
        "const char *" => format!("character(kind=c_char), intent(in){optional}"),
        "char *" => "character(kind=c_char), intent(inout)".to_owned(),
        "const char *const *" => "type(c_ptr), value".to_owned(),
        "const void **" => "type(c_ptr), intent(out)".to_owned(),
        handle if is_handle(handle) => "type(c_ptr), value".to_owned(),
        "vm_request **" => "type(c_ptr), intent(inout)".to_owned(),
        handles if handles.ends_with("**") => format!("type(c_ptr), intent(inout){optional}"),
        address if address.ends_with('*') => {
            let value = address.trim_end_matches('*').trim();
            let (value, intent) = match value.strip_prefix("const ") {
                Some(value) => (value, "in"),
                None => (value, "inout"),
            };
            let value = match HEADER.contains(&format!("typedef struct {value} {{")) {
                true => format!("type({value})"),
                false => value_type(value).to_owned(),
            };
            format!("{value}, intent({intent}){optional}")
        }
        value => format!("{}, value", value_type(value)),
    }
}
