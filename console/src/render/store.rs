//! Checkpoints in a store and in its bucket.

use super::{
    table::{Table, align_right, lines, table},
    words::{plain_name, time},
};
use crate::{
    bucket::{BucketRow, Known},
    checkpoints::Row,
};
use serde_json::{Value, json};
use std::path::Path;
use vm_bucket::{Address, Fetched, Pushed};
use vm_store::{CheckpointId, Summary, name};
use vm_wire::Tid;

pub(super) fn list_text(rows: &[Row], known: Option<&Known>, store: &Path) -> String {
    let failed = known.and_then(|known| known.failed.as_ref().map(|why| (known, why)));
    let failed = failed.map(|(known, why)| {
        let address = &known.address;
        format!("the last copy to {address} failed: {why}; 'vm store push' tries it again\n")
    });
    let store = format!("in the store {}\n", store.display());
    lines(&checkpoints(rows)) + &store + &failed.unwrap_or_default()
}

pub(super) fn list_json(rows: &[Row], known: Option<&Known>, store: &Path) -> Value {
    let rows = rows.iter().map(|row| {
        let mut value = checkpoint(row);
        if let Some(in_bucket) = row.in_bucket {
            value["in_bucket"] = json!(in_bucket);
        }
        value
    });
    let mut value = json!({
        "checkpoints": rows.collect::<Vec<_>>(),
        "store": store.display().to_string(),
    });
    if let Some(known) = known {
        let (address, failed) = (known.address.to_string(), &known.failed);
        value["bucket"] = json!({ "address": address, "failed": failed });
    }
    value
}

pub(super) fn pushed_text(pushed: &Pushed, address: &Address) -> String {
    let named = |app: &Tid, id: &CheckpointId| format!("{} {id}", name::app(*app));
    let copied = pushed.copied.iter();
    let mut text: String = copied
        .map(|(app, id)| format!("{} copied to {address}\n", named(app, id)))
        .collect();
    for (app, id) in &pushed.removed {
        text += &format!("{} removed from {address}\n", named(app, id));
    }
    for (app, id, why) in &pushed.failed {
        text += &format!("{} not copied: {why}\n", named(app, id));
    }
    match text.is_empty() {
        true => format!("all checkpoints are in {address}\n"),
        false => text,
    }
}

pub(super) fn pushed_json(pushed: &Pushed, address: &Address) -> Value {
    let ids = |ids: &[(Tid, CheckpointId)]| -> Vec<Value> {
        ids.iter().map(|(app, id)| named(*app, *id)).collect()
    };
    let failed = pushed.failed.iter().map(|(app, id, why)| {
        let mut value = named(*app, *id);
        value["why"] = json!(why.to_string());
        value
    });
    json!({
        "bucket": address.to_string(),
        "copied": ids(&pushed.copied),
        "bytes": pushed.bytes,
        "removed": ids(&pushed.removed),
        "failed": failed.collect::<Vec<_>>(),
    })
}

pub(super) fn pulled_text(app: Tid, fetched: &Fetched, address: &Address) -> String {
    let over = fetched.passed_over.iter();
    let over: String = over.map(|(id, why)| format!("{id}: {why}\n")).collect();
    let app = name::app(app);
    let last = match (fetched.good, fetched.fetched) {
        (Some(id), true) => format!("{app} {id} fetched from {address}\n"),
        (Some(id), false) => format!("{app} {id} is undamaged in the folder\n"),
        (None, _) => format!("no undamaged checkpoint of {app} is in {address}\n"),
    };
    over + &last
}

pub(super) fn pulled_json(app: Tid, fetched: &Fetched, address: &Address) -> Value {
    let over = fetched.passed_over.iter();
    let over = over.map(|(id, why)| format!("{id}: {why}"));
    json!({
        "bucket": address.to_string(),
        "application": name::app(app),
        "checkpoint": fetched.good.map(|id| id.to_string()),
        "fetched": fetched.fetched,
        "passed_over": over.collect::<Vec<_>>(),
    })
}

