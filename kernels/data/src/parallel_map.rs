//! `ParallelMapDataset`, `ParallelMapDatasetV2` and `MapAndBatchDataset`.

use crate::batch::{RESERVED, batch_count, batch_size};
use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, scalar};
use crate::function::{Captured, FunctionAttr, declared_order, end_or_error};
use crate::map::preserve_cardinality;
use crate::parallel::Parallel;
use crate::prefetch::AUTOTUNE;
use crate::state::{Reader, Writer};
use crate::tuple::stack;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["ParallelMapDataset", "ParallelMapDatasetV2"] {
        dataset_ops(registry, &[op], move |c| {
            let (spec, f, preserve) = (Spec::of(c)?, FunctionAttr::f(c)?, preserve_cardinality(c)?);
            let (order, calls) = (declared_order(c)?, c.input_range("num_parallel_calls")?.start);
            Ok(move |ctx: &Context<'_>| {
                let calls = match op {
                    "ParallelMapDataset" => i64::from(scalar::<i32>(ctx, calls, "num_parallel_calls")?),
                    _ => scalar(ctx, calls, "num_parallel_calls")?,
                };
                let workers = workers(ctx, calls)?;
                let (input, f) = (input_dataset(ctx, 0)?, f.capture(ctx)?);
                Ok(ParallelMap { spec: spec.clone(), input, f, preserve, workers, order })
            })
        });
    }
    dataset_ops(registry, &["MapAndBatchDataset", "ExperimentalMapAndBatchDataset"], |c| {
        let (spec, f, preserve) = (Spec::of(c)?, FunctionAttr::f(c)?, preserve_cardinality(c)?);
        let size = c.input_range("batch_size")?.start;
        Ok(move |ctx: &Context<'_>| {
            Ok(MapAndBatch {
                spec: spec.clone(),
                input: input_dataset(ctx, 0)?,
                f: f.capture(ctx)?,
                preserve,
                size: batch_size(ctx, size)?,
                workers: workers(ctx, scalar(ctx, size + 1, "num_parallel_calls")?)?,
                drop_remainder: scalar(ctx, size + 2, "drop_remainder")?,
            })
        })
    });
}

/// Calls at a time at most, whatever is asked for: each may hold a thread.
const MOST_WORKERS: usize = 64;

/// The number of calls at a time.
pub(crate) fn workers(ctx: &Context<'_>, calls: i64) -> Result<usize> {
    match usize::try_from(calls) {
        Ok(calls) if calls > 0 => Ok(calls.min(MOST_WORKERS)),
        _ if calls == AUTOTUNE => Ok(ctx.device().pool().threads()),
        _ => Err(invalid_argument!("num_parallel_calls must be greater than zero.")),
    }
}

/// A function of each element, several at a time.
struct ParallelMap {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    f: Captured,
    preserve: bool,
    workers: usize,
    order: Option<bool>,
}

impl Dataset for ParallelMap {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        if self.preserve { self.input.cardinality() } else { UNKNOWN }
    }

    fn name(&self) -> &'static str {
        "ParallelMap"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let own = ctx.child();
        let input = self.input.iterator(&own)?;
        let (f, preserve) = (self.f.clone(), self.preserve);
        let work = move |ctx: &IteratorContext, element| end_or_error(f.call(ctx, element), preserve);
        Ok(Box::new(Parallel::new("ParallelMap", own, input, self.workers, ctx.is_ordered(self.order), Box::new(work))))
    }
}

/// A function of each element, several at a time, and the results stacked.
struct MapAndBatch {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    f: Captured,
    preserve: bool,
    size: usize,
    workers: usize,
    drop_remainder: bool,
}

impl Dataset for MapAndBatch {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        if self.preserve { batch_count(self.input.cardinality(), self.size, self.drop_remainder) } else { UNKNOWN }
    }

    fn name(&self) -> &'static str {
        "MapAndBatch"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let own = ctx.child();
        let input = self.input.iterator(&own)?;
        let (f, preserve) = (self.f.clone(), self.preserve);
        let work = move |ctx: &IteratorContext, element| end_or_error(f.call(ctx, element), preserve);
        let mapped = Parallel::new("MapAndBatch", own, input, self.workers, true, Box::new(work));
        Ok(Box::new(MapAndBatchIterator { mapped, size: self.size, drop_remainder: self.drop_remainder, ended: false }))
    }
}

struct MapAndBatchIterator {
    mapped: Parallel,
    size: usize,
    drop_remainder: bool,
    ended: bool,
}

impl DatasetIterator for MapAndBatchIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.ended {
            return Ok(None);
        }
        let mut elements = Vec::with_capacity(self.size.min(RESERVED));
        let mut failure = None;
        // A batch takes its elements whether or not one of them fails.
        for _ in 0..self.size {
            match self.mapped.next() {
                Ok(Some(element)) => elements.push(element),
                Ok(None) => {
                    self.ended = true;
                    break;
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if elements.is_empty() || (self.drop_remainder && elements.len() < self.size) {
            return Ok(None);
        }
        stack(&elements).map(Some)
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.bool(self.ended);
        self.mapped.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        self.ended = reader.bool()?;
        self.mapped.restore(reader)
    }
}
