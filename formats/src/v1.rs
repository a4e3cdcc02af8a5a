//! Checkpoints of the first version: one table, with a list of what is in it under the empty key, and messages with the values.

use crate::file_system::temporary_name;
use crate::ordered_code::slice_key;
use crate::versions::check_versions;
use crate::{FileSystem, Table, TableBuilder, TensorSlice};
use graphmill_tensor::{
    Code, DType, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Shape, Tensor, data_loss, decode_shape, dispatch,
    encode_shape, f16, internal, invalid_argument, not_found, unimplemented_op,
};
use graphmill_wire::tensorflow::{
    SavedSlice, SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices, TensorProto, VersionDef,
};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of the format.
const VERSION: i32 = 1;
/// The largest message that all readers take.
const MAX_MESSAGE: usize = 1 << 31;

/// A checkpoint of the first version open for reading: one file or several.
pub struct SliceReader {
    tables: Vec<Table>,
    tensors: HashMap<Vec<u8>, Stored>,
}

/// What the lists say of a tensor.
struct Stored {
    dtype: DType,
    shape: Shape,
    /// Its blocks, and the file that each is in.
    slices: Vec<(TensorSlice, usize)>,
}

impl SliceReader {
    /// Opens the files that match a pattern.
    ///
    /// # Errors
    /// `NOT_FOUND` if there are none, `PERMISSION_DENIED` if they must not be seen, `DATA_LOSS` if one is no table, `INTERNAL` if it has no list.
    pub fn open(files: &dyn FileSystem, pattern: &Path) -> Result<SliceReader> {
        let failed = "Unsuccessful TensorSliceReader constructor: Failed to";
        let names = files.matching(pattern).map_err(|error| match error.code() {
            Code::PermissionDenied => error,
            _ => invalid_argument!("{failed} get matching files on {}: {error}", pattern.display()),
        })?;
        if names.is_empty() {
            return Err(not_found!("{failed} find any matching files for {}", pattern.display()));
        }
        let mut reader = SliceReader { tables: Vec::new(), tensors: HashMap::new() };
        for name in names {
            let name = String::from_utf8_lossy(&name).into_owned();
            reader.load(files, Path::new(&name))?;
        }
        Ok(reader)
    }

    fn load(&mut self, files: &dyn FileSystem, path: &Path) -> Result<()> {
        let table = Table::open(files, path).map_err(|error| {
            let hint =
                ": perhaps your file is in a different file format and you need to use a different restore operator?";
            data_loss!("Unable to open table file {}: {error}{hint}", path.display())
        })?;
        let list = table.get(b"").ok().flatten().and_then(|value| SavedTensorSlices::decode(value.as_slice()).ok());
        let Some(list) = list else {
            return Err(internal!(
                "Failed to find the saved tensor slices at the beginning of the checkpoint file: {}",
                path.display()
            ));
        };
        let list = list.meta.unwrap_or_default();
        check_versions(&list.versions.unwrap_or_default(), VERSION, 0)?;
        for meta in &list.tensor {
            self.register(meta, self.tables.len())?;
        }
        self.tables.push(table);
        Ok(())
    }

