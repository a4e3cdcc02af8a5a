//! `MatrixTriangularSolve` and `BandedTriangularSolve`.

use crate::batch::{Parts, each};
use crate::dense::{Dense, Triangle, View, solve_triangular};
use crate::scalar::{Scalar, TYPES};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Broadcast, Complex32, Complex64, Result, Shape, dispatch, internal, invalid_argument};
use num_traits::Zero;

struct Solve {
    lower: bool,
    adjoint: bool,
    banded: bool,
}

/// The shapes of a batch of systems whose batch dimensions broadcast.
struct Plan {
    output: Shape,
    /// Rows and columns of a left-hand side as it is stored.
    stored: (usize, usize),
    /// Rows and columns of a right-hand side.
    rhs: (usize, usize),
    /// For each system, the left-hand and the right-hand side it uses.
    pairs: Vec<(usize, usize)>,
}

impl Solve {
    fn new(c: &Construction<'_>, banded: bool) -> Result<Solve> {
        Ok(Solve { lower: c.attrs().bool("lower")?, adjoint: c.attrs().bool("adjoint")?, banded })
    }

    fn plan(&self, a: &Shape, b: &Shape) -> Result<Plan> {
        for (i, shape) in [a, b].into_iter().enumerate() {
            if shape.rank() < 2 {
                return Err(invalid_argument!("In[{i}] ndims must be >= 2: {}", shape.rank()));
            }
        }
        let inner = |shape: &Shape| (shape.dim(shape.rank() - 2), shape.dim(shape.rank() - 1));
        let (stored, rhs) = (inner(a), inner(b));
        if self.banded {
            for (i, shape) in [a, b].into_iter().enumerate() {
                if shape.num_elements() == 0 {
                    return Err(invalid_argument!("In[{i}] must not be an empty tensor: {shape}"));
                }
            }
        } else if stored.0 != stored.1 {
            return Err(invalid_argument!(
                "In[0] matrices in the last dimensions must be square ({} =/= {})",
                stored.1,
                stored.0
            ));
        }
        let outer = |shape: &Shape| Shape::from_dims(&shape.dims()[..shape.rank() - 2]);
        let broadcast = Broadcast::new(&outer(a)?, &outer(b)?).map_err(|error| {
            error.with_message(format!("In[0] and In[1] must have compatible batch dimensions: {a} vs. {b}"))
        })?;
        if stored.1 != rhs.0 {
            return Err(invalid_argument!(
                "In[0] mismatch In[1] shape: {} vs. {}: {a} {b} {} {}",
                stored.1,
                rhs.0,
                u8::from(self.lower),
                u8::from(self.adjoint)
            ));
        }
        let batch = broadcast.shape();
        let output = Shape::from_dims(&[batch.dims(), &[rhs.0, rhs.1]].concat())?;
        let mut pairs = Vec::new();
        if output.num_elements() > 0 {
            broadcast.for_each_run(0..batch.num_elements(), |run, at| {
                let step = |i: usize| broadcast.run_stride(i);
                pairs.extend((0..run.len()).map(|k| (at[0] + k * step(0), at[1] + k * step(1))));
            });
        }
        Ok(Plan { output, stored, rhs, pairs })
    }

    /// Whether a diagonal element of the first left-hand side, the one that TensorFlow looks at, is zero.
    fn is_singular<T: Scalar>(&self, a: &[T], (rows, n): (usize, usize)) -> bool {
        let diagonal = |i: usize| match (self.banded, self.lower) {
            (false, _) => a[i * n + i],
            (true, true) => a[i],
            (true, false) => a[(rows - 1) * n + i],
        };
        !(0..n).all(|i| diagonal(i).abs() > T::Real::zero())
    }

    fn solve<T: Scalar>(&self, a: &[T], (bands, n): (usize, usize), b: &[T], columns: usize, out: &mut [T]) {
        if !self.banded {
            let view = View::by_rows(a, n);
            let view = if self.adjoint { view.adjoint() } else { view };
            let triangle = if self.lower != self.adjoint { Triangle::Lower } else { Triangle::Upper };
            let mut x = Dense::from_rows(b, n, columns);
            solve_triangular(view, triangle, false, n, &mut x.data, n, columns);
            return x.to_rows(out);
        }
        // Band `d` below (or above) the diagonal is a row of `a`, indexed by the row of the matrix it is in.
        let band = |d: usize| if self.lower { d } else { bands - 1 - d };
        let element = |i: usize, j: usize| {
            let (i, j) = if self.adjoint { (j, i) } else { (i, j) };
            let value = a[band(i.abs_diff(j)) * n + i];
            if self.adjoint { value.conj() } else { value }
        };
        out.copy_from_slice(b);
        let forwards = self.lower != self.adjoint;
        for step in 0..n {
            let i = if forwards { step } else { n - 1 - step };
            let known = if forwards { i.saturating_sub(bands - 1)..i } else { i + 1..(i + bands).min(n) };
            for j in known {
                let factor = element(i, j);
                for c in 0..columns {
                    let value = out[j * columns + c];
                    out[i * columns + c] -= factor * value;
                }
            }
            let diagonal = element(i, i);
            out[i * columns..(i + 1) * columns].iter_mut().for_each(|x| *x /= diagonal);
        }
    }
}

impl Kernel for Solve {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let plan = self.plan(a.shape(), b.shape())?;
        let mut out = ctx.alloc_output(0, plan.output.clone())?;
        if plan.output.num_elements() == 0 {
            return ctx.set_output(0, out);
        }
        let (left, right) = (plan.stored.0 * plan.stored.1, plan.rhs.0 * plan.rhs.1);
        dispatch!(a.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
            if self.is_singular(&a[..left], plan.stored) {
                return Err(invalid_argument!("Input matrix is not invertible."));
            }
            let parts = Parts::new(out.as_mut_slice::<T>()?, plan.pairs.len(), right);
            each(ctx, plan.pairs.len(), (left * plan.rhs.1) as f64, |i| {
                let (x, y) = plan.pairs[i];
                let (a, b) = (&a[x * left..(x + 1) * left], &b[y * right..(y + 1) * right]);
                parts.with(i, |out| self.solve(a, plan.stored, b, plan.rhs.1, out));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("triangular systems do not take this type"))??;
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    for op in ["MatrixTriangularSolve", "BatchMatrixTriangularSolve"] {
        r.op(op).types("T", TYPES).kernel(|c| Solve::new(c, false));
    }
    r.op("BandedTriangularSolve").types("T", TYPES).kernel(|c| Solve::new(c, true));
}
