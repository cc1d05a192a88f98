//! The state of a console between its commands: aliases, and the depth of nested files of commands.

use crate::failure::UsageError;
use std::collections::{BTreeMap, BTreeSet};

/// Aliases of one console.
const ALIASES_MAX: usize = 256;
/// Files of commands that read each other.
const DEPTH_MAX: usize = 16;

/// The state of a prompt, or of a file of commands and the files that it reads.
#[derive(Debug, Default)]
pub struct Session {
    aliases: BTreeMap<String, Vec<String>>,
    depth: usize,
}

impl Session {
    /// The aliases whose names are given, or all.
    ///
    /// # Errors
    /// If there is no alias of a name.
    pub fn aliases(&self, name: Option<&str>) -> Result<Vec<(&str, &[String])>, UsageError> {
        let all = self.aliases.iter();
        let all = all.filter(|(of, _)| name.is_none_or(|name| name == *of));
        let found: Vec<(&str, &[String])> = all.map(|(of, it)| (of.as_str(), &it[..])).collect();
        match name {
            Some(name) if found.is_empty() => Err(unknown(name)),
            _ => Ok(found),
        }
    }

    /// Lets a word stand for other words where a command begins.
    ///
    /// # Errors
    /// If there are too many aliases.
    pub fn set_alias(&mut self, name: &str, words: &[String]) -> Result<(), UsageError> {
        if self.aliases.len() >= ALIASES_MAX && !self.aliases.contains_key(name) {
            let text = format!("there are {ALIASES_MAX} aliases: remove one with 'unalias'");
            return Err(UsageError(text));
        }
        self.aliases.insert(name.to_owned(), words.to_owned());
        Ok(())
    }

    /// # Errors
    /// If there is no alias of that name.
    pub fn remove_alias(&mut self, name: &str) -> Result<(), UsageError> {
        self.aliases
            .remove(name)
            .map(drop)
            .ok_or_else(|| unknown(name))
    }

    /// The words of a command with its first word replaced while that is an alias. An alias is replaced
    /// once, so it may use the command of its own name.
    pub fn expand(&self, mut words: Vec<String>) -> Vec<String> {
        let mut replaced = BTreeSet::new();
        while let Some(first) = words.first()
            && let Some((name, stands_for)) = self.aliases.get_key_value(first)
            && replaced.insert(name)
        {
            words.splice(..1, stands_for.iter().cloned());
        }
        words
    }

    /// A file of commands is about to be read.
    ///
    /// # Errors
    /// If too many files read each other.
    pub fn enter_file(&mut self) -> Result<(), UsageError> {
        if self.depth >= DEPTH_MAX {
            let text = format!("{DEPTH_MAX} files read each other: does one of them read itself?");
            return Err(UsageError(text));
        }
        self.depth += 1;
        Ok(())
    }

    /// The file was read.
    pub fn leave_file(&mut self) {
        self.depth -= 1;
    }
}

fn unknown(name: &str) -> UsageError {
    UsageError(format!("no alias '{name}': 'alias' lists them"))
}

/// The commands of a line: `;` separates them outside of quotes.
pub fn commands(line: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let (mut begin, mut quote, mut escaped) = (0, None, false);
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, '#')
                if line[..at].ends_with(|before: char| before.is_whitespace()) || at == begin =>
            {
                break;
            }
            (None, ';') => {
                commands.push(&line[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    commands.push(&line[begin..]);
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn semicolons_separate_commands_outside_of_quotes_and_comments() {
        for (line, expected) in [
            ("", &[""][..]),
            ("ps; conf", &["ps", " conf"]),
            (
                "a ';' \"; \\\" ;\" \\; b;c",
                &["a ';' \"; \\\" ;\" \\; b", "c"],
            ),
            ("a 'it; is' b;", &["a 'it; is' b", ""]),
            ("ps # all; of them", &["ps # all; of them"]),
            ("run a#b; ps", &["run a#b", " ps"]),
            ("'no end; ps", &["'no end; ps"]),
        ] {
            assert_eq!(commands(line), expected, "{line}");
        }
    }

    #[test]
    fn an_alias_is_replaced_once_where_a_command_begins() {
        let mut session = Session::default();
        session.set_alias("ps", &words("--json ps")).unwrap();
        session.set_alias("l", &words("ps t1.1")).unwrap();
        session.set_alias("a", &words("b x")).unwrap();
        session.set_alias("b", &words("a y")).unwrap();
        assert_eq!(session.expand(words("ps ps")), words("--json ps ps"));
        assert_eq!(session.expand(words("l ps")), words("--json ps t1.1 ps"));
        assert_eq!(session.expand(words("a l")), words("a y x l"));
        assert_eq!(session.expand(words("conf")), words("conf"));
        session.remove_alias("l").unwrap();
        assert_eq!(session.expand(words("l")), words("l"));
        assert!(session.remove_alias("l").is_err() && session.aliases(Some("l")).is_err());
        assert_eq!(session.aliases(None).unwrap().len(), 3);
    }

    #[test]
    fn aliases_and_nested_files_are_bounded() {
        let mut session = Session::default();
        for number in 0..ALIASES_MAX {
            session
                .set_alias(&number.to_string(), &words("ps"))
                .unwrap();
        }
        assert!(session.set_alias("one more", &words("ps")).is_err());
        session.set_alias("0", &words("conf")).unwrap();
        for _ in 0..DEPTH_MAX {
            session.enter_file().unwrap();
        }
        assert!(session.enter_file().is_err());
        session.leave_file();
        session.enter_file().unwrap();
    }
}
