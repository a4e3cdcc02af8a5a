//! Files of elements. Version 2 is a record file with a serialized tensor in each record; versions 0 and 1 have a record for each
//! element, with nothing but its size in front.

use super::snappy::{SnappyFile, SnappyReader, compress, decompress};
use crate::dataset::Tuple;
use flate2::write::GzEncoder;
use graphmill_formats::{Compression, FileReader, FileSystem, RecordReader, RecordWriter, WritableFile, io_error};
use graphmill_tensor::{DType, Result, Shape, Tensor, data_loss, internal, invalid_argument};
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use graphmill_wire::tensorflow::{TensorProto, TensorShapeProto};
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// The version that new snapshots have.
pub(super) const VERSION: i64 = 2;
/// Bytes read at a time.
const BUFFER: usize = 256 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Stream(Compression),
    Snappy,
}

impl Packing {
    /// By name. Like TensorFlow's writer, an unknown one leaves files uncompressed.
    pub fn from_name(name: &[u8]) -> Packing {
        match name {
            b"SNAPPY" => Packing::Snappy,
            name => Packing::Stream(Compression::from_name(name).unwrap_or(Compression::None)),
        }
    }
}

/// Writes elements to a file of version 1 or 2.
pub(super) enum ElementWriter {
    Records(RecordWriter),
    Sized { file: Box<dyn WritableFile>, in_parts: bool },
}

impl ElementWriter {
    pub fn create(files: &dyn FileSystem, path: &Path, packing: Packing, version: i64) -> Result<ElementWriter> {
        let file = files.create(path)?;
        if version == VERSION {
            return Ok(ElementWriter::Records(match packing {
                Packing::Stream(compression) => RecordWriter::new(file, compression),
                Packing::Snappy => RecordWriter::new(Box::new(SnappyFile::new(file)), Compression::None),
            }));
        }
        Ok(match packing {
            Packing::Stream(Compression::None) => ElementWriter::Sized { file, in_parts: false },
            Packing::Stream(_) => ElementWriter::Sized { file: Box::new(GzipFile::new(file)), in_parts: false },
            Packing::Snappy => ElementWriter::Sized { file, in_parts: true },
        })
    }

    pub fn write(&mut self, element: &[Tensor]) -> Result<()> {
        if element.iter().any(|tensor| tensor.dtype() == DType::Resource) {
            return Err(invalid_argument!("A resource cannot be saved in a snapshot"));
        }
        match self {
            ElementWriter::Records(records) => {
                element.iter().try_for_each(|tensor| records.write(&tensor.to_proto().encode_to_vec()))
            }
            ElementWriter::Sized { file, in_parts: false } => {
                let tensor = element.iter().map(Tensor::to_proto).collect();
                write_sized(&mut **file, &ElementProto { tensor }.encode_to_vec())
            }
            ElementWriter::Sized { file, in_parts: true } => {
                let (mut layout, mut bytes) = (LayoutProto::default(), Vec::new());
                for tensor in element {
                    let start = bytes.len();
                    match tensor.as_bytes().filter(|_| is_plain(tensor.dtype())) {
                        Some(own) => bytes.extend_from_slice(own),
                        None => bytes.extend(tensor.to_proto().encode_to_vec()),
                    }
                    let dim = |size: i64| Dim { size, ..Dim::default() };
                    let shape =
                        TensorShapeProto { dim: tensor.shape().dims_i64().map(dim).collect(), unknown_rank: false };
                    let size = i64::try_from(bytes.len() - start).unwrap_or(i64::MAX);
                    layout.component.push(ComponentProto { shape: Some(shape), size });
                }
                write_sized(&mut **file, &layout.encode_to_vec())?;
                write_sized(&mut **file, &compress(&bytes)?)
            }
        }
    }

    pub fn close(self) -> Result<()> {
        match self {
            ElementWriter::Records(records) => records.close(),
            ElementWriter::Sized { file, .. } => file.close(),
        }
    }
}

fn write_sized(file: &mut dyn WritableFile, bytes: &[u8]) -> Result<()> {
    file.write(&(bytes.len() as u64).to_le_bytes())?;
    file.write(bytes)
}

/// A file compressed as one stream.
struct GzipFile {
    file: Box<dyn WritableFile>,
    encoder: GzEncoder<Vec<u8>>,
}

impl GzipFile {
    fn new(file: Box<dyn WritableFile>) -> GzipFile {
        GzipFile { file, encoder: GzEncoder::new(Vec::new(), flate2::Compression::default()) }
    }
}

impl WritableFile for GzipFile {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.encoder.write_all(bytes).map_err(|error| io_error("write", error))?;
        let ready = std::mem::take(self.encoder.get_mut());
        self.file.write(&ready)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        let rest = self.encoder.finish().map_err(|error| io_error("write", error))?;
        self.file.write(&rest)?;
        self.file.close()
    }
}

/// Reads elements of any version.
pub(super) enum ElementReader {
    Records(RecordReader),
    Sized { input: Box<dyn BufRead + Send>, in_parts: bool },
}

