//! The machine's side: a partner task on each host, which answers.

use crate::rows::{Hosts, Plan, What};
use anyhow::{Context, Result, bail, ensure};
use vmlib::{ANY, Bytes, Spawn, Task, Tid};

/// To the partner: answer with the same.
const ECHO: i32 = 1;
/// To the partner: take it in.
const TAKE: i32 = 2;
/// To the partner: answer that all before has been taken in.
const FLUSH: i32 = 3;
/// To the partner: end.
const STOP: i32 = 4;
/// From the partner, or a greeter.
const ANSWER: i32 = 5;

/// The measuring task and its partners.
pub struct Ours {
    vm: Task,
    program: String,
    near: Partner,
    far: Partner,
}

/// A partner on a host of that name.
struct Partner {
    tid: Tid,
    host: String,
}

impl Ours {
    /// Starts a partner on this host and one on another.
    pub fn start(vm: Task) -> Result<Self> {
        let program = std::env::current_exe()?;
        let program = program
            .to_str()
            .context("the path of this program is not UTF-8")?
            .to_owned();
        let partner = |is_near: bool| {
            let hosts = vm.hosts()?;
            let host = hosts
                .into_iter()
                .find(|host| (host.id == vm.host()) == is_near);
            let host = host.context("it takes two hosts")?.facts.name;
            let tids = vm.spawn(&Spawn::new(&program).arg("partner").on(&host))?;
            let tid = *tids.first().context("no partner was started")?;
            anyhow::Ok(Partner { tid, host })
        };
        let (near, far) = (partner(true)?, partner(false)?);
        Ok(Ours {
            vm,
            program,
            near,
            far,
        })
    }

    /// One turn of a row.
    pub fn run(&self, plan: &Plan) -> Result<()> {
        let vm = &self.vm;
        let Partner { tid: partner, host } = match plan.hosts {
            Hosts::One => &self.near,
            Hosts::Two => &self.far,
        };
        match plan.what {
            What::RoundTrip => {
                let body = Bytes::from(vec![0; plan.size]);
                for _ in 0..plan.count {
                    vm.send_bytes(*partner, ECHO, body.clone())?;
                    let answer = vm.recv(*partner, ANSWER)?;
                    ensure!(
                        answer.len() == plan.size,
                        "an answer of {} bytes",
                        answer.len()
                    );
                }
            }
            What::Stream => {
                let body = Bytes::from(vec![0; plan.size]);
                for _ in 0..plan.count {
                    vm.send_bytes(*partner, TAKE, body.clone())?;
                }
                vm.send_bytes(*partner, FLUSH, Bytes::new())?;
                vm.recv(*partner, ANSWER)?;
            }
            What::Spawn => {
                let greeters = Spawn::new(&self.program).arg("greeter").on(host);
                let greeters = vm.spawn(&greeters.count(plan.count as u32))?;
                for greeter in greeters {
                    vm.recv(greeter, ANSWER)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the partners.
    pub fn stop(self) -> Result<()> {
        self.vm
            .multicast_bytes(&[self.near.tid, self.far.tid], STOP, Bytes::new())?;
        Ok(())
    }
}

/// A task that answers until it is told to stop.
pub fn partner() -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a partner is spawned, not run")?;
    loop {
        let message = vm.recv(master, ANY)?;
        match message.tag() {
            ECHO => vm.send_bytes(master, ANSWER, message.into_bytes())?,
            TAKE => {}
            FLUSH => vm.send_bytes(master, ANSWER, Bytes::new())?,
            STOP => return Ok(()),
            tag => bail!("an unknown tag {tag}"),
        }
    }
}

/// A task that says that it is there, and ends.
pub fn greeter() -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a greeter is spawned, not run")?;
    vm.send_bytes(master, ANSWER, Bytes::new())?;
    Ok(())
}
