//! Products of two matrices.
#![allow(unsafe_code)]

use super::skinny::{MAX_ROWS, skinny_product};
use super::vector::{VectorProduct, vector_times_matrix};
use crate::isa::{Vectorised, vectorised};
use crate::number::Number;
use graphmill_runtime::Context;
use graphmill_tensor::{Complex32, Complex64};
use std::ops::Range;

/// A matrix within a slice: element `(i, j)` is at `i * row + j * column`. One of the strides is 1.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub column: usize,
    /// Whether elements count as conjugated.
    pub conjugate: bool,
}

/// The sizes of a product: `m * k` times `k * n`.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
}

/// Elements of matrices.
pub(crate) trait Multiply: Number {
    /// Multiply-adds in a nanosecond, roughly.
    const SPEED: f64;

    /// `a * b + c`, fused where that is one instruction.
    #[inline(always)]
    fn fused<const FMA: bool>(a: Self, b: Self, c: Self) -> Self {
        a.times(b).plus(c)
    }

    /// Writes the product of `a` and `b` to `c`, row after row. `m`, `n` and `k` are not 0, and the matrices hold what the
    /// sizes say.
    fn multiply(ctx: &Context<'_>, sizes: Sizes, a: Matrix<'_, Self>, b: Matrix<'_, Self>, c: &mut [Self]);
}

macro_rules! by_gemm {
    ($($t:ty, $speed:expr, $fused:expr;)*) => {$(
        impl Multiply for $t {
            const SPEED: f64 = $speed;

            #[inline(always)]
            fn fused<const FMA: bool>(a: $t, b: $t, c: $t) -> $t {
                let fused: fn($t, $t, $t) -> $t = $fused;
                if FMA { fused(a, b, c) } else { a * b + c }
            }

            fn multiply(ctx: &Context<'_>, sizes: Sizes, a: Matrix<'_, $t>, b: Matrix<'_, $t>, c: &mut [$t]) {
                if sizes.m == 1 {
                    // The row of `a` times `b`.
                    let product = VectorProduct { vector: a.row_vector(sizes.k), matrix: b, length: sizes.k };
                    vector_times_matrix(ctx, product, c);
                } else if sizes.n == 1 {
                    // The column of `b` times the transpose of `a`.
                    let product = VectorProduct { vector: b.column_vector(sizes.k), matrix: a.transposed(), length: sizes.k };
                    vector_times_matrix(ctx, product, c);
                } else if sizes.m <= MAX_ROWS && b.column == 1 && !b.conjugate {
                    skinny_product(ctx, sizes, a, b, c);
                } else {
                    by_blocks(ctx, sizes, a, b, c);
                }
            }
        }
    )*};
}

by_gemm! {
    f32, 60.0, f32::mul_add;
    f64, 30.0, f64::mul_add;
    Complex32, 15.0, |a, b, c| a * b + c;
    Complex64, 7.0, |a, b, c| a * b + c;
}

impl<'a, T: Number> Matrix<'a, T> {
    /// The transpose, over the same elements.
    pub fn transposed(self) -> Matrix<'a, T> {
        Matrix { row: self.column, column: self.row, ..self }
    }

    fn row_vector(self, length: usize) -> std::borrow::Cow<'a, [T]> {
        self.transposed().column_vector(length)
    }

    /// The first column, conjugated where the matrix is.
    fn column_vector(self, length: usize) -> std::borrow::Cow<'a, [T]> {
        if self.row == 1 && !self.conjugate {
            return self.data[..length].into();
        }
        let elements = self.data.iter().step_by(self.row).take(length);
        elements.map(|x| if self.conjugate { x.conjugate() } else { *x }).collect::<Vec<T>>().into()
    }

    /// Whether a matrix of this many rows and columns lies within the slice.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// A slice that threads share; each writes elements of its own.
pub(crate) struct Target<'a, T> {
    start: *mut T,
    slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached through unsafe methods alone, whose callers see to it that no two threads meet.
unsafe impl<T: Send> Sync for Target<'_, T> {}

impl<'a, T> Target<'a, T> {
    /// Takes hold of a slice.
    pub fn new(slice: &'a mut [T]) -> Target<'a, T> {
        Target { start: slice.as_mut_ptr(), slice: std::marker::PhantomData }
    }

    /// Some elements of the slice.
    ///
    /// # Safety
    /// They are within the slice, and nobody else reaches them while the result is in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice(&self, start: usize, length: usize) -> &mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }

    /// The position of an element.
    ///
    /// # Safety
    /// It is within the slice.
    unsafe fn at(&self, index: usize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.start.add(index) }
    }
}

