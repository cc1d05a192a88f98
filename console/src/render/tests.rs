//! A sample machine, shown to people and to programs.

mod checkpoints;
mod hosts;
mod moves;
mod run;
mod store;
mod tasks;

use super::*;
use crate::fake::{self, HERE, tid};
use std::{cell::RefCell, rc::Rc};
use vm_wire::{
    HostId, Tid,
    agreed::HostFacts,
    console::{Conf, HostRow, HostState, TaskRow},
};

/// A writer whose bytes a test can see.
#[derive(Clone, Default)]
pub struct Seen(Rc<RefCell<Vec<u8>>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seen {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }
}

/// A renderer, and what it writes as result and as error.
pub fn renderer(audience: Audience) -> (Renderer, Seen, Seen) {
    let (out, errors) = (Seen::default(), Seen::default());
    let mut renderer = Renderer::new(audience, Box::new(out.clone()), Box::new(errors.clone()));
    renderer.set_machine(HERE);
    (renderer, out, errors)
}

fn shown(audience: Audience, event: &Event) -> String {
    let (mut renderer, out, _) = renderer(audience);
    renderer.show(event).unwrap();
    out.text()
}

/// Each event as people see it, and as programs do, without the end of the line.
fn assert_both<'a>(expected: impl IntoIterator<Item = (Event<'a>, &'a str, &'a str)>) {
    for (event, people, programs) in expected {
        assert_eq!(shown(Audience::People, &event), people);
        assert_eq!(shown(Audience::Programs, &event), format!("{programs}\n"));
    }
}

fn conf() -> Conf {
    let host = |number: u16, name: &str, state, voter, tasks| HostRow {
        host: HostId(number),
        facts: HostFacts {
            name: name.to_owned(),
            addr: format!("10.0.0.{number}:7000"),
            cpus: 2,
            tasks_max: 4096,
            arch: "x86_64".to_owned(),
            store_local: false,
        },
        tasks,
        voter,
        state,
    };
    Conf {
        machine: HERE,
        here: HostId(2),
        leader: HostId(1),
        applied: 41,
        store: "/var/vm/store".to_owned(),
        hosts: vec![
            host(1, "alpha", HostState::Live, true, 3),
            host(2, "beta", HostState::Live, false, 0),
            host(3, "gamma-with-a-long-name", HostState::Dead, false, 0),
        ],
        links_down: vec![(HostId(1), HostId(2))],
    }
}

#[test]
fn an_announcement_is_not_written_to_standard_output() {
    for (audience, expected) in [
        (Audience::People, "vm: started\n"),
        (
            Audience::Programs,
            "{\"notice\":{\"kind\":\"Kind\",\"text\":\"started\"}}\n",
        ),
    ] {
        let (mut renderer, out, errors) = renderer(audience);
        renderer.announce("Kind", "started").unwrap();
        assert_eq!(
            (out.text().as_str(), errors.text().as_str()),
            ("", expected)
        );
    }
}

#[test]
fn a_failure_is_not_written_to_standard_output() {
    for (audience, expected) in [
        (Audience::People, "vm: no task t9.9\n"),
        (
            Audience::Programs,
            "{\"error\":{\"kind\":\"NoSuchTask\",\"text\":\"no task t9.9\"}}\n",
        ),
    ] {
        let (mut renderer, out, errors) = renderer(audience);
        renderer.failure("NoSuchTask", "no task t9.9").unwrap();
        assert_eq!(
            (out.text().as_str(), errors.text().as_str()),
            ("", expected)
        );
    }
}

#[test]
fn control_characters_in_names_and_errors_are_escaped() {
    let row = TaskRow {
        tid: tid(1, 1),
        parent: Tid::NONE,
        app: tid(1, 1),
        host: "alpha".to_owned(),
        incarnation: 1,
        program: "a\u{1b}[31m\u{7}\r\nb\u{9b}".to_owned(),
        usage: None,
        suspended: false,
    };
    let rows = [row];
    let text = shown(Audience::People, &Event::Tasks(&rows, &[]));
    assert!(
        text.contains(r"a\u{1b}[31m\u{7}\u{d}\u{a}b\u{9b}"),
        "{text}"
    );
    let (mut renderer, _, errors) = renderer(Audience::People);
    renderer
        .failure("Kind", "no program '\u{1b}]0;x\u{7}'")
        .unwrap();
    renderer.notice("\u{1b}c").unwrap();
    let commands = |letter: char| letter.is_control() && letter != '\n';
    for text in [text, errors.text()] {
        assert!(!text.contains(commands), "{text:?}");
    }
}
