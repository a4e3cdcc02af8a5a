//! `SnapshotDataset`, the older form: files that follow each other, each up to a size, and a mode.

use super::directory::{Metadata, now_micros, read_metadata, write_metadata};
use super::element::{ElementReader, ElementWriter, Packing};
use super::fingerprint::fingerprint;
use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, scalar_string};
use crate::files::{SharedFiles, path};
use crate::recipe::recipe_of;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Construction, Context, Registry, hash64, hash64_combine};
use graphmill_tensor::{DType, Result, Tensor, internal, invalid_argument, not_found, unimplemented_op};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The run of a snapshot that has a name. TensorFlow looks for no other, and waits for ever if it is not there.
const NAMED_RUN: &str = "custom";
/// The version of files that is written.
const VERSION: i64 = 1;
/// Bytes of a file where the number is left open.
const FILE_SIZE: i64 = 10 << 30;
/// Seconds after which a snapshot under way is given up where the number is left open.
const EXPIRY: i64 = 86_400;

pub(super) fn register(registry: &mut Registry, files: &SharedFiles) {
    let files = files.clone();
    dataset_ops(registry, &["SnapshotDataset"], move |c: &Construction<'_>| {
        let (files, settings) = (files.clone(), Arc::new(Settings::new(c)?));
        Ok(move |ctx: &Context<'_>| {
            let (input, place) = (input_dataset(ctx, 0)?, scalar_string(ctx, 1, "path")?);
            let Some(recipe) = recipe_of(ctx.input(0)?) else {
                return Err(unimplemented_op!("A {}Dataset has no graph to be known by", input.name()));
            };
            let hash = format!("{:016x}", settings.hash(fingerprint(recipe), &place));
            let name = if settings.name.is_empty() { hash.clone() } else { format!("custom-{}", settings.name) };
            let (files, settings) = (files.clone(), settings.clone());
            Ok(Snapshot {
                input,
                shared: Arc::new(Shared { files, settings, hash, directory: path(&place).join(name) }),
            })
        })
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Auto,
    Read,
    Write,
    Pass,
}

/// The attributes of a node.
struct Settings {
    compression: Vec<u8>,
    packing: Packing,
    reader_prefix: Vec<u8>,
    writer_prefix: Vec<u8>,
    file_size: i64,
    expiry: i64,
    /// The seed by which files are shuffled when they are read; `None` leaves them in order.
    shuffle: Option<u64>,
    mode: Mode,
    name: String,
}

impl Settings {
    fn new(c: &Construction<'_>) -> Result<Settings> {
        let attrs = c.attrs();
        let or = |name: &str, open: i64| attrs.int(name).map(|given| if given == -1 { open } else { given });
        let compression = attrs.string("compression")?.to_vec();
        if ![&b""[..], b"GZIP", b"SNAPPY"].contains(&compression.as_slice()) {
            return Err(invalid_argument!("compression must be either '', 'GZIP' or 'SNAPPY'."));
        }
        let expiry = or("pending_snapshot_expiry_seconds", EXPIRY)?;
        if expiry < 1 {
            return Err(invalid_argument!("pending_snapshot_expiry_seconds must be at least 1 second."));
        }
        let mode = match attrs.str("mode")? {
            "auto" => Mode::Auto,
            "read" => Mode::Read,
            "write" => Mode::Write,
            "passthrough" => Mode::Pass,
            _ => {
                return Err(invalid_argument!("mode must be either 'auto', 'read', 'write', or 'passthrough'."));
            }
        };
        let seed = match (attrs.int("seed")?, attrs.int("seed2")?) {
            (0, 0) => rand::random(),
            (seed, seed2) => seed.wrapping_add(seed2).cast_unsigned(),
        };
        Ok(Settings {
            packing: Packing::from_name(&compression),
            compression,
            reader_prefix: attrs.string("reader_path_prefix")?.to_vec(),
            writer_prefix: attrs.string("writer_path_prefix")?.to_vec(),
            file_size: or("shard_size_bytes", FILE_SIZE)?,
            expiry,
            shuffle: attrs.bool("shuffle_on_read")?.then_some(seed),
            mode,
            name: attrs.str("snapshot_name")?.to_owned(),
        })
    }

    /// What a snapshot is known by.
    fn hash(&self, graph: u64, place: &[u8]) -> u64 {
        let parts = [place, &self.compression, &self.reader_prefix, &self.writer_prefix];
        let hash = parts.into_iter().fold(graph, |hash, part| hash64_combine(hash, hash64(part)));
        hash64_combine(hash, self.file_size.cast_unsigned())
    }
}

