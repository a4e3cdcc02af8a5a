//! Staging areas: `Stage`, `Unstage`, `StagePeek`, `StageSize`, `StageClear`.

use crate::monitor::Monitor;
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Context, Kernel, OwnedResource, Registry, Resource, Tuple,
};
use graphmill_tensor::{Result, Tensor, invalid_argument, resource_exhausted};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Stage").async_kernel(|c| Area::new(c).map(Stage));
    registry.op("Unstage").async_kernel(|c| Area::new(c).map(Unstage));
    registry.op("StagePeek").async_kernel(|c| Area::new(c).map(Peek));
    registry.op("StageSize").kernel(|c| Area::new(c).map(Size));
    registry.op("StageClear").kernel(|c| Area::new(c).map(Clear));
}

/// Limits of a staging area; 0 means none.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub capacity: usize,
    pub memory: usize,
}

impl Limits {
    pub fn new(c: &Construction<'_>) -> Result<Limits> {
        let limit = |name: &str| Ok(usize::try_from(c.attrs().int(name)?).unwrap_or(0));
        Ok(Limits { capacity: limit("capacity")?, memory: limit("memory_limit")? })
    }

    /// Fails for what would never fit.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with the sizes.
    pub fn check(self, bytes: usize) -> Result<()> {
        if self.memory > 0 && bytes > self.memory {
            return Err(resource_exhausted!(
                "Attempted to insert tensors with combined size of '{bytes}' bytes into Staging Area with a memory limit of '{}'.",
                self.memory
            ));
        }
        Ok(())
    }

    /// Whether that many bytes fit beside those that are there.
    pub fn has_room(self, bytes: usize, present: usize) -> bool {
        self.memory == 0 || bytes.saturating_add(present) <= self.memory
    }
}

/// The bytes of tensors, as limits of memory count them.
pub(crate) fn total_bytes<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> usize {
    let size = |tensor: &Tensor| match tensor.strings() {
        Ok(strings) => strings.iter().map(|s| s.len() + STRING_SIZE).sum(),
        Err(_) => tensor.num_elements() * tensor.dtype().size(),
    };
    tensors.into_iter().map(size).sum()
}

/// What TensorFlow counts for a string beside its characters.
const STRING_SIZE: usize = 24;

struct Staging {
    limits: Limits,
    staged: Arc<Monitor<State>>,
}

#[derive(Default)]
struct State {
    elements: VecDeque<Tuple>,
    bytes: usize,
}

impl Resource for Staging {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_16BufferE";
}

/// The staging area of a node.
struct Area {
    limits: Limits,
    staging: OwnedResource<Staging>,
}

impl Area {
    fn new(c: &Construction<'_>) -> Result<Area> {
        Ok(Area { limits: Limits::new(c)?, staging: OwnedResource::new(c, true)? })
    }

    fn get(&self) -> Result<Arc<Staging>> {
        let create = || {
            let staged = Arc::new(Monitor::new(State::default(), false, "Staging operation was cancelled"));
            Ok(Staging { limits: self.limits, staged })
        };
        self.staging.get(create, |_| Ok(()))
    }
}

/// Puts a tuple in, when there is room.
struct Stage(Area);

impl AsyncKernel for Stage {
    fn start(&self, mut ctx: AsyncContext) {
        let checked = ctx.with_context(|ctx| {
            let tuple = (0..ctx.num_inputs()).map(|i| ctx.take_input(i)).collect::<Result<Tuple>>()?;
            let staging = self.0.get()?;
            let bytes = total_bytes(&tuple);
            staging.limits.check(bytes)?;
            Ok((staging, tuple, bytes))
        });
        match checked {
            Ok(((staging, mut tuple, bytes), _)) => {
                let limits = staging.limits;
                let what = |state: &State| format!("room in a staging area, which has {} tuples", state.elements.len());
                staging.staged.wait(ctx, what, move |state| {
                    let full = limits.capacity > 0 && state.elements.len() >= limits.capacity;
                    if full || !limits.has_room(bytes, state.bytes) {
                        return None;
                    }
                    state.bytes += bytes;
                    state.elements.push_back(std::mem::take(&mut tuple));
                    Some(Ok(Vec::new()))
                });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

fn matching(tuple: Tuple, outputs: usize) -> Result<Tuple> {
    if tuple.len() == outputs {
        return Ok(tuple);
    }
    Err(invalid_argument!("Mismatch stage/unstage: {} vs. {outputs}", tuple.len()))
}

/// Takes the oldest tuple out.
struct Unstage(Area);

impl AsyncKernel for Unstage {
    fn start(&self, ctx: AsyncContext) {
        match self.0.get() {
            Ok(staging) => {
                let outputs = ctx.node().output_types.len();
                let what = |_: &State| "a tuple of a staging area, which is empty".to_owned();
                staging.staged.wait(ctx, what, move |state| {
                    let tuple = state.elements.pop_front()?;
                    state.bytes -= total_bytes(&tuple).min(state.bytes);
                    Some(matching(tuple, outputs))
                });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Looks at the tuple at an index.
struct Peek(Area);

impl AsyncKernel for Peek {
    fn start(&self, mut ctx: AsyncContext) {
        let checked = ctx.with_context(|ctx| Ok((self.0.get()?, ctx.input(0)?.scalar_value::<i32>()?)));
        match checked {
            Ok(((staging, index), _)) => {
                let outputs = ctx.node().output_types.len();
                let what = move |state: &State| {
                    format!("tuple {index} of a staging area, which has {} tuples", state.elements.len())
                };
                staging.staged.wait(ctx, what, move |state| {
                    let index = usize::try_from(index).ok()?;
                    let tuple = state.elements.get(index)?.clone();
                    Some(matching(tuple, outputs))
                });
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct Size(Area);

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = self.0.get()?.staged.with(|state| state.elements.len());
        ctx.set_scalar(0, size as i32)
    }
}

struct Clear(Area);

impl Kernel for Clear {
    fn compute(&self, _: &mut Context<'_>) -> Result<()> {
        let cleared = self.0.get()?.staged.with(std::mem::take);
        drop(cleared);
        Ok(())
    }
}
