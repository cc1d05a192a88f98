//! Programs in other languages, compiled against the installed C library as users do it.

use super::binaries::{self, binary};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
};

/// The C library, installed in the folder of the build, and the programs that were compiled with it.
#[derive(Debug)]
pub struct Installed {
    prefix: PathBuf,
    /// By compiler and source.
    compiled: Mutex<BTreeMap<(String, String), PathBuf>>,
}

/// The library, which is installed once by each test process.
///
/// # Panics
/// If it cannot be installed.
pub fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = binaries::folder().join("c-library");
        output_of(Command::new(binary("vm-c-install")).arg(&prefix));
        Installed {
            prefix,
            compiled: Mutex::default(),
        }
    })
}

impl Installed {
    /// The prefix of the installation.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The program of one source, a path from the folder of the workspace; it is compiled once, with these
    /// options.
    ///
    /// # Panics
    /// If the compiler fails: every warning is an error.
    pub fn program(&self, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let program = compiled
            .entry((compiler.to_owned(), source.to_owned()))
            .or_insert_with(|| self.compile(compiler, source, options));
        program.clone()
    }

    fn compile(&self, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(source);
        let stem = source.file_stem().expect("a file").to_string_lossy();
        let program = self.prefix.join(format!("{stem}-{compiler}"));
        let mut compile = Command::new(compiler);
        compile
            .args(["-Wall", "-Wextra", "-Werror", "-O1"])
            .args(options)
            .arg("-o")
            .arg(&program)
            .arg(source)
            .args(self.flags())
            .arg(format!("-Wl,-rpath,{}", self.prefix.join("lib").display()));
        output_of(&mut compile);
        program
    }

    /// What `pkg-config` says of the library.
    fn flags(&self) -> Vec<String> {
        let mut ask = Command::new("pkg-config");
        ask.args(["--cflags", "--libs", "vm"]);
        ask.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        let flags = output_of(&mut ask);
        flags.split_whitespace().map(str::to_owned).collect()
    }
}

/// The output of a command, which must succeed.
fn output_of(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; see .ci/run"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
