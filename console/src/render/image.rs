//! Images of processes. An image may come from anywhere, so no control character in it reaches a
//! terminal.

use super::words::{count, memory};
use crate::image::{Made, Report, Whole};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _, path::Path};
use vm_image::{
    format::{Codec, ImageError},
    inspect::{FileKind, FileSummary, Needs, Summary, ThreadSummary},
};

/// Width of a line, with the name of the line. Letters.
const LINE: usize = 80;
/// Width of the names of lines. Letters.
const NAME: usize = 9;

pub(super) fn made(made: &Made) -> String {
    let (file, freeze) = (plain(&made.file.to_string_lossy()), made.freeze);
    let ms = freeze.as_secs_f64() * 1e3;
    let bytes = memory(made.bytes);
    format!(
        "{file}: {bytes} of process {}, frozen for {ms:.1} ms\n",
        made.pid
    )
}

pub(super) fn made_json(made: &Made) -> Value {
    json!({
        "image": made.file.to_string_lossy(),
        "pid": made.pid,
        "bytes": made.bytes,
        "freeze_us": made.freeze.as_micros() as u64,
    })
}

pub(super) fn people(report: &Report) -> String {
    let summary = &report.summary;
    let needs = &report.needs;
    let mut page = Page(String::new());
    page.line("image", &image_line(report));
    page.line("program", &summary.program);
    page.line("command", &shell_words::join(&summary.command));
    page.line("folder", &summary.dir);
    page.line("saved", &saved_line(summary));
    page.words("threads", threads(&summary.threads).split(' '));
    page.line("memory", &memory_line(summary));
    for (at, file) in summary.files.iter().enumerate() {
        page.line(if at == 0 { "files" } else { "" }, &file_line(file));
    }
    page.needs(needs);
    page.here(&report.reasons, report.damage.is_some());
    if let Some(damage) = &report.damage {
        page.words("damage", damage.to_string().split(' '));
    }
    page.0
}

pub(super) fn json(report: &Report) -> Value {
    let mut value = json!(report.summary);
    value["image"] = json!(report.file.to_string_lossy());
    value["needs"] = json!(report.needs);
    value["restorable_here"] = json!(report.reasons.is_empty() && report.damage.is_none());
    value["reasons"] = json!(report.reasons);
    value["damage"] = json!(report.damage.as_ref().map(ToString::to_string));
    value
}

pub(super) fn verdict(file: &Path, verdict: &Result<Whole, ImageError>) -> String {
    let file = plain(&file.to_string_lossy());
    match verdict {
        Ok(whole) => {
            let mut page = Page(format!("{file}: whole, {}\n", memory(whole.bytes)));
            page.needs(&whole.needs);
            page.here(&whole.reasons, false);
            page.0
        }
        Err(error) => format!("{file}: {}\n", plain(&error.to_string())),
    }
}

pub(super) fn verdict_json(file: &Path, verdict: &Result<Whole, ImageError>) -> Value {
    let file = file.to_string_lossy();
    match verdict {
        Ok(whole) => json!({
            "image": file,
            "whole": true,
            "bytes": whole.bytes,
            "needs": whole.needs,
            "restorable_here": whole.reasons.is_empty(),
            "reasons": whole.reasons,
        }),
        Err(error) => json!({
            "image": file,
            "whole": false,
            "reason": error.to_string(),
            "at": error.at(),
        }),
    }
}

fn image_line(report: &Report) -> String {
    let file = report.file.to_string_lossy();
    match report.summary.pages {
        None => format!("{file}, damaged"),
        Some(pages) => {
            let codec = match pages.codec {
                Codec::Plain => "not compressed",
                Codec::Lz4 => "compressed with LZ4",
            };
            format!("{file}, {}, {codec}", memory(pages.stored_bytes))
        }
    }
}

fn saved_line(summary: &Summary) -> String {
    let seconds = i64::try_from(summary.saved_at_s).unwrap_or(i64::MAX);
    let when = match Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "at no time".to_owned(),
    };
    format!(
        "{when} on {}, Linux {}, process {}",
        summary.host, summary.kernel, summary.pid
    )
}

