//! Heat that spreads over a square plate: the iteration of Jacobi for the equation of Laplace.
//!
//! The temperature of a cell is from 0 to 1. In each step every cell becomes the mean of its four
//! neighbours in the step before. The plate's edges stay at 0, and three round heaters at 1. A
//! [`Strip`] is some rows of the plate, with copies of the row above and the row below, which
//! belong to its neighbours. Every cell is computed the same way for any division into strips, so
//! the result is the same to the last bit: see [`Strip::fingerprint`].

mod whole;

use std::{io, ops::Range};
pub use whole::{DEEP, whole};

/// Centre (down, right) and radius of the heaters, as parts of the plate's side.
const HEATERS: [([f64; 2], f64); 3] = [
    ([0.30, 0.30], 0.08),
    ([0.40, 0.72], 0.05),
    ([0.75, 0.45], 0.10),
];
/// Bound on the side of a picture. Pixels.
const PICTURE_MAX: usize = 1024;

/// Some rows of the plate.
#[derive(Debug, Clone)]
pub struct Strip {
    /// Cells of a row.
    width: usize,
    rows: Range<usize>,
    /// The temperatures of the rows, and of one more row above and below.
    now: Vec<f64>,
    /// The same temperatures one step before.
    before: Vec<f64>,
    /// The columns of each row that are heated.
    heated: Vec<Vec<usize>>,
}

impl Strip {
    /// Rows of a plate with `width` cells in each direction, before the first step.
    pub fn new(width: usize, rows: Range<usize>) -> Self {
        let cells = (rows.len() + 2) * width;
        let mut strip = Strip {
            width,
            rows,
            now: vec![0.0; cells],
            before: vec![0.0; cells],
            heated: Vec::new(),
        };
        // The rows of the neighbours are set, too: their values before the first step are known.
        for row in 0..strip.rows.len() + 2 {
            let down = (strip.rows.start + row).checked_sub(1);
            let is_heated = |right: &usize| down.is_some_and(|it| is_heated(width, [it, *right]));
            let heated: Vec<usize> = (0..width).filter(is_heated).collect();
            for right in &heated {
                strip.now[row * width + right] = 1.0;
            }
            strip.heated.push(heated);
        }
        strip
    }

    /// Computes all cells of the next step. The copies of the neighbours' rows must be those of the
    /// present step.
    pub fn step(&mut self) {
        self.step_inside();
        self.step_edges();
    }

    /// Computes those cells of the next step that do not depend on the neighbours' rows: all but the
    /// first and the last row. [`Strip::step_edges`] completes the step.
    pub fn step_inside(&mut self) {
        (2..self.rows.len()).for_each(|row| self.compute_row(0, row));
    }

    /// Computes the first and the last row of the next step, after [`Strip::step_inside`]. The copies of
    /// the neighbours' rows must be those of the present step.
    pub fn step_edges(&mut self) {
        self.compute_row(0, 1);
        self.compute_row(0, self.rows.len());
        std::mem::swap(&mut self.now, &mut self.before);
    }

    /// Computes several steps at once, as a wave that goes down the rows: as soon as a row and the
    /// row below have taken a step, the rows above take their next steps, while they are in the
    /// cache. Afterwards those rows are right that are at least `steps` rows away from both ends of
    /// the strip, or near an end that is the plate's.
    fn wave(&mut self, steps: usize) {
        let count = self.rows.len();
        for front in 1..count + steps {
            let first = front.saturating_sub(count);
            for step in first..steps.min(front) {
                self.compute_row(step, front - step);
            }
        }
        if steps % 2 == 1 {
            std::mem::swap(&mut self.now, &mut self.before);
        }
    }

    /// Computes one row of a step: an even step from `now` into `before`, an odd one back.
    fn compute_row(&mut self, step: usize, row: usize) {
        let width = self.width;
        let inner = 1..width - 1;
        if !inner.contains(&(self.rows.start + row - 1)) {
            return;
        }
        let (before, now) = match step % 2 {
            0 => (&self.now, &mut self.before),
            _ => (&self.before, &mut self.now),
        };
        let now = &mut now[row * width..][..width];
        step_row(&before[(row - 1) * width..(row + 2) * width], now);
        for right in &self.heated[row] {
            now[*right] = 1.0;
        }
    }

    /// The greatest change of a cell in the last step.
    pub fn change(&self) -> f64 {
        let own = self.width..self.now.len() - self.width;
        let changes = self.now[own.clone()].iter().zip(&self.before[own]);
        changes
            .map(|(now, before)| (now - before).abs())
            .fold(0.0, f64::max)
    }

    /// The first and the last row, for the neighbours above and below.
    pub fn edges(&self) -> [&[f64]; 2] {
        [1, self.rows.len()].map(|row| &self.now[row * self.width..][..self.width])
    }

    /// The copies of the last row of the neighbour above, and of the first row of the neighbour
    /// below, to be overwritten.
    pub fn beyond(&mut self) -> [&mut [f64]; 2] {
        let (above, rest) = self.now.split_at_mut(self.width);
        let below = rest.len() - self.width;
        [above, &mut rest[below..]]
    }

