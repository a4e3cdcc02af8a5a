//! Functions of square matrices: `MatrixExponential`, `MatrixLogarithm`, `MatrixSquareRoot`. All in double precision.

use crate::batch::{Batch, Parts, part};
use crate::dense::{Dense, Triangle, solve_triangular};
use crate::lu::Lu;
use crate::scalar::{Scalar, TYPES};
use crate::schur::Schur;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Result, dispatch, internal};

/// The 13th diagonal Padé approximant of the exponential (Higham 2005).
const EXP_PADE: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];
/// The norm up to which that approximant is exact to double precision.
const EXP_NORM: f64 = 5.371920351148152;

/// Nodes and weights of the Gauss-Legendre rule with 7 points on (0, 1): the partial fractions of the 7th diagonal Padé
/// approximant of `log(1 + x)`.
const LOG_PADE: [(f64, f64); 7] = [
    (0.025446043828620757, 0.06474248308443485),
    (0.12923440720030277, 0.1398526957446383),
    (0.29707742431130146, 0.19091502525255946),
    (0.5, 0.2089795918367347),
    (0.7029225756886985, 0.19091502525255946),
    (0.8707655927996972, 0.1398526957446383),
    (0.9745539561713793, 0.06474248308443485),
];
/// The norm of `x` up to which that approximant is exact to double precision.
const LOG_NORM: f64 = 0.264;
/// Square roots after which the logarithm gives up coming near the identity; a singular matrix never does.
const MOST_ROOTS: usize = 100;

/// The largest sum of magnitudes in a column.
fn norm<T: Scalar<Real = f64>>(a: &Dense<T>) -> f64 {
    (0..a.columns).map(|j| a.column(j).iter().map(|x| x.abs()).sum::<f64>()).fold(0.0, f64::max)
}

fn exponential<T: Scalar<Real = f64>>(a: Dense<T>) -> Option<Dense<T>> {
    let size = norm(&a);
    if !size.is_finite() || !a.data.iter().all(|x| x.is_finite()) {
        return None;
    }
    let halvings = if size > EXP_NORM { (size / EXP_NORM).log2().ceil() as i32 } else { 0 };
    let n = a.rows;
    let a = a.scaled(T::from_f64(0.5f64.powi(halvings)));
    let b = |k: usize| T::from_f64(EXP_PADE[k]);
    let one = Dense::<T>::identity(n);
    let a2 = a.times(&a);
    let a4 = a2.times(&a2);
    let a6 = a2.times(&a4);
    let of = |k6: usize, k4: usize, k2: usize| a6.scaled(b(k6)).plus(&a4.scaled(b(k4))).plus(&a2.scaled(b(k2)));
    let odd = a6.times(&of(13, 11, 9)).plus(&of(7, 5, 3)).plus(&one.scaled(b(1)));
    let odd = a.times(&odd);
    let even = a6.times(&of(12, 10, 8)).plus(&of(6, 4, 2)).plus(&one.scaled(b(0)));
    let mut result = Lu::new(even.minus(&odd)).solve(even.plus(&odd));
    for _ in 0..halvings {
        result = result.times(&result);
    }
    Some(result)
}

/// The principal square root of an upper triangular matrix (Björck and Hammarling 1983).
fn triangular_root(t: &Dense<Complex64>) -> Dense<Complex64> {
    let n = t.rows;
    let mut r = Dense::<Complex64>::zeros(n, n);
    for j in 0..n {
        r.set(j, j, t.at(j, j).sqrt());
        for i in (0..j).rev() {
            let sum: Complex64 = (i + 1..j).map(|k| r.at(i, k) * r.at(k, j)).sum();
            let rest = t.at(i, j) - sum;
            // Twice the eigenvalue zero: the root is zero where the matrix is.
            let value = if rest == Complex64::default() { rest } else { rest / (r.at(i, i) + r.at(j, j)) };
            r.set(i, j, value);
        }
    }
    r
}

fn square_root(a: Dense<Complex64>) -> Option<Dense<Complex64>> {
    let schur = Schur::new(a)?;
    Some(schur.transform_back(&triangular_root(&schur.t)))
}

