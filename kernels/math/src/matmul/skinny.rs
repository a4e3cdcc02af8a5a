//! Products with few rows on the left. Copying the right operand into panels, as a general product does, would cost as much as
//! the product itself; here its rows are read where they lie.
#![allow(unsafe_code)]

use super::product::{Matrix, Multiply, Sizes, Target};
use super::vector::{AddRows, ROWS, STRIP};
use crate::isa::vectorised;
use graphmill_runtime::Context;

/// Rows of the left operand up to which this pays.
pub(crate) const MAX_ROWS: usize = 12;

/// Writes the product to `c`. The rows of `b` are contiguous and not conjugated.
///
/// A few rows of `b` at a time stay in the first-level cache while every row of the result takes them in.
pub(crate) fn skinny_product<T: Multiply>(
    ctx: &Context<'_>,
    sizes: Sizes,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
) {
    let Sizes { m, n, k } = sizes;
    assert!(b.column == 1 && !b.conjugate && c.len() >= m * n, "not a product for this function");
    let value = |row: usize, column: usize| {
        let value = a.data[row * a.row + column * a.column];
        if a.conjugate { value.conjugate() } else { value }
    };
    let packed: Vec<T>;
    let rows_of_a = if a.column == 1 && a.row == k && !a.conjugate {
        a.data
    } else {
        packed = (0..m * k).map(|at| value(at / k, at % k)).collect();
        &packed
    };
    let target = Target::new(c);
    ctx.parallel_for(n, (m * k) as f64 / T::SPEED, |columns| {
        for first in columns.clone().step_by(STRIP) {
            let width = STRIP.min(columns.end - first);
            // SAFETY: the row is below `m` and the columns below `n`, within `c` by the assertion above; the ranges of columns
            // of the threads are disjoint, and one slice is in use at a time.
            let strip = |row: usize| unsafe { target.slice(row * n + first, width) };
            (0..m).for_each(|row| strip(row).fill(T::ZERO));
            for start in (0..k).step_by(ROWS) {
                let depth = start..k.min(start + ROWS);
                let rows = &b.data[start * b.row + first..];
                for row in 0..m {
                    let factors = &rows_of_a[row * k..(row + 1) * k][depth.clone()];
                    vectorised(AddRows { factors, rows, stride: b.row, conjugate: false, y: strip(row) });
                }
            }
        }
    });
}
