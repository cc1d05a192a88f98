//! The alignment of real genomes, within a stretch of E. coli that has remains of phages.

use clap::{CommandFactory, Parser};
use vm_examples::align::{
    hits::{Candidate, select},
    job::Options,
    report::{Report, Row},
    wavefront::Share,
};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// The alignments that the serial program reports for these arguments.
fn aligned(arguments: &[&str]) -> Vec<Row> {
    let arguments = ["align"].iter().chain(arguments);
    let options = Arguments::try_parse_from(arguments).unwrap().options;
    let (job, origin) = options.prepare().unwrap();
    let mut found = Vec::new();
    for &strand in &job.setup.strands {
        let mut share = Share::new(&job, strand, (0, 1));
        while let Some(task) = share.next_task() {
            let outcome = share.compute(&task, None, None);
            found.extend(Candidate::of(&job, strand, &task.block, outcome.peak));
        }
    }
    Report::new(&job, origin, &select(&job, found), 1.0, Vec::new()).alignments
}

fn shown(row: &Row) -> String {
    format!(
        "{} {:?} {}..{} {}..{} {}/{}",
        row.score,
        row.strand,
        row.query_start,
        row.query_end,
        row.target_start,
        row.target_end,
        row.matches,
        row.length
    )
}

#[test]
fn the_help_names_no_folder_of_the_build() {
    let help = Arguments::command().render_long_help().to_string();
    assert!(help.contains("--query"), "{help}");
    assert!(!help.contains(env!("CARGO_MANIFEST_DIR")), "{help}");
}

#[test]
fn known_remains_of_lambda_are_found_in_e_coli() {
    let rows = aligned(&["--start", "1200001", "--length", "9000", "--strand", "plus"]);
    let rows: Vec<String> = rows.iter().map(shown).collect();
    assert_eq!(
        rows,
        [
            "2381 Plus 1..1622 1207381..1209000 1466/1632",
            "1465 Plus 45966..46809 1205024..1205864 802/845",
        ]
    );
}

#[test]
fn blocks_of_another_shape_find_the_same_alignments() {
    let rows = aligned(&["--start", "370501", "--length", "1500"]);
    let other = aligned(&[
        "--start",
        "370501",
        "--length",
        "1500",
        "--block-rows",
        "3000",
        "--block-columns",
        "700",
    ]);
    let rows: Vec<String> = rows.iter().map(shown).collect();
    let other: Vec<String> = other.iter().map(shown).collect();
    assert_eq!(rows, other);
    assert_eq!(
        rows,
        [
            "109 Plus 24170..24256 371524..371610 74/87",
            "85 Plus 22378..22494 370975..371090 88/117",
        ]
    );
}

#[test]
fn a_stretch_outside_the_target_or_a_scoring_without_sense_is_refused_by_name() {
    let refused = |arguments: &[&str]| {
        let arguments = ["align"].iter().chain(arguments);
        let options = Arguments::try_parse_from(arguments).unwrap().options;
        options.prepare().unwrap_err().to_string()
    };
    assert!(refused(&["--start", "4938921"]).contains("bases 1 to 4938920"));
    assert!(refused(&["--start", "0"]).contains("--start 0"));
    assert!(refused(&["--length", "0"]).contains("--length 0"));
    assert!(refused(&["--gap-extend", "0"]).contains("gap extension"));
    assert!(refused(&["--match", "101"]).contains("1 to 100"));
    assert!(refused(&["--match", "100", "--gap-extend", "1"]).contains("at most"));
    assert!(refused(&["--query", "/nowhere.fa"]).contains("/nowhere.fa"));
}
