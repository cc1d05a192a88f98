//! Samples of messages about checkpoints.

use super::values::{Visitor, failed, machine, text, tid};
use vm_wire::{
    Body, CheckpointId, HostId,
    agreed::{Change, Revival, RevivedTask},
    checkpoint::{
        AgreedPart, AgreedTask, Base, Checkpoint, CheckpointAsk, CheckpointEnd, CheckpointReport,
        CommitAsk, Committed, CutAsk, CutClose, CutClosed, CutGo, CutGone, CutLost, CutMade,
        CutPrepare, CutPrepared, KeptChunks, KeptSaved, Part, PartSaved, PartStands, Policy,
        Recover, RestartReport, SavedGroup, SavedPart, Stop, Suspend,
    },
    console::{Answer, Request, SuspendedRow},
    peer::{Belongings, KeepOrder, Propose},
    stores::{
        CommitHere, CopyAsk, CopyEnd, ForgetStored, HostStock, ManifestAsk, ManifestEnd, PartAsk,
        PartLost, Stock, StockAsk, StockRow,
    },
    task::Failed,
};

pub fn report() -> CheckpointReport {
    CheckpointReport {
        generation: 1,
        epoch: 4,
        tasks: 2,
        bytes: 40_000_000,
        stored: 400_000,
        freeze_us: 30_000,
        total_us: 70_000,
        in_transit: 3,
    }
}

pub fn suspend() -> Stop {
    Stop::Suspend(Suspend {
        asked_ms: 1_790_000_000_000,
        for_ms: 7_200_000,
        drained: HostId(3),
    })
}

pub fn suspended_part() -> Part {
    Part {
        name: text("t2.5-g0-i3-n12.image"),
        bytes: 20_000_000,
        hash: [9; 16],
        place: text("node2"),
        stored: 20_000_000,
        packed: None,
        base: None,
        copy: None,
    }
}

pub fn suspended() -> SuspendedRow {
    SuspendedRow {
        app: tid(1, 1),
        program: text("heat"),
        tasks: 17,
        from: CheckpointId::new(1, 4),
        since_ms: 1_790_000_000_000,
        until_ms: 1_790_007_200_000,
        drained: Some(text("node3")),
        resuming: true,
    }
}

pub fn restart_report() -> RestartReport {
    RestartReport {
        app: tid(1, 1),
        from: CheckpointId::new(1, 4),
        generation: 2,
        hosts: vec![(HostId(3), 1)],
        total_us: 80_000,
        passed_over: vec![text("g1-e5: half of it")],
    }
}

fn kept() -> KeptChunks {
    let (from, to) = (tid(3, 9), tid(2, 5));
    KeptChunks {
        host: HostId(3),
        order: KeepOrder { from, to, last: 7 },
        chunks: vec![Body::from(vec![1, 2, 3])],
    }
}

fn policy() -> Policy {
    Policy {
        every_ms: 300_000,
        mtbf_ms: 86_400_000,
        keep: 5,
        recover: Recover::Kill,
        compress: true,
        blocking: true,
    }
}

/// Log entries and console messages about the restart of an application.
pub fn restart(visitor: &mut impl Visitor) {
    let app = tid(1, 1);
    let revival = Revival {
        app,
        requester: (HostId(2), 7),
        from: CheckpointId::new(1, 4),
        age_ms: 90_000,
        cut: Some(1_234),
        console: HostId(2),
        tasks: vec![RevivedTask {
            tid: tid(2, 5),
            host: HostId(3),
            incarnation: 2,
            requester: app,
            request: 7,
            index: 1,
            program: text("worker"),
            source: HostId(2),
        }],
        groups: vec![SavedGroup {
            name: text("workers"),
            version: 9,
            members: vec![(0, tid(2, 5))],
        }],
        context: 3,
        policy: policy(),
        keep_files: true,
        resumes: true,
    };
    let standing = Change::Standing {
        app,
        generation: 2,
        host: HostId(3),
    };
    let abandon = Change::Abandon {
        app,
        generation: 2,
        for_good: false,
        why: text("no room"),
    };
    for (name, change) in [
        (
            "Policy",
            Change::Policy {
                app,
                policy: policy(),
            },
        ),
        ("Revive", Change::Revive(revival)),
        ("Standing", standing),
        ("Abandon", abandon),
    ] {
        let entry = Propose {
            proposer: HostId(2),
            number: 1,
            changes: vec![change],
        };
        visitor.message(&format!("Propose.{name}"), entry);
    }
    for (name, from) in [
        ("Restart", None),
        ("Restart.from", Some(CheckpointId::new(1, 4))),
    ] {
        let attach = from.is_some();
        let keep_files = attach;
        let request = Request::Restart {
            app,
            from,
            attach,
            keep_files,
        };
        visitor.message(&format!("ConsoleRequest.{name}"), request);
    }
    visitor.message("ConsoleRequest.Policy", Request::Policy(app, policy()));
    let report = restart_report();
    visitor.message("ConsoleAnswer.Restarted", Answer::Restarted(report));
}

