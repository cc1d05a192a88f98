//! A program that runs at this console.

use crate::{exit, signal_name};
use serde_json::{Value, json};
use vm_wire::{MachineId, Tid, agreed::ExitStatus, console::Output};

/// The output of a task of the run, as it is written to the terminal. The master's bytes are not
/// changed; each line of another task begins with its tid.
pub(super) fn output_bytes(
    machine: MachineId,
    master: Tid,
    output: &Output,
    raw_terminal: bool,
) -> Vec<u8> {
    let end: &[u8] = if raw_terminal { b"\r\n" } else { b"\n" };
    let mut bytes = Vec::with_capacity(output.bytes.len() + 32);
    let tid = output.tid.show(machine);
    if output.dropped > 0 {
        bytes.extend_from_slice(
            format!(
                "vm: {} bytes of {tid}'s output were dropped here",
                output.dropped
            )
            .as_bytes(),
        );
        bytes.extend_from_slice(end);
    }
    if output.tid == master {
        bytes.extend_from_slice(&output.bytes);
        return bytes;
    }
    for line in output.bytes.split_inclusive(|byte| *byte == b'\n') {
        bytes.extend_from_slice(format!("[{tid}] ").as_bytes());
        bytes.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        bytes.extend_from_slice(end);
    }
    bytes
}

pub(super) fn output_json(machine: MachineId, output: &Output) -> Value {
    json!({
        "event": "output",
        "tid": output.tid.show(machine),
        "stream": output.stream,
        "text": String::from_utf8_lossy(&output.bytes),
        "dropped": output.dropped,
    })
}

/// The line that a shell would print about a program that ended with `status`, if any.
pub(super) fn ended_text(
    machine: MachineId,
    tid: Tid,
    status: Option<ExitStatus>,
) -> Option<String> {
    let tid = tid.show(machine);
    let Some(status) = status else {
        return Some(format!(
            "{tid} runs on, but this host leaves the machine: the output goes to the logs of the other \
             hosts, and 'vm ps' there shows {tid}"
        ));
    };
    match status {
        ExitStatus::Left(_) | ExitStatus::Code(_) => None,
        ExitStatus::Signal(libc::SIGINT | libc::SIGPIPE) => None,
        ExitStatus::Signal(signal) => {
            Some(format!("{tid} was ended by {}", signal_name::show(signal)))
        }
        ExitStatus::NotStarted
        | ExitStatus::HostLost
        | ExitStatus::Suspended
        | ExitStatus::Unknown => Some(format!("{tid} {status}")),
        // The reason was shown before. While the application is restarted, its run has not ended.
        ExitStatus::RolledBack => Some(format!("{tid} could not be restarted")),
    }
}

pub(super) fn ended_json(machine: MachineId, master: Tid, status: Option<ExitStatus>) -> Value {
    json!({
        "event": "ended",
        "tid": master.show(machine),
        "status": status.map_or_else(|| "runs on".to_owned(), |status| status.to_string()),
        "code": exit::of_run(status),
    })
}
