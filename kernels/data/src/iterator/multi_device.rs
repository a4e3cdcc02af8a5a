//! Iterators that deal their elements out to several devices in turn.

use super::next::end_of_sequence;
use super::string_handle::{parse_handle, string_tensor};
use crate::context::{IteratorContext, stopped};
use crate::dataset::{DatasetIterator, Spec, Tuple, input_dataset, scalar};
use crate::naming::Anonymous;
use crate::pool;
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Context, Kernel, Outputs, OwnedResource, Registry, Resource, Value,
};
use graphmill_tensor::{ResourceHandle, Result, Shape, Tensor, cancelled, failed_precondition, invalid_argument};
use parking_lot::{Condvar, Mutex};
use smallvec::smallvec;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("MultiDeviceIterator").kernel(Named::new);
    for op in ["AnonymousMultiDeviceIterator", "AnonymousMultiDeviceIteratorV3"] {
        registry.op(op).kernel(AnonymousKind::new);
    }
    registry.op("MultiDeviceIteratorInit").async_kernel(|_| Ok(Init));
    registry.op("MultiDeviceIteratorGetNextFromShard").async_kernel(|c| Ok(NextFromShard(Spec::of(c)?)));
    registry.op("MultiDeviceIteratorToStringHandle").kernel(|_| Ok(ToString));
    registry.op("MultiDeviceIteratorFromStringHandle").kernel(FromString::new);
    registry.op("DeleteMultiDeviceIterator").kernel(|_| Ok(Delete));
}

struct MultiDeviceIterator {
    spec: Arc<Spec>,
    shards: usize,
    state: Mutex<Started>,
}

/// How often it has been started, and the current pass.
#[derive(Default)]
struct Started {
    incarnation: i64,
    dealer: Option<Arc<Dealer>>,
}

impl Resource for MultiDeviceIterator {
    const TYPE_NAME: &'static str = "N10tensorflow4data12_GLOBAL__N_119MultiDeviceIteratorE";
}

impl MultiDeviceIterator {
    /// What its elements look like, and how many devices share them.
    fn attributes(c: &Construction<'_>) -> Result<(Arc<Spec>, usize)> {
        Ok((Spec::of(c)?, c.attrs().string_list("devices")?.len().max(1)))
    }

    fn of(spec: &Arc<Spec>, shards: usize) -> MultiDeviceIterator {
        MultiDeviceIterator { spec: spec.clone(), shards, state: Mutex::default() }
    }
}

/// One pass over a dataset, dealt out in turn.
struct Dealer {
    ctx: IteratorContext,
    iterator: Mutex<Box<dyn DatasetIterator>>,
    limit: usize,
    hands: Mutex<Hands>,
    changed: Condvar,
}

struct Hands {
    dealt: Vec<VecDeque<Result<Tuple>>>,
    /// Whose turn it is.
    turn: usize,
    dealing: bool,
    ended: bool,
    cancelled: bool,
}

impl Drop for Dealer {
    fn drop(&mut self) {
        self.ctx.cancel(stopped());
    }
}

impl Dealer {
    fn new(ctx: IteratorContext, iterator: Box<dyn DatasetIterator>, shards: usize, limit: usize) -> Arc<Dealer> {
        let hands = Hands {
            dealt: (0..shards).map(|_| VecDeque::new()).collect(),
            turn: 0,
            dealing: false,
            ended: false,
            cancelled: false,
        };
        let dealer = Arc::new(Dealer {
            ctx,
            iterator: Mutex::new(iterator),
            limit: limit.max(1),
            hands: Mutex::new(hands),
            changed: Condvar::new(),
        });
        let weak = Arc::downgrade(&dealer);
        dealer.ctx.cancellation().register(move || {
            if let Some(dealer) = weak.upgrade() {
                dealer.hands.lock().cancelled = true;
                dealer.changed.notify_all();
            }
        });
        dealer
    }

