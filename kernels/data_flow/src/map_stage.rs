//! Staging areas with keys: `MapStage`, `MapUnstage`, `MapPeek`, `MapUnstageNoKey`, `MapSize`, `MapIncompleteSize`, `MapClear`, and
//! the same with `Ordered` in front, whose keys come out in order.

use crate::monitor::Monitor;
use crate::stage::{Limits, total_bytes};
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Kernel, OwnedResource, Registry, Resource};
use graphmill_tensor::{Result, Tensor, invalid_argument};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for (ordered, stage, unstage, peek, no_key) in [
        (false, "MapStage", "MapUnstage", "MapPeek", "MapUnstageNoKey"),
        (true, "OrderedMapStage", "OrderedMapUnstage", "OrderedMapPeek", "OrderedMapUnstageNoKey"),
    ] {
        registry.op(stage).async_kernel(move |c| Area::new(c, ordered).map(Stage));
        registry.op(unstage).async_kernel(move |c| Ok(Take { area: Area::new(c, ordered)?, keeps: false }));
        registry.op(peek).async_kernel(move |c| Ok(Take { area: Area::new(c, ordered)?, keeps: true }));
        registry.op(no_key).async_kernel(move |c| Area::new(c, ordered).map(TakeAny));
    }
    for (ordered, size, incomplete, clear) in [
        (false, "MapSize", "MapIncompleteSize", "MapClear"),
        (true, "OrderedMapSize", "OrderedMapIncompleteSize", "OrderedMapClear"),
    ] {
        registry.op(size).kernel(move |c| Area::new(c, ordered).map(Size));
        registry.op(incomplete).kernel(move |c| Area::new(c, ordered).map(IncompleteSize));
        registry.op(clear).kernel(move |c| Area::new(c, ordered).map(Clear));
    }
}

type Slots = Vec<Option<Tensor>>;

struct StagingMap {
    limits: Limits,
    components: usize,
    map: Arc<Monitor<State>>,
}

/// An area whose keys come out in order is one kind of resource, and one that promises no order another.
struct OrderedStagingMap(StagingMap);

#[derive(Default)]
struct State {
    complete: BTreeMap<i64, Slots>,
    incomplete: HashMap<i64, Slots>,
    bytes: usize,
}

impl Resource for StagingMap {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_110StagingMapILb0EEE";
}

impl Resource for OrderedStagingMap {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_110StagingMapILb1EEE";
}

enum Owned {
    Plain(OwnedResource<StagingMap>),
    Ordered(OwnedResource<OrderedStagingMap>),
}

/// The staging area of a node.
struct Area {
    limits: Limits,
    components: usize,
    owned: Owned,
}

/// What a kernel needs of an area.
struct View {
    limits: Limits,
    components: usize,
    map: Arc<Monitor<State>>,
}

impl Area {
    fn new(c: &Construction<'_>, ordered: bool) -> Result<Area> {
        let owned = if ordered {
            Owned::Ordered(OwnedResource::new(c, true)?)
        } else {
            Owned::Plain(OwnedResource::new(c, true)?)
        };
        Ok(Area { limits: Limits::new(c)?, components: c.attrs().dtype_list("dtypes")?.len(), owned })
    }

    fn get(&self) -> Result<View> {
        let create = || {
            let map = Arc::new(Monitor::new(State::default(), false, "Staging operation was cancelled"));
            StagingMap { limits: self.limits, components: self.components, map }
        };
        let view = |m: &StagingMap| View { limits: m.limits, components: m.components, map: m.map.clone() };
        match &self.owned {
            Owned::Plain(owned) => Ok(view(&*owned.get(|| Ok(create()), |_| Ok(()))?)),
            Owned::Ordered(owned) => Ok(view(&owned.get(|| Ok(OrderedStagingMap(create())), |_| Ok(()))?.0)),
        }
    }
}

fn key_of(ctx: &Context<'_>) -> Result<i64> {
    let key = ctx.input(0)?;
    match key.as_slice::<i64>()? {
        [key] => Ok(*key),
        [] => Err(invalid_argument!("key must not be empty")),
        _ => Err(invalid_argument!("key must be an int64 scalar, got tensor with shape: {}", key.shape())),
    }
}

fn indices_of(ctx: &Context<'_>, i: usize) -> Result<Vec<i32>> {
    let indices = ctx.input(i)?.as_slice::<i32>()?;
    if indices.is_empty() {
        return Err(invalid_argument!("Indices are empty"));
    }
    if !indices.is_sorted_by(|a, b| a < b) {
        return Err(invalid_argument!("Indices are not strictly ordered"));
    }
    Ok(indices.to_vec())
}

fn slot(index: i32, key: i64, components: usize) -> Result<usize> {
    // TensorFlow counts without a sign.
    usize::try_from(index).ok().filter(|&index| index < components).ok_or_else(|| {
        invalid_argument!("Index '{}' for key '{key}' was out of bounds '{components}'.", i64::from(index) as u64)
    })
}

/// Puts components of a key in.
struct Stage(Area);

struct Insertion {
    key: i64,
    indices: Vec<i32>,
    values: Vec<Tensor>,
    bytes: usize,
}

