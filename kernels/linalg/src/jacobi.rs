//! Singular values of complex matrices by one-sided rotations after Jacobi (Hestenes 1958). The `faer` crate, which does the
//! real ones, gives wrong values for some complex matrices (0.24.4).

use crate::dense::Dense;
use crate::qr;
use graphmill_tensor::Complex64;

/// Rounds over all pairs of columns; ten are many.
const MOST_ROUNDS: usize = 60;

/// `A = U·S·Vᴴ`; `U` and `V` have as many columns as there are values, or are square.
pub(crate) struct Factors<T> {
    pub values: Vec<f64>,
    pub u: Dense<T>,
    pub v: Dense<T>,
}

fn norm(column: &[Complex64]) -> f64 {
    column.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt()
}

/// The factors of a finite matrix, values falling.
pub(crate) fn factors(mut a: Dense<Complex64>, full: bool) -> Factors<Complex64> {
    if a.rows < a.columns {
        let adjoint = Dense::copy(a.view().adjoint(), a.columns, a.rows);
        let Factors { values, u, v } = factors(adjoint, full);
        return Factors { values, u: v, v: u };
    }
    let n = a.columns;
    let mut v = Dense::<Complex64>::identity(n);
    for _ in 0..MOST_ROUNDS {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                rotated |= orthogonalise(&mut a, &mut v, p, q);
            }
        }
        if !rotated {
            break;
        }
    }
    let norms: Vec<f64> = (0..n).map(|j| norm(a.column(j))).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| norms[j].total_cmp(&norms[i]));
    let values: Vec<f64> = order.iter().map(|&j| norms[j]).collect();
    let least = values.first().copied().unwrap_or(0.0) * f64::MIN_POSITIVE.sqrt();
    let rank = values.iter().take_while(|&&s| s > least && s > 0.0).count();
    let mut sorted = Dense::zeros(n, n);
    let mut u = Dense::zeros(a.rows, rank);
    for (to, &from) in order.iter().enumerate() {
        sorted.column_mut(to).copy_from_slice(v.column(from));
        if to < rank {
            let scale = norms[from];
            u.column_mut(to).iter_mut().zip(a.column(from)).for_each(|(t, &x)| *t = x / scale);
        }
    }
    let columns = if full { a.rows } else { n };
    Factors { values, u: completed(u, columns), v: sorted }
}

/// Rotates columns `p` and `q` so that they are orthogonal; false if they are already.
fn orthogonalise(a: &mut Dense<Complex64>, v: &mut Dense<Complex64>, p: usize, q: usize) -> bool {
    let (left, right) = a.two_columns(p, q);
    let alpha: f64 = left.iter().map(|x| x.norm_sqr()).sum();
    let beta: f64 = right.iter().map(|x| x.norm_sqr()).sum();
    let gamma: Complex64 = left.iter().zip(right.iter()).map(|(x, y)| x.conj() * y).sum();
    let size = gamma.norm();
    if size <= f64::EPSILON * (alpha * beta).sqrt() || size == 0.0 {
        return false;
    }
    // With its phase taken off the right column, both are turned as real ones are.
    let phase = gamma.conj() / size;
    let zeta = (beta - alpha) / (2.0 * size);
    let tangent = 1f64.copysign(zeta) / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
    let cosine = (1.0 + tangent * tangent).sqrt().recip();
    let sine = cosine * tangent;
    for matrix in [a, v] {
        let (left, right) = matrix.two_columns(p, q);
        for (x, y) in left.iter_mut().zip(right) {
            let turned = phase * *y;
            (*x, *y) = (*x * cosine - turned * sine, *x * sine + turned * cosine);
        }
    }
    true
}

/// Orthonormal columns with others behind them that are orthogonal to them.
fn completed(u: Dense<Complex64>, columns: usize) -> Dense<Complex64> {
    if u.columns >= columns {
        return u;
    }
    let (rows, kept) = (u.rows, u.columns);
    let (mut all, _) = qr::factor(u.clone(), columns);
    all.data[..kept * rows].copy_from_slice(&u.data);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::product;

    fn multiplied(f: &Factors<Complex64>) -> Dense<Complex64> {
        let mut scaled = f.u.clone();
        for (j, &value) in f.values.iter().enumerate() {
            scaled.column_mut(j).iter_mut().for_each(|x| *x *= value);
        }
        product(scaled.view(), f.v.view().adjoint(), f.u.rows, f.values.len(), f.v.rows)
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        for (m, n) in [(1, 1), (5, 3), (3, 5), (12, 12)] {
            for rank in [n.min(m), 1] {
                let data: Vec<Complex64> = (0..m * n)
                    .map(|i| {
                        let i = if rank == 1 { i % n } else { i * i };
                        Complex64::new((i as f64 + 1.0).sin(), (i as f64 * 3.0).cos())
                    })
                    .collect();
                let a = Dense::from_rows(&data, m, n);
                for full in [false, true] {
                    let f = factors(a.clone(), full);
                    let back = multiplied(&f);
                    assert!(back.data.iter().zip(&a.data).all(|(x, y)| (x - y).norm() < 1e-12), "{m} {n} {rank}");
                    for w in [&f.u, &f.v] {
                        let gram = product(w.view().adjoint(), w.view(), w.columns, w.rows, w.columns);
                        let one = Dense::<Complex64>::identity(w.columns);
                        assert!(gram.data.iter().zip(&one.data).all(|(x, y)| (x - y).norm() < 1e-12), "{m} {n} {rank}");
                    }
                }
            }
        }
    }
}
