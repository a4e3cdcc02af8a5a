//! Ops that go through a dataset in one step: `ReduceDataset`, `DatasetToSingleElement`; and those that look at one.

use crate::context::{IteratorContext, stopped};
use crate::dataset::{DatasetIterator, Spec, Tuple, input_dataset, inputs};
use crate::function::{Captured, FunctionAttr};
use crate::pool;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Kernel, Outputs, Registry, Value};
use graphmill_tensor::{Result, Tensor, Variant, cancelled, invalid_argument};
use std::ops::Range;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ReduceDataset").async_kernel(Reduce::new);
    registry.op("DatasetToSingleElement").async_kernel(|c| Ok(SingleElement(Spec::of(c)?)));
    registry.op("DatasetCardinality").kernel(|_| Ok(Cardinality));
    registry.op("ExperimentalDatasetCardinality").kernel(|_| Ok(Cardinality));
    registry.op("WrapDatasetVariant").kernel(|_| Ok(Wrap));
    registry.op("UnwrapDatasetVariant").kernel(|_| Ok(Wrap));
}

/// Runs `body` where waiting is permitted, in a context that ends with the step.
pub(crate) fn run_in_step(ctx: AsyncContext, body: impl FnOnce(&IteratorContext) -> Result<Outputs> + Send + 'static) {
    let device = ctx.device().clone();
    let spawned = pool::spawn(move || {
        let within = IteratorContext::within(&device, ctx.step());
        let outcome = body(&within);
        within.cancel(stopped());
        ctx.complete(outcome);
    });
    // On an error the context was dropped with the job, which has failed the step.
    drop(spawned);
}

/// Runs a function over the elements and a state; its result is the last state.
struct Reduce {
    spec: Arc<Spec>,
    f: FunctionAttr,
    state: Range<usize>,
}

impl Reduce {
    fn new(c: &Construction<'_>) -> Result<Reduce> {
        Ok(Reduce { spec: Spec::of(c)?, f: FunctionAttr::f(c)?, state: c.input_range("initial_state")? })
    }
}

impl AsyncKernel for Reduce {
    fn start(&self, mut ctx: AsyncContext) {
        let prepared = ctx
            .with_context(|ctx| Ok((input_dataset(ctx, 0)?, inputs(ctx, self.state.clone())?, self.f.capture(ctx)?)));
        let spec = self.spec.clone();
        match prepared {
            Err(error) => ctx.complete(Err(error)),
            Ok(((dataset, state, f), _)) => run_in_step(ctx, move |ctx| {
                let state = reduce(ctx, dataset.iterator(ctx)?, state, &f)?;
                spec.verify_element(&state)?;
                Ok(values(state))
            }),
        }
    }
}

fn reduce(
    ctx: &IteratorContext,
    mut iterator: Box<dyn DatasetIterator>,
    mut state: Tuple,
    f: &Captured,
) -> Result<Tuple> {
    while let Some(element) = iterator.next()? {
        if ctx.cancellation().is_cancelled() {
            return Err(cancelled!("Operation was cancelled"));
        }
        let expected = state.len();
        state.extend(element);
        state = f.call(ctx, state)?;
        if state.len() != expected {
            return Err(invalid_argument!(
                "The number of components of the initial state and the reduce function output does not match. \
                 (initial_state={expected}, output={}).",
                state.len()
            ));
        }
    }
    Ok(state)
}

fn values(tensors: Vec<Tensor>) -> Outputs {
    tensors.into_iter().map(Value::Tensor).collect()
}

/// The only element of a dataset.
struct SingleElement(Arc<Spec>);

impl AsyncKernel for SingleElement {
    fn start(&self, mut ctx: AsyncContext) {
        let spec = self.0.clone();
        match ctx.with_context(|ctx| input_dataset(ctx, 0)) {
            Err(error) => ctx.complete(Err(error)),
            Ok((dataset, _)) => run_in_step(ctx, move |ctx| {
                let mut iterator = dataset.iterator(ctx)?;
                let element = iterator.next()?.ok_or_else(|| invalid_argument!("Dataset was empty."))?;
                spec.verify_element(&element)?;
                match iterator.next()? {
                    None => Ok(values(element)),
                    Some(_) => Err(invalid_argument!("Dataset had more than one element.")),
                }
            }),
        }
    }
}

/// The number of elements, as far as it is known.
struct Cardinality;

impl Kernel for Cardinality {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let cardinality = input_dataset(ctx, 0)?.cardinality();
        ctx.set_scalar(0, cardinality)
    }
}

/// Passes a dataset on, through places that take other variants but not datasets.
struct Wrap;

impl Kernel for Wrap {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.take_input(0)?;
        if !tensor.shape().is_scalar() || tensor.variants()?.first().is_none_or(|v: &Variant| v.object.is_none()) {
            return Err(invalid_argument!("Dataset tensor must be a scalar of dtype DT_VARIANT."));
        }
        ctx.set_output(0, tensor)
    }
}
