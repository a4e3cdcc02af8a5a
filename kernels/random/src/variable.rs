//! Ops whose stream is kept in a variable: `StatefulUniform` and its siblings, `RngSkip`, `RngReadAndSkip`; and
//! `NonDeterministicInts`, which keeps none.

use crate::distribution::{fill_from_pairs, fill_from_words, pair};
use crate::fill::{Plan, fill, shape_input};
use crate::stateful::{Distribution, random_integers, random_reals};
use graphmill_runtime::philox::{DRAWS_PER_OUTPUT, Philox};
use graphmill_runtime::{Context, Kernel, Registry, ResourceVariable, Variable};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::sync::Arc;

/// The number that stands for Philox among algorithms.
const PHILOX: i64 = 1;
/// The elements of a state: two of the counter, one of the key.
const STATE_SIZE: usize = 3;

/// Where the counter of a state begins: at its start, or behind the number of the algorithm.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct StateAt(usize);

/// A state without the number of the algorithm.
pub(crate) const PHILOX_STATE: StateAt = StateAt(0);
/// A state that begins with the number of the algorithm.
const TAGGED_STATE: StateAt = StateAt(1);

/// A variable that holds the state of a stream.
pub(crate) struct StateVariable(Arc<Variable>);

/// The variable that the handle in input `i` names.
///
/// # Errors
/// `NOT_FOUND` if it does not exist, `INVALID_ARGUMENT` if there is no handle.
pub(crate) fn state_variable(ctx: &Context<'_>, i: usize) -> Result<StateVariable> {
    match ctx.input(i)?.handles()?.first() {
        Some(handle) => Ok(StateVariable(ctx.device().lookup_handle::<ResourceVariable>(handle)?.0.clone())),
        None => Err(invalid_argument!("Empty resource handle")),
    }
}

fn scalar(tensor: &Tensor, i: usize) -> Result<i64> {
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("input {i} (0-based) must have shape [], not {}", tensor.shape()));
    }
    match tensor.dtype() {
        DType::Int32 => tensor.scalar_value::<i32>().map(i64::from),
        DType::UInt64 => tensor.scalar_value::<u64>().map(|v| v as i64),
        _ => tensor.scalar_value::<i64>(),
    }
}

fn check(state: &Tensor) -> Result<()> {
    if state.dtype() != DType::Int64 {
        return Err(invalid_argument!("dtype of RNG state variable must be int64, not {}", state.dtype()));
    }
    if !state.shape().is_vector() {
        return Err(invalid_argument!("RNG state must have one and only one dimension, not {}", state.shape().rank()));
    }
    Ok(())
}

/// Reads a state and moves it on for so many values.
fn advance(state: &mut Tensor, algorithm: Option<i64>, at: StateAt, values: u64) -> Result<Philox> {
    check(state)?;
    let elements = state.as_mut_slice::<i64>()?;
    let algorithm = match (algorithm, elements.first()) {
        (Some(algorithm), _) => algorithm,
        (None, Some(&tag)) => tag,
        (None, None) => return Err(invalid_argument!("Size of tensor must be at least 1")),
    };
    if algorithm != PHILOX {
        return Err(invalid_argument!("Unsupported algorithm id: {algorithm}"));
    }
    let size = elements.len();
    match elements.get_mut(at.0..) {
        Some([low, high, key, ..]) => {
            let key = *key as u64;
            let counter = u128::from(*high as u64) << 64 | u128::from(*low as u64);
            let stream = Philox { counter, key: [key as u32, (key >> 32) as u32] };
            let next = stream.at(values.wrapping_mul(DRAWS_PER_OUTPUT)).counter;
            (*low, *high) = (next as i64, (next >> 64) as i64);
            Ok(stream)
        }
        _ => Err(invalid_argument!(
            "For the Philox algorithm, the size of state must be at least {}; got {size}",
            at.0 + STATE_SIZE
        )),
    }
}

impl StateVariable {
    /// The stream that the variable holds, which it moves on for so many values. `algorithm` is the input that names it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the algorithm is not known or the variable holds no state of it.
    pub(crate) fn advance(&self, algorithm: &Tensor, at: StateAt, values: u64) -> Result<Philox> {
        let algorithm = scalar(algorithm, 1)?;
        self.0.update(|state| advance(state, Some(algorithm), at, values))
    }
}

/// What a stateful op gives.
#[derive(Clone, Copy)]
enum Values {
    Real(Distribution),
    /// Integers between two bounds.
    Between,
    /// Integers from the whole range of their type.
    Bits,
}

struct FromVariable {
    values: Values,
    /// Whether the state begins with the number of the algorithm, which is no input then.
    tagged: bool,
    dtype: DType,
}

