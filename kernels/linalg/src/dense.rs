//! Dense matrices, stored column after column, and the two operations that everything else is built from: the product that is
//! subtracted, and the triangular solve.
#![allow(unsafe_code)]

use crate::scalar::Scalar;

/// Columns below which a recursion ends.
const SMALL: usize = 24;

/// A matrix, column after column.
#[derive(Clone, Debug)]
pub(crate) struct Dense<T> {
    pub data: Vec<T>,
    pub rows: usize,
    pub columns: usize,
}

/// A matrix that is read where it lies: element `(i, j)` is at `i * row + j * column`, conjugated if so marked.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    pub data: &'a [T],
    pub row: usize,
    pub column: usize,
    pub conjugate: bool,
}

impl<'a, T: Scalar> View<'a, T> {
    /// Rows that lie one after the other, `width` elements apart.
    pub(crate) fn by_rows(data: &'a [T], width: usize) -> View<'a, T> {
        View { data, row: width, column: 1, conjugate: false }
    }

    /// The part from an element on.
    pub(crate) fn from(self, i: usize, j: usize) -> View<'a, T> {
        let start = (i * self.row + j * self.column).min(self.data.len());
        View { data: &self.data[start..], ..self }
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> T {
        let value = self.data[i * self.row + j * self.column];
        if self.conjugate { value.conj() } else { value }
    }

    pub(crate) fn adjoint(self) -> View<'a, T> {
        View { row: self.column, column: self.row, conjugate: !self.conjugate, ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

impl<T: Scalar> Dense<T> {
    pub(crate) fn zeros(rows: usize, columns: usize) -> Dense<T> {
        Dense { data: vec![T::zero(); rows * columns], rows, columns }
    }

    pub(crate) fn identity(n: usize) -> Dense<T> {
        let mut result = Dense::zeros(n, n);
        (0..n).for_each(|i| result.set(i, i, T::one()));
        result
    }

    /// A copy of the leading part of a view.
    pub(crate) fn copy(view: View<'_, T>, rows: usize, columns: usize) -> Dense<T> {
        let mut data = Vec::with_capacity(rows * columns);
        for j in 0..columns {
            data.extend((0..rows).map(|i| view.at(i, j)));
        }
        Dense { data, rows, columns }
    }

    /// From elements row after row.
    pub(crate) fn from_rows(data: &[T], rows: usize, columns: usize) -> Dense<T> {
        Dense::copy(View::by_rows(data, columns), rows, columns)
    }

    /// Writes the elements row after row.
    pub(crate) fn to_rows(&self, target: &mut [T]) {
        for (i, row) in target.chunks_exact_mut(self.columns.max(1)).enumerate().take(self.rows) {
            row.iter_mut().enumerate().for_each(|(j, t)| *t = self.at(i, j));
        }
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> T {
        self.data[j * self.rows + i]
    }

    pub(crate) fn set(&mut self, i: usize, j: usize, value: T) {
        self.data[j * self.rows + i] = value;
    }

    pub(crate) fn column(&self, j: usize) -> &[T] {
        &self.data[j * self.rows..(j + 1) * self.rows]
    }

    pub(crate) fn column_mut(&mut self, j: usize) -> &mut [T] {
        &mut self.data[j * self.rows..(j + 1) * self.rows]
    }

    /// Two columns, `a` before `b`.
    pub(crate) fn two_columns(&mut self, a: usize, b: usize) -> (&mut [T], &mut [T]) {
        let (front, back) = self.data.split_at_mut(b * self.rows);
        (&mut front[a * self.rows..(a + 1) * self.rows], &mut back[..self.rows])
    }

    pub(crate) fn view(&self) -> View<'_, T> {
        View { data: &self.data, row: 1, column: self.rows, conjugate: false }
    }

    /// `self · other`.
    pub(crate) fn times(&self, other: &Dense<T>) -> Dense<T> {
        product(self.view(), other.view(), self.rows, self.columns, other.columns)
    }

    pub(crate) fn scaled(&self, factor: T) -> Dense<T> {
        Dense { data: self.data.iter().map(|&x| x * factor).collect(), ..*self }
    }

    pub(crate) fn plus(&self, other: &Dense<T>) -> Dense<T> {
        Dense { data: self.data.iter().zip(&other.data).map(|(&x, &y)| x + y).collect(), ..*self }
    }

    pub(crate) fn minus(&self, other: &Dense<T>) -> Dense<T> {
        Dense { data: self.data.iter().zip(&other.data).map(|(&x, &y)| x - y).collect(), ..*self }
    }
}

/// `a · b` of `m` rows, `n` columns and `k` terms.
pub(crate) fn product<T: Scalar>(a: View<'_, T>, b: View<'_, T>, m: usize, k: usize, n: usize) -> Dense<T> {
    let mut c = Dense::zeros(m, n);
    multiply(&mut c.data, m, a, b, [m, k, n], T::one());
    c
}

/// `c -= a · b`, where column `j` of `c` starts at `j * stride`.
pub(crate) fn subtract_product<T: Scalar>(
    c: &mut [T],
    stride: usize,
    a: View<'_, T>,
    b: View<'_, T>,
    [m, k, n]: [usize; 3],
) {
    multiply(c, stride, a, b, [m, k, n], -T::one());
}

fn multiply<T: Scalar>(c: &mut [T], stride: usize, a: View<'_, T>, b: View<'_, T>, [m, k, n]: [usize; 3], factor: T) {
    if m == 0 || k == 0 || n == 0 {
        return;
    }
    assert!(a.holds(m, k) && b.holds(k, n) && (n - 1) * stride + m <= c.len(), "a matrix is smaller than its product");
    // SAFETY: the assertion says that all elements of both operands and of the result are within their slices, and the result
    // is borrowed mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            stride as isize,
            1,
            true,
            a.data.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.column as isize,
            b.row as isize,
            T::one(),
            factor,
            false,
            a.conjugate,
            b.conjugate,
            gemm::Parallelism::None,
        );
    }
}

/// Which triangle of a matrix counts.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Triangle {
    Lower,
    Upper,
}

