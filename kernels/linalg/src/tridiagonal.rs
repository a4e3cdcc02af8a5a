//! `TridiagonalSolve` and `TridiagonalMatMul`.

use crate::batch::{Batch, Parts, part};
use crate::scalar::{Scalar, TYPES};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, dispatch, internal, invalid_argument};
use num_traits::{Float, One, Zero};

/// Solves systems given by three diagonals. A system without a solution gives NaN.
struct TridiagonalSolve {
    pivoting: bool,
    perturb: bool,
}

/// The diagonals above, on and below the main one; the last element of the first and the first of the last mean nothing.
struct Diagonals<'a, T> {
    above: &'a [T],
    main: &'a [T],
    below: &'a [T],
}

/// `x[to] -= factor * x[from]` for rows of `width` elements.
fn subtract_row<T: Scalar>(x: &mut [T], width: usize, to: usize, factor: T, from: usize) {
    for c in 0..width {
        let value = x[from * width + c];
        x[to * width + c] -= factor * value;
    }
}

fn divide_row<T: Scalar>(x: &mut [T], width: usize, row: usize, divisor: T) {
    x[row * width..(row + 1) * width].iter_mut().for_each(|x| *x /= divisor);
}

/// Eliminates without exchanging rows (Thomas's algorithm); `None` if a pivot is zero.
fn thomas<T: Scalar>(d: &Diagonals<'_, T>, width: usize, x: &mut [T]) -> Option<()> {
    let n = d.main.len();
    let mut u = vec![T::zero(); n];
    for i in 0..n {
        let mut pivot = d.main[i];
        if i > 0 {
            pivot -= d.below[i] * u[i - 1];
            subtract_row(x, width, i, d.below[i], i - 1);
        }
        if pivot == T::zero() {
            return None;
        }
        u[i] = d.above[i] / pivot;
        divide_row(x, width, i, pivot);
    }
    for i in (0..n.saturating_sub(1)).rev() {
        subtract_row(x, width, i, u[i], i + 1);
    }
    Some(())
}

/// The rows of the upper factor: its diagonal and the two diagonals above it.
type Upper<T> = Vec<[T; 3]>;

/// Eliminates the lower diagonal with exchanges of neighbouring rows, on the right-hand sides too. `exchange(k, row k of the
/// factor)` decides. A row whose element below is zero already is left alone.
fn eliminate<T: Scalar>(
    d: &Diagonals<'_, T>,
    width: usize,
    x: &mut [T],
    mut exchange: impl FnMut(usize, &[T; 3]) -> bool,
) -> Upper<T> {
    let n = d.main.len();
    let zero = T::zero();
    let above = |i: usize| if i + 1 < n { d.above[i] } else { zero };
    let mut u = vec![[zero; 3]; n];
    u[0] = [d.main[0], above(0), zero];
    for k in 0..n.saturating_sub(1) {
        let below = d.below[k + 1];
        let next = [d.main[k + 1], above(k + 1), zero];
        if exchange(k, &u[k]) {
            let factor = u[k][0] / below;
            u[k + 1] = [u[k][1] - factor * next[0], -factor * next[1], zero];
            u[k] = [below, next[0], next[1]];
            for c in 0..width {
                x.swap(k * width + c, (k + 1) * width + c);
            }
            subtract_row(x, width, k + 1, factor, k);
        } else if below == zero {
            u[k + 1] = next;
        } else {
            let factor = below / u[k][0];
            u[k + 1] = [next[0] - factor * u[k][1], next[1], zero];
            subtract_row(x, width, k + 1, factor, k);
        }
    }
    u
}

/// Gaussian elimination with partial pivoting; `None` if the matrix is singular.
fn pivoted<T: Scalar>(d: &Diagonals<'_, T>, width: usize, x: &mut [T]) -> Option<()> {
    let u = eliminate(d, width, x, |k, row| row[0].abs() < d.below[k + 1].abs());
    if u.iter().any(|row| row[0] == T::zero()) {
        return None;
    }
    let n = u.len();
    for k in (0..n).rev() {
        for (ahead, &factor) in u[k].iter().enumerate().skip(1) {
            if k + ahead < n {
                subtract_row(x, width, k, factor, k + ahead);
            }
        }
        divide_row(x, width, k, u[k][0]);
    }
    Some(())
}

/// As [`pivoted`], but pivots that would overflow the solution are moved away from zero (LAPACK's `xLAGTF` and `xLAGTS`).
fn perturbed<T: Scalar>(d: &Diagonals<'_, T>, width: usize, x: &mut [T]) {
    let n = d.main.len();
    let above = |i: usize| if i + 1 < n { d.above[i].abs() } else { T::Real::zero() };
    let mut scale = d.main[0].abs() + above(0);
    let swapped = eliminate(d, width, x, |k, row| {
        let below = d.below[k + 1].abs();
        let next = below + d.main[k + 1].abs() + above(k + 1);
        let here = if row[0] == T::zero() { T::Real::zero() } else { row[0].abs() / scale };
        let exchange = below != T::Real::zero() && below / next > here;
        if !exchange {
            scale = next;
        }
        exchange
    });
    // The elements that TensorFlow looks at: all but those of the last rows above the diagonal.
    let looked_at = swapped[..n.saturating_sub(2)].iter().flatten().chain([&swapped[n - 1][0]]);
    let first = Float::max(d.main[0].abs(), above(0));
    let largest = looked_at.fold(first, |m, u| Float::max(m, u.abs()));
    let tolerance = T::Real::epsilon() * largest;
    for k in (0..n).rev() {
        for (ahead, &factor) in swapped[k].iter().enumerate().skip(1) {
            if k + ahead < n {
                subtract_row(x, width, k, factor, k + ahead);
            }
        }
        let mut pivot = swapped[k][0];
        let row = &mut x[k * width..(k + 1) * width];
        perturb(tolerance, &mut pivot, row);
        let inverse = T::one() / pivot;
        row.iter_mut().for_each(|x| *x *= inverse);
    }
}

