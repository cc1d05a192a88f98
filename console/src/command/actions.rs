//! The commands of `store` and of `image`.

use super::{
    map::Map,
    words::{AppArg, checkpoint_id},
};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use vm_store::CheckpointId;

/// What can be done with a bucket.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Copy to the bucket what is in the folder and not yet there; return when all of it is.
    Push {
        /// Between which.
        #[command(flatten)]
        between: Between,
    },
    /// Bring the last checkpoint of an application, or that one, into the folder, and verify it.
    Pull {
        /// Its master, or its name in the store.
        #[arg(value_name = "APPLICATION")]
        app: AppArg,
        /// Which of its checkpoints; otherwise the last one that is undamaged.
        #[arg(long, value_name = "CHECKPOINT", value_parser = checkpoint_id)]
        from: Option<CheckpointId>,
        /// Between which.
        #[command(flatten)]
        between: Between,
    },
    /// List the checkpoints that are in the bucket.
    List {
        /// Between which.
        #[command(flatten)]
        between: Between,
    },
    /// Show the manual page of one of these, or the list of them.
    Help {
        /// Which.
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
    /// The bucket, as s3://BUCKET/PREFIX; otherwise that of the folder (vmd --store-bucket).
    #[arg(long, value_name = "URL")]
    pub bucket: Option<String>,
    /// Who is asked for it, as https://HOST:PORT; otherwise the service of Amazon.
    #[arg(long, value_name = "URL", requires = "bucket")]
    pub endpoint: Option<String>,
}

/// What can be done with an image. None of it needs a daemon.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// Have a running process save itself to a file. It was started with the library in it.
    Save {
        /// Most is written while it runs; it stands still for what is left.
        #[arg(long)]
        rounds: bool,
        /// A copy of it writes, or writes what is left, while it goes on.
        #[arg(long)]
        forked: bool,
        /// It ends when the image is whole and has its name.
        #[arg(long)]
        exit: bool,
        /// The image has the content of the files that it has open.
        #[arg(long)]
        carry: bool,
        /// Its process id.
        #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        /// Where the image goes. What has this name is replaced when the image is whole.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show what is in an image, which hosts it is good for, and whether this one is among them.
    Info {
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Read all of an image: it is whole, and what it needs of a host, or where it is damaged.
    Verify {
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Verify an image, then become its process: with this terminal, its signals, its exit code.
    Run {
        /// Files that it had open for writing become what they were at the save.
        #[arg(long)]
        roll_back_files: bool,
        /// Files and the working folder below OLD are looked for below NEW; may be given again.
        #[arg(long, value_name = "OLD=NEW")]
        map: Vec<Map>,
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show the manual page of one of these, or the list of them.
    Help {
        /// Which.
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