impl Stage {
    fn checked(&self, ctx: &mut Context<'_>) -> Result<(View, Insertion)> {
        let (key, indices) = (key_of(ctx)?, indices_of(ctx, 1)?);
        let values = (2..ctx.num_inputs()).map(|i| ctx.take_input(i)).collect::<Result<Vec<_>>>()?;
        let view = self.0.get()?;
        let whole = indices.len() == view.components;
        if values.len() != indices.len() && !(whole && values.len() == view.components) {
            return Err(invalid_argument!("There are {} values for {} indices", values.len(), indices.len()));
        }
        let bytes = total_bytes(&values);
        view.limits.check(bytes)?;
        Ok((view, Insertion { key, indices, values, bytes }))
    }
}

impl AsyncKernel for Stage {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| self.checked(ctx)) {
            Ok(((view, mut insertion), _)) => {
                let View { limits, components, map } = view;
                let what = |state: &State| format!("room in a staging area, which has {} tuples", state.complete.len());
                map.wait(ctx, what, move |state| insert(state, limits, components, &mut insertion));
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

fn insert(
    state: &mut State,
    limits: Limits,
    components: usize,
    insertion: &mut Insertion,
) -> Option<Result<Vec<Tensor>>> {
    let whole = insertion.indices.len() == components;
    let full = whole && limits.capacity > 0 && state.complete.len() >= limits.capacity;
    if full || !limits.has_room(insertion.bytes, state.bytes) {
        return None;
    }
    let Insertion { key, indices, values, bytes } = insertion;
    let key = *key;
    if whole {
        let slots = std::mem::take(values).into_iter().map(Some).collect();
        state.complete.entry(key).or_insert(slots);
        state.bytes += *bytes;
        return Some(Ok(Vec::new()));
    }
    let present = state.incomplete.get(&key);
    let mut chosen = Vec::with_capacity(indices.len());
    for &index in indices.iter() {
        let at = match slot(index, key, components) {
            Ok(at) => at,
            Err(error) => return Some(Err(error)),
        };
        if present.is_some_and(|slots| slots[at].is_some()) {
            return Some(Err(invalid_argument!(
                "The tensor for index '{index}' for key '{key}' was already initialized '{components}'."
            )));
        }
        chosen.push(at);
    }
    let slots = state.incomplete.entry(key).or_insert_with(|| vec![None; components]);
    for (at, value) in chosen.into_iter().zip(values.drain(..)) {
        slots[at] = Some(value);
    }
    state.bytes += *bytes;
    if slots.iter().all(Option::is_some)
        && let Some(slots) = state.incomplete.remove(&key)
    {
        state.complete.entry(key).or_insert(slots);
    }
    Some(Ok(Vec::new()))
}

/// Takes components of a key out, or looks at them.
struct Take {
    area: Area,
    keeps: bool,
}

impl AsyncKernel for Take {
    fn start(&self, mut ctx: AsyncContext) {
        let checked = ctx.with_context(|ctx| Ok((self.area.get()?, key_of(ctx)?, indices_of(ctx, 1)?)));
        match checked {
            Ok(((view, key, indices), _)) => {
                let (keeps, outputs) = (self.keeps, ctx.node().output_types.len());
                let what = move |_: &State| format!("the tuple with key {key} in a staging area");
                view.map.wait(ctx, what, move |state| {
                    state.complete.contains_key(&key).then(|| take(state, key, &indices, keeps, outputs))
                });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

fn take(state: &mut State, key: i64, indices: &[i32], keeps: bool, outputs: usize) -> Result<Vec<Tensor>> {
    let Some(slots) = state.complete.get_mut(&key) else { return Ok(Vec::new()) };
    let components = slots.len();
    let mut taken = Vec::with_capacity(indices.len());
    for &index in indices {
        let at = slot(index, key, components)?;
        match &slots[at] {
            Some(tensor) => taken.push(tensor.clone()),
            None => {
                return Err(invalid_argument!("Tensor at index '{index}' for key '{key}' has already been removed."));
            }
        }
    }
    if taken.len() != outputs {
        return Err(invalid_argument!("output/indices size mismatch: {outputs} vs. {}", taken.len()));
    }
    if !keeps {
        for &index in indices {
            slots[slot(index, key, components)?] = None;
        }
        if slots.iter().all(Option::is_none) {
            state.complete.remove(&key);
        }
        state.bytes -= total_bytes(&taken).min(state.bytes);
    }
    Ok(taken)
}

/// Takes components of some key out; the key is the first output.
struct TakeAny(Area);

impl AsyncKernel for TakeAny {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| Ok((self.0.get()?, indices_of(ctx, 0)?))) {
            Ok(((view, indices), _)) => {
                let outputs = ctx.node().output_types.len().saturating_sub(1);
                let what = |_: &State| "a tuple of a staging area, which has no complete one".to_owned();
                view.map.wait(ctx, what, move |state| {
                    let key = *state.complete.first_key_value()?.0;
                    Some(take(state, key, &indices, false, outputs).and_then(|mut tensors| {
                        tensors.insert(0, Tensor::scalar(key)?);
                        Ok(tensors)
                    }))
                });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct Size(Area);

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = self.0.get()?.map.with(|state| state.complete.len());
        ctx.set_scalar(0, size as i32)
    }
}

struct IncompleteSize(Area);

impl Kernel for IncompleteSize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = self.0.get()?.map.with(|state| state.incomplete.len());
        ctx.set_scalar(0, size as i32)
    }
}

struct Clear(Area);

impl Kernel for Clear {
    fn compute(&self, _: &mut Context<'_>) -> Result<()> {
        let cleared = self.0.get()?.map.with(std::mem::take);
        drop(cleared);
        Ok(())
    }
}
