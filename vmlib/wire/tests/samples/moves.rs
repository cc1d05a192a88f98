//! Samples of messages about moves, and of frames to coordinators.

use super::{
    checkpoints,
    values::{Visitor, bytes, failed, text, tid},
};
use vm_wire::{
    HostId,
    console::MoveRow,
    coordinator::{CoordinatorReady, Heard, Mail, Serve},
    peer::{
        Belongings, CheckAsk, CheckEnd, DrainAsk, DrainEnd, DrainReport, DrainWay, MoveAbort,
        MoveAsk, MoveCancel, MoveEnd, MoveLoaded, MoveOffer, MoveOrder, MovePhase, MoveProgress,
        MoveReady, MoveRelease, MoveReport, MoveReported, MoveSent, MoveState, MoveWay, Sent,
        TaskAnswer,
    },
    task::{
        CheckTask, Checked, DrainHost, Drained, MoveTask, Moved, ResumeApp, Resumed, SaveApp,
        Saved, SuspendApp, Watched,
    },
};

pub fn drain_report() -> DrainReport {
    DrainReport {
        host: HostId(2),
        total_us: 1_234_567,
        moved_count: 1,
        refused_count: 1,
        saved_count: 2,
        moved: vec![(tid(2, 1), move_report())],
        refused: vec![(tid(2, 2), failed())],
        suspended: vec![tid(1, 1)],
    }
}

pub fn move_row() -> MoveRow {
    MoveRow {
        tid: tid(2, 1),
        from: "node1".to_owned(),
        to: "node2".to_owned(),
        phase: Some(MovePhase::Copying),
        sent: Some(sent()),
    }
}

pub fn sent() -> Sent {
    Sent {
        bytes: 3_000_000,
        memory: 20_000_000,
    }
}

pub fn move_report() -> MoveReport {
    MoveReport {
        from: HostId(1),
        to: HostId(2),
        bytes: 20_000_000,
        total_us: 31_000,
        copied: 4_000_000,
        rounds: 2,
        prepare_us: 100,
        copy_us: 20_000,
        interrupt_us: 50,
        save_us: 4_000,
        transfer_us: 2_600,
        restore_us: 4_000,
        drain_us: 0,
        commit_us: 300,
        sent_again: 7,
    }
}

pub fn moves(visitor: &mut impl Visitor) {
    let (task, incarnation) = (tid(1, 3), 2);
    visitor.message(
        "MoveAsk",
        MoveAsk {
            request: 300,
            tid: task,
            from: HostId(1),
            incarnation: 3,
            generation: 4,
            to: HostId(2),
            way: MoveWay::default(),
        },
    );
    for (name, result) in [
        ("MoveEnd", Ok(move_report())),
        ("MoveEnd.failed", Err(failed())),
    ] {
        visitor.message(
            name,
            MoveEnd {
                request: 300,
                tid: task,
                result,
            },
        );
    }
    visitor.message(
        "MoveOffer",
        MoveOffer {
            tid: task,
            incarnation,
            number: 7,
        },
    );
    let folder = Some("/home/user/work".to_owned());
    for (name, ticket, work_dir) in [
        ("MoveReady", Ok(0x0102_0304_0506_0708), folder),
        ("MoveReady.refused", Err(failed()), None),
    ] {
        visitor.message(
            name,
            MoveReady {
                tid: task,
                incarnation,
                number: 7,
                ticket,
                work_dir,
            },
        );
    }
    for (name, result) in [("MoveLoaded", Ok(())), ("MoveLoaded.failed", Err(failed()))] {
        visitor.message(
            name,
            MoveLoaded {
                tid: task,
                incarnation,
                result,
            },
        );
    }
    visitor.message(
        "MoveRelease",
        MoveRelease {
            tid: task,
            incarnation,
            belongings: Belongings {
                siblings: 8,
                console: HostId(1),
                watches: vec![Watched::Task(tid(1, 1)), Watched::HostAdded],
                asked: 7,
                answer: Some(bytes(b"a frame")),
                awaits: HostId(3),
                told: 3,
                untaken: vec![bytes(b"a notify")],
                hosts: vec![HostId(1), HostId(2)],
                portable: true,
                suspended: Some(checkpoints::suspended_part()),
                work_dir: Some("/work/n1".to_owned()),
            },
        },
    );
    visitor.message(
        "MoveAbort",
        MoveAbort {
            tid: task,
            incarnation,
        },
    );
    drains(visitor);
    calls(visitor);
    let answer = TaskAnswer {
        tid: task,
        incarnation,
        generation: 2,
        request: 303,
        answer: bytes(b"a frame"),
    };
    visitor.message("TaskAnswer", answer);
}