/// The agreed facts about an application at a cut.
fn agreed() -> AgreedPart {
    let (app, epoch) = (tid(1, 1), 4);
    let task = AgreedTask {
        tid: tid(2, 5),
        host: HostId(3),
        place: (text("node3"), text("x86_64")),
        incarnation: 2,
        requester: app,
        request: 7,
        index: 1,
        program: text("worker"),
    };
    let group = SavedGroup {
        name: text("workers"),
        version: 9,
        members: vec![(0, tid(2, 5))],
    };
    AgreedPart {
        machine: machine(),
        app,
        generation: 1,
        epoch,
        index: 1_234,
        tasks: vec![task],
        keepers: vec![HostId(2), HostId(3)],
        groups: vec![group],
        policy: policy(),
        context: 3,
    }
}

/// The part of one task.
fn part() -> SavedPart {
    SavedPart {
        image: Part {
            name: text("t2.5.image"),
            bytes: 20_000_000,
            hash: [9; 16],
            place: "n1".to_owned(),
            stored: 200_000,
            packed: Some(150_000),
            base: Some(Base {
                generation: 1,
                epoch: 3,
                bytes: 19_000_000,
                packed: Some(9_000_000),
            }),
            copy: Some(text("n2")),
        },
        belongings: Belongings::default(),
        freeze_us: 12_000,
        unacknowledged: 2,
    }
}

/// The end of a checkpoint request.
fn end(result: Result<CheckpointReport, Failed>) -> CheckpointEnd {
    CheckpointEnd {
        request: 7,
        app: tid(1, 1),
        result,
    }
}

/// Messages about a checkpoint between a coordinator, its daemon and the owners of tasks.
pub fn visit(visitor: &mut impl Visitor) {
    let app = tid(1, 1);
    let ask = CheckpointAsk {
        request: 7,
        app,
        generation: 4,
        stop: Some(Stop::End),
    };
    visitor.message("CheckpointAsk", ask);
    visitor.message("CheckpointEnd.ok", end(Ok(report())));
    visitor.message("CheckpointEnd.failed", end(Err(failed())));
    cut(visitor);
    committed(visitor);
}

/// Messages from the preparation of a cut until all parts are saved.
fn cut(visitor: &mut impl Visitor) {
    let (app, epoch) = (tid(1, 1), 4);
    for (name, off) in [("CutPrepare", false), ("CutPrepare.off", true)] {
        let generation = 2;
        let prepare = CutPrepare {
            app,
            generation,
            off,
        };
        visitor.message(name, prepare);
    }
    for (name, result) in [
        ("CutPrepared", Ok(())),
        ("CutPrepared.failed", Err(failed())),
    ] {
        let generation = 2;
        let prepared = CutPrepared {
            app,
            generation,
            result,
        };
        visitor.message(name, prepared);
    }
    for (name, stop) in [
        ("CutAsk", None),
        ("CutAsk.stop", Some(Stop::End)),
        ("CutAsk.suspend", Some(suspend())),
    ] {
        visitor.message(name, CutAsk { app, term: 2, stop });
    }
    visitor.message("CutMade", CutMade { agreed: agreed() });
    let stands = PartStands {
        app,
        epoch,
        tid: tid(2, 5),
        host: HostId(2),
    };
    visitor.message("PartStands", stands);
    let host = HostId(3);
    visitor.message("CutLost", CutLost { app, epoch, host });
    visitor.message("CutGo", CutGo { app, epoch });
    visitor.message("CutGone", CutGone { app, epoch });
    let saved = |result| PartSaved {
        app,
        epoch,
        tid: tid(2, 5),
        result,
    };
    visitor.message("PartSaved.ok", saved(Ok(part())));
    visitor.message("PartSaved.failed", saved(Err(failed())));
    for (name, result) in [("ok", Ok(vec![kept()])), ("failed", Err(failed()))] {
        let host = HostId(3);
        let saved = KeptSaved {
            app,
            epoch,
            host,
            result,
        };
        visitor.message(&format!("KeptSaved.{name}"), saved);
    }
}

