//! Keys and values from the lines of a text file.

use graphmill_formats::{FileReader, FileSystem, io_error};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument, out_of_range};
use std::io::Read;
use std::path::Path;

/// What of a line is the key, or the value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Column {
    WholeLine,
    LineNumber,
    At(usize),
}

impl Column {
    /// From the op's attribute, which is at least -2.
    pub fn new(index: i64) -> Column {
        match index {
            -1 => Column::LineNumber,
            index => usize::try_from(index).map_or(Column::WholeLine, Column::At),
        }
    }
}

/// A file and how to read it.
pub(crate) struct TextFile<'a> {
    pub name: &'a str,
    pub delimiter: u8,
    pub key: Column,
    pub value: Column,
    pub vocab_size: Option<usize>,
    pub offset: i64,
}

impl TextFile<'_> {
    /// The keys and values of the lines.
    ///
    /// # Errors
    /// As [`FileSystem::open`], `INVALID_ARGUMENT` for an empty line, too few columns, fields that are not numbers, or too few lines; `OUT_OF_RANGE` for an
    /// empty file.
    pub fn read(&self, files: &dyn FileSystem, key_dtype: DType, value_dtype: DType) -> Result<(Tensor, Tensor)> {
        let mut content = Vec::new();
        let mut reader = FileReader::new(files.open(Path::new(self.name))?);
        reader.read_to_end(&mut content).map_err(|error| io_error(self.name, error))?;
        let content = Bytes::from(content);
        let (mut keys, mut values) = (Fields::new(key_dtype), Fields::new(value_dtype));
        let mut lines = 0;
        let mut position = 0;
        while position < content.len() {
            let end = content[position..].iter().position(|&b| b == b'\n').map_or(content.len(), |n| position + n);
            let mut line = content.slice(position..end);
            position = (end + 1).min(content.len());
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if self.vocab_size.is_some_and(|size| lines >= size) {
                break;
            }
            if line.is_empty() {
                return Err(invalid_argument!(
                    "Invalid content in {}: empty line found at position {position}.",
                    self.name
                ));
            }
            self.check_columns(&line, lines)?;
            keys.push(self.key, &line, self, lines)?;
            values.push(self.value, &line, self, lines)?;
            lines += 1;
        }
        if let Some(size) = self.vocab_size.filter(|&size| size != lines) {
            return Err(invalid_argument!("Invalid vocab_size in {}: expected {size} but got {lines}", self.name));
        }
        if lines == 0 {
            return Err(out_of_range!("eof"));
        }
        Ok((keys.into_tensor()?, values.into_tensor()?))
    }

    fn check_columns(&self, line: &Bytes, number: usize) -> Result<()> {
        let last =
            [self.key, self.value].into_iter().filter_map(|c| if let Column::At(i) = c { Some(i) } else { None });
        let Some(last) = last.max() else { return Ok(()) };
        let columns = line.split(|&b| b == self.delimiter).count();
        if last < columns {
            return Ok(());
        }
        Err(invalid_argument!(
            "Invalid number of columns in {} line {number} ({}) : expected {last} got {columns}",
            self.name,
            String::from_utf8_lossy(line)
        ))
    }
}

/// The fields of one column.
enum Fields {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Text(Vec<Bytes>),
    Other(DType),
}

impl Fields {
    fn new(dtype: DType) -> Fields {
        match dtype {
            DType::Int32 => Fields::Int32(Vec::new()),
            DType::Int64 => Fields::Int64(Vec::new()),
            DType::Float => Fields::Float(Vec::new()),
            DType::Double => Fields::Double(Vec::new()),
            DType::String => Fields::Text(Vec::new()),
            other => Fields::Other(other),
        }
    }

    fn push(&mut self, column: Column, line: &Bytes, file: &TextFile<'_>, number: usize) -> Result<()> {
        let field = match column {
            Column::LineNumber => {
                if let Fields::Int64(values) = self {
                    values.push((number as i64).wrapping_add(file.offset));
                }
                return Ok(());
            }
            Column::WholeLine => line.clone(),
            Column::At(i) => {
                let field = line.split(|&b| b == file.delimiter).nth(i).unwrap_or_default();
                line.slice_ref(field)
            }
        };
        let text = String::from_utf8_lossy(&field);
        let bad = |dtype: &str| invalid_argument!("Field {text} in line {number} is not a valid {dtype}.");
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
        match self {
            Fields::Int32(values) => {
                let value: i32 = trimmed.parse().map_err(|_| bad("int32"))?;
                values.push(value.wrapping_add(file.offset as i32));
            }
            Fields::Int64(values) => values.push(trimmed.parse().map_err(|_| bad("int64"))?),
            Fields::Float(values) => values.push(trimmed.parse().map_err(|_| bad("float"))?),
            Fields::Double(values) => values.push(trimmed.parse().map_err(|_| bad("double"))?),
            Fields::Text(values) => values.push(field),
            Fields::Other(dtype) => return Err(invalid_argument!("Data type {dtype} not supported.")),
        }
        Ok(())
    }

    fn into_tensor(self) -> Result<Tensor> {
        match self {
            Fields::Int32(values) => Tensor::vector(&values),
            Fields::Int64(values) => Tensor::vector(&values),
            Fields::Float(values) => Tensor::vector(&values),
            Fields::Double(values) => Tensor::vector(&values),
            Fields::Text(values) => Tensor::from_strings(Shape::vector(values.len()), values),
            Fields::Other(dtype) => Tensor::zeros(dtype, Shape::vector(0)),
        }
    }
}
