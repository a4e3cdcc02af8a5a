//! Batches of matrices: the checks common to all ops, and the loop over the batch.

use graphmill_runtime::Context;
use graphmill_tensor::{Result, Shape, Status, invalid_argument};
use parking_lot::Mutex;

/// Rows and columns of a matrix.
pub(crate) type Size = (usize, usize);

/// The dimensions in front of the matrices, and the size of each input's matrices.
pub(crate) struct Batch<const N: usize> {
    pub dims: Vec<usize>,
    pub count: usize,
    pub sizes: [Size; N],
}

impl<const N: usize> Batch<N> {
    /// Looks at the first `N` inputs.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if one has fewer than two dimensions, or if their batches differ.
    pub(crate) fn new(ctx: &Context<'_>) -> Result<Batch<N>> {
        let mut dims = Vec::new();
        let mut sizes = [(0, 0); N];
        for (i, size) in sizes.iter_mut().enumerate() {
            let shape = ctx.input(i)?.shape();
            let Some(outer) = shape.rank().checked_sub(2) else {
                if i > 0 {
                    return Err(invalid_argument!("All input tensors must have the same rank."));
                }
                return Err(invalid_argument!("Input tensor {i} must have rank >= 2, got {}", shape.rank()));
            };
            let these = &shape.dims()[..outer];
            if i == 0 {
                dims = these.to_vec();
            } else if these.len() != dims.len() {
                return Err(invalid_argument!("All input tensors must have the same rank."));
            } else if these != dims {
                return Err(invalid_argument!("All input tensors must have the same outer dimensions."));
            }
            *size = (shape.dim(outer), shape.dim(outer + 1));
        }
        let count = Shape::from_dims(&dims)?.num_elements();
        Ok(Batch { dims, count, sizes })
    }

    /// The shape of an output with `inner` dimensions for each matrix.
    pub(crate) fn shape(&self, inner: &[usize]) -> Result<Shape> {
        Shape::from_dims(&[&self.dims, inner].concat())
    }

    /// Runs `body` for each matrix of the batch; `cost` is the time of one in nanoseconds, roughly.
    pub(crate) fn each(&self, ctx: &Context<'_>, cost: f64, body: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        each(ctx, self.count, cost, body)
    }
}

impl Batch<1> {
    /// The one size, if the matrices are square.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if they are not.
    pub(crate) fn square(&self) -> Result<usize> {
        match self.sizes {
            [(rows, columns)] if rows == columns => Ok(rows),
            _ => Err(invalid_argument!("Input matrix must be square.")),
        }
    }
}

/// Runs `body` for each index below `count`, on several threads where it pays. The first error wins.
pub(crate) fn each(
    ctx: &Context<'_>,
    count: usize,
    cost: f64,
    body: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    let failed: Mutex<Option<Status>> = Mutex::new(None);
    ctx.parallel_for(count, cost.max(1.0), |range| {
        for i in range {
            if let Err(error) = body(i) {
                failed.lock().get_or_insert(error);
                return;
            }
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The elements of an output, cut into those of each matrix, for threads that fill them.
pub(crate) struct Parts<'a, T>(Vec<Mutex<&'a mut [T]>>);

impl<'a, T> Parts<'a, T> {
    /// `count` parts of `size` elements.
    pub(crate) fn new(mut data: &'a mut [T], count: usize, size: usize) -> Parts<'a, T> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            let (part, rest) = data.split_at_mut(size.min(data.len()));
            data = rest;
            parts.push(Mutex::new(part));
        }
        Parts(parts)
    }

    /// Runs `body` on part `i`.
    pub(crate) fn with<R>(&self, i: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
        body(&mut self.0[i].lock())
    }
}

/// The elements of matrix `i` of a batch.
pub(crate) fn part<T>(data: &[T], i: usize, size: Size) -> &[T] {
    let n = size.0 * size.1;
    &data[i * n..(i + 1) * n]
}
