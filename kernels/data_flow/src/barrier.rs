//! Barriers: maps from keys to tuples whose components come one at a time. A tuple that is complete is ready to be taken.

use crate::order::Sorted;
use crate::signature::{complete, match_signature};
use graphmill_graph::PartialShape;
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Context, Kernel, OwnedResource, Queue, QueueDone, QueueSpec, Registry,
    Resource, Tuple, dtype_list, shape_list,
};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, cancelled, internal, invalid_argument, out_of_range};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Barrier").kernel(MakeBarrier::new);
    registry.op("BarrierInsertMany").types("T", DType::COMMON).async_kernel(InsertMany::new);
    registry.op("BarrierTakeMany").async_kernel(TakeMany::new);
    registry.op("BarrierClose").async_kernel(Close::new);
    registry.op("BarrierReadySize").kernel(|_| Ok(ReadySize));
    registry.op("BarrierIncompleteSize").kernel(|_| Ok(IncompleteSize));
}

struct Barrier {
    name: String,
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
    state: Mutex<State>,
    ready: Arc<Queue>,
}

impl Resource for Barrier {
    const TYPE_NAME: &'static str = "N10tensorflow7barrier7BarrierE";
}

struct State {
    closed: bool,
    cancels_pending: bool,
    /// Counts the calls that brought new keys, from the smallest number on.
    index: i64,
    incomplete: HashMap<Bytes, Incomplete>,
}

struct Incomplete {
    index: i64,
    components: Vec<Option<Tensor>>,
}

impl Barrier {
    fn insert_many(&self, component: usize, keys: &Tensor, values: &Tensor) -> Result<Option<Tuple>> {
        let count = keys.num_elements();
        if count > 0 && values.num_elements() == 0 {
            return Err(invalid_argument!(
                "Tensors with no elements are not supported {}: received shape {}",
                self.name,
                values.shape()
            ));
        }
        if count > 0 && (values.shape().is_scalar() || values.shape().dim(0) < count) {
            return Err(invalid_argument!("There are {count} keys, but the values have shape {}", values.shape()));
        }
        let mut state = self.state.lock();
        let waiting = state.incomplete.len();
        let pending = u8::from(state.cancels_pending);
        if state.closed && (state.cancels_pending || (count > 0 && waiting == 0)) {
            return Err(cancelled!(
                "Barrier {} is closed.  Pending enqueues cancelled: {pending}.  Number of new insertions: {count}.  Number of \
                 incomplete keys: {waiting}.",
                self.name
            ));
        }
        let mut has_new = false;
        let mut ready = Vec::new();
        for (i, key) in keys.strings()?.iter().enumerate() {
            if !state.incomplete.contains_key(key) {
                if state.closed {
                    return Err(cancelled!(
                        "Barrier {} is closed, but attempted to insert a brand new key: {}.  Pending enqueues cancelled: \
                         {pending}.  Insertion index: {i}.  Number of incomplete keys: {}.",
                        self.name,
                        String::from_utf8_lossy(key),
                        state.incomplete.len()
                    ));
                }
                has_new = true;
                let fresh = Incomplete { index: state.index, components: vec![None; self.types.len()] };
                state.incomplete.insert(key.clone(), fresh);
            }
            if let Some(tuple) = self.insert_one(&mut state, key, component, values, i)? {
                ready.push(tuple);
            }
        }
        if has_new {
            state.index = state.index.checked_add(1).ok_or_else(|| {
                internal!("Barrier has had {} insertions and can no longer keep track of new ones.", i64::MAX)
            })?;
        }
        if ready.is_empty() { Ok(None) } else { stack(&ready).map(Some) }
    }

    /// Adds a component to a key's tuple; gives the tuple, with index and key in front, if it is complete now.
    fn insert_one(
        &self,
        state: &mut State,
        key: &Bytes,
        component: usize,
        values: &Tensor,
        row: usize,
    ) -> Result<Option<Tuple>> {
        let Some(incomplete) = state.incomplete.get_mut(key) else {
            return Err(internal!("a key of a barrier has gone"));
        };
        let slot = incomplete.components.get_mut(component).ok_or_else(|| internal!("there is no such component"))?;
        if slot.is_some() {
            return Err(invalid_argument!(
                "Key {} already has a value for component {component} in barrier {}",
                String::from_utf8_lossy(key),
                self.name
            ));
        }
        let shape = Shape::from_dims(&values.shape().dims()[1..])?;
        *slot = Some(values.rows(row, 1)?.into_shape(shape)?.deep_copy()?);
        if incomplete.components.iter().any(Option::is_none) {
            return Ok(None);
        }
        let Some(Incomplete { index, components }) = state.incomplete.remove(key) else {
            return Ok(None);
        };
        let mut tuple = vec![Tensor::scalar(index)?, Tensor::from_strings(Shape::scalar(), vec![key.clone()])?];
        tuple.extend(components.into_iter().flatten());
        for (i, (tensor, shape)) in tuple.iter().skip(2).zip(&self.shapes).enumerate() {
            if !shape.is_compatible_with(tensor.shape()) {
                return Err(invalid_argument!(
                    "Shape mismatch in tuple component {}. Expected {shape}, got {}",
                    i + 2,
                    tensor.shape()
                ));
            }
        }
        Ok(Some(tuple))
    }

