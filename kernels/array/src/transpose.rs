//! Permuting dimensions.

use crate::args::{integers, joined};
use crate::types::{FLOAT8, OBJECTS, union};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let types = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, OBJECTS]);
    registry.op("Transpose").types("T", &types).kernel(|_| Ok(Transpose { conjugate: false }));
    registry.op("ConjugateTranspose").types("T", &types).kernel(|_| Ok(Transpose { conjugate: true }));
    registry.op("InvertPermutation").types("T", DType::INDICES).kernel(|_| Ok(InvertPermutation));
}

/// Output dimension i is input dimension `perm[i]`; complex numbers are conjugated if asked for.
struct Transpose {
    conjugate: bool,
}

fn permutation(tensor: &Tensor, perm: &Tensor) -> Result<Dims<usize>> {
    let rank = tensor.shape().rank();
    if !perm.shape().is_vector() {
        return Err(invalid_argument!("perm must be rank 1, got shape {}", perm.shape()));
    }
    let given = integers(perm)?;
    if given.len() != rank {
        return Err(invalid_argument!(
            "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
            given.len()
        ));
    }
    let mut seen: Dims<bool> = smallvec::smallvec![false; rank];
    let mut axes: Dims<usize> = Dims::with_capacity(rank);
    for &axis in &given {
        // Negative axes count from the end.
        match crate::args::axis_of(axis, rank) {
            Some(axis) => {
                seen[axis] = true;
                axes.push(axis);
            }
            None => {
                let from_start = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
                return Err(invalid_argument!("{from_start} is out of range [0 .. {rank})"));
            }
        }
    }
    match seen.iter().position(|seen| !seen) {
        Some(missing) => Err(invalid_argument!("{missing} is missing from {{{}}}.", joined(&given))),
        None => Ok(axes),
    }
}

impl Kernel for Transpose {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let axes = permutation(tensor, ctx.input(1)?)?;
        let from = tensor.shape();
        let dims: Dims<usize> = axes.iter().map(|&a| from.dim(a)).collect();
        let shape = Shape::from_dims(&dims)?;
        let conjugate = self.conjugate && tensor.dtype().is_complex();
        // Dimensions of size 1 may go anywhere without an element moving.
        let moved = axes.iter().filter(|&&a| from.dim(a) != 1);
        let mut output = if moved.is_sorted() || shape.num_elements() == 0 {
            ctx.take_input(0)?.into_shape(shape)?
        } else {
            let strides = strides_of(from);
            let steps: Dims<isize> = axes.iter().map(|&a| strides[a]).collect();
            let mut output = ctx.alloc_output(0, shape)?;
            Walk::gather(&dims, &steps, 0).copy(ctx, tensor, &mut output)?;
            output
        };
        if conjugate {
            output = output.into_unique()?;
            conj(ctx, &mut output)?;
        }
        ctx.set_output(0, output)
    }
}

fn conj(ctx: &Context<'_>, tensor: &mut Tensor) -> Result<()> {
    match tensor.dtype() {
        DType::Complex64 => ctx.parallel_chunks(tensor.as_mut_slice::<Complex32>()?, 1, 0.5, |_, part| {
            part.iter_mut().for_each(|v| v.im = -v.im);
        }),
        _ => ctx.parallel_chunks(tensor.as_mut_slice::<Complex64>()?, 1, 0.5, |_, part| {
            part.iter_mut().for_each(|v| v.im = -v.im);
        }),
    }
    Ok(())
}

/// `y[x[i]] = i`
struct InvertPermutation;

