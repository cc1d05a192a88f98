//! The choice of a checkpoint for a restart, if each host has a store of its own.
//!
//! The daemon of the requester asks all hosts for their store inventories ([`StockAsk`]). A
//! checkpoint can be restarted if one of the hosts can read its manifest and each of its images is
//! on one of the hosts. The daemon chooses the newest such checkpoint by the lengths of its files.
//! If that choice was tried and failed, each host reads and verifies the whole files of the
//! checkpoint that it has. A file that is damaged on one host is taken from another.
//!
//! Each image is read on a host that has it: by the host of the restarted task, or by another host,
//! which sends the image (`checkpoint/copies.rs`). The log entry of the restart names that host.

use super::{
    query::{Holders, InventoryQuery, QueriedFor},
    table::Restarts,
};
use crate::{
    ConnId, StoreOutput,
    daemon::{
        context::{Context, Question, Timer},
        effect::Effect,
        requester::Requester,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::Loaded,
    console::Answer,
    limits,
    peer::Order,
    stores::{HostStock, ManifestAsk, ManifestEnd, Stock, StockAsk, StockRow},
    task::{FailKind, Failed},
};

impl Restarts {
    /// Asks all hosts which checkpoints of an application they have, for a restart request.
    pub fn gather(
        &mut self,
        cx: &mut Context,
        request: u64,
        (app, from): (Tid, Option<CheckpointId>),
        verify: bool,
    ) {
        let query = InventoryQuery {
            requester: QueriedFor::Restart(request),
            app,
            from,
            verify,
            candidates: Vec::new(),
            awaited: BTreeSet::new(),
            said: BTreeMap::new(),
            passed_over: Vec::new(),
        };
        self.ask_stores(cx, query, from, false);
    }

    /// Asks all hosts which checkpoints of an application they have, for a console.
    pub fn list_stock(
        &mut self,
        cx: &mut Context,
        (conn, number): (ConnId, u64),
        app: Tid,
        verify: bool,
    ) {
        let query = InventoryQuery {
            requester: QueriedFor::Console(conn, number),
            app,
            from: None,
            verify,
            candidates: Vec::new(),
            awaited: BTreeSet::new(),
            said: BTreeMap::new(),
            passed_over: Vec::new(),
        };
        self.ask_stores(cx, query, None, verify);
    }

    fn ask_stores(
        &mut self,
        cx: &mut Context,
        mut query: InventoryQuery,
        from: Option<CheckpointId>,
        verify: bool,
    ) {
        let app = query.app;
        let question = cx.question(Question::OwnStock);
        query.said.clear();
        query.awaited = BTreeSet::from([cx.me]);
        cx.emit(StoreOutput::Inventory {
            question,
            app,
            from,
            verify,
        });
        for host in cx.other_hosts() {
            let ask = StockAsk {
                question,
                app,
                from,
                verify,
            };
            if cx.send_order(host, &Order::StockAsk(ask)) {
                query.awaited.insert(host);
            }
        }
        cx.await_stores(question, verify);
        self.queries.insert(question, query);
    }

    pub fn on_stock_ask(&mut self, cx: &mut Context, host: HostId, ask: StockAsk) {
        let question = cx.question(Question::Stock(host, ask.question));
        cx.emit(StoreOutput::Inventory {
            question,
            app: ask.app,
            from: ask.from,
            verify: ask.verify,
        });
    }

    /// The shell has read the inventory of this host's store.
    pub fn on_stocked(
        &mut self,
        cx: &mut Context,
        question: u64,
        result: Result<Vec<StockRow>, Failed>,
    ) {
        match cx.questions.remove(&question) {
            Some(Question::OwnStock) => self.on_stock(cx, cx.me, Stock { question, result }),
            Some(Question::Stock(host, question)) => {
                cx.send_order(host, &Order::Stock(Stock { question, result }));
            }
            Some(other) => {
                cx.questions.insert(question, other);
            }
            None => {}
        }
    }

    /// A host replies with the inventory of its store.
    pub fn on_stock(&mut self, cx: &mut Context, host: HostId, stock: Stock) {
        let Some(query) = self.queries.get_mut(&stock.question) else {
            return;
        };
        if !query.awaited.remove(&host) {
            return;
        }
        let said = stock.result.map(|mut rows| {
            rows.truncate(limits::STOCK_MAX);
            rows
        });
        query.said.insert(host, said);
        if query.awaited.is_empty() {
            self.choose_of_stock(cx, stock.question);
        }
    }

    /// The time limit for the replies of hosts is over.
    pub fn on_stock_due(&mut self, cx: &mut Context, question: u64) {
        if let Some(query) = self.queries.get_mut(&question) {
            for host in std::mem::take(&mut query.awaited) {
                let text = "it did not say in time what is in its store";
                let why = Failed::new(FailKind::System, text);
                query.said.insert(host, Err(why));
            }
            self.choose_of_stock(cx, question);
        }
    }

    /// All hosts have replied: chooses a checkpoint, or replies to the console.
    fn choose_of_stock(&mut self, cx: &mut Context, question: u64) {
        cx.questions.remove(&question);
        cx.cancel_timer(Timer::Stock(question));
        let Some(mut query) = self.queries.remove(&question) else {
            return;
        };
        if let QueriedFor::Console(conn, number) = query.requester {
            let said = query.said.into_iter();
            let stock = said.map(|(host, result)| HostStock { host, result });
            let answer = Answer::Stock(stock.collect());
            return cx.effect(Effect::Reply(Requester::Console(conn, number), answer));
        }
        let read = query.candidates.pop();
        let ids = match read {
            Some(id) => vec![id],
            None => {
                let ids = query
                    .rows()
                    .map(|(_, row)| CheckpointId::new(row.generation, row.epoch));
                let ids: BTreeSet<CheckpointId> = ids.collect();
                ids.into_iter().rev().collect()
            }
        };
        let mut whole = Vec::new();
        for id in ids {
            match query.whole(id) {
                Ok(holders) => whole.push((id, holders)),
                // A checkpoint that is older than a whole one does not matter.
                Err(why) if whole.is_empty() => {
                    query.passed_over.push(format!("{id}: {why}"));
                }
                Err(_) => {}
            }
        }
        if query.verify && read.is_none() {
            query.candidates = whole.iter().rev().map(|(id, _)| *id).collect();
        } else if let Some((id, holders)) = whole.into_iter().next() {
            return self.take_of_stock(cx, query, id, holders);
        }
        match query.candidates.last().copied() {
            Some(next) => self.ask_stores(cx, query, Some(next), true),
            None => self.none_in_stock(cx, &query),
        }
    }

    /// Reads the manifest of the chosen checkpoint.
    fn take_of_stock(
        &mut self,
        cx: &mut Context,
        query: InventoryQuery,
        id: CheckpointId,
        holders: Holders,
    ) {
        let (app, host) = (query.app, query.manifest_of(id, cx.me));
        let (Some(host), QueriedFor::Restart(request)) = (host, query.requester) else {
            return self.none_in_stock(cx, &query);
        };
        self.found_stock(request, holders, query.passed_over);
        let question = cx.question(Question::Restart(request));
        if host == cx.me {
            cx.emit(StoreOutput::Load {
                question,
                app,
                from: Some(id),
                verify: false,
            });
        } else {
            self.ask_manifest(cx, host, question, (app, id));
        }
    }

    fn none_in_stock(&mut self, cx: &mut Context, query: &InventoryQuery) {
        let shown = query.app.show(cx.machine);
        let found = match (query.passed_over.first(), query.from) {
            (Some(first), _) => format!("it is not whole (vm checkpoints --verify): {first}"),
            (None, Some(id)) => {
                format!("no host of this machine has {id} of {shown} in its store")
            }
            (None, None) => {
                format!("no host of this machine has a checkpoint of {shown} in its store")
            }
        };
        let mut text = format!("the checkpoint cannot be read: {found}");
        for (host, said) in &query.said {
            if let Err(why) = said {
                let name = cx.host_name(*host);
                text.push_str(&format!("; host '{name}': {}", why.text));
            }
        }
        if let QueriedFor::Restart(request) = query.requester {
            self.fail(cx, request, Failed::new(FailKind::System, text));
        }
    }

    /// Requests the manifest of a checkpoint from another host, as the result of `question`.
    pub fn ask_manifest(
        &mut self,
        cx: &mut Context,
        host: HostId,
        question: u64,
        (app, from): (Tid, CheckpointId),
    ) {
        let ask = ManifestAsk {
            question,
            app,
            from,
        };
        self.manifests.insert(question, host);
        let present = cx.agreement.state().is_present(host);
        if !present || !cx.send_order(host, &Order::ManifestAsk(ask)) {
            self.lose_manifest(cx, question, host);
        }
    }

    fn lose_manifest(&mut self, cx: &mut Context, question: u64, host: HostId) {
        let name = cx.host_name(host);
        let text = format!("host '{name}' cannot be asked for the manifest of the checkpoint");
        let result = Err(Failed::new(FailKind::HostLost, text));
        self.on_manifest_end(cx, host, ManifestEnd { question, result });
    }

    pub fn on_manifest_ask(&mut self, cx: &mut Context, host: HostId, ask: ManifestAsk) {
        if let Some(known) = self.manifest_at_hand(ask.app, ask.from) {
            let end = ManifestEnd {
                question: ask.question,
                result: Ok(known),
            };
            cx.send_order(host, &Order::ManifestEnd(end));
            return;
        }
        let question = cx.question(Question::Manifest(host, ask.question));
        cx.emit(StoreOutput::Load {
            question,
            app: ask.app,
            from: Some(ask.from),
            verify: false,
        });
    }

    /// The manifest that another host requested was read, or cannot be read.
    pub fn send_manifest(
        &mut self,
        cx: &mut Context,
        host: HostId,
        question: u64,
        result: Result<Box<Loaded>, Failed>,
    ) {
        let result = result.map(|loaded| (loaded.checkpoint, loaded.age_ms));
        cx.send_order(host, &Order::ManifestEnd(ManifestEnd { question, result }));
    }

    pub fn on_manifest_end(&mut self, cx: &mut Context, host: HostId, end: ManifestEnd) {
        if self.manifests.get(&end.question) != Some(&host) {
            return;
        }
        self.manifests.remove(&end.question);
        let result = end.result.map(|(checkpoint, age_ms)| {
            Box::new(Loaded {
                checkpoint,
                passed_over: Vec::new(),
                age_ms,
            })
        });
        self.on_loaded(cx, end.question, result);
    }

    /// A host is lost and does not send its inventory.
    pub fn lose_stock_of(&mut self, cx: &mut Context, host: HostId) {
        for question in self.queries.keys().copied().collect::<Vec<_>>() {
            let result = Ok(Vec::new());
            self.on_stock(cx, host, Stock { question, result });
        }
        let of_it = |(_, from): &(&u64, &HostId)| **from == host;
        let asked = self.manifests.iter().filter(of_it);
        for question in asked.map(|(question, _)| *question).collect::<Vec<_>>() {
            self.lose_manifest(cx, question, host);
        }
    }
}
