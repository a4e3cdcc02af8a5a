//! The `Stateless...` ops: numbers that depend on a seed among the inputs alone.

use crate::distribution::pair;
use crate::fill::shape_input;
use crate::stateful::{Distribution, random_integers, random_reals};
use crate::variable::random_bits;
use graphmill_runtime::philox::Philox;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

/// The number that stands for Philox among algorithms.
const PHILOX: i32 = 1;
/// Leaves the choice of an algorithm to the device, and a CPU chooses Philox.
const ANY_ALGORITHM: i32 = 3;

pub(crate) fn register(registry: &mut Registry) {
    use Source::{KeyAndCounter, Seed};
    for (op, source, distribution) in [
        ("StatelessRandomUniform", Seed, Distribution::Uniform),
        ("StatelessRandomNormal", Seed, Distribution::Normal),
        ("StatelessTruncatedNormal", Seed, Distribution::Truncated),
        ("StatelessRandomUniformV2", KeyAndCounter, Distribution::Uniform),
        ("StatelessRandomNormalV2", KeyAndCounter, Distribution::Normal),
        ("StatelessTruncatedNormalV2", KeyAndCounter, Distribution::Truncated),
    ] {
        registry
            .op(op)
            .types("dtype", DType::FLOATS)
            .kernel(move |c| Ok(StatelessReal { source, distribution, dtype: c.dtype("dtype")? }));
    }
    for (op, source) in [("StatelessRandomUniformInt", Seed), ("StatelessRandomUniformIntV2", KeyAndCounter)] {
        let types = [DType::Int32, DType::Int64];
        registry.op(op).types("dtype", &types).kernel(move |c| Ok(StatelessInt { source, dtype: c.dtype("dtype")? }));
    }
    for (op, source) in [("StatelessRandomUniformFullInt", Seed), ("StatelessRandomUniformFullIntV2", KeyAndCounter)] {
        let types = [DType::Int32, DType::Int64, DType::UInt32, DType::UInt64];
        registry.op(op).types("dtype", &types).kernel(move |c| Ok(StatelessBits { source, dtype: c.dtype("dtype")? }));
    }
    registry.op("StatelessRandomGetKeyCounter").kernel(|_| Ok(KeyCounter { algorithm: false }));
    registry.op("StatelessRandomGetKeyCounterAlg").kernel(|_| Ok(KeyCounter { algorithm: true }));
    registry.op("StatelessRandomGetAlg").kernel(|_| Ok(Algorithm));
}

/// The stream of a seed of two numbers, which are mixed so that it does not matter which of them varies.
///
/// # Errors
/// `INVALID_ARGUMENT` if the seed is not a vector of two integers.
pub(crate) fn stream_of_seed(seed: &Tensor) -> Result<Philox> {
    let bad = || invalid_argument!("seed must have shape [2], not {}", seed.shape());
    if !seed.shape().is_vector() {
        return Err(bad());
    }
    let (first, second) = match seed.dtype() {
        DType::Int32 => match seed.as_slice::<i32>()? {
            [first, second] => (i64::from(*first), i64::from(*second)),
            _ => return Err(bad()),
        },
        DType::Int64 => match seed.as_slice::<i64>()? {
            [first, second] => (*first, *second),
            _ => return Err(bad()),
        },
        other => return Err(invalid_argument!("Invalid seed type: {other}")),
    };
    let counter = u128::from(second as u64) << 64 | u128::from(first as u64);
    let [a, b, c, d] = Philox { counter, key: [0x3EC8_F720, 0x0246_1E29] }.words();
    Ok(Philox { counter: u128::from(pair(c, d)) << 64, key: [a, b] })
}

