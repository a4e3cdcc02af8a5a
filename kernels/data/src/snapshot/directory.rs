//! Directories of snapshots: `snapshot.metadata` names the run whose files count; below `RUN/SHARD.shard/` are the files.

use super::element::{ElementWriter, Packing, VERSION};
use crate::context::IteratorContext;
use crate::dataset::Tuple;
use crate::files::{SharedFiles, read_all};
use crate::function::Captured;
use graphmill_tensor::{DType, Result, data_loss, invalid_argument};
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most that is read of a metadata file.
const METADATA_LIMIT: usize = 16 << 20;

/// `SnapshotMetadataRecord`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metadata {
    #[prost(string, tag = "1")]
    pub graph_hash: String,
    #[prost(string, tag = "2")]
    pub run_id: String,
    /// In microseconds.
    #[prost(int64, tag = "3")]
    pub creation_timestamp: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(int32, repeated, tag = "5")]
    pub dtype: Vec<i32>,
    #[prost(int64, tag = "6")]
    pub num_elements: i64,
    #[prost(bool, tag = "1000")]
    pub finalized: bool,
}

/// Microseconds since 1970.
pub(super) fn now_micros() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// What `snapshot.metadata` says; `None` if there is none.
pub(super) fn read_metadata(files: &SharedFiles, directory: &Path) -> Result<Option<Metadata>> {
    let path = directory.join("snapshot.metadata");
    if files.is_directory(&path).is_none() {
        return Ok(None);
    }
    let bytes = read_all(&**files, &path, METADATA_LIMIT)?;
    let metadata = Metadata::decode(bytes.as_slice());
    metadata.map(Some).map_err(|_| data_loss!("Can't parse {} as binary proto", path.display()))
}

/// Replaces `snapshot.metadata`.
pub(super) fn write_metadata(files: &SharedFiles, directory: &Path, metadata: &Metadata) -> Result<()> {
    files.replace(&directory.join("snapshot.metadata"), &metadata.encode_to_vec())
}

/// The directories of a run's shards, in order.
pub(super) fn shards(files: &SharedFiles, directory: &Path, run: &str) -> Result<Vec<PathBuf>> {
    let found = files.matching(&directory.join(run).join("*.shard"))?;
    Ok(found.iter().map(|name| crate::files::path(name)).collect())
}

/// The file of a shard that was begun at a checkpoint of the writing iterator.
pub(super) fn shard_file(shard: &Path, checkpoint: u64) -> PathBuf {
    shard.join(format!("{checkpoint:08}.snapshot"))
}

/// Writes the elements of one run.
pub(super) struct RunWriter {
    files: SharedFiles,
    directory: PathBuf,
    packing: Packing,
    /// Says which shard an element belongs to; without it there is one.
    shard: Option<Captured>,
    metadata: Metadata,
    counts: bool,
    checkpoint: u64,
    elements: i64,
    open: BTreeMap<i64, ElementWriter>,
    started: bool,
}

impl RunWriter {
    /// For a new run in a directory, which begins with the first element. Without the hash of a graph, the metadata say in the end
    /// how many elements there were.
    pub fn new(
        files: &SharedFiles,
        directory: &Path,
        packing: Packing,
        shard: Option<Captured>,
        types: &[DType],
        graph_hash: Option<u64>,
    ) -> RunWriter {
        let metadata = Metadata {
            graph_hash: graph_hash.map_or_else(String::new, |hash| hash.to_string()),
            run_id: rand::random::<u64>().to_string(),
            creation_timestamp: now_micros(),
            version: VERSION,
            dtype: types.iter().map(|dtype| dtype.number()).collect(),
            ..Metadata::default()
        };
        RunWriter {
            files: files.clone(),
            directory: directory.to_owned(),
            packing,
            shard,
            metadata,
            counts: graph_hash.is_none(),
            checkpoint: 0,
            elements: 0,
            open: BTreeMap::new(),
            started: false,
        }
    }

    /// Goes on with a run that was begun before, in new files.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if no run is called so.
    pub fn resume(&mut self, run_id: String, checkpoint: u64, elements: i64) -> Result<()> {
        if run_id.parse::<u64>().is_err() {
            return Err(invalid_argument!("{run_id} is not a run of a snapshot"));
        }
        (self.metadata.run_id, self.checkpoint, self.elements) = (run_id, checkpoint, elements);
        Ok(())
    }

    /// Makes the directory of the run, which from now on is known to be under way.
    fn start(&mut self) -> Result<()> {
        if !self.started {
            self.files.create_directories(&self.run())?;
            self.write_metadata(false)?;
            self.started = true;
        }
        Ok(())
    }

    fn run(&self) -> PathBuf {
        self.directory.join(&self.metadata.run_id)
    }

    fn write_metadata(&mut self, finalized: bool) -> Result<()> {
        self.metadata.finalized = finalized;
        self.metadata.num_elements = if finalized && self.counts { self.elements } else { 0 };
        write_metadata(&self.files, &self.directory, &self.metadata)
    }

    /// Writes an element to its shard.
    pub fn write(&mut self, ctx: &IteratorContext, element: &Tuple) -> Result<()> {
        self.start()?;
        let shard = match &self.shard {
            None => 0,
            Some(function) => {
                let wrong = || invalid_argument!("`shard_func` must return a scalar int64.");
                function.call_scalar::<i64>(ctx, element.clone(), wrong)?
            }
        };
        if !self.open.contains_key(&shard) {
            let directory = self.run().join(format!("{:08}.shard", shard.cast_unsigned()));
            self.files.create_directories(&directory)?;
            let file = shard_file(&directory, self.checkpoint);
            self.open.insert(shard, ElementWriter::create(&*self.files, &file, self.packing, VERSION)?);
        }
        if let Some(writer) = self.open.get_mut(&shard) {
            writer.write(element)?;
        }
        self.elements = self.elements.saturating_add(1);
        Ok(())
    }

    /// Ends the files; what is written next goes into new ones. Gives the run, the number of the new files and of the elements.
    pub fn end_files(&mut self) -> Result<(String, u64, i64)> {
        for writer in std::mem::take(&mut self.open).into_values() {
            writer.close()?;
        }
        self.checkpoint += 1;
        Ok((self.metadata.run_id.clone(), self.checkpoint, self.elements))
    }

    /// Ends the run: from now on it counts.
    pub fn finish(&mut self) -> Result<()> {
        self.start()?;
        self.end_files()?;
        self.write_metadata(true)
    }
}
