//! `SaveDataset`, `SaveDatasetV2` and `LoadDataset`: the elements of a dataset in files.

use super::directory::{RunWriter, read_metadata, shards};
use super::element::Packing;
use super::reader::{Format, read};
use crate::consume::run_in_step;
use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, scalar_string};
use crate::files::{SharedFiles, path};
use crate::function::{Captured, FunctionAttr};
use crate::state::{Reader, Writer};
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Outputs, Registry};
use graphmill_tensor::{Result, cancelled, not_found};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) fn register(registry: &mut Registry, files: &SharedFiles) {
    let kept = files.clone();
    registry.op("SaveDataset").async_kernel(move |c| Ok(Save(Target::new(c, &kept)?)));
    let kept = files.clone();
    dataset_ops(registry, &["SaveDatasetV2"], move |c: &Construction<'_>| {
        let target = Target::new(c, &kept)?;
        Ok(move |ctx: &Context<'_>| Ok(Saving { input: input_dataset(ctx, 0)?, place: target.place(ctx)? }))
    });
    let kept = files.clone();
    dataset_ops(registry, &["LoadDataset"], move |c: &Construction<'_>| {
        let (files, spec) = (kept.clone(), Spec::of(c)?);
        let packing = Packing::from_name(c.attrs().string("compression")?);
        let reader = FunctionAttr::new(c, "reader_func", "reader_func_other_args")?;
        Ok(move |ctx: &Context<'_>| {
            let (directory, reader) = (path(&scalar_string(ctx, 0, "path")?), reader.capture(ctx)?);
            let Some(metadata) = read_metadata(&files, &directory)? else {
                return Err(not_found!("Could not find metadata file."));
            };
            let format = Format { files: files.clone(), packing, version: metadata.version, spec: spec.clone() };
            Ok(Load { format, directory, run: metadata.run_id, elements: metadata.num_elements, reader })
        })
    });
}

/// How a node saves a dataset.
struct Target {
    files: SharedFiles,
    packing: Packing,
    shard: Option<FunctionAttr>,
}

/// Where a dataset is saved.
#[derive(Clone)]
struct Place {
    files: SharedFiles,
    packing: Packing,
    directory: PathBuf,
    shard: Option<Captured>,
}

impl Target {
    fn new(c: &Construction<'_>, files: &SharedFiles) -> Result<Target> {
        let packing = Packing::from_name(c.attrs().string("compression")?);
        let shard = FunctionAttr::new(c, "shard_func", "shard_func_other_args")?;
        let shard = c.attrs().bool("use_shard_func")?.then_some(shard);
        Ok(Target { files: files.clone(), packing, shard })
    }

    fn place(&self, ctx: &Context<'_>) -> Result<Place> {
        let directory = path(&scalar_string(ctx, 1, "path")?);
        let shard = self.shard.as_ref().map(|shard| shard.capture(ctx)).transpose()?;
        Ok(Place { files: self.files.clone(), packing: self.packing, directory, shard })
    }
}

impl Place {
    fn writer(&self, spec: &Spec) -> RunWriter {
        RunWriter::new(&self.files, &self.directory, self.packing, self.shard.clone(), &spec.types, None)
    }
}

struct Save(Target);

impl AsyncKernel for Save {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| Ok((input_dataset(ctx, 0)?, self.0.place(ctx)?))) {
            Err(error) => ctx.complete(Err(error)),
            Ok(((dataset, place), _)) => run_in_step(ctx, move |ctx| {
                let mut writer = place.writer(dataset.spec());
                let mut iterator = dataset.iterator(ctx)?;
                while let Some(element) = iterator.next()? {
                    if ctx.cancellation().is_cancelled() {
                        return Err(cancelled!("Operation was cancelled"));
                    }
                    writer.write(ctx, &element)?;
                }
                writer.finish()?;
                Ok(Outputs::new())
            }),
        }
    }
}

/// The elements of the input, saved as they pass.
struct Saving {
    input: Arc<dyn Dataset>,
    place: Place,
}

impl Dataset for Saving {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "SaveV2"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let writer = self.place.writer(self.input.spec());
        Ok(Box::new(WritingIterator::new(ctx, self.input.iterator(ctx)?, writer)))
    }
}

/// Passes elements on and writes them down.
pub(super) struct WritingIterator {
    ctx: IteratorContext,
    input: Box<dyn DatasetIterator>,
    writer: RunWriter,
    ended: bool,
}

impl WritingIterator {
    pub fn new(ctx: &IteratorContext, input: Box<dyn DatasetIterator>, writer: RunWriter) -> WritingIterator {
        WritingIterator { ctx: ctx.clone(), input, writer, ended: false }
    }
}

impl DatasetIterator for WritingIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.ended {
            return Ok(None);
        }
        match self.input.next()? {
            Some(element) => {
                self.writer.write(&self.ctx, &element)?;
                Ok(Some(element))
            }
            None => {
                self.writer.finish()?;
                self.ended = true;
                Ok(None)
            }
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("SnapshotWriter");
        writer.bool(self.ended);
        let (run, checkpoint, elements) = self.writer.end_files()?;
        writer.text(run.as_bytes());
        writer.size(usize::try_from(checkpoint).unwrap_or(usize::MAX));
        writer.int(elements);
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("SnapshotWriter")?;
        self.ended = reader.bool()?;
        let run = String::from_utf8_lossy(&reader.text()?).into_owned();
        let checkpoint = reader.size()? as u64;
        self.writer.resume(run, checkpoint, reader.int()?)?;
        self.input.restore(reader)
    }
}

/// What was saved.
struct Load {
    format: Format,
    directory: PathBuf,
    run: String,
    elements: i64,
    reader: Captured,
}

impl Dataset for Load {
    fn spec(&self) -> &Arc<Spec> {
        &self.format.spec
    }

    fn cardinality(&self) -> i64 {
        self.elements
    }

    fn name(&self) -> &'static str {
        "Load"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let shards = shards(&self.format.files, &self.directory, &self.run)?;
        read(ctx, &self.format, shards, 0, &self.reader)?.iterator(ctx)
    }
}
