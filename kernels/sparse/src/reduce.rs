//! Reductions over some dimensions: `SparseReduceSum`, `SparseReduceMax`, and the same with a sparse result.

use crate::coo::{Coo, index_matrix, strides};
use crate::number::Number;
use crate::types::{NUMBERS, REALS};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseReduceSum").types("T", &NUMBERS).kernel(|c| Reduce::new(c, false, false));
    registry.op("SparseReduceMax").types("T", &REALS).kernel(|c| Reduce::new(c, true, false));
    registry.op("SparseReduceSumSparse").types("T", &NUMBERS).kernel(|c| Reduce::new(c, false, true));
    registry.op("SparseReduceMaxSparse").types("T", &REALS).kernel(|c| Reduce::new(c, true, true));
}

struct Reduce {
    largest: bool,
    sparse: bool,
    keep_dims: bool,
}

impl Reduce {
    fn new(c: &Construction<'_>, largest: bool, sparse: bool) -> Result<Reduce> {
        Ok(Reduce { largest, sparse, keep_dims: c.attrs().bool("keep_dims")? })
    }

    /// The dimensions that stay.
    fn kept(axes: &Tensor, rank: usize) -> Result<Vec<usize>> {
        if axes.shape().rank() > 1 {
            return Err(invalid_argument!(
                "Expected reduction_axes to be a scalar or a vector; got shape: {}",
                axes.shape()
            ));
        }
        let mut reduced = vec![false; rank];
        for &axis in axes.as_slice::<i32>()? {
            let at = i64::from(axis) + if axis < 0 { rank as i64 } else { 0 };
            let slot = usize::try_from(at).ok().and_then(|at| reduced.get_mut(at));
            *slot.ok_or_else(|| {
                invalid_argument!("Invalid reduction dimension {axis}, for input with {rank} dimensions.")
            })? = true;
        }
        Ok((0..rank).filter(|&axis| !reduced[axis]).collect())
    }

    /// One value for each group of entries.
    fn values(&self, values: &Tensor, groups: &[&[usize]]) -> Result<Tensor> {
        let out = if self.largest {
            dispatch!(values.dtype(), T in reals => {
                let values = values.as_slice::<T>()?;
                let largest = |group: &&[usize]| {
                    group.iter().map(|&i| values[i]).reduce(|a, b| if b > a { b } else { a }).unwrap_or_default()
                };
                Tensor::vector(&groups.iter().map(largest).collect::<Vec<T>>())
            })
        } else {
            dispatch!(values.dtype(), T in numbers => {
                let values = values.as_slice::<T>()?;
                let sum = |group: &&[usize]| {
                    T::from_sum(group.iter().fold(<T as Number>::no_sum(), |sum, &i| values[i].add_to(sum)))
                };
                Tensor::vector(&groups.iter().map(sum).collect::<Vec<T>>())
            })
        };
        out.unwrap_or_else(|| Err(internal!("no such type")))
    }
}

impl Kernel for Reduce {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(2)?;
        if !shape.shape().is_vector() {
            return Err(invalid_argument!("Expected input_shape to be a vector; got shape: {}", shape.shape()));
        }
        let coo = Coo::with_shape(ctx.input(0)?, ctx.input(1)?, shape.to_i64_vec()?)?;
        let rank = coo.rank();
        let kept = Reduce::kept(ctx.input(3)?, rank)?;
        coo.check_bounds()?;
        let order = coo.order(&kept);
        let same = |&a: &usize, &b: &usize| kept.iter().all(|&axis| coo.row(a)[axis] == coo.row(b)[axis]);
        let groups: Vec<&[usize]> = order.chunk_by(same).collect();
        let values = self.values(coo.values, &groups)?;
        let kept_sizes: Vec<i64> = kept.iter().map(|&axis| coo.shape[axis]).collect();
        let sizes: Vec<i64> = if self.keep_dims {
            (0..rank).map(|axis| if kept.contains(&axis) { coo.shape[axis] } else { 1 }).collect()
        } else {
            kept_sizes.clone()
        };
        let key = |group: &[usize]| group.first().map(|&i| coo.row(i)).unwrap_or_default();
        if self.sparse {
            let mut indices = vec![0; groups.len() * sizes.len()];
            if !sizes.is_empty() {
                for (row, group) in indices.chunks_exact_mut(sizes.len()).zip(&groups) {
                    for (j, &axis) in kept.iter().enumerate() {
                        row[if self.keep_dims { axis } else { j }] = key(group)[axis];
                    }
                }
            }
            let indices = index_matrix(&indices, groups.len(), sizes.len())?;
            let sizes = Tensor::vector(&sizes)?;
            ctx.set_output(0, indices)?;
            ctx.set_output(1, values)?;
            return ctx.set_output(2, sizes);
        }
        let mut out = Tensor::zeros(values.dtype(), Shape::new(&sizes)?)?;
        let strides = strides(&kept_sizes);
        for (i, group) in groups.iter().enumerate() {
            let at: i64 = kept.iter().zip(&strides).map(|(&axis, stride)| key(group)[axis] * stride).sum();
            out.copy_elements(at as usize, &values, i..i + 1)?;
        }
        ctx.set_output(0, out)
    }
}
