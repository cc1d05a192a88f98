//! Words that stand for something in the machine: their form is checked here, before any daemon is
//! asked; whether the thing exists, only the daemon knows.

use std::str::FromStr;
use vm_store::CheckpointId;
use vm_wire::{MachineId, Tid, id::TidError};

/// A tid as typed: well formed, but of a machine that is known only once a daemon has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TidArg(String);

impl TidArg {
    /// The task, as seen from a console of `machine`.
    pub fn resolve(&self, machine: MachineId) -> Result<Tid, TidError> {
        Tid::parse(&self.0, machine)
    }
}

impl FromStr for TidArg {
    type Err = TidError;

    fn from_str(text: &str) -> Result<Self, TidError> {
        Tid::parse(text, MachineId::from_bits(0)).map(|_| TidArg(text.to_owned()))
    }
}

/// An application: by its master, or as it is called in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppArg {
    /// Its master.
    Master(TidArg),
    /// It, as known from its name.
    Named(Tid),
}

impl FromStr for AppArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match vm_store::name::parse_app(text) {
            Some(app) => Ok(AppArg::Named(app)),
            None => text.parse().map(AppArg::Master).map_err(|_: TidError| {
                "an application is called by its master, as t1.1, or as `vm checkpoints` shows it"
                    .to_owned()
            }),
        }
    }
}

pub(super) fn stored_app(text: &str) -> Result<Tid, String> {
    vm_store::name::parse_app(text)
        .ok_or_else(|| "write the application as `vm checkpoints` shows it".to_owned())
}

pub(super) fn checkpoint_id(text: &str) -> Result<CheckpointId, String> {
    CheckpointId::parse(text).ok_or_else(|| "a checkpoint is called like g0-e2".to_owned())
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

pub(super) fn not_elsewhere(host: &str) -> Result<String, String> {
    Err(format!(
        "run starts a program where its console is; use 'vm spawn --on {host}', or run 'vm' there"
    ))
}

/// A host that begins with a dash would reach the launcher as one of its options.
pub(super) fn launch_host(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) {
        return Err("a host's name is not empty, has no blanks and no dash before it".to_owned());
    }
    Ok(text.to_owned())
}