struct Shared {
    files: SharedFiles,
    settings: Arc<Settings>,
    hash: String,
    directory: PathBuf,
}

impl Shared {
    /// The directory of the snapshot below a prefix.
    fn below(&self, prefix: &[u8]) -> PathBuf {
        if prefix.is_empty() {
            return self.directory.clone();
        }
        path(prefix).join(self.directory.strip_prefix("/").unwrap_or(&self.directory))
    }
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
        let (ctx, input, shared) = (ctx.clone(), self.input.clone(), self.shared.clone());
        Ok(Box::new(SnapshotIterator { ctx, input, shared, work: Work::Undecided }))
    }
}

enum Work {
    Undecided,
    Read(FlatReader),
    Write(Box<FlatWriter>),
    Pass(Box<dyn DatasetIterator>),
}

struct SnapshotIterator {
    ctx: IteratorContext,
    input: Arc<dyn Dataset>,
    shared: Arc<Shared>,
    work: Work,
}

impl SnapshotIterator {
    fn decide(&self) -> Result<Work> {
        let settings = &self.shared.settings;
        let found = read_metadata(&self.shared.files, &self.shared.below(&settings.reader_prefix))?;
        match (settings.mode, found) {
            (Mode::Read, None) => Err(not_found!("Metadata file does not exist.")),
            (Mode::Read, Some(found)) => self.read(&found),
            (Mode::Auto, Some(found)) if found.finalized => self.read(&found),
            (Mode::Auto, Some(found)) => {
                let expired = now_micros().saturating_sub(settings.expiry.saturating_mul(1_000_000));
                if found.creation_timestamp >= expired { self.pass() } else { self.write() }
            }
            (Mode::Pass, _) => self.pass(),
            (Mode::Auto | Mode::Write, _) => self.write(),
        }
    }

    fn pass(&self) -> Result<Work> {
        Ok(Work::Pass(self.input.iterator(&self.ctx)?))
    }

    fn write(&self) -> Result<Work> {
        let input = self.input.iterator(&self.ctx)?;
        Ok(Work::Write(Box::new(FlatWriter::new(self.shared.clone(), input, &self.input.spec().types))))
    }

    fn read(&self, found: &Metadata) -> Result<Work> {
        let spec = self.input.spec();
        if found.run_id.is_empty() {
            return Err(not_found!("Could not find a valid snapshot to read."));
        }
        if found.dtype.len() != spec.types.len() {
            return Err(internal!(
                "Expected number of dtypes: {} but number in snapshot: {}",
                spec.types.len(),
                found.dtype.len()
            ));
        }
        if let Some(i) = spec.types.iter().zip(&found.dtype).position(|(own, found)| own.number() != *found) {
            return Err(internal!("Type: {i} doesn't match. Snapshot: {}; dataset: {}", found.dtype[i], spec.types[i]));
        }
        let run = self.shared.below(&self.shared.settings.reader_prefix).join(&found.run_id);
        Ok(Work::Read(FlatReader::new(self.shared.clone(), &run, found.version, spec.clone())?))
    }
}