/// The stream at a counter under a key.
///
/// # Errors
/// `INVALID_ARGUMENT` if an input is not of the form that Philox needs, or the algorithm is another one.
pub(crate) fn stream_of_key(key: &Tensor, counter: &Tensor, algorithm: &Tensor) -> Result<Philox> {
    if !algorithm.shape().is_scalar() {
        return Err(invalid_argument!("input 3 (0-based) must have shape [], not {}", algorithm.shape()));
    }
    let algorithm = algorithm.scalar_value::<i32>()?;
    let [key_value] = key.as_slice::<u64>()? else {
        return Err(bad_key(key));
    };
    if !key.shape().is_vector() {
        return Err(bad_key(key));
    }
    if algorithm != PHILOX && algorithm != ANY_ALGORITHM {
        return Err(invalid_argument!("Unsupported algorithm id: {algorithm}"));
    }
    match counter.as_slice::<u64>()? {
        [low, high, ..] if counter.shape().is_vector() => Ok(Philox {
            counter: u128::from(*high) << 64 | u128::from(*low),
            key: [*key_value as u32, (*key_value >> 32) as u32],
        }),
        _ => Err(invalid_argument!(
            "counter must be a vector with length at least 2; got shape: {}. (Note that batched counters are not supported \
             yet.)",
            counter.shape()
        )),
    }
}

fn bad_key(key: &Tensor) -> graphmill_tensor::Status {
    invalid_argument!("key must have shape [1], not {}. (Note that batched keys are not supported yet.)", key.shape())
}

/// Where an op has its stream from: input 1 is a seed, or inputs 1 to 3 are a key, a counter and an algorithm.
#[derive(Clone, Copy)]
enum Source {
    Seed,
    KeyAndCounter,
}

impl Source {
    fn shape_and_stream(self, ctx: &Context<'_>) -> Result<(Shape, Philox)> {
        let shape = shape_input(ctx, 0)?;
        let stream = match self {
            Source::Seed => stream_of_seed(ctx.input(1)?)?,
            Source::KeyAndCounter => stream_of_key(ctx.input(1)?, ctx.input(2)?, ctx.input(3)?)?,
        };
        Ok((shape, stream))
    }

    fn bounds(self) -> [usize; 2] {
        match self {
            Source::Seed => [2, 3],
            Source::KeyAndCounter => [4, 5],
        }
    }
}

struct StatelessReal {
    source: Source,
    distribution: Distribution,
    dtype: DType,
}

impl Kernel for StatelessReal {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (shape, stream) = self.source.shape_and_stream(ctx)?;
        let tensor = random_reals(ctx, stream, self.distribution, self.dtype, shape)?;
        ctx.set_output(0, tensor)
    }
}

struct StatelessInt {
    source: Source,
    dtype: DType,
}

impl Kernel for StatelessInt {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (shape, stream) = self.source.shape_and_stream(ctx)?;
        let tensor = if shape.num_elements() == 0 {
            // TensorFlow does not look at the bounds of nothing.
            Tensor::alloc(self.dtype, shape)?
        } else {
            random_integers(ctx, self.source.bounds(), self.dtype, shape, |_| stream)?
        };
        ctx.set_output(0, tensor)
    }
}

/// Integers from the whole range of their type.
struct StatelessBits {
    source: Source,
    dtype: DType,
}

impl Kernel for StatelessBits {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (shape, stream) = self.source.shape_and_stream(ctx)?;
        let tensor = random_bits(ctx, stream, self.dtype, shape)?;
        ctx.set_output(0, tensor)
    }
}

/// `StatelessRandomGetKeyCounter` and `StatelessRandomGetKeyCounterAlg`: the stream of a seed, spelled out.
struct KeyCounter {
    algorithm: bool,
}

impl Kernel for KeyCounter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let Philox { counter, key } = stream_of_seed(ctx.input(0)?)?;
        ctx.set_output(0, Tensor::vector(&[pair(key[0], key[1])])?)?;
        ctx.set_output(1, Tensor::vector(&[counter as u64, (counter >> 64) as u64])?)?;
        if self.algorithm {
            ctx.set_scalar(2, PHILOX)?;
        }
        Ok(())
    }
}

/// `StatelessRandomGetAlg`.
struct Algorithm;

impl Kernel for Algorithm {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_scalar(0, PHILOX)
    }
}
