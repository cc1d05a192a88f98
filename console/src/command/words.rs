//! Words that stand for something in the machine. Their form is checked here, before any request;
//! only the daemon knows whether the thing exists.

use std::str::FromStr;
use vm_store::CheckpointId;
use vm_wire::{MachineId, Tid, id::TidError};

/// A tid as typed: well formed. A short tid is complete once the machine of the daemon is known.
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

/// An application: by its master, or by its name in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppArg {
    /// Its master.
    Master(TidArg),
    /// Its master's tid, read from its name in the store.
    Named(Tid),
}

impl FromStr for AppArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match vm_store::name::parse_app(text) {
            Some(app) => Ok(AppArg::Named(app)),
            None => text.parse().map(AppArg::Master).map_err(|_: TidError| {
                "give the application's master, as t1.1, or its name, as `vm checkpoints` shows it"
                    .to_owned()
            }),
        }
    }
}

pub(super) fn stored_app(text: &str) -> Result<Tid, String> {
    vm_store::name::parse_app(text)
        .ok_or_else(|| "give the application's name, as `vm checkpoints` shows it".to_owned())
}

pub(super) fn checkpoint_id(text: &str) -> Result<CheckpointId, String> {
    CheckpointId::parse(text).ok_or_else(|| "give the checkpoint's name, as g0-e2".to_owned())
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

/// The launcher would take a host that begins with a dash for an option.
pub(super) fn launch_host(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) {
        return Err(
            "a host's name must not be empty, contain blanks or begin with a dash".to_owned(),
        );
    }
    Ok(text.to_owned())
}