/// The principal logarithm: square roots until the matrix is near the identity, then a Padé approximant.
fn logarithm(a: Dense<Complex64>) -> Option<Dense<Complex64>> {
    let schur = Schur::new(a)?;
    let n = schur.t.rows;
    let one = Dense::identity(n);
    let mut t = schur.t.clone();
    for j in 0..n {
        t.column_mut(j)[j + 1..].fill(Complex64::default());
    }
    let mut roots = 0;
    let x = loop {
        let x = t.minus(&one);
        if norm(&x) <= LOG_NORM {
            break x;
        }
        if roots == MOST_ROOTS {
            return None;
        }
        t = triangular_root(&t);
        roots += 1;
    };
    let mut log = Dense::<Complex64>::zeros(n, n);
    for (node, weight) in LOG_PADE {
        let divisor = one.plus(&x.scaled(node.into()));
        let mut term = x.scaled(weight.into());
        solve_triangular(divisor.view(), Triangle::Upper, false, n, &mut term.data, n, n);
        log = log.plus(&term);
    }
    log = log.scaled(2f64.powi(roots as i32).into());
    for i in 0..n {
        log.set(i, i, schur.t.at(i, i).ln());
    }
    Some(schur.transform_back(&log))
}

#[derive(Clone, Copy)]
enum Function {
    Exponential,
    Logarithm,
    SquareRoot,
}

impl Function {
    /// The function of a matrix given by rows; `None` where there is none.
    fn of<T: Scalar>(self, data: &[T], n: usize) -> Option<Vec<T>>
    where
        T::Wide: Scalar<Real = f64>,
    {
        if let Function::Exponential = self {
            let wide: Vec<T::Wide> = data.iter().map(|x| x.widen()).collect();
            let result = exponential(Dense::from_rows(&wide, n, n))?;
            let mut rows = vec![T::Wide::from_f64(0.0); n * n];
            result.to_rows(&mut rows);
            return Some(rows.into_iter().map(T::narrow).collect());
        }
        let wide: Vec<Complex64> = data.iter().map(|x| x.to_complex()).collect();
        let wide = Dense::from_rows(&wide, n, n);
        let result = if let Function::Logarithm = self { logarithm(wide)? } else { square_root(wide)? };
        let mut rows = vec![Complex64::default(); n * n];
        result.to_rows(&mut rows);
        if !T::DTYPE.is_complex() {
            // A real matrix with a negative eigenvalue has no real root.
            let (re, im) = rows.iter().fold((0f64, 0f64), |(re, im), x| (re.max(x.re.abs()), im.max(x.im.abs())));
            if im > 1e-6 * re {
                return None;
            }
        }
        Some(rows.into_iter().map(T::from_complex).collect())
    }
}

impl Kernel for Function {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let mut out = ctx.alloc_output(0, ctx.input(0)?.shape().clone())?;
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * n);
            batch.each(ctx, 60.0 * (n * n * n) as f64, |i| {
                let result = self.of(part(data, i, (n, n)), n);
                parts.with(i, |out| match result {
                    Some(values) => out.copy_from_slice(&values),
                    None => out.fill(T::from_f64(f64::NAN)),
                });
                Ok(())
            })
        })
        .ok_or_else(|| internal!("functions of matrices do not take this type"))??;
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("MatrixExponential").types("T", TYPES).kernel(|_| Ok(Function::Exponential));
    let complex = [DType::Complex128, DType::Complex64];
    r.op("MatrixLogarithm").types("T", &complex).kernel(|_| Ok(Function::Logarithm));
    r.op("MatrixSquareRoot").types("T", TYPES).kernel(|_| Ok(Function::SquareRoot));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_and_logarithm_undo_each_other() {
        let data: Vec<Complex64> = (0..16).map(|i| Complex64::new((i as f64).sin(), (i as f64).cos() * 0.4)).collect();
        let a = Dense::from_rows(&data, 4, 4);
        let back = logarithm(exponential(a.clone()).unwrap()).unwrap();
        assert!(back.data.iter().zip(&a.data).all(|(x, y)| (x - y).norm() < 1e-12));
        let large = a.scaled(Complex64::new(20.0, 0.0));
        let squared = exponential(a.scaled(Complex64::new(10.0, 0.0))).unwrap();
        let (whole, product) = (exponential(large).unwrap(), squared.times(&squared));
        let scale = norm(&whole);
        assert!(whole.data.iter().zip(&product.data).all(|(x, y)| (x - y).norm() < 1e-12 * scale));
    }

    #[test]
    fn the_square_of_the_root_is_the_matrix() {
        let a = [2.0f32, 1.0, 0.5, 3.0];
        let root = Function::SquareRoot.of(&a, 2).unwrap();
        let root = Dense::from_rows(&root, 2, 2);
        let mut square = [0.0; 4];
        root.times(&root).to_rows(&mut square);
        assert!(square.iter().zip(&a).all(|(x, y)| (x - y).abs() < 1e-6));
        assert!(Function::SquareRoot.of(&[-1.0f64, 0.0, 0.0, 1.0], 2).is_none());
    }
}
