//! Generates the message types of the Raft crate, in place of the crate of this name on crates.io.
//!
//! The build script of `rmqtt-raft-proto` calls [`Builder`]. The published `rmqtt-protobuf-build`
//! compiles Google's `protoc` from C++ source for it, which takes longer than this whole workspace.
//! `protobuf-codegen` has a parser in Rust that accepts the same file and generates the same types.
//!
//! Only build scripts use this crate: a failure ends the build, so each one panics with its cause.

use std::{env, fs, path::PathBuf};

/// The settings of the build script.
#[derive(Debug, Default)]
pub struct Builder {
    protos: Vec<PathBuf>,
    includes: Vec<PathBuf>,
}

impl Builder {
    /// A builder without files.
    pub fn new() -> Self {
        Builder::default()
    }

    /// Takes every file of a folder.
    ///
    /// # Panics
    /// When the folder cannot be read.
    pub fn search_dir_for_protos(&mut self, folder: &str) -> &mut Self {
        let entries = fs::read_dir(folder).expect("the folder of the message definitions");
        let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
        self.protos = paths.filter(|path| path.is_file()).collect();
        self.protos.sort();
        self
    }

    /// The folders in which imports are looked for. Those that do not exist are left out.
    pub fn includes(&mut self, folders: &[String]) -> &mut Self {
        let folders = folders.iter().map(PathBuf::from);
        self.includes = folders.filter(|folder| folder.is_dir()).collect();
        self
    }

    /// Adds the folder with the options of the generator. The common definitions are in the parser.
    pub fn include_google_protos(&mut self) -> &mut Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
        self.includes.push(PathBuf::from(folder));
        self
    }

    /// Writes one module for each file, and `mod.rs`, to `$OUT_DIR/protos`.
    ///
    /// # Panics
    /// When a file cannot be read, parsed or written.
    pub fn generate(&self) {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR, which cargo sets"));
        let out = out.join("protos");
        fs::create_dir_all(&out).expect("the folder of the generated modules");
        let customize = protobuf_codegen::Customize::default().generate_accessors(true);
        protobuf_codegen::Codegen::new()
            .pure()
            .includes(&self.includes)
            .inputs(&self.protos)
            .customize(customize)
            .out_dir(&out)
            .run()
            .expect("the message definitions become modules");
    }
}
