//! `AddN` and `AccumulateNV2`: sums of any number of tensors of one shape.

use crate::isa::{Vectorised, vectorised};
use crate::number::Number;
use graphmill_runtime::{Context, Kernel, Registry, sum_of_variants};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use smallvec::SmallVec;

/// Nanoseconds for an element of one operand.
const COST: f64 = 0.2;

/// The sum of all inputs; takes over the memory of one that nobody else needs.
struct AddN;

impl Kernel for AddN {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let n = ctx.num_inputs();
        if n == 1 {
            let only = ctx.take_input(0)?;
            return ctx.set_output(0, only);
        }
        let shape = ctx.input(0)?.shape().clone();
        for i in 1..n {
            let other = ctx.input(i)?.shape();
            if *other != shape {
                let node = ctx.node();
                return Err(invalid_argument!(
                    "Inputs to operation {} of type {} must have the same size and shape.  Input 0: {shape} != input {i}: {other}",
                    node.name,
                    node.op
                ));
            }
        }
        let candidates: SmallVec<[usize; 8]> = (0..n).collect();
        let (out, taken) = ctx.reuse_or_alloc(&candidates, 0, &shape)?;
        let out = dispatch!(out.dtype(), T in numbers => sum::<T>(ctx, out, taken)?);
        ctx.set_output(0, out.ok_or_else(|| internal!("AddN has no kernel for this type"))?)
    }
}

fn sum<T: Number>(ctx: &Context<'_>, mut out: Tensor, taken: Option<usize>) -> Result<Tensor> {
    let operands = (0..ctx.num_inputs()).filter(|&i| Some(i) != taken);
    let operands: SmallVec<[&[T]; 8]> = operands.map(|i| ctx.input(i)?.as_slice::<T>()).collect::<Result<_>>()?;
    let cost = COST * operands.len() as f64;
    ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, cost, |range, y| {
        let mut rest = operands.iter().map(|x| &x[range.clone()]);
        if taken.is_none()
            && let Some(first) = rest.next()
        {
            y.copy_from_slice(first);
        }
        for x in rest {
            vectorised(Accumulate { x, y });
        }
    });
    Ok(out)
}

struct Accumulate<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Number> Vectorised for Accumulate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = y.plus(x);
        }
    }
}

/// `AddN` of variants, each type of which has its own addition.
struct AddVariants;

impl Kernel for AddVariants {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for i in 0..ctx.num_inputs() {
            let shape = ctx.input(i)?.shape();
            if !shape.is_scalar() {
                return Err(invalid_argument!(
                    "AddN of non-scalar Tensor with dtype=DT_VARIANT is not supported; inputs[{i} has shape: {shape}."
                ));
            }
        }
        if ctx.num_inputs() == 1 {
            let only = ctx.take_input(0)?;
            return ctx.set_output(0, only);
        }
        let scalar = |tensor: &Tensor| match tensor.variants()? {
            [variant] => Ok(variant.clone()),
            _ => Err(internal!("a scalar must have one element")),
        };
        let mut sum = scalar(ctx.input(0)?)?;
        for i in 1..ctx.num_inputs() {
            sum = sum_of_variants(&sum, &scalar(ctx.input(i)?)?)?;
        }
        ctx.set_output(0, Tensor::from_variants(Shape::scalar(), vec![sum])?)
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("AddN").types("T", DType::NUMBERS).kernel(|_| Ok(AddN));
    // TensorFlow has a graph pass in place of a kernel for this one; what it computes is the same sum.
    r.op("AccumulateNV2").types("T", DType::NUMBERS).kernel(|_| Ok(AddN));
    r.op("AddN").types("T", &[DType::Variant]).kernel(|_| Ok(AddVariants));
}