/// The number of threads, and each name once.
fn threads(threads: &[ThreadSummary]) -> String {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in threads {
        *names.entry(&thread.name).or_default() += 1;
    }
    let names: Vec<String> = names
        .into_iter()
        .map(|(name, times)| match times {
            1 => name.to_owned(),
            _ => format!("{times} {name}"),
        })
        .collect();
    format!("{}: {}", threads.len(), names.join(", "))
}

fn memory_line(summary: &Summary) -> String {
    let saved = match summary.pages {
        Some(pages) => format!("{} saved", memory(pages.saved_bytes)),
        None => "saved is not known".to_owned(),
    };
    format!(
        "{} in {}, {saved}",
        memory(summary.mapped_bytes),
        count(summary.mappings, "mapping")
    )
}

fn file_line(file: &FileSummary) -> String {
    let mut line = format!("{:>3} ", file.fd);
    // Writing to a string does not fail.
    let _ = match (file.duplicate_of, file.kind) {
        (Some(original), _) => write!(line, "as {original}"),
        (None, FileKind::File) => write!(
            line,
            "{}, {}, at byte {}",
            file.path,
            memory(file.size),
            file.offset
        ),
        (None, FileKind::Device | FileKind::Kernel) => write!(line, "{}", file.path),
        (None, FileKind::Inherited) => write!(line, "from the restoring process"),
        (None, FileKind::Pipe) => write!(line, "{} within the process", file.path),
        (None, FileKind::Unnamed) => {
            let size = memory(file.size);
            write!(line, "{}, {size}, at byte {}", file.path, file.offset)
        }
    };
    if file.carried && file.duplicate_of.is_none() {
        line += ", in the image";
    }
    line
}

/// A text without control characters, which could control a terminal.
fn plain(text: &str) -> String {
    let letter = |letter: char| match letter.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    };
    text.chars().map(letter).collect()
}

