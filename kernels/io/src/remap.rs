//! Loading a matrix of a checkpoint whose rows and columns have moved, such as with another vocabulary.

use crate::inputs::{first, path, text};
use graphmill_formats::{BundleReader, Compression, FileSystem, LineReader, TensorSlice};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument, unimplemented_op};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes read from a vocabulary at a time.
const BUFFER: usize = 256 << 10;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let kept = files.clone();
    registry.op("GenerateVocabRemapping").blocking_kernel(move |c| GenerateVocabRemapping::new(c, kept.clone()));
    let kept = files.clone();
    registry.op("LoadAndRemapMatrix").blocking_kernel(move |c| LoadAndRemapMatrix::new(c, kept.clone()));
}

/// For each word of a part of a new vocabulary, its line in the old one, or -1; and how many words the old one has.
struct GenerateVocabRemapping {
    files: Arc<dyn FileSystem>,
    offset: usize,
    count: usize,
    old_size: Option<usize>,
}

/// An attribute that counts something.
fn count(c: &Construction<'_>, name: &str) -> Result<usize> {
    let value = c.attrs().int(name)?;
    usize::try_from(value).map_err(|_| invalid_argument!("{name} must be non-negative, got {value}"))
}

impl GenerateVocabRemapping {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<GenerateVocabRemapping> {
        let old_size = usize::try_from(c.attrs().int("old_vocab_size")?).ok();
        let (offset, count) = (count(c, "new_vocab_offset")?, count(c, "num_new_vocab")?);
        Ok(GenerateVocabRemapping { files, offset, count, old_size })
    }

    /// The lines of a file, up to `most` of them.
    fn lines(&self, ctx: &Context<'_>, input: usize, name: &str, most: Option<usize>) -> Result<Vec<Vec<u8>>> {
        let file = ctx.input(input)?;
        if !file.shape().is_scalar() {
            return Err(invalid_argument!("{name} should be a single string, but got {}", file.shape()));
        }
        let file = first(file)?;
        if file.is_empty() {
            return Err(invalid_argument!("new vocab filename cannot be empty."));
        }
        let mut reader = LineReader::new(Compression::None.open(&*self.files, path(file), BUFFER)?);
        let mut lines = Vec::new();
        while most.is_none_or(|most| lines.len() < most) {
            match reader.next()? {
                Some(line) => lines.push(line),
                None => break,
            }
        }
        match most {
            Some(most) if lines.len() < most => {
                Err(invalid_argument!("Invalid vocab_size in {}: expected {most} but got {}", text(file), lines.len()))
            }
            _ => Ok(lines),
        }
    }
}

impl Kernel for GenerateVocabRemapping {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let new = self.lines(ctx, 0, "new_vocab_file", None)?;
        let wanted = self.offset.checked_add(self.count).and_then(|end| new.get(self.offset..end));
        let Some(wanted) = wanted else {
            return Err(invalid_argument!("lookup table size must be larger than last new vocab entry's line"));
        };
        let old = self.lines(ctx, 1, "old_vocab_file", self.old_size)?;
        let mut places = HashMap::with_capacity(old.len());
        for (place, word) in old.iter().enumerate() {
            if places.insert(word, place as i64).is_some() {
                return Err(graphmill_tensor::failed_precondition!(
                    "HashTable has different value for same key. Key {} has more than one line",
                    text(word)
                ));
            }
        }
        let remapping: Vec<i64> = wanted.iter().map(|word| places.get(word).copied().unwrap_or(-1)).collect();
        let present = remapping.iter().filter(|&&place| place >= 0).count();
        ctx.set_output(0, Tensor::vector(&remapping)?)?;
        ctx.set_scalar(1, present as i32)
    }
}

/// Fills a matrix with the rows and columns of a stored one, and with given values where it has none.
struct LoadAndRemapMatrix {
    files: Arc<dyn FileSystem>,
    rows: usize,
    columns: usize,
    /// How many rows of the stored matrix are read at a time.
    most_rows: usize,
}

impl LoadAndRemapMatrix {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<LoadAndRemapMatrix> {
        let most_rows = usize::try_from(c.attrs().int("max_rows_in_memory")?).unwrap_or(0);
        let most_rows = if most_rows == 0 { usize::MAX } else { most_rows };
        Ok(LoadAndRemapMatrix { files, rows: count(c, "num_rows")?, columns: count(c, "num_cols")?, most_rows })
    }
}

