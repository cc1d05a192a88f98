//! The command line of `vmd`.

use anyhow::{Context as _, ensure};
use clap::Parser;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};
use vm_wire::limits;

/// The default of --listen: the first free port of the range, on all addresses of IPv6 and IPv4.
const LISTEN_DEFAULT: &str = "[::]:7170-7269";
/// Default size at which the log is rotated. Bytes.
const LOG_BYTES_DEFAULT: u64 = 16 * 1024 * 1024;
/// Least size at which the log is rotated. Bytes.
const LOG_BYTES_MIN: u64 = 64 * 1024;

/// The daemon of the virtual parallel machine: one per host.
///
/// Without --join the daemon founds a machine. With --join it joins the machine of the daemon at
/// that address, and must know the secret of that machine (DIR/secret of that daemon, see
/// --secret-file).
#[derive(Debug, Clone, Parser)]
#[command(name = "vmd", version)]
pub struct Args {
    /// Name of this host, unique in its machine [default: the computer's name]
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,

    /// Address or name, and port or range of ports, at which other daemons connect; of a range, the
    /// first free port is used. 0.0.0.0 means all addresses of IPv4, `[::]` those of IPv6 and IPv4
    #[arg(long, value_name = "ADDR:PORT[-PORT]", default_value = LISTEN_DEFAULT)]
    pub listen: Listen,

    /// Address at which other daemons reach this one, if it is not the one of --listen [default: an
    /// address of this computer, and later the one at which the first joining host has reached it]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub advertise: Option<String>,

    /// Join the machine of the daemon at this address (the content of its DIR/address); of a name,
    /// all addresses are tried
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host_port)]
    pub join: Option<String>,

    /// Found a new machine, even in a folder whose last daemon had joined one
    #[arg(long, conflicts_with = "join")]
    pub found: bool,

    /// Folder for the socket and the secret, mode 0700
    /// [default: $VM_DIR, or vm in $XDG_RUNTIME_DIR, or /tmp/vm-UID]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// File with the machine's secret, mode 0600; a founder makes the file if there is none
    /// [default: DIR/secret]
    #[arg(long, value_name = "FILE", conflicts_with = "secret_stdin")]
    pub secret_file: Option<PathBuf>,

    /// Read the secret from the first line of standard input; a launcher may also hand it over in
    /// the environment, as VM_SECRET
    #[arg(long)]
    pub secret_stdin: bool,

    /// Greatest number of tasks that may run on this host at once
    #[arg(long, value_name = "N", default_value_t = limits::TASKS_MAX_DEFAULT as u32,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_tasks: u32,

    /// The reaction to SIGTERM, SIGINT, SIGHUP, SIGQUIT and the warnings of batch systems
    /// (SIGXCPU, SIGUSR1, SIGUSR2, SIGPWR): leave the machine, which ends the tasks on this host;
    /// or drain first: all tasks move to other hosts, and those that have not moved after --grace
    /// end; or suspend: drain first, and suspend the application of each task that cannot move
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnTerm::Leave)]
    pub on_term: OnTerm,

    /// Bound on the time of a drain at SIGTERM; leaving comes after it, and takes up to 10 s.
    /// Seconds
    #[arg(long, value_name = "SECONDS",
          default_value_t = limits::DRAIN_GRACE_DEFAULT.as_secs() as u32)]
    pub grace: u32,

    /// How long applications that cannot move stay suspended when this host drains (--on-term
    /// suspend, vm drain --suspend); after that they have ended, and their checkpoints stay.
    /// Seconds [default: until they are resumed]
    #[arg(long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=limits::SUSPENDED_FOR_MAX.as_secs()))]
    pub suspended_for: Option<u64>,

    /// Working folder of this host. Tasks that programs spawn without a working folder start in it,
    /// and open files of a moved task below the working folder of its former host are looked for
    /// below this one. `vm run` and `vm spawn` set the folder in which vm runs, or --cwd. Give each
    /// daemon a folder of its own, or none [default: tasks start in the folder in which the daemon
    /// started; files keep their names]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,

    /// Folder for checkpoints, made with the first one. All daemons of the machine use the same
    /// folder, on a disk that they share, unless each has --store-local [default: DIR/store, if
    /// --dir or $VM_DIR is given; else vm/store in $XDG_STATE_HOME, or in ~/.local/state, which
    /// outlives logins; with --store-local vm/store-local/NAME there]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,

    /// The folder of --store is on this host's own disk: a second host gets a copy of each part, so
    /// that the loss of one host loses no checkpoint. Give this option to every daemon of the
    /// machine, or to none
    #[arg(long)]
    pub store_local: bool,

    /// Make no more checkpoints while the folder of --store holds this number of bytes; existing
    /// checkpoints stay [default: as many as fit on the disk]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub store_quota: Option<u64>,

    /// Also copy each checkpoint to this bucket of an object store (S3 or compatible), and restart
    /// from the bucket what the folder has lost. Give this option to every daemon of the machine.
    /// Credentials are taken from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    /// AWS_SESSION_TOKEN, AWS_REGION. Not with --store-local
    #[arg(
        long,
        value_name = "s3://BUCKET/PREFIX",
        conflicts_with = "store_local"
    )]
    pub store_bucket: Option<String>,

    /// The server of the bucket, as https://HOST:PORT [default: the service of Amazon]
    #[arg(long, value_name = "URL", requires = "store_bucket")]
    pub store_endpoint: Option<String>,

    /// Folders in which programs are looked up, before those of $PATH; may be given several times
    #[arg(long, value_name = "DIR[:DIR...]", value_delimiter = ':')]
    pub path: Vec<PathBuf>,

    /// Go to the background once the daemon is ready; the log goes to DIR/vmd.log
    #[arg(long)]
    pub detach: bool,

    /// Write the log to this file [default: standard error; with --detach, DIR/vmd.log]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Size at which the log file is renamed to FILE.old and begun anew
    #[arg(long, value_name = "BYTES", default_value_t = LOG_BYTES_DEFAULT,
          value_parser = clap::value_parser!(u64).range(LOG_BYTES_MIN..))]
    pub log_bytes: u64,

    /// Do not encrypt the bytes after the handshake, on a trusted network; all daemons of the
    /// machine must have the same setting
    #[arg(long)]
    pub unencrypted_links: bool,

    /// Set for the daemon that `vmd --detach` has started
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// The effect of a signal that asks the daemon to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnTerm {
    /// Leave at once: tasks on this host end.
    Leave,
    /// First move the tasks of this host to other hosts.
    Drain,
    /// Drain, and suspend the application of each task that cannot be moved.
    Suspend,
}