    /// The next element for a device. Deals to the others on the way, and waits while they have too many.
    fn next(&self, shard: usize) -> Result<Option<Tuple>> {
        let mut hands = self.hands.lock();
        loop {
            if hands.cancelled {
                return Err(cancelled!("Cancelled Multidevice iterator"));
            }
            let Some(own) = hands.dealt.get_mut(shard) else {
                return Err(invalid_argument!("There is no shard {shard} in the iterator"));
            };
            if let Some(element) = own.pop_front() {
                self.changed.notify_all();
                return element.map(Some);
            }
            if hands.ended {
                return Ok(None);
            }
            let turn = hands.turn;
            let room = hands.dealt.get(turn).is_some_and(|hand| hand.len() < self.limit);
            if hands.dealing || !room {
                self.changed.wait(&mut hands);
                continue;
            }
            hands.dealing = true;
            drop(hands);
            let next = self.iterator.lock().next().transpose();
            hands = self.hands.lock();
            hands.dealing = false;
            match next {
                None => hands.ended = true,
                Some(element) => {
                    if let Some(hand) = hands.dealt.get_mut(turn) {
                        hand.push_back(element);
                    }
                    hands.turn = (turn + 1) % hands.dealt.len().max(1);
                }
            }
            self.changed.notify_all();
        }
    }
}

/// Gives out the handle of an iterator, which it makes on first use.
struct Named {
    resource: OwnedResource<MultiDeviceIterator>,
    spec: Arc<Spec>,
    shards: usize,
}

impl Named {
    fn new(c: &Construction<'_>) -> Result<Named> {
        let (spec, shards) = MultiDeviceIterator::attributes(c)?;
        Ok(Named { resource: OwnedResource::new(c, false)?, spec, shards })
    }
}

impl Kernel for Named {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let make = || Ok(MultiDeviceIterator::of(&self.spec, self.shards));
        self.resource.give_out(ctx, make, |found| self.spec.verify(&found.spec))
    }
}

/// Makes an iterator of its own in every execution.
struct AnonymousKind {
    spec: Arc<Spec>,
    shards: usize,
}

impl AnonymousKind {
    fn new(c: &Construction<'_>) -> Result<AnonymousKind> {
        let (spec, shards) = MultiDeviceIterator::attributes(c)?;
        Ok(AnonymousKind { spec, shards })
    }
}

impl Kernel for AnonymousKind {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let iterator = MultiDeviceIterator::of(&self.spec, self.shards);
        Anonymous::create(ctx, "AnonymousMultiDeviceIterator", iterator)?.set_outputs(ctx)
    }
}

fn input<'a>(ctx: &'a Context<'_>, i: usize) -> Result<&'a ResourceHandle> {
    match ctx.input(i)?.handles()? {
        [handle] => Ok(handle),
        _ => Err(invalid_argument!("resource_handle must be a scalar")),
    }
}

/// Starts the iterator over a dataset; the number of the pass tells its elements from those of earlier ones.
struct Init;

impl AsyncKernel for Init {
    fn start(&self, mut ctx: AsyncContext) {
        let prepared = ctx.with_context(|ctx| {
            let iterator = ctx.device().lookup_handle::<MultiDeviceIterator>(input(ctx, 1)?)?;
            Ok((input_dataset(ctx, 0)?, iterator, scalar::<i64>(ctx, 2, "max_buffer_size")?))
        });
        let ((dataset, iterator, limit), _) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return ctx.complete(Err(error)),
        };
        let within = IteratorContext::new(ctx.device());
        let start = move || -> Result<Outputs> {
            let source = dataset.iterator(&within)?;
            iterator.spec.verify(dataset.spec())?;
            let limit = usize::try_from(limit).unwrap_or(1);
            let dealer = Dealer::new(within, source, iterator.shards, limit);
            let mut state = iterator.state.lock();
            state.incarnation += 1;
            let incarnation = state.incarnation;
            let before = state.dealer.replace(dealer);
            drop(state);
            if let Some(before) = before {
                before.ctx.cancel(stopped());
            }
            Ok(smallvec![Value::Tensor(Tensor::scalar(incarnation)?)])
        };
        // On an error the context is dropped with the job, which fails the step.
        drop(pool::spawn(move || ctx.complete(start())));
    }
}

