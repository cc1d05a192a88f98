//! Heat that spreads over a square plate: the iteration of Jacobi for the equation of Laplace.
//!
//! The temperature of a cell is from 0 to 1. In each step every cell becomes the mean of its four
//! neighbours in the step before. The plate's edges stay at 0, and three round heaters at 1. A
//! [`Strip`] is some rows of the plate, with copies of the row above and the row below, which belong
//! to its neighbours. Every cell is computed the same way whatever strips there are, so the result
//! is the same to the last bit: see [`Strip::fingerprint`].

use std::{io, ops::Range};

/// Middle and radius of the heaters, in parts of the plate: down, to the right.
const HEATERS: [([f64; 2], f64); 3] = [
    ([0.30, 0.30], 0.08),
    ([0.40, 0.72], 0.05),
    ([0.75, 0.45], 0.10),
];
/// The side of a picture, at most. Pixels.
const PICTURE_MAX: usize = 1024;

/// Some rows of the plate.
#[derive(Debug, Clone)]
pub struct Strip {
    /// Cells of a row.
    width: usize,
    rows: Range<usize>,
    /// The rows, and one more above and below.
    now: Vec<f64>,
    /// The same, a step earlier.
    before: Vec<f64>,
    heated: Vec<usize>,
}

impl Strip {
    /// Rows of a plate of so many cells in each direction, before the first step.
    pub fn new(width: usize, rows: Range<usize>) -> Self {
        let cells = (rows.len() + 2) * width;
        let mut strip = Strip {
            width,
            rows,
            now: vec![0.0; cells],
            before: vec![0.0; cells],
            heated: Vec::new(),
        };
        // In the rows of the neighbours too: what they hold before the first step is known.
        for row in 0..strip.rows.len() + 2 {
            let Some(down) = (strip.rows.start + row).checked_sub(1) else {
                continue;
            };
            let heated = (0..width).filter(|right| is_heated(width, [down, *right]));
            strip.heated.extend(heated.map(|right| row * width + right));
        }
        strip.heat();
        strip
    }

    fn heat(&mut self) {
        for cell in &self.heated {
            self.now[*cell] = 1.0;
        }
    }

    /// Computes all cells anew. The rows of the neighbours are to be those of the same step.
    pub fn step(&mut self) {
        std::mem::swap(&mut self.now, &mut self.before);
        let width = self.width;
        for row in 1..=self.rows.len() {
            let place = self.rows.start + row - 1;
            if place == 0 || place + 1 == width {
                continue;
            }
            let around = &self.before[(row - 1) * width..(row + 2) * width];
            let (above, rest) = around.split_at(width);
            let (here, below) = rest.split_at(width);
            let cells = &mut self.now[row * width..][..width];
            for right in 1..width - 1 {
                let beside = here[right - 1] + here[right + 1];
                cells[right] = 0.25 * (beside + above[right] + below[right]);
            }
        }
        self.heat();
    }

    /// The most that a cell has changed in the last step.
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

    /// Room for the last row of the neighbour above, and the first of the one below.
    pub fn beyond(&mut self) -> [&mut [f64]; 2] {
        let (above, rest) = self.now.split_at_mut(self.width);
        let below = rest.len() - self.width;
        [above, &mut rest[below..]]
    }

    /// A number that depends on every bit of every cell; those of the strips of a plate add up,
    /// wrapping, to that of the plate.
    pub fn fingerprint(&self) -> u64 {
        let first = self.rows.start * self.width;
        let cells = &self.now[self.width..self.now.len() - self.width];
        let mixed = |(index, cell): (usize, &f64)| {
            let place = (first + index) as u64;
            (cell.to_bits() ^ place.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7
        };
        let all = cells.iter().enumerate().map(mixed);
        all.fold(0, u64::wrapping_add)
    }

    /// The strip's part of a picture of the plate: for each of its rows that the picture has, the
    /// temperatures from 0 to 255.
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

/// The whole plate, computed by one process.
pub fn whole(width: usize, steps: u64) -> Strip {
    let mut plate = Strip::new(width, 0..width);
    for _ in 0..steps {
        plate.step();
    }
    plate
}

/// Writes a picture of the plate as PNG: from black over red and yellow to white. `parts` are the
/// pictures of its strips, one after the other.
///
/// # Errors
/// What `out` says.
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

    /// As the program does it, without messages.
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
        let plate = whole(60, 300);
        for count in [1, 2, 7, 60] {
            let strips = in_strips(60, count, 300);
            let prints = strips.iter().map(Strip::fingerprint);
            let print = prints.fold(0, u64::wrapping_add);
            assert_eq!(print, plate.fingerprint(), "{count} strips");
            let pictures: Vec<u8> = strips.iter().flat_map(Strip::picture).collect();
            assert_eq!(pictures, plate.picture());
        }
        assert_ne!(whole(60, 299).fingerprint(), plate.fingerprint());
    }

    #[test]
    fn heat_spreads_until_it_does_not_change_any_more() {
        let mut plate = whole(40, 1);
        let first = plate.change();
        (0..5_000).for_each(|_| plate.step());
        assert!(first > 0.2 && plate.change() < 1e-12, "{first}");
        // In the middle between the heaters it is warm, and cold at the edge.
        let cell = |down: usize, right: usize| plate.now[(down + 1) * 40 + right];
        assert!(cell(20, 20) > 0.3 && cell(0, 20) == 0.0);
        // The mean of its neighbours.
        let around = cell(19, 20) + cell(21, 20) + cell(20, 19) + cell(20, 21);
        assert!((cell(20, 20) - around / 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_picture_has_its_side_at_most() {
        for (width, side) in [(30, 30), (1024, 1024), (1500, 750)] {
            let mut out = Vec::new();
            write_picture(&mut out, width, &whole(width, 1).picture()).expect("a picture");
            let reader = png::Decoder::new(io::Cursor::new(out)).read_info();
            assert_eq!(reader.expect("a picture").info().size(), (side, side));
        }
    }
}