/// For each old place its new one.
fn inverted(remapping: &[i64]) -> Result<HashMap<usize, usize>> {
    let mut result = HashMap::new();
    for (new, &old) in remapping.iter().enumerate() {
        let Ok(old) = usize::try_from(old) else { continue };
        if let Some(other) = result.insert(old, new) {
            return Err(unimplemented_op!(
                "Old ID {old} is mapped to both new ID {other} and {new}, which is not supported."
            ));
        }
    }
    Ok(result)
}

impl Kernel for LoadAndRemapMatrix {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let vector = |i: usize, name: &str| {
            let tensor = ctx.input(i)?;
            if !tensor.shape().is_vector() {
                return Err(invalid_argument!("{name} must be a vector, got shape {}", tensor.shape()));
            }
            tensor.as_slice::<i64>()
        };
        let (row_remapping, column_remapping) = (vector(2, "row_remapping")?, vector(3, "col_remapping")?);
        if row_remapping.len() != self.rows {
            return Err(invalid_argument!(
                "Size of row_remapping is {} instead of being equal to num_rows={}",
                row_remapping.len(),
                self.rows
            ));
        }
        let (new_rows, new_columns) = (inverted(row_remapping)?, inverted(column_remapping)?);
        let moves_columns = !column_remapping.is_empty();
        if moves_columns && column_remapping.len() != self.columns {
            return Err(invalid_argument!(
                "Provided col_remapping, but its size is {} instead of being equal to num_cols={}",
                column_remapping.len(),
                self.columns
            ));
        }
        let prefix = ctx.input(0)?;
        if prefix.num_elements() != 1 {
            return Err(invalid_argument!(
                "The `ckpt_path` tensor must have exactly one element, got tensor of shape {}",
                prefix.shape()
            ));
        }
        let name = first(ctx.input(1)?)?;
        let mut reader = BundleReader::open(self.files.clone(), path(first(prefix)?))?;
        let (dtype, shape) = reader.dtype_and_shape(name)?;
        let name_text = text(name);
        if dtype != DType::Float {
            return Err(invalid_argument!(
                "Tensor {name_text} has invalid type {dtype} instead of expected type float"
            ));
        }
        let &[_, old_columns] = shape.dims() else {
            return Err(invalid_argument!(
                "Tensor {name_text} has shape {shape} of invalid rank {} instead of expected shape of rank 2.",
                shape.rank()
            ));
        };
        if !moves_columns && old_columns != self.columns {
            return Err(invalid_argument!(
                "Tensor {name_text} has shape {shape}, where the size of its 2nd dimension is {old_columns} instead of being \
                 equal to num_cols={}",
                self.columns
            ));
        }
        let mut output = Tensor::zeros(DType::Float, Shape::from_dims(&[self.rows, self.columns])?)?;
        let matrix = output.as_mut_slice::<f32>()?;
        let (mut row, end) =
            (new_rows.keys().min().copied().unwrap_or(0), new_rows.keys().max().map_or(0, |last| last + 1));
        while row < end {
            let length = self.most_rows.min(end - row);
            let block = reader.slice(name, &TensorSlice::parse(&format!("{row},{length}:-"))?)?;
            for (offset, values) in block.as_slice::<f32>()?.chunks_exact(old_columns.max(1)).enumerate() {
                let Some(&new_row) = new_rows.get(&(row + offset)) else { continue };
                for (old_column, &value) in values.iter().enumerate() {
                    let new_column =
                        if moves_columns { new_columns.get(&old_column).copied() } else { Some(old_column) };
                    if let Some(new_column) = new_column {
                        let place = matrix.get_mut(new_row * self.columns + new_column);
                        *place.ok_or_else(|| internal!("a remapped place is out of range"))? = value;
                    }
                }
            }
            row += length;
        }
        let values = ctx.input(4)?.as_slice::<f32>()?;
        let mut given = values.iter();
        for (row, cells) in row_remapping.iter().zip(matrix.chunks_exact_mut(self.columns.max(1))) {
            for (column, cell) in cells.iter_mut().enumerate() {
                let kept = *row >= 0 && column_remapping.get(column).is_none_or(|&old| old >= 0);
                if !kept {
                    *cell = *given.next().ok_or_else(|| {
                        invalid_argument!(
                            "initializing_values contained {} elements, but more missing values remain.",
                            values.len()
                        )
                    })?;
                }
            }
        }
        let unused = given.len();
        if unused > 0 {
            return Err(invalid_argument!(
                "initializing_values contained {} elements, but only {} elements were used to fill in missing values.",
                values.len(),
                values.len() - unused
            ));
        }
        ctx.set_output(0, output)
    }
}
