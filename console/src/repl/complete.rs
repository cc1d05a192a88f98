//! Completion at the prompt. The words that can follow are read from the definitions that parse the
//! line; tids and hosts are requested from the daemon.

use crate::{command::Line, execute::Console, signal_name};
use clap::{Arg, CommandFactory};
use rustyline::{
    Context, Helper,
    completion::{FilenameCompleter, Pair},
    highlight::Highlighter,
    hint::Hinter,
    validate::Validator,
};
use std::{cell::RefCell, rc::Rc};

/// The kinds of word that the word under the cursor can be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    Words(Vec<String>),
    /// A task of the machine.
    Task,
    /// A host of the machine.
    Host,
    /// A signal.
    Signal,
    /// A file.
    File,
    /// Unknown.
    Anything,
}

impl Wanted {
    /// Derived from the name that the help shows for the value.
    fn of_value(arg: &Arg) -> Self {
        let name = arg
            .get_value_names()
            .and_then(|names| names.first())
            .map_or("", |name| name.as_str());
        match name {
            "TID" => Wanted::Task,
            "HOST" => Wanted::Host,
            "SIGNAL" => Wanted::Signal,
            "COMMAND" => Wanted::Words(command_names()),
            "PROGRAM" | "PATH" | "FILE" => Wanted::File,
            _ => Wanted::Anything,
        }
    }
}

/// The completion of the line editor.
pub struct Completer {
    console: Rc<RefCell<Console>>,
    files: FilenameCompleter,
}

impl Completer {
    /// A completer that requests names from the daemon of `console`.
    pub fn new(console: Rc<RefCell<Console>>) -> Self {
        Completer {
            console,
            files: FilenameCompleter::new(),
        }
    }
}

impl Helper for Completer {}
impl Highlighter for Completer {}
impl Validator for Completer {}
impl Hinter for Completer {
    type Hint = String;
}

impl rustyline::completion::Completer for Completer {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let start = before.rfind([' ', '\t', ',']).map_or(0, |blank| blank + 1);
        let word = &before[start..];
        let words = match wanted(before) {
            Wanted::File => return self.files.complete(line, position, context),
            Wanted::Words(words) => words,
            Wanted::Task => self.console.borrow_mut().task_names(),
            Wanted::Host => self.console.borrow_mut().host_names(),
            Wanted::Signal => signal_name::NAMES.map(str::to_owned).to_vec(),
            Wanted::Anything => Vec::new(),
        };
        let pairs = words
            .into_iter()
            .filter(|known| known.starts_with(word))
            .map(|known| Pair {
                display: known.clone(),
                replacement: known + " ",
            })
            .collect();
        Ok((start, pairs))
    }
}

fn command_names() -> Vec<String> {
    names(&Line::command())
}

fn names(command: &clap::Command) -> Vec<String> {
    command
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect()
}

/// The kind of word at the end of `line`, whose last word may be unfinished.
fn wanted(line: &str) -> Wanted {
    let mut grammar = Line::command();
    grammar.build();
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let last = if line.ends_with(char::is_whitespace) {
        ""
    } else {
        words.pop().unwrap_or("")
    };
    let command = words
        .iter()
        .position(|word| !word.starts_with('-'))
        .map(|index| (index, grammar.find_subcommand(words[index])));
    let (mut command, mut rest) = match command {
        None if last.starts_with('-') => return options(&grammar),
        None => return Wanted::Words(command_names()),
        Some((_, None)) => return Wanted::Anything,
        Some((index, Some(command))) => (command, &words[index + 1..]),
    };
    // Some commands have subcommands.
    while command.has_subcommands() {
        let Some(index) = rest.iter().position(|word| !word.starts_with('-')) else {
            return match last.starts_with('-') {
                true => options(command),
                false => Wanted::Words(names(command)),
            };
        };
        let Some(below) = command.find_subcommand(rest[index]) else {
            return Wanted::Anything;
        };
        (command, rest) = (below, &rest[index + 1..]);
    }

    let mut positionals = command.get_positionals().peekable();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        if let Some(option) = takes_value(command, word) {
            if rest.next().is_none() {
                return Wanted::of_value(option);
            }
        } else if !word.starts_with('-')
            && let Some(positional) = positionals.peek()
        {
            // All words behind a program are the program's, options too.
            if positional.is_trailing_var_arg_set() {
                return Wanted::File;
            }
            // An argument with several values takes all words that follow.
            if !takes_many(positional) {
                positionals.next();
            }
        }
    }
    match positionals.peek() {
        _ if last.starts_with('-') => options(command),
        Some(positional) => Wanted::of_value(positional),
        None => Wanted::Anything,
    }
}

fn takes_many(arg: &Arg) -> bool {
    arg.get_num_args()
        .is_some_and(|count| count.max_values() > 1)
}

/// The option that `word` is, if its value is the next word.
fn takes_value<'a>(command: &'a clap::Command, word: &str) -> Option<&'a Arg> {
    command.get_opts().find(|option| {
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        long.as_deref() == Some(word) || short.as_deref() == Some(word)
    })
}

fn options(command: &clap::Command) -> Wanted {
    Wanted::Words(
        command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(|arg| arg.get_long())
            .map(|long| format!("--{long}"))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_says_what_can_follow() {
        for (line, expected) in [
            ("kill ", Wanted::Task),
            ("kill t1.1 t2", Wanted::Task),
            ("sig ", Wanted::Signal),
            ("sig TERM ", Wanted::Task),
            ("sig TERM t1.1 ", Wanted::Task),
            ("delete ", Wanted::Host),
            ("spawn --on ", Wanted::Host),
            ("spawn -n 3 ", Wanted::File),
            ("spawn --on a ./prog", Wanted::File),
            ("run ./prog ", Wanted::File),
            ("run ./prog --verb", Wanted::File),
            ("run --cwd ", Wanted::File),
            ("--json check ", Wanted::Task),
            ("image info ", Wanted::File),
            ("image --json run sa", Wanted::File),
            ("image frobnicate ", Wanted::Anything),
            ("conf ", Wanted::Anything),
            ("frobnicate ", Wanted::Anything),
        ] {
            assert_eq!(wanted(line), expected, "{line}");
        }
    }

    #[test]
    fn commands_and_options_are_the_grammars() {
        for line in ["", "ru", "help r", "--json "] {
            let Wanted::Words(words) = wanted(line) else {
                panic!("{line}")
            };
            assert!(words.contains(&"run".to_owned()), "{line}");
        }
        let below = ["save", "info", "verify", "run", "help"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(wanted("image "), Wanted::Words(below.clone()));
        assert_eq!(wanted("--json image ve"), Wanted::Words(below));
        let Wanted::Words(words) = wanted("halt --") else {
            panic!("no options")
        };
        assert!(words.contains(&"--yes".to_owned()));
        let Wanted::Words(options) = wanted("run --") else {
            panic!("no options")
        };
        assert!(options.len() > 3 && !options.contains(&"--on".to_owned()));
        assert!(words.contains(&"--json".to_owned()));
    }
}
