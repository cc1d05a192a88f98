//! Scripts of two or three endpoints over a wire that the script controls.
//!
//! The endpoints are a, b, c, of tasks spawned on hosts 1, 2, 3. Sent frames are printed as `a -> b
//! Data seq=1 ...` and stay on the wire until the script delivers or loses them. After `leave` the
//! keeper replies for the endpoint. Commands:
//!
//! | command | meaning |
//! |---|---|
//! | `new a b window=N inbox=N` | make these endpoints |
//! | `a send b LEN tag=N context=N` | begin a message, filled with the letters of its number |
//! | `a queue b LEN` | send as a daemon does, which never waits |
//! | `a poll` | continue with a message that needed credit |
//! | `a take from=b tag=N context=N`, `a peek ...` | receive |
//! | `a notices` | print all notices |
//! | `a ended b last=N` | a gets the notification of b's end; without `last`: b was killed |
//! | `a located [b] host=N incarnation=N` | the host of b (0: ended), or of a new link |
//! | `a resend b` | a daemon dropped frames from a to b |
//! | `a leave` | a leaves in order |
//! | `deliver [N]`, `lose [N]`, `double`, `reverse` | all frames on the wire, or the first N |
//! | `wait MS` | time passes; due work is done |
//! | `stamp a generation=N` | sets the generation of a's frames on the wire |

use bytes::Bytes;
use goldenscript::{Argument, Command, Context, Runner};
use std::{
    collections::{BTreeMap, VecDeque},
    error::Error,
    fmt::Write,
};
use vm_endpoint::{Endpoint, EndpointConfig, Filter, Keeper, Notice, Sending, Time};
use vm_wire::{
    Frame, Header, HostId, MachineId, Op, Tid,
    agreed::ExitStatus,
    task::{Ended, Located},
};

type Outcome = Result<String, Box<dyn Error>>;

#[derive(Default)]
struct Script {
    now: Time,
    ends: BTreeMap<String, Endpoint>,
    sendings: BTreeMap<String, Sending>,
    keeper: Keeper,
    wire: VecDeque<Frame>,
    messages: u8,
}

fn tid(name: &str) -> Result<Tid, Box<dyn Error>> {
    match name.as_bytes() {
        [letter @ b'a'..=b'z'] => Ok(Tid::new(
            MachineId::from_bits(1),
            HostId(u16::from(letter - b'a') + 1),
            1,
        )),
        _ => Err(format!("'{name}' is no end").into()),
    }
}

fn name(tid: Tid) -> String {
    char::from(b'a' + tid.host().0 as u8 - 1).to_string()
}

fn show(frame: &Frame) -> String {
    let Header {
        op,
        from,
        to,
        seq,
        ack,
        credit,
        offset,
        total,
        ..
    } = frame.header;
    let mut text = format!("{} -> {} {op:?}", name(from), name(to));
    if op == Op::Data {
        let end = offset + frame.body.len() as u64;
        write!(text, " seq={seq} {offset}..{end} of {total}").expect("a string takes all");
        if frame.header.context != 0 {
            write!(text, " context={}", frame.header.context).expect("a string takes all");
        }
        write!(text, " tag={}", frame.header.tag).expect("a string takes all");
    }
    write!(text, " ack={ack} credit={credit}").expect("a string takes all");
    for (field, value) in [
        ("incarnation", frame.header.incarnation),
        ("generation", frame.header.generation),
        ("flags", u32::from(frame.header.flags)),
    ] {
        if value != 0 {
            write!(text, " {field}={value}").expect("a string takes all");
        }
    }
    text
}

/// The arguments of a command, named and unnamed.
struct Words<'a>(&'a [Argument]);

impl<'a> Words<'a> {
    fn at(&self, index: usize) -> Option<&'a str> {
        let words = self.0.iter().filter_map(|argument| match argument {
            Argument::Positional(word) => Some(word.as_str()),
            _ => None,
        });
        words.clone().nth(index)
    }

    fn word(&self, index: usize) -> Result<&'a str, Box<dyn Error>> {
        self.at(index)
            .ok_or_else(|| format!("word {index} is missing").into())
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|argument| match argument {
            Argument::KeyValue(of, value) if of == key => Some(value.as_str()),
            _ => None,
        })
    }

    fn number<N: std::str::FromStr<Err: Error + 'static>>(
        &self,
        key: &str,
    ) -> Result<Option<N>, Box<dyn Error>> {
        self.get(key).map(|value| Ok(value.parse()?)).transpose()
    }

    fn filter(&self) -> Result<Filter, Box<dyn Error>> {
        Ok(Filter {
            context: self.number("context")?.unwrap_or(0),
            from: self.get("from").map(tid).transpose()?,
            tag: self.number("tag")?,
            handled: false,
        })
    }
}

impl Script {
    fn end(&mut self, name: &str) -> Result<&mut Endpoint, Box<dyn Error>> {
        self.ends
            .get_mut(name)
            .ok_or_else(|| format!("there is no {name}").into())
    }