    /// A number that depends on every bit of every cell. The wrapping sum of the strips'
    /// fingerprints is that of the plate.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint_of(self.rows.clone())
    }

    /// Like [`Strip::fingerprint`], for some of the rows.
    fn fingerprint_of(&self, rows: Range<usize>) -> u64 {
        let first = rows.start * self.width;
        let cells = &self.now[self.cells(rows)];
        let mixed = |(index, cell): (usize, &f64)| {
            let place = (first + index) as u64;
            (cell.to_bits() ^ place.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7
        };
        let all = cells.iter().enumerate().map(mixed);
        all.fold(0, u64::wrapping_add)
    }

    /// The range of the cells of some rows of the plate.
    fn cells(&self, rows: Range<usize>) -> Range<usize> {
        let at = |row: usize| (row + 1 - self.rows.start) * self.width;
        at(rows.start)..at(rows.end)
    }

    /// The strip's part of a picture of the plate: the temperatures, from 0 to 255, of each row of
    /// the strip that is in the picture.
    pub fn picture(&self) -> Vec<u8> {
        let every = self.width.div_ceil(PICTURE_MAX);
        let rows = self.rows.clone().filter(|row| row % every == 0);
        let first = self.rows.start;
        rows.flat_map(|row| {
            let cells = &self.now[(row - first + 1) * self.width..][..self.width];
            cells.iter().step_by(every).map(|cell| (cell * 255.0) as u8)
        })
        .collect()
    }
}

fn is_heated(width: usize, cell: [usize; 2]) -> bool {
    HEATERS.iter().any(|(middle, radius)| {
        let apart = |axis: usize| cell[axis] as f64 / width as f64 - middle[axis];
        apart(0).hypot(apart(1)) < *radius
    })
}

/// Computes a row from the rows above and below and itself in the step before.
fn step_row(around: &[f64], now: &mut [f64]) {
    let (above, rest) = around.split_at(now.len());
    let (here, below) = rest.split_at(now.len());
    let inner = 1..now.len() - 1;
    let (left, right) = (&here[..here.len() - 2], &here[2..]);
    let (above, below) = (&above[inner.clone()], &below[inner.clone()]);
    let beside = left.iter().zip(right).map(|(left, right)| left + right);
    let sums = beside.zip(above).zip(below);
    for (cell, ((beside, above), below)) in now[inner].iter_mut().zip(sums) {
        *cell = 0.25 * (beside + above + below);
    }
}

/// Writes a picture of the plate as PNG, in colours from black over red and yellow to white.
/// `parts` are the pictures of its strips, one after the other.
///
/// # Errors
/// The error of writing to `out`.
pub fn write_picture(out: impl io::Write, width: usize, parts: &[u8]) -> io::Result<()> {
    let side = width.div_ceil(width.div_ceil(PICTURE_MAX)) as u32;
    let mut encoder = png::Encoder::new(out, side, side);
    encoder.set_color(png::ColorType::Rgb);
    let colours = parts.iter().flat_map(|heat| {
        let third = |part: u16| (3 * u16::from(*heat)).saturating_sub(255 * part).min(255) as u8;
        [third(0), third(1), third(2)]
    });
    let colours: Vec<u8> = colours.collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&colours)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::share;

    /// The plate after `steps` steps, computed step by step and row by row.
    fn plate(width: usize, steps: u64) -> Strip {
        let mut plate = Strip::new(width, 0..width);
        (0..steps).for_each(|_| plate.step());
        plate
    }

    /// The strips after `steps` steps, computed as in the program, without messages.
    fn in_strips(width: usize, strips: usize, steps: u64) -> Vec<Strip> {
        let shares = (0..strips).map(|index| share(width, strips, index));
        let mut strips: Vec<_> = shares.map(|rows| Strip::new(width, rows)).collect();
        for _ in 0..steps {
            for below in 1..strips.len() {
                let (one, other) = strips.split_at_mut(below);
                let (above, below) = (&mut one[one.len() - 1], &mut other[0]);
                below.beyond()[0].copy_from_slice(above.edges()[1]);
                above.beyond()[1].copy_from_slice(below.edges()[0]);
            }
            strips.iter_mut().for_each(Strip::step);
        }
        strips
    }

    #[test]
    fn strips_are_the_plate_to_the_last_bit() {
        let whole = plate(60, 300);
        for count in [1, 2, 7, 60] {
            let strips = in_strips(60, count, 300);
            let prints = strips.iter().map(Strip::fingerprint);
            let print = prints.fold(0, u64::wrapping_add);
            assert_eq!(print, whole.fingerprint(), "{count} strips");
            let pictures: Vec<u8> = strips.iter().flat_map(Strip::picture).collect();
            assert_eq!(pictures, whole.picture());
        }
        assert_ne!(plate(60, 299).fingerprint(), whole.fingerprint());
    }

    #[test]
    fn many_steps_at_once_are_the_same_to_the_last_bit() {
        for (width, steps, threads) in [(40, 100, 1), (150, 83, 2), (200, 64, 3), (90, 7, 4)] {
            let print = whole(width, steps, threads, |_| true);
            assert_eq!(print, Some(plate(width, steps).fingerprint()), "{width}");
        }
        assert_eq!(whole(150, 83, 2, |done| done < 2 * DEEP as u64), None);
    }

    #[test]
    fn heat_spreads_until_it_does_not_change_any_more() {
        let mut plate = plate(40, 1);
        let first = plate.change();
        (0..5_000).for_each(|_| plate.step());
        assert!(first > 0.2 && plate.change() < 1e-12, "{first}");
        // The middle between the heaters is warm, and the edge is cold.
        let cell = |down: usize, right: usize| plate.now[(down + 1) * 40 + right];
        assert!(cell(20, 20) > 0.3 && cell(0, 20) == 0.0);
        // Each cell is the mean of its neighbours.
        let around = cell(19, 20) + cell(21, 20) + cell(20, 19) + cell(20, 21);
        assert!((cell(20, 20) - around / 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_picture_has_its_side_at_most() {
        for (width, side) in [(30, 30), (1024, 1024), (1500, 750)] {
            let mut out = Vec::new();
            write_picture(&mut out, width, &plate(width, 1).picture()).expect("a picture");
            let reader = png::Decoder::new(io::Cursor::new(out)).read_info();
            assert_eq!(reader.expect("a picture").info().size(), (side, side));
        }
    }
}
