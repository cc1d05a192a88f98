//! A matrix of faults, whose cells are played in parallel.

use std::{
    fmt::Debug,
    panic::{RefUnwindSafe, catch_unwind},
    sync::Mutex,
};

/// The reply that the console received in a cell; none if this machine cannot play the cell.
pub type Told = Option<String>;

/// Plays the selected cells, `workers` of them at once. `row` formats a cell for the table; the
/// reply to the console follows it.
///
/// # Panics
/// At the end, if cells failed.
pub fn play<C: Debug + Sync + RefUnwindSafe>(
    cells: &[C],
    workers: usize,
    wanted: impl Fn(&C) -> bool,
    strike: impl Fn(&C) -> Told + Sync + RefUnwindSafe,
    row: impl Fn(&C) -> String,
) {
    let chosen = cells.iter().enumerate().filter(|(_, cell)| wanted(cell));
    let chosen: Vec<(usize, &C)> = chosen.collect();
    let chosen = Mutex::new(chosen.into_iter());
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, cell)) = { chosen.lock().expect("no panic").next() } {
                    let told = catch_unwind(|| strike(cell));
                    if told.is_err() {
                        eprintln!("failed: {cell:?}");
                    }
                    rows.lock().expect("no panic").push((index, told));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no panic");
    rows.sort_by_key(|(index, _)| *index);
    let mut failed = 0;
    for (index, told) in rows {
        failed += u32::from(told.is_err());
        let told = match told {
            Ok(Some(told)) => told,
            Ok(None) => "(left out: this machine lacks what it takes)".to_owned(),
            Err(_) => "FAILED, see above".to_owned(),
        };
        println!("{} {told}", row(&cells[index]));
    }
    assert_eq!(failed, 0, "cells failed");
}