/// Orders between daemons about a drain, and about the check whether a task can be moved.
fn drains(visitor: &mut impl Visitor) {
    for (name, way) in [
        ("DrainAsk", DrainWay::default()),
        (
            "DrainAsk.way",
            DrainWay {
                checkpoint: true,
                suspend: true,
            },
        ),
    ] {
        visitor.message(name, DrainAsk { request: 301, way });
    }
    for (name, result) in [
        ("DrainEnd", Ok(drain_report())),
        ("DrainEnd.failed", Err(failed())),
    ] {
        let request = 301;
        visitor.message(name, DrainEnd { request, result });
    }
    let (request, tid) = (302, tid(1, 3));
    visitor.message("CheckAsk", CheckAsk { request, tid });
    for (name, result) in [
        ("CheckEnd", Ok(vec![text("it has no way back")])),
        ("CheckEnd.failed", Err(failed())),
    ] {
        visitor.message(name, CheckEnd { request, result });
    }
}

/// Requests of tasks, and the replies.
fn calls(visitor: &mut impl Visitor) {
    let tid = tid(1, 3);
    let (to, way) = (Some(text("node2")), MoveWay::default());
    visitor.message("MoveTask", MoveTask { tid, to, way });
    visitor.message("MoveTask.anywhere", MoveTask { tid, to: None, way });
    let report = move_report();
    visitor.message("Moved", Moved { report });
    visitor.message("CheckTask", CheckTask { tid });
    let reasons = vec![text("it has no way back")];
    visitor.message("Checked", Checked { reasons });
    let host = text("node2");
    visitor.message("DrainHost", DrainHost { host });
    let report = drain_report();
    visitor.message("Drained", Drained { report });
    visitor.message("SaveApp", SaveApp {});
    let app = tid;
    let for_ms = 60_000;
    visitor.message("SuspendApp", SuspendApp { app, for_ms });
    visitor.message("ResumeApp", ResumeApp { app });
    let report = checkpoints::restart_report();
    visitor.message("Resumed", Resumed { report });
    let report = checkpoints::report();
    visitor.message("Saved", Saved { report });
}

pub fn coordinator(visitor: &mut impl Visitor) {
    let (requester, request, task) = (HostId(3), 300, tid(1, 3));
    visitor.message("CoordinatorReady", CoordinatorReady { pid: 4243 });
    let app = tid(1, 1);
    let host = HostId(1);
    visitor.message("Serve", Serve { app, term: 2, host });
    let mail = Mail {
        host: HostId(1),
        order: bytes(b"an order"),
    };
    visitor.message("Mail", mail);
    visitor.message("Heard", Heard {});
    let order = MoveOrder {
        term: 2,
        requester,
        request,
        tid: task,
        incarnation: 3,
        to: HostId(2),
        way: MoveWay::default(),
    };
    visitor.message("MoveOrder", order);
    let cancel = MoveCancel {
        term: 2,
        requester,
        request,
        tid: task,
        why: text("too late"),
    };
    visitor.message("MoveCancel", cancel);
    for phase in MovePhase::ALL {
        let reported = MoveReported {
            requester,
            request,
            tid: task,
            state: MoveState::In(phase),
        };
        visitor.message(&format!("MoveReported.{phase}"), reported);
    }
    let reported = MoveReported {
        requester,
        request,
        tid: task,
        state: MoveState::Ended(Ok(move_report())),
    };
    visitor.message("MoveReported.ended", reported);
    let progress = MoveProgress {
        request,
        tid: task,
        phase: MovePhase::Saving,
    };
    visitor.message("MoveProgress", progress);
    let sent = MoveSent {
        request,
        tid: task,
        sent: sent(),
    };
    visitor.message("MoveSent", sent);
}
