//! Reversing and rotating dimensions.

use crate::args::{axis_of, integers};
use crate::stretch::{self, Stretch};
use crate::types::{OBJECTS, STRING, union};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument, unimplemented_op};

pub(crate) fn register(registry: &mut Registry) {
    let types = union(&[DType::NUMBERS_AND_BOOL, STRING]);
    registry.op("Reverse").types("T", &types).kernel(|_| Ok(Reverse));
    registry.op("ReverseV2").types("T", &types).types("Tidx", DType::INDICES).kernel(|_| Ok(ReverseV2));
    registry.op("ReverseSequence").types("T", &types).types("Tlen", DType::INDICES).kernel(ReverseSequence::new);
    let rolled = union(&[DType::NUMBERS_AND_BOOL, OBJECTS]);
    registry
        .op("Roll")
        .types("T", &rolled)
        .types("Tshift", DType::INDICES)
        .types("Taxis", DType::INDICES)
        .kernel(|_| Ok(Roll));
}

fn reverse(ctx: &mut Context<'_>, reversed: &[bool]) -> Result<()> {
    let tensor = ctx.input(0)?;
    let shape = tensor.shape();
    // TensorFlow's kernels stop at 8 dimensions.
    if shape.rank() > 8 {
        return Err(unimplemented_op!("reverse is not implemented for tensors of rank > 8."));
    }
    let moved = shape.dims().iter().zip(reversed).any(|(&d, &r)| r && d > 1);
    if !moved || shape.num_elements() == 0 {
        let tensor = ctx.take_input(0)?;
        return ctx.set_output(0, tensor);
    }
    let mut start = 0;
    let mut steps = strides_of(shape);
    for ((step, &dim), &reversed) in steps.iter_mut().zip(shape.dims()).zip(reversed) {
        if reversed {
            start += (dim - 1) * step.unsigned_abs();
            *step = -*step;
        }
    }
    let mut output = ctx.alloc_output(0, shape.clone())?;
    Walk::gather(shape.dims(), &steps, start).copy(ctx, tensor, &mut output)?;
    ctx.set_output(0, output)
}

/// Reverses the dimensions whose truth value is set.
struct Reverse;

impl Kernel for Reverse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tensor, dims) = (ctx.input(0)?, ctx.input(1)?);
        let rank = tensor.shape().rank();
        if rank == 0 {
            return reverse(ctx, &[]);
        }
        if tensor.shape().dim(0) == 0 {
            return Err(invalid_argument!("Invalid input first dimension. Found 0."));
        }
        if !dims.shape().is_vector() {
            return Err(invalid_argument!("'dims' must be 1-dimension, not {}", dims.shape().rank()));
        }
        if dims.num_elements() != rank {
            return Err(invalid_argument!(
                "'dims' must have the same number of values as 'input' has dimensions. 'input' has {rank}'dims' has {} values",
                dims.num_elements()
            ));
        }
        let flags: Dims<bool> = dims.as_slice::<bool>()?.into();
        reverse(ctx, &flags)
    }
}

/// Reverses the dimensions listed.
struct ReverseV2;

impl Kernel for ReverseV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tensor, axes) = (ctx.input(0)?, ctx.input(1)?);
        let rank = tensor.shape().rank();
        if rank == 0 {
            return reverse(ctx, &[]);
        }
        if !axes.shape().is_vector() {
            return Err(invalid_argument!("'dims' must be 1-dimension, not {}", axes.shape().rank()));
        }
        let mut flags: Dims<bool> = smallvec::smallvec![false; rank];
        for (i, axis) in integers(axes)?.into_iter().enumerate() {
            let Some(place) = axis_of(axis, rank) else {
                return Err(invalid_argument!("'axis'[{i}] = {axis} is out of valid range [0, {}", rank - 1));
            };
            if std::mem::replace(&mut flags[place], true) {
                return Err(invalid_argument!("axis {place} specified more than once."));
            }
        }
        reverse(ctx, &flags)
    }
}

/// Reverses the first `seq_lengths[b]` elements along one dimension for each index b of another.
struct ReverseSequence {
    seq_dim: usize,
    batch_dim: usize,
}

