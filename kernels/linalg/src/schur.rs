//! The complex Schur form `A = U·T·Uᴴ`, `T` upper triangular: reduction to Hessenberg form, then shifted QR steps.

use crate::dense::Dense;
use crate::qr::Reflection;
use graphmill_tensor::Complex64;
use num_complex::ComplexFloat;

/// Steps allowed for each row, as in LAPACK.
const STEPS_PER_ROW: usize = 30;

/// The Schur form of a matrix.
pub(crate) struct Schur {
    pub t: Dense<Complex64>,
    pub u: Dense<Complex64>,
}

impl Schur {
    /// The form of a square matrix; `None` if the iteration does not converge, as for a matrix that holds NaN.
    pub(crate) fn new(mut t: Dense<Complex64>) -> Option<Schur> {
        if !t.data.iter().all(|x| x.is_finite()) {
            return None;
        }
        let n = t.rows;
        let mut u = Dense::identity(n);
        for k in 0..n.saturating_sub(2) {
            let reflection = Reflection::new(&t.column(k)[k + 1..]);
            for j in k..n {
                reflection.apply(false, &mut t.column_mut(j)[k + 1..]);
            }
            t.column_mut(k)[k + 2..].fill(Complex64::default());
            reflection.apply_right_adjoint(&mut t, k + 1);
            reflection.apply_right_adjoint(&mut u, k + 1);
        }
        let mut schur = Schur { t, u };
        schur.iterate().then_some(schur)
    }

    fn iterate(&mut self) -> bool {
        let n = self.t.rows;
        let mut last = n.saturating_sub(1);
        let (mut since_found, mut total) = (0, 0);
        loop {
            while last > 0 && self.is_negligible(last - 1) {
                since_found = 0;
                last -= 1;
            }
            if last == 0 {
                return true;
            }
            since_found += 1;
            total += 1;
            if total > STEPS_PER_ROW * n {
                return false;
            }
            let mut first = last - 1;
            while first > 0 && !self.is_negligible(first - 1) {
                first -= 1;
            }
            let shift = self.shift(last, since_found);
            let (p, q) = (self.t.at(first, first) - shift, self.t.at(first + 1, first));
            self.rotate(first, last, p, q);
            for i in first + 1..last {
                let (p, q) = (self.t.at(i, i - 1), self.t.at(i + 1, i - 1));
                self.rotate(i, last, p, q);
                self.t.set(i + 1, i - 1, Complex64::default());
            }
        }
    }

    /// Whether the element below the diagonal at `i` is as good as zero; it is set to zero then.
    fn is_negligible(&mut self, i: usize) -> bool {
        let around = self.t.at(i, i).l1_norm() + self.t.at(i + 1, i + 1).l1_norm();
        let negligible = self.t.at(i + 1, i).l1_norm() <= f64::EPSILON * around;
        if negligible {
            self.t.set(i + 1, i, Complex64::default());
        }
        negligible
    }

    /// The eigenvalue of the last two rows that is nearer to the last diagonal element (Wilkinson's shift).
    fn shift(&self, last: usize, since_found: usize) -> Complex64 {
        if (since_found == 10 || since_found == 20) && last > 1 {
            let size = self.t.at(last, last - 1).re.abs() + self.t.at(last - 1, last - 2).re.abs();
            return Complex64::new(size, 0.0);
        }
        let block = [(last - 1, last - 1), (last - 1, last), (last, last - 1), (last, last)];
        let block = block.map(|(i, j)| self.t.at(i, j));
        let size: f64 = block.iter().map(|x| x.abs()).sum();
        let [a, b, c, d] = block.map(|x| x / size);
        let (product, difference) = (b * c, a - d);
        let root = (difference * difference + product * 4.0).sqrt();
        let (determinant, trace) = (a * d - product, a + d);
        let (mut one, mut two) = ((trace + root) * 0.5, (trace - root) * 0.5);
        if one.l1_norm() > two.l1_norm() {
            two = determinant / one;
        } else if two.l1_norm() != 0.0 {
            one = determinant / two;
        }
        let nearer = if (one - d).l1_norm() < (two - d).l1_norm() { one } else { two };
        nearer * size
    }

    /// Rotates rows and columns `i` and `i + 1` so that `(p, q)` becomes `(r, 0)`.
    fn rotate(&mut self, i: usize, last: usize, p: Complex64, q: Complex64) {
        let r = p.abs().hypot(q.abs());
        if r == 0.0 {
            return;
        }
        let (c, s) = (p / r, q / r);
        let n = self.t.rows;
        for j in i.saturating_sub(1)..n {
            let column = self.t.column_mut(j);
            let (x, y) = (column[i], column[i + 1]);
            column[i] = c.conj() * x + s.conj() * y;
            column[i + 1] = c * y - s * x;
        }
        let rows = (i + 3).min(last + 1);
        for (matrix, rows) in [(&mut self.t, rows), (&mut self.u, n)] {
            let (left, right) = matrix.two_columns(i, i + 1);
            for (x, y) in left.iter_mut().zip(right).take(rows) {
                (*x, *y) = (*x * c + *y * s, *y * c.conj() - *x * s.conj());
            }
        }
    }

    /// `U·F·Uᴴ` for an upper triangular `F`.
    pub(crate) fn transform_back(&self, f: &Dense<Complex64>) -> Dense<Complex64> {
        let n = f.rows;
        crate::dense::product(self.u.times(f).view(), self.u.view().adjoint(), n, n, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_triangular_and_gives_the_matrix_back() {
        for n in [1, 2, 3, 8, 30] {
            let data: Vec<Complex64> =
                (0..n * n).map(|i| Complex64::new(((i * i + 1) as f64).sin(), ((i * 3) as f64).cos())).collect();
            for a in [Dense::from_rows(&data, n, n), Dense::zeros(n, n), Dense::identity(n)] {
                let schur = Schur::new(a.clone()).unwrap();
                for j in 0..n {
                    assert!(schur.t.column(j)[j + 1..].iter().all(|x| x.norm() < 1e-10), "{n}");
                }
                let back = schur.transform_back(&schur.t);
                assert!(back.data.iter().zip(&a.data).all(|(x, y)| (x - y).norm() < 1e-12 * n as f64 * 10.0), "{n}");
            }
        }
    }

    #[test]
    fn a_matrix_that_is_not_finite_has_no_form() {
        assert!(Schur::new(Dense::from_rows(&[Complex64::new(f64::NAN, 0.0); 4], 2, 2)).is_none());
    }
}
