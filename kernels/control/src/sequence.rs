//! Kernels that call functions one after the other.

use crate::functional::check_results;
use graphmill_runtime::{AsyncContext, Function, outputs};
use graphmill_tensor::{Result, Tensor};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a sequence keeps a thread; other work may wait for it.
const SLICE: Duration = Duration::from_millis(1);

/// What a kernel does after a call.
pub(crate) enum Next {
    /// The next call.
    Call(Function, Vec<Tensor>),
    /// The outputs of the node.
    Done(Vec<Tensor>),
}

/// The calls of a kernel.
pub(crate) trait Sequence: Send + 'static {
    /// What comes next; `results` are those of the call before, absent at the start.
    fn next(&mut self, results: Option<Vec<Tensor>>) -> Result<Next>;
}

/// Where a call and its caller meet.
enum Meeting<S> {
    /// Neither is there.
    Open,
    /// The call has ended before its caller came to wait.
    Ended(Result<Vec<Tensor>>),
    /// The caller has gone, and this is how to go on.
    Waiting(Box<(S, AsyncContext)>),
}

/// Makes the calls of a sequence and completes the node. However many calls there are, the stack does not grow: calls that end
/// before they return are followed up by a loop, others by the thread on which they end.
pub(crate) fn run<S: Sequence>(sequence: S, ctx: AsyncContext) {
    go_on(sequence, ctx, None);
}

fn go_on<S: Sequence>(mut sequence: S, mut ctx: AsyncContext, mut results: Option<Vec<Tensor>>) {
    let started = Instant::now();
    loop {
        let (function, args) = match sequence.next(results.take()) {
            Ok(Next::Call(function, args)) => (function, args),
            Ok(Next::Done(results)) => {
                let outcome = check_results(&ctx, results).map(outputs);
                return ctx.complete(outcome);
            }
            Err(error) => return ctx.complete(Err(error)),
        };
        if started.elapsed() > SLICE {
            let threads = function.clone();
            return threads.spawn(move || {
                if let Some((sequence, ctx, results)) = call(sequence, ctx, &function, args) {
                    go_on(sequence, ctx, Some(results));
                }
            });
        }
        match call(sequence, ctx, &function, args) {
            Some((rest, context, next)) => (sequence, ctx, results) = (rest, context, Some(next)),
            None => return,
        }
    }
}

/// Makes one call. Gives everything back with the results if they are there already; otherwise the end of the call goes on.
fn call<S: Sequence>(
    sequence: S,
    ctx: AsyncContext,
    function: &Function,
    args: Vec<Tensor>,
) -> Option<(S, AsyncContext, Vec<Tensor>)> {
    let meeting = Arc::new(Mutex::new(Meeting::Open));
    let end = meeting.clone();
    function.call(ctx.step(), args, move |outcome| {
        let mut meeting = end.lock();
        match std::mem::replace(&mut *meeting, Meeting::Open) {
            Meeting::Waiting(rest) => {
                drop(meeting);
                let (sequence, ctx) = *rest;
                match outcome {
                    Ok(results) => go_on(sequence, ctx, Some(results)),
                    Err(error) => ctx.complete(Err(error)),
                }
            }
            _ => *meeting = Meeting::Ended(outcome),
        }
    });
    let mut meeting = meeting.lock();
    match std::mem::replace(&mut *meeting, Meeting::Open) {
        Meeting::Ended(Ok(results)) => Some((sequence, ctx, results)),
        Meeting::Ended(Err(error)) => {
            ctx.complete(Err(error));
            None
        }
        _ => {
            *meeting = Meeting::Waiting(Box::new((sequence, ctx)));
            None
        }
    }
}
