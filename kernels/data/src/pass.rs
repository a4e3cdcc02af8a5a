//! Datasets that give their input's elements as they are: hints to an optimiser, limits of threads, statistics.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, dataset_ops, input_dataset, scalar};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    let ops = [
        "OptionsDataset",
        "ModelDataset",
        "OptimizeDataset",
        "OptimizeDatasetV2",
        "FinalizeDataset",
        "RewriteDataset",
        "NonSerializableDataset",
        "ExperimentalNonSerializableDataset",
        "BytesProducedStatsDataset",
        "ExperimentalBytesProducedStatsDataset",
        "LatencyStatsDataset",
        "ExperimentalLatencyStatsDataset",
        "SetStatsAggregatorDataset",
        "ExperimentalSetStatsAggregatorDataset",
        "ThreadPoolDataset",
        "ExperimentalThreadPoolDataset",
    ];
    dataset_ops(registry, &ops, |_| Ok(|ctx: &Context<'_>| Ok(Pass(input_dataset(ctx, 0)?))));
    for (ops, limit) in [
        (["MaxIntraOpParallelismDataset", "ExperimentalMaxIntraOpParallelismDataset"], "max_intra_op_parallelism"),
        (["PrivateThreadPoolDataset", "ExperimentalPrivateThreadPoolDataset"], "num_threads"),
    ] {
        dataset_ops(registry, &ops, move |_| Ok(move |ctx: &Context<'_>| limited(ctx, limit)));
    }
}

fn limited(ctx: &Context<'_>, limit: &str) -> Result<Pass> {
    if scalar::<i64>(ctx, 1, limit)? < 0 {
        return Err(invalid_argument!("`{limit}` must be greater than zero."));
    }
    Ok(Pass(input_dataset(ctx, 0)?))
}

struct Pass(Arc<dyn Dataset>);

impl Dataset for Pass {
    fn spec(&self) -> &Arc<Spec> {
        self.0.spec()
    }

    fn cardinality(&self) -> i64 {
        self.0.cardinality()
    }

    fn name(&self) -> &'static str {
        ""
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        self.0.iterator(ctx)
    }
}