/// Named lines below each other.
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, text: &str) {
        let line = format!("{name:NAME$}{}", plain(text));
        self.0 += line.trim_end();
        self.0 += "\n";
    }

    /// The lines about the needs of the process on a host.
    fn needs(&mut self, needs: &Needs) {
        let basics = format!("{}, pages of {} bytes;", needs.arch, needs.page_bytes);
        let words = needs.states.iter().copied();
        let words = words.chain(needs.features.iter().map(String::as_str));
        self.words("needs", basics.split(' ').chain(words));
        let user = match needs.any_user {
            true => "or any other ordinary user",
            false => "or root",
        };
        let (number, group) = (needs.user, needs.group);
        self.line("", &format!("user {number}, group {group}, {user}"));
        for file in &needs.files {
            self.line("", file);
        }
        for (at, file) in needs.program.iter().enumerate() {
            let name = if at == 0 { "wants" } else { "" };
            self.line(name, file);
        }
    }

    /// The lines about whether the process can be restored on this host.
    fn here(&mut self, reasons: &[String], is_damaged: bool) {
        let here = match (reasons, is_damaged) {
            ([], false) => "it can be restored",
            ([], true) => "it cannot be restored: it is damaged",
            _ => "it cannot be restored:",
        };
        self.line("here", here);
        for reason in reasons {
            self.words("", reason.split(' '));
        }
    }

    /// Words on as many lines as needed.
    fn words<'a>(&mut self, name: &str, words: impl Iterator<Item = &'a str>) {
        let (mut name, mut line) = (name, String::new());
        for word in words {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= LINE - NAME {
                self.line(name, &line);
                (name, line) = ("", String::new());
            }
            if !line.is_empty() {
                line += " ";
            }
            line += word;
        }
        self.line(name, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_image::inspect::{Needs, Pages};

    fn report() -> Report {
        let file = |fd, kind, path: &str, duplicate_of| FileSummary {
            fd,
            kind,
            path: path.to_owned(),
            offset: 10,
            flags: 0,
            size: 2048,
            duplicate_of,
            carried: fd == 3,
        };
        let thread = |tid, name: &str| ThreadSummary {
            tid,
            name: name.to_owned(),
        };
        Report {
            file: "saved.img".into(),
            summary: Summary {
                program: "/usr/bin/dream\x1b[2J".to_owned(),
                name: "dream".to_owned(),
                command: vec!["dream".to_owned(), "of sheep".to_owned()],
                dir: "/home/u".to_owned(),
                host: "alpha".to_owned(),
                kernel: "6.18.0".to_owned(),
                saved_at_s: 1_700_000_000,
                pid: 4711,
                threads: vec![thread(1, "dream"), thread(2, "sheep"), thread(3, "sheep")],
                files: vec![
                    file(0, FileKind::Inherited, "a terminal", None),
                    file(3, FileKind::File, "/var/log/dream", None),
                    file(4, FileKind::File, "/var/log/dream", Some(3)),
                    file(5, FileKind::Pipe, "pipe:[77]", None),
                    file(6, FileKind::Device, "/dev/null", None),
                ],
                mappings: 1,
                mapped_bytes: 3 << 20,
                pages: Some(Pages {
                    saved_bytes: 1 << 20,
                    stored_bytes: 1 << 19,
                    codec: Codec::Lz4,
                }),
            },
            needs: Needs {
                arch: "x86_64",
                page_bytes: 4096,
                features: (0..16).map(|number| format!("sse{number}")).collect(),
                states: vec!["x87", "sse"],
                xsave_bytes: 576,
                user: 1000,
                group: 100,
                any_user: true,
                files: vec!["/var/log/dream".to_owned(), "/home/u".to_owned()],
                program: vec!["/usr/bin/dream".to_owned()],
            },
            reasons: vec!["it is cold".to_owned(), "it is dark".to_owned()],
            damage: None,
        }
    }

    #[test]
    fn people_see_an_image_line_by_line_without_control_characters() {
        assert_eq!(
            people(&report()),
            "\
image    saved.img, 512.0 KiB, compressed with LZ4
program  /usr/bin/dream\u{fffd}[2J
command  dream 'of sheep'
folder   /home/u
saved    2023-11-14 22:13:20 UTC on alpha, Linux 6.18.0, process 4711
threads  3: dream, 2 sheep
memory   3.0 MiB in 1 mapping, 1.0 MiB saved
files      0 from the restoring process
           3 /var/log/dream, 2.0 KiB, at byte 10, in the image
           4 as 3
           5 pipe:[77] within the process
           6 /dev/null
needs    x86_64, pages of 4096 bytes; x87 sse sse0 sse1 sse2 sse3 sse4 sse5 sse6
         sse7 sse8 sse9 sse10 sse11 sse12 sse13 sse14 sse15
         user 1000, group 100, or any other ordinary user
         /var/log/dream
         /home/u
wants    /usr/bin/dream
here     it cannot be restored:
         it is cold
         it is dark
"
        );
    }

    #[test]
    fn a_damaged_image_is_not_restorable_even_if_nothing_else_is_in_the_way() {
        let mut report = report();
        report.reasons.clear();
        assert_eq!(json(&report)["restorable_here"], true);
        report.damage = Some(ImageError::NotAnImage);
        report.summary.pages = None;
        let value = json(&report);
        assert_eq!(value["restorable_here"], false);
        assert_eq!(value["pages"], Value::Null);
        let text = people(&report);
        assert!(text.starts_with("image    saved.img, damaged\n"), "{text}");
        assert!(
            text.contains("\nhere     it cannot be restored: it is damaged\n"),
            "{text}"
        );
    }

    #[test]
    fn times_beyond_the_calendar_do_no_harm() {
        let mut report = report();
        report.summary.saved_at_s = u64::MAX;
        assert!(people(&report).contains("\nsaved    at no time on alpha"));
    }
}