/// Overwrites `b` (`n` rows, `columns` columns `stride` apart) with the solution of `t · x = b`; the diagonal of `t` is taken as
/// ones if `unit`.
pub(crate) fn solve_triangular<T: Scalar>(
    t: View<'_, T>,
    triangle: Triangle,
    unit: bool,
    n: usize,
    b: &mut [T],
    stride: usize,
    columns: usize,
) {
    if n == 0 || columns == 0 {
        return;
    }
    if n <= SMALL {
        for j in 0..columns {
            let x = &mut b[j * stride..j * stride + n];
            for step in 0..n {
                let i = if triangle == Triangle::Lower { step } else { n - 1 - step };
                if !unit {
                    x[i] /= t.at(i, i);
                }
                let value = x[i];
                let others = if triangle == Triangle::Lower { i + 1..n } else { 0..i };
                for other in others {
                    x[other] -= t.at(other, i) * value;
                }
            }
        }
        return;
    }
    let half = n / 2;
    let (first, second, rest) = match triangle {
        Triangle::Lower => (0..half, half..n, t.from(half, 0)),
        Triangle::Upper => (half..n, 0..half, t.from(0, half)),
    };
    let at = |start: usize| t.from(start, start);
    solve_triangular(at(first.start), triangle, unit, first.len(), &mut b[first.start..], stride, columns);
    let solved = View { data: &b[first.start..], row: 1, column: stride, conjugate: false };
    let solved = Dense::copy(solved, first.len(), columns);
    let sizes = [second.len(), first.len(), columns];
    subtract_product(&mut b[second.start..], stride, rest, solved.view(), sizes);
    solve_triangular(at(second.start), triangle, unit, second.len(), &mut b[second.start..], stride, columns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangular_systems_are_solved_at_every_size() {
        for n in [1, 5, 24, 25, 67] {
            let mut t = Dense::<f64>::zeros(n, n);
            for i in 0..n {
                for j in 0..n {
                    t.set(i, j, if i == j { 4.0 } else { 1.0 / (1 + i * 3 + j) as f64 });
                }
            }
            for triangle in [Triangle::Lower, Triangle::Upper] {
                let keeps = |i: usize, j: usize| if triangle == Triangle::Lower { i >= j } else { i <= j };
                let x: Vec<f64> = (0..n * 2).map(|v| (v as f64).sin()).collect();
                let mut b = vec![0.0; n * 2];
                for (b, x) in b.chunks_mut(n).zip(x.chunks(n)) {
                    for (i, b) in b.iter_mut().enumerate() {
                        *b = (0..n).filter(|&j| keeps(i, j)).map(|j| t.at(i, j) * x[j]).sum();
                    }
                }
                solve_triangular(t.view(), triangle, false, n, &mut b, n, 2);
                assert!(b.iter().zip(&x).all(|(b, x)| (b - x).abs() < 1e-12), "{n}");
            }
        }
    }
}
