//! Scripts: commands for a machine of hosts `n1`, `n2`, ..., and their recorded results.
//!
//! | command | effect |
//! |---|---|
//! | `found [log=N]` | host n1 founds a machine; its log keeps N entries |
//! | `join NAME via=HOST` | a daemon requests HOST to let it join |
//! | `run MILLISECONDS [trace="HOST.."]` | time passes; frames from and to these hosts are printed |
//! | `latency MILLISECONDS` | a frame takes that long from now on |
//! | `hosts N` | n2 to nN join one after the other through n1; prints nothing |
//! | `spawn HOST [count=N] [every=MILLISECONDS]` | HOST proposes N tasks, each by a change of its own |
//! | `leave HOST` | HOST proposes to leave in order |
//! | `go HOST` | HOST proposes that it has left, if it may |
//! | `kill HOST..` | these hosts end at once |
//! | `stall HOST`, `resume HOST` | the host stops; continues |
//! | `cut HOST.. from="HOST.."`, `heal` | cuts all links between the first and the second hosts; ends all cuts |
//! | `status` | one line per host |

use crate::network::Network;
use goldenscript::{Command, Context};
use std::{error::Error, fmt::Write, time::Duration};
use vm_machine::AgreementConfig;
use vm_wire::{HostId, agreed::Change};

type Fallible<T> = Result<T, Box<dyn Error>>;

fn hosts(text: &str) -> Fallible<Vec<HostId>> {
    text.split_whitespace().map(host).collect()
}

#[derive(Default)]
struct Script {
    network: Option<Network>,
}

fn host(text: &str) -> Fallible<HostId> {
    let number = text
        .strip_prefix('n')
        .ok_or_else(|| format!("no host: {text}"))?;
    Ok(HostId(number.parse()?))
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Fallible<String> {
        let mut args = command.consume_args();
        let mut number = |key: &str, default| match args.take_key(key) {
            Some(text) => text.parse(),
            None => Ok(default),
        };
        if command.name == "found" {
            let log_entries_max = number("log", 4096)?;
            args.reject_next()?;
            self.network = Some(Network::founded(AgreementConfig { log_entries_max }));
            return Ok(String::new());
        }
        let (count, every) = (number("count", 1)?, number("every", 0)?);
        let via = args.take_key("via").map(host).transpose()?;
        let from = args.take_key("from").map(hosts).transpose()?;
        let trace = args.take_key("trace").map(hosts).transpose()?;
        let first = args.next_pos().unwrap_or_default();
        let mut all = vec![first];
        if matches!(command.name.as_str(), "kill" | "cut") {
            all.extend(std::iter::from_fn(|| args.next_pos()));
        }
        let all = hosts(&all.join(" "));
        let network = self.network.as_mut().ok_or("found first")?;
        let mut printed = String::new();
        match command.name.as_str() {
            "join" => network.join(first, via.ok_or("via whom?")?),
            "hosts" => {
                for number in 2..=first.parse::<u16>()? {
                    network.join(&format!("n{number}"), HostId::FOUNDER);
                    network.run(Duration::from_millis(500));
                }
                network.run(Duration::from_millis(1000));
                network.events.clear();
            }
            "run" => {
                network.trace = trace;
                network.run(Duration::from_millis(first.parse()?));
            }
            "spawn" => {
                for _ in 0..count {
                    network.spawn(host(first)?);
                    network.run(Duration::from_millis(every));
                }
            }
            "leave" => network.propose(host(first)?, Change::HostLeaving(host(first)?)),
            "go" => {
                if !network.nodes[&host(first)?].agreement.may_go() {
                    return Err("it still leads or votes".into());
                }
                network.propose(host(first)?, Change::HostGone(host(first)?));
            }
            "kill" => all?.into_iter().for_each(|host| network.kill(host)),
            "stall" => network.stall(host(first)?),
            "resume" => network.resume(host(first)?),
            "cut" => network.cut(&all?, &from.ok_or("from whom?")?),
            "latency" => network.latency = Duration::from_millis(first.parse()?),
            "heal" => network.heal(),
            "status" => printed = network.status(),
            other => return Err(format!("no such command: {other}").into()),
        }
        args.reject_next()?;
        let mut output = String::new();
        for event in network.events.drain(..) {
            writeln!(output, "{event}")?;
        }
        Ok(output + &printed)
    }
}

macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agreement/scripts/");
            let path = format!("{scripts}{}", stringify!($name));
            goldenscript::run(&mut Script::default(), path).expect("the script runs");
        }
    )* };
}

scripts! {
    founding_and_first_join
    voters_grow_from_one_to_three_to_five
    a_follower_dies
    a_host_alone_outlives_any_stall
    a_relieved_host_votes_again_before_it_knows
    the_link_of_a_candidate_breaks
    the_leader_dies
    any_two_of_five_die_at_once
    three_shrink_to_two_and_the_non_voter_dies
    of_two_the_voters_death_ends_the_machine
    two_of_five_are_cut_off
    a_stalled_host_is_ended_before_it_is_declared_dead
    the_leader_leaves
    the_only_voter_leaves
    a_name_is_free_only_after_the_death_of_its_holder
    a_late_follower_gets_a_snapshot
    an_entry_proposed_twice_is_applied_once
}
