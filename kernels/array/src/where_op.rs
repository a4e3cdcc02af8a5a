//! The positions of what is not zero.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument, unimplemented_op};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Where").types("T", DType::NUMBERS_AND_BOOL).kernel(|_| Ok(Where));
}

/// TensorFlow's kernel goes up to this rank.
const MAX_RANK: usize = 8;

/// A row of indices for each element that is true, or not zero (NaN is not), in order. Neither scalars nor `half` tensors are
/// taken, as in TensorFlow.
struct Where;

impl Kernel for Where {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if input.dtype() == DType::Half {
            return Err(unimplemented_op!(
                "No WhereOp available for float16/half type on CPU; dying in CPU WhereOp to avoid silently creating costly copies from device."
            ));
        }
        if !(1..=MAX_RANK).contains(&input.shape().rank()) {
            return Err(invalid_argument!("WhereOp : Unhandled input dimensions: {}", input.shape().rank()));
        }
        let output = dispatch!(input.dtype(), T in numbers_and_bool => positions::<T>(input)?)
            .ok_or_else(|| internal!("{} elements are not compared with zero", input.dtype()))?;
        ctx.set_output(0, output)
    }
}

fn positions<T: Element>(input: &Tensor) -> Result<Tensor> {
    let values = input.as_slice::<T>()?;
    let set = |v: &T| *v != T::default();
    let count = values.iter().filter(|v| set(v)).count();
    let (dims, rank) = (input.shape().dims(), input.shape().rank());
    let mut output = Tensor::alloc(DType::Int64, Shape::from_dims(&[count, rank])?)?;
    let mut rows = output.as_mut_slice::<i64>()?.chunks_exact_mut(rank);
    let found = values.iter().enumerate().filter(|(_, v)| set(v)).map(|(i, _)| i);
    for (mut at, row) in found.zip(&mut rows) {
        for (place, &dim) in row.iter_mut().zip(dims).rev() {
            *place = (at % dim) as i64;
            at /= dim;
        }
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, tensor};
    use graphmill_runtime::testing::OpRun;

    #[test]
    fn positions_in_order() {
        let op = |t: &Tensor| run(OpRun::new("Where").attr_type("T", t.dtype()), &[t]).unwrap();
        let y = op(&tensor(&[2, 2], &[true, false, true, true]));
        assert_eq!((y.shape().dims(), y.as_slice::<i64>().unwrap()), (&[3, 2][..], &[0, 0, 1, 0, 1, 1][..]));
        let y = op(&tensor(&[3], &[-0.0f32, f32::NAN, 0.5]));
        assert_eq!(y.as_slice::<i64>().unwrap(), [1, 2]);
        assert_eq!(op(&tensor(&[0, 3], &[0i8; 0])).shape().dims(), [0, 2]);
    }
}
