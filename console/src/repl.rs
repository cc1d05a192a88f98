//! Commands one after the other: typed at a prompt, or read from a file or pipe.
//!
//! Both use the grammar of the command line. At the prompt there is a history and completion
//! (see [`complete`]), and an error is shown and forgotten. A file of commands ends at the first
//! one that fails, with its exit code.

pub mod complete;

use crate::{
    command::{self, Command, Line},
    execute::{self, Console},
    failure::{self, UsageError},
    render::Audience,
};
use clap::Parser;
use complete::Completer;
use rustyline::{CompletionType, Config, Editor, error::ReadlineError, history::FileHistory};
use std::{cell::RefCell, env, io, path::PathBuf, rc::Rc};

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// Reads commands at a prompt until the user leaves; returns the exit code.
///
/// # Errors
/// When the terminal cannot be used, or no daemon can be reached or started.
pub fn interactive(mut console: Console) -> anyhow::Result<u8> {
    let daemon = console.client_or_start()?.daemon().clone();
    console.renderer.notice(&format!(
        "machine {}, this host is {}; 'help' lists the commands",
        daemon.machine, daemon.host
    ))?;
    let console = Rc::new(RefCell::new(console));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES)?
        .history_ignore_dups(true)?
        .auto_add_history(true)
        .build();
    let mut editor: Editor<Completer, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(Completer::new(console.clone())));
    let history = history_file();
    if let Some(file) = &history {
        // The first time there is none.
        let _ = editor.load_history(file);
    }
    loop {
        match editor.readline("vm> ") {
            Ok(line) => {
                if let Next::Leave(_) = execute_line(&mut console.borrow_mut(), &line)? {
                    break;
                }
            }
            // Ctrl-C at the prompt drops the line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(file) = history
        && let Err(error) = editor.save_history(&file)
    {
        log::warn!("cannot save the history in {}: {error}", file.display());
    }
    Ok(failure::DONE)
}

/// Carries out the commands in `lines`; returns the exit code of the first that failed.
///
/// # Errors
/// When reading or writing fails.
pub fn script(mut console: Console, lines: impl io::BufRead) -> anyhow::Result<u8> {
    for line in lines.lines() {
        match execute_line(&mut console, &line?)? {
            Next::Leave(code) => return Ok(code),
            Next::Line(failure::DONE) => {}
            Next::Line(code) => return Ok(code),
        }
    }
    Ok(failure::DONE)
}

/// What follows a line.
enum Next {
    /// The next line; this one had that exit code.
    Line(u8),
    /// Nothing: the user left, or the machine has ended.
    Leave(u8),
}

fn execute_line(console: &mut Console, line: &str) -> anyhow::Result<Next> {
    let words = match shell_words::split(line) {
        Ok(words) if words.is_empty() => return Ok(Next::Line(failure::DONE)),
        Ok(words) => words,
        Err(_) => {
            console
                .renderer
                .failure(UsageError::KIND, "the line's quotes do not match")?;
            return Ok(Next::Line(failure::USAGE));
        }
    };
    let line = match Line::try_parse_from(&words) {
        Ok(line) => line,
        Err(error) if error.use_stderr() && wants_json(console, &words) => {
            let audience = console.renderer.set_audience(Audience::Programs);
            execute::report(&mut console.renderer, &UsageError::of_parser(&error).into())?;
            console.renderer.set_audience(audience);
            return Ok(Next::Line(failure::USAGE));
        }
        Err(error) => {
            // Shown by the parser, which knows whether it is help or an error and colours it.
            error.print()?;
            return Ok(Next::Line(if error.use_stderr() {
                failure::USAGE
            } else {
                failure::DONE
            }));
        }
    };
    let audience = console.renderer.audience();
    if line.format.json {
        console.renderer.set_audience(Audience::Programs);
    }
    let result = console.execute(&line.command);
    let code = match result {
        Ok(code) => code,
        Err(error) if failure::is_broken_pipe(&error) => return Err(error),
        Err(error) => {
            execute::report(&mut console.renderer, &error)?;
            failure::exit_code(&error)
        }
    };
    console.renderer.set_audience(audience);
    Ok(match line.command {
        Command::Quit => Next::Leave(code),
        Command::Halt { .. } if code == failure::DONE => Next::Leave(code),
        _ => Next::Line(code),
    })
}

/// Whether what is wrong with these words is to be said in JSON.
fn wants_json(console: &Console, words: &[String]) -> bool {
    console.renderer.audience() == Audience::Programs || command::ask_for_json(words)
}

fn history_file() -> Option<PathBuf> {
    match env::var_os("VM_HISTORY") {
        Some(file) if file.is_empty() => None,
        Some(file) => Some(file.into()),
        None => env::home_dir().map(|home| home.join(".vm_history")),
    }
}
