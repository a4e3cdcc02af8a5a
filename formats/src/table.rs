//! Sorted tables of keys and values: how a checkpoint's index, and a first-version checkpoint as a whole, is laid out.
//!
//! Blocks of entries, then an index of the blocks, then a footer that says where that is. Keys drop what they share with the key
//! before; places where they do not are listed at a block's end, so that it can be searched.

use crate::coding::{take_varint, take_varint32, u32_at, u64_at};
use crate::{FileSystem, RandomAccessFile, crc32c, unmask};
use graphmill_tensor::{Result, data_loss};
use std::path::Path;

/// The last bytes of every table.
pub(crate) const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Two handles, padded, and the magic number.
pub(crate) const FOOTER: usize = 48;
/// Kind of compression, and checksum, behind each block.
pub(crate) const TRAILER: usize = 5;

/// A table open for reading. It holds the index of its blocks; blocks are read when asked for.
pub struct Table {
    file: Box<dyn RandomAccessFile>,
    index: Vec<u8>,
}

impl Table {
    /// Opens a table.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such file, `DATA_LOSS` if it is no table.
    pub fn open(files: &dyn FileSystem, path: &Path) -> Result<Table> {
        let file = files.open(path)?;
        let size = file.size()?;
        let Some(start) = size.checked_sub(FOOTER as u64) else {
            return Err(data_loss!("file is too short to be an sstable"));
        };
        let mut footer = [0; FOOTER];
        file.read_exact_at(start, &mut footer)?;
        if u64_at(&footer, FOOTER - 8) != Some(MAGIC) {
            return Err(data_loss!("not an sstable (bad magic number)"));
        }
        let mut rest = footer.as_slice();
        let _meta_index = take_handle(&mut rest)?;
        let index = read_block(&*file, take_handle(&mut rest)?)?;
        Ok(Table { file, index })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `DATA_LOSS` for broken blocks, and what reading returns.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut index = BlockEntries::new(&self.index)?;
        if !index.seek(key)? {
            return Ok(None);
        }
        let block = read_block(&*self.file, take_handle(&mut index.value())?)?;
        let mut entries = BlockEntries::new(&block)?;
        let found = entries.seek(key)? && entries.key == key;
        Ok(found.then(|| entries.value().to_vec()))
    }

    /// All entries, in the order of their keys.
    ///
    /// # Errors
    /// `DATA_LOSS` if the index is broken.
    pub fn entries(&self) -> Result<TableEntries<'_>> {
        Ok(TableEntries { table: self, index: BlockEntries::new(&self.index)?, block: None })
    }
}

/// Walks through a table.
pub struct TableEntries<'a> {
    table: &'a Table,
    index: BlockEntries<'a>,
    block: Option<(Vec<u8>, usize, Vec<u8>)>,
}

impl TableEntries<'_> {
    /// The next key and value; `None` at the end.
    ///
    /// # Errors
    /// As [`Table::get`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            if let Some((block, at, key)) = self.block.take() {
                let mut entries = BlockEntries::new(&block)?;
                entries.next = at;
                entries.key = key;
                if entries.advance()? {
                    let (value, at, key) = (entries.value().to_vec(), entries.next, entries.key);
                    self.block = Some((block, at, key.clone()));
                    return Ok(Some((key, value)));
                }
            }
            if !self.index.advance()? {
                return Ok(None);
            }
            let block = read_block(&*self.table.file, take_handle(&mut self.index.value())?)?;
            self.block = Some((block, 0, Vec::new()));
        }
    }
}

/// Where a block is.
struct Handle {
    offset: u64,
    size: u64,
}

fn take_handle(input: &mut &[u8]) -> Result<Handle> {
    match (take_varint(input), take_varint(input)) {
        (Some(offset), Some(size)) => Ok(Handle { offset, size }),
        _ => Err(data_loss!("bad block handle")),
    }
}

fn read_block(file: &dyn RandomAccessFile, handle: Handle) -> Result<Vec<u8>> {
    let Some(length) = handle.size.checked_add(TRAILER as u64) else {
        return Err(data_loss!("handle.size() too big"));
    };
    let mut block = file.read_range(handle.offset, length)?;
    let contents = block.len().saturating_sub(TRAILER);
    let stored = u32_at(&block, contents + 1);
    if stored.map(unmask) != block.get(..=contents).map(crc32c) {
        return Err(data_loss!("block checksum mismatch"));
    }
    let kind = block.get(contents).copied();
    block.truncate(contents);
    match kind {
        Some(0) => Ok(block),
        Some(1) => uncompress(&block),
        _ => Err(data_loss!("bad block type")),
    }
}

/// Snappy reserves as much as the block claims to hold; a byte of it stands for 64 at most.
fn uncompress(block: &[u8]) -> Result<Vec<u8>> {
    let corrupted = || data_loss!("corrupted compressed block contents");
    match snap::raw::decompress_len(block) {
        Ok(length) if length / 64 <= block.len() => {
            snap::raw::Decoder::new().decompress_vec(block).map_err(|_| corrupted())
        }
        _ => Err(corrupted()),
    }
}

/// The entries of a block.
struct BlockEntries<'a> {
    /// Entries alone.
    data: &'a [u8],
    /// Offsets of the entries with a whole key.
    restarts: &'a [u8],
    /// Where the next entry starts.
    next: usize,
    key: Vec<u8>,
    value: (usize, usize),
}