/// Messages about the commit and the end of a checkpoint.
fn committed(visitor: &mut impl Visitor) {
    let (app, epoch) = (tid(1, 1), 4);
    let parts = vec![part()];
    let kept = vec![kept()];
    let checkpoint = Checkpoint {
        agreed: agreed(),
        parts,
        kept,
        took_us: 60_000,
    };
    stores(visitor, &checkpoint);
    visitor.message("CommitAsk", CommitAsk { checkpoint });
    for (name, result) in [
        ("Committed.ok", Ok(())),
        ("Committed.failed", Err(failed())),
    ] {
        visitor.message(name, Committed { app, epoch, result });
    }
    let untold = (HostId(3), end(Err(failed())));
    for (name, ends) in [
        ("CutClose", Vec::new()),
        (
            "CutClose.stop",
            vec![(HostId(2), end(Ok(report()))), untold],
        ),
    ] {
        let close = CutClose {
            app,
            epoch,
            saved: true,
            cost_us: 70_000,
            ends,
        };
        visitor.message(name, close);
    }
    let saved = true;
    visitor.message("CutClosed", CutClosed { app, epoch, saved });
}

/// Orders between daemons whose hosts have stores of their own.
fn stores(visitor: &mut impl Visitor, checkpoint: &Checkpoint) {
    let (app, epoch, question, ticket) = (tid(1, 1), 4, 7, 9);
    let (tid, part) = (tid(2, 5), checkpoint.parts[0].image.clone());
    let ask = CopyAsk {
        app,
        generation: 1,
        epoch,
        tid,
        part: part.clone(),
    };
    visitor.message("CopyAsk", ask);
    for (name, result) in [("CopyEnd.ok", Ok(())), ("CopyEnd.failed", Err(failed()))] {
        let end = CopyEnd {
            app,
            epoch,
            tid,
            result,
        };
        visitor.message(name, end);
    }
    let from = CheckpointId::new(1, epoch);
    let ask = PartAsk {
        ticket,
        app,
        from,
        part,
        file: true,
    };
    visitor.message("PartAsk", ask);
    let why = failed();
    visitor.message("PartLost", PartLost { ticket, why });
    for (name, from) in [("StockAsk", None), ("StockAsk.from", Some(from))] {
        let ask = StockAsk {
            question,
            app,
            from,
            verify: from.is_some(),
        };
        visitor.message(name, ask);
    }
    let row = StockRow {
        generation: 1,
        epoch,
        tasks: 2,
        here: vec![tid],
        flaws: vec![text("half of it")],
    };
    visitor.message("ConsoleRequest.Stock", Request::Stock(app, true));
    let stock = HostStock {
        host: HostId(2),
        result: Ok(vec![row.clone()]),
    };
    visitor.message("ConsoleAnswer.Stock", Answer::Stock(vec![stock]));
    for (name, result) in [("Stock.ok", Ok(vec![row])), ("Stock.failed", Err(failed()))] {
        visitor.message(name, Stock { question, result });
    }
    let ask = ManifestAsk {
        question,
        app,
        from,
    };
    visitor.message("ManifestAsk", ask);
    for (name, result) in [
        ("ManifestEnd.ok", Ok((checkpoint.clone(), 90_000))),
        ("ManifestEnd.failed", Err(failed())),
    ] {
        visitor.message(name, ManifestEnd { question, result });
    }
    let checkpoint = checkpoint.clone();
    visitor.message("CommitHere", CommitHere { checkpoint });
    visitor.message("ForgetStored", ForgetStored { app });
    visitor.message("ConsoleRequest.ForgetStored", Request::ForgetStored(app));
}
