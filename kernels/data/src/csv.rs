//! `CSVDataset` and `CSVDatasetV2`: the records of files of comma-separated values.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, inputs, scalar, scalar_string};
use crate::files::{SharedFiles, file_names, path};
use crate::state::{Reader, Writer};
use graphmill_formats::{Compression, io_error};
use graphmill_runtime::{Construction, Context, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use std::io::BufRead;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    for op in ["CSVDataset", "ExperimentalCSVDataset", "CSVDatasetV2"] {
        let kept = files.clone();
        dataset_ops(registry, &[op], move |c| {
            let (files, attrs) = (kept.clone(), Attributes::new(c)?);
            Ok(move |ctx: &Context<'_>| Csv::new(ctx, &files, &attrs))
        });
    }
}

struct Attributes {
    spec: Arc<Spec>,
    defaults: std::ops::Range<usize>,
    excludes: bool,
}

impl Attributes {
    fn new(c: &Construction<'_>) -> Result<Attributes> {
        let defaults = c.input_range("record_defaults")?;
        Ok(Attributes { spec: Spec::of(c)?, excludes: c.num_inputs() > defaults.end, defaults })
    }
}

struct Csv {
    spec: Arc<Spec>,
    files: SharedFiles,
    names: Arc<Vec<Bytes>>,
    rules: Arc<Rules>,
}

/// How a file is read.
struct Rules {
    compression: Compression,
    buffer: usize,
    header: bool,
    delimiter: u8,
    quotes: bool,
    missing: Bytes,
    selected: Vec<i64>,
    excluded: Vec<i64>,
    types: Vec<DType>,
    defaults: Vec<Tensor>,
}

/// Columns in an input: indices that grow.
fn columns(ctx: &Context<'_>, i: usize, name: &str) -> Result<Vec<i64>> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_vector() {
        return Err(invalid_argument!("`{name}` must be a vector."));
    }
    let columns = tensor.to_i64_vec()?;
    if columns.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(invalid_argument!("{name} should be strictly increasing indices"));
    }
    if columns.first().is_some_and(|&first| first < 0) {
        return Err(invalid_argument!("{name} should be non-negative indices"));
    }
    Ok(columns)
}

impl Csv {
    fn new(ctx: &Context<'_>, files: &SharedFiles, attrs: &Attributes) -> Result<Csv> {
        let names = file_names(ctx.input(0)?)?;
        let compression = scalar_string(ctx, 1, "compression_type")?;
        let defaults = inputs(ctx, attrs.defaults.clone())?;
        for (i, default) in defaults.iter().enumerate() {
            if default.num_elements() >= 2 {
                return Err(invalid_argument!(
                    "There should only be 1 default per field but field {i} has {}",
                    default.num_elements()
                ));
            }
        }
        let excluded = if attrs.excludes { columns(ctx, attrs.defaults.end, "exclude_cols")? } else { Vec::new() };
        let buffer = match usize::try_from(scalar::<i64>(ctx, 2, "buffer_size")?) {
            Ok(size) if size > 0 => size.min(64 << 20),
            _ => return Err(invalid_argument!("buffer_size should be positive")),
        };
        let delimiter = match *scalar_string(ctx, 4, "field_delim")? {
            [delimiter] => delimiter,
            _ => return Err(invalid_argument!("field_delim should be only 1 char")),
        };
        let compression = Compression::from_name(&compression).ok_or_else(|| {
            invalid_argument!("Unsupported compression_type: {}.", String::from_utf8_lossy(&compression))
        })?;
        let selected = columns(ctx, 7, "select_cols")?;
        let types = attrs.spec.types.clone();
        if !selected.is_empty() && selected.len() != types.len() {
            return Err(invalid_argument!("select_cols should match output size"));
        }
        if !selected.is_empty() && !excluded.is_empty() {
            return Err(invalid_argument!("Either select_cols or exclude_cols should be empty"));
        }
        let rules = Rules {
            compression,
            buffer,
            header: scalar(ctx, 3, "header")?,
            delimiter,
            quotes: scalar(ctx, 5, "use_quote_delim")?,
            missing: scalar_string(ctx, 6, "na_value")?,
            selected,
            excluded,
            types,
            defaults,
        };
        Ok(Csv { spec: attrs.spec.clone(), files: files.clone(), names: Arc::new(names), rules: Arc::new(rules) })
    }
}

