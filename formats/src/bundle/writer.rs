//! Writing a checkpoint.

use super::data::write_tensor;
use super::{VERSION, data_file_name, index_file_name};
use crate::file_system::temporary_name;
use crate::ordered_code::slice_key;
use crate::{FileSystem, TableBuilder, TensorSlice, WritableFile, mask};
use graphmill_tensor::{Result, Shape, Tensor, encode_shape, internal, invalid_argument};
use graphmill_wire::tensorflow::{BundleEntryProto, BundleHeaderProto, VersionDef};
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A checkpoint under way. Files appear under their names when it is finished; if it never is, nothing stays behind.
pub struct BundleWriter {
    files: Arc<dyn FileSystem>,
    prefix: PathBuf,
    data_path: PathBuf,
    data: Option<Box<dyn WritableFile>>,
    offset: u64,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
}

impl BundleWriter {
    /// Starts the checkpoint `prefix`, with its directory.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(files: Arc<dyn FileSystem>, prefix: &Path) -> Result<BundleWriter> {
        if let Some(directory) = prefix.parent() {
            files.create_directories(directory)?;
        }
        let data_path = temporary_name(&data_file_name(prefix, 0, 1));
        let data = Some(files.create(&data_path)?);
        Ok(BundleWriter { files, prefix: prefix.to_owned(), data_path, data, offset: 0, entries: BTreeMap::new() })
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is one of this name, and what writing returns.
    pub fn add(&mut self, key: &[u8], tensor: &Tensor) -> Result<()> {
        if key.is_empty() {
            return Err(invalid_argument!("A tensor in a checkpoint needs a name"));
        }
        if self.entries.contains_key(key) {
            return Err(invalid_argument!("Adding duplicate key: {}", String::from_utf8_lossy(key)));
        }
        let data = self.data.as_mut().ok_or_else(|| internal!("BundleWriter is closed"))?;
        let (size, crc) = write_tensor(&mut **data, tensor)?;
        let entry = BundleEntryProto {
            dtype: tensor.dtype().number(),
            shape: Some(encode_shape(tensor.shape())),
            shard_id: 0,
            offset: self.offset as i64,
            size: size as i64,
            crc32c: mask(crc),
            slices: Vec::new(),
        };
        self.offset += size;
        self.entries.insert(key.to_vec(), entry);
        Ok(())
    }

    /// Adds a block of a tensor.
    ///
    /// # Errors
    /// As [`BundleWriter::add`], and `INVALID_ARGUMENT` if another block said otherwise of the whole tensor.
    pub fn add_slice(&mut self, key: &[u8], shape: &Shape, slice: &TensorSlice, tensor: &Tensor) -> Result<()> {
        if slice.covers(shape) {
            return self.add(key, tensor);
        }
        let full = BundleEntryProto {
            dtype: tensor.dtype().number(),
            shape: Some(encode_shape(shape)),
            ..BundleEntryProto::default()
        };
        let entry = self.entries.entry(key.to_vec()).or_insert_with(|| full.clone());
        if entry.dtype != full.dtype || entry.shape != full.shape {
            return Err(invalid_argument!(
                "Slices of {} differ in type or shape of the whole tensor",
                String::from_utf8_lossy(key)
            ));
        }
        entry.slices.push(slice.to_proto());
        self.add(&slice_key(key, slice), tensor)
    }

    /// Writes the index and moves both files into place.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(mut self) -> Result<()> {
        match self.data.take() {
            Some(data) => data.close()?,
            None => return Err(internal!("BundleWriter is closed")),
        }
        self.files.rename(&self.data_path, &data_file_name(&self.prefix, 0, 1))?;
        let version = VersionDef { producer: VERSION, ..VersionDef::default() };
        let header = BundleHeaderProto { num_shards: 1, endianness: 0, version: Some(version) };
        write_index(&*self.files, &self.prefix, &header, &self.entries)
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        // After a successful end there is no such file any more.
        self.data = None;
        let _ = self.files.remove_file(&self.data_path);
    }
}

/// Writes an index beside its name and moves it into place.
pub(super) fn write_index(
    files: &dyn FileSystem,
    prefix: &Path,
    header: &BundleHeaderProto,
    entries: &BTreeMap<Vec<u8>, BundleEntryProto>,
) -> Result<()> {
    let path = index_file_name(prefix);
    let beside = temporary_name(&path);
    let write = || -> Result<()> {
        let mut table = TableBuilder::new(files.create(&beside)?);
        table.add(b"", &header.encode_to_vec())?;
        for (key, entry) in entries {
            table.add(key, &entry.encode_to_vec())?;
        }
        table.finish()?;
        files.rename(&beside, &path)
    };
    write().inspect_err(|_| {
        // The first error is the one to report.
        let _ = files.remove_file(&beside);
    })
}
