//! Reading a checkpoint.

use super::data::{read_plain, read_strings, read_variants, swap_bytes};
use super::merge::of_another_task;
use super::{VERSION, corrupt, data_file_name, decode, index_file_name};
use crate::ordered_code::slice_key;
use crate::versions::check_versions;
use crate::{FileSystem, RandomAccessFile, Table, TensorSlice, unmask};
use graphmill_tensor::{
    DType, Result, Shape, Tensor, data_loss, decode_shape, internal, invalid_argument, not_found, out_of_range,
};
use graphmill_wire::tensorflow::bundle_header_proto::Endianness;
use graphmill_wire::tensorflow::{BundleEntryProto, BundleHeaderProto};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A checkpoint open for reading. Every tensor is read straight into its own memory and checked against its checksum.
pub struct BundleReader {
    files: Arc<dyn FileSystem>,
    prefix: PathBuf,
    table: Table,
    shards: i32,
    swap: bool,
    data: HashMap<i32, Box<dyn RandomAccessFile>>,
}

/// What the index says of a tensor.
struct Entry {
    proto: BundleEntryProto,
    dtype: DType,
    shape: Shape,
}

impl BundleReader {
    /// Opens the checkpoint `prefix`.
    ///
    /// # Errors
    /// `NOT_FOUND` without an index, `DATA_LOSS` for a broken one, `INVALID_ARGUMENT` for one of another version.
    pub fn open(files: Arc<dyn FileSystem>, prefix: &Path) -> Result<BundleReader> {
        let index = index_file_name(prefix);
        let table = Table::open(&*files, &index)?;
        let header = read_header(&table, &index)?;
        if let Some(version) = &header.version {
            check_versions(version, VERSION, 0)?;
        }
        let swap = header.endianness == Endianness::Big as i32;
        let prefix = prefix.to_owned();
        Ok(BundleReader { files, prefix, table, shards: header.num_shards, swap, data: HashMap::new() })
    }

    /// Element type and shape of a tensor, of all of it if it is stored in parts.
    ///
    /// # Errors
    /// `NOT_FOUND` if the checkpoint does not have it.
    pub fn dtype_and_shape(&self, key: &[u8]) -> Result<(DType, Shape)> {
        let entry = self.entry(key)?;
        Ok((entry.dtype, entry.shape))
    }

    /// A whole tensor.
    ///
    /// # Errors
    /// `NOT_FOUND` if the checkpoint does not have it, `DATA_LOSS` if its bytes are not those that were written.
    pub fn tensor(&mut self, key: &[u8]) -> Result<Tensor> {
        let entry = self.entry(key)?;
        if entry.proto.slices.is_empty() {
            return self.value(key, &entry);
        }
        let whole = TensorSlice::whole(entry.shape.rank());
        self.assemble(key, &entry, &whole)
    }

    /// A block of a tensor, put together from stored blocks where it was stored in parts.
    ///
    /// # Errors
    /// As [`BundleReader::tensor`], and `INVALID_ARGUMENT` if the stored blocks do not cover it.
    pub fn slice(&mut self, key: &[u8], slice: &TensorSlice) -> Result<Tensor> {
        let entry = self.entry(key)?;
        self.assemble(key, &entry, slice)
    }

    fn entry(&self, key: &[u8]) -> Result<Entry> {
        let name = String::from_utf8_lossy(key);
        let Some(value) = self.table.get(key)? else {
            return Err(not_found!("Key {name} not found in checkpoint"));
        };
        let proto: BundleEntryProto = decode(key, &value)?;
        let shape = proto.shape.as_ref().map_or(Ok(Shape::scalar()), decode_shape);
        let shape = shape.map_err(|error| data_loss!("Invalid tensor shape: {name} {}", error.message()))?;
        let Some(dtype) = DType::from_number(proto.dtype) else {
            return Err(data_loss!("Invalid data type in bundle entry: key {name}; {}", proto.dtype));
        };
        Ok(Entry { proto, dtype, shape })
    }