impl<'a> BlockEntries<'a> {
    fn new(block: &'a [u8]) -> Result<BlockEntries<'a>> {
        let bad = || data_loss!("bad block contents");
        let tail = block.len().checked_sub(4).ok_or_else(bad)?;
        let count = u32_at(block, tail).ok_or_else(bad)? as usize;
        let start = count.checked_mul(4).and_then(|bytes| tail.checked_sub(bytes)).ok_or_else(bad)?;
        let (data, rest) = block.split_at(start);
        let restarts = rest.get(..count * 4).ok_or_else(bad)?;
        Ok(BlockEntries { data, restarts, next: 0, key: Vec::new(), value: (0, 0) })
    }

    fn value(&self) -> &'a [u8] {
        self.data.get(self.value.0..self.value.1).unwrap_or_default()
    }

    /// Goes to the next entry; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let bad = || data_loss!("bad entry in block");
        let mut rest = self.data.get(self.next..).ok_or_else(bad)?;
        if rest.is_empty() || self.restarts.is_empty() {
            return Ok(false);
        }
        let shared = take_varint32(&mut rest).ok_or_else(bad)? as usize;
        let own = take_varint32(&mut rest).ok_or_else(bad)? as usize;
        let length = take_varint32(&mut rest).ok_or_else(bad)? as usize;
        let suffix = rest.get(..own).ok_or_else(bad)?;
        if shared > self.key.len() || rest.len() - own < length {
            return Err(bad());
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        let value = self.data.len() - rest.len() + own;
        self.value = (value, value + length);
        self.next = value + length;
        Ok(true)
    }

    /// Goes to the first entry whose key is not before `target`; false if there is none.
    fn seek(&mut self, target: &[u8]) -> Result<bool> {
        let (mut low, mut high) = (0, (self.restarts.len() / 4).saturating_sub(1));
        while low < high {
            let middle = (low + high).div_ceil(2);
            self.go_to_restart(middle);
            if !self.advance()? {
                return Err(data_loss!("bad entry in block"));
            }
            if self.key.as_slice() < target {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.go_to_restart(low);
        while self.advance()? {
            if self.key.as_slice() >= target {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn go_to_restart(&mut self, index: usize) {
        self.key.clear();
        self.next = u32_at(self.restarts, index * 4).unwrap_or(0) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalFileSystem, TableBuilder};
    use graphmill_tensor::Code;

    fn write(path: &Path, entries: &[(Vec<u8>, Vec<u8>)]) {
        let files = LocalFileSystem::new();
        let mut builder = TableBuilder::new(files.create(path).unwrap());
        for (key, value) in entries {
            builder.add(key, value).unwrap();
        }
        builder.finish().unwrap();
    }

    fn entries() -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..20_000u32).map(|i| (format!("key/{i:06}").into_bytes(), vec![i as u8; (i % 97) as usize])).collect()
    }

    #[test]
    fn what_is_written_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let entries = entries();
        write(&path, &entries);
        let table = Table::open(&LocalFileSystem::new(), &path).unwrap();
        for (key, value) in entries.iter().step_by(37) {
            assert_eq!(table.get(key).unwrap().as_ref(), Some(value));
        }
        for absent in ["", "a", "key/", "key/000001x", "z"] {
            assert_eq!(table.get(absent.as_bytes()).unwrap(), None, "{absent}");
        }
        let mut walk = table.entries().unwrap();
        for (key, value) in &entries {
            assert_eq!(walk.next().unwrap().unwrap(), (key.clone(), value.clone()));
        }
        assert!(walk.next().unwrap().is_none());
    }

    #[test]
    fn an_empty_table_holds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        write(&path, &[]);
        let table = Table::open(&LocalFileSystem::new(), &path).unwrap();
        assert!(table.entries().unwrap().next().unwrap().is_none());
        assert_eq!(table.get(b"x").unwrap(), None);
    }

    /// Reads everything; an error is fine, a panic or a wrong value under a right checksum is not.
    fn read_all(path: &Path) -> Result<usize> {
        let table = Table::open(&LocalFileSystem::new(), path)?;
        let mut walk = table.entries()?;
        let mut count = 0;
        while walk.next()?.is_some() {
            count += 1;
        }
        table.get(b"key/000500")?;
        Ok(count)
    }

    #[test]
    fn every_broken_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        write(&path, &entries()[..1000]);
        let good = std::fs::read(&path).unwrap();
        assert_eq!(read_all(&path).unwrap(), 1000);
        for at in (0..good.len()).step_by(53).chain(good.len() - FOOTER..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            std::fs::write(&path, &bad).unwrap();
            match read_all(&path) {
                // Padding of the footer, and the meta index, are not looked at.
                Ok(count) => assert!(at >= good.len() - FOOTER - 32 && count == 1000, "{at}"),
                Err(error) => assert!(matches!(error.code(), Code::DataLoss | Code::OutOfRange), "{at}: {error}"),
            }
        }
        for length in [0, 1, 47, 48, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(read_all(&path).is_err(), "{length}");
        }
    }

    #[test]
    fn compressed_blocks_are_read() {
        let block = snap::raw::Encoder::new().compress_vec(&[7u8; 1000]).unwrap();
        assert_eq!(uncompress(&block).unwrap(), [7u8; 1000]);
        // A claim of 4 GiB in a few bytes.
        assert!(uncompress(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]).is_err());
        assert!(uncompress(&[]).is_err());
    }
}
