//! `RandomUniform`, `RandomUniformInt`, `RandomStandardNormal` and `TruncatedNormal`: numbers from a stream that belongs to the
//! kernel, so that one execution goes on where the last one stopped.

use crate::distribution::{Integer, Real, truncated_draws};
use crate::fill::{Plan, fill, shape_input};
use graphmill_runtime::philox::{DRAWS_PER_OUTPUT, Generator, Philox};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for (op, distribution) in [
        ("RandomUniform", Distribution::Uniform),
        ("RandomStandardNormal", Distribution::Normal),
        ("TruncatedNormal", Distribution::Truncated),
    ] {
        registry.op(op).types("dtype", DType::FLOATS).kernel(move |c| RandomReal::new(c, distribution));
    }
    registry.op("RandomUniformInt").types("Tout", &[DType::Int32, DType::Int64]).kernel(RandomUniformInt::new);
}

/// The distributions of real numbers.
#[derive(Clone, Copy)]
pub(crate) enum Distribution {
    Uniform,
    Normal,
    Truncated,
}

/// A tensor of this distribution from a stream.
///
/// # Errors
/// If there is no memory, or `dtype` is not one of [`DType::FLOATS`].
pub(crate) fn random_reals(
    ctx: &Context<'_>,
    stream: Philox,
    distribution: Distribution,
    dtype: DType,
    shape: Shape,
) -> Result<Tensor> {
    let mut tensor = Tensor::alloc(dtype, shape)?;
    let filled = dispatch!(dtype, T in [f32, f64, f16, bf16] => {
        let out = tensor.as_mut_slice::<T>()?;
        let group = <T as Real>::GROUP;
        match distribution {
            Distribution::Uniform => fill(ctx, stream, out, &Plan { group, draws: 1, cost: 1.0 }, T::uniform),
            Distribution::Normal => fill(ctx, stream, out, &Plan { group, draws: 1, cost: 15.0 }, T::normal),
            Distribution::Truncated => {
                let draws = truncated_draws(group);
                fill(ctx, stream, out, &Plan { group, draws, cost: 20.0 }, T::truncated);
            }
        }
    });
    filled.ok_or_else(|| internal!("there are no random numbers of type {dtype}"))?;
    Ok(tensor)
}

/// A tensor of integers in `[minval, maxval)`, both of which are inputs, from the stream that `stream` gives for its shape.
///
/// # Errors
/// `INVALID_ARGUMENT` if the bounds are not scalars, or do not hold a number between them; an empty tensor needs none.
pub(crate) fn random_integers(
    ctx: &Context<'_>,
    bounds: [usize; 2],
    dtype: DType,
    shape: Shape,
    stream: impl FnOnce(&Shape) -> Philox,
) -> Result<Tensor> {
    for (name, i) in ["minval", "maxval"].into_iter().zip(bounds) {
        let bound = ctx.input(i)?.shape();
        if !bound.is_scalar() {
            return Err(invalid_argument!("{name} must be 0-D, got shape {bound}"));
        }
    }
    let filled = dispatch!(dtype, T in [i32, i64] => {
        let low = ctx.input(bounds[0])?.scalar_value::<T>()?;
        let high = ctx.input(bounds[1])?.scalar_value::<T>()?;
        if shape.num_elements() > 0 && low >= high {
            return Err(invalid_argument!("Need minval < maxval, got {low} >= {high}"));
        }
        let stream = stream(&shape);
        let mut tensor = Tensor::alloc(dtype, shape)?;
        let plan = Plan { group: <T as Integer>::GROUP, draws: 1, cost: 5.0 };
        fill(ctx, stream, tensor.as_mut_slice::<T>()?, &plan, |stream, out| T::between(stream, low, high, out));
        tensor
    });
    filled.ok_or_else(|| internal!("there are no random integers of type {dtype}"))
}

/// How far an execution with so many outputs moves the stream.
pub(crate) fn advance(shape: &Shape) -> u64 {
    (shape.num_elements() as u64).wrapping_mul(DRAWS_PER_OUTPUT)
}

struct RandomReal {
    generator: Generator,
    distribution: Distribution,
    dtype: DType,
}

impl RandomReal {
    fn new(c: &Construction<'_>, distribution: Distribution) -> Result<RandomReal> {
        Ok(RandomReal { generator: Generator::new(c)?, distribution, dtype: c.dtype("dtype")? })
    }
}

impl Kernel for RandomReal {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 0)?;
        let stream = self.generator.take(advance(&shape));
        let tensor = random_reals(ctx, stream, self.distribution, self.dtype, shape)?;
        ctx.set_output(0, tensor)
    }
}

struct RandomUniformInt {
    generator: Generator,
    dtype: DType,
}

impl RandomUniformInt {
    fn new(c: &Construction<'_>) -> Result<RandomUniformInt> {
        Ok(RandomUniformInt { generator: Generator::new(c)?, dtype: c.dtype("Tout")? })
    }
}

impl Kernel for RandomUniformInt {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 0)?;
        let tensor = random_integers(ctx, [1, 2], self.dtype, shape, |shape| self.generator.take(advance(shape)))?;
        ctx.set_output(0, tensor)
    }
}