/// Moves a pivot so that neither its inverse nor its row divided by it overflows.
fn perturb<T: Scalar>(by: T::Real, pivot: &mut T, row: &mut [T]) {
    let one = T::Real::one();
    let safe = T::Real::min_positive_value();
    let big = one / safe;
    let mut size = pivot.abs();
    if size >= one {
        return;
    }
    let mut by = Float::max(Float::abs(by), safe);
    if pivot.re() < T::Real::zero() {
        by = -by;
    }
    let largest = row.iter().fold(T::Real::zero(), |m, x| Float::max(m, x.abs()));
    while size < one {
        if size < safe && !(size == T::Real::zero() || largest * safe > size) {
            *pivot *= T::from_real(big);
            row.iter_mut().for_each(|x| *x *= T::from_real(big));
            return;
        }
        if size >= safe && largest <= size * big {
            return;
        }
        *pivot += T::from_real(by);
        by = by + by;
        size = pivot.abs();
    }
}

impl TridiagonalSolve {
    fn solve<T: Scalar>(&self, d: &Diagonals<'_, T>, width: usize, x: &mut [T]) {
        let n = d.main.len();
        if n == 0 {
            return;
        }
        if self.perturb {
            return perturbed(d, width, x);
        }
        let solved = if self.pivoting { pivoted(d, width, x) } else { thomas(d, width, x) };
        if solved.is_none() {
            x.fill(T::from_f64(f64::NAN));
        }
    }
}

impl Kernel for TridiagonalSolve {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<2>::new(ctx)?;
        let [(rows, n), (right, width)] = batch.sizes;
        if rows != 3 {
            return Err(invalid_argument!(
                "Expected diagonals to be provided as a matrix with 3 rows, got {rows} rows."
            ));
        }
        if n != right {
            return Err(invalid_argument!(
                "Expected the same number of left-hand sides and right-hand sides, got {n} and {right}."
            ));
        }
        let (diagonals, rhs) = (ctx.input(0)?, ctx.input(1)?);
        let mut out = rhs.deep_copy()?;
        dispatch!(diagonals.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = diagonals.as_slice::<T>()?;
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * width);
            batch.each(ctx, (10 * n * (1 + width)) as f64, |i| {
                let rows = part(data, i, (3, n));
                let d = Diagonals { above: &rows[..n], main: &rows[n..2 * n], below: &rows[2 * n..] };
                parts.with(i, |x| self.solve(&d, width, x));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("TridiagonalSolve does not take this type"))??;
        ctx.set_output(0, out)
    }
}

struct TridiagonalMatMul;

impl Kernel for TridiagonalMatMul {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<4>::new(ctx)?;
        let (n, width) = batch.sizes[3];
        for (size, name) in batch.sizes.iter().zip(["superdiagonal", "main diagonal", "subdiagonal"]) {
            if *size != (1, n) {
                return Err(invalid_argument!("Invalid {name} shape."));
            }
        }
        let mut out = ctx.alloc_output(0, batch.shape(&[n, width])?)?;
        let rhs = ctx.input(3)?;
        dispatch!(rhs.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let (above, main, below) =
                (ctx.input(0)?.as_slice::<T>()?, ctx.input(1)?.as_slice::<T>()?, ctx.input(2)?.as_slice::<T>()?);
            let rhs = rhs.as_slice::<T>()?;
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * width);
            batch.each(ctx, (6 * n * width) as f64, |i| {
                let x = part(rhs, i, (n, width));
                let at = |data: &[T], k: usize| data[i * n + k];
                parts.with(i, |out| {
                    for k in 0..n {
                        for c in 0..width {
                            let mut sum = at(main, k) * x[k * width + c];
                            if k > 0 {
                                sum += at(below, k) * x[(k - 1) * width + c];
                            }
                            if k + 1 < n {
                                sum += at(above, k) * x[(k + 1) * width + c];
                            }
                            out[k * width + c] = sum;
                        }
                    }
                });
                Ok(())
            })
        })
        .ok_or_else(|| internal!("TridiagonalMatMul does not take this type"))??;
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("TridiagonalSolve").types("T", TYPES).kernel(|c: &Construction<'_>| {
        let (pivoting, perturb) = (c.attrs().bool("partial_pivoting")?, c.attrs().bool("perturb_singular")?);
        if perturb && !pivoting {
            return Err(invalid_argument!("Setting perturb_singular requires also setting partial_pivoting."));
        }
        Ok(TridiagonalSolve { pivoting, perturb })
    });
    r.op("TridiagonalMatMul").types("T", TYPES).kernel(|_| Ok(TridiagonalMatMul));
}