    /// Prints sent frames and puts them on the wire.
    fn sent(&mut self, out: VecDeque<Frame>) -> String {
        let lines: Vec<String> = out.iter().map(show).collect();
        self.wire.extend(out);
        lines.join("\n")
    }

    fn poll(&mut self, from: &str) -> Outcome {
        let now = self.now;
        let mut sending = self.sendings.remove(from).ok_or("nothing is being sent")?;
        let mut out = VecDeque::new();
        let progress = self.end(from)?.poll_send(now, &mut sending, &mut out);
        if progress != Ok(vm_endpoint::SendProgress::Done) {
            self.sendings.insert(from.to_owned(), sending);
        }
        let progress = match progress {
            Ok(progress) => format!("{progress:?}"),
            Err(error) => error.to_string(),
        };
        Ok(format!("{}\n{progress}", self.sent(out))
            .trim_start()
            .to_owned())
    }

    fn deliver(&mut self, frame: &Frame) -> String {
        let mut out = VecDeque::new();
        match self.ends.get_mut(&name(frame.header.to)) {
            Some(end) => end.handle(self.now, frame.clone(), &mut out),
            None => self.keeper.handle(self.now, frame, &mut out),
        }
        self.sent(out)
    }

    fn wire(&mut self, command: &Command) -> Outcome {
        let words = Words(&command.args);
        let count = match words.at(0) {
            Some(count) if command.name != "stamp" => count.parse()?,
            _ => self.wire.len(),
        };
        let mut lines = Vec::new();
        match command.name.as_str() {
            "deliver" => {
                let frames: Vec<Frame> = self.wire.drain(..count).collect();
                lines.extend(frames.iter().map(|frame| self.deliver(frame)));
            }
            "lose" => {
                let lost = self.wire.drain(..count);
                lines.extend(lost.map(|frame| format!("lost {}", show(&frame))));
            }
            "double" => self.wire.extend(self.wire.clone()),
            "reverse" => self.wire.make_contiguous().reverse(),
            "stamp" => {
                let from = tid(words.word(0)?)?;
                let generation = words.number("generation")?.unwrap_or(0);
                let of_it = self
                    .wire
                    .iter_mut()
                    .filter(|frame| frame.header.from == from);
                of_it.for_each(|frame| frame.header.generation = generation);
            }
            _ => return Err("no such command".into()),
        }
        lines.retain(|line| !line.is_empty());
        Ok(lines.join("\n"))
    }

    fn wait(&mut self, milliseconds: u64) -> String {
        self.now = Time(self.now.0 + milliseconds * 1000);
        let mut out = VecDeque::new();
        for end in self.ends.values_mut() {
            end.tick(self.now, &mut out);
        }
        self.keeper.tick(self.now, &mut out);
        self.sent(out)
    }

    /// Carries out a command of one endpoint.
    fn of_end(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        match words.word(0)? {
            "send" => self.send(who, words),
            "queue" => self.queue(who, words),
            "poll" => self.poll(who),
            "take" => self.take(who, words),
            "peek" => self.peek(who, words),
            "notices" => self.notices(who),
            "ended" => self.ended(who, words),
            "located" => self.located(who, words),
            "resend" => {
                let order = Frame::new(Header::new(Op::Resend), Bytes::new());
                Ok(self.deliver(&order.between(tid(words.word(1)?)?, tid(who)?)))
            }
            "leave" => self.leave(who),
            other => Err(format!("an end cannot {other}").into()),
        }
    }

    /// The output of a command: `text`, then the frames that were sent.
    fn printed(&mut self, text: &str, out: VecDeque<Frame>) -> Outcome {
        Ok(format!("{text}\n{}", self.sent(out)).trim().to_owned())
    }

    /// The body of the next message: its letter, `len` times.
    fn body(&mut self, len: usize) -> Bytes {
        self.messages += 1;
        let letter = b'A' + (self.messages - 1) % 26;
        Bytes::from(vec![letter; len])
    }

    fn send(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        let to = tid(words.word(1)?)?;
        let body = self.body(words.word(2)?.parse()?);
        let (context, tag) = (words.number("context")?, words.number("tag")?);
        let (context, tag) = (context.unwrap_or(0), tag.unwrap_or(0));
        let sending = self.end(who)?.start_send(to, context, tag, body);
        self.sendings.insert(who.to_owned(), sending);
        self.poll(who)
    }

    fn queue(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        let (now, mut out) = (self.now, VecDeque::new());
        let to = tid(words.word(1)?)?;
        let body = self.body(words.word(2)?.parse()?);
        let queued = self.end(who)?.queue(now, to, body, &mut out);
        let text = queued.map_or_else(|error| error.to_string(), |()| String::new());
        self.printed(&text, out)
    }

