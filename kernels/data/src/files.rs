//! Datasets that read files: `TextLineDataset`, `TFRecordDataset`, `FixedLengthRecordDataset`; and small things about files.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, scalar, scalar_string};
use crate::state::{Reader, Writer};
use graphmill_formats::{Compression, FileSystem, FixedLength, FixedLengthReader, LineReader, RecordReader};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that a family may read and write.
pub(crate) type SharedFiles = Arc<dyn FileSystem>;

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    let kept = files.clone();
    dataset_ops(registry, &["TextLineDataset"], move |_| {
        let kept = kept.clone();
        Ok(move |ctx: &Context<'_>| {
            let (compression, buffer) = (compression(ctx, 1)?, buffer_size(ctx, 2)?);
            Files::new(ctx, &kept, Format::Lines { compression, buffer }, Vec::new())
        })
    });
    for (op, has_offsets) in [("TFRecordDataset", false), ("TFRecordDatasetV2", true)] {
        let kept = files.clone();
        dataset_ops(registry, &[op], move |_| {
            let kept = kept.clone();
            Ok(move |ctx: &Context<'_>| {
                let compression = compression(ctx, 1)?;
                // Newer clients leave the number open with -1.
                let open = scalar::<i64>(ctx, 2, "buffer_size")? == -1;
                let buffer = if open { DEFAULT_BUFFER } else { buffer_size(ctx, 2)? };
                let offsets = if has_offsets { ctx.input(3)?.to_i64_vec()? } else { Vec::new() };
                Files::new(ctx, &kept, Format::Records { compression, buffer }, offsets)
            })
        });
    }
    for (op, compressed) in [("FixedLengthRecordDataset", false), ("FixedLengthRecordDatasetV2", true)] {
        let kept = files.clone();
        dataset_ops(registry, &[op], move |_| {
            let kept = kept.clone();
            Ok(move |ctx: &Context<'_>| {
                let compression = if compressed { compression(ctx, 5)? } else { Compression::None };
                Files::new(ctx, &kept, fixed_length(ctx, compression)?, Vec::new())
            })
        });
    }
}

/// The path in a string.
pub(crate) fn path(name: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}

/// The first `limit` bytes of a file.
pub(crate) fn read_all(files: &dyn FileSystem, path: &Path, limit: usize) -> Result<Vec<u8>> {
    let file = files.open(path)?;
    let mut bytes = vec![0; limit.min(usize::try_from(file.size()?).unwrap_or(usize::MAX))];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Makes a file of these bytes.
pub(crate) fn write_all(files: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = files.create(path)?;
    file.write(bytes)?;
    file.close()
}

/// The compression that an input names.
pub(crate) fn compression(ctx: &Context<'_>, i: usize) -> Result<Compression> {
    let name = scalar_string(ctx, i, "compression_type")?;
    Compression::from_name(&name).ok_or_else(|| invalid_argument!("Unsupported compression_type."))
}

/// Bytes read at once where the number is left open.
const DEFAULT_BUFFER: usize = 256 << 10;
/// The most that is read at once, whatever is asked for.
const LARGEST_BUFFER: usize = 64 << 20;

/// The size of the buffer for reading in an input.
pub(crate) fn buffer_size(ctx: &Context<'_>, i: usize) -> Result<usize> {
    match usize::try_from(scalar::<i64>(ctx, i, "buffer_size")?) {
        Ok(0) => Ok(DEFAULT_BUFFER),
        Ok(size) => Ok(size.clamp(16, LARGEST_BUFFER)),
        Err(_) => Err(invalid_argument!("`buffer_size` must be >= 0 (0 == default)")),
    }
}

/// The names of files in an input: a scalar or a vector.
pub(crate) fn file_names(tensor: &Tensor) -> Result<Vec<Bytes>> {
    if tensor.shape().rank() > 1 {
        return Err(invalid_argument!("`filenames` must be a scalar or a vector."));
    }
    Ok(tensor.strings()?.to_vec())
}

fn fixed_length(ctx: &Context<'_>, compression: Compression) -> Result<Format> {
    let (header, record, footer): (i64, i64, i64) =
        (scalar(ctx, 1, "header_bytes")?, scalar(ctx, 2, "record_bytes")?, scalar(ctx, 3, "footer_bytes")?);
    if header < 0 {
        return Err(invalid_argument!("`header_bytes` must be >= 0"));
    }
    if record <= 0 {
        return Err(invalid_argument!("`record_bytes` must be > 0"));
    }
    if footer < 0 {
        return Err(invalid_argument!("`footer_bytes` must be >= 0"));
    }
    if scalar::<i64>(ctx, 4, "buffer_size")? < 0 {
        return Err(invalid_argument!("`buffer_size` must be >= 0"));
    }
    Ok(Format::FixedLength { header, record, footer, compression, buffer: buffer_size(ctx, 4)? })
}

/// What the files hold.
#[derive(Clone, Copy)]
enum Format {
    Lines { compression: Compression, buffer: usize },
    Records { compression: Compression, buffer: usize },
    FixedLength { header: i64, record: i64, footer: i64, compression: Compression, buffer: usize },
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Lines { .. } => "TextLine",
            Format::Records { .. } => "TFRecord",
            Format::FixedLength { .. } => "FixedLengthRecord",
        }
    }
}

