//! Ops that use readers.

use super::line::Request;
use super::resource::{Gathered, Reader};
use crate::inputs::{first, set_string};
use graphmill_runtime::{AsyncContext, AsyncKernel, Context, Kernel, Queue, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["ReaderRead", "ReaderReadV2"] {
        registry.op(op).async_kernel(|_| Ok(Read { many: false }));
    }
    for op in ["ReaderReadUpTo", "ReaderReadUpToV2"] {
        registry.op(op).async_kernel(|_| Ok(Read { many: true }));
    }
    let verbs = [
        ("ReaderNumRecordsProduced", "ReaderNumRecordsProducedV2", Verb::NumRecordsProduced),
        ("ReaderNumWorkUnitsCompleted", "ReaderNumWorkUnitsCompletedV2", Verb::NumWorkUnitsCompleted),
        ("ReaderSerializeState", "ReaderSerializeStateV2", Verb::SerializeState),
        ("ReaderRestoreState", "ReaderRestoreStateV2", Verb::RestoreState),
        ("ReaderReset", "ReaderResetV2", Verb::Reset),
    ];
    for (older, newer, verb) in verbs {
        for op in [older, newer] {
            registry.op(op).kernel(move |_| Ok(verb));
        }
    }
}

/// Reads one record, or several up to the end of a unit of work; takes work out of the queue as needed.
struct Read {
    many: bool,
}

impl AsyncKernel for Read {
    fn start(&self, mut ctx: AsyncContext) {
        let inputs = ctx.with_context(|ctx| {
            let reader: Arc<Reader> = ctx.input_resource(0)?;
            let queue: Arc<Queue> = ctx.input_resource(1)?;
            let wanted = if self.many { Some(number(ctx)?) } else { None };
            Ok((reader, queue, wanted))
        });
        match inputs {
            Ok(((reader, queue, wanted), _)) => {
                reader.submit(Request { ctx, queue, wanted, gathered: Gathered::default() });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// How many records the third input asks for.
fn number(ctx: &Context<'_>) -> Result<usize> {
    let count = ctx.input(2)?;
    if !count.shape().is_scalar() {
        return Err(invalid_argument!("num_records must be a scalar, got shape {}", count.shape()));
    }
    let count = count.scalar_value::<i64>()?;
    usize::try_from(count).map_err(|_| invalid_argument!("num_records must be non-negative, got {count}"))
}

/// Something to ask of a reader, or to do with it, that waits for nobody.
#[derive(Clone, Copy)]
enum Verb {
    NumRecordsProduced,
    NumWorkUnitsCompleted,
    SerializeState,
    RestoreState,
    Reset,
}

impl Kernel for Verb {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let reader: Arc<Reader> = ctx.input_resource(0)?;
        match self {
            Verb::NumRecordsProduced => ctx.set_scalar(0, reader.records_produced()),
            Verb::NumWorkUnitsCompleted => ctx.set_scalar(0, reader.work_units_completed()),
            Verb::SerializeState => set_string(ctx, 0, reader.serialize()?),
            Verb::RestoreState => {
                let state = ctx.input(1)?;
                if !state.shape().is_scalar() {
                    return Err(invalid_argument!("Reader state must be scalar, but had shape: {}", state.shape()));
                }
                reader.restore(first(state)?)
            }
            Verb::Reset => {
                reader.reset();
                Ok(())
            }
        }
    }
}