impl Kernel for InvertPermutation {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if !input.shape().is_vector() {
            return Err(invalid_argument!("invert_permutation expects a 1D vector."));
        }
        if input.num_elements() >= i32::MAX as usize {
            return Err(invalid_argument!("permutation of nonnegative int32s must have <= int32 max elements"));
        }
        let mut output = ctx.alloc_output(0, input.shape().clone())?;
        dispatch!(input.dtype(), T in [i32, i64] => {
            let values = input.as_slice::<T>()?;
            let inverse = output.as_mut_slice::<T>()?;
            inverse.fill(-1);
            for (i, &d) in values.iter().enumerate() {
                match usize::try_from(d).ok().and_then(|at| inverse.get_mut(at)) {
                    Some(place) if *place == -1 => *place = i as T,
                    Some(_) => return Err(invalid_argument!("{d} is duplicated in the input.")),
                    None => return Err(invalid_argument!("{d} is not between 0 and {}", values.len())),
                }
            }
        })
        .ok_or_else(|| internal!("a permutation cannot be of type {}", input.dtype()))?;
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};
    use graphmill_runtime::testing::OpRun;

    fn transpose(x: &Tensor, perm: &[i32]) -> Result<Tensor> {
        run(OpRun::new("Transpose").attr_type("T", x.dtype()), &[x, &tensor(&[perm.len() as i64], perm)])
    }

    #[test]
    fn dimensions_are_permuted() {
        assert_ints(&transpose(&counting(&[2, 3]), &[1, 0]).unwrap(), &[3, 2], &[0, 3, 1, 4, 2, 5]);
        assert_ints(&transpose(&counting(&[2, 1, 2]), &[1, 0, 2]).unwrap(), &[1, 2, 2], &[0, 1, 2, 3]);
        assert_ints(&transpose(&counting(&[2, 2, 2]), &[2, 1, 0]).unwrap(), &[2, 2, 2], &[0, 4, 2, 6, 1, 5, 3, 7]);
        assert_ints(&transpose(&counting(&[]), &[]).unwrap(), &[], &[0]);
        let strings = Tensor::from_strings(Shape::new(&[2, 1]).unwrap(), vec!["a".into(), "b".into()]).unwrap();
        assert_eq!(transpose(&strings, &[1, 0]).unwrap().shape().dims(), [1, 2]);
        assert_error(transpose(&counting(&[2, 3]), &[0, 2]), "2 is out of range [0 .. 2)");
        assert_error(transpose(&counting(&[2, 3]), &[0, 0]), "1 is missing from {0,0}.");
        assert_error(
            transpose(&counting(&[2, 3]), &[0]),
            "transpose expects a vector of size 2. But input(1) is a vector of size 1",
        );
    }

    #[test]
    fn large_matrices_split_and_tile() {
        let x = counting(&[301, 203]);
        let y = transpose(&x, &[1, 0]).unwrap();
        let values = y.as_slice::<i32>().unwrap();
        assert!(values.iter().enumerate().all(|(i, &v)| v as usize == (i % 301) * 203 + i / 301));
    }

    #[test]
    fn conjugates() {
        let x = tensor(&[1, 2], &[Complex32::new(1.0, 2.0), Complex32::new(3.0, -4.0)]);
        let op = OpRun::new("ConjugateTranspose").attr_type("T", DType::Complex64);
        let y = run(op, &[&x, &tensor(&[2], &[1, 0])]).unwrap();
        assert_eq!(y.as_slice::<Complex32>().unwrap(), [Complex32::new(1.0, -2.0), Complex32::new(3.0, 4.0)]);
        assert_eq!(x.as_slice::<Complex32>().unwrap()[0].im, 2.0);
    }

    #[test]
    fn permutations_are_inverted() {
        let invert = |values: &[i32]| run(int_op("InvertPermutation"), &[&tensor(&[values.len() as i64], values)]);
        assert_ints(&invert(&[2, 0, 1]).unwrap(), &[3], &[1, 2, 0]);
        assert_error(invert(&[0, 3]), "3 is not between 0 and 2");
        assert_error(invert(&[0, -1]), "-1 is not between 0 and 2");
        assert_error(invert(&[1, 1]), "1 is duplicated in the input.");
    }
}
