//! `SnapshotDatasetV2`: the elements of the input, written down at the first pass and read from the files from then on.

use super::directory::{RunWriter, read_metadata, shards};
use super::element::Packing;
use super::fingerprint::fingerprint;
use super::reader::{Format, read};
use super::save::WritingIterator;
use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, scalar_string};
use crate::files::{SharedFiles, path};
use crate::function::{Captured, FunctionAttr};
use crate::recipe::recipe_of;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Construction, Context, Registry, hash64, hash64_combine};
use graphmill_tensor::{Result, data_loss, unimplemented_op};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn register(registry: &mut Registry, files: &SharedFiles) {
    let files = files.clone();
    dataset_ops(registry, &["SnapshotDatasetV2"], move |c: &Construction<'_>| {
        let (files, attrs) = (files.clone(), c.attrs());
        let compression = match attrs.string("compression")? {
            b"AUTO" => b"SNAPPY",
            name => name,
        };
        let compression = compression.to_vec();
        let known_hash = if attrs.bool("hash_valid")? { Some(attrs.int("hash")?.cast_unsigned()) } else { None };
        let prefixes = ["reader_prefix", "writer_prefix"].map(|name| attrs.string(name).map(<[u8]>::to_vec));
        let [reader_prefix, writer_prefix] = prefixes;
        let (reader_prefix, writer_prefix) = (reader_prefix?, writer_prefix?);
        let reader = FunctionAttr::new(c, "reader_func", "reader_func_other_args")?;
        let shard = FunctionAttr::new(c, "shard_func", "shard_func_other_args")?;
        Ok(move |ctx: &Context<'_>| {
            let (input, place) = (input_dataset(ctx, 0)?, scalar_string(ctx, 1, "path")?);
            let hash = match (known_hash, recipe_of(ctx.input(0)?)) {
                (Some(hash), _) => hash,
                (None, Some(recipe)) => hash64_combine(fingerprint(recipe), hash64(&compression)),
                (None, None) => {
                    return Err(unimplemented_op!("A {}Dataset has no graph to be known by", input.name()));
                }
            };
            let below = |prefix: &[u8]| joined(prefix, &place).join(hash.to_string());
            let shared = Shared {
                files: files.clone(),
                packing: Packing::from_name(&compression),
                read_from: below(&reader_prefix),
                write_to: below(&writer_prefix),
                hash,
                reader: reader.capture(ctx)?,
                shard: shard.capture(ctx)?,
            };
            Ok(Snapshot { input, shared: Arc::new(shared) })
        })
    });
}

/// A path below a prefix, if there is one, even if it begins with a slash.
fn joined(prefix: &[u8], place: &[u8]) -> PathBuf {
    if prefix.is_empty() {
        return path(place);
    }
    let place = place.strip_prefix(b"/").unwrap_or(place);
    path(prefix).join(path(place))
}

struct Shared {
    files: SharedFiles,
    packing: Packing,
    read_from: PathBuf,
    write_to: PathBuf,
    hash: u64,
    reader: Captured,
    shard: Captured,
}

struct Snapshot {
    input: Arc<dyn Dataset>,
    shared: Arc<Shared>,
}

impl Dataset for Snapshot {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "Snapshot"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        self.shared.files.create_directories(&self.shared.write_to)?;
        let (ctx, input, shared) = (ctx.clone(), self.input.clone(), self.shared.clone());
        Ok(Box::new(SnapshotIterator { ctx, input, shared, passed: 0, mode: Mode::Undecided }))
    }
}

/// What the first call of `next` finds to do.
enum Mode {
    Undecided,
    Reading(Box<dyn DatasetIterator>),
    Writing(Box<WritingIterator>),
}

struct SnapshotIterator {
    ctx: IteratorContext,
    input: Arc<dyn Dataset>,
    shared: Arc<Shared>,
    passed: usize,
    mode: Mode,
}

impl SnapshotIterator {
    fn reading(&self, directory: &Path, run: &str, version: i64) -> Result<Mode> {
        let shared = &self.shared;
        let spec = self.input.spec().clone();
        let format = Format { files: shared.files.clone(), packing: shared.packing, version, spec };
        let shards = shards(&shared.files, directory, run)?;
        let dataset = read(&self.ctx, &format, shards, self.passed, &shared.reader)?;
        Ok(Mode::Reading(dataset.iterator(&self.ctx)?))
    }

    fn writing(&self) -> Result<Mode> {
        let Shared { files, write_to, packing, shard, hash, .. } = &*self.shared;
        let types = &self.input.spec().types;
        let writer = RunWriter::new(files, write_to, *packing, Some(shard.clone()), types, Some(*hash));
        let input = self.input.iterator(&self.ctx)?;
        Ok(Mode::Writing(Box::new(WritingIterator::new(&self.ctx, input, writer))))
    }

    /// Reads what is complete, and writes otherwise, whoever else may be writing.
    fn decide(&mut self) -> Result<()> {
        if matches!(self.mode, Mode::Undecided) {
            let directory = &self.shared.read_from;
            self.mode = match read_metadata(&self.shared.files, directory)? {
                Some(found) if found.finalized => self.reading(directory, &found.run_id, found.version)?,
                _ => self.writing()?,
            };
        }
        Ok(())
    }
}

impl DatasetIterator for SnapshotIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        self.decide()?;
        let next = match &mut self.mode {
            Mode::Undecided => Ok(None),
            Mode::Reading(reader) => reader.next(),
            Mode::Writing(writer) => writer.next(),
        };
        self.passed = self.passed.saturating_add(1);
        next
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Snapshot");
        writer.text(self.shared.hash.to_string().as_bytes());
        writer.size(self.passed);
        writer.int(match self.mode {
            Mode::Undecided => 0,
            Mode::Reading(_) => 1,
            Mode::Writing(_) => 2,
        });
        match &mut self.mode {
            Mode::Writing(iterator) => iterator.save(writer),
            _ => Ok(()),
        }
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Snapshot")?;
        let (old, new) = (reader.text()?, self.shared.hash.to_string());
        if old != new.as_bytes() {
            return Err(data_loss!(
                "Dataset has changed while restoring from the checkpoint. Old hash directory: {}; new hash directory: {new}",
                String::from_utf8_lossy(&old)
            ));
        }
        self.passed = reader.size()?;
        match reader.int()? {
            1 => {
                let directory = self.shared.read_from.clone();
                let Some(found) = read_metadata(&self.shared.files, &directory)? else {
                    return Err(data_loss!("Snapshot metadata file in {new} does not exist any more."));
                };
                self.mode = self.reading(&directory, &found.run_id, found.version)?;
            }
            2 => {
                self.mode = self.writing()?;
                if let Mode::Writing(iterator) = &mut self.mode {
                    iterator.restore(reader)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