impl Dataset for Csv {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "CSV"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(CsvIterator {
            files: self.files.clone(),
            names: self.names.clone(),
            rules: self.rules.clone(),
            file: 0,
            open: None,
            records: 0,
        }))
    }
}

struct CsvIterator {
    files: SharedFiles,
    names: Arc<Vec<Bytes>>,
    rules: Arc<Rules>,
    file: usize,
    open: Option<Source>,
    /// Records that have come from the open file, broken ones included.
    records: usize,
}

/// A file, read byte by byte.
struct Source(Box<dyn BufRead + Send>);

impl Source {
    /// The next byte, which stays; `None` at the end.
    fn peek(&mut self) -> Result<Option<u8>> {
        match self.0.fill_buf() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(error) => Err(io_error("reading a file of comma-separated values", error)),
        }
    }

    /// The next byte.
    fn take(&mut self) -> Result<Option<u8>> {
        let byte = self.peek()?;
        if byte.is_some() {
            self.0.consume(1);
        }
        Ok(byte)
    }
}

/// What ends a field.
#[derive(PartialEq)]
enum End {
    Field,
    Record,
}

impl Rules {
    /// The end that a byte is, if it is one. `\r\n` counts as one byte.
    fn end(&self, byte: Option<u8>, source: &mut Source) -> Result<Option<End>> {
        Ok(match byte {
            None | Some(b'\n') => Some(End::Record),
            Some(b'\r') => {
                if source.peek()? == Some(b'\n') {
                    source.take()?;
                }
                Some(End::Record)
            }
            Some(byte) if byte == self.delimiter => Some(End::Field),
            Some(_) => None,
        })
    }

    /// The next field, up to and with what ends it. A broken field is passed over; the error comes beside its end.
    fn field(&self, source: &mut Source, field: &mut Vec<u8>) -> Result<(End, Result<()>)> {
        field.clear();
        let mut outcome = Ok(());
        let quoted = self.quotes && source.peek()? == Some(b'"');
        if quoted {
            source.take()?;
        }
        loop {
            let byte = source.take()?;
            if !quoted {
                if let Some(end) = self.end(byte, source)? {
                    return Ok((end, outcome));
                }
                if self.quotes && byte == Some(b'"') && outcome.is_ok() {
                    outcome = Err(invalid_argument!("Unquoted fields cannot have quotes inside"));
                }
                field.extend(byte);
                continue;
            }
            match byte {
                None => {
                    return Err(invalid_argument!("Reached end of file without closing quoted field in record"));
                }
                Some(b'"') => {
                    let next = source.take()?;
                    if next == Some(b'"') {
                        field.push(b'"');
                    } else if let Some(end) = self.end(next, source)? {
                        return Ok((end, outcome));
                    } else if outcome.is_ok() {
                        outcome = Err(invalid_argument!("Quote inside a string has to be escaped by another quote"));
                    }
                }
                Some(byte) => field.push(byte),
            }
        }
    }

    /// The next record; `None` at the end of the file. All of a broken record is read.
    fn record(&self, source: &mut Source) -> Result<Option<Result<Tuple>>> {
        if source.peek()?.is_none() {
            return Ok(None);
        }
        let all = self.selected.is_empty() && self.excluded.is_empty();
        let mut element = Tuple::with_capacity(self.types.len());
        let (mut outcome, mut field) = (Ok(()), Vec::new());
        for column in 0.. {
            let chosen = all
                || self.selected.binary_search(&column).is_ok()
                || (!self.excluded.is_empty() && self.excluded.binary_search(&column).is_err());
            let (end, read) = self.field(source, &mut field)?;
            let read = match read {
                Ok(()) if chosen => self.component(&field, element.len()).map(|value| element.push(value)),
                other => other,
            };
            outcome = outcome.and(read);
            if end == End::Record {
                break;
            }
        }
        if outcome.is_ok() && element.len() != self.types.len() {
            outcome = Err(invalid_argument!("Expect {} fields but have {} in record", self.types.len(), element.len()));
        }
        Ok(Some(outcome.map(|()| element)))
    }

