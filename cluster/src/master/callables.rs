//! `MakeCallable`, `RunCallable` and `ReleaseCallable`: steps that are prepared once and then run by a handle.
//!
//! Their errors are always statuses of the call; the answers have no place for them.

use super::prepared::{Order, Prepared, graph_key};
use super::{Master, connections, run_step, step_reply};
use crate::grpc::{Frames, MessageBytes, decode};
use graphmill_graph::Signature;
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::{
    CallableOptions, MakeCallableRequest, MakeCallableResponse, ReleaseCallableRequest, ReleaseCallableResponse,
    RunCallableRequest,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// The callables of a session.
#[derive(Default)]
pub(super) struct Callables(Mutex<State>);

#[derive(Default)]
struct State {
    next: i64,
    live: HashMap<i64, Arc<Callable>>,
}

struct Callable {
    run: Arc<Prepared>,
    options: CallableOptions,
    order: Order,
}

impl Callables {
    /// Handles count from 0.
    fn add(&self, callable: Callable) -> i64 {
        let mut state = self.0.lock();
        let handle = state.next;
        state.next += 1;
        state.live.insert(handle, Arc::new(callable));
        handle
    }

    fn get(&self, handle: i64) -> Result<Arc<Callable>> {
        let state = self.0.lock();
        match state.live.get(&handle) {
            Some(callable) => Ok(callable.clone()),
            None if (0..state.next).contains(&handle) => {
                Err(invalid_argument!("Attempted to run callable after handle was released: {handle}"))
            }
            None => Err(invalid_argument!("No such callable handle: {handle}")),
        }
    }

    /// How many were made and not released.
    pub fn len(&self) -> usize {
        self.0.lock().live.len()
    }

    fn release(&self, handle: i64) {
        let released = self.0.lock().live.remove(&handle);
        // A program is freed outside the lock.
        drop(released);
    }
}

impl Master {
    /// Prepares a step. Its lists keep their order.
    ///
    /// # Errors
    /// As for a step with the same names; `INVALID_ARGUMENT` for connections that cannot be made.
    pub(super) async fn make_callable(&self, message: MessageBytes) -> Result<Frames> {
        let request: MakeCallableRequest = decode(message)?;
        let describe = || format!("session_handle: \"{}\" request_id: {}", request.session_handle, request.request_id);
        self.request_ids.lock().note(request.request_id, "MakeCallable (Master)", describe)?;
        let session = self.session(&request.session_handle)?;
        let options = request.options.unwrap_or_default();
        run_step::check_options(options.run_options.as_ref(), &session)?;
        let signature = Signature::new(options.feed.clone(), options.fetch.clone(), options.target.clone());
        let key = graph_key(options.run_options.as_ref());
        let run = if options.tensor_connection.is_empty() {
            session.run_of(&self.task, signature, key).await?
        } else {
            let graph = connections::connect(&session.graph(), &options.tensor_connection, &options.feed)?;
            session.build(&self.task, Arc::new(graph), signature, key).await?
        };
        let order = Order::new(&run.program, &options.feed, &options.fetch)?;
        let handle = session.callables.add(Callable { run, options, order });
        Frames::message(&MakeCallableResponse { handle })
    }

    /// Runs a prepared step with feeds in the order of its list.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown or released handle and for feeds that do not fit, and what the step fails with.
    pub(super) async fn run_callable(&self, message: MessageBytes, deadline: Option<Instant>) -> Result<Frames> {
        let request: RunCallableRequest = decode(message)?;
        let RunCallableRequest { session_handle, handle, feed, request_id } = &request;
        let describe = || format!("session_handle: \"{session_handle}\" handle: {handle} request_id: {request_id}");
        self.request_ids.lock().note(*request_id, "RunCallable (Master)", describe)?;
        let session = self.session(session_handle)?;
        let callable = session.callables.get(*handle)?;
        let expected = callable.options.feed.len();
        if feed.len() != expected {
            return Err(invalid_argument!("Callable {handle} takes {expected} feeds, got {}", feed.len()));
        }
        let options = callable.options.run_options.as_ref();
        let deadline = run_step::earlier(deadline, run_step::own_deadline(options, &session));
        let feeds = callable.order.feeds(feed.iter().map(Some))?;
        let wanted = run_step::records_wanted(options, &session, &callable.run);
        let step = self.new_step(&session, &callable.run, wanted, deadline).await?;
        let (outputs, remote) = self.execute(&session, &callable.run, &step, feeds, wanted, deadline).await?;
        let fetch = |at| callable.order.fetch(at, &outputs);
        let tensors = (0..callable.options.fetch.len()).map(fetch).collect::<Result<Vec<_>>>()?;
        step_reply::tensors(&tensors, &run_step::metadata(wanted, &callable.run, &step, remote))
    }

    /// Forgets a prepared step; an unknown handle is fine.
    ///
    /// # Errors
    /// `ABORTED` for an unknown session.
    pub(super) fn release_callable(&self, message: MessageBytes) -> Result<Frames> {
        let request: ReleaseCallableRequest = decode(message)?;
        self.session(&request.session_handle)?.callables.release(request.handle);
        Frames::message(&ReleaseCallableResponse {})
    }
}