    /// The data file that an entry lies in, and where, after a check that the file has that much.
    fn place(&mut self, entry: &BundleEntryProto) -> Result<(&dyn RandomAccessFile, u64, u64)> {
        let file = match self.data.entry(entry.shard_id) {
            std::collections::hash_map::Entry::Occupied(file) => file.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let path = data_file_name(&self.prefix, entry.shard_id, self.shards);
                let part = || format!("data of {}", self.prefix.display());
                place.insert(self.files.open(&path).map_err(|error| of_another_task(error, part))?)
            }
        };
        let (Ok(offset), Ok(size)) = (u64::try_from(entry.offset), u64::try_from(entry.size)) else {
            return Err(data_loss!("Invalid place in bundle entry: {} bytes at {}", entry.size, entry.offset));
        };
        if offset.checked_add(size).is_none_or(|end| file.size().is_ok_and(|have| end > have)) {
            return Err(out_of_range!("Read less bytes than requested"));
        }
        Ok((&**file, offset, size))
    }

    /// Checks the stored size of a tensor before memory is reserved for it.
    fn check_size(key: &[u8], entry: &Entry) -> Result<()> {
        let count = entry.shape.num_elements();
        let (fits, expected) = match entry.dtype {
            // Every string and every value takes a byte at least, and strings a checksum.
            DType::String | DType::Variant => (count == 0 || entry.proto.size >= count as i64, count),
            DType::Resource => return Err(invalid_argument!("Dtype resource not supported.")),
            dtype => {
                let bytes = count.saturating_mul(dtype.size());
                (i64::try_from(bytes) == Ok(entry.proto.size), bytes)
            }
        };
        if fits {
            return Ok(());
        }
        let (name, least) =
            (String::from_utf8_lossy(key), if entry.dtype.is_fixed_size() { "" } else { "is at least " });
        Err(data_loss!(
            "Invalid size in bundle entry: key {name}; stored size {}; expected size {least}{expected}",
            entry.proto.size
        ))
    }

    fn check_sum(&self, entry: &BundleEntryProto, actual: u32) -> Result<()> {
        let stored = unmask(entry.crc32c);
        if stored == actual {
            return Ok(());
        }
        Err(data_loss!(
            "TensorBundle at {} shard {} ({} bytes): Checksum does not match: stored {stored:08} vs. calculated on the restored \
             bytes {actual}",
            self.prefix.display(),
            entry.shard_id,
            entry.size
        ))
    }

    /// The tensor of an entry that has data of its own.
    fn value(&mut self, key: &[u8], entry: &Entry) -> Result<Tensor> {
        Self::check_size(key, entry)?;
        let count = entry.shape.num_elements();
        if entry.dtype.is_fixed_size() {
            self.place(&entry.proto)?;
            let mut tensor = Tensor::alloc(entry.dtype, entry.shape.clone())?;
            self.value_into(entry, &mut tensor, 0)?;
            return Ok(tensor);
        }
        if self.swap && entry.dtype == DType::Variant {
            return Err(graphmill_tensor::unimplemented_op!(
                "TensorBundle at {} is of a different endianness than this machine's hardware, and the bundle contains a variant \
                 tensor",
                self.prefix.display()
            ));
        }
        let (file, offset, size) = self.place(&entry.proto)?;
        if count == 0 && size == 0 {
            return Tensor::alloc(entry.dtype, entry.shape.clone());
        }
        let bytes = file.read_range(offset, size)?;
        let (tensor, crc) = if entry.dtype == DType::String {
            let (strings, crc) = read_strings(bytes.into(), count, offset.saturating_add(size), self.swap)?;
            (Tensor::from_strings(entry.shape.clone(), strings)?, crc)
        } else {
            let (variants, crc) = read_variants(&bytes, count)?;
            (Tensor::from_variants(entry.shape.clone(), variants)?, crc)
        };
        self.check_sum(&entry.proto, crc)?;
        Ok(tensor)
    }

    /// Reads the elements of an entry into a tensor, from its element `at` on.
    fn value_into(&mut self, entry: &Entry, tensor: &mut Tensor, at: usize) -> Result<()> {
        let (file, offset, _) = self.place(&entry.proto)?;
        let elements = at..at.saturating_add(entry.shape.num_elements());
        let crc = read_plain(file, offset, tensor, elements.clone())?;
        self.check_sum(&entry.proto, crc)?;
        if self.swap { swap_bytes(tensor, elements) } else { Ok(()) }
    }

    fn assemble(&mut self, key: &[u8], full: &Entry, wanted: &TensorSlice) -> Result<Tensor> {
        let shape = wanted.shape_of(&full.shape)?;
        let stored = stored_slices(key, full)?;
        if let Some(same) = stored.iter().find(|slice| *slice == wanted) {
            let entry = self.slice_entry(key, full, same)?;
            return self.value(key, &entry);
        }
        let mut covered = 0;
        let mut parts = Vec::new();
        for slice in &stored {
            let common = slice.common_elements(wanted, &full.shape)?;
            if common > 0 {
                covered += common;
                parts.push((slice, common));
            }
        }
        if covered != shape.num_elements() {
            return Err(invalid_argument!(
                "Does not have sufficient slices for partitioned tensor {} to restore in slice_spec: {wanted}",
                String::from_utf8_lossy(key)
            ));
        }
        // Looked at before memory is reserved: a made-up shape may be of any size.
        let entries = parts.iter().map(|(slice, _)| self.slice_entry(key, full, slice)).collect::<Result<Vec<_>>>()?;
        for entry in &entries {
            Self::check_size(key, entry)?;
            self.place(&entry.proto)?;
        }
        let mut tensor = Tensor::alloc(full.dtype, shape)?;
        for ((slice, common), entry) in parts.into_iter().zip(entries) {
            let runs = slice.common_runs(wanted, &full.shape)?;
            match runs.as_slice() {
                // All of the stored block lies in one piece of what is wanted, so that no other memory is needed.
                [(0, at, _)] if common == entry.shape.num_elements() && full.dtype.is_fixed_size() => {
                    self.value_into(&entry, &mut tensor, *at)?;
                }
                _ => {
                    let part = self.value(key, &entry)?;
                    slice.copy_common(&part, wanted, &mut tensor, &full.shape)?;
                }
            }
        }
        Ok(tensor)
    }

    /// The entry of a stored block.
    fn slice_entry(&self, key: &[u8], full: &Entry, slice: &TensorSlice) -> Result<Entry> {
        if full.proto.slices.is_empty() {
            return self.entry(key);
        }
        let entry = self.entry(&slice_key(key, slice))?;
        if entry.dtype != full.dtype || entry.shape != slice.shape_of(&full.shape)? || !entry.proto.slices.is_empty() {
            return Err(data_loss!(
                "Entry for slice {slice} of key {} does not match the tensor's",
                String::from_utf8_lossy(key)
            ));
        }
        Ok(entry)
    }
}