    /// How many tuples to ask the queue of ready ones for.
    fn deliverable(&self, wanted: usize, allow_small: bool) -> Result<usize> {
        let state = self.state.lock();
        if !state.closed {
            return Ok(wanted);
        }
        let mut available = self.ready.len();
        let mut deliver = wanted;
        if allow_small {
            deliver = wanted.min(available);
        } else {
            available += state.incomplete.len();
        }
        if available < deliver.max(1) {
            return Err(out_of_range!(
                "Barrier '{}' is closed and has insufficient elements (requested {deliver}, total size {available})",
                self.name
            ));
        }
        Ok(deliver)
    }

    fn close(&self, cancel_pending: bool, done: QueueDone) {
        let close_queue = {
            let mut state = self.state.lock();
            // A second close is fine if only that one cancels.
            if state.closed && (state.cancels_pending || !cancel_pending) {
                drop(state);
                done(Err(cancelled!("Barrier '{}' is already closed.", self.name)));
                return;
            }
            state.cancels_pending = cancel_pending;
            state.closed = true;
            let close_queue = cancel_pending || state.incomplete.is_empty();
            if close_queue {
                state.incomplete.clear();
            }
            close_queue && !self.ready.is_closed()
        };
        if close_queue { self.ready.close(cancel_pending, done) } else { done(Ok(Vec::new())) }
    }
}

/// Tuples as one tuple of batches.
fn stack(tuples: &[Tuple]) -> Result<Tuple> {
    let Some(first) = tuples.first() else { return Ok(Vec::new()) };
    let mut batch = Vec::with_capacity(first.len());
    for (i, component) in first.iter().enumerate() {
        let dims: Vec<usize> = std::iter::once(tuples.len()).chain(component.shape().dims().iter().copied()).collect();
        let mut out = Tensor::alloc(component.dtype(), Shape::from_dims(&dims)?)?;
        let size = component.num_elements();
        for (row, tuple) in tuples.iter().enumerate() {
            if tuple[i].shape() != component.shape() {
                return Err(invalid_argument!(
                    "Shape mismatch in tuple component {i}. Expected {}, got {}",
                    component.shape(),
                    tuple[i].shape()
                ));
            }
            out.copy_elements(row * size, &tuple[i], 0..size)?;
        }
        batch.push(out);
    }
    Ok(batch)
}

/// Makes a barrier and gives out a reference to its name.
struct MakeBarrier {
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
    barrier: OwnedResource<Barrier>,
}

impl MakeBarrier {
    fn new(c: &Construction<'_>) -> Result<MakeBarrier> {
        let types = c.attrs().dtype_list("component_types")?;
        let shapes = c.attrs().shape_list("shapes")?;
        if shapes.len() != types.len() {
            return Err(invalid_argument!("All of the component shapes must be specified"));
        }
        // As in TensorFlow, a shape of unknown rank declares a scalar.
        let scalar = PartialShape::new(&[])?;
        let shapes: Vec<PartialShape> =
            shapes.into_iter().map(|shape| if shape.rank().is_none() { scalar.clone() } else { shape }).collect();
        if let Some(shape) = shapes.iter().find(|shape| shape.to_shape().is_none()) {
            return Err(invalid_argument!("Shape {shape} is not fully defined"));
        }
        if c.attrs().int("capacity")? != -1 {
            return Err(invalid_argument!(
                "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited \
                 capacity."
            ));
        }
        Ok(MakeBarrier { types, shapes, barrier: OwnedResource::new(c, false)? })
    }

    fn create(&self) -> Result<Barrier> {
        let scalar = PartialShape::new(&[])?;
        let name = self.barrier.name().to_owned();
        let spec = QueueSpec {
            kind: "PriorityQueue",
            name: format!("{name}_queue"),
            capacity: i32::MAX as usize,
            types: [DType::Int64, DType::String].into_iter().chain(self.types.iter().copied()).collect(),
            shapes: [scalar.clone(), scalar].into_iter().chain(self.shapes.iter().cloned()).collect(),
            min_after_dequeue: 0,
            whole_batches: true,
            seeds: (0, 0),
        };
        let ready = Arc::new(Queue::new(spec, Box::new(Sorted::default()))?);
        let state = State { closed: false, cancels_pending: false, index: i64::MIN, incomplete: HashMap::new() };
        Ok(Barrier { name, types: self.types.clone(), shapes: self.shapes.clone(), state: Mutex::new(state), ready })
    }

