//! Seeds for shuffling, and the resources that give them out.

use crate::dataset::scalar;
use crate::naming::Anonymous;
use crate::random::Words;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Construction, Context, Kernel, Registry, Resource};
use graphmill_tensor::{Code, ResourceHandle, Result, Shape, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["AnonymousSeedGenerator", "AnonymousRandomSeedGenerator"] {
        registry.op(op).kernel(|c| Ok(AnonymousGenerator { has_reshuffle: c.num_inputs() > 2 }));
    }
    for op in ["DeleteSeedGenerator", "DeleteRandomSeedGenerator"] {
        registry.op(op).kernel(|_| Ok(DeleteGenerator));
    }
    registry.op("DummySeedGenerator").kernel(|_: &Construction<'_>| Ok(DummyGenerator));
}

/// A pair of seeds; random ones in place of two zeros.
pub(crate) fn seeds(ctx: &Context<'_>, first: usize) -> Result<(u64, u64)> {
    match (scalar::<i64>(ctx, first, "seed")?, scalar::<i64>(ctx, first + 1, "seed2")?) {
        (0, 0) => Ok((rand::random(), rand::random())),
        (seed, seed2) => Ok((seed as u64, seed2 as u64)),
    }
}

/// Gives out pairs of seeds: the same pair always, or different ones in a fixed order.
pub(crate) struct SeedGenerator {
    seeds: (u64, u64),
    reshuffle: bool,
    state: Mutex<Words>,
}

impl SeedGenerator {
    pub fn new(seeds: (u64, u64), reshuffle: bool) -> SeedGenerator {
        SeedGenerator { seeds, reshuffle, state: Mutex::new(Words::new(seeds)) }
    }

    /// The next pair.
    pub fn generate(&self) -> (u64, u64) {
        if !self.reshuffle {
            return self.seeds;
        }
        let mut words = self.state.lock();
        (u64::from(words.next()), u64::from(words.next()))
    }

    pub fn save(&self, writer: &mut Writer) {
        writer.int(self.state.lock().drawn() as i64);
    }

    pub fn restore(&self, reader: &mut Reader) -> Result<()> {
        let drawn = reader.int()? as u64;
        *self.state.lock() = Words::after(self.seeds, drawn);
        Ok(())
    }
}

/// A seed generator that datasets share.
pub(crate) struct SharedGenerator(pub Arc<SeedGenerator>);

impl Resource for SharedGenerator {
    const TYPE_NAME: &'static str = "N10tensorflow4data20SeedGeneratorManagerE";
}

/// The generator that an input's handle names; `None` if it is gone.
pub(crate) fn input_generator(ctx: &Context<'_>, i: usize) -> Result<Option<Arc<SeedGenerator>>> {
    let handle = match ctx.input(i)?.handles()? {
        [handle] => handle,
        _ => return Err(invalid_argument!("seed_generator must be a scalar")),
    };
    match ctx.device().resources().lookup::<SharedGenerator>(&handle.container, &handle.name) {
        Ok(shared) => Ok(Some(shared.0.clone())),
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct AnonymousGenerator {
    has_reshuffle: bool,
}

impl Kernel for AnonymousGenerator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let seeds = seeds(ctx, 0)?;
        let reshuffle = !self.has_reshuffle || scalar(ctx, 2, "reshuffle")?;
        let generator = SharedGenerator(Arc::new(SeedGenerator::new(seeds, reshuffle)));
        Anonymous::create(ctx, "SeedGenerator", generator)?.set_outputs(ctx)
    }
}

struct DeleteGenerator;

impl Kernel for DeleteGenerator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        match ctx.input(0)?.handles()? {
            [handle] => ctx.device().resources().delete::<SharedGenerator>(&handle.container, &handle.name),
            _ => Err(invalid_argument!("handle must be a scalar")),
        }
    }
}

/// The handle of no generator at all.
struct DummyGenerator;

impl Kernel for DummyGenerator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = ResourceHandle {
            container: "dummy_container".to_owned(),
            name: "dummy_resource".to_owned(),
            ..ctx.device().resource_handle::<SharedGenerator>("", "", Vec::new())
        };
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)
    }
}