impl ReverseSequence {
    fn new(construction: &Construction<'_>) -> Result<ReverseSequence> {
        let dim = |name: &str| -> Result<usize> {
            let value = construction.attrs().int(name)?;
            usize::try_from(value).map_err(|_| invalid_argument!("Invalid {name} {value}"))
        };
        let batch_dim = dim("batch_dim")?;
        Ok(ReverseSequence { seq_dim: dim("seq_dim")?, batch_dim })
    }

    fn lengths(&self, tensor: &Tensor, lengths: &Tensor) -> Result<Dims<usize>> {
        let (seq, batch, rank) = (self.seq_dim, self.batch_dim, tensor.shape().rank());
        if !lengths.shape().is_vector() {
            return Err(invalid_argument!("seq_lengths must be 1-dim, not {}", lengths.shape().rank()));
        }
        if batch == seq {
            return Err(invalid_argument!("batch_dim == seq_dim == {seq}"));
        }
        for (name, dim) in [("seq_dim", seq), ("batch_dim", batch)] {
            if dim >= rank {
                return Err(invalid_argument!("{name} must be < input rank ( {dim} vs. {rank})"));
            }
        }
        if lengths.num_elements() != tensor.shape().dim(batch) {
            return Err(invalid_argument!(
                "Length of seq_lengths != input.dims({batch}), ({} vs. {})",
                lengths.num_elements(),
                tensor.shape().dim(batch)
            ));
        }
        let longest = tensor.shape().dim(seq);
        let checked = integers(lengths)?.into_iter().enumerate().map(|(d, length)| match usize::try_from(length) {
            Ok(length) if length <= longest => Ok(length),
            Ok(_) => Err(invalid_argument!("seq_lens({d}) > input.dims({seq})")),
            Err(_) => Err(invalid_argument!("seq_lens({d}) < 0")),
        });
        checked.collect()
    }
}

impl Kernel for ReverseSequence {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let lengths = self.lengths(ctx.input(0)?, ctx.input(1)?)?;
        let source = ctx.input(0)?;
        let mut output = source.deep_copy()?;
        let strides = strides_of(source.shape());
        let mut dims = Dims::from_slice(source.shape().dims());
        let mut steps = strides.clone();
        dims[self.batch_dim] = 1;
        steps[self.seq_dim] = -steps[self.seq_dim];
        for (b, &length) in lengths.iter().enumerate().filter(|&(_, &length)| length > 1) {
            dims[self.seq_dim] = length;
            let write = b * strides[self.batch_dim].unsigned_abs();
            let read = write + (length - 1) * strides[self.seq_dim].unsigned_abs();
            Walk::new(&dims, &steps, read, &strides, write).copy(ctx, source, &mut output)?;
        }
        ctx.set_output(0, output)
    }
}

/// Moves elements along dimensions by given distances; what leaves at one end comes in at the other.
struct Roll;

impl Roll {
    /// How far each dimension is rolled, less than its size.
    fn shifts(tensor: &Tensor, shift: &Tensor, axis: &Tensor) -> Result<Dims<usize>> {
        let rank = tensor.shape().rank();
        if rank == 0 {
            return Err(invalid_argument!("input must be 1-D or higher"));
        }
        for (name, tensor) in [("shift", shift), ("axis", axis)] {
            if tensor.shape().rank() > 1 {
                return Err(invalid_argument!("{name} must be a scalar or a 1-D vector. Found: {}", tensor.shape()));
            }
        }
        if shift.shape() != axis.shape() {
            return Err(invalid_argument!("shift and axis must have the same size"));
        }
        let mut shifts: Dims<usize> = smallvec::smallvec![0; rank];
        for (shift, axis) in integers(shift)?.into_iter().zip(integers(axis)?) {
            let Some(place) = axis_of(axis, rank) else {
                return Err(invalid_argument!("axis {axis} is out of range"));
            };
            let size = tensor.shape().dim(place).max(1);
            shifts[place] = (shifts[place] + shift.rem_euclid(size as i64) as usize) % size;
        }
        Ok(shifts)
    }
}

