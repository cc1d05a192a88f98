//! Checkpoints in a store and in its bucket.

use super::*;
use crate::{
    bucket::{BucketRow, Known},
    checkpoints::Row,
};
use std::path::Path;
use vm_bucket::{Address, Fetched, Pushed};

#[test]
fn a_store_and_its_bucket_are_shown_in_both_ways() {
    let row = |epoch, summary, damaged: Option<&str>| Row {
        app: tid(1, 1),
        id: vm_store::CheckpointId::new(0, epoch),
        summary,
        damaged: damaged.map(str::to_owned),
        alone: if epoch == 4 { 2 } else { 0 },
        in_bucket: None,
    };
    let summary = vm_store::Summary {
        taken_ms: 1_000_000_000_000,
        bytes: 80_000_000,
        stored: 900_000,
        base: Some(vm_store::CheckpointId::new(0, 1)),
        tasks: 4,
        freeze_us: 45_000,
        took_us: 1_060_000,
        in_transit: 7,
        program: "heat".to_owned(),
    };
    let half = Some("it is half as long");
    let rows = [
        row(2, Some(summary.clone()), None),
        row(3, None, half),
        row(4, Some(summary), None),
    ];
    let mut copied = row(3, None, half);
    copied.in_bucket = Some(false);
    let address = Address::parse("s3://saved/x", None).expect("an address");
    let known = Known {
        address: address.clone(),
        failed: Some("it is away".to_owned()),
    };
    let pushed = Pushed {
        copied: vec![(tid(1, 1), vm_store::CheckpointId::new(0, 3))],
        bytes: 7,
        removed: vec![(tid(1, 1), vm_store::CheckpointId::new(0, 1))],
        failed: Vec::new(),
    };
    let fetched = Fetched {
        good: Some(vm_store::CheckpointId::new(0, 2)),
        fetched: true,
        passed_over: vec![(vm_store::CheckpointId::new(0, 3), "it is half".to_owned())],
    };
    let in_bucket = [BucketRow {
        row: row(3, None, half),
        here: true,
    }];
    let copied = [copied];
    assert_both([
        (
            Event::Checkpoints(&rows, None, Path::new("/saved")),
            "\
APPLICATION  CHECKPOINT  MADE                  TASKS    MB  STORED     TOOK  FROZEN  BASE   PROGRAM
00beef-t1.1  g0-e2       2001-09-09T01:46:40Z      4  80.0     0.9  1060 ms   45 ms  g0-e1  heat
00beef-t1.1  g0-e3                                                                          damaged: it is half as long
00beef-t1.1  g0-e4       2001-09-09T01:46:40Z      4  80.0     0.9  1060 ms   45 ms  g0-e1  heat (2 of 4 images on one disk alone)
in the store /saved
",
            r#"{"checkpoints":[{"alone":0,"application":"00beef-t1.1","base":"g0-e1","bytes":80000000,"checkpoint":"g0-e2","damaged":null,"freeze_us":45000,"in_transit":7,"made":"2001-09-09T01:46:40Z","program":"heat","stored":900000,"tasks":4,"took_us":1060000},{"alone":0,"application":"00beef-t1.1","base":null,"bytes":null,"checkpoint":"g0-e3","damaged":"it is half as long","freeze_us":null,"in_transit":null,"made":null,"program":null,"stored":null,"tasks":null,"took_us":null},{"alone":2,"application":"00beef-t1.1","base":"g0-e1","bytes":80000000,"checkpoint":"g0-e4","damaged":null,"freeze_us":45000,"in_transit":7,"made":"2001-09-09T01:46:40Z","program":"heat","stored":900000,"tasks":4,"took_us":1060000}],"store":"/saved"}"#,
        ),
        (
            Event::Checkpoints(&copied, Some(&known), Path::new("/saved")),
            "\
APPLICATION  CHECKPOINT  MADE  TASKS  MB  STORED  TOOK  FROZEN  BASE  BUCKET  PROGRAM
00beef-t1.1  g0-e3                                                    no      damaged: it is half as long
in the store /saved
the last copy to s3://saved/x failed: it is away; 'vm store push' tries it again
",
            r#"{"bucket":{"address":"s3://saved/x","failed":"it is away"},"checkpoints":[{"alone":0,"application":"00beef-t1.1","base":null,"bytes":null,"checkpoint":"g0-e3","damaged":"it is half as long","freeze_us":null,"in_bucket":false,"in_transit":null,"made":null,"program":null,"stored":null,"tasks":null,"took_us":null}],"store":"/saved"}"#,
        ),
        (
            Event::Pushed(&pushed, &address),
            "\
00beef-t1.1 g0-e3 copied to s3://saved/x
00beef-t1.1 g0-e1 removed from s3://saved/x
",
            r#"{"bucket":"s3://saved/x","bytes":7,"copied":[{"application":"00beef-t1.1","checkpoint":"g0-e3"}],"failed":[],"removed":[{"application":"00beef-t1.1","checkpoint":"g0-e1"}]}"#,
        ),
        (
            Event::Pulled(tid(1, 1), &fetched, &address),
            "g0-e3: it is half\n00beef-t1.1 g0-e2 fetched from s3://saved/x\n",
            r#"{"application":"00beef-t1.1","bucket":"s3://saved/x","checkpoint":"g0-e2","fetched":true,"passed_over":["g0-e3: it is half"]}"#,
        ),
        (
            Event::InBucket(&in_bucket, &address),
            "\
APPLICATION  CHECKPOINT  MADE  TASKS  MB  STORED  BASE  FOLDER  PROGRAM
00beef-t1.1  g0-e3                                      yes     damaged: it is half as long
",
            r#"{"bucket":"s3://saved/x","checkpoints":[{"alone":0,"application":"00beef-t1.1","base":null,"bytes":null,"checkpoint":"g0-e3","damaged":"it is half as long","freeze_us":null,"here":true,"in_transit":null,"made":null,"program":null,"stored":null,"tasks":null,"took_us":null}]}"#,
        ),
    ]);
}
