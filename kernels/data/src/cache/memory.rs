//! Elements kept in memory, and the resource that holds them where several datasets share them.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple};
use crate::naming::Anonymous;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Kernel, Registry, Resource};
use graphmill_tensor::{Code, ResourceHandle, Result, Shape, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AnonymousMemoryCache").kernel(|_| Ok(AnonymousCache));
    registry.op("DeleteMemoryCache").kernel(|_| Ok(DeleteCache));
    registry.op("DummyMemoryCache").kernel(|_| Ok(DummyCache));
}

/// The elements, once all of them have been made.
#[derive(Default)]
pub(crate) struct MemoryCache(Mutex<Option<Arc<Vec<Tuple>>>>);

impl MemoryCache {
    fn get(&self) -> Option<Arc<Vec<Tuple>>> {
        self.0.lock().clone()
    }

    /// Sets the elements, unless somebody else has been first.
    fn complete(&self, elements: Vec<Tuple>) {
        self.0.lock().get_or_insert_with(|| Arc::new(elements));
    }

    fn set(&self, elements: Option<Vec<Tuple>>) {
        *self.0.lock() = elements.map(Arc::new);
    }
}

struct SharedCache(Arc<MemoryCache>);

impl Resource for SharedCache {
    const TYPE_NAME: &'static str = "N10tensorflow4data18MemoryCacheManagerE";
}

/// The cache that an input's handle names; `None` if it is gone.
pub(crate) fn input_cache(ctx: &Context<'_>, i: usize) -> Result<Option<Arc<MemoryCache>>> {
    let handle = handle(ctx, i)?;
    match ctx.device().resources().lookup::<SharedCache>(&handle.container, &handle.name) {
        Ok(shared) => Ok(Some(shared.0.clone())),
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn handle<'a>(ctx: &'a Context<'_>, i: usize) -> Result<&'a ResourceHandle> {
    match ctx.input(i)?.handles()? {
        [handle] => Ok(handle),
        _ => Err(invalid_argument!("cache must be a scalar")),
    }
}

struct AnonymousCache;

impl Kernel for AnonymousCache {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        Anonymous::create(ctx, "MemoryCache", SharedCache(Arc::default()))?.set_outputs(ctx)
    }
}

struct DeleteCache;

impl Kernel for DeleteCache {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = handle(ctx, 0)?;
        match ctx.device().resources().delete::<SharedCache>(&handle.container, &handle.name) {
            Err(error) if error.code() != Code::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The handle of no cache at all.
struct DummyCache;

impl Kernel for DummyCache {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = ctx.device().resource_handle::<SharedCache>("dummy_container", "dummy_resource", Vec::new());
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)
    }
}

/// The elements of the input, read once and then from memory.
pub(crate) struct InMemory {
    input: Arc<dyn Dataset>,
    cache: Arc<MemoryCache>,
}

impl InMemory {
    pub fn new(input: Arc<dyn Dataset>, cache: Arc<MemoryCache>) -> InMemory {
        InMemory { input, cache }
    }
}

impl Dataset for InMemory {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "MemoryCache"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let (ctx, input, cache) = (ctx.clone(), self.input.clone(), self.cache.clone());
        let mode = Mode::new(&ctx, &input, &cache)?;
        Ok(Box::new(MemoryIterator { ctx, input, cache, mode }))
    }
}

struct MemoryIterator {
    ctx: IteratorContext,
    input: Arc<dyn Dataset>,
    cache: Arc<MemoryCache>,
    mode: Mode,
}

enum Mode {
    Read { elements: Arc<Vec<Tuple>>, next: usize },
    Write { input: Box<dyn DatasetIterator>, made: Vec<Tuple> },
}

impl Mode {
    fn new(ctx: &IteratorContext, input: &Arc<dyn Dataset>, cache: &MemoryCache) -> Result<Mode> {
        Ok(match cache.get() {
            Some(elements) => Mode::Read { elements, next: 0 },
            None => Mode::Write { input: input.iterator(ctx)?, made: Vec::new() },
        })
    }
}

impl DatasetIterator for MemoryIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        match &mut self.mode {
            Mode::Read { elements, next } => {
                let element = elements.get(*next).cloned();
                *next += usize::from(element.is_some());
                Ok(element)
            }
            Mode::Write { input, made } => {
                let next = input.next()?;
                match &next {
                    None => self.cache.complete(std::mem::take(made)),
                    Some(element) => {
                        made.push(element.clone());
                        // Who stops after the last element need not ask for the end.
                        if i64::try_from(made.len()) == Ok(self.input.cardinality()) {
                            self.cache.complete(std::mem::take(made));
                        }
                    }
                }
                Ok(next)
            }
        }
    }

    fn never_waits(&self) -> bool {
        match &self.mode {
            Mode::Read { .. } => true,
            Mode::Write { input, .. } => input.never_waits(),
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Cache");
        let completed = self.cache.get();
        writer.bool(completed.is_some());
        let made: &[Tuple] = match (&completed, &self.mode) {
            (Some(elements), _) | (None, Mode::Read { elements, .. }) => elements,
            (None, Mode::Write { made, .. }) => made,
        };
        writer.size(made.len());
        made.iter().for_each(|element| writer.tuple(element));
        // Once everything is made, who made it has given it all out.
        let all = made.len();
        match &mut self.mode {
            Mode::Read { next, .. } => writer.size(*next),
            Mode::Write { .. } if completed.is_some() => writer.size(all),
            Mode::Write { input, .. } => input.save(writer)?,
        }
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Cache")?;
        let completed = reader.bool()?;
        let elements = (0..reader.size()?).map(|_| reader.tuple()).collect::<Result<Vec<_>>>()?;
        if completed {
            self.cache.set(Some(elements));
            self.mode = Mode::new(&self.ctx, &self.input, &self.cache)?;
            if let Mode::Read { next, .. } = &mut self.mode {
                *next = reader.size()?;
            }
            return Ok(());
        }
        self.cache.set(None);
        self.mode = Mode::new(&self.ctx, &self.input, &self.cache)?;
        match &mut self.mode {
            Mode::Write { input, made } => {
                *made = elements;
                input.restore(reader)
            }
            Mode::Read { .. } => Ok(()),
        }
    }
}
