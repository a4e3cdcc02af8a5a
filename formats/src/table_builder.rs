//! Writing a table (see [`crate::Table`]); blocks are not compressed, as in TensorFlow.

use crate::coding::put_varint;
use crate::table::{FOOTER, MAGIC};
use crate::{WritableFile, checksum, mask};
use graphmill_tensor::{Result, internal, invalid_argument};

/// Bytes after which a block ends.
const BLOCK: usize = 256 << 10;
/// Entries from one whole key to the next.
const RESTART_EVERY: usize = 16;

/// Writes a table, entry by entry in the order of their keys.
pub struct TableBuilder {
    file: Box<dyn WritableFile>,
    offset: u64,
    block: Block,
    index: Block,
    last_key: Vec<u8>,
    /// A finished block that the index does not have yet: its entry needs to know which key comes next.
    pending: Option<Vec<u8>>,
    entries: usize,
}

impl TableBuilder {
    /// Into an empty file.
    pub fn new(file: Box<dyn WritableFile>) -> TableBuilder {
        TableBuilder {
            file,
            offset: 0,
            block: Block::new(RESTART_EVERY),
            index: Block::new(1),
            last_key: Vec::new(),
            pending: None,
            entries: 0,
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `INTERNAL` for a key that is not behind the last one, and what writing returns.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.entries > 0 {
            if key <= self.last_key.as_slice() {
                return Err(internal!("keys of a table are not in order"));
            }
            // An overly large entry does not drag the block before it along.
            if key.len() + value.len() >= 2 * BLOCK {
                self.flush()?;
            }
        }
        if let Some(handle) = self.pending.take() {
            self.index.add(&separator(&self.last_key, key), &handle)?;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        self.block.add(key, value)?;
        if self.block.size() >= BLOCK {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left, and the index, and ends the file.
    ///
    /// # Errors
    /// What writing returns.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        let meta_index = self.write_block(&Block::new(RESTART_EVERY).finish())?;
        if let Some(handle) = self.pending.take() {
            self.index.add(&successor(&self.last_key), &handle)?;
        }
        let index = std::mem::replace(&mut self.index, Block::new(1)).finish();
        let index = self.write_block(&index)?;
        let mut footer = [meta_index, index].concat();
        footer.resize(FOOTER - 8, 0);
        footer.extend_from_slice(&MAGIC.to_le_bytes());
        self.file.write(&footer)?;
        self.file.close()
    }

    fn flush(&mut self) -> Result<()> {
        if self.block.data.is_empty() {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.block, Block::new(RESTART_EVERY)).finish();
        self.pending = Some(self.write_block(&block)?);
        Ok(())
    }

    /// Writes a block; its handle is where it is and how long.
    fn write_block(&mut self, block: &[u8]) -> Result<Vec<u8>> {
        let mut handle = Vec::new();
        put_varint(&mut handle, self.offset);
        put_varint(&mut handle, block.len() as u64);
        let crc = checksum::extend(checksum::crc32c(block), &[0]);
        let [a, b, c, d] = mask(crc).to_le_bytes();
        self.file.write(block)?;
        self.file.write(&[0, a, b, c, d])?;
        self.offset += block.len() as u64 + 5;
        Ok(handle)
    }
}

/// A short key from `last` on and before `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    match (last.get(common), next.get(common)) {
        (Some(&a), Some(&b)) if a < 0xff && a + 1 < b => {
            let mut key = last[..common].to_vec();
            key.push(a + 1);
            key
        }
        _ => last.to_vec(),
    }
}

/// A short key that is not before `last`.
fn successor(last: &[u8]) -> Vec<u8> {
    match last.iter().position(|&b| b != 0xff) {
        Some(at) => {
            let mut key = last[..=at].to_vec();
            key[at] += 1;
            key
        }
        None => last.to_vec(),
    }
}

/// A block under way.
struct Block {
    data: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    restart_every: usize,
    last_key: Vec<u8>,
}

impl Block {
    fn new(restart_every: usize) -> Block {
        Block { data: Vec::new(), restarts: vec![0], since_restart: 0, restart_every, last_key: Vec::new() }
    }

    fn size(&self) -> usize {
        self.data.len() + self.restarts.len() * 4 + 4
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if u32::try_from(key.len().saturating_add(value.len())).is_err() {
            return Err(invalid_argument!("an entry of {} bytes is too large for a table", value.len()));
        }
        let shared = if self.since_restart < self.restart_every {
            self.last_key.iter().zip(key).take_while(|(a, b)| a == b).count()
        } else {
            self.restarts
                .push(u32::try_from(self.data.len()).map_err(|_| internal!("a block of a table is too large"))?);
            self.since_restart = 0;
            0
        };
        put_varint(&mut self.data, shared as u64);
        put_varint(&mut self.data, (key.len() - shared) as u64);
        put_varint(&mut self.data, value.len() as u64);
        self.data.extend_from_slice(&key[shared..]);
        self.data.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.since_restart += 1;
        Ok(())
    }

    fn finish(mut self) -> Vec<u8> {
        for restart in &self.restarts {
            self.data.extend_from_slice(&restart.to_le_bytes());
        }
        self.data.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.data
    }
}