    fn verify(&self, barrier: &Barrier) -> Result<()> {
        let name = self.barrier.name();
        if barrier.types != self.types {
            return Err(invalid_argument!(
                "Shared barrier '{name}' has component types {} but requested component types were {}",
                dtype_list(&barrier.types),
                dtype_list(&self.types)
            ));
        }
        if barrier.shapes != self.shapes {
            return Err(invalid_argument!(
                "Shared barrier '{name}' has component shapes {} but requested component shapes were {}",
                shape_list(&barrier.shapes),
                shape_list(&self.shapes)
            ));
        }
        Ok(())
    }
}

impl Kernel for MakeBarrier {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.barrier.give_out(ctx, || self.create(), |barrier| self.verify(barrier))
    }
}

/// Adds one component to the tuples of some keys.
struct InsertMany {
    component: i64,
}

impl InsertMany {
    fn new(c: &Construction<'_>) -> Result<InsertMany> {
        Ok(InsertMany { component: c.attrs().int("component_index")? })
    }

    fn insert(&self, ctx: &Context<'_>) -> Result<(Arc<Barrier>, Option<Tuple>)> {
        let barrier = ctx.input_resource::<Barrier>(0)?;
        let count = barrier.types.len();
        let component = usize::try_from(self.component).ok().filter(|&i| i < count).ok_or_else(|| {
            invalid_argument!("The component ID is out of range {} > num_components (= {count})", self.component)
        })?;
        match_signature(ctx.node(), &[DType::String, barrier.types[component]], &[])?;
        let ready = barrier.insert_many(component, ctx.input(1)?, ctx.input(2)?)?;
        Ok((barrier, ready))
    }
}

impl AsyncKernel for InsertMany {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| self.insert(ctx)) {
            Ok(((barrier, Some(ready)), _)) => {
                let step = ctx.step().clone();
                barrier.ready.enqueue_many(&step, ready, Box::new(move |outcome| complete(ctx, outcome)));
            }
            Ok((_, outputs)) => ctx.complete(Ok(outputs)),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Takes complete tuples out.
struct TakeMany {
    allow_small: bool,
}

impl TakeMany {
    fn new(c: &Construction<'_>) -> Result<TakeMany> {
        if c.attrs().int("timeout_ms")? != -1 {
            return Err(invalid_argument!("Timeout not supported yet."));
        }
        Ok(TakeMany { allow_small: c.attrs().bool("allow_small_batch")? })
    }

    fn checked(&self, ctx: &Context<'_>) -> Result<(Arc<Barrier>, usize)> {
        let barrier = ctx.input_resource::<Barrier>(0)?;
        let wanted = ctx.input(1)?;
        if !wanted.shape().is_scalar() {
            return Err(invalid_argument!("num_elements must be a scalar."));
        }
        let wanted = wanted.scalar_value::<i32>()?;
        let outputs: Vec<DType> = [DType::Int64, DType::String].into_iter().chain(barrier.types.clone()).collect();
        match_signature(ctx.node(), &[DType::Int32], &outputs)?;
        let wanted = usize::try_from(wanted)
            .map_err(|_| invalid_argument!("BarrierTakeMany requested {wanted} < 0 elements"))?;
        let wanted = barrier.deliverable(wanted, self.allow_small)?;
        Ok((barrier, wanted))
    }
}

impl AsyncKernel for TakeMany {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| self.checked(ctx)) {
            Ok(((barrier, wanted), _)) => {
                let step = ctx.step().clone();
                let done = Box::new(move |outcome| complete(ctx, outcome));
                barrier.ready.dequeue_many(&step, wanted, self.allow_small, done);
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Closes a barrier: no new keys, and with `cancel_pending_enqueues` no new components either.
struct Close {
    cancel_pending: bool,
}

impl Close {
    fn new(c: &Construction<'_>) -> Result<Close> {
        Ok(Close { cancel_pending: c.attrs().bool("cancel_pending_enqueues")? })
    }
}

impl AsyncKernel for Close {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| ctx.input_resource::<Barrier>(0)) {
            Ok((barrier, _)) => barrier.close(self.cancel_pending, Box::new(move |outcome| complete(ctx, outcome))),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct ReadySize;

impl Kernel for ReadySize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = ctx.input_resource::<Barrier>(0)?.ready.len();
        ctx.set_scalar(0, size as i32)
    }
}

struct IncompleteSize;

impl Kernel for IncompleteSize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = ctx.input_resource::<Barrier>(0)?.state.lock().incomplete.len();
        ctx.set_scalar(0, size as i32)
    }
}
