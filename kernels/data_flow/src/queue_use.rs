//! The ops that use a queue: putting in, taking out, closing, asking for its size.

use crate::signature::{complete, match_signature};
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Kernel, Queue, Registry, Tuple};
use graphmill_tensor::{DType, Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["QueueEnqueue", "QueueEnqueueV2"] {
        registry.op(op).async_kernel(|c| Enqueue::new(c, false));
    }
    for op in ["QueueEnqueueMany", "QueueEnqueueManyV2"] {
        registry.op(op).async_kernel(|c| Enqueue::new(c, true));
    }
    for op in ["QueueDequeue", "QueueDequeueV2"] {
        registry.op(op).async_kernel(|c| check_timeout(c).map(|()| Dequeue));
    }
    for op in ["QueueDequeueMany", "QueueDequeueManyV2"] {
        registry.op(op).async_kernel(|c| check_timeout(c).map(|()| DequeueMany { allow_small: false }));
    }
    for op in ["QueueDequeueUpTo", "QueueDequeueUpToV2"] {
        registry.op(op).async_kernel(|c| check_timeout(c).map(|()| DequeueMany { allow_small: true }));
    }
    for op in ["QueueClose", "QueueCloseV2"] {
        registry.op(op).async_kernel(Close::new);
    }
    for op in ["QueueSize", "QueueSizeV2"] {
        registry.op(op).kernel(|_| Ok(Size));
    }
    for op in ["QueueIsClosed", "QueueIsClosedV2"] {
        registry.op(op).kernel(|_| Ok(IsClosed));
    }
}

fn check_timeout(c: &Construction<'_>) -> Result<()> {
    match c.attrs().int("timeout_ms")? {
        -1 => Ok(()),
        _ => Err(invalid_argument!("Timeout not supported yet.")),
    }
}

/// Runs the checks of an op; on an error the op is done.
fn begin<T>(mut ctx: AsyncContext, checks: impl FnOnce(&mut Context<'_>) -> Result<T>) -> Option<(AsyncContext, T)> {
    match ctx.with_context(checks) {
        Ok((checked, _)) => Some((ctx, checked)),
        Err(error) => {
            ctx.complete(Err(error));
            None
        }
    }
}

/// Puts an element in, or the rows of a batch.
struct Enqueue {
    many: bool,
}

impl Enqueue {
    fn new(c: &Construction<'_>, many: bool) -> Result<Enqueue> {
        check_timeout(c)?;
        Ok(Enqueue { many })
    }
}

impl AsyncKernel for Enqueue {
    fn start(&self, ctx: AsyncContext) {
        let checked = begin(ctx, |ctx| {
            let queue = ctx.input_resource::<Queue>(0)?;
            match_signature(ctx.node(), &queue.spec().types, &[])?;
            let tuple = (1..ctx.num_inputs()).map(|i| ctx.take_input(i)).collect::<Result<Tuple>>()?;
            Ok((queue, tuple))
        });
        if let Some((ctx, (queue, tuple))) = checked {
            let step = ctx.step().clone();
            let done = Box::new(move |outcome| complete(ctx, outcome));
            if self.many {
                queue.enqueue_many(&step, tuple, done);
            } else {
                queue.enqueue(&step, tuple, done);
            }
        }
    }
}

/// Takes an element out.
struct Dequeue;

impl AsyncKernel for Dequeue {
    fn start(&self, ctx: AsyncContext) {
        let checked = begin(ctx, |ctx| {
            let queue = ctx.input_resource::<Queue>(0)?;
            match_signature(ctx.node(), &[], &queue.spec().types)?;
            Ok(queue)
        });
        if let Some((ctx, queue)) = checked {
            let step = ctx.step().clone();
            queue.dequeue(&step, Box::new(move |outcome| complete(ctx, outcome)));
        }
    }
}

/// Takes a batch out; with `allow_small`, what is left of a closed queue.
struct DequeueMany {
    allow_small: bool,
}

impl AsyncKernel for DequeueMany {
    fn start(&self, ctx: AsyncContext) {
        let checked = begin(ctx, |ctx| {
            let queue = ctx.input_resource::<Queue>(0)?;
            let wanted = ctx.input(1)?.scalar_value::<i32>()?;
            let op = if self.allow_small { "DequeueUpToOp" } else { "DequeueManyOp" };
            let wanted =
                usize::try_from(wanted).map_err(|_| invalid_argument!("{op} requested {wanted} < 0 elements"))?;
            match_signature(ctx.node(), &[DType::Int32], &queue.spec().types)?;
            Ok((queue, wanted))
        });
        if let Some((ctx, (queue, wanted))) = checked {
            let step = ctx.step().clone();
            queue.dequeue_many(&step, wanted, self.allow_small, Box::new(move |outcome| complete(ctx, outcome)));
        }
    }
}

/// Closes a queue.
struct Close {
    cancel_pending: bool,
}

impl Close {
    fn new(c: &Construction<'_>) -> Result<Close> {
        Ok(Close { cancel_pending: c.attrs().bool("cancel_pending_enqueues")? })
    }
}

impl AsyncKernel for Close {
    fn start(&self, ctx: AsyncContext) {
        if let Some((ctx, queue)) = begin(ctx, |ctx| ctx.input_resource::<Queue>(0)) {
            let queue: Arc<Queue> = queue;
            queue.close(self.cancel_pending, Box::new(move |outcome| complete(ctx, outcome)));
        }
    }
}

struct Size;

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = ctx.input_resource::<Queue>(0)?.len();
        ctx.set_scalar(0, size as i32)
    }
}

struct IsClosed;

impl Kernel for IsClosed {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let closed = ctx.input_resource::<Queue>(0)?.is_closed();
        ctx.set_scalar(0, closed)
    }
}
