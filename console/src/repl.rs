//! Reads commands one after the other: at a prompt, or from a file or pipe.
//!
//! Both use the grammar of the command line, and several commands in a line with `;` between them. The
//! prompt has a history and completion (see [`complete`]), and continues after an error. A file of
//! commands ends at the first command that fails, with the exit code of that command. A few commands are
//! carried out here, because they change what the next line means: `alias`, `unalias`, `source`.

pub mod complete;
mod session;

use crate::{
    command::{self, Command, Line},
    event::Event,
    execute::{self, Console},
    exit,
    failure::{self, UsageError},
    render::Audience,
};
use clap::Parser;
use complete::Completer;
use rustyline::{
    CompletionType, Config, Editor, Helper, error::ReadlineError, history::FileHistory,
};
use session::Session;
use std::{
    cell::RefCell,
    env,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process,
    rc::Rc,
};

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// Reads the start-up file, then commands at a prompt until the user leaves; returns the exit code.
///
/// # Errors
/// If the terminal cannot be used, or no daemon can be reached or started.
pub fn interactive(mut console: Console) -> anyhow::Result<u8> {
    let daemon = console.client_or_start()?.daemon().clone();
    console.renderer.notice(&format!(
        "machine {}, this host is {}; 'help' lists the commands",
        daemon.machine, daemon.host
    ))?;
    let mut session = Session::default();
    if let Some(file) = start_file()
        && let Next::Leave(code) = source(&mut console, &mut session, &file)?
    {
        return Ok(code);
    }
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
        // The first load fails, because there is no file yet.
        let _ = editor.load_history(file);
    }
    loop {
        match editor.readline("vm> ") {
            Ok(line) => {
                if let Next::Leave(_) =
                    execute_line(&mut console.borrow_mut(), &mut session, &line)?
                {
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
        && let Err(error) = save_history(&mut editor, &file)
    {
        log::warn!("cannot save the history in {}: {error}", file.display());
    }
    Ok(exit::DONE)
}

/// Carries out the commands in `lines`; returns the exit code of the first that fails.
///
/// # Errors
/// If reading or writing fails.
pub fn script(mut console: Console, lines: impl io::BufRead) -> anyhow::Result<u8> {
    let (Next::Line(code) | Next::Leave(code)) =
        execute_lines(&mut console, &mut Session::default(), lines)?;
    Ok(code)
}

/// Carries out the commands in a file, as [`script`] does.
///
/// # Errors
/// If writing fails.
pub fn file(mut console: Console, file: &Path) -> anyhow::Result<u8> {
    let (Next::Line(code) | Next::Leave(code)) =
        source(&mut console, &mut Session::default(), file)?;
    Ok(code)
}

fn execute_lines(
    console: &mut Console,
    session: &mut Session,
    lines: impl io::BufRead,
) -> anyhow::Result<Next> {
    for line in lines.lines() {
        match execute_line(console, session, &line?)? {
            Next::Line(exit::DONE) => {}
            other => return Ok(other),
        }
    }
    Ok(Next::Line(exit::DONE))
}

/// Carries out the commands in a file; a file that cannot be read is an error that is shown.
fn source(console: &mut Console, session: &mut Session, file: &Path) -> anyhow::Result<Next> {
    let opened = session.enter_file().map_err(anyhow::Error::from);
    let opened = opened.and_then(|()| {
        let cannot = |error: io::Error| {
            session.leave_file();
            UsageError(format!(
                "cannot read commands from {}: {error}",
                file.display()
            ))
        };
        Ok(io::BufReader::new(File::open(file).map_err(cannot)?))
    });
    match opened {
        Ok(lines) => {
            let next = execute_lines(console, session, lines);
            session.leave_file();
            next
        }
        Err(error) => Ok(Next::Line(shown(console, &error)?)),
    }
}

/// Shows an error, and returns its exit code.
fn shown(console: &mut Console, error: &anyhow::Error) -> anyhow::Result<u8> {
    execute::report(&mut console.renderer, error)?;
    Ok(exit::of_error(error))
}

/// The effect of a line on the following lines.
enum Next {
    /// The next line is read. Holds the exit code of this line.
    Line(u8),
    /// No line is read any more: the user left, or the machine has ended. Holds the exit code of
    /// this line.
    Leave(u8),
}

/// Carries out the commands of a line, up to the first that fails.
fn execute_line(console: &mut Console, session: &mut Session, line: &str) -> anyhow::Result<Next> {
    for command in session::commands(line) {
        match execute_command(console, session, command)? {
            Next::Line(exit::DONE) => {}
            other => return Ok(other),
        }
    }
    Ok(Next::Line(exit::DONE))
}

fn execute_command(
    console: &mut Console,
    session: &mut Session,
    command: &str,
) -> anyhow::Result<Next> {
    let words = match shell_words::split(command) {
        Ok(words) if words.is_empty() => return Ok(Next::Line(exit::DONE)),
        Ok(words) => session.expand(words),
        Err(_) => {
            console
                .renderer
                .failure(UsageError::KIND, "the line's quotes do not match")?;
            return Ok(Next::Line(exit::USAGE));
        }
    };
    let line = match Line::try_parse_from(&words) {
        Ok(line) => line,
        Err(error) if error.use_stderr() && wants_json(console, &words) => {
            let audience = console.renderer.set_audience(Audience::Programs);
            execute::report(&mut console.renderer, &UsageError::of_parser(&error).into())?;
            console.renderer.set_audience(audience);
            return Ok(Next::Line(exit::USAGE));
        }
        Err(error) => {
            // The parser knows whether this is help or an error, and colours it.
            error.print()?;
            return Ok(Next::Line(if error.use_stderr() {
                exit::USAGE
            } else {
                exit::DONE
            }));
        }
    };
    let audience = console.renderer.audience();
    if line.format.json {
        console.renderer.set_audience(Audience::Programs);
    }
    let result = match &line.command {
        Command::Source { file } => {
            let next = source(console, session, file);
            console.renderer.set_audience(audience);
            return next;
        }
        Command::Alias { name, words } => alias(console, session, name.as_deref(), words),
        Command::Unalias { names } => names
            .iter()
            .try_for_each(|name| session.remove_alias(name))
            .map(|()| exit::DONE)
            .map_err(Into::into),
        command => console.execute(command),
    };
    let code = match result {
        Ok(code) => code,
        Err(error) if failure::is_broken_pipe(&error) => return Err(error),
        Err(error) => shown(console, &error)?,
    };
    console.renderer.set_audience(audience);
    Ok(match line.command {
        Command::Quit => Next::Leave(code),
        Command::Halt { .. } if code == exit::DONE => Next::Leave(code),
        _ => Next::Line(code),
    })
}

/// Sets an alias, or shows those that are set.
fn alias(
    console: &mut Console,
    session: &mut Session,
    name: Option<&str>,
    words: &[String],
) -> anyhow::Result<u8> {
    match name {
        Some(name) if !words.is_empty() => session.set_alias(name, words)?,
        _ => console
            .renderer
            .show(&Event::Aliases(&session.aliases(name)?))?,
    }
    Ok(exit::DONE)
}

/// Whether an error of parsing these words is shown as JSON.
fn wants_json(console: &Console, words: &[String]) -> bool {
    console.renderer.audience() == Audience::Programs || command::ask_for_json(words)
}

/// Replaces the file of the history by a new one: no link of that name is followed. If the name is
/// that of a device, as /dev/null, nothing is saved.
fn save_history<H: Helper>(editor: &mut Editor<H, FileHistory>, file: &Path) -> anyhow::Result<()> {
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}", process::id()));
    let draft = Path::new(&draft);
    // A console with this process id that was killed may have left the draft, or another user may
    // have put a link there.
    let _ = fs::remove_file(draft);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft);
    made?;
    let saved = editor.save_history(draft).map_err(anyhow::Error::from);
    let saved = saved.and_then(|()| {
        // The editor writes nothing if no line is new: the history stays as it is.
        if fs::metadata(draft)?.len() > 0 {
            fs::rename(draft, file)?;
        }
        Ok(())
    });
    // The draft is still there if it did not become the history.
    let _ = fs::remove_file(draft);
    saved
}

fn history_file() -> Option<PathBuf> {
    file_of("VM_HISTORY", ".vm_history")
}

/// The commands that the prompt begins with, if there are some.
fn start_file() -> Option<PathBuf> {
    file_of("VM_RC", ".vmrc").filter(|file| file.exists())
}

/// The file that a variable names, or else that one in the home folder; none if the variable is empty.
fn file_of(variable: &str, name: &str) -> Option<PathBuf> {
    match env::var_os(variable) {
        Some(file) if file.is_empty() => None,
        Some(file) => Some(file.into()),
        None => env::home_dir().map(|home| home.join(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_a_new_file_of_the_user_alone_and_no_link_is_followed() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("other"), "kept").unwrap();
        symlink(at("other"), at("history")).unwrap();
        symlink(at("other"), at(&format!("history.{}", process::id()))).unwrap();
        let mut editor: Editor<(), FileHistory> = Editor::new().unwrap();
        editor.add_history_entry("conf").unwrap();
        save_history(&mut editor, &at("history")).unwrap();
        // Without new lines, the existing history is kept.
        save_history(&mut editor, &at("history")).unwrap();
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "kept");
        let saved = fs::symlink_metadata(at("history")).unwrap();
        assert!(saved.is_file() && saved.permissions().mode() & 0o777 == 0o600);
        assert!(fs::read_to_string(at("history")).unwrap().contains("conf"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        save_history(&mut editor, Path::new("/dev/null")).unwrap();
    }
}