/// The records of files, one file after the other.
struct Files {
    spec: Arc<Spec>,
    files: SharedFiles,
    names: Arc<Vec<Bytes>>,
    /// Where in each file to begin, if not at its start.
    offsets: Arc<Vec<i64>>,
    format: Format,
}

impl Files {
    fn new(ctx: &Context<'_>, files: &SharedFiles, format: Format, offsets: Vec<i64>) -> Result<Files> {
        let names = file_names(ctx.input(0)?)?;
        if !offsets.is_empty() && offsets.len() != names.len() {
            return Err(invalid_argument!("`byte_offsets` must have the same number of elements as `filenames`"));
        }
        let spec = Spec { types: vec![DType::String], shapes: vec![PartialShape::new(&[])?] };
        let (names, offsets) = (Arc::new(names), Arc::new(offsets));
        Ok(Files { spec: Arc::new(spec), files: files.clone(), names, offsets, format })
    }
}

impl Dataset for Files {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        self.format.name()
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(FilesIterator {
            files: self.files.clone(),
            names: self.names.clone(),
            offsets: self.offsets.clone(),
            format: self.format,
            file: 0,
            open: None,
            records: 0,
        }))
    }
}

enum Open {
    Lines(LineReader),
    Records(RecordReader),
    FixedLength(FixedLengthReader),
}

impl Open {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        match self {
            Open::Lines(reader) => reader.next(),
            Open::Records(reader) => reader.next(),
            Open::FixedLength(reader) => reader.next(),
        }
    }

    fn skip(&mut self) -> Result<bool> {
        match self {
            Open::Records(reader) => reader.skip(),
            other => Ok(other.next()?.is_some()),
        }
    }
}

struct FilesIterator {
    files: SharedFiles,
    names: Arc<Vec<Bytes>>,
    offsets: Arc<Vec<i64>>,
    format: Format,
    file: usize,
    open: Option<Open>,
    /// Records that have come from the open file.
    records: usize,
}

impl FilesIterator {
    fn open(&self, name: &Bytes) -> Result<Open> {
        let (files, file) = (&*self.files, path(name));
        match self.format {
            Format::Lines { compression, buffer } => {
                Ok(Open::Lines(LineReader::new(compression.open(files, &file, buffer)?)))
            }
            Format::Records { compression, buffer } => {
                let mut reader = RecordReader::new(compression.open(files, &file, buffer)?);
                if let Some(&offset) = self.offsets.get(self.file) {
                    reader.skip_to(
                        u64::try_from(offset).map_err(|_| invalid_argument!("`byte_offsets` must be >= 0"))?,
                    )?;
                }
                Ok(Open::Records(reader))
            }
            Format::FixedLength { header, record, footer, compression, buffer } => {
                let layout = FixedLength::new(header, record, footer, 0)?;
                if compression == Compression::None {
                    check_length(files, &file, &layout)?;
                }
                Ok(Open::FixedLength(FixedLengthReader::new(compression.open(files, &file, buffer)?, layout)?))
            }
        }
    }

    /// The open file, or the next one; `None` after the last.
    fn current(&mut self) -> Result<Option<&mut Open>> {
        if self.open.is_none() {
            let Some(name) = self.names.get(self.file) else { return Ok(None) };
            self.open = Some(self.open(&name.clone())?);
            self.records = 0;
        }
        Ok(self.open.as_mut())
    }

    fn close(&mut self) {
        self.open = None;
        self.records = 0;
        self.file += 1;
    }
}

/// A file's body is a whole number of records.
fn check_length(files: &dyn FileSystem, file: &Path, layout: &FixedLength) -> Result<()> {
    let size = files.open(file)?.size()?;
    let around = layout.header.saturating_add(layout.footer as u64);
    let body = i128::from(size) - i128::from(around);
    if body % layout.record as i128 == 0 && body >= 0 {
        return Ok(());
    }
    Err(invalid_argument!(
        "Excluding the header ({} bytes) and footer ({} bytes), input file \"{}\" has body length {body} bytes, which is not \
         an exact multiple of the record length ({} bytes).",
        layout.header,
        layout.footer,
        file.display(),
        layout.record
    ))
}

impl DatasetIterator for FilesIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            let Some(open) = self.current()? else { return Ok(None) };
            match open.next() {
                Ok(Some(record)) => {
                    self.records += 1;
                    return Ok(Some(vec![Tensor::from_strings(Shape::scalar(), vec![Bytes::from(record)])?]));
                }
                Ok(None) => self.close(),
                Err(error) => {
                    // The rest of a broken file is given up.
                    self.close();
                    return Err(error);
                }
            }
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin(self.format.name());
        writer.size(self.file);
        writer.bool(self.open.is_some());
        writer.size(self.records);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin(self.format.name())?;
        self.file = reader.size()?;
        let open = reader.bool()?;
        let records = reader.size()?;
        if open && let Some(file) = self.current()? {
            for _ in 0..records {
                if !file.skip()? {
                    break;
                }
            }
            self.records = records;
        }
        Ok(())
    }
}
