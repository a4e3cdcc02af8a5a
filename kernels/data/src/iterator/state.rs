//! `SerializeIterator` and `DeserializeIterator`.

use super::resource::{IteratorResource, input_iterator};
use crate::pool;
use crate::recipe::StatePolicy;
use graphmill_runtime::{AsyncContext, AsyncKernel, Context, Device, Outputs, Registry, Value};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SerializeIterator").async_kernel(|c| Ok(Serialize(Arc::new(StatePolicy::new(c)?))));
    registry.op("DeserializeIterator").async_kernel(|_| Ok(Deserialize));
}

/// Writes an iterator's position into a vector of variants. Waits for the call of the iterator that is under way.
struct Serialize(Arc<StatePolicy>);

impl AsyncKernel for Serialize {
    fn start(&self, ctx: AsyncContext) {
        let policy = self.0.clone();
        work(ctx, move |iterator, _, _| {
            let state = iterator.save(&policy)?;
            Ok(smallvec![Value::Tensor(Tensor::from_variants(Shape::vector(1), vec![state])?)])
        });
    }
}

/// Puts an iterator at a position that was written down.
struct Deserialize;

impl AsyncKernel for Deserialize {
    fn start(&self, ctx: AsyncContext) {
        work(ctx, |iterator, device, state| {
            match state.map(|state| state.variants().map(<[_]>::to_vec)).transpose()?.as_deref() {
                Some([state]) => iterator.restore(&device, state)?,
                _ => return Err(invalid_argument!("serialized must hold the state of one iterator")),
            }
            Ok(Outputs::new())
        });
    }
}

/// Runs `body` on the iterator of input 0 and with input 1, if there is one, where waiting is permitted.
fn work(
    mut ctx: AsyncContext,
    body: impl FnOnce(Arc<IteratorResource>, Arc<Device>, Option<Tensor>) -> Result<Outputs> + Send + 'static,
) {
    let prepared = ctx.with_context(|ctx: &mut Context<'_>| {
        let state = if ctx.num_inputs() > 1 { Some(ctx.input(1)?.clone()) } else { None };
        Ok((input_iterator(ctx, 0)?, ctx.device().clone(), state))
    });
    match prepared {
        Err(error) => ctx.complete(Err(error)),
        Ok(((iterator, device, state), _)) => {
            let spawned = pool::spawn(move || {
                let outcome = body(iterator, device, state);
                ctx.complete(outcome);
            });
            // On an error the context was dropped with the job, which has failed the step.
            drop(spawned);
        }
    }
}
