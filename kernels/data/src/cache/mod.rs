//! `CacheDataset` and `CacheDatasetV2`: elements that are made once and kept, in memory or in files.

mod file;
mod memory;

use crate::dataset::{Dataset, dataset_ops, input_dataset, scalar_string};
use crate::files::SharedFiles;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::Result;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    memory::register(registry);
    for (op, cache_input) in [("CacheDataset", None), ("CacheDatasetV2", Some(2))] {
        let kept = files.clone();
        dataset_ops(registry, &[op], move |_| {
            let files = kept.clone();
            Ok(move |ctx: &Context<'_>| Cache::new(ctx, &files, cache_input))
        });
    }
}

/// A cache of either kind.
struct Cache(Arc<dyn Dataset>);

impl Cache {
    fn new(ctx: &Context<'_>, files: &SharedFiles, cache_input: Option<usize>) -> Result<Cache> {
        let input = input_dataset(ctx, 0)?;
        let filename = scalar_string(ctx, 1, "filename")?;
        if !filename.is_empty() {
            return Ok(Cache(Arc::new(file::FileCache::new(files.clone(), input, &filename))));
        }
        let shared = match cache_input {
            Some(i) => memory::input_cache(ctx, i)?,
            None => None,
        };
        Ok(Cache(Arc::new(memory::InMemory::new(input, shared.unwrap_or_default()))))
    }
}

impl Dataset for Cache {
    fn spec(&self) -> &Arc<crate::dataset::Spec> {
        self.0.spec()
    }

    fn cardinality(&self) -> i64 {
        self.0.cardinality()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn make(&self, ctx: &crate::context::IteratorContext) -> Result<Box<dyn crate::dataset::DatasetIterator>> {
        self.0.make(ctx)
    }
}