impl Kernel for Roll {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let shifts = Roll::shifts(tensor, ctx.input(1)?, ctx.input(2)?)?;
        if shifts.iter().all(|&s| s == 0) || tensor.num_elements() == 0 {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let all: Dims<Dims<Stretch>> = tensor
            .shape()
            .dims()
            .iter()
            .zip(&shifts)
            .map(|(&dim, &shift)| {
                Dims::from_slice(&[
                    Stretch { to: shift, from: 0, length: dim - shift, backwards: false },
                    Stretch { to: 0, from: dim - shift, length: shift, backwards: false },
                ])
            })
            .collect();
        let mut output = ctx.alloc_output(0, tensor.shape().clone())?;
        stretch::copy(ctx, &all, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};
    use graphmill_tensor::DType;

    #[test]
    fn dimensions_are_reversed() {
        let x = counting(&[2, 3]);
        let first = |flags: &[bool]| run(int_op("Reverse"), &[&x, &tensor(&[flags.len() as i64], flags)]);
        assert_ints(&first(&[false, true]).unwrap(), &[2, 3], &[2, 1, 0, 5, 4, 3]);
        assert_ints(&first(&[true, true]).unwrap(), &[2, 3], &[5, 4, 3, 2, 1, 0]);
        assert!(first(&[true]).is_err());
        let second = |axes: &[i32]| run(int_op("ReverseV2"), &[&x, &tensor(&[axes.len() as i64], axes)]);
        assert_ints(&second(&[-2]).unwrap(), &[2, 3], &[3, 4, 5, 0, 1, 2]);
        assert_ints(&second(&[]).unwrap(), &[2, 3], &[0, 1, 2, 3, 4, 5]);
        assert_error(second(&[0, -2]), "axis 0 specified more than once.");
        assert_error(second(&[2]), "'axis'[0] = 2 is out of valid range [0, 1");
    }

    #[test]
    fn sequences_are_reversed() {
        let op = |seq: i64, batch: i64| {
            int_op("ReverseSequence")
                .attr_type("Tlen", DType::Int32)
                .attr_int("seq_dim", seq)
                .attr_int("batch_dim", batch)
        };
        let x = counting(&[2, 3]);
        assert_ints(&run(op(1, 0), &[&x, &tensor(&[2], &[2, 3])]).unwrap(), &[2, 3], &[1, 0, 2, 5, 4, 3]);
        assert_ints(&run(op(0, 1), &[&x, &tensor(&[3], &[2, 0, 1])]).unwrap(), &[2, 3], &[3, 1, 2, 0, 4, 5]);
        assert_error(run(op(1, 0), &[&x, &tensor(&[2], &[4, 0])]), "seq_lens(0) > input.dims(1)");
        assert_error(run(op(1, 0), &[&x, &tensor(&[2], &[-1, 0])]), "seq_lens(0) < 0");
        assert_error(run(op(1, 1), &[&x, &tensor(&[2], &[1, 0])]), "batch_dim == seq_dim == 1");
        assert_error(run(op(1, 0), &[&x, &tensor(&[1], &[1])]), "Length of seq_lengths != input.dims(0), (1 vs. 2)");
    }

    #[test]
    fn rolls() {
        let op = || int_op("Roll").attr_type("Tshift", DType::Int64).attr_type("Taxis", DType::Int32);
        let roll =
            |shift: i64, axis: i32| run(op(), &[&counting(&[2, 3]), &tensor(&[], &[shift]), &tensor(&[], &[axis])]);
        assert_ints(&roll(1, 1).unwrap(), &[2, 3], &[2, 0, 1, 5, 3, 4]);
        assert_ints(&roll(-4, -1).unwrap(), &[2, 3], &[1, 2, 0, 4, 5, 3]);
        assert_ints(&roll(i64::MIN, 0).unwrap(), &[2, 3], &[0, 1, 2, 3, 4, 5]);
        assert_error(roll(1, 2), "axis 2 is out of range");
        let both = run(op(), &[&counting(&[2, 2]), &tensor(&[3], &[1i64, 1, 2]), &tensor(&[3], &[0, 1, 1])]);
        assert_ints(&both.unwrap(), &[2, 2], &[3, 2, 1, 0]);
    }
}
