//! The product of two square matrices, in bands of rows.
//!
//! The elements are small whole numbers that follow from their positions, so every worker makes its
//! own, and every sum is exact. The product is verified by Freivalds' method: the product of the
//! matrix and a vector equals the product of the factors, one after the other, and the vector.

use std::ops::Range;

/// Columns of the left factor that are used at once: as many rows of the right factor stay in the
/// processor's cache.
const BLOCK: usize = 32;

/// Some rows of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// The rows of the matrix that the band has.
    pub rows: Range<usize>,
    /// The cells, row after row.
    pub cells: Vec<f64>,
}

impl Band {
    /// Rows of the left factor (0) or the right one (1), with `width` columns.
    pub fn of_factor(factor: usize, rows: Range<usize>, width: usize) -> Self {
        let places = rows
            .clone()
            .flat_map(|row| (0..width).map(move |column| [row, column]));
        let cell = |[row, column]: [usize; 2]| {
            ((row * row * 7 + row * column * 3 + column * 13 + factor * 5) % 11) as f64
        };
        Band {
            cells: places.map(cell).collect(),
            rows,
        }
    }

    /// A band of zeros.
    pub fn zeros(rows: Range<usize>, width: usize) -> Self {
        Band {
            cells: vec![0.0; rows.len() * width],
            rows,
        }
    }

    /// Columns of the matrix.
    pub fn width(&self) -> usize {
        self.cells.len().checked_div(self.rows.len()).unwrap_or(0)
    }

    /// Adds the product of `right` and the columns of `left` that belong to the rows of `right`.
    pub fn add_product(&mut self, left: &Band, right: &Band) {
        let width = right.width();
        let inner: Vec<usize> = right.rows.clone().collect();
        for columns in inner.chunks(BLOCK) {
            for (row, sums) in self.cells.chunks_exact_mut(width).enumerate() {
                let factors = &left.cells[row * left.width()..];
                for &column in columns {
                    let factor = factors[column];
                    let others = &right.cells[(column - right.rows.start) * width..][..width];
                    for (sum, other) in sums.iter_mut().zip(others) {
                        *sum += factor * other;
                    }
                }
            }
        }
    }

    /// The product of these rows and a vector.
    pub fn times(&self, vector: &[f64]) -> Vec<f64> {
        let rows = self.cells.chunks_exact(self.width().max(1));
        rows.map(|row| row.iter().zip(vector).map(|(one, other)| one * other).sum())
            .collect()
    }
}

/// A vector to verify a product with. No element is zero.
pub fn vector(width: usize) -> Vec<f64> {
    (0..width).map(|row| (1 + row * 31 % 7) as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::share;

    /// The product, computed in a number of bands.
    fn product(width: usize, workers: usize) -> Vec<f64> {
        let mut all = Vec::new();
        for worker in 0..workers {
            let rows = share(width, workers, worker);
            let left = Band::of_factor(0, rows.clone(), width);
            let mut sums = Band::zeros(rows, width);
            for other in 0..workers {
                let right = Band::of_factor(1, share(width, workers, other), width);
                sums.add_product(&left, &right);
            }
            all.extend(sums.cells);
        }
        all
    }

    #[test]
    fn bands_make_the_product_and_a_vector_shows_it() {
        let width = 70;
        let [left, right] = [0, 1].map(|factor| Band::of_factor(factor, 0..width, width));
        let cells = product(width, 1);
        for (row, column) in [(0, 0), (3, 69), (69, 1), (40, 41)] {
            let sum: f64 = (0..width)
                .map(|inner| left.cells[row * width + inner] * right.cells[inner * width + column])
                .sum();
            assert_eq!(cells[row * width + column], sum);
        }
        for workers in [2, 3, 70] {
            assert_eq!(product(width, workers), cells, "{workers} workers");
        }
        let vector = vector(width);
        let mut whole = Band {
            rows: 0..width,
            cells,
        };
        assert_eq!(whole.times(&vector), left.times(&right.times(&vector)));
        whole.cells[77] += 1.0;
        assert_ne!(whole.times(&vector), left.times(&right.times(&vector)));
    }
}
