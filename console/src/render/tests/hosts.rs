//! The machine, its hosts, and releases.

use super::*;
use crate::ask::DaemonFacts;

#[test]
fn people_see_the_machine_as_a_table() {
    assert_eq!(
        shown(Audience::People, &Event::Conf(&conf())),
        "\
machine 00beef, 2 hosts, 3 tasks

HOST  NAME                    ADDRESS        ROLE      STATE  TASKS   CPUS  ARCH
h1    alpha                   10.0.0.1:7000  leader    live   3/4096     2  x86_64
h2 *  beta                    10.0.0.2:7000  follower  live   0/4096     2  x86_64
h3    gamma-with-a-long-name  10.0.0.3:7000  -         dead   -          2  x86_64

alpha and beta cannot reach each other
"
    );
}

#[test]
fn programs_see_one_json_value_a_line() {
    let text = shown(Audience::Programs, &Event::Conf(&conf()));
    assert_eq!(text.lines().count(), 1);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["machine"], "00beef");
    assert_eq!(value["hosts"][1]["here"], true);
    assert_eq!(value["hosts"][0]["role"], "leader");
    assert_eq!(value["hosts"][2]["state"], "dead");
    assert_eq!(value["links_down"][0][1], "beta");
}

#[test]
fn hosts_and_versions_are_shown_in_both_ways() {
    let facts = DaemonFacts {
        protocol: 1,
        release: "0.1.0".to_owned(),
        machine: HERE,
        host: HostId(1),
    };
    assert_both([
        (
            Event::HostResumed("beta"),
            "beta: takes tasks again\n",
            r#"{"resumed":"beta"}"#,
        ),
        (
            Event::HostAdded("beta"),
            "beta: added\n",
            r#"{"added":"beta"}"#,
        ),
        (
            Event::HostDeleted("beta"),
            "beta: deleted\n",
            r#"{"deleted":"beta"}"#,
        ),
        (
            Event::Halted,
            "the machine has ended\n",
            r#"{"halted":true}"#,
        ),
        (
            Event::Version(Some(&facts)),
            "vm 0.1.0, protocol 5\nvmd 0.1.0, protocol 1, host h1 of machine 00beef\n",
            r#"{"daemon":{"host":"h1","machine":"00beef","protocol":1,"release":"0.1.0"},"protocol":5,"release":"0.1.0"}"#,
        ),
        (Event::Help("text\n"), "text\n", r#"{"help":"text\n"}"#),
    ]);
}
