//! `DecodeCSV`.

use super::number::{integer, real};
use crate::inputs::text;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DecodeCSV").kernel(DecodeCsv::new);
}

/// Cuts records into fields and makes a tensor of each column. A field that is empty or `na_value` takes the column's default.
struct DecodeCsv {
    types: Vec<DType>,
    separator: u8,
    quotes: bool,
    na_value: Vec<u8>,
    /// The columns to take; all if there are none.
    columns: Vec<usize>,
}

impl DecodeCsv {
    fn new(c: &Construction<'_>) -> Result<DecodeCsv> {
        let types = c.attrs().dtype_list("OUT_TYPE")?;
        let selected = c.attrs().int_list("select_cols")?;
        if !selected.is_empty() && selected.len() != types.len() {
            return Err(invalid_argument!("select_cols should match output size"));
        }
        if selected.windows(2).any(|pair| pair.first() >= pair.last()) {
            return Err(invalid_argument!("select_cols should be strictly increasing indices"));
        }
        let columns: Result<Vec<usize>, _> = selected.iter().map(|&column| usize::try_from(column)).collect();
        let columns = columns.map_err(|_| invalid_argument!("select_cols should be non-negative indices"))?;
        let &[separator] = c.attrs().string("field_delim")? else {
            return Err(invalid_argument!("field_delim should be only 1 char"));
        };
        let quotes = c.attrs().bool("use_quote_delim")?;
        let na_value = c.attrs().string("na_value")?.to_vec();
        Ok(DecodeCsv { types, separator, quotes, na_value, columns })
    }

    /// Whether the column after `found` taken ones, `position` in the record, is to be taken.
    fn takes(&self, found: usize, position: usize) -> bool {
        self.columns.is_empty() || self.columns.get(found) == Some(&position)
    }

    /// The fields of a record that are to be taken.
    fn fields(&self, record: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut fields: Vec<Vec<u8>> = Vec::with_capacity(self.types.len());
        let (mut at, mut position) = (0, 0);
        while let Some(&first) = record.get(at) {
            if first == b'\n' || first == b'\r' {
                at += 1;
                continue;
            }
            let mut field = Vec::new();
            if self.quotes && first == b'"' {
                at = self.quoted(record, at + 1, &mut field)?;
            } else {
                let rest = record.get(at..).unwrap_or_default();
                let length = rest.iter().position(|&b| b == self.separator).unwrap_or(rest.len());
                let body = rest.get(..length).unwrap_or_default();
                if body.iter().any(|&b| b == b'\n' || b == b'\r' || (self.quotes && b == b'"')) {
                    return Err(invalid_argument!("Unquoted fields cannot have quotes/CRLFs inside"));
                }
                field.extend_from_slice(body);
                at += length + 1;
            }
            if self.takes(fields.len(), position) {
                fields.push(field);
                if fields.len() == self.columns.len() {
                    return Ok(fields);
                }
            }
            position += 1;
        }
        if record.last() == Some(&self.separator) && self.takes(fields.len(), position) {
            fields.push(Vec::new());
        }
        Ok(fields)
    }

    /// Reads a field behind its opening quote; where the record goes on.
    fn quoted(&self, record: &[u8], mut at: usize, field: &mut Vec<u8>) -> Result<usize> {
        let unended = || invalid_argument!("Quoted field has to end with quote followed by delim or end");
        loop {
            match (record.get(at), record.get(at + 1)) {
                (None, _) => return Err(unended()),
                (Some(b'"'), None) => return Ok(at + 2),
                (Some(b'"'), Some(next)) if *next == self.separator => return Ok(at + 2),
                (Some(b'"'), Some(b'"')) => {
                    field.push(b'"');
                    at += 2;
                }
                (Some(b'"'), _) => {
                    return Err(invalid_argument!("Quote inside a string has to be escaped by another quote"));
                }
                (Some(_), None) => return Err(unended()),
                (Some(&other), _) => {
                    field.push(other);
                    at += 1;
                }
            }
        }
    }

