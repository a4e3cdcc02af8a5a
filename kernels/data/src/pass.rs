//! Datasets that give their input's elements as they are: hints to an optimiser, limits of threads, statistics.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, dataset_ops, input_dataset, scalar};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for (op, name) in [
        ("OptionsDataset", "Options"),
        ("ModelDataset", "Model"),
        ("OptimizeDataset", "Optimize"),
        ("OptimizeDatasetV2", "Optimize"),
        ("FinalizeDataset", "Finalize"),
        ("NonSerializableDataset", "NonSerializable"),
        ("ExperimentalNonSerializableDataset", "NonSerializable"),
        ("BytesProducedStatsDataset", "BytesProducedStats"),
        ("ExperimentalBytesProducedStatsDataset", "BytesProducedStats"),
        ("LatencyStatsDataset", "LatencyStats"),
        ("ExperimentalLatencyStatsDataset", "LatencyStats"),
        ("SetStatsAggregatorDataset", "SetStatsAggregator"),
        ("ExperimentalSetStatsAggregatorDataset", "SetStatsAggregator"),
        ("ThreadPoolDataset", "ThreadPool"),
        ("ExperimentalThreadPoolDataset", "ThreadPool"),
        ("AutoShardDataset", "AutoShard"),
        ("ExperimentalAutoShardDataset", "AutoShard"),
    ] {
        dataset_ops(registry, &[op], move |_| Ok(move |ctx: &Context<'_>| Ok(Pass { input: input_dataset(ctx, 0)?, name })));
    }
    for (op, name, limit) in [
        ("MaxIntraOpParallelismDataset", "MaxIntraOpParallelism", "max_intra_op_parallelism"),
        ("ExperimentalMaxIntraOpParallelismDataset", "MaxIntraOpParallelism", "max_intra_op_parallelism"),
        ("PrivateThreadPoolDataset", "PrivateThreadPool", "num_threads"),
        ("ExperimentalPrivateThreadPoolDataset", "PrivateThreadPool", "num_threads"),
    ] {
        dataset_ops(registry, &[op], move |_| Ok(move |ctx: &Context<'_>| limited(ctx, name, limit)));
    }
}

fn limited(ctx: &Context<'_>, name: &'static str, limit: &str) -> Result<Pass> {
    if scalar::<i64>(ctx, 1, limit)? < 0 {
        return Err(invalid_argument!("`{limit}` must be greater than zero."));
    }
    Ok(Pass { input: input_dataset(ctx, 0)?, name })
}

struct Pass {
    input: Arc<dyn Dataset>,
    name: &'static str,
}

impl Dataset for Pass {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn iterator(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        self.input.iterator(ctx)
    }
}
