//! `Unbatch` hands the rows of a batch back to the steps that they came from, `UnbatchGrad` puts their gradients together again.

use crate::batch::{Meeting, rows};
use crate::pending::Pending;
use crate::timer;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Registry, Resource, outputs};
use graphmill_tensor::{Result, Status, Tensor, already_exists, deadline_exceeded, internal, invalid_argument};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Unbatch").async_kernel(Unbatch::new);
    registry.op("UnbatchGrad").async_kernel(UnbatchGrad::new);
}

/// The key that is the scalar `id`; `text` says what is wrong with any other.
fn key(id: &Tensor, text: impl Fn(&str) -> Status) -> Result<i64> {
    if id.shape().is_scalar() {
        return id.scalar_value();
    }
    let values: Vec<String> = id.as_slice::<i64>()?.iter().take(3).map(i64::to_string).collect();
    let more = if id.num_elements() > 3 { "..." } else { "" };
    Err(text(&format!("Tensor<type: int64 shape: {} values: {}{more}>", id.shape(), values.join(" "))))
}

/// The rows `(key, start, end)` of an index of `3 n` numbers.
fn entries(index: &Tensor) -> Result<Vec<[i64; 3]>> {
    Ok(index.as_slice::<i64>()?.as_chunks::<3>().0.to_vec())
}

/// Pieces of batches and those who wait for them, until they are late.
#[derive(Default)]
struct Pieces {
    tensors: HashMap<i64, (Instant, Tensor)>,
    waiters: HashMap<i64, (Instant, Arc<Pending>)>,
}

struct UnbatchResource(Arc<Mutex<Pieces>>);

impl Resource for UnbatchResource {
    const TYPE_NAME: &'static str = "N10tensorflow15UnbatchResourceE";
}

struct Unbatch {
    meeting: Meeting,
    timeout: Duration,
}

impl Unbatch {
    fn new(c: &Construction<'_>) -> Result<Unbatch> {
        let timeout = u64::try_from(c.attrs().int32("timeout_micros")?).unwrap_or(0);
        Ok(Unbatch { meeting: Meeting::new(c)?, timeout: Duration::from_micros(timeout) })
    }

    /// The key of the run, and the pieces of the batch that it brings.
    fn read(ctx: &mut AsyncContext) -> Result<(i64, Vec<(i64, Tensor)>)> {
        let inputs = ctx.take_tensors(0..3)?;
        let [data, index, id] = inputs.as_slice() else { return Err(internal!("Unbatch has three inputs")) };
        let key = key(id, |got| invalid_argument!("Input id should be scalar; Got: {got}."))?;
        if data.shape().is_scalar() || index.shape().is_scalar() {
            return Err(invalid_argument!(
                "Unbatch needs a tensor and an index of at least one dimension; Got: {} and {}.",
                data.shape(),
                index.shape()
            ));
        }
        let (most, got) = (data.shape().dim(0), index.shape().dim(0));
        if got > most {
            return Err(invalid_argument!(
                "Wrong shape for index tensor. Expected 0th dimension size to be no greater than {most}; Got: {got}."
            ));
        }
        if !index.shape().is_matrix() || index.shape().dim(1) != 3 {
            let got = if index.shape().rank() > 1 { index.shape().dim(1) } else { 0 };
            return Err(invalid_argument!(
                "Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: {got}."
            ));
        }
        let entries = entries(index)?;
        let sizes: Option<Vec<usize>> =
            entries.iter().map(|[_, start, end]| usize::try_from(end.checked_sub(*start)?).ok()).collect();
        let sizes = sizes.ok_or_else(|| invalid_argument!("The index tensor has rows that end before they begin"))?;
        let pieces = rows::split(data, &sizes)?;
        Ok((key, entries.iter().map(|entry| entry[0]).zip(pieces).collect()))
    }
}