    fn parse(&self, field: &[u8], column: usize, record: usize, output: &mut Tensor) -> Result<()> {
        let dtype = output.dtype();
        let bad = || invalid_argument!("Field {column} in record {record} is not a valid {dtype}: {}", text(field));
        macro_rules! store {
            ($T:ty, $parse:ident) => {
                set(output.as_mut_slice::<$T>()?, record, $parse::<$T>(field).ok_or_else(bad)?)
            };
        }
        match dtype {
            DType::Int32 => store!(i32, integer),
            DType::Int64 => store!(i64, integer),
            DType::Float => store!(f32, real),
            DType::Double => store!(f64, real),
            DType::String => set(output.strings_mut()?, record, Bytes::copy_from_slice(field)),
            other => Err(invalid_argument!("csv: data type {other} not supported in field {column}")),
        }
    }
}

fn set<T>(values: &mut [T], at: usize, value: T) -> Result<()> {
    match values.get_mut(at) {
        Some(place) => {
            *place = value;
            Ok(())
        }
        None => Err(internal!("a record is out of range")),
    }
}

impl Kernel for DecodeCsv {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let records = ctx.input(0)?;
        for column in 0..self.types.len() {
            let default = ctx.input(column + 1)?;
            if default.shape().rank() > 1 {
                return Err(invalid_argument!("Each record default should be at most rank 1"));
            }
            if default.num_elements() > 1 {
                return Err(invalid_argument!(
                    "There should only be 1 default per field but field {column} has {}",
                    default.num_elements()
                ));
            }
        }
        let outputs = self.types.iter().map(|&dtype| Tensor::alloc(dtype, records.shape().clone()));
        let mut outputs = outputs.collect::<Result<Vec<_>>>()?;
        for (i, record) in records.strings()?.iter().enumerate() {
            let fields = self.fields(record)?;
            if fields.len() != self.types.len() {
                return Err(invalid_argument!(
                    "Expect {} fields but have {} in record {i}",
                    self.types.len(),
                    fields.len()
                ));
            }
            for (column, (field, output)) in fields.iter().zip(&mut outputs).enumerate() {
                if !field.is_empty() && *field != self.na_value {
                    self.parse(field, column, i, output)?;
                    continue;
                }
                let default = ctx.input(column + 1)?;
                if default.num_elements() != 1 {
                    return Err(invalid_argument!("Field {column} is required but missing in record {i}!"));
                }
                output.copy_elements(i, default, 0..1)?;
            }
        }
        for (i, output) in outputs.into_iter().enumerate() {
            ctx.set_output(i, output)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(quotes: bool, columns: &[usize]) -> DecodeCsv {
        let types = vec![DType::String; 3];
        DecodeCsv { types, separator: b',', quotes, na_value: Vec::new(), columns: columns.to_vec() }
    }

    fn fields(decoder: &DecodeCsv, record: &str) -> Result<Vec<String>> {
        let fields = decoder.fields(record.as_bytes())?;
        Ok(fields.into_iter().map(|f| String::from_utf8(f).unwrap()).collect())
    }

    #[test]
    fn fields_are_cut() {
        let plain = decoder(true, &[]);
        assert_eq!(fields(&plain, "a,b,c").unwrap(), ["a", "b", "c"]);
        assert_eq!(fields(&plain, "a,,").unwrap(), ["a", "", ""]);
        assert_eq!(fields(&plain, "").unwrap(), [""; 0]);
        assert_eq!(
            fields(&plain, "\"x,\"\"y\"\"\",\"\",z\n").unwrap_err().message(),
            "Unquoted fields cannot have quotes/CRLFs inside"
        );
        assert_eq!(fields(&plain, "\"x,\"\"y\"\"\",\"\",z").unwrap(), ["x,\"y\"", "", "z"]);
        for bad in ["\"a", "\"a\"b", "a\"b", "\"a\nb", "\""] {
            assert!(fields(&plain, bad).is_err(), "{bad}");
        }
        assert_eq!(fields(&decoder(false, &[]), "\"a,b\"").unwrap(), ["\"a", "b\""]);
        assert_eq!(fields(&decoder(true, &[0, 2]), "a,b,c,d").unwrap(), ["a", "c"]);
        assert_eq!(fields(&decoder(true, &[1]), "a,").unwrap(), [""]);
    }
}