pub(super) fn in_bucket_text(rows: &[BucketRow]) -> String {
    let mut table = table(&[
        "APPLICATION",
        "CHECKPOINT",
        "MADE",
        "TASKS",
        "MB",
        "STORED",
        "BASE",
        "FOLDER",
        "PROGRAM",
    ]);
    align_right(&mut table, &[3, 4, 5]);
    for BucketRow { row, here } in rows {
        let mut cells = first_cells(row);
        cells.extend([base(row), yes_or_no(*here), program(row)]);
        table.add_row(cells);
    }
    lines(&table)
}

pub(super) fn in_bucket_json(rows: &[BucketRow], address: &Address) -> Value {
    let rows = rows.iter().map(|row| {
        let mut value = checkpoint(&row.row);
        value["here"] = json!(row.here);
        value
    });
    json!({ "bucket": address.to_string(), "checkpoints": rows.collect::<Vec<_>>() })
}

/// The checkpoints in a store; with a column for its bucket, if it has one.
fn checkpoints(rows: &[Row]) -> Table {
    let has_bucket = rows.iter().any(|row| row.in_bucket.is_some());
    let mut columns = vec![
        "APPLICATION",
        "CHECKPOINT",
        "MADE",
        "TASKS",
        "MB",
        "STORED",
        "TOOK",
        "FROZEN",
        "BASE",
    ];
    columns.extend(has_bucket.then_some("BUCKET"));
    columns.push("PROGRAM");
    let mut table = table(&columns);
    align_right(&mut table, &[3, 4, 5, 6, 7]);
    for row in rows {
        let mut cells = first_cells(row);
        cells.extend([
            cell(row, |it| format!("{:.0} ms", it.took_us as f64 / 1e3)),
            cell(row, |it| format!("{:.0} ms", it.freeze_us as f64 / 1e3)),
            base(row),
        ]);
        if has_bucket {
            cells.push(yes_or_no(row.in_bucket == Some(true)));
        }
        cells.push(program(row));
        table.add_row(cells);
    }
    table
}

/// The cells with which each row of a checkpoint begins.
fn first_cells(row: &Row) -> Vec<String> {
    vec![
        row.app_name(),
        row.id.to_string(),
        cell(row, |it| time(it.taken_ms)),
        cell(row, |it| it.tasks.to_string()),
        cell(row, |it| format!("{:.1}", it.bytes as f64 / 1e6)),
        cell(row, |it| format!("{:.1}", it.stored as f64 / 1e6)),
    ]
}

/// A cell that is empty if the manifest is damaged.
fn cell(row: &Row, text: impl Fn(&Summary) -> String) -> String {
    row.summary.as_ref().map(text).unwrap_or_default()
}

fn base(row: &Row) -> String {
    cell(row, |it| {
        it.base.map(|base| base.to_string()).unwrap_or_default()
    })
}

/// The program and the number of images that would be lost with one disk, or else the damage.
fn program(row: &Row) -> String {
    match &row.damaged {
        Some(why) => plain_name(&format!("damaged: {why}")),
        None if row.alone > 0 => cell(row, |it| {
            let (program, alone) = (plain_name(&it.program), row.alone);
            format!(
                "{program} ({alone} of {} images on one disk alone)",
                it.tasks
            )
        }),
        None => cell(row, |it| plain_name(&it.program)),
    }
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// A checkpoint in a store.
fn checkpoint(row: &Row) -> Value {
    let summary = row.summary.as_ref();
    json!({
        "application": row.app_name(),
        "checkpoint": row.id.to_string(),
        "made": summary.map(|it| time(it.taken_ms)),
        "tasks": summary.map(|it| it.tasks),
        "bytes": summary.map(|it| it.bytes),
        "stored": summary.map(|it| it.stored),
        "freeze_us": summary.map(|it| it.freeze_us),
        "took_us": summary.map(|it| it.took_us),
        "in_transit": summary.map(|it| it.in_transit),
        "base": summary.and_then(|it| it.base).map(|base| base.to_string()),
        "program": summary.map(|it| it.program.clone()),
        "damaged": row.damaged,
        "alone": row.alone,
    })
}

fn named(app: Tid, id: CheckpointId) -> Value {
    json!({ "application": name::app(app), "checkpoint": id.to_string() })
}
