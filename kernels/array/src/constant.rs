//! Ops whose output does not depend on the values of an input of its size.

use crate::types::{OBJECTS, STRING, union};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Mover, Result, Tensor, dispatch, internal, invalid_argument};
use num_traits::One;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Const").kernel(Const::new);
    registry.op("HostConst").kernel(Const::new);
    let filled = union(&[DType::NUMBERS_AND_BOOL, DType::QUANTIZED, OBJECTS, &[DType::Int4, DType::UInt4]]);
    registry.op("Fill").types("T", &filled).types("index_type", DType::INDICES).kernel(|_| Ok(Fill));
    let zeros = union(&[DType::NUMBERS_AND_BOOL, STRING, &[DType::Variant]]);
    registry.op("ZerosLike").types("T", &zeros).kernel(|_| Ok(ZerosLike));
    registry.op("OnesLike").types("T", DType::NUMBERS_AND_BOOL).kernel(|_| Ok(OnesLike));
    registry.op("Empty").types("dtype", &union(&[DType::NUMBERS_AND_BOOL, STRING])).kernel(|_| Ok(Empty));
}

/// The tensor of the attribute `value`.
struct Const(Tensor);

impl Const {
    fn new(construction: &Construction<'_>) -> Result<Const> {
        let value = construction.attrs().tensor("value")?;
        let dtype = construction.dtype("dtype")?;
        if value.dtype() != dtype {
            return Err(invalid_argument!("Type mismatch between value ({}) and dtype ({dtype})", value.dtype()));
        }
        Ok(Const(value))
    }
}

impl Kernel for Const {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

/// A tensor of shape `dims` (a vector; a scalar counts as one size) with every element `value`.
struct Fill;

impl Kernel for Fill {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (dims, value) = (ctx.input(0)?, ctx.input(1)?);
        if dims.shape().rank() > 1 {
            return Err(invalid_argument!("dims must represent a vector, got shape {}", dims.shape()));
        }
        let one_element = value.shape().is_vector() && value.num_elements() == 1;
        if !value.shape().is_scalar() && !one_element {
            return Err(invalid_argument!("value must represent a scalar, got shape {}", value.shape()));
        }
        let shape = crate::args::shape(&crate::args::integers(dims)?)?;
        let mut output = ctx.alloc_output(0, shape)?;
        output.move_from(&[value], Repeat(ctx))?;
        ctx.set_output(0, output)
    }
}

/// Repeats the first element of the first source.
pub(crate) struct Repeat<'a, 'b>(pub(crate) &'a Context<'b>);

impl Mover for Repeat<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        if let Some(value) = sources.first().and_then(|s| s.first()) {
            self.0.parallel_chunks(target, 1, size_of::<E>() as f64 * 0.05, |_, part| part.fill(value.clone()));
        }
    }
}

/// Zeros, false or empty strings in the shape of the input. Of a variant, what its type makes of it.
struct ZerosLike;

impl Kernel for ZerosLike {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        if ctx.output_type(0)? == DType::Variant {
            if !shape.is_scalar() {
                return Err(invalid_argument!("ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported."));
            }
            let zeros = match ctx.input(0)?.variants()? {
                [value] => graphmill_runtime::zeros_of_variant(value)?,
                _ => return Err(internal!("a scalar must have one element")),
            };
            return ctx.set_output(0, Tensor::from_variants(shape, vec![zeros])?);
        }
        let (mut output, _) = ctx.reuse_or_alloc(&[0], 0, &shape)?;
        if output.dtype() == DType::String {
            output.strings_mut()?.fill(Default::default());
        } else {
            dispatch!(output.dtype(), T in numbers_and_bool => fill(ctx, &mut output, T::default())?)
                .ok_or_else(|| internal!("no zeros of type {}", output.dtype()))?;
        }
        ctx.set_output(0, output)
    }
}

fn fill<T: Element>(ctx: &Context<'_>, output: &mut Tensor, value: T) -> Result<()> {
    ctx.parallel_chunks(output.as_mut_slice::<T>()?, 1, size_of::<T>() as f64 * 0.05, |_, part| part.fill(value));
    Ok(())
}

/// Ones, or true, in the shape of the input.
struct OnesLike;

