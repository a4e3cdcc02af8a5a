//! Databases of LMDB, read from front to back: a tree of pages, of which a writer leaves two roots and the newer one counts.

use crate::coding::{u32_at, u64_at};
use crate::{FileSystem, RandomAccessFile};
use graphmill_tensor::{Result, Status, invalid_argument, unimplemented_op};
use std::path::Path;

/// Bytes in front of a page's contents.
const HEADER: usize = 16;
const MAGIC: u32 = 0xbeef_c0de;
/// The root of a tree without pages.
const NONE: u64 = u64::MAX;
/// Levels that a tree may have.
const DEPTH: usize = 32;

const BRANCH_PAGE: u16 = 1;
const LEAF_PAGE: u16 = 2;
const OVERFLOW_PAGE: u16 = 4;
const META_PAGE: u16 = 8;

/// The value stands on pages of its own.
const BIG_VALUE: u16 = 1;
/// The key has several values.
const DUPLICATES: u16 = 4;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let end = at.checked_add(2)?;
    bytes.get(at..end)?.try_into().ok().map(u16::from_le_bytes)
}

fn invalid() -> Status {
    invalid_argument!("MDB_INVALID: File is not an LMDB file")
}

fn corrupted() -> Status {
    invalid_argument!("MDB_CORRUPTED: Located page was wrong type")
}

/// What one of the two first pages says.
struct Meta {
    transaction: u64,
    page_size: usize,
    root: u64,
}

impl Meta {
    fn parse(page: &[u8]) -> Option<Meta> {
        let is_meta = u16_at(page, 10)? & META_PAGE != 0;
        if !is_meta || u32_at(page, 16)? != MAGIC || u32_at(page, 20)? != 1 {
            return None;
        }
        let page_size = usize::try_from(u32_at(page, 40)?).ok()?;
        let usable = page_size.is_power_of_two() && (256..=1 << 16).contains(&page_size);
        usable.then_some(Meta { transaction: u64_at(page, 144)?, page_size, root: u64_at(page, 128)? })
    }
}

/// A page on the way to the current entry.
struct Level {
    page: Vec<u8>,
    next: usize,
}

/// The entries of a database, in the order of their keys.
pub struct LmdbReader {
    file: Box<dyn RandomAccessFile>,
    page_size: usize,
    path: Vec<Level>,
    /// Pages that a sound tree may still have.
    pages_left: u64,
}

impl LmdbReader {
    /// Opens a database: a file, or `data.mdb` in a directory.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with LMDB's text if there is no such file, or it is none.
    pub fn open(files: &dyn FileSystem, path: &Path) -> Result<LmdbReader> {
        let inner = path.join("data.mdb");
        let path = if files.is_directory(path) == Some(false) { path } else { &inner };
        let file = files.open(path).map_err(|error| {
            let text = error.message().rsplit("; ").next().unwrap_or_default();
            invalid_argument!("{text}")
        })?;
        let first = file.read_range(0, 152).ok().and_then(|page| Meta::parse(&page)).ok_or_else(invalid)?;
        let page_size = first.page_size;
        let second = file.read_range(page_size as u64, 152).ok().and_then(|page| Meta::parse(&page));
        let meta = match second {
            Some(second) if second.transaction > first.transaction => second,
            _ => first,
        };
        let pages_left = file.size()? / page_size as u64;
        let mut reader = LmdbReader { file, page_size, path: Vec::new(), pages_left };
        if meta.root != NONE {
            reader.descend(meta.root)?;
        }
        Ok(reader)
    }

    /// The next key and value; `None` at the end.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a broken tree, `UNIMPLEMENTED` for a key with several values.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(level) = self.path.last_mut() else { return Ok(None) };
            let at = level.next;
            level.next += 1;
            let page = level.page.as_slice();
            let lower = usize::from(u16_at(page, 12).unwrap_or(0));
            if at >= lower.saturating_sub(HEADER) / 2 {
                self.path.pop();
                continue;
            }
            let node = u16_at(page, HEADER + 2 * at).and_then(|offset| Node::parse(page, offset.into()));
            let node = node.ok_or_else(corrupted)?;
            if u16_at(page, 10).is_some_and(|flags| flags & BRANCH_PAGE != 0) {
                let child = node.child;
                self.descend(child)?;
                continue;
            }
            if node.flags & DUPLICATES != 0 {
                return Err(unimplemented_op!("LMDB databases with several values for a key"));
            }
            let key = node.key.to_vec();
            let value = match node.value {
                Value::Here(bytes) => bytes.to_vec(),
                Value::Elsewhere { page, size } => self.big_value(page, size)?,
            };
            return Ok(Some((key, value)));
        }
    }

    fn descend(&mut self, number: u64) -> Result<()> {
        self.pages_left = self.pages_left.checked_sub(1).ok_or_else(corrupted)?;
        let page = self.page_at(number, self.page_size as u64)?;
        let flags = u16_at(&page, 10).unwrap_or(0);
        if flags & (BRANCH_PAGE | LEAF_PAGE) == 0 || self.path.len() >= DEPTH {
            return Err(corrupted());
        }
        self.path.push(Level { page, next: 0 });
        Ok(())
    }

    fn big_value(&self, number: u64, size: u64) -> Result<Vec<u8>> {
        let mut bytes = self.page_at(number, size.saturating_add(HEADER as u64))?;
        if u16_at(&bytes, 10).unwrap_or(0) & OVERFLOW_PAGE == 0 {
            return Err(corrupted());
        }
        bytes.drain(..HEADER);
        Ok(bytes)
    }

    fn page_at(&self, number: u64, size: u64) -> Result<Vec<u8>> {
        let missing = || invalid_argument!("MDB_PAGE_NOTFOUND: Requested page not found");
        let offset = number.checked_mul(self.page_size as u64).ok_or_else(missing)?;
        self.file.read_range(offset, size).map_err(|_| missing())
    }
}