/// Integers from the whole range of their type.
///
/// # Errors
/// If there is no memory, or the type is not one of the four.
pub(crate) fn random_bits(ctx: &Context<'_>, stream: Philox, dtype: DType, shape: Shape) -> Result<Tensor> {
    let mut tensor = Tensor::alloc(dtype, shape)?;
    let single = Plan { group: 4, draws: 1, cost: 1.0 };
    let double = Plan { group: 2, draws: 1, cost: 2.0 };
    match dtype {
        DType::Int32 => fill(ctx, stream, tensor.as_mut_slice::<i32>()?, &single, |stream, out| {
            fill_from_words(stream, out, |word| word as i32);
        }),
        DType::UInt32 => fill(ctx, stream, tensor.as_mut_slice::<u32>()?, &single, |stream, out| {
            fill_from_words(stream, out, |word| word);
        }),
        DType::Int64 => fill(ctx, stream, tensor.as_mut_slice::<i64>()?, &double, |stream, out| {
            fill_from_pairs(stream, out, |a, b| pair(a, b) as i64);
        }),
        DType::UInt64 => fill(ctx, stream, tensor.as_mut_slice::<u64>()?, &double, |stream, out| {
            fill_from_pairs(stream, out, pair);
        }),
        other => return Err(internal!("there are no random integers of type {other}")),
    }
    Ok(tensor)
}

impl Kernel for FromVariable {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, if self.tagged { 1 } else { 2 })?;
        let algorithm = if self.tagged { None } else { Some(scalar(ctx.input(1)?, 1)?) };
        if let Values::Between = self.values {
            // Bounds are checked before the state moves, whatever the shape.
            random_integers(ctx, [3, 4], self.dtype, Shape::vector(1), |_| Philox::from_seeds(0, 0))?;
        }
        let values = shape.num_elements() as u64;
        let at = if self.tagged { TAGGED_STATE } else { PHILOX_STATE };
        let variable = state_variable(ctx, 0)?;
        let stream = variable.0.update(|state| advance(state, algorithm, at, values))?;
        let tensor = match self.values {
            Values::Real(distribution) => random_reals(ctx, stream, distribution, self.dtype, shape)?,
            Values::Between => random_integers(ctx, [3, 4], self.dtype, shape, |_| stream)?,
            Values::Bits => random_bits(ctx, stream, self.dtype, shape)?,
        };
        ctx.set_output(0, tensor)
    }
}

/// `RngSkip(resource, algorithm, delta)`, and `RngReadAndSkip(resource, alg, delta) -> value`, which gives the state as it was.
struct RngSkip {
    read: bool,
}

impl Kernel for RngSkip {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let algorithm = scalar(ctx.input(1)?, 1)?;
        let delta = scalar(ctx.input(2)?, 2)? as u64;
        let variable = state_variable(ctx, 0)?;
        let before = variable.0.update(|state| {
            check(state)?;
            let before: Vec<i64> = state.as_slice::<i64>()?.iter().take(STATE_SIZE).copied().collect();
            advance(state, Some(algorithm), PHILOX_STATE, delta)?;
            Ok(before)
        })?;
        if self.read { ctx.set_output(0, Tensor::vector(&before)?) } else { Ok(()) }
    }
}

struct NonDeterministicInts;

impl Kernel for NonDeterministicInts {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 0)?;
        let mut out = ctx.alloc_output(0, shape)?;
        let dtype = out.dtype();
        dispatch!(dtype, T in [i32, i64, u32, u64] => {
            out.as_mut_slice::<T>()?.iter_mut().for_each(|value| *value = rand::random());
        })
        .ok_or_else(|| invalid_argument!("Unsupported dtype: {dtype}"))?;
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    for (op, distribution, tagged) in [
        ("StatefulStandardNormal", Distribution::Normal, true),
        ("StatefulStandardNormalV2", Distribution::Normal, false),
        ("StatefulTruncatedNormal", Distribution::Truncated, false),
        ("StatefulUniform", Distribution::Uniform, false),
    ] {
        registry
            .op(op)
            .types("dtype", DType::FLOATS)
            .kernel(move |c| Ok(FromVariable { values: Values::Real(distribution), tagged, dtype: c.dtype("dtype")? }));
    }
    let integers = [DType::Int32, DType::Int64, DType::UInt32, DType::UInt64];
    for (op, values, types) in
        [("StatefulUniformInt", Values::Between, DType::INDICES), ("StatefulUniformFullInt", Values::Bits, &integers)]
    {
        registry
            .op(op)
            .types("dtype", types)
            .kernel(move |c| Ok(FromVariable { values, tagged: false, dtype: c.dtype("dtype")? }));
    }
    registry.op("RngSkip").kernel(|_| Ok(RngSkip { read: false }));
    registry.op("RngReadAndSkip").kernel(|_| Ok(RngSkip { read: true }));
    registry.op("NonDeterministicInts").types("dtype", &integers).kernel(|_| Ok(NonDeterministicInts));
}