    fn register(&mut self, meta: &SavedSliceMeta, file: usize) -> Result<()> {
        let shape = meta.shape.as_ref().map_or(Ok(Shape::scalar()), decode_shape)?;
        let Some(dtype) = DType::from_number(meta.r#type) else {
            return Err(data_loss!("Invalid data type {} of tensor {}", meta.r#type, meta.name));
        };
        let stored = self.tensors.entry(meta.name.clone().into_bytes()).or_insert_with(|| Stored {
            dtype,
            shape: shape.clone(),
            slices: Vec::new(),
        });
        if stored.shape != shape {
            return Err(internal!(
                "Incompatible tensor shapes detected for tensor {}: existing = {}, new = {shape}",
                meta.name,
                stored.shape
            ));
        }
        if stored.dtype != dtype {
            return Err(internal!(
                "Incompatible tensor types detected for tensor {}: existing = {}, new = {dtype}",
                meta.name,
                stored.dtype
            ));
        }
        for proto in &meta.slice {
            let slice = TensorSlice::from_proto(proto)?;
            slice.shape_of(&shape)?;
            for (other, _) in &stored.slices {
                if slice.common_elements(other, &shape)? > 0 {
                    return Err(internal!("Overlapping slices: existing slice = {other}, new slice = {slice}"));
                }
            }
            stored.slices.push((slice, file));
        }
        Ok(())
    }

    /// Element type and shape of a tensor, of all of it if it is stored in parts; `None` if it is not there.
    pub fn dtype_and_shape(&self, name: &[u8]) -> Option<(DType, &Shape)> {
        self.tensors.get(name).map(|stored| (stored.dtype, &stored.shape))
    }

    /// A block of a tensor.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the stored blocks do not cover it or are not what the list says.
    pub fn slice(&self, name: &[u8], wanted: &TensorSlice) -> Result<Tensor> {
        let failed = || invalid_argument!("Error copying slice data");
        let stored = self.tensors.get(name).ok_or_else(failed)?;
        let shape = wanted.shape_of(&stored.shape)?;
        let mut covered = 0;
        let mut parts = Vec::new();
        for (slice, file) in &stored.slices {
            let common = slice.common_elements(wanted, &stored.shape)?;
            if common > 0 {
                covered += common;
                parts.push((slice, self.part(name, stored, slice, *file).ok_or_else(failed)?));
            }
        }
        if covered != shape.num_elements() {
            return Err(failed());
        }
        if let [(slice, _)] = parts.as_slice()
            && slice.shape_of(&stored.shape)? == shape
        {
            return parts.pop().map(|(_, part)| part).ok_or_else(failed);
        }
        let mut tensor = Tensor::alloc(stored.dtype, shape)?;
        for (slice, part) in &parts {
            slice.copy_common(part, wanted, &mut tensor, &stored.shape)?;
        }
        Ok(tensor)
    }

    /// A stored block; `None` if it is not there, broken, or not of the size that it should have.
    fn part(&self, name: &[u8], stored: &Stored, slice: &TensorSlice, file: usize) -> Option<Tensor> {
        let value = self.tables.get(file)?.get(&slice_key(name, slice)).ok()??;
        let mut proto = SavedTensorSlices::decode(value.as_slice()).ok()?.data?.data?;
        let shape = slice.shape_of(&stored.shape).ok()?;
        if count(&proto, stored.dtype)? != shape.num_elements() {
            return None;
        }
        proto.tensor_content = Default::default();
        proto.dtype = stored.dtype.number();
        proto.tensor_shape = Some(encode_shape(&shape));
        Tensor::from_proto(&proto).ok()
    }
}

/// How many values of a type a message holds; `None` for a type that these checkpoints do not have.
fn count(proto: &TensorProto, dtype: DType) -> Option<usize> {
    use DType::*;
    match dtype {
        Float => Some(proto.float_val.len()),
        Double => Some(proto.double_val.len()),
        Int32 | UInt8 | Int16 | Int8 | UInt16 | QInt8 | QUInt8 | QInt32 | QInt16 | QUInt16 => Some(proto.int_val.len()),
        Half => Some(proto.half_val.len()),
        String => Some(proto.string_val.len()),
        Complex64 => Some(proto.scomplex_val.len() / 2),
        Complex128 => Some(proto.dcomplex_val.len() / 2),
        Int64 => Some(proto.int64_val.len()),
        UInt32 => Some(proto.uint32_val.len()),
        UInt64 => Some(proto.uint64_val.len()),
        Bool => Some(proto.bool_val.len()),
        _ => None,
    }
}

/// The values of a tensor in the field of its type.
fn values(tensor: &Tensor) -> Result<TensorProto> {
    let mut proto = TensorProto::default();
    match tensor.dtype() {
        DType::Float => proto.float_val = tensor.as_slice::<f32>()?.to_vec(),
        DType::Double => proto.double_val = tensor.as_slice::<f64>()?.to_vec(),
        DType::Int64 => proto.int64_val = tensor.as_slice::<i64>()?.to_vec(),
        DType::UInt32 => proto.uint32_val = tensor.as_slice::<u32>()?.to_vec(),
        DType::UInt64 => proto.uint64_val = tensor.as_slice::<u64>()?.to_vec(),
        DType::Bool => proto.bool_val = tensor.as_slice::<bool>()?.to_vec(),
        DType::String => proto.string_val = tensor.strings()?.to_vec(),
        DType::Half => proto.half_val = tensor.as_slice::<f16>()?.iter().map(|v| i32::from(v.to_bits())).collect(),
        DType::Complex64 => {
            let numbers = tensor.as_slice::<graphmill_tensor::Complex32>()?;
            proto.scomplex_val = numbers.iter().flat_map(|v| [v.re, v.im]).collect();
        }
        DType::Complex128 => {
            let numbers = tensor.as_slice::<graphmill_tensor::Complex64>()?;
            proto.dcomplex_val = numbers.iter().flat_map(|v| [v.re, v.im]).collect();
        }
        dtype => {
            let small = dispatch!(dtype, T in [i32, u8, i16, i8, u16, QInt8, QUInt8, QInt32, QInt16, QUInt16] => {
                tensor.as_slice::<T>()?.iter().map(|&v| SmallInteger::widen(v)).collect::<Vec<i32>>()
            });
            proto.int_val = small.ok_or_else(|| unimplemented_op!("Saving data type {dtype} not yet supported"))?;
        }
    }
    Ok(proto)
}

trait SmallInteger {
    fn widen(self) -> i32;
}

macro_rules! small_integers {
    ($($plain:ty),*; $($quantised:ty),*) => {
        $(impl SmallInteger for $plain {
            fn widen(self) -> i32 { i32::from(self) }
        })*
        $(impl SmallInteger for $quantised {
            fn widen(self) -> i32 { i32::from(self.0) }
        })*
    };
}

small_integers!(i32, u8, i16, i8, u16; QInt8, QUInt8, QInt32, QInt16, QUInt16);

/// A checkpoint of the first version under way. Values are gathered in memory, as their keys have to be in order.
pub struct SliceWriter {
    files: Arc<dyn FileSystem>,
    path: PathBuf,
    list: SavedTensorSliceMeta,
    indices: HashMap<String, usize>,
    data: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl SliceWriter {
    /// Starts a file; nothing is there before [`SliceWriter::finish`].
    pub fn new(files: Arc<dyn FileSystem>, path: &Path) -> SliceWriter {
        let versions = Some(VersionDef { producer: VERSION, ..VersionDef::default() });
        let list = SavedTensorSliceMeta { versions, ..SavedTensorSliceMeta::default() };
        SliceWriter { files, path: path.to_owned(), list, indices: HashMap::new(), data: BTreeMap::new() }
    }

    /// Adds a block of a tensor of a shape.
    ///
    /// # Errors
    /// `INTERNAL` if another block said otherwise of the whole tensor, `UNIMPLEMENTED` for a type that the format does not have,
    /// `INVALID_ARGUMENT` for a block too large for a message.
    pub fn add(&mut self, name: &str, shape: &Shape, slice: &TensorSlice, tensor: &Tensor) -> Result<()> {
        let dtype = tensor.dtype();
        let size = match dtype {
            DType::String => tensor.strings()?.iter().map(|s| s.len() + 10).sum(),
            _ => tensor.num_elements().saturating_mul(dtype.size().max(if dtype.is_integer() { 10 } else { 1 })),
        };
        let bound = name.len().saturating_add(size).saturating_add(1 << 10);
        if bound > MAX_MESSAGE {
            return Err(invalid_argument!(
                "Tensor slice is too large to serialize (conservative estimate: {bound} bytes)"
            ));
        }
        let data = SavedSlice { name: name.to_owned(), slice: Some(slice.to_proto()), data: Some(values(tensor)?) };
        let proto_shape = encode_shape(shape);
        let index = *self.indices.entry(name.to_owned()).or_insert_with(|| {
            self.list.tensor.push(SavedSliceMeta {
                name: name.to_owned(),
                shape: Some(proto_shape.clone()),
                r#type: dtype.number(),
                slice: Vec::new(),
            });
            self.list.tensor.len() - 1
        });
        let meta = self.list.tensor.get_mut(index).ok_or_else(|| internal!("a tensor is not in the list"))?;
        if meta.shape.as_ref() != Some(&proto_shape) {
            return Err(internal!("Mismatching shapes: trying to add name {name}, shape = {shape}"));
        }
        if meta.r#type != dtype.number() {
            return Err(internal!("Mismatching types: trying to add name {name}, type = {dtype}"));
        }
        meta.slice.push(slice.to_proto());
        let record = SavedTensorSlices { meta: None, data: Some(data) };
        self.data.insert(slice_key(name.as_bytes(), slice), record.encode_to_vec());
        Ok(())
    }

    /// Writes the file beside its name and moves it into place.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(self) -> Result<()> {
        let beside = temporary_name(&self.path);
        let write = || -> Result<()> {
            let mut table = TableBuilder::new(self.files.create(&beside)?);
            table.add(b"", &SavedTensorSlices { meta: Some(self.list), data: None }.encode_to_vec())?;
            for (key, value) in &self.data {
                table.add(key, value)?;
            }
            table.finish()?;
            self.files.rename(&beside, &self.path)
        };
        write().inspect_err(|_| {
            // The first error is the one to report.
            let _ = self.files.remove_file(&beside);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFileSystem;
    use graphmill_tensor::Bytes;

    #[test]
    fn blocks_and_types_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
        let shape = Shape::from_dims(&[3, 2]).unwrap();
        let mut writer = SliceWriter::new(files.clone(), &path);
        let part =
            |dims: &[usize], values: &[f32]| Tensor::from_slice(Shape::from_dims(dims).unwrap(), values).unwrap();
        let slice = |text: &str| TensorSlice::parse(text).unwrap();
        writer.add("v", &shape, &slice("0,1:-"), &part(&[1, 2], &[0.0, 1.0])).unwrap();
        writer.add("v", &shape, &slice("1,2:-"), &part(&[2, 2], &[2.0, 3.0, 4.0, 5.0])).unwrap();
        let strings = Tensor::from_strings(Shape::vector(2), vec![Bytes::from("a"), Bytes::from("b")]).unwrap();
        writer.add("s", strings.shape(), &TensorSlice::whole(1), &strings).unwrap();
        let small = Tensor::vector(&[-1i8, 5]).unwrap();
        writer.add("i8", small.shape(), &TensorSlice::whole(1), &small).unwrap();
        assert!(writer.add("i8", &shape, &TensorSlice::whole(2), &small).is_err());
        writer.finish().unwrap();
        let reader = SliceReader::open(&*files, &path).unwrap();
        let whole = reader.slice(b"v", &TensorSlice::whole(2)).unwrap();
        assert_eq!(whole.as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(reader.slice(b"v", &slice("0,3:1,1")).unwrap().as_slice::<f32>().unwrap(), [1.0, 3.0, 5.0]);
        assert_eq!(reader.slice(b"s", &TensorSlice::whole(1)).unwrap().strings().unwrap()[1].as_ref(), b"b");
        assert_eq!(reader.slice(b"i8", &TensorSlice::whole(1)).unwrap().as_slice::<i8>().unwrap(), [-1, 5]);
        assert_eq!(reader.dtype_and_shape(b"v").unwrap().1, &shape);
        assert!(reader.dtype_and_shape(b"w").is_none());
        let error = SliceReader::open(&*files, &directory.path().join("other")).err().unwrap();
        assert_eq!(error.code(), Code::NotFound);
        files.replace(&path, &[7; 500]).unwrap();
        assert_eq!(SliceReader::open(&*files, &path).err().unwrap().code(), Code::DataLoss);
    }
}
