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
    /// By the form of the library, compiler and source.
    compiled: Mutex<BTreeMap<(Library, String, String), PathBuf>>,
}

/// A form of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    /// `libvm.so`, which the program loads at its start.
    Shared,
    /// `libvm.a`, which becomes a part of the program.
    Static,
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
        self.linked(Library::Shared, compiler, source, options)
    }

    /// Like [`Installed::program`], linked with the library in that form.
    ///
    /// # Panics
    /// If the compiler fails: every warning is an error.
    pub fn linked(
        &self,
        library: Library,
        compiler: &str,
        source: &str,
        options: &[&str],
    ) -> PathBuf {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let program = compiled
            .entry((library, compiler.to_owned(), source.to_owned()))
            .or_insert_with(|| self.compile(library, compiler, source, options));
        program.clone()
    }

    fn compile(&self, library: Library, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(source);
        let stem = source.file_stem().expect("a file").to_string_lossy();
        let program = format!("{stem}-{compiler}-{library:?}").to_lowercase();
        let program = self.prefix.join(program);
        let mut compile = Command::new(compiler);
        compile
            .args(["-Wall", "-Wextra", "-Werror", "-O1"])
            .args(options)
            .arg("-o")
            .arg(&program)
            .arg(source)
            .args(self.flags(library));
        output_of(&mut compile);
        program
    }

    /// The options by which a program is linked with the library, from `pkg-config`.
    fn flags(&self, library: Library) -> Vec<String> {
        let lib = self.prefix.join("lib");
        let mut ask = Command::new("pkg-config");
        ask.args(["--cflags", "--libs", "vm"]);
        if library == Library::Static {
            ask.arg("--static");
        }
        ask.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
        let flags = output_of(&mut ask);
        let flags = flags.split_whitespace().map(str::to_owned);
        match library {
            Library::Shared => {
                let path = format!("-Wl,-rpath,{}", lib.display());
                flags.chain([path]).collect()
            }
            Library::Static => {
                let archive = lib.join("libvm.a").display().to_string();
                let named = |flag: String| {
                    if flag == "-lvm" {
                        archive.clone()
                    } else {
                        flag
                    }
                };
                flags.map(named).collect()
            }
        }
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