enum Value<'a> {
    Here(&'a [u8]),
    Elsewhere { page: u64, size: u64 },
}

/// An entry of a page.
struct Node<'a> {
    flags: u16,
    key: &'a [u8],
    value: Value<'a>,
    /// On a branch page, the page below.
    child: u64,
}

impl Node<'_> {
    fn parse(page: &[u8], at: usize) -> Option<Node<'_>> {
        let (low, high) = (u16_at(page, at)?, u16_at(page, at + 2)?);
        let (flags, key_size) = (u16_at(page, at + 4)?, usize::from(u16_at(page, at + 6)?));
        let size = u32::from(low) | u32::from(high) << 16;
        let child = u64::from(size) | u64::from(flags) << 32;
        let key_end = at + 8 + key_size;
        let key = page.get(at + 8..key_end)?;
        let is_branch = u16_at(page, 10)? & BRANCH_PAGE != 0;
        let value = if is_branch {
            Value::Here(&[])
        } else if flags & BIG_VALUE != 0 {
            Value::Elsewhere { page: u64_at(page, key_end)?, size: size.into() }
        } else {
            Value::Here(page.get(key_end..key_end.checked_add(usize::try_from(size).ok()?)?)?)
        };
        Some(Node { flags, key, value, child })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFileSystem;
    use graphmill_tensor::Code;

    const SIZE: usize = 4096;

    fn page(number: u64, flags: u16, nodes: &[Vec<u8>]) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        page[..8].copy_from_slice(&number.to_le_bytes());
        page[10..12].copy_from_slice(&flags.to_le_bytes());
        page[12..14].copy_from_slice(&((HEADER + 2 * nodes.len()) as u16).to_le_bytes());
        let mut end = SIZE;
        for (i, node) in nodes.iter().enumerate() {
            end -= node.len();
            page[end..end + node.len()].copy_from_slice(node);
            page[HEADER + 2 * i..HEADER + 2 * i + 2].copy_from_slice(&(end as u16).to_le_bytes());
        }
        page
    }

    fn node(size: u32, flags: u16, key: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut node = size.to_le_bytes().to_vec();
        node.extend(flags.to_le_bytes());
        node.extend((key.len() as u16).to_le_bytes());
        node.extend([key, rest].concat());
        node
    }

    fn meta(number: u64, transaction: u64, root: u64) -> Vec<u8> {
        let mut meta = page(number, META_PAGE, &[]);
        meta[16..20].copy_from_slice(&MAGIC.to_le_bytes());
        meta[20..24].copy_from_slice(&1_u32.to_le_bytes());
        meta[40..44].copy_from_slice(&(SIZE as u32).to_le_bytes());
        meta[128..136].copy_from_slice(&root.to_le_bytes());
        meta[144..152].copy_from_slice(&transaction.to_le_bytes());
        meta
    }

    fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("data.mdb"), bytes).unwrap();
        let mut reader = LmdbReader::open(&LocalFileSystem::new(), directory.path())?;
        let mut entries = Vec::new();
        while let Some(entry) = reader.next()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    #[test]
    fn trees_are_read_in_order_from_the_newer_root() {
        let big = vec![7; 5000];
        let mut overflow = page(5, OVERFLOW_PAGE, &[]);
        overflow.truncate(HEADER);
        overflow.extend(&big);
        overflow.resize(2 * SIZE, 0);
        let leaves = [
            page(3, LEAF_PAGE, &[node(1, 0, b"a", b"1"), node(0, 0, b"b", b"")]),
            page(4, LEAF_PAGE, &[node(5000, BIG_VALUE, b"c", &5_u64.to_le_bytes())]),
        ];
        let branch = page(2, BRANCH_PAGE, &[node(3, 0, b"", b""), node(4, 0, b"c", b"")]);
        let whole = [meta(0, 1, 3), meta(1, 2, 2), branch, leaves.concat(), overflow].concat();
        let expected = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), vec![]), (b"c".to_vec(), big)];
        assert_eq!(read(&whole).unwrap(), expected);
        assert_eq!(read(&[meta(0, 1, NONE), meta(1, 0, 9)].concat()).unwrap(), []);
    }

    #[test]
    fn broken_trees_end() {
        let loops = page(2, BRANCH_PAGE, &[node(2, 0, b"", b""), node(2, 0, b"", b"")]);
        for broken in [loops, page(2, OVERFLOW_PAGE, &[]), vec![], page(2, LEAF_PAGE, &[node(9999, 0, b"k", b"")])] {
            let error = read(&[meta(0, 1, 2), meta(1, 0, 2), broken].concat()).err().unwrap();
            assert_eq!(error.code(), Code::InvalidArgument);
        }
        assert!(read(b"nothing").err().unwrap().message().starts_with("MDB_INVALID"));
    }
}