impl AsyncKernel for Unbatch {
    fn start(&self, mut ctx: AsyncContext) {
        let create = || Ok(UnbatchResource(Arc::default()));
        let read = Unbatch::read(&mut ctx).and_then(|(key, brought)| {
            let resources = ctx.device().resources();
            let shared = resources.lookup_or_create(&self.meeting.container, &self.meeting.name, create)?;
            Ok((key, brought, shared.0.clone()))
        });
        let (key, brought, shared) = match read {
            Ok(read) => read,
            Err(error) => return ctx.complete(Err(error)),
        };
        let deadline = timer::later(self.timeout);
        let found = shared.lock().tensors.remove(&key);
        if let Some((_, piece)) = found {
            return ctx.complete(Ok(outputs(vec![piece])));
        }
        let weak = Arc::downgrade(&shared);
        let own = Pending::new(ctx, move || {
            if let Some(shared) = weak.upgrade() {
                shared.lock().waiters.retain(|_, (_, waiter)| !waiter.is_over());
            }
        });
        let (ready, error) = meet(&mut shared.lock(), key, &own, brought, deadline);
        for (waiter, piece) in ready {
            waiter.complete(Ok(vec![piece]));
        }
        if let Some(error) = error {
            own.complete(Err(error));
        }
        let weak = Arc::downgrade(&shared);
        timer::run_at(deadline, move || {
            if let Some(shared) = weak.upgrade() {
                evict(&shared);
            }
        });
    }
}

/// Has `own` wait for its piece, and gives the pieces that it brings to those who wait for them, `own` maybe among them.
fn meet(
    pieces: &mut Pieces,
    key: i64,
    own: &Arc<Pending>,
    brought: Vec<(i64, Tensor)>,
    deadline: Instant,
) -> (Vec<(Arc<Pending>, Tensor)>, Option<Status>) {
    // It may have come since it was last looked for.
    if let Some((_, piece)) = pieces.tensors.remove(&key) {
        return (vec![(own.clone(), piece)], None);
    }
    if pieces.waiters.get(&key).is_some_and(|(_, waiter)| !waiter.is_over()) {
        return (Vec::new(), Some(already_exists!("Multiple session runs with the same batch key.")));
    }
    pieces.waiters.insert(key, (deadline, own.clone()));
    let mut ready = Vec::new();
    for (key, piece) in brought {
        match pieces.waiters.remove(&key) {
            Some((_, waiter)) => ready.push((waiter, piece)),
            None if pieces.tensors.contains_key(&key) => {
                return (ready, Some(already_exists!("Multiple tensors returned for same batch key.")));
            }
            // Whoever waits for it may have given up already.
            None => {
                pieces.tensors.insert(key, (deadline, piece));
            }
        }
    }
    (ready, None)
}

/// Ends what has waited for too long.
fn evict(shared: &Mutex<Pieces>) {
    let now = Instant::now();
    let late: Vec<Arc<Pending>> = {
        let mut pieces = shared.lock();
        pieces.tensors.retain(|_, (deadline, _)| *deadline > now);
        let late = pieces.waiters.extract_if(|_, (deadline, _)| *deadline <= now);
        late.map(|(_, (_, waiter))| waiter).collect()
    };
    for waiter in late {
        waiter.complete(Err(deadline_exceeded!("Batched data did not arrive within timeout window.")));
    }
}

/// A batch that waits for gradients of its pieces.
struct Wanting {
    /// The keys of the pieces in order.
    keys: Vec<i64>,
    missing: HashSet<i64>,
    pending: Arc<Pending>,
}

#[derive(Default)]
struct Gradients {
    available: HashMap<i64, Tensor>,
    /// By the key of the run that puts the gradients together.
    batches: HashMap<i64, Wanting>,
    /// For a gradient that is missing, the batch that wants it.
    wanted: HashMap<i64, i64>,
}

struct UnbatchGradResource(Arc<Mutex<Gradients>>);

impl Resource for UnbatchGradResource {
    const TYPE_NAME: &'static str = "N10tensorflow19UnbatchGradResourceE";
}

impl Gradients {
    /// The gradients of these pieces put together; they are used up.
    fn gather(&mut self, keys: &[i64]) -> Result<Vec<Tensor>> {
        let take = |key: &i64| self.available.remove(key);
        let parts: Option<Vec<Tensor>> = keys.iter().map(take).collect();
        let parts = parts.ok_or_else(|| internal!("bad bookkeeping of available tensors."))?;
        Ok(vec![rows::concat(&parts)?])
    }

    /// Forgets batches whose steps are over.
    fn forget(&mut self) {
        self.batches.retain(|_, batch| !batch.pending.is_over());
        let batches = &self.batches;
        self.wanted.retain(|_, batch| batches.contains_key(batch));
    }

