use super::*;
use vm_wire::{
    Body, MachineId,
    checkpoint::{AgreedTask, KeptSaved, Part, PartSaved, PartStands, Policy},
    peer::{Belongings, KeepOrder},
};

const REQUESTER: HostId = HostId(2);

fn tid(sequence: u32) -> Tid {
    Tid::new(MachineId::from_bits(7), HostId(1), sequence)
}

fn agreed(epoch: u32) -> AgreedPart {
    let task = |sequence| AgreedTask {
        tid: tid(sequence),
        host: HostId(1),
        place: ("n1".to_owned(), "x86_64".to_owned()),
        incarnation: 1,
        requester: tid(0),
        request: 1,
        index: sequence,
        program: "heat".to_owned(),
    };
    AgreedPart {
        machine: MachineId::from_bits(7),
        app: tid(1),
        generation: 0,
        epoch,
        index: 1_234,
        tasks: vec![task(1), task(2)],
        keepers: vec![HostId(1), HostId(3)],
        groups: Vec::new(),
        policy: Policy::default(),
        context: 0,
    }
}

fn saved(sequence: u32, epoch: u32, result: Result<u64, FailKind>) -> Order {
    let part = |bytes| SavedPart {
        image: Part {
            name: format!("t1.{sequence}.image"),
            bytes,
            hash: [0; 16],
            place: "n1".to_owned(),
            stored: bytes,
            packed: None,
            base: None,
            copy: None,
        },
        belongings: Belongings::default(),
        freeze_us: 1,
        unacknowledged: 2,
    };
    Order::PartSaved(PartSaved {
        app: tid(1),
        epoch,
        tid: tid(sequence),
        result: result.map(part).map_err(|kind| Failed::new(kind, "no")),
    })
}

/// The report of a host that keeps `bytes` bytes.
fn kept(host: u16, epoch: u32, bytes: usize) -> Order {
    let chunks = KeptChunks {
        host: HostId(host),
        order: KeepOrder {
            from: tid(9),
            to: tid(1),
            last: 4,
        },
        chunks: vec![Body::from(vec![0; bytes])],
    };
    Order::KeptSaved(KeptSaved {
        app: tid(1),
        epoch,
        host: HostId(host),
        result: Ok(vec![chunks]),
    })
}

struct Setting {
    now: Time,
    making: Checkpointing,
}

impl Setting {
    fn new() -> Self {
        Self::of(None)
    }

    /// A checkpoint with which the application ends.
    fn stopping() -> Self {
        Self::of(Some(Stop::End))
    }

    fn of(stop: Option<Stop>) -> Self {
        let ask = CheckpointAsk {
            request: 9,
            app: tid(1),
            generation: 0,
            stop,
        };
        let now = Time(1_000);
        let making = Checkpointing::new(now, REQUESTER, &ask);
        Setting { now, making }
    }

    /// The steps at the next deadline.
    fn says(&mut self) -> Vec<Step> {
        self.now = self.making.deadline();
        let mut out = VecDeque::new();
        self.making.tick(self.now, 3, &mut out);
        out.into()
    }

    /// The manifest is in the store. Returns the end of the cut that the coordinator orders then.
    fn committed(&mut self, epoch: u32) -> CutClose {
        let (app, result) = (tid(1), Ok(()));
        let committed = Committed { app, epoch, result };
        self.making.on_committed(self.now, committed);
        let mut said = self.says();
        match said.pop() {
            Some(Step::Own(order)) if said.is_empty() => match *order {
                Order::CutClose(close) => close,
                other => panic!("{other:?}"),
            },
            other => panic!("{said:?} {other:?}"),
        }
    }

    fn closed(&mut self, epoch: u32, saved: bool) -> Option<Result<u32, FailKind>> {
        let mut out = VecDeque::new();
        let app = tid(1);
        let closed = CutClosed { app, epoch, saved };
        self.making.on_cut_closed(self.now, closed, &mut out);
        match out.pop_front()? {
            Step::End(REQUESTER, end) if end.request == 9 => {
                Some(end.result.map(|report| report.epoch).map_err(|it| it.kind))
            }
            other => panic!("{other:?}"),
        }
    }

    fn cut(&mut self, epoch: u32) {
        let agreed = agreed(epoch);
        self.making.on_cut_made(self.now, CutMade { agreed });
    }

    /// A task is frozen.
    fn stands(&mut self, sequence: u32, epoch: u32) {
        let stands = PartStands {
            app: tid(1),
            epoch,
            tid: tid(sequence),
            host: HostId(sequence as u16),
        };
        let stands = Order::PartStands(stands);
        self.making.on_saved(self.now, stands);
    }

    /// The log lets the tasks resume.
    fn gone(&mut self, epoch: u32) {
        let app = tid(1);
        self.making.on_cut_gone(self.now, CutGone { app, epoch });
    }

    /// Both keepers report few bytes.
    fn kept(&mut self, epoch: u32) {
        for host in [1, 3] {
            self.making.on_saved(self.now, kept(host, epoch, 10));
        }
    }
}

fn own(order: Order) -> Step {
    Step::Own(Box::new(order))
}