impl DatasetIterator for SnapshotIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if matches!(self.work, Work::Undecided) {
            self.work = self.decide()?;
        }
        match &mut self.work {
            Work::Undecided => Ok(None),
            Work::Read(reader) => reader.next(),
            Work::Write(writer) => writer.next(),
            Work::Pass(input) => input.next(),
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("SnapshotV1");
        match &mut self.work {
            Work::Undecided => writer.int(0),
            Work::Read(reader) => {
                writer.int(1);
                writer.size(reader.passed);
            }
            Work::Write(flat) => {
                writer.int(2);
                flat.end_file()?;
                writer.text(flat.metadata.run_id.as_bytes());
                writer.size(flat.file);
                writer.bool(flat.ended);
                return flat.input.save(writer);
            }
            Work::Pass(input) => {
                writer.int(3);
                return input.save(writer);
            }
        }
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("SnapshotV1")?;
        match reader.int()? {
            1 => {
                let directory = self.shared.below(&self.shared.settings.reader_prefix);
                let found = read_metadata(&self.shared.files, &directory)?;
                self.work = self.read(&found.ok_or_else(|| not_found!("Metadata file does not exist."))?)?;
                let passed = reader.size()?;
                if let Work::Read(files) = &mut self.work {
                    for _ in 0..passed {
                        files.next()?;
                    }
                }
            }
            2 => {
                self.work = self.write()?;
                if let Work::Write(flat) = &mut self.work {
                    let run = String::from_utf8_lossy(&reader.text()?).into_owned();
                    if run != NAMED_RUN && u64::from_str_radix(&run, 16).is_err() {
                        return Err(invalid_argument!("{run} is not a run of a snapshot"));
                    }
                    (flat.metadata.run_id, flat.file, flat.ended) = (run, reader.size()?, reader.bool()?);
                    flat.started = true;
                    flat.input.restore(reader)?;
                }
            }
            3 => {
                let mut input = self.input.iterator(&self.ctx)?;
                input.restore(reader)?;
                self.work = Work::Pass(input);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Passes elements on and writes them to files.
struct FlatWriter {
    shared: Arc<Shared>,
    input: Box<dyn DatasetIterator>,
    metadata: Metadata,
    directory: PathBuf,
    open: Option<ElementWriter>,
    /// Bytes in the open file, before compression.
    size: i64,
    /// The number of the next file.
    file: usize,
    started: bool,
    ended: bool,
}

impl FlatWriter {
    fn new(shared: Arc<Shared>, input: Box<dyn DatasetIterator>, types: &[DType]) -> FlatWriter {
        let named = !shared.settings.name.is_empty();
        let metadata = Metadata {
            graph_hash: shared.hash.clone(),
            run_id: if named { NAMED_RUN.to_owned() } else { format!("{:016x}", rand::random::<u64>()) },
            creation_timestamp: now_micros(),
            version: VERSION,
            dtype: types.iter().map(|dtype| dtype.number()).collect(),
            ..Metadata::default()
        };
        let directory = shared.below(&shared.settings.writer_prefix);
        let (open, size, file, started, ended) = (None, 0, 0, false, false);
        FlatWriter { shared, input, metadata, directory, open, size, file, started, ended }
    }

    fn next(&mut self) -> Result<Option<Tuple>> {
        if !self.started {
            self.shared.files.create_directories(&self.directory.join(&self.metadata.run_id))?;
            write_metadata(&self.shared.files, &self.directory, &self.metadata)?;
            self.started = true;
        }
        if self.ended {
            return Ok(None);
        }
        let next = self.input.next()?;
        match &next {
            Some(element) => self.write(element)?,
            None => {
                self.end_file()?;
                self.metadata.finalized = true;
                write_metadata(&self.shared.files, &self.directory, &self.metadata)?;
                self.ended = true;
            }
        }
        Ok(next)
    }

    fn write(&mut self, element: &[Tensor]) -> Result<()> {
        let writer = match &mut self.open {
            Some(open) => open,
            None => {
                let run = self.directory.join(&self.metadata.run_id);
                let file = run.join(format!("{:08}.snapshot", self.file));
                self.file += 1;
                let Shared { files, settings, .. } = &*self.shared;
                self.open.insert(ElementWriter::create(&**files, &file, settings.packing, VERSION)?)
            }
        };
        writer.write(element)?;
        let bytes = |tensor: &Tensor| match tensor.strings() {
            Ok(strings) => strings.iter().map(|text| text.len()).sum(),
            Err(_) => tensor.as_bytes().map_or(0, <[u8]>::len),
        };
        let bytes: usize = element.iter().map(bytes).sum();
        self.size = self.size.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        if self.size >= self.shared.settings.file_size { self.end_file() } else { Ok(()) }
    }

    fn end_file(&mut self) -> Result<()> {
        self.size = 0;
        self.open.take().map_or(Ok(()), ElementWriter::close)
    }
}

/// Reads the files of a run one after the other.
struct FlatReader {
    shared: Arc<Shared>,
    version: i64,
    spec: Arc<Spec>,
    files: std::vec::IntoIter<PathBuf>,
    open: Option<ElementReader>,
    passed: usize,
}

impl FlatReader {
    fn new(shared: Arc<Shared>, run: &Path, version: i64, spec: Arc<Spec>) -> Result<FlatReader> {
        let found = shared.files.matching(&run.join("*"))?;
        if found.is_empty() {
            return Err(not_found!("Could not find any files in dir: {}", run.display()));
        }
        let mut files: Vec<PathBuf> = found.iter().map(|name| path(name)).collect();
        if let Some(seed) = shared.settings.shuffle {
            files.shuffle(&mut StdRng::seed_from_u64(seed));
        }
        Ok(FlatReader { shared, version, spec, files: files.into_iter(), open: None, passed: 0 })
    }

    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(element) = open.next(&self.spec.types)? {
                    self.spec.verify_element(&element)?;
                    self.passed += 1;
                    return Ok(Some(element));
                }
                self.open = None;
            }
            let Some(file) = self.files.next() else { return Ok(None) };
            let Shared { files, settings, .. } = &*self.shared;
            self.open = Some(ElementReader::open(&**files, &file, settings.packing, self.version)?);
        }
    }
}
