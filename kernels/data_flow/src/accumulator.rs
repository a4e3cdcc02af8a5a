//! Conditional accumulators, dense and sparse: sums of gradients that are taken once there are enough of them. A gradient that was
//! computed before the last one was taken is dropped.

use crate::gradient::{Gradient, Sum, TYPES};
use crate::monitor::Monitor;
use crate::signature::match_signature;
use graphmill_graph::PartialShape;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Kernel, OwnedResource, Registry, Resource};
use graphmill_tensor::{DType, Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["ConditionalAccumulator", "ResourceConditionalAccumulator"] {
        registry.op(op).types("dtype", &TYPES).kernel(|c| MakeAccumulator::new(c, false));
    }
    registry.op("SparseConditionalAccumulator").types("dtype", &TYPES).kernel(|c| MakeAccumulator::new(c, true));
    for op in ["AccumulatorApplyGradient", "ResourceAccumulatorApplyGradient"] {
        registry.op(op).kernel(|_| Ok(ApplyDense));
    }
    registry.op("SparseAccumulatorApplyGradient").kernel(ApplySparse::new);
    for op in ["AccumulatorTakeGradient", "ResourceAccumulatorTakeGradient", "SparseAccumulatorTakeGradient"] {
        registry.op(op).async_kernel(|_| Ok(TakeGradient));
    }
    for op in ["AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated"] {
        registry.op(op).kernel(|_| Ok(NumAccumulated));
    }
    for op in ["AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep"] {
        registry.op(op).kernel(|_| Ok(SetGlobalStep));
    }
}

struct Accumulator {
    name: String,
    dtype: DType,
    shape: PartialShape,
    mean: bool,
    sparse: bool,
    sum: Arc<Monitor<State>>,
}

#[derive(Default)]
struct State {
    step: i64,
    count: i32,
    sum: Option<Sum>,
}

impl Resource for Accumulator {
    const TYPE_NAME: &'static str = "N10tensorflow26ConditionalAccumulatorBaseE";
}

impl Accumulator {
    fn apply(&self, local_step: i64, gradient: Gradient) -> Result<()> {
        self.sum.with(|state| {
            if local_step < state.step {
                return Ok(());
            }
            gradient.check(&self.shape, state.sum.as_ref())?;
            state.sum = Some(match state.sum.take() {
                Some(sum) => sum.plus(gradient)?,
                None => Sum::of(gradient),
            });
            state.count = state.count.saturating_add(1);
            Ok(())
        })
    }
}

/// Makes an accumulator.
struct MakeAccumulator {
    dtype: DType,
    shape: PartialShape,
    mean: bool,
    sparse: bool,
    accumulator: OwnedResource<Accumulator>,
}

impl MakeAccumulator {
    fn new(c: &Construction<'_>, sparse: bool) -> Result<MakeAccumulator> {
        Ok(MakeAccumulator {
            dtype: c.dtype("dtype")?,
            shape: c.attrs().shape("shape")?,
            mean: c.attrs().str("reduction_type")? == "MEAN",
            sparse,
            accumulator: OwnedResource::new(c, false)?,
        })
    }
}

impl Kernel for MakeAccumulator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let create = || {
            let sum = Arc::new(Monitor::new(State::default(), true, "TakeGrad operation was cancelled"));
            let (name, shape) = (self.accumulator.name().to_owned(), self.shape.clone());
            Ok(Accumulator { name, dtype: self.dtype, shape, mean: self.mean, sparse: self.sparse, sum })
        };
        self.accumulator.give_out(ctx, create, |_| Ok(()))
    }
}

fn accumulator(ctx: &Context<'_>, sparse: bool) -> Result<Arc<Accumulator>> {
    let accumulator = ctx.input_resource::<Accumulator>(0)?;
    if accumulator.sparse != sparse {
        let kind = if sparse { "a sparse" } else { "a dense" };
        return Err(invalid_argument!("{} needs {kind} accumulator", ctx.node().op));
    }
    Ok(accumulator)
}

