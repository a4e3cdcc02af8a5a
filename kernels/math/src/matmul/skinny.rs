//! Products with few rows on the left. Copying the right operand into panels, as a general product does, would cost as much as
//! the product itself; here it is read where it lies.
#![allow(unsafe_code)]

use super::product::{Matrix, Multiply, Sizes, Target};
use crate::isa::{Vectorised, vectorised};
use graphmill_runtime::Context;

/// Rows of the left operand up to which this pays.
pub(crate) const MAX_ROWS: usize = 32;
/// Rows of a tile: with [`Tile::COLUMNS`] columns they fill half of the vector registers.
const ROWS: usize = 8;
/// Length of the sums that are taken in one pass, so that a strip of the right operand stays in the first-level cache.
const DEPTH: usize = 256;

/// Elements with a tile of fixed size.
pub(crate) trait Tile: Multiply {
    /// Columns of a tile: two of the widest vectors.
    const COLUMNS: usize;

    /// `a * b + c`, fused where that is one instruction.
    fn fused<const FMA: bool>(a: Self, b: Self, c: Self) -> Self;
}

impl Tile for f32 {
    const COLUMNS: usize = 32;

    #[inline(always)]
    fn fused<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
        if FMA { a.mul_add(b, c) } else { a * b + c }
    }
}

impl Tile for f64 {
    const COLUMNS: usize = 16;

    #[inline(always)]
    fn fused<const FMA: bool>(a: f64, b: f64, c: f64) -> f64 {
        if FMA { a.mul_add(b, c) } else { a * b + c }
    }
}

/// Writes the product to `c`. `a` has at most [`MAX_ROWS`] rows, the rows of `b` are contiguous, and `COLUMNS` is
/// [`Tile::COLUMNS`].
pub(crate) fn skinny_product<T: Tile, const COLUMNS: usize>(
    ctx: &Context<'_>,
    sizes: Sizes,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
) {
    let Sizes { m, n, k } = sizes;
    assert!(m <= MAX_ROWS && b.column == 1 && c.len() >= m * n, "not a product for this function");
    let target = Target::new(c);
    let strips = n.div_ceil(COLUMNS);
    ctx.parallel_for(strips, (m * k * COLUMNS) as f64 / T::SPEED, |strips| {
        let mut packed_a = [T::ZERO; MAX_ROWS * DEPTH];
        let mut packed_b = [T::ZERO; COLUMNS];
        let mut edge = Vec::new();
        for start in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - start);
            pack_rows(a, m, start, depth, &mut packed_a);
            for strip in strips.clone() {
                let column = strip * COLUMNS;
                let width = COLUMNS.min(n - column);
                let (rows_of_b, stride) = if width == COLUMNS {
                    (&b.data[start * b.row + column..], b.row)
                } else {
                    // Padded, so that the tile has its full width here, too.
                    edge.clear();
                    for p in start..start + depth {
                        packed_b[..width].copy_from_slice(&b.data[p * b.row + column..p * b.row + column + width]);
                        edge.extend_from_slice(&packed_b);
                    }
                    (edge.as_slice(), COLUMNS)
                };
                for (block, a) in packed_a.chunks_exact(ROWS * DEPTH).take(m.div_ceil(ROWS)).enumerate() {
                    let rows = block * ROWS..m.min((block + 1) * ROWS);
                    let tile = Tiled::<T, COLUMNS> { a, b: rows_of_b, stride, depth };
                    let sums = vectorised(tile);
                    for (row, sums) in rows.zip(&sums) {
                        // SAFETY: the row is below `m` and the columns below `n`, within `c` by the assertion above; strips
                        // are disjoint, so no other thread has a reference to these elements.
                        let out = unsafe { target.slice(row * n + column, width) };
                        if start == 0 {
                            out.copy_from_slice(&sums[..width]);
                        } else {
                            out.iter_mut().zip(sums).for_each(|(out, &sum)| *out = out.plus(sum));
                        }
                    }
                }
            }
        }
    });
}

/// Brings blocks of [`ROWS`] rows into the order in which a tile reads them: column after column. Rows that are not there are 0.
fn pack_rows<T: Tile>(a: Matrix<'_, T>, m: usize, start: usize, depth: usize, packed: &mut [T]) {
    for (block, packed) in packed.chunks_exact_mut(ROWS * DEPTH).take(m.div_ceil(ROWS)).enumerate() {
        for (p, column) in packed.chunks_exact_mut(ROWS).take(depth).enumerate() {
            for (i, x) in column.iter_mut().enumerate() {
                let row = block * ROWS + i;
                *x = if row < m { a.data[row * a.row + (start + p) * a.column] } else { T::ZERO };
            }
        }
    }
}

struct Tiled<'a, T, const COLUMNS: usize> {
    a: &'a [T],
    b: &'a [T],
    stride: usize,
    depth: usize,
}

impl<T: Tile, const COLUMNS: usize> Vectorised for Tiled<'_, T, COLUMNS> {
    type Output = [[T; COLUMNS]; ROWS];

    #[inline(always)]
    fn run<const FMA: bool>(self) -> [[T; COLUMNS]; ROWS] {
        let mut sums = [[T::ZERO; COLUMNS]; ROWS];
        for (p, a) in self.a.as_chunks::<ROWS>().0.iter().take(self.depth).enumerate() {
            let Some(b) = self.b[p * self.stride..].first_chunk::<COLUMNS>() else { break };
            for i in 0..ROWS {
                for j in 0..COLUMNS {
                    sums[i][j] = T::fused::<FMA>(a[i], b[j], sums[i][j]);
                }
            }
        }
        sums
    }
}
