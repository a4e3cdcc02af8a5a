//! Datasets of what a snapshot holds: `SnapshotDatasetReader` for one shard, `SnapshotNestedDatasetReader` for a dataset of those.

use super::directory::shard_file;
use super::element::{ElementReader, Packing};
use crate::context::IteratorContext;
use crate::dataset::{
    Dataset, DatasetIterator, Spec, Tuple, dataset_ops, dataset_tensor, inputs, scalar, scalar_string, tensor_dataset,
};
use crate::files::{SharedFiles, path};
use crate::function::Captured;
use crate::state::{Reader, Writer};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) fn register(registry: &mut Registry, files: &SharedFiles) {
    let files = files.clone();
    dataset_ops(registry, &["SnapshotDatasetReader"], move |c: &Construction<'_>| {
        let (files, spec) = (files.clone(), Spec::of(c)?);
        let (packing, version) = (Packing::from_name(c.attrs().string("compression")?), c.attrs().int("version")?);
        Ok(move |ctx: &Context<'_>| {
            let (shard, start) = (scalar_string(ctx, 0, "shard_dir")?, scalar::<i64>(ctx, 1, "start_index")?);
            let format = Format { files: files.clone(), packing, version, spec: spec.clone() };
            Ok(Shard { format, directory: path(&shard), start: usize::try_from(start).unwrap_or(0) })
        })
    });
    dataset_ops(registry, &["SnapshotNestedDatasetReader"], |c: &Construction<'_>| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            Ok(Nested { spec: spec.clone(), shards: Arc::new(inputs(ctx, 0..ctx.num_inputs())?) })
        })
    });
}

/// How the files of a snapshot are read.
#[derive(Clone)]
pub(super) struct Format {
    pub files: SharedFiles,
    pub packing: Packing,
    pub version: i64,
    pub spec: Arc<Spec>,
}

/// The dataset that `reader` makes of the shards in these directories, from the element `start` on if it takes them in turn.
pub(super) fn read(
    ctx: &IteratorContext,
    format: &Format,
    shards: Vec<PathBuf>,
    start: usize,
    reader: &Captured,
) -> Result<Arc<dyn Dataset>> {
    let (count, mut datasets) = (shards.len(), Vec::with_capacity(shards.len()));
    for (i, directory) in shards.into_iter().enumerate() {
        let start = start / count + usize::from(start % count > i);
        let shard = Shard { format: format.clone(), directory, start };
        datasets.push(dataset_tensor(Arc::new(shard), None)?);
    }
    if count > 0 {
        datasets.rotate_left(start % count);
    }
    let spec = Arc::new(Spec { types: vec![DType::Variant], shapes: vec![PartialShape::new(&[])?] });
    let nested = dataset_tensor(Arc::new(Nested { spec, shards: Arc::new(datasets) }), None)?;
    match reader.call(ctx, vec![nested])?.as_slice() {
        [dataset] => tensor_dataset(dataset, ctx.device()),
        _ => Err(invalid_argument!("reader_func returns more than one argument.")),
    }
}

/// The elements of one shard.
struct Shard {
    format: Format,
    directory: PathBuf,
    start: usize,
}

impl Dataset for Shard {
    fn spec(&self) -> &Arc<Spec> {
        &self.format.spec
    }

    fn name(&self) -> &'static str {
        "SnapshotReader"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let mut iterator = ShardIterator {
            format: self.format.clone(),
            directory: self.directory.clone(),
            checkpoint: 0,
            open: None,
            passed: 0,
        };
        iterator.skip(self.start)?;
        Ok(Box::new(iterator))
    }
}

struct ShardIterator {
    format: Format,
    directory: PathBuf,
    checkpoint: u64,
    open: Option<ElementReader>,
    passed: usize,
}

impl DatasetIterator for ShardIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let Format { files, packing, version, spec } = &self.format;
        loop {
            let open = match &mut self.open {
                Some(open) => open,
                None => {
                    let file = shard_file(&self.directory, self.checkpoint);
                    if self.checkpoint > 0 && files.is_directory(&file).is_none() {
                        return Ok(None);
                    }
                    self.open.insert(ElementReader::open(&**files, &file, *packing, *version)?)
                }
            };
            if let Some(element) = open.next(&spec.types)? {
                spec.verify_element(&element)?;
                self.passed += 1;
                return Ok(Some(element));
            }
            self.open = None;
            self.checkpoint += 1;
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("SnapshotReader");
        writer.size(self.passed);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("SnapshotReader")?;
        let left = reader.size()?.saturating_sub(self.passed);
        self.skip(left)?;
        Ok(())
    }
}

/// Datasets as the elements of a dataset.
struct Nested {
    spec: Arc<Spec>,
    shards: Arc<Vec<Tensor>>,
}

impl Dataset for Nested {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        i64::try_from(self.shards.len()).unwrap_or(i64::MAX)
    }

    fn name(&self) -> &'static str {
        "SnapshotNestedReader"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(NestedIterator { shards: self.shards.clone(), next: 0 }))
    }
}

struct NestedIterator {
    shards: Arc<Vec<Tensor>>,
    next: usize,
}

impl DatasetIterator for NestedIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let element = self.shards.get(self.next).map(|shard| vec![shard.clone()]);
        self.next = self.next.saturating_add(1);
        Ok(element)
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("SnapshotNestedReader");
        writer.size(self.next);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("SnapshotNestedReader")?;
        self.next = reader.size()?;
        Ok(())
    }
}