/// The address part of --listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// An address; the unspecified address means all.
    Ip(IpAddr),
    /// A name, which is resolved.
    Name(String),
}

/// The value of --listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address or name.
    pub at: Where,
    /// First and last port to try; 0 alone: any free port.
    pub ports: (u16, u16),
}

/// The text is not `ADDR:PORT` or `ADDR:PORT-PORT` with an address or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "write it as ADDR:PORT or ADDR:PORT-PORT with an address or a name, such as 0.0.0.0:7170, \
     [::]:7170-7199 or node1:7170"
)]
pub struct ListenError;

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let (address, ports) = text.rsplit_once(':').ok_or(ListenError)?;
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| text.parse::<u16>().map_err(|_| ListenError);
        let (first, last) = (port(first)?, port(last)?);
        if last < first || (first == 0 && last != 0) {
            return Err(ListenError);
        }
        // Parsed as a socket address, so that an IPv6 address needs its brackets.
        let at = match format!("{address}:{first}").parse::<SocketAddr>() {
            Ok(start) => Where::Ip(start.ip()),
            Err(_) if is_name(address) => Where::Name(address.to_owned()),
            Err(_) => return Err(ListenError),
        };
        Ok(Listen {
            at,
            ports: (first, last),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Where::Ip(ip) => write!(f, "{}", SocketAddr::new(*ip, self.ports.0))?,
            Where::Name(name) => write!(f, "{name}:{}", self.ports.0)?,
        }
        if self.ports.1 != self.ports.0 {
            write!(f, "-{}", self.ports.1)?;
        }
        Ok(())
    }
}

