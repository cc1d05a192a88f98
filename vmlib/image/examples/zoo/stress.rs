//! A computation whose result does not depend on the scheduling of its threads. `tests/stress.rs`
//! saves it at random moments.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    io::Write as _,
    sync::{
        Arc, Barrier, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[("stress_alone", alone), ("stress_threads", threads)];

/// The number of rounds of the computation.
fn rounds() -> u64 {
    let text = env::var("ZOO_ROUNDS").unwrap_or_else(|_| "20".to_owned());
    text.parse().expect("a number")
}

/// Prints once that the computation begins.
fn tell_ready() {
    println!("ready");
}

/// Work that allocates, hashes, sorts, and uses vectors of numbers.
fn work(seed: u64, steps: u64) -> u64 {
    let mut x = seed | 1;
    let mut words: HashMap<u64, String> = HashMap::new();
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for step in 0..steps {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        words.insert(x >> 50, format!("{x:x}"));
        let values: Vec<f64> = (0..64)
            .map(|n| (x >> (n % 32)) as f64 * 0.5 + step as f64)
            .collect();
        *sums.entry(x >> 56).or_default() += values.iter().map(|value| value.sqrt()).sum::<f64>();
        if step % 64 == 0 {
            words.retain(|key, _| key % 3 != x % 3);
        }
    }
    let words = words.iter().fold(0u64, |sum, (key, word)| {
        sum.wrapping_add(key.wrapping_mul(word.len() as u64 + u64::from(word.as_bytes()[0])))
    });
    sums.values()
        .fold(words ^ x, |sum, value| sum.rotate_left(5) ^ value.to_bits())
}

fn end_with(result: u64) {
    println!("result {result:016x}");
    std::io::stdout().flush().expect("somebody reads");
}

fn alone() {
    tell_ready();
    let result = (0..rounds()).fold(0u64, |sum, round| sum.rotate_left(7) ^ work(round, 2000));
    end_with(result);
}

/// The number of threads.
const COUNT: usize = 16;

/// In each round the threads exchange numbers, add to a sum, and wait for each other.
fn threads() {
    tell_ready();
    let barrier = Arc::new(Barrier::new(COUNT));
    let sum = Arc::new(Mutex::new(0u64));
    let (mut givers, takers): (Vec<Sender<u64>>, Vec<Receiver<u64>>) =
        (0..COUNT).map(|_| channel()).unzip();
    givers.rotate_left(1);
    let threads: Vec<_> = (0u64..)
        .zip(givers.into_iter().zip(takers))
        .map(|(n, (give, take))| {
            let (barrier, sum) = (barrier.clone(), sum.clone());
            thread::spawn(move || {
                let mut own = n;
                for round in 0..rounds() {
                    give.send(work(own ^ round, 120))
                        .expect("the next takes it");
                    own = own.rotate_left(9) ^ take.recv().expect("the one before gives it");
                    let mut sum = sum.lock().expect("nobody panics");
                    *sum = sum.wrapping_add(own);
                    drop(sum);
                    barrier.wait();
                }
                own
            })
        })
        .collect();
    let result = threads.into_iter().fold(0u64, |all, thread| {
        all.rotate_left(3) ^ thread.join().expect("it computes")
    });
    end_with(result ^ *sum.lock().expect("nobody panics"));
}
