//! The template of a launcher's command line.

use anyhow::{Context, bail};

/// The template's words with the places filled in. A value stays within its word, whatever
/// characters it has.
pub(super) fn command_line(
    template: &str,
    host: &str,
    name: &str,
    join: &str,
) -> anyhow::Result<Vec<String>> {
    let words = shell_words::split(template).context("the launcher's quotes do not match")?;
    if let Some(place) = unknown_place(template) {
        bail!("the launcher has '{place}'; there are {{host}}, {{name}} and {{join}}");
    }
    let fill = |word: String| {
        word.replace("{host}", host)
            .replace("{name}", name)
            .replace("{join}", join)
    };
    Ok(words.into_iter().map(fill).collect())
}

/// The first place in the template that has no value. Other braces belong to the launcher.
fn unknown_place(template: &str) -> Option<&str> {
    template.match_indices('{').find_map(|(at, _)| {
        let len = template[at..].find('}')?;
        let (before, place) = (&template[..at], &template[at..=at + len]);
        let word = &place[1..len];
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_known = ["host", "name", "join"].contains(&word);
        (is_word && !is_known && !before.ends_with('$')).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::DEFAULT_LAUNCHER;

    #[test]
    fn values_fill_their_places_in_one_word() {
        let words = command_line(DEFAULT_LAUNCHER, "me@node1", "node1", "10.0.0.1:7000").unwrap();
        assert_eq!(
            words,
            [
                "ssh",
                "me@node1",
                "vmd",
                "--detach",
                "--join",
                "10.0.0.1:7000",
                "--name",
                "node1",
                "--secret-stdin"
            ]
        );
        assert_eq!(unknown_place("awk '{ print }' ${host} {a} x"), Some("{a}"));
        assert_eq!(unknown_place("awk '{ print }' ${dir} {host}"), None);
        let words = command_line("sh -c 'exec vmd --name {name}'", "a b", "$(x)", "j").unwrap();
        assert_eq!(words, ["sh", "-c", "exec vmd --name $(x)"]);
        assert!(command_line("ssh 'x", "h", "h", "j").is_err());
    }
}