fn wants_cut() -> Step {
    own(Order::CutAsk(CutAsk {
        app: tid(1),
        term: 3,
        stop: None,
    }))
}

fn wants_go(epoch: u32) -> Step {
    let app = tid(1);
    own(Order::CutGo(CutGo { app, epoch }))
}

fn closes(epoch: u32, saved: bool) -> Step {
    own(Order::CutClose(CutClose {
        app: tid(1),
        epoch,
        saved,
        cost_us: 0,
        ends: Vec::new(),
    }))
}

fn closed_with(epoch: u32, cost_us: u64) -> Step {
    let Step::Own(mut order) = closes(epoch, true) else {
        unreachable!("it is its own daemon's");
    };
    if let Order::CutClose(close) = &mut *order {
        close.cost_us = cost_us;
    }
    Step::Own(order)
}

#[test]
fn tasks_go_on_when_all_stand_and_a_checkpoint_is_committed_when_all_are_saved() {
    let mut setting = Setting::new();
    assert_eq!(setting.says(), [wants_cut()]);
    // The order is repeated until the reply.
    assert_eq!(setting.says(), [wants_cut()]);
    setting.cut(5);
    setting.stands(2, 5);
    assert_eq!(setting.says(), []);
    setting.stands(2, 5);
    // A report of another cut, or of a task that is no member, does not count.
    setting.stands(1, 4);
    setting.stands(3, 5);
    assert_eq!(setting.says(), []);
    setting.stands(1, 5);
    // The tasks resume only after all keepers have reported.
    setting.making.on_saved(setting.now, kept(3, 5, 10));
    setting.making.on_saved(setting.now, kept(2, 5, 10));
    assert_eq!(setting.says(), []);
    setting.making.on_saved(setting.now, kept(1, 5, 10));
    assert_eq!(setting.says(), [wants_go(5)]);
    // The order is repeated until the reply, although an owner already knows of it.
    setting.making.on_saved(setting.now, saved(2, 5, Ok(30)));
    setting.gone(4);
    assert_eq!(setting.says(), [wants_go(5)]);
    setting.gone(5);
    assert_eq!(setting.says(), []);
    // A saved task may end. A report of another cut, or of a task that is no member, does not
    // count.
    let ended = saved(2, 5, Err(FailKind::NoSuchTask));
    setting.making.on_saved(setting.now, ended);
    setting.making.on_saved(setting.now, saved(1, 4, Ok(12)));
    setting.making.on_saved(setting.now, saved(3, 5, Ok(12)));
    assert_eq!(setting.says(), []);
    setting.making.on_saved(setting.now, saved(1, 5, Ok(12)));
    let said = setting.says();
    let [Step::Own(order)] = &said[..] else {
        panic!("{said:?}");
    };
    let Order::CommitAsk(ask) = &**order else {
        panic!("{order:?}");
    };
    let names = ask.checkpoint.parts.iter().map(|part| &part.image.name);
    assert!(names.eq(["t1.1.image", "t1.2.image"]));
    let keepers = ask.checkpoint.kept.iter().map(|kept| kept.host);
    assert!(keepers.eq([HostId(1), HostId(3)]));
    let (app, epoch) = (tid(1), 5);
    let result = Ok(());
    setting
        .making
        .on_committed(setting.now, Committed { app, epoch, result });
    assert_eq!(setting.says(), [closed_with(5, 1)]);
    assert_eq!(setting.closed(5, true), Some(Ok(5)));
}

#[test]
fn it_costs_the_time_that_tasks_stood_and_some_of_that_in_which_copies_wrote() {
    // Bytes of each of the two tasks on one host, the time of the save, and the cost.
    let second = 1_000_000;
    let gib = limits::CHECKPOINT_LOSS_BYTES / 3;
    for (bytes, took, cost) in [
        (gib, 10 * second, 2 * second / 3),
        (gib, second, second / 2),
        (0, 10 * second, 0),
    ] {
        let mut setting = Setting::new();
        setting.cut(5);
        setting.kept(5);
        setting.stands(1, 5);
        setting.stands(2, 5);
        setting.gone(5);
        setting.now = setting.now + Duration::from_micros(took);
        for task in [1, 2] {
            setting
                .making
                .on_saved(setting.now, saved(task, 5, Ok(bytes)));
        }
        // A slow store costs the application nothing.
        setting.now = setting.now + Duration::from_secs(5);
        let close = setting.committed(5);
        assert!(close.cost_us.abs_diff(cost + 1) <= 1, "{}", close.cost_us);
    }
}

#[test]
fn an_owner_may_know_of_the_cut_first() {
    let mut setting = Setting::new();
    setting.stands(2, 4);
    setting.stands(2, 5);
    setting.cut(5);
    setting.kept(5);
    setting.stands(1, 5);
    assert_eq!(setting.says(), [wants_go(5)]);
}