fn local_step(ctx: &Context<'_>) -> Result<i64> {
    let step = ctx.input(1)?;
    if !step.shape().is_scalar() {
        return Err(invalid_argument!("Argument local_step must be scalar, but had bad shape {}", step.shape()));
    }
    step.scalar_value()
}

/// Adds a gradient.
struct ApplyDense;

impl Kernel for ApplyDense {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let accumulator = accumulator(ctx, false)?;
        match_signature(ctx.node(), &[DType::Int64, accumulator.dtype], &[])?;
        let step = local_step(ctx)?;
        let gradient = ctx.take_input(2)?;
        accumulator.apply(step, Gradient::Dense(gradient))
    }
}

/// Adds slices of a gradient.
struct ApplySparse {
    has_known_shape: bool,
}

impl ApplySparse {
    fn new(c: &Construction<'_>) -> Result<ApplySparse> {
        Ok(ApplySparse { has_known_shape: c.attrs().bool("has_known_shape")? })
    }
}

impl Kernel for ApplySparse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let accumulator = accumulator(ctx, true)?;
        let inputs = [DType::Int64, DType::Int64, accumulator.dtype, DType::Int64];
        match_signature(ctx.node(), &inputs, &[])?;
        let step = local_step(ctx)?;
        let indices = ctx.input(2)?;
        if !indices.shape().is_vector() {
            return Err(invalid_argument!("Input indices should be vector but received shape: {}", indices.shape()));
        }
        let indices = indices.as_slice::<i64>()?.to_vec();
        let shape = if self.has_known_shape { Some(ctx.input(4)?.as_slice::<i64>()?.to_vec()) } else { None };
        let values = ctx.take_input(3)?;
        accumulator.apply(step, Gradient::Sparse { indices, values, shape })
    }
}

/// Takes the sum or mean, when there are enough gradients.
struct TakeGradient;

impl TakeGradient {
    fn checked(ctx: &Context<'_>) -> Result<(Arc<Accumulator>, i32)> {
        let accumulator = accumulator(ctx, ctx.num_outputs() == 3)?;
        let sparse = [DType::Int64, accumulator.dtype, DType::Int64];
        let outputs = if accumulator.sparse { &sparse[..] } else { &sparse[1..2] };
        match_signature(ctx.node(), &[DType::Int32], outputs)?;
        let required = ctx.input(1)?;
        if !required.shape().is_scalar() {
            return Err(invalid_argument!(
                "Argument num_required must be scalar, but had bad shape {}",
                required.shape()
            ));
        }
        match required.scalar_value::<i32>()? {
            required if required <= 0 => {
                Err(invalid_argument!("Argument num_required must be positive, but was {required}"))
            }
            required => Ok((accumulator, required)),
        }
    }
}

impl AsyncKernel for TakeGradient {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| TakeGradient::checked(ctx)) {
            Ok(((accumulator, required), _)) => {
                let (mean, shape, name) = (accumulator.mean, accumulator.shape.clone(), accumulator.name.clone());
                let what = move |state: &State| format!("accumulator {name}: {} of {required} gradients", state.count);
                accumulator.sum.wait(ctx, what, move |state| {
                    if state.count < required {
                        return None;
                    }
                    let sum = state.sum.take()?;
                    state.step = state.step.saturating_add(1);
                    let count = std::mem::take(&mut state.count);
                    Some(sum.into_outputs(count, mean, &shape))
                });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct NumAccumulated;

impl Kernel for NumAccumulated {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let count = ctx.input_resource::<Accumulator>(0)?.sum.with(|state| state.count);
        ctx.set_scalar(0, count)
    }
}

/// Sets the step, below which gradients are dropped.
struct SetGlobalStep;

impl Kernel for SetGlobalStep {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let accumulator = ctx.input_resource::<Accumulator>(0)?;
        let step = ctx.input(1)?;
        if !step.shape().is_scalar() {
            return Err(invalid_argument!(
                "Argument new_global_step must be scalar, but had bad shape {}",
                step.shape()
            ));
        }
        let step = step.scalar_value::<i64>()?;
        accumulator.sum.with(|state| state.step = step);
        Ok(())
    }
}
