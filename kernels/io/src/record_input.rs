//! `RecordInput`: records of files in random order, epoch after epoch.

use crate::inputs::path;
use graphmill_formats::{Compression, FileSystem, RecordReader};
use graphmill_runtime::philox::{Philox, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, Shape, Status, Tensor, invalid_argument, not_found};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let kept = files.clone();
    registry.op("RecordInput").blocking_kernel(move |c| RecordInput::new(c, kept.clone()));
}

struct RecordInput {
    batch: Shape,
    records: Mutex<Records>,
}

impl RecordInput {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<RecordInput> {
        let compression = c.attrs().string("compression_type")?;
        let records = Records {
            files,
            patterns: c.attrs().string("file_pattern")?.to_vec(),
            seed: c.attrs().int("file_random_seed")? as u64,
            shift: c.attrs().float("file_shuffle_shift_ratio")?,
            room: usize::try_from(c.attrs().int("file_buffer_size")?).unwrap_or(0).max(1),
            parallelism: usize::try_from(c.attrs().int("file_parallelism")?).unwrap_or(0).max(1),
            compression: Compression::from_name(compression)
                .ok_or_else(|| invalid_argument!("Unsupported compression_type."))?,
            epoch: 0,
            delivered: true,
            shards: VecDeque::new(),
            buffer: Vec::new(),
            random: Words::new(Philox::from_seeds(0, 0)),
            failure: None,
        };
        Ok(RecordInput { batch: Shape::new(&[c.attrs().int("batch_size")?])?, records: Mutex::new(records) })
    }
}

impl Kernel for RecordInput {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut records = self.records.lock();
        let batch = (0..self.batch.num_elements()).map(|_| records.next()).collect::<Result<Vec<Bytes>>>()?;
        ctx.set_output(0, Tensor::from_strings(self.batch.clone(), batch)?)
    }
}

/// Files that are read one after the other.
#[derive(Default)]
struct Shard {
    names: VecDeque<Vec<u8>>,
    open: Option<RecordReader>,
}

/// Several shards are read by turns into a buffer, which each record enters at a random place.
struct Records {
    files: Arc<dyn FileSystem>,
    /// Patterns of paths with commas between them.
    patterns: Vec<u8>,
    seed: u64,
    shift: f32,
    /// Records that are mixed at a time.
    room: usize,
    parallelism: usize,
    compression: Compression,
    epoch: u64,
    /// Whether this epoch has had a record.
    delivered: bool,
    shards: VecDeque<Shard>,
    buffer: Vec<Bytes>,
    random: Words,
    /// What went wrong once, which every later call reports too.
    failure: Option<Status>,
}

impl Records {
    fn next(&mut self) -> Result<Bytes> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let record = self.take();
        if let Err(failure) = &record {
            self.failure = Some(failure.clone());
        }
        record
    }

    fn take(&mut self) -> Result<Bytes> {
        loop {
            while self.buffer.len() < self.room {
                match self.read()? {
                    Some(record) => self.mix(record),
                    None => break,
                }
            }
            if let Some(record) = self.buffer.pop() {
                self.delivered = true;
                return Ok(record);
            }
            self.start_epoch()?;
        }
    }

    /// Puts a record at a random place, and what was there at the end.
    fn mix(&mut self, record: Bytes) {
        self.buffer.push(record);
        let last = self.buffer.len() - 1;
        let at = self.random.next() as usize % self.buffer.len();
        self.buffer.swap(at, last);
    }

    /// The next record of the shard whose turn it is.
    fn read(&mut self) -> Result<Option<Bytes>> {
        while let Some(mut shard) = self.shards.pop_front() {
            if shard.open.is_none() {
                let Some(name) = shard.names.pop_front() else { continue };
                let reader = RecordReader::open(&*self.files, path(&name), self.compression);
                let failed = |_| invalid_argument!("Can't open {}", String::from_utf8_lossy(&name));
                shard.open = Some(reader.map_err(failed)?);
            }
            let record = match &mut shard.open {
                Some(reader) => reader.next()?,
                None => None,
            };
            match record {
                Some(record) => {
                    self.shards.push_back(shard);
                    return Ok(Some(Bytes::from(record)));
                }
                None => {
                    shard.open = None;
                    self.shards.push_front(shard);
                }
            }
        }
        Ok(None)
    }

    /// Finds the files anew, and deals them out in random order.
    fn start_epoch(&mut self) -> Result<()> {
        let text = String::from_utf8_lossy(&self.patterns).into_owned();
        if !self.delivered {
            return Err(invalid_argument!("There are no records in the files at {text}"));
        }
        let mut names = Vec::new();
        for pattern in self.patterns.split(|&byte| byte == b',') {
            names.extend(self.files.matching(path(pattern))?);
        }
        if names.is_empty() {
            return Err(not_found!("Found no files at {text}"));
        }
        self.epoch += 1;
        self.delivered = false;
        self.random = Words::new(Philox::from_seeds(self.seed, self.epoch));
        names.sort();
        for left in (2..=names.len()).rev() {
            names.swap(left - 1, self.random.next() as usize % left);
        }
        if (0.0..1.0).contains(&self.shift) {
            let shift = (f64::from(self.shift) * names.len() as f64) as usize;
            names.rotate_left(shift);
        }
        let count = self.parallelism.min(names.len());
        self.shards = (0..count).map(|_| Shard::default()).collect();
        for (i, name) in names.into_iter().enumerate() {
            if let Some(shard) = self.shards.get_mut(i % count) {
                shard.names.push_back(name);
            }
        }
        Ok(())
    }
}