    /// A field as component `i` of an element.
    fn component(&self, field: &[u8], i: usize) -> Result<Tensor> {
        let (Some(&dtype), Some(default)) = (self.types.get(i), self.defaults.get(i)) else {
            return Err(invalid_argument!("Expect {} fields but have more in record", self.types.len()));
        };
        if field.is_empty() || field == &*self.missing {
            if default.num_elements() != 1 {
                return Err(invalid_argument!("Field {i} is required but missing in record!"));
            }
            return default.reshaped(Shape::scalar());
        }
        let text = str::from_utf8(field).unwrap_or_default().trim_ascii();
        let unsigned = !text.starts_with('+');
        let parsed = match dtype {
            DType::String => {
                return Tensor::from_strings(Shape::scalar(), vec![Bytes::copy_from_slice(field)]);
            }
            DType::Int32 => text.parse::<i32>().ok().filter(|_| unsigned).map(Tensor::scalar),
            DType::Int64 => text.parse::<i64>().ok().filter(|_| unsigned).map(Tensor::scalar),
            DType::Float => text.parse::<f32>().ok().map(Tensor::scalar),
            DType::Double => text.parse::<f64>().ok().map(Tensor::scalar),
            other => return Err(invalid_argument!("csv: data type {other} not supported in field {i}")),
        };
        parsed.unwrap_or_else(|| {
            Err(invalid_argument!("Field {i} in record is not a valid {dtype}: {}", String::from_utf8_lossy(field)))
        })
    }
}

impl CsvIterator {
    /// The next record of the open file or of those after it, whether good or broken.
    fn record(&mut self) -> Result<Option<Result<Tuple>>> {
        loop {
            let source = match &mut self.open {
                Some(source) => source,
                None => {
                    let Some(name) = self.names.get(self.file) else { return Ok(None) };
                    let rules = &self.rules;
                    let mut source = Source(rules.compression.open(&*self.files, &path(name), rules.buffer)?);
                    if rules.header {
                        self.skip_header(&mut source)?;
                    }
                    self.records = 0;
                    self.open.insert(source)
                }
            };
            match self.rules.record(source) {
                Ok(Some(record)) => {
                    self.records += 1;
                    return Ok(Some(record));
                }
                Ok(None) => {
                    self.open = None;
                    self.file += 1;
                }
                Err(error) => {
                    self.records += 1;
                    return Err(error);
                }
            }
        }
    }

    fn skip_header(&self, source: &mut Source) -> Result<()> {
        let wrong = || invalid_argument!("Can't read header of file");
        let mut field = Vec::new();
        if source.peek()?.is_none() {
            return Err(wrong());
        }
        while self.rules.field(source, &mut field).map_err(|_| wrong())?.0 == End::Field {}
        Ok(())
    }
}

impl DatasetIterator for CsvIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        self.record()?.transpose()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("CSV");
        writer.size(self.file);
        writer.size(if self.open.is_some() { self.records } else { 0 });
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("CSV")?;
        self.file = reader.size()?;
        let records = reader.size()?;
        while self.records < records {
            // A record that was broken before is broken again.
            if let Ok(None) = self.record() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &'static str, types: &[DType]) -> Vec<String> {
        let rules = Rules {
            compression: Compression::None,
            buffer: 16,
            header: false,
            delimiter: b',',
            quotes: true,
            missing: Bytes::new(),
            selected: Vec::new(),
            excluded: Vec::new(),
            types: types.to_vec(),
            defaults: vec![Tensor::scalar(7i32).unwrap(); types.len()],
        };
        let mut source = Source(Box::new(text.as_bytes()));
        let mut shown = Vec::new();
        while let Some(record) = rules.record(&mut source).unwrap_or_else(|e| Some(Err(e))) {
            shown.push(match record {
                Ok(element) => element.iter().map(show).collect::<Vec<_>>().join("|"),
                Err(error) => error.message().to_owned(),
            });
        }
        shown
    }

    fn show(tensor: &Tensor) -> String {
        match tensor.strings() {
            Ok(values) => String::from_utf8_lossy(&values[0]).into_owned(),
            Err(_) => tensor.scalar_value::<i32>().unwrap().to_string(),
        }
    }

    #[test]
    fn quotes_line_ends_and_defaults() {
        let types = [DType::String, DType::Int32];
        assert_eq!(
            records("a,1\r\n\"b,\"\"x\n\",2\nc,\n\"d\"e\",3\nf,4,5\ng,h\ni,6", &types),
            [
                "a|1",
                "b,\"x\n|2",
                "c|7",
                "Quote inside a string has to be escaped by another quote",
                "Expect 2 fields but have more in record",
                "Field 1 in record is not a valid int32: h",
                "i|6",
            ]
        );
        assert_eq!(records("\"open", &[DType::String]), ["Reached end of file without closing quoted field in record"]);
    }
}