/// Cuts the result into a grid of blocks, one for each thread, and has the `gemm` crate compute each.
fn by_blocks<T: Multiply>(ctx: &Context<'_>, sizes: Sizes, a: Matrix<'_, T>, b: Matrix<'_, T>, c: &mut [T]) {
    let Sizes { m, n, k } = sizes;
    assert!(a.holds(m, k) && b.holds(k, n) && c.len() >= m * n, "a matrix is smaller than its product needs");
    let work = m as f64 * n as f64 * k as f64 / T::SPEED;
    let (down, across) = grid(sizes, ctx.device().pool().threads());
    let target = Target::new(c);
    ctx.parallel_for(down * across, work / (down * across) as f64, |blocks| {
        for block in blocks {
            let rows = part(m, down, block / across);
            let columns = part(n, across, block % across);
            if rows.is_empty() || columns.is_empty() {
                continue;
            }
            // SAFETY: the assertion above says that all elements of both operands and of the result are within their slices;
            // blocks are disjoint, so no two threads write one element, and nobody reads the result.
            unsafe {
                gemm::gemm(
                    rows.len(),
                    columns.len(),
                    k,
                    target.at(rows.start * n + columns.start),
                    1,
                    n as isize,
                    false,
                    a.data.as_ptr().add(rows.start * a.row),
                    a.column as isize,
                    a.row as isize,
                    b.data.as_ptr().add(columns.start * b.column),
                    b.column as isize,
                    b.row as isize,
                    T::ZERO,
                    T::ONE,
                    false,
                    a.conjugate,
                    b.conjugate,
                    gemm::Parallelism::None,
                );
            }
        }
    });
}

/// Blocks down and across. Each block packs its rows of one operand and its columns of the other, so blocks are to be square.
fn grid(sizes: Sizes, threads: usize) -> (usize, usize) {
    let Sizes { m, n, .. } = sizes;
    let cost = |down: usize| {
        let across = threads / down;
        down * n + across * m
    };
    let divides = |down: &usize| threads.is_multiple_of(*down);
    let down = (1..=threads).filter(divides).min_by_key(|&down| cost(down)).unwrap_or(1);
    let across = threads / down;
    (down.min(m.div_ceil(8)), across.min(n.div_ceil(8)))
}

fn part(total: usize, parts: usize, index: usize) -> Range<usize> {
    total * index / parts..total * (index + 1) / parts
}

macro_rules! by_rows {
    ($($t:ty)*) => {$(
        impl Multiply for $t {
            const SPEED: f64 = 4.0;

            fn multiply(ctx: &Context<'_>, sizes: Sizes, a: Matrix<'_, $t>, b: Matrix<'_, $t>, c: &mut [$t]) {
                integer_product(ctx, sizes, a, b, c);
            }
        }
    )*};
}

by_rows! { i16 i32 i64 }

/// Wrapping products: each row of the result is a sum of rows of `b`.
fn integer_product<T: Multiply>(ctx: &Context<'_>, sizes: Sizes, a: Matrix<'_, T>, b: Matrix<'_, T>, c: &mut [T]) {
    let Sizes { n, k, .. } = sizes;
    let packed: Vec<T>;
    let rows_of_b = if b.column == 1 && b.row == n {
        b.data
    } else {
        packed = (0..k * n).map(|at| b.data[at / n * b.row + at % n * b.column]).collect();
        &packed
    };
    ctx.parallel_chunks(c, n, (n * k) as f64 / T::SPEED, |range, part| {
        for (i, row) in range.zip(part.chunks_exact_mut(n)) {
            row.fill(T::ZERO);
            for (j, b) in rows_of_b.chunks_exact(n).take(k).enumerate() {
                vectorised(AddScaled { factor: a.data[i * a.row + j * a.column], x: b, y: row });
            }
        }
    });
}

struct AddScaled<'a, T> {
    factor: T,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Number> Vectorised for AddScaled<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = y.plus(self.factor.times(x));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_result() {
        for (m, n, threads) in [(1, 9, 4), (1000, 3, 6), (64, 64, 2), (17, 900, 8), (5, 5, 1)] {
            let (down, across) = grid(Sizes { m, n, k: 1 }, threads);
            assert!(down >= 1 && across >= 1 && down * across <= threads);
            let rows: usize = (0..down).map(|i| part(m, down, i).len()).sum();
            let columns: usize = (0..across).map(|i| part(n, across, i).len()).sum();
            assert_eq!((rows, columns), (m, n));
        }
    }
}
