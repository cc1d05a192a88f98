//! The grammar, line by line.

use super::*;
use vm_wire::task::Place;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(shell_words::split(&format!("vm {line}")).unwrap())
}

#[test]
fn the_grammar_is_sound() {
    Cli::command().debug_assert();
    Line::command().debug_assert();
}

#[test]
fn every_command_has_a_summary_and_an_example() {
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name}");
        let help = command.get_after_long_help().expect(name).to_string();
        assert!(help.contains("Example:\n"), "{name}");
        assert!(help.lines().all(|line| line.len() <= 80), "{name}");
    }
}

#[test]
fn files_can_be_kept_only_by_commands_that_restart() {
    let keeps = |line| match parse(line).map(|cli| cli.command) {
        Ok(Some(Command::Restart(args))) => Some(args.keep_files),
        Ok(Some(Command::Run(run))) => Some(run.keep_files),
        _ => None,
    };
    assert_eq!(keeps("restart"), Some(false));
    assert_eq!(keeps("restart t1.1 --keep-files --detach"), Some(true));
    assert_eq!(keeps("run --resume-or-start --keep-files prog"), Some(true));
    assert_eq!(
        keeps("run --resume-or-start prog --keep-files"),
        Some(false)
    );
    assert_eq!(keeps("run --keep-files prog"), None);
}

#[test]
fn words_behind_the_program_are_its_arguments() {
    let cli = parse("run --env A=b ./prog --json -n 3 --env X=y").unwrap();
    assert!(!cli.format.json);
    let Some(Command::Run(run)) = cli.command else {
        panic!("not a run")
    };
    assert_eq!(run.program.env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(
        run.program.words,
        ["./prog", "--json", "-n", "3", "--env", "X=y"]
    );
}

#[test]
fn options_of_every_command_stand_before_or_after_it() {
    for line in ["--json ps", "ps --json"] {
        assert!(parse(line).unwrap().format.json, "{line}");
    }
    let cli = parse("conf --dir /x").unwrap();
    assert_eq!(cli.dir, Some("/x".into()));
}

#[test]
fn wrong_words_are_refused_by_the_grammar() {
    for line in [
        "kill",
        "kill 3.17",
        "sig NOSUCH t1.1",
        "sig 0 t1.1",
        "sig TERM",
        "spawn -n 0 prog",
        "spawn -n 4097 prog",
        "run --env =x prog",
        "add -- -oProxyCommand=x",
        "image",
        "image info",
        "image copy a.img",
        "frobnicate",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn run_on_another_host_is_refused_with_a_hint() {
    let error = parse("run --on beta prog").unwrap_err().to_string();
    assert!(error.contains("'vm spawn --on beta'"), "{error}");
    assert!(!error.contains("tip:"), "{error}");
}

#[test]
fn the_path_of_a_program_is_relative_to_the_consoles_folder() {
    let spawn = |line: &str| match parse(line).unwrap().command {
        Some(Command::Spawn(args)) => {
            args.program
                .spawn(args.count, args.place(), "/home/u".as_ref())
        }
        _ => panic!("not a spawn"),
    };
    let one = spawn("spawn -n 2 --on a,b --cwd work ./bin/prog x");
    assert_eq!(one.program, "/home/u/bin/prog");
    assert_eq!(one.dir.as_deref(), Some("/home/u/work"));
    assert_eq!(one.place, Place::Hosts(vec!["a".into(), "b".into()]));
    assert_eq!((one.count, one.args), (2, vec!["x".to_owned()]));
    let two = spawn("spawn --on a prog");
    assert_eq!(
        (two.program.as_str(), two.place),
        ("prog", Place::Host("a".into()))
    );
}

#[test]
fn help_has_a_page_for_each_command_and_none_for_others() {
    let help = |line: &str| help(&line.split_whitespace().collect::<Vec<_>>());
    assert!(help("").unwrap().contains("Exit codes:"));
    assert!(help("run").unwrap().contains("Usage: vm run"));
    assert!(help("image").unwrap().contains("Usage: vm image"));
    assert!(help("image run").unwrap().contains("Usage: vm image run"));
    for unknown in ["frobnicate", "image frobnicate", "run run"] {
        let none = help(unknown).unwrap_err();
        assert!(none.to_string().contains(unknown), "{none}");
    }
}
