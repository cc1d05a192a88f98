//! Releases and protocols.

use crate::ask::DaemonFacts;
use serde_json::{Value, json};
use vm_wire::version;

pub(super) fn text(daemon: Option<&DaemonFacts>) -> String {
    let ours = format!(
        "vm {}, protocol {}\n",
        env!("CARGO_PKG_VERSION"),
        version::CURRENT
    );
    let theirs = match daemon {
        Some(daemon) => format!(
            "vmd {}, protocol {}, host {} of machine {}\n",
            daemon.release, daemon.protocol, daemon.host, daemon.machine
        ),
        None => "no daemon runs here\n".to_owned(),
    };
    ours + &theirs
}

pub(super) fn json(daemon: Option<&DaemonFacts>) -> Value {
    json!({
        "release": env!("CARGO_PKG_VERSION"),
        "protocol": version::CURRENT,
        "daemon": daemon.map(|daemon| json!({
            "release": daemon.release,
            "protocol": daemon.protocol,
            "machine": daemon.machine.to_string(),
            "host": daemon.host.to_string(),
        })),
    })
}
