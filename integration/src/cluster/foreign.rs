//! A host of another architecture: aarch64, emulated by qemu, with programs that Debian's compiler
//! builds for it.
//!
//! The daemon and its tasks are programs of aarch64. The kernel hands them to the emulator by a
//! registration (binfmt_misc). The registration belongs to one user namespace and ends with it, so
//! the host under the tests does not change. `.ci/run` installs the emulator and the compiler.

use super::{Cluster, binaries};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The name of the architecture, as its hosts report it.
pub const ARCH: &str = "aarch64";
const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "/usr/bin/aarch64-linux-gnu-gcc";
/// The compiler of Debian, because its library for that target can be installed.
const RUSTC: &str = "/usr/bin/rustc";
const EMULATOR: &str = "/usr/bin/qemu-aarch64-static";
/// Mounts a binfmt_misc of the namespace, registers the emulator, and becomes the program.
const ENTER: &str = r#"set -e
mkdir -p "$1"
mount -t binfmt_misc none "$1"
zero='\x00\x00\x00\x00\x00\x00\x00\x00'
ones='\xff\xff\xff\xff\xff\xff\xff'
printf '%s' ":vm-aarch64:M::\x7fELF\x02\x01\x01\x00$zero\x02\x00\xb7\x00:$ones\x00$ones\xff\xfe\xff\xff\xff:$2:F" >"$1/register"
shift 2
exec "$@"
"#;

static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// The folder with the daemon and the example `collatz` for that architecture. `None` if they
/// cannot be built or run here; the reason goes to standard error.
pub fn programs() -> Option<&'static Path> {
    match BUILT.get_or_init(build) {
        Ok(folder) => Some(folder),
        Err(why) => {
            eprintln!("skipped: no programs of {ARCH} here: {why}; see .ci/run");
            None
        }
    }
}

fn build() -> Result<PathBuf, String> {
    let library = format!("/usr/lib/rustlib/{TARGET}");
    for needed in [RUSTC, LINKER, EMULATOR, &library] {
        if !Path::new(needed).exists() {
            return Err(format!("there is no {needed}"));
        }
    }
    let mut entered = enter(
        &std::env::temp_dir().join("vm-binfmt"),
        Path::new("/bin/true"),
    );
    match entered.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => return Err(format!("unshare: {error}")),
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = vm_examples::cluster::cargo();
    build
        .args([
            "build",
            "--quiet",
            "--message-format=json",
            "--target",
            TARGET,
        ])
        // Emulated programs gain little from optimisation, and the build is faster without it.
        .args(["--config", "profile.dev.package.\"*\".opt-level=1"])
        .args([
            "-p",
            "vmd",
            "--bin",
            "vmd",
            "-p",
            "vm-examples",
            "--bin",
            "collatz",
        ])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(binaries::folder().join("..").join(ARCH))
        .env("RUSTC", RUSTC)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env_remove("RUSTUP_TOOLCHAIN")
        .stderr(Stdio::inherit());
    let output = build.output().map_err(|error| error.to_string())?;
    assert!(
        output.status.success(),
        "the programs of {ARCH} do not build"
    );
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let messages = messages.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let mut built = messages.filter_map(|message| {
        let path = PathBuf::from(message.get("executable")?.as_str()?);
        (path.file_name()? == "vmd").then_some(path)
    });
    let vmd = built.next().expect("the daemon was built");
    Ok(vmd.parent().expect("a file is in a folder").to_owned())
}

/// A command that runs a program of that architecture.
fn enter(mounted: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--",
            "sh",
            "-c",
            ENTER,
            "sh",
        ])
        .args([mounted, Path::new(EMULATOR), program]);
    command
}

impl Cluster {
    /// Starts a daemon of that architecture, with the programs in `programs`, and waits until its
    /// host is in the machine. Returns its index.
    ///
    /// # Panics
    /// When it does not start.
    pub fn add_foreign(&mut self, programs: &Path) -> usize {
        let name = format!("n{}", self.nodes.len() + 1);
        let like = self.command(&name, &[]);
        let mounted = self.folder().join("binfmt");
        let mut command = enter(&mounted, &programs.join("vmd"));
        // The arguments of another daemon, except the folder of its programs.
        let mut words = like.get_args();
        while let Some(word) = words.next() {
            if word == "--path" {
                words.next();
            } else {
                command.arg(word);
            }
        }
        command.arg("--path").arg(programs);
        self.add_node(name, command)
    }
}
