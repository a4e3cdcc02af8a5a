//! Making one checkpoint of those that several tasks wrote.

use super::reader::read_header;
use super::writer::{create_parent, write_index};
use super::{data_file_name, decode, index_file_name};
use crate::{FileSystem, Table};
use graphmill_tensor::{Code, Result, Status, internal, invalid_argument, not_found};
use graphmill_wire::tensorflow::{BundleEntryProto, BundleHeaderProto};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

#[derive(Default)]
struct Merged {
    header: Option<BundleHeaderProto>,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
    /// Data files in the order in which they get their new numbers.
    data: Vec<PathBuf>,
    numbers: HashMap<PathBuf, i32>,
}

/// Makes the checkpoint `destination` of others: one index, and their data files under new names. The old indices go. With
/// `allow_missing`, those that are not there are left out.
///
/// # Errors
/// `NOT_FOUND` if one is missing, `INVALID_ARGUMENT` if two hold the same tensor or differ in format.
pub fn merge_bundles(
    files: &dyn FileSystem,
    prefixes: &[&Path],
    destination: &Path,
    allow_missing: bool,
) -> Result<()> {
    create_parent(files, destination)?;
    let mut merged = Merged::default();
    let mut found = Vec::new();
    for (at, &prefix) in prefixes.iter().enumerate() {
        if allow_missing && files.is_directory(&index_file_name(prefix)).is_none() {
            continue;
        }
        let part = || format!("part {} of the {} that make {}", at + 1, prefixes.len(), destination.display());
        merged.add(files, prefix).map_err(|error| of_another_task(error, part))?;
        found.push(prefix);
    }
    if found.is_empty() && !prefixes.is_empty() {
        return Err(invalid_argument!("At least one prefix checkpoint file must exist, but none existed."));
    }
    let shards = i32::try_from(merged.data.len()).map_err(|_| invalid_argument!("too many data files to merge"))?;
    // Before anything is moved.
    for path in &merged.data {
        files.open(path).map_err(|error| of_another_task(error, || format!("data of {}", destination.display())))?;
    }
    for (number, path) in merged.data.iter().enumerate() {
        files.rename(path, &data_file_name(destination, number as i32, shards))?;
    }
    let mut header = merged.header.unwrap_or_default();
    header.num_shards = shards;
    write_index(files, destination, &header, &merged.entries)?;
    for prefix in found {
        let index = index_file_name(prefix);
        if index != index_file_name(destination) {
            // What is left over does no harm.
            let _ = files.remove_file(&index);
        }
    }
    Ok(())
}

/// An error of a file that another task may have written. One that is not there is said to be which part of what.
pub(super) fn of_another_task(error: Status, part: impl FnOnce() -> String) -> Status {
    if error.code() != Code::NotFound {
        return error;
    }
    let (text, part) = (error.message(), part());
    not_found!(
        "{text}: it is {part}; the task that saves it has not, or to a disk that it does not share with this task"
    )
}

impl Merged {
    fn add(&mut self, files: &dyn FileSystem, prefix: &Path) -> Result<()> {
        let index = index_file_name(prefix);
        let table = Table::open(files, &index)?;
        let header = read_header(&table, &index)?;
        let shards = header.num_shards;
        match &mut self.header {
            None => self.header = Some(header),
            Some(first) => {
                if first.endianness != header.endianness {
                    return Err(invalid_argument!("Merging bundles with conflicting endianness; inputs corrupted?"));
                }
                if first.version != header.version {
                    return Err(invalid_argument!(
                        "Merging bundles with different format versions: merged {:?} vs. curr {:?}",
                        first.version,
                        header.version
                    ));
                }
            }
        }
        let mut entries = table.entries()?;
        entries.next()?;
        while let Some((key, value)) = entries.next()? {
            let entry: BundleEntryProto = decode(&key, &value)?;
            self.add_entry(key, entry, prefix, shards)?;
        }
        Ok(())
    }

    fn add_entry(&mut self, key: Vec<u8>, mut entry: BundleEntryProto, prefix: &Path, shards: i32) -> Result<()> {
        let name = || String::from_utf8_lossy(&key).into_owned();
        if let Some(existing) = self.entries.get_mut(&key) {
            if existing.slices.is_empty() {
                return Err(invalid_argument!(
                    "Duplicate tensor keyed by {} encountered, when merging prefix: {}",
                    name(),
                    prefix.display()
                ));
            }
            if entry.slices.is_empty() {
                return Err(internal!(
                    "Duplicate tensor keyed by {}; attempting to merge in a non-slice bundle entry",
                    name()
                ));
            }
            if existing.dtype != entry.dtype || existing.shape != entry.shape {
                return Err(invalid_argument!("Slices of {} differ in type or shape of the whole tensor", name()));
            }
            existing.slices.append(&mut entry.slices);
            return Ok(());
        }
        let path = data_file_name(prefix, entry.shard_id, shards);
        let next = self.data.len() as i32;
        entry.shard_id = *self.numbers.entry(path.clone()).or_insert_with(|| {
            self.data.push(path);
            next
        });
        self.entries.insert(key, entry);
        Ok(())
    }
}
