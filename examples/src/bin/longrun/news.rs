//! Reads the lines that the daemons log about an application without a console.

use anyhow::{Context, Result};
use serde_json::Value;
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

/// An event of the application.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A checkpoint was made.
    Checkpoint {
        /// The freeze time of the slowest task.
        freeze: Duration,
        /// Time from the request to the commit.
        total: Duration,
    },
    /// A checkpoint was not made, for this reason.
    NoCheckpoint(String),
    /// All tasks run again.
    Back {
        /// The host that was lost.
        host: String,
        /// Time since the loss was noticed.
        after: Duration,
        /// Age of the checkpoint, from its request.
        age: Duration,
    },
    /// The application's result, as JSON.
    Result(Value),
    /// The application cannot be restarted, or has failed with this error.
    Failed(String),
}

/// The log of one daemon.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    read: u64,
    /// The beginning of a line that is not whole yet.
    rest: Vec<u8>,
}

/// The logs of all daemons.
#[derive(Debug)]
pub struct Logs(Vec<Log>);

impl Logs {
    /// Reads these files from their beginnings.
    pub fn new(paths: impl Iterator<Item = PathBuf>) -> Self {
        let log = |path| Log {
            path,
            read: 0,
            rest: Vec::new(),
        };
        Logs(paths.map(log).collect())
    }

    /// The events of the lines since the last call.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn read(&mut self) -> Result<Vec<News>> {
        let mut news = Vec::new();
        for log in &mut self.0 {
            let text = log.text();
            let text = text.with_context(|| format!("reading {}", log.path.display()))?;
            news.extend(text.lines().filter_map(news_of));
        }
        Ok(news)
    }
}

impl Log {
    /// The whole lines that were added to the file.
    fn text(&mut self) -> Result<String> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_end(&mut self.rest)? as u64;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n');
        let rest = self.rest.split_off(end.map_or(0, |at| at + 1));
        let whole = std::mem::replace(&mut self.rest, rest);
        Ok(String::from_utf8_lossy(&whole).into_owned())
    }
}

/// The event that a line reports, if it is of interest.
fn news_of(line: &str) -> Option<News> {
    let said = line.split_once("] ")?.1;
    if let Some((_, json)) = said.split_once(" 1> ") {
        return serde_json::from_str(json).ok().map(News::Result);
    }
    if said.starts_with("checkpoint g") {
        let freeze = between(said, "they stood still for ", ";")?;
        let total = between(said, " MB in ", ";")?;
        let (freeze, total) = (time(freeze)?, time(total)?);
        return Some(News::Checkpoint { freeze, total });
    }
    if said.contains(" runs again on ") {
        return Some(News::Back {
            host: between(said, "lost with host '", "'")?.to_owned(),
            after: time(between(said, " after ", ";")?)?,
            age: time(between(said, "of its work ", " were lost")?)?,
        });
    }
    if said.starts_with("no checkpoint of ") {
        return Some(News::NoCheckpoint(said.to_owned()));
    }
    let failed = said.contains(" cannot be restarted: ") || said.contains(" 2> ");
    failed.then(|| News::Failed(said.to_owned()))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// A number with its unit, with a space between the two or none.
fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_alphabetic());
    let seconds = match &text[digits.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        _ => return None,
    };
    Duration::try_from_secs_f64(digits.trim_end().parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    const LINES: &str = "\
        [2026-01-01T00:00:00Z INFO  vmd] n1 founds machine 02843e\n\
        [2026-01-01T00:00:10Z INFO  vmd::event_loop] checkpoint g0-e2 of t1.20: 17 tasks, 166.8 MB in \
        132.4 ms; they stood still for 130.3 ms; the next one in 3s\n\
        [2026-01-01T00:00:11Z INFO  vmd::event_loop] no checkpoint of t1.20 was made: it ends\n\
        [2026-01-01T00:00:12Z INFO  vmd::event_loop] t1.20 runs again on n1, n2 after 1.5s; of its \
        work 3.8 s were lost with host 'n3'\n\
        [2026-01-01T00:00:13Z INFO  task] t1.20 1> {\"fingerprint\":\"00ff\"}\n\
        [2026-01-01T00:00:14Z INFO  task] t1.20 2> Error: worker t2.1 has failed\n";

    #[test]
    fn each_whole_line_is_reported_once() {
        let millis = Duration::from_millis;
        let expected = [
            News::Checkpoint {
                freeze: Duration::from_micros(130_300),
                total: Duration::from_micros(132_400),
            },
            News::NoCheckpoint("no checkpoint of t1.20 was made: it ends".to_owned()),
            News::Back {
                host: "n3".to_owned(),
                after: millis(1500),
                age: millis(3800),
            },
            News::Result(serde_json::json!({ "fingerprint": "00ff" })),
            News::Failed("t1.20 2> Error: worker t2.1 has failed".to_owned()),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut file = fs::File::create(&path).expect("a log");
        let mut logs = Logs::new([path].into_iter());
        let mut news = Vec::new();
        for part in LINES.as_bytes().chunks(50) {
            file.write_all(part).expect("a log");
            news.extend(logs.read().expect("it is there"));
        }
        assert_eq!(news, expected);
    }

    #[test]
    fn times_have_units() {
        let times = ["221.1ms", "1.5s", "3.8 s", "12.0µs", "3", "s", "-1s"].map(time);
        let micros = |micros| Some(Duration::from_micros(micros));
        let expected = [
            micros(221_100),
            micros(1_500_000),
            micros(3_800_000),
            micros(12),
        ];
        assert_eq!(times[..4], expected);
        assert_eq!(times[4..], [None, None, None]);
    }
}