/// The next element for one of the devices.
struct NextFromShard(Arc<Spec>);

impl AsyncKernel for NextFromShard {
    fn start(&self, mut ctx: AsyncContext) {
        let spec = self.0.clone();
        let prepared = ctx.with_context(|ctx| {
            let iterator = ctx.device().lookup_handle::<MultiDeviceIterator>(input(ctx, 0)?)?;
            let (shard, incarnation) = (scalar::<i32>(ctx, 1, "shard_num")?, scalar::<i64>(ctx, 2, "incarnation_id")?);
            let state = iterator.state.lock();
            let Some(dealer) = state.dealer.clone() else {
                return Err(failed_precondition!("The iterator has not been initialized."));
            };
            if state.incarnation != incarnation {
                return Err(invalid_argument!(
                    "Invalid incarnation id. Provided: {incarnation}; Expected: {}",
                    state.incarnation
                ));
            }
            Ok((dealer, usize::try_from(shard).unwrap_or(usize::MAX)))
        });
        let ((dealer, shard), _) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return ctx.complete(Err(error)),
        };
        let work = move || {
            let step = ctx.step().clone();
            let weak = Arc::downgrade(&dealer);
            let cancel = move || {
                if let Some(dealer) = weak.upgrade() {
                    dealer.ctx.cancel(stopped());
                }
            };
            let waits = || vec!["the next element of a dataset that several devices share".to_owned()];
            let callback = step.cancellation().register_waiting(cancel, waits);
            let next = dealer.next(shard);
            if let Some(callback) = callback {
                step.cancellation().deregister(callback);
            }
            let outcome = next.and_then(|next| next.ok_or_else(end_of_sequence)).and_then(|element| {
                spec.verify_element(&element)?;
                Ok(element.into_iter().map(Value::Tensor).collect())
            });
            ctx.complete(outcome);
        };
        // On an error the context is dropped with the job, which fails the step.
        drop(pool::spawn(work));
    }
}

struct ToString;

impl Kernel for ToString {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = input(ctx, 0)?;
        ctx.device().lookup_handle::<MultiDeviceIterator>(handle)?;
        let text = prost::Message::encode_to_vec(&handle.to_proto());
        ctx.set_output(0, string_tensor(text)?)
    }
}

/// The handle that a string stands for. What is not declared is not checked.
struct FromString(Spec);

impl FromString {
    fn new(c: &Construction<'_>) -> Result<FromString> {
        let spec =
            Spec { types: c.attrs().dtype_list("output_types")?, shapes: c.attrs().shape_list("output_shapes")? };
        if !spec.types.is_empty() && !spec.shapes.is_empty() && spec.types.len() != spec.shapes.len() {
            return Err(invalid_argument!(
                "If both 'output_types' and 'output_shapes' are set, they must have the same length."
            ));
        }
        Ok(FromString(spec))
    }
}

impl Kernel for FromString {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = parse_handle(ctx.input(0)?)?;
        let device = ctx.device();
        if handle.device != device.name() {
            return Err(invalid_argument!(
                "Attempted create an iterator on device \"{}\" from handle defined on device \"{}\"",
                device.name(),
                handle.device
            ));
        }
        let iterator = device.lookup_handle::<MultiDeviceIterator>(&handle)?;
        let found = &iterator.spec;
        let types = if self.0.types.is_empty() { &found.types } else { &self.0.types };
        let shapes = if self.0.shapes.is_empty() { &found.shapes } else { &self.0.shapes };
        Spec { types: types.clone(), shapes: shapes.clone() }.verify(found)?;
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)
    }
}

struct Delete;

impl Kernel for Delete {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = input(ctx, 0)?;
        ctx.device().check_handle::<MultiDeviceIterator>(handle)?;
        ctx.device().resources().delete::<MultiDeviceIterator>(&handle.container, &handle.name)
    }
}
