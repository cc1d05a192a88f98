//! The first program: a master greets its workers, and each replies with the name of its host.
//!
//! Run it with `vm run hello`.

use anyhow::Result;
use clap::Parser;
use vmlib::{ANY, Spawn};

const GREETING: i32 = 1;
const ANSWER: i32 = 2;

/// Greet tasks on all hosts of the machine
#[derive(Debug, Parser)]
#[command(name = "hello", version)]
struct Arguments {
    /// Number of tasks
    #[arg(default_value_t = 3)]
    count: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let vm = vmlib::init()?;
    let hosts = vm.hosts()?;
    if let Some(master) = vm.parent() {
        let greeting: String = vm.recv(master, GREETING)?.value()?;
        let here = hosts.iter().find(|host| host.id == vm.host());
        let name = here.map_or("an unknown host", |host| &host.facts.name);
        vm.send(
            master,
            ANSWER,
            &format!("{greeting} from number {} on {name}", vm.index()),
        )?;
        return Ok(());
    }
    let names = hosts.iter().map(|host| host.facts.name.as_str());
    let program = std::env::current_exe()?.display().to_string();
    let workers = vm.spawn(&Spawn::new(program).count(arguments.count).on_each(names))?;
    vm.multicast(&workers, GREETING, "hello")?;
    for _ in &workers {
        let answer = vm.recv(ANY, ANSWER)?;
        println!("{}: {}", answer.from(), answer.value::<String>()?);
    }
    Ok(())
}