/// Whether the text may be the name of a computer: its last part is not a number, as the last part
/// of an IPv4 address is.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    text.chars().all(fits) && last.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Checks a host's name: the name is part of commands, of file names and of output in columns.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.is_empty() || text.len() > limits::NAME_MAX || !text.chars().all(fits) {
        return Err(format!(
            "use 1 to {} of the characters a-z, A-Z, 0-9, '.', '-' and '_'",
            limits::NAME_MAX
        ));
    }
    Ok(text.to_owned())
}

/// The name of this host: the one that the user gave, or the computer's.
///
/// # Errors
/// When the computer's name cannot be the name of a host.
pub fn host_name(args: &Args) -> anyhow::Result<String> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    parse_name(&name).map_err(|why| {
        anyhow::anyhow!("the computer's name '{name}' is no host name: {why}; give one with --name")
    })
}

/// The working folder of this host, if it has one.
///
/// # Errors
/// When it is not a folder, or its path is not UTF-8, which other daemons need.
pub fn work_dir(args: &Args) -> anyhow::Result<Option<String>> {
    let Some(given) = &args.work_dir else {
        return Ok(None);
    };
    let shown = given.display();
    let whole = given
        .canonicalize()
        .with_context(|| format!("--work-dir {shown}"))?;
    ensure!(whole.is_dir(), "--work-dir {shown} is no folder");
    let text = whole.to_str().filter(|text| *text != "/");
    let text =
        text.with_context(|| format!("--work-dir {shown}: give a folder below /, in UTF-8"))?;
    let max = limits::WORK_DIR_MAX;
    ensure!(
        text.len() <= max,
        "--work-dir {shown} is longer than {max} bytes"
    );
    Ok(Some(text.to_owned()))
}

fn parse_host_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) => {
            Ok(text.to_owned())
        }
        _ => Err("write it as HOST:PORT, such as node1:7170".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["vmd"], words].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn everything_has_a_default() {
        let args = parse(&[]).expect("no argument is required");
        assert_eq!(args.listen.to_string(), LISTEN_DEFAULT);
        assert!(args.join.is_none() && args.dir.is_none() && !args.detach);
    }

    #[test]
    fn listen_takes_a_port_or_a_range() {
        let listen = |text: &str| text.parse::<Listen>().map(|listen| listen.ports);
        assert_eq!(listen("127.0.0.1:0"), Ok((0, 0)));
        assert_eq!(listen("127.0.0.1:7170"), Ok((7170, 7170)));
        assert_eq!(listen("[::1]:7170-7180"), Ok((7170, 7180)));
        assert_eq!(listen("node1:7170-7180"), Ok((7170, 7180)));
        assert_eq!(listen("node1.example.org:0"), Ok((0, 0)));
        for bad in [
            "",
            "7170",
            ":1",
            "1.2.3:1",
            "two words:1",
            "::1:7170-1",
            "1.2.3.4:9-8",
            "1.2.3.4:70000",
            "1.2.3.4:0-5",
        ] {
            assert_eq!(listen(bad), Err(ListenError), "{bad}");
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        for (words, says) in [
            (&["--listen", "here"][..], "0.0.0.0:7170"),
            (&["--join", "node1"], "HOST:PORT"),
            (&["--name", "two words"], "characters"),
            (&["--log-bytes", "5"], "65536"),
        ] {
            let error = parse(words).expect_err("a bad value").to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn program_folders_may_be_given_in_both_ways() {
        let args = parse(&["--path", "/a:/b", "--path", "/c"]).expect("folders");
        assert_eq!(args.path, ["/a", "/b", "/c"].map(PathBuf::from));
    }

    #[test]
    fn a_working_folder_is_an_existing_folder_below_the_root() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let file = temp.path().join("file");
        std::fs::write(&file, "").expect("a file");
        let of = |path: &std::path::Path| {
            let args = parse(&["--work-dir", path.to_str().expect("text")]).expect("good words");
            work_dir(&args).map_err(|error| error.to_string())
        };
        let whole = temp.path().canonicalize().expect("it is there");
        let below = temp.path().join(".");
        assert_eq!(of(&below).ok().flatten().as_deref(), whole.to_str());
        for (path, why) in [
            (file.as_path(), "no folder"),
            (&file.join("x"), "--work-dir"),
            (std::path::Path::new("/"), "below /"),
        ] {
            let error = of(path).expect_err("it is none");
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(work_dir(&parse(&[]).expect("good words")).ok(), Some(None));
    }
}
