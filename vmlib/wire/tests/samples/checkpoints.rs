//! Samples of what is said about checkpoints.

use super::{Visitor, failed, machine, text, tid};
use vm_wire::{
    HostId,
    checkpoint::{
        AgreedPart, AgreedTask, Checkpoint, CheckpointAsk, CheckpointEnd, CheckpointReport,
        CommitAsk, Committed, CutAsk, CutClose, CutClosed, CutMade, Part, PartSaved, SavedGroup,
        SavedPart,
    },
    peer::Belongings,
};

pub fn report() -> CheckpointReport {
    CheckpointReport {
        generation: 1,
        epoch: 4,
        tasks: 2,
        bytes: 40_000_000,
        freeze_us: 30_000,
        total_us: 70_000,
    }
}

/// What a coordinator, its daemon and the owners of tasks say about a checkpoint.
pub fn visit(visitor: &mut impl Visitor) {
    let (app, epoch) = (tid(1, 1), 4);
    let task = AgreedTask {
        tid: tid(2, 5),
        host: HostId(3),
        place: (text("node3"), text("x86_64")),
        incarnation: 2,
        asker: app,
        request: 7,
        index: 1,
        program: text("worker"),
    };
    let group = SavedGroup {
        name: text("workers"),
        version: 9,
        members: vec![(0, tid(2, 5))],
    };
    let agreed = AgreedPart {
        machine: machine(),
        app,
        generation: 1,
        epoch,
        tasks: vec![task],
        groups: vec![group],
    };
    let part = SavedPart {
        image: Part {
            name: text("t2.5.image"),
            bytes: 20_000_000,
            hash: [9; 32],
            place: "n1".to_owned(),
        },
        belongings: Belongings::default(),
        freeze_us: 12_000,
    };
    let ask = CheckpointAsk {
        request: 7,
        app,
        stop: true,
    };
    visitor.message("CheckpointAsk", ask);
    let end = |result| CheckpointEnd {
        request: 7,
        app,
        result,
    };
    visitor.message("CheckpointEnd.ok", end(Ok(report())));
    visitor.message("CheckpointEnd.failed", end(Err(failed())));
    visitor.message("CutAsk", CutAsk { app, term: 2 });
    let made = agreed.clone();
    visitor.message("CutMade", CutMade { agreed: made });
    let saved = |result| PartSaved {
        app,
        epoch,
        tid: tid(2, 5),
        result,
    };
    visitor.message("PartSaved.ok", saved(Ok(part.clone())));
    visitor.message("PartSaved.failed", saved(Err(failed())));
    let parts = vec![part];
    let checkpoint = Checkpoint { agreed, parts };
    visitor.message("CommitAsk", CommitAsk { checkpoint });
    for (name, result) in [
        ("Committed.ok", Ok(())),
        ("Committed.failed", Err(failed())),
    ] {
        visitor.message(name, Committed { app, epoch, result });
    }
    for (name, stop) in [
        ("CutClose", None),
        ("CutClose.stop", Some((HostId(2), end(Ok(report()))))),
    ] {
        let close = CutClose {
            app,
            epoch,
            saved: true,
            stop,
        };
        visitor.message(name, close);
    }
    let saved = true;
    visitor.message("CutClosed", CutClosed { app, epoch, saved });
}