#[test]
fn if_the_application_ends_with_it_tasks_stand_until_it_is_committed() {
    let mut setting = Setting::stopping();
    let (app, term, stop) = (tid(1), 3, Some(Stop::End));
    let asks = own(Order::CutAsk(CutAsk { app, term, stop }));
    assert_eq!(setting.says(), [asks]);
    setting.cut(5);
    setting.kept(5);
    setting.making.on_saved(setting.now, saved(1, 5, Ok(12)));
    assert_eq!(setting.says(), []);
    setting.making.on_saved(setting.now, saved(2, 5, Ok(12)));
    let said = setting.says();
    assert!(
        matches!(&said[..], [Step::Own(order)] if matches!(**order, Order::CommitAsk(_))),
        "{said:?}"
    );
    let ask = |stop| CheckpointAsk {
        request: 10,
        app,
        generation: 0,
        stop,
    };
    assert_eq!(setting.making.end_for(&ask(stop)), None);
    let close = setting.committed(5);
    let [(REQUESTER, end)] = &close.ends[..] else {
        panic!("{close:?}");
    };
    // For another requester the end is sent again, at once.
    let now = setting.now;
    assert!(setting.making.deadline() > now);
    setting.making.also_for(now);
    assert_eq!(setting.making.deadline(), now);
    let same = setting.making.end_for(&ask(stop)).expect("it ends");
    assert_eq!((same.request, same.result), (10, end.result.clone()));
    let other = setting.making.end_for(&ask(None)).expect("it ends");
    assert!(other.result.is_err());
}

#[test]
fn what_cannot_be_saved_ends_it_and_the_tasks_go_on() {
    let mut setting = Setting::new();
    setting.cut(1);
    let refused = saved(1, 1, Err(FailKind::Refused));
    setting.making.on_saved(setting.now, refused);
    assert_eq!(setting.says(), [closes(1, false)]);
    assert_eq!(setting.closed(1, false), Some(Err(FailKind::Refused)));
}

#[test]
fn what_ended_tasks_have_left_is_part_of_it_up_to_a_limit() {
    let mut setting = Setting::new();
    setting.cut(1);
    setting.making.on_saved(setting.now, saved(1, 1, Ok(1)));
    setting.making.on_saved(setting.now, saved(2, 1, Ok(1)));
    let half = limits::KEPT_SAVED_MAX / 2;
    setting.making.on_saved(setting.now, kept(1, 1, half));
    setting.making.on_saved(setting.now, kept(3, 1, half + 1));
    assert_eq!(setting.says(), [closes(1, false)]);
    assert_eq!(setting.closed(1, false), Some(Err(FailKind::Limit)));
}

#[test]
fn after_the_end_of_a_task_it_is_tried_again_but_not_for_ever() {
    let mut setting = Setting::new();
    for epoch in 1..limits::CHECKPOINT_TRIES {
        setting.cut(epoch);
        let ended = saved(1, epoch, Err(FailKind::NoSuchTask));
        setting.making.on_saved(setting.now, ended);
        assert_eq!(setting.says(), [closes(epoch, false)]);
        assert_eq!(setting.closed(epoch, false), None);
        assert_eq!(setting.says(), [wants_cut()]);
    }
    let last = limits::CHECKPOINT_TRIES;
    setting.cut(last);
    let ended = saved(1, last, Err(FailKind::NoSuchTask));
    setting.making.on_saved(setting.now, ended);
    assert_eq!(setting.closed(last, false), Some(Err(FailKind::NoSuchTask)));
}

#[test]
fn a_reason_that_passes_is_waited_for_with_pauses_and_not_for_ever() {
    let mut setting = Setting::new();
    let begun = setting.now;
    let mut epoch = 0;
    let end = loop {
        epoch += 1;
        setting.cut(epoch);
        let busy = saved(1, epoch, Err(FailKind::Busy));
        setting.making.on_saved(setting.now, busy);
        assert_eq!(setting.says(), [closes(epoch, false)]);
        let before = setting.now;
        if let Some(end) = setting.closed(epoch, false) {
            break end;
        }
        assert_eq!(setting.says(), [wants_cut()]);
        assert!(setting.now.since(before) >= limits::BUSY_PAUSE.0);
    };
    assert_eq!(end, Err(FailKind::Busy));
    assert!((5..limits::CHECKPOINT_TRIES).contains(&epoch), "{epoch}");
    assert!(setting.now.since(begun) < limits::CHECKPOINT_PATIENCE);
}

#[test]
fn a_cut_that_others_have_ended_leaves_no_checkpoint() {
    let mut setting = Setting::new();
    setting.cut(1);
    assert_eq!(setting.closed(0, false), None);
    assert_eq!(setting.closed(1, false), Some(Err(FailKind::System)));
    // The same holds for a checkpoint that was committed too late.
    let mut setting = Setting::new();
    setting.cut(2);
    setting.kept(2);
    setting.stands(1, 2);
    setting.stands(2, 2);
    setting.gone(2);
    for task in [1, 2] {
        setting.making.on_saved(setting.now, saved(task, 2, Ok(1)));
    }
    let (app, epoch) = (tid(1), 2);
    let result = Ok(());
    setting
        .making
        .on_committed(setting.now, Committed { app, epoch, result });
    assert_eq!(setting.closed(2, false), Some(Err(FailKind::System)));
}
