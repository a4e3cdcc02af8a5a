//! Datasets that give their input's elements as they are: hints to an optimiser, limits of threads, statistics.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, dataset_ops, input_dataset, scalar};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, invalid_argument};
use prost::Message;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    let ops = [
        "ModelDataset",
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
    dataset_ops(registry, &ops, |_| Ok(|ctx: &Context<'_>| Pass::new(ctx, None)));
    dataset_ops(registry, &["OptionsDataset"], |c| {
        let options = c.attrs().string("serialized_options")?;
        let options = Options::decode(options)
            .map_err(|_| invalid_argument!("Could not parse serialized_options as valid Options."))?;
        Ok(move |ctx: &Context<'_>| Pass::new(ctx, options.deterministic))
    });
    dataset_ops(registry, &["OptimizeDataset", "OptimizeDatasetV2"], |_| {
        Ok(|ctx: &Context<'_>| {
            // The one rewriting that shows in the elements.
            let sloppy = ctx.input(1)?.strings()?.iter().any(|name| name == "make_sloppy");
            Pass::new(ctx, sloppy.then_some(false))
        })
    });
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
    Pass::new(ctx, None)
}

/// The part of `tensorflow.data.Options` that shows in the elements.
#[derive(Clone, PartialEq, prost::Message)]
struct Options {
    #[prost(bool, optional, tag = "1")]
    deterministic: Option<bool>,
}

struct Pass {
    input: Arc<dyn Dataset>,
    /// Whether the datasets below keep the order of elements, if this one says it.
    ordered: Option<bool>,
}

impl Pass {
    fn new(ctx: &Context<'_>, ordered: Option<bool>) -> Result<Pass> {
        Ok(Pass { input: input_dataset(ctx, 0)?, ordered })
    }
}

impl Dataset for Pass {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        ""
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        self.input.iterator(&ctx.with_order(self.ordered))
    }
}
