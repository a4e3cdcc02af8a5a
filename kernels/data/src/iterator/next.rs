//! `IteratorGetNext`, `IteratorGetNextSync`, `IteratorGetNextAsOptional`.

use super::resource::{Run, input_iterator};
use crate::dataset::{Spec, Tuple};
use crate::pool;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Optional, Outputs, Registry, Step, Stored, Value};
use graphmill_tensor::{Result, Status, invalid_argument, out_of_range};
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("IteratorGetNext").async_kernel(GetNext::new);
    registry.op("IteratorGetNextSync").async_kernel(GetNext::new);
    registry.op("IteratorGetNextAsOptional").async_kernel(|c| Ok(GetNextAsOptional(Spec::of(c)?)));
}

/// Hands out the next element. Does so at once where nothing has to be waited for, else on a thread that may wait.
struct GetNext(Arc<Spec>);

impl GetNext {
    fn new(c: &Construction<'_>) -> Result<GetNext> {
        Ok(GetNext(Spec::of(c)?))
    }

    fn outputs(spec: &Spec, next: Result<Option<Tuple>>) -> Result<Outputs> {
        match next? {
            None => Err(end_of_sequence()),
            Some(element) => {
                spec.verify_element(&element)?;
                Ok(element.into_iter().map(Value::Tensor).collect())
            }
        }
    }
}

impl AsyncKernel for GetNext {
    fn start(&self, mut ctx: AsyncContext) {
        let spec = self.0.clone();
        let run = ctx.with_context(|ctx| input_iterator(ctx, 0)?.run());
        match run {
            Err(error) => ctx.complete(Err(error)),
            Ok((run, _)) => get_next(run, ctx, move |next| GetNext::outputs(&spec, next)),
        }
    }
}

/// Hands out the next element as a value that is missing at the end.
struct GetNextAsOptional(Arc<Spec>);

impl GetNextAsOptional {
    fn outputs(spec: &Spec, next: Result<Option<Tuple>>) -> Result<Outputs> {
        let next = next?;
        let declared = spec.types.iter().zip(&spec.shapes).enumerate();
        for ((i, (&dtype, shape)), part) in declared.zip(next.iter().flatten()) {
            if part.dtype() != dtype {
                return Err(invalid_argument!(
                    "The given optional does not match the expected type for component {i}. Expected: {dtype}. Actual: {}.",
                    part.dtype()
                ));
            }
            if !shape.is_compatible_with(part.shape()) {
                return Err(invalid_argument!(
                    "The given optional does not match the expected shape for component {i}. Expected: {shape}. Actual: {}.",
                    part.shape()
                ));
            }
        }
        Ok(smallvec![Value::Tensor(Optional(next).into_tensor()?)])
    }
}

impl AsyncKernel for GetNextAsOptional {
    fn start(&self, mut ctx: AsyncContext) {
        let spec = self.0.clone();
        match ctx.with_context(|ctx| input_iterator(ctx, 0)?.run()) {
            Err(error) => ctx.complete(Err(error)),
            Ok((run, _)) => get_next(run, ctx, move |next| GetNextAsOptional::outputs(&spec, next)),
        }
    }
}

/// Completes a kernel with what `finish` makes of the next element.
pub(crate) fn get_next(
    run: Arc<Run>,
    ctx: AsyncContext,
    finish: impl FnOnce(Result<Option<Tuple>>) -> Result<Outputs> + Send + 'static,
) {
    let step = ctx.step().clone();
    if let Some(next) = next_at_once(&step, &run) {
        return ctx.complete(finish(next));
    }
    let spawned = pool::spawn(move || {
        let next = cancelled_with(&step, &run, || run.next());
        ctx.complete(finish(next));
    });
    // On an error the context was dropped with the job, which has failed the step.
    drop(spawned);
}

/// The next element if it is there without waiting.
fn next_at_once(step: &Arc<Step>, run: &Arc<Run>) -> Option<Result<Option<Tuple>>> {
    let mut iterator = run.iterator.try_lock()?;
    if !iterator.is_ready() {
        return None;
    }
    // A function may run for ever without waiting for anything.
    Some(run.ctx.check().and_then(|()| cancelled_with(step, run, || iterator.next())))
}

/// Runs `body` such that the iterator is cancelled if the step is.
pub(crate) fn cancelled_with<T>(step: &Arc<Step>, run: &Arc<Run>, body: impl FnOnce() -> T) -> T {
    let (weak, origin, within) = (Arc::downgrade(run), Arc::downgrade(step), Arc::downgrade(run));
    let cancel = move || {
        if let Some(run) = weak.upgrade() {
            let reason = origin.upgrade().and_then(|step| step.cancellation().reason());
            run.ctx.cancel(reason.unwrap_or_else(crate::context::stopped));
        }
    };
    let waits = move || {
        let inner = within.upgrade().map_or_else(Vec::new, |run| run.ctx.cancellation().waits());
        std::iter::once("the next element of a dataset".to_owned()).chain(inner).collect()
    };
    let callback = step.cancellation().register_waiting(cancel, waits);
    let result = body();
    if let Some(callback) = callback {
        step.cancellation().deregister(callback);
    }
    result
}

/// The error that tells a client that an iterator has reached its end.
pub(crate) fn end_of_sequence() -> Status {
    out_of_range!("End of sequence")
}
