//! Computes the whole plate in one process, as fast as possible, to compare the result of many
//! hosts with it.

use super::Strip;
use crate::workers::share;
use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

/// Steps that a thread takes before it exchanges rows with its neighbours: two versions of this
/// number of rows stay in the cache of a processor.
pub const DEEP: usize = 16;

/// The rows of one thread, and the rows of its neighbours that it also computes, so that its own
/// rows stay right for several steps.
struct Share {
    strip: Strip,
    own: std::ops::Range<usize>,
    above: Option<Ways>,
    below: Option<Ways>,
}

/// The channels to and from a neighbour, for the rows next to the border.
type Ways = (Sender<Vec<f64>>, Receiver<Vec<f64>>);

/// The fingerprint of a plate after `steps` steps, computed by a number of threads. `goes_on` is
/// called from time to time with the number of finished steps, and returns whether to continue.
/// `None` if the computation was ended.
pub fn whole(
    width: usize,
    steps: u64,
    threads: usize,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Option<u64> {
    let threads = threads.clamp(1, (width / DEEP).max(1));
    let mut shares: Vec<Share> = (0..threads)
        .map(|it| Share::new(width, threads, it))
        .collect();
    for below in 1..threads {
        let ((down, from_above), (up, from_below)) = (channel(), channel());
        shares[below - 1].below = Some((down, from_below));
        shares[below].above = Some((up, from_above));
    }
    let first = shares.remove(0);
    thread::scope(|scope| {
        let others = shares.into_iter();
        let others: Vec<_> = others
            .map(|it| scope.spawn(move || it.compute(steps, |_| true)))
            .collect();
        let first = first.compute(steps, &mut goes_on);
        let others = others.into_iter().map(|it| it.join().expect("no panic"));
        others.fold(first, |sum, part| Some(sum?.wrapping_add(part?)))
    })
}

impl Share {
    fn new(width: usize, threads: usize, index: usize) -> Self {
        let own = share(width, threads, index);
        let rows = own.start.saturating_sub(DEEP)..(own.end + DEEP).min(width);
        Share {
            strip: Strip::new(width, rows),
            own,
            above: None,
            below: None,
        }
    }

    /// Computes the share. `None` if a neighbour has ended.
    fn compute(mut self, steps: u64, mut goes_on: impl FnMut(u64) -> bool) -> Option<u64> {
        let mut done = 0;
        while done < steps {
            let count = (steps - done).min(DEEP as u64);
            self.strip.wave(count as usize);
            done += count;
            if !goes_on(done) || self.exchange().is_none() {
                return None;
            }
        }
        Some(self.strip.fingerprint_of(self.own))
    }

    fn exchange(&mut self) -> Option<()> {
        let (own, strip) = (&self.own, &mut self.strip);
        let (first, last) = (own.start..own.start + DEEP, own.end - DEEP..own.end);
        if let Some((up, _)) = &self.above {
            up.send(strip.now[strip.cells(first)].to_vec()).ok()?;
        }
        if let Some((down, _)) = &self.below {
            down.send(strip.now[strip.cells(last)].to_vec()).ok()?;
        }
        if let Some((_, from_above)) = &self.above {
            let cells = strip.cells(own.start - DEEP..own.start);
            strip.now[cells].copy_from_slice(&from_above.recv().ok()?);
        }
        if let Some((_, from_below)) = &self.below {
            let cells = strip.cells(own.end..own.end + DEEP);
            strip.now[cells].copy_from_slice(&from_below.recv().ok()?);
        }
        Some(())
    }
}
