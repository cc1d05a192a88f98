//! Tables for people: columns, and blanks between them.

pub(super) use comfy_table::Table;
use comfy_table::{CellAlignment, presets};

/// Blanks between two columns.
const GAP: u16 = 2;

pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    table
}

pub(super) fn align_right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The table's lines without blanks at their ends.
pub(super) fn lines(table: &Table) -> String {
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}