    fn take(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        let (now, mut out) = (self.now, VecDeque::new());
        let taken = self.end(who)?.take(now, &words.filter()?, &mut out);
        let text = taken.map_or("nothing".to_owned(), |message| {
            let letter = message.body.first().map_or('-', |byte| char::from(*byte));
            let whole = message.body.iter().all(|byte| char::from(*byte) == letter);
            assert!(whole, "a message is made of one letter");
            let (from, len) = (name(message.from), message.body.len());
            format!("from {from} tag={} {letter} x {len}", message.tag)
        });
        self.printed(&text, out)
    }

    fn peek(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        let envelope = self.end(who)?.peek(&words.filter()?);
        let text = envelope.map_or("nothing".to_owned(), |envelope| {
            let (from, tag, len) = (name(envelope.from), envelope.tag, envelope.len);
            format!("from {from} tag={tag} {len} bytes")
        });
        self.printed(&text, VecDeque::new())
    }

    fn notices(&mut self, who: &str) -> Outcome {
        let end = self.end(who)?;
        let notices = std::iter::from_fn(|| end.take_notice());
        let lines: Vec<String> = notices
            .map(|notice| match notice {
                Notice::Ended { tid, status } => format!("{} {status}", name(tid)),
                Notice::Host(event) => format!("{event:?}"),
            })
            .collect();
        let text = match lines.is_empty() {
            true => "none".to_owned(),
            false => lines.join("\n"),
        };
        self.printed(&text, VecDeque::new())
    }

    fn ended(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        let (now, mut out) = (self.now, VecDeque::new());
        let last: Option<u64> = words.number("last")?;
        let ended = Ended {
            tid: tid(words.word(1)?)?,
            status: last.map_or(ExitStatus::Signal(9), |_| ExitStatus::Left(0)),
            last,
            keeper: HostId(1),
            watched: true,
        };
        self.end(who)?.ended(now, ended, &mut out);
        self.printed("", out)
    }

    fn located(&mut self, who: &str, words: &Words<'_>) -> Outcome {
        let (now, mut out) = (self.now, VecDeque::new());
        let located = Located {
            peer: words.at(1).map(tid).transpose()?,
            host: HostId(words.number("host")?.ok_or("host is missing")?),
            incarnation: words.number("incarnation")?.unwrap_or(0),
        };
        let generation = words.number("generation")?.unwrap_or(0);
        match self.ends.get_mut(who) {
            Some(end) => end.located(now, &located, generation, &mut out),
            None => self.keeper.located(now, &located, generation, &mut out),
        }
        self.printed("", out)
    }

    fn leave(&mut self, who: &str) -> Outcome {
        let (now, mut out) = (self.now, VecDeque::new());
        let (frames, last) = self.end(who)?.leave();
        for frame in frames {
            assert_eq!(frame.header.flags, Header::KEEP);
            self.keeper.keep(now, frame, &mut out)?;
        }
        let numbers = last
            .iter()
            .map(|(to, last)| format!("last for {}: {last}", name(*to)));
        let text = numbers.collect::<Vec<_>>().join("\n");
        self.keeper.left(tid(who)?, last);
        self.ends.remove(who);
        self.printed(&text, out)
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Outcome {
        let words = Words(&command.args);
        match command.name.as_str() {
            "new" => {
                for index in 0.. {
                    let Some(name) = words.at(index) else { break };
                    let config = EndpointConfig {
                        me: tid(name)?,
                        window_bytes: words.number("window")?.unwrap_or(1 << 20),
                        inbox_bytes: words.number("inbox")?.unwrap_or(1 << 30),
                        epoch: 0,
                        generation: 0,
                        ring_after: None,
                    };
                    self.ends.insert(name.to_owned(), Endpoint::new(config));
                }
                Ok(String::new())
            }
            "wait" => Ok(self.wait(words.word(0)?.parse()?)),
            "deliver" | "lose" | "double" | "reverse" | "stamp" => self.wire(command),
            who => self.of_end(who, &words),
        }
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[test]
        fn $name() -> std::io::Result<()> {
            let file = concat!("tests/scripts/", stringify!($name));
            goldenscript::run(&mut Script::default(), file)
        }
    )* };
}

scripts! {
    a_lost_chunk_is_sent_again
    an_acknowledgement_goes_with_a_message_or_alone_when_idle
    a_backlog_goes_out_in_order_and_has_a_limit
    a_full_inbox_holds_its_senders_back
    an_abandoned_message_is_never_received
    a_killed_task_delivers_nothing_in_part
    a_moved_peer_is_sent_the_chunks_that_it_lacks
    a_receive_selects_and_keeps_the_order_of_each_pair
    a_task_that_leaves_has_its_last_message_delivered
    a_window_holds_a_sender_back
    duplicate_and_reordered_chunks_are_put_in_order
    frames_of_another_generation_are_dropped
    nothing_is_sent_to_a_task_that_ended
    a_notification_comes_after_the_last_message
}
