//! Products of a vector and a matrix, which the speed of memory limits: each element of the matrix is read once.

use super::product::{Matrix, Multiply};
use crate::isa::{Vectorised, vectorised};
use graphmill_runtime::Context;
use std::borrow::Cow;

/// Columns of the result that are computed together; they stay in the first-level cache.
pub(crate) const STRIP: usize = 1024;
/// Rows of the matrix that are added to a strip in one pass over it.
pub(crate) const ROWS: usize = 8;
/// Sums kept side by side in an inner product.
const LANES: usize = 128;

/// A vector of `length` elements times a matrix of as many rows.
pub(crate) struct VectorProduct<'a, T: Clone> {
    /// The vector.
    pub vector: Cow<'a, [T]>,
    /// The matrix.
    pub matrix: Matrix<'a, T>,
    /// The length of the sums.
    pub length: usize,
}

/// Writes the product to `y`, whose length is the number of columns.
pub(crate) fn vector_times_matrix<T: Multiply>(ctx: &Context<'_>, product: VectorProduct<'_, T>, y: &mut [T]) {
    let VectorProduct { vector, matrix, length } = &product;
    let cost = *length as f64 * size_of::<T>() as f64 / 20.0;
    if matrix.row == 1 && matrix.column != 1 {
        ctx.parallel_chunks(y, 1, cost, |range, part| {
            for (j, y) in range.zip(part) {
                let start = j * matrix.column;
                let x = &matrix.data[start..start + length];
                *y = vectorised(Dot { a: vector, b: x, conjugate: matrix.conjugate });
            }
        });
        return;
    }
    ctx.parallel_chunks(y, 1, cost, |range, part| {
        for (strip, y) in part.chunks_mut(STRIP).enumerate() {
            let first = range.start + strip * STRIP;
            y.fill(T::ZERO);
            for (group, factors) in vector.chunks(ROWS).enumerate() {
                let start = group * ROWS * matrix.row + first * matrix.column;
                let rows = &matrix.data[start..];
                vectorised(AddRows { factors, rows, stride: matrix.row, conjugate: matrix.conjugate, y });
            }
        }
    });
}

struct Dot<'a, T> {
    a: &'a [T],
    b: &'a [T],
    conjugate: bool,
}

impl<T: Multiply> Vectorised for Dot<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> T {
        let mut lanes = [T::ZERO; LANES];
        for (a, b) in self.a.chunks(LANES).zip(self.b.chunks(LANES)) {
            let pairs = a.iter().zip(b);
            if self.conjugate {
                lanes.iter_mut().zip(pairs).for_each(|(sum, (&a, &b))| *sum = T::fused::<FMA>(a, b.conjugate(), *sum));
            } else {
                lanes.iter_mut().zip(pairs).for_each(|(sum, (&a, &b))| *sum = T::fused::<FMA>(a, b, *sum));
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            let (low, high) = lanes.split_at_mut(width);
            low.iter_mut().zip(high).for_each(|(low, high)| *low = low.plus(*high));
            width /= 2;
        }
        lanes[0]
    }
}

/// Adds rows of a matrix, each times a factor of its own, to `y`.
pub(crate) struct AddRows<'a, T> {
    /// A factor for each row.
    pub factors: &'a [T],
    /// The rows, the first at the start.
    pub rows: &'a [T],
    /// From one row to the next.
    pub stride: usize,
    /// Whether the rows count as conjugated.
    pub conjugate: bool,
    /// What they are added to; its length is that of the rows.
    pub y: &'a mut [T],
}

impl<T: Multiply> Vectorised for AddRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let n = self.y.len();
        let row = |i: usize| &self.rows[i * self.stride..i * self.stride + n];
        if let (&[a, b, c, d, e, f, g, h], false) = (self.factors, self.conjugate) {
            let (p, q, r, s, t, u, v, w) = (row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7));
            for (i, y) in self.y.iter_mut().enumerate() {
                let first = T::fused::<FMA>(c, r[i], d.times(s[i]));
                let first = T::fused::<FMA>(a, p[i], T::fused::<FMA>(b, q[i], first));
                let second = T::fused::<FMA>(g, v[i], T::fused::<FMA>(h, w[i], *y));
                let second = T::fused::<FMA>(e, t[i], T::fused::<FMA>(f, u[i], second));
                *y = first.plus(second);
            }
            return;
        }
        for (i, &factor) in self.factors.iter().enumerate() {
            if self.conjugate {
                self.y.iter_mut().zip(row(i)).for_each(|(y, &x)| *y = T::fused::<FMA>(factor, x.conjugate(), *y));
            } else {
                self.y.iter_mut().zip(row(i)).for_each(|(y, &x)| *y = T::fused::<FMA>(factor, x, *y));
            }
        }
    }
}