    /// The batch for which the gradient `key` was the last missing one, if there is one.
    fn arrived(&mut self, key: i64) -> Option<(Arc<Pending>, Result<Vec<Tensor>>)> {
        let owner = self.wanted.remove(&key)?;
        let batch = self.batches.get_mut(&owner)?;
        batch.missing.remove(&key);
        if !batch.missing.is_empty() {
            return None;
        }
        let batch = self.batches.remove(&owner)?;
        Some((batch.pending, self.gather(&batch.keys)))
    }
}

struct UnbatchGrad(Meeting);

/// What a run of `UnbatchGrad` brings.
struct Brought {
    key: i64,
    gradient: Tensor,
    /// The pieces of the whole batch, if the run has that.
    keys: Option<Vec<i64>>,
}

impl UnbatchGrad {
    fn new(c: &Construction<'_>) -> Result<UnbatchGrad> {
        Ok(UnbatchGrad(Meeting::new(c)?))
    }

    fn read(ctx: &mut AsyncContext) -> Result<Brought> {
        let inputs = ctx.take_tensors(0..4)?;
        let [data, index, gradient, id] = inputs.as_slice() else {
            return Err(internal!("UnbatchGrad has four inputs"));
        };
        let key = key(id, |got| invalid_argument!("Expected `id` to be scalar. Received {got}"))?;
        let gradient = gradient.clone();
        if data.num_elements() == 0 {
            if gradient.shape().is_scalar() {
                return Err(invalid_argument!("Expected `grad` to have at least one dimension. Received a scalar"));
            }
            return Ok(Brought { key, gradient, keys: None });
        }
        if index.num_elements() == 0 {
            return Err(invalid_argument!("batch_index is empty while the tensor isn't."));
        }
        let rows = if index.shape().is_scalar() { 1 } else { index.shape().dim(0) };
        if rows.checked_mul(3) != Some(index.num_elements()) {
            let expected = rows.saturating_mul(3);
            return Err(invalid_argument!(
                "batch_index should contain {expected} elements. Received {}",
                index.num_elements()
            ));
        }
        let keys = entries(index)?.iter().map(|entry| entry[0]).collect();
        Ok(Brought { key, gradient, keys: Some(keys) })
    }
}

impl AsyncKernel for UnbatchGrad {
    fn start(&self, mut ctx: AsyncContext) {
        let create = || Ok(UnbatchGradResource(Arc::default()));
        let read = UnbatchGrad::read(&mut ctx).and_then(|brought| {
            let shared = ctx.device().resources().lookup_or_create(&self.0.container, &self.0.name, create)?;
            Ok((brought, shared.0.clone()))
        });
        let (brought, shared) = match read {
            Ok(read) => read,
            Err(error) => return ctx.complete(Err(error)),
        };
        let weak = Arc::downgrade(&shared);
        let own = Pending::new(ctx, move || {
            if let Some(shared) = weak.upgrade() {
                shared.lock().forget();
            }
        });
        let ready = join(&mut shared.lock(), brought, &own);
        for (pending, outcome) in ready {
            pending.complete(outcome);
        }
    }
}

/// Adds what a run brings; the runs that end with that.
fn join(gradients: &mut Gradients, brought: Brought, own: &Arc<Pending>) -> Vec<(Arc<Pending>, Result<Vec<Tensor>>)> {
    let Brought { key, gradient, keys } = brought;
    let fail = |text: &str| vec![(own.clone(), Err(invalid_argument!("{text}")))];
    if gradients.available.contains_key(&key) {
        return fail("Two runs with the same batch key.");
    }
    gradients.available.insert(key, gradient.clone());
    let mut ready = Vec::new();
    match keys {
        None => ready.push((own.clone(), gradient.rows(0, 0).map(|empty| vec![empty]))),
        Some(keys) => {
            let missing: HashSet<i64> =
                keys.iter().copied().filter(|key| !gradients.available.contains_key(key)).collect();
            if missing.is_empty() {
                return vec![(own.clone(), gradients.gather(&keys))];
            }
            if gradients.batches.contains_key(&key) {
                return fail("Batch key with valid batch used twice.");
            }
            if missing.iter().any(|piece| gradients.wanted.contains_key(piece)) {
                return fail("Missing tensor wanted by more than one batch.");
            }
            gradients.wanted.extend(missing.iter().map(|&piece| (piece, key)));
            gradients.batches.insert(key, Wanting { keys, missing, pending: own.clone() });
        }
    }
    ready.extend(gradients.arrived(key));
    if own.is_over() {
        gradients.forget();
    }
    ready
}
