//! Products of small matrices within larger ones, on the calling thread.
#![allow(unsafe_code)]

use graphmill_tensor::Element;

/// A matrix in a slice: element `(i, j)` lies at `start + i * row + j * column`.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub start: usize,
    pub row: usize,
    pub column: usize,
}

impl View {
    /// Rows of consecutive elements, `row` elements from one to the next.
    pub fn rows(start: usize, row: usize) -> View {
        View { start, row, column: 1 }
    }

    /// The transposed matrix.
    pub fn transposed(self) -> View {
        View { row: self.column, column: self.row, ..self }
    }

    /// Whether a matrix of this size lies within `length` elements.
    fn fits(self, height: usize, width: usize, length: usize) -> bool {
        let last = |count: usize, step: usize| count.checked_sub(1).and_then(|n| n.checked_mul(step));
        match (last(height, self.row), last(width, self.column)) {
            (Some(down), Some(right)) => {
                down.checked_add(right).and_then(|n| n.checked_add(self.start)).is_some_and(|at| at < length)
            }
            _ => true,
        }
    }
}

/// An element that matrices can be multiplied of.
pub(crate) trait Scalar: Element {
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;

    /// `target = a * b`, or `target += a * b` if `add`; `m`, `n`, `k` are rows and columns of the target and the inner size.
    fn product(
        size: (usize, usize, usize),
        target: (&mut [Self], View),
        a: (&[Self], View),
        b: (&[Self], View),
        add: bool,
    );
}

macro_rules! gemm_scalar {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self + other
            }

            #[inline(always)]
            fn times(self, other: $t) -> $t {
                self * other
            }

            fn product(
                (m, n, k): (usize, usize, usize),
                (target, to): (&mut [$t], View),
                (a, left): (&[$t], View),
                (b, right): (&[$t], View),
                add: bool,
            ) {
                let inside = to.fits(m, n, target.len()) && left.fits(m, k, a.len()) && right.fits(k, n, b.len());
                assert!(inside, "a matrix reaches past its slice");
                // SAFETY: the three matrices lie within their slices (just checked; strides are not negative and fit isize, as
                // the slices do), the target is borrowed mutably, so it overlaps neither.
                unsafe {
                    gemm::gemm(
                        m, n, k,
                        target.as_mut_ptr().add(to.start), to.column as isize, to.row as isize, add,
                        a.as_ptr().add(left.start), left.column as isize, left.row as isize,
                        b.as_ptr().add(right.start), right.column as isize, right.row as isize,
                        1.0, 1.0, false, false, false, gemm::Parallelism::None,
                    );
                }
            }
        }
    )*};
}

gemm_scalar!(f32, f64);

impl Scalar for i32 {
    #[inline(always)]
    fn plus(self, other: i32) -> i32 {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn times(self, other: i32) -> i32 {
        self.wrapping_mul(other)
    }

    fn product(
        (m, n, k): (usize, usize, usize),
        (target, to): (&mut [i32], View),
        (a, left): (&[i32], View),
        (b, right): (&[i32], View),
        add: bool,
    ) {
        for i in 0..m {
            for j in 0..n {
                let sum = (0..k).fold(0i32, |sum, l| {
                    let x = a[left.start + i * left.row + l * left.column];
                    sum.wrapping_add(x.wrapping_mul(b[right.start + l * right.row + j * right.column]))
                });
                let at = &mut target[to.start + i * to.row + j * to.column];
                *at = if add { at.wrapping_add(sum) } else { sum };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_select_parts_of_matrices() {
        let a: Vec<i32> = (0..6).collect();
        let b: Vec<i32> = (0..6).collect();
        let mut ints = vec![100; 8];
        let size = (2, 2, 3);
        i32::product(size, (&mut ints, View::rows(1, 4)), (&a, View::rows(0, 3)), (&b, View::rows(0, 2)), false);
        assert_eq!(ints, [100, 10, 13, 100, 100, 28, 40, 100]);
        let (fa, fb) =
            (a.iter().map(|&v| v as f32).collect::<Vec<_>>(), b.iter().map(|&v| v as f32).collect::<Vec<_>>());
        let mut floats = vec![1.0; 8];
        f32::product(size, (&mut floats, View::rows(1, 4)), (&fa, View::rows(0, 3)), (&fb, View::rows(0, 2)), true);
        assert_eq!(floats, [1.0, 11.0, 14.0, 1.0, 1.0, 29.0, 41.0, 1.0]);
        let mut transposed = vec![0; 4];
        let left = View::rows(0, 2).transposed();
        i32::product((2, 2, 3), (&mut transposed, View::rows(0, 2)), (&a, left), (&b, View::rows(0, 2)), false);
        assert_eq!(transposed, [20, 26, 26, 35]);
    }

    #[test]
    #[should_panic(expected = "reaches past")]
    fn a_matrix_outside_its_slice_is_refused() {
        let a = [1.0f32; 4];
        f32::product(
            (2, 2, 2),
            (&mut [0.0; 3], View::rows(0, 2)),
            (&a, View::rows(0, 2)),
            (&a, View::rows(0, 2)),
            false,
        );
    }
}