/// The header of an index.
pub(super) fn read_header(table: &Table, index: &Path) -> Result<BundleHeaderProto> {
    let first = table.entries().and_then(|mut entries| entries.next());
    match first {
        Ok(Some((key, value))) => {
            decode(&key, &value).map_err(|error| corrupt(index, "unable to parse header", Some(error)))
        }
        Ok(None) => Err(corrupt(index, "failed to seek to header entry", None)),
        Err(error) => Err(corrupt(index, "failed to seek to header entry", Some(error))),
    }
}

/// The blocks in which a tensor is stored; one for all of it if it was not cut.
fn stored_slices(key: &[u8], full: &Entry) -> Result<Vec<TensorSlice>> {
    if full.proto.slices.is_empty() {
        return Ok(vec![TensorSlice::whole(full.shape.rank())]);
    }
    let mut slices: Vec<TensorSlice> = Vec::with_capacity(full.proto.slices.len());
    for proto in &full.proto.slices {
        let slice = TensorSlice::from_proto(proto)?;
        slice.shape_of(&full.shape)?;
        slices.push(slice);
    }
    check_disjoint(key, &slices, &full.shape)?;
    Ok(slices)
}

/// Blocks that share elements would make a cover with holes look complete.
fn check_disjoint(key: &[u8], slices: &[TensorSlice], shape: &Shape) -> Result<()> {
    for (i, slice) in slices.iter().enumerate() {
        for other in slices.iter().take(i) {
            if slice.common_elements(other, shape)? > 0 {
                return Err(internal!(
                    "Overlapping slices: existing slice = {other}, new slice = {slice}, of tensor {}",
                    String::from_utf8_lossy(key)
                ));
            }
        }
    }
    Ok(())
}
