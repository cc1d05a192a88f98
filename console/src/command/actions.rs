//! The commands of `store` and of `image`.

use super::{
    map::Map,
    words::{AppArg, checkpoint_id},
};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use vm_store::CheckpointId;

/// The commands on the bucket of a store.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Copy to the bucket what only the folder has; return when the bucket has all of it.
    Push {
        /// The folder and the bucket.
        #[command(flatten)]
        between: Between,
    },
    /// Fetch the last checkpoint of an application, or a given one, into the folder, and verify it.
    Pull {
        /// The application: its master, or its name in the store.
        #[arg(value_name = "APPLICATION")]
        app: AppArg,
        /// Which of its checkpoints; otherwise the last one that is undamaged.
        #[arg(long, value_name = "CHECKPOINT", value_parser = checkpoint_id)]
        from: Option<CheckpointId>,
        /// The folder and the bucket.
        #[command(flatten)]
        between: Between,
    },
    /// List the checkpoints that are in the bucket.
    List {
        /// The folder and the bucket.
        #[command(flatten)]
        between: Between,
    },
    /// Show the manual page of one of these commands, or the list of them.
    Help {
        /// The command.
        #[arg(value_name = "ACTION")]
        action: Option<String>,
    },
}

/// A folder and a bucket.
#[derive(Debug, Args)]
pub struct Between {
    /// The folder of the store; otherwise that of the daemon here.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// The bucket, as s3://BUCKET/PREFIX; otherwise that of the store (vmd --store-bucket).
    #[arg(long, value_name = "URL")]
    pub bucket: Option<String>,
    /// The server of the bucket, as https://HOST:PORT; otherwise the service of Amazon.
    #[arg(long, value_name = "URL", requires = "bucket")]
    pub endpoint: Option<String>,
}

/// The commands on images. None needs a daemon.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// Have a running process save itself to a file. It must have been started with the library.
    Save {
        /// Write most of the memory while the process runs; it is frozen for the rest.
        #[arg(long)]
        rounds: bool,
        /// Have a copy of the process write the image, or the rest, while the process runs.
        #[arg(long)]
        forked: bool,
        /// End the process when the image is whole and has its name.
        #[arg(long)]
        exit: bool,
        /// Include the content of the files that the process has open.
        #[arg(long)]
        carry: bool,
        /// The process id.
        #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        /// The file of the image. A file of this name is replaced when the image is whole.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show what is in an image, and whether its process can be restored on this host.
    Info {
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Read a whole image, and show what it needs of a host, or where it is damaged.
    Verify {
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Verify an image, then become its process: with this terminal, signals and exit code.
    Run {
        /// Roll back the files that the process had open for writing.
        #[arg(long)]
        roll_back_files: bool,
        /// Look for files and the working directory below OLD below NEW. May be repeated.
        #[arg(long, value_name = "OLD=NEW")]
        map: Vec<Map>,
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show the manual page of one of these commands, or the list of them.
    Help {
        /// The command.
        #[arg(value_name = "ACTION")]
        action: Option<String>,
    },
}

impl ImageAction {
    /// The image, if one is to be read.
    pub fn file(&self) -> Option<&Path> {
        match self {
            ImageAction::Info { file }
            | ImageAction::Verify { file }
            | ImageAction::Run { file, .. } => Some(file),
            ImageAction::Save { .. } | ImageAction::Help { .. } => None,
        }
    }
}
