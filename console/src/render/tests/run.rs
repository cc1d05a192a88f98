//! A program that runs at this console.

use super::*;
use vm_wire::{agreed::ExitStatus, console::Output};

#[test]
fn a_run_is_shown_in_both_ways() {
    let output = Output {
        tid: tid(1, 1),
        stream: 1,
        bytes: b"hello\n".to_vec().into(),
        dropped: 0,
    };
    assert_both([
        (
            Event::RunStarted(tid(1, 1)),
            "",
            r#"{"event":"started","tid":"t1.1"}"#,
        ),
        (
            Event::RunOutput {
                master: tid(1, 1),
                output: &output,
            },
            "hello\n",
            r#"{"dropped":0,"event":"output","stream":1,"text":"hello\n","tid":"t1.1"}"#,
        ),
        (
            Event::RunEnded(tid(1, 1), Some(ExitStatus::Code(0))),
            "",
            r#"{"code":0,"event":"ended","status":"exited with code 0","tid":"t1.1"}"#,
        ),
        (
            Event::RunEnded(tid(1, 1), Some(ExitStatus::Signal(9))),
            "",
            r#"{"code":137,"event":"ended","status":"killed by signal 9","tid":"t1.1"}"#,
        ),
    ]);
}

#[test]
fn lines_of_others_than_the_master_begin_with_their_tid() {
    let output = |tid, bytes: &[u8], dropped| Output {
        tid,
        stream: 2,
        bytes: bytes.to_vec().into(),
        dropped,
    };
    let master = tid(1, 1);
    for (raw, expected) in [
        (false, "[t2.1] a\n[t2.1] b\n[t2.1] c\nas it is"),
        (true, "[t2.1] a\r\n[t2.1] b\r\n[t2.1] c\r\nas it is"),
    ] {
        let (mut renderer, out, errors) = renderer(Audience::People);
        renderer.set_raw_terminal(raw);
        for output in [
            output(tid(2, 1), b"a\nb\n", 0),
            output(tid(2, 1), b"c", 0),
            output(master, b"as it is", 0),
        ] {
            let event = Event::RunOutput {
                master,
                output: &output,
            };
            renderer.show(&event).unwrap();
        }
        assert_eq!(out.text(), "");
        assert_eq!(errors.text(), expected);
    }
    let (mut renderer, _, errors) = renderer(Audience::People);
    let output = output(tid(2, 1), b"late\n", 77);
    let event = Event::RunOutput {
        master,
        output: &output,
    };
    renderer.show(&event).unwrap();
    assert_eq!(
        errors.text(),
        "vm: 77 bytes of t2.1's output were dropped here\n[t2.1] late\n"
    );
}