impl Kernel for OnesLike {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        let (mut output, _) = ctx.reuse_or_alloc(&[0], 0, &shape)?;
        if output.dtype() == DType::Bool {
            fill(ctx, &mut output, true)?;
        } else {
            dispatch!(output.dtype(), T in numbers => fill(ctx, &mut output, T::one())?)
                .ok_or_else(|| internal!("no ones of type {}", output.dtype()))?;
        }
        ctx.set_output(0, output)
    }
}

/// A tensor of a shape. TensorFlow leaves its elements arbitrary unless `init` is set; here they are always zero, so that no
/// client reads what another one left in memory.
struct Empty;

impl Kernel for Empty {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let dims = ctx.input(0)?;
        if !dims.shape().is_vector() {
            return Err(invalid_argument!("shape must be a vector of int32, got shape {}", dims.shape()));
        }
        let shape = crate::args::shape(&crate::args::integers(dims)?)?;
        let output = Tensor::zeros(ctx.output_type(0)?, shape)?;
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, run, tensor};
    use graphmill_graph::PartialShape;
    use graphmill_runtime::testing::OpRun;
    use graphmill_runtime::{Stored, TensorList};
    use graphmill_tensor::{Bytes, Code, Shape};
    use graphmill_wire::tensorflow::TensorProto;
    use graphmill_wire::tensorflow::attr_value::Value;

    #[test]
    fn constants_keep_their_type() {
        let value = || TensorProto { dtype: 3, int_val: vec![7], ..Default::default() };
        let op = |dtype| OpRun::new("Const").attr_type("dtype", dtype).attr("value", Value::Tensor(Box::new(value())));
        assert_ints(&run(op(DType::Int32), &[]).unwrap(), &[], &[7]);
        assert_error(
            op(DType::Float).run(&registry(), vec![]),
            "Type mismatch between value (int32) and dtype (float)",
        );
    }

    #[test]
    fn fill_repeats() {
        assert_ints(&run(int_op("Fill"), &[&tensor(&[2], &[2, 1]), &tensor(&[], &[5])]).unwrap(), &[2, 1], &[5, 5]);
        assert_ints(&run(int_op("Fill"), &[&tensor(&[], &[2]), &tensor(&[1], &[5])]).unwrap(), &[2], &[5, 5]);
        assert_error(
            run(int_op("Fill"), &[&tensor(&[1], &[2]), &tensor(&[2], &[5, 6])]),
            "value must represent a scalar, got shape [2]",
        );
        let huge = tensor(&[3], &[1i64 << 31, 1 << 31, 4]);
        let op = || int_op("Fill").attr_type("index_type", DType::Int64);
        assert_eq!(run(op(), &[&huge, &tensor(&[], &[0])]).unwrap_err().code(), Code::InvalidArgument);
        let large = tensor(&[1], &[1i64 << 50]);
        assert_eq!(run(op(), &[&large, &tensor(&[], &[0])]).unwrap_err().code(), Code::ResourceExhausted);
        let text = Tensor::from_strings(Shape::scalar(), vec![Bytes::from("a")]).unwrap();
        let op = || OpRun::new("Fill").attr_type("T", DType::String).attr_type("index_type", DType::Int64);
        assert_eq!(run(op(), &[&tensor(&[1], &[2i64]), &text]).unwrap().strings().unwrap(), ["a", "a"]);
        assert_eq!(run(op(), &[&large, &text]).unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn zeros_and_ones() {
        assert_ints(&run(int_op("ZerosLike"), &[&counting(&[2, 1])]).unwrap(), &[2, 1], &[0, 0]);
        assert_ints(&run(int_op("OnesLike"), &[&counting(&[0, 1])]).unwrap(), &[0, 1], &[]);
        let ones = run(OpRun::new("OnesLike").attr_type("T", DType::Bool), &[&tensor(&[2], &[false, false])]).unwrap();
        assert_eq!(ones.as_slice::<bool>().unwrap(), [true, true]);
        let list = TensorList::new(DType::Int32, PartialShape::unknown(), vec![Some(counting(&[2]))]);
        let list = list.into_tensor().unwrap();
        let zeros = run(OpRun::new("ZerosLike").attr_type("T", DType::Variant), &[&list]).unwrap();
        let zeros = zeros.variants().unwrap()[0].get::<TensorList>().unwrap().tensors[0].clone().unwrap();
        assert_ints(&zeros, &[2], &[0, 0]);
        let empty = run(OpRun::new("Empty").attr_type("dtype", DType::Int32), &[&tensor(&[2], &[1, 2])]).unwrap();
        assert_ints(&empty, &[1, 2], &[0, 0]);
    }
}