impl ElementReader {
    pub fn open(files: &dyn FileSystem, path: &Path, packing: Packing, version: i64) -> Result<ElementReader> {
        let blocks = || {
            let file = BufReader::with_capacity(BUFFER, FileReader::new(files.open(path)?));
            Ok::<_, graphmill_tensor::Status>(file)
        };
        let stream = || -> Result<Box<dyn BufRead + Send>> {
            match packing {
                Packing::Stream(compression) => compression.open(files, path, BUFFER),
                Packing::Snappy => Ok(Box::new(BufReader::with_capacity(BUFFER, SnappyReader::new(blocks()?)))),
            }
        };
        match version {
            0 => Ok(ElementReader::Sized { input: stream()?, in_parts: false }),
            1 if packing == Packing::Snappy => Ok(ElementReader::Sized { input: Box::new(blocks()?), in_parts: true }),
            1 => Ok(ElementReader::Sized { input: stream()?, in_parts: false }),
            VERSION => Ok(ElementReader::Records(RecordReader::new(stream()?))),
            _ => Err(invalid_argument!("Snapshot reader version: {version} is not supported.")),
        }
    }

    /// The next element, of these types; `None` at the end of the file.
    pub fn next(&mut self, types: &[DType]) -> Result<Option<Tuple>> {
        match self {
            ElementReader::Records(records) => {
                let mut element = Vec::with_capacity(types.len());
                for at in 0..types.len() {
                    match records.next()? {
                        Some(record) => element.push(parse(&record)?),
                        None if at == 0 => return Ok(None),
                        None => return Err(data_loss!("The last element of a snapshot file is cut off")),
                    }
                }
                // Elements without components leave no trace.
                Ok(if types.is_empty() { None } else { Some(element) })
            }
            ElementReader::Sized { input, in_parts: false } => {
                let Some(record) = sized(&mut **input)? else { return Ok(None) };
                let record = ElementProto::decode(record.as_slice());
                let record = record.map_err(|_| data_loss!("Unable to parse tensor from proto."))?;
                record.tensor.iter().map(Tensor::from_proto).collect::<Result<Tuple>>().map(Some)
            }
            ElementReader::Sized { input, in_parts: true } => {
                let Some(layout) = sized(&mut **input)? else { return Ok(None) };
                let layout = LayoutProto::decode(layout.as_slice());
                let layout = layout.map_err(|_| data_loss!("Could not parse SnapshotTensorMetadata"))?;
                let parts = sized(&mut **input)?.ok_or_else(|| data_loss!("A snapshot file is cut off"))?;
                parts_of(&layout, &decompress(&parts)?, types).map(Some)
            }
        }
    }
}

/// A run of bytes with its size in front; `None` at the end.
fn sized(input: &mut dyn BufRead) -> Result<Option<Vec<u8>>> {
    let mut take = |count: u64| {
        let mut bytes = Vec::new();
        input.take(count).read_to_end(&mut bytes).map_err(|error| io_error("read", error))?;
        Ok::<_, graphmill_tensor::Status>(bytes)
    };
    let size = take(8)?;
    if size.is_empty() {
        return Ok(None);
    }
    let cut_off = || data_loss!("A snapshot file is cut off");
    let size = u64::from_le_bytes(size.try_into().map_err(|_| cut_off())?);
    let bytes = take(size)?;
    if bytes.len() as u64 == size { Ok(Some(bytes)) } else { Err(cut_off()) }
}

fn parse(record: &[u8]) -> Result<Tensor> {
    let proto = TensorProto::decode(record);
    let proto = proto.map_err(|_| data_loss!("Unable to parse tensor from stored proto."))?;
    Tensor::from_proto(&proto)
}

/// Whether a tensor of this type is stored as its bytes.
fn is_plain(dtype: DType) -> bool {
    !matches!(dtype, DType::String | DType::Resource | DType::Variant)
}

/// The components that stand one after the other in `bytes`.
fn parts_of(layout: &LayoutProto, mut bytes: &[u8], types: &[DType]) -> Result<Tuple> {
    if layout.component.len() != types.len() {
        let (found, expected) = (layout.component.len(), types.len());
        return Err(data_loss!("An element of a snapshot has {found} components instead of {expected}"));
    }
    let mut element = Vec::with_capacity(types.len());
    for (component, &dtype) in layout.component.iter().zip(types) {
        let size = usize::try_from(component.size).ok().filter(|&size| size <= bytes.len());
        let size = size.ok_or_else(|| internal!("Uncompressed size mismatch in a snapshot"))?;
        let (own, rest) = bytes.split_at(size);
        bytes = rest;
        if !is_plain(dtype) {
            element.push(parse(own)?);
            continue;
        }
        let dims: Vec<i64> = component.shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.size).collect();
        let shape = Shape::new(&dims)?;
        if shape.num_elements().checked_mul(dtype.size()) != Some(size) {
            return Err(internal!("Uncompressed size mismatch in a snapshot"));
        }
        let own = graphmill_tensor::Bytes::copy_from_slice(own);
        element.push(Tensor::from_bytes(dtype, shape, own)?);
    }
    Ok(element)
}

/// `SnapshotRecord`.
#[derive(Clone, PartialEq, prost::Message)]
struct ElementProto {
    #[prost(message, repeated, tag = "1")]
    tensor: Vec<TensorProto>,
}

/// `SnapshotTensorMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
struct LayoutProto {
    #[prost(message, repeated, tag = "1")]
    component: Vec<ComponentProto>,
}

/// `TensorMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
struct ComponentProto {
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShapeProto>,
    #[prost(int64, tag = "3")]
    size: i64,
}
