//! `DenseCountSparseOutput`, `SparseCountSparseOutput`, `RaggedCountSparseOutput`: how often each number occurs in each row, as a
//! sparse tensor.

use crate::bins::one;
use crate::coo::index_matrix;
use crate::number::Number;
use crate::types::INDICES;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, dispatch, internal, invalid_argument};
use std::collections::BTreeMap;

pub(crate) fn register(registry: &mut Registry) {
    use DType::{Double, Float, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let outputs = [Double, Float, Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];
    for (op, form) in [
        ("DenseCountSparseOutput", Form::Dense),
        ("SparseCountSparseOutput", Form::Sparse),
        ("RaggedCountSparseOutput", Form::Ragged),
    ] {
        registry.op(op).types("T", &INDICES).types("output_type", &outputs).kernel(move |c| Counts::new(c, form));
    }
}

#[derive(Clone, Copy)]
enum Form {
    Dense,
    Sparse,
    Ragged,
}

struct Counts {
    form: Form,
    shortest: i64,
    longest: i64,
    binary: bool,
}

/// The number of rows (none for one row that is the whole), and for each value its row.
struct Plan {
    rows: Option<usize>,
    row_of: Vec<usize>,
}

impl Counts {
    fn new(c: &Construction<'_>, form: Form) -> Result<Counts> {
        Ok(Counts {
            form,
            shortest: c.attrs().int("minlength")?,
            longest: c.attrs().int("maxlength")?,
            binary: c.attrs().bool("binary_output")?,
        })
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan> {
        match self.form {
            Form::Dense => dense(ctx.input(0)?),
            Form::Sparse => sparse(ctx),
            Form::Ragged => ragged(ctx),
        }
    }
}

fn dense(data: &Tensor) -> Result<Plan> {
    let shape = data.shape();
    if shape.is_vector() {
        return Ok(Plan { rows: None, row_of: vec![0; data.num_elements()] });
    }
    if !shape.is_matrix() {
        return Err(invalid_argument!("Input must be a 1 or 2-dimensional tensor. Got: {shape}"));
    }
    if shape.dim(0) == 0 {
        return Err(invalid_argument!("Invalid input: Shapes dimension cannot be 0."));
    }
    let (rows, width) = (shape.dim(0), shape.dim(1));
    Ok(Plan { rows: Some(rows), row_of: (0..rows * width).map(|i| i / width.max(1)).collect() })
}

fn sparse(ctx: &Context<'_>) -> Result<Plan> {
    let (indices, values, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    if !indices.shape().is_matrix() {
        return Err(invalid_argument!("Input indices must be a 2-dimensional tensor. Got: {}", indices.shape()));
    }
    if !values.shape().is_vector() {
        return Err(invalid_argument!("Input values must be a vector. Got: {}", values.shape()));
    }
    if !shape.shape().is_vector() {
        return Err(invalid_argument!("Input shape must be a vector. Got: {}", shape.shape()));
    }
    if values.num_elements() != indices.shape().dim(0) {
        return Err(invalid_argument!(
            "Number of values must match first dimension of indices.Got {} values, indices shape: {}",
            values.num_elements(),
            indices.shape()
        ));
    }
    if shape.num_elements() != indices.shape().dim(1) {
        return Err(invalid_argument!(
            "Number of dimensions must match second dimension of indices.Got {} dimensions, indices shape: {}",
            shape.num_elements(),
            indices.shape()
        ));
    }
    let sizes = shape.as_slice::<i64>()?;
    let Some(&first) = sizes.first() else {
        return Err(invalid_argument!("The shape argument requires at least one element."));
    };
    let rows = indices.as_slice::<i64>()?;
    for (i, row) in rows.chunks_exact(sizes.len()).enumerate() {
        for (j, (&index, &size)) in row.iter().zip(sizes).enumerate() {
            if !(0..size).contains(&index) {
                return Err(invalid_argument!(
                    "Invalid index value at {i}: dimension {j} has value {index} which is not in [0, {size}) (as given by dense \
                     shape {}",
                    shape.shape()
                ));
            }
        }
    }
    let one_row = sizes.len() == 1;
    let batches = if one_row { 1 } else { first };
    if batches <= 0 || batches >= i64::from(i32::MAX) {
        return Err(invalid_argument!("Cannot allocate {batches} batches, is the dense shape too wide?"));
    }
    if sizes.iter().any(|&size| size < 0) {
        return Err(invalid_argument!("Elements in dense_shape must be >= 0. Instead got:{}", shape.shape()));
    }
    let row_of = rows.chunks_exact(sizes.len()).map(|row| if one_row { 0 } else { row[0] as usize }).collect();
    Ok(Plan { rows: (!one_row).then_some(batches as usize), row_of })
}

fn ragged(ctx: &Context<'_>) -> Result<Plan> {
    let (splits, values) = (ctx.input(0)?.as_slice::<i64>()?, ctx.input(1)?);
    let count = values.num_elements();
    let (Some(&first), Some(&last)) = (splits.first(), splits.last()) else {
        return Err(invalid_argument!("Must provide at least 2 elements for the splits argument"));
    };
    if splits.len() < 2 {
        return Err(invalid_argument!("Must provide at least 2 elements for the splits argument"));
    }
    if first != 0 {
        return Err(invalid_argument!("Splits must start with 0, not with {first}"));
    }
    if last != count as i64 {
        return Err(invalid_argument!("Splits must end with the number of values, got {last} instead of {count}"));
    }
    if !splits.is_sorted() {
        return Err(invalid_argument!("Splits must be sorted"));
    }
    let mut row_of = Vec::with_capacity(count);
    for (row, pair) in splits.windows(2).enumerate() {
        row_of.resize(pair[1] as usize, row);
    }
    Ok(Plan { rows: Some(splits.len() - 1), row_of })
}

impl Kernel for Counts {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (values, weights) = match self.form {
            Form::Dense => (0, 1),
            Form::Sparse => (1, 3),
            Form::Ragged => (1, 2),
        };
        let (data, weights) = (ctx.input(values)?, ctx.input(weights)?);
        let plan = self.plan(ctx)?;
        if weights.num_elements() > 0 && weights.shape() != data.shape() {
            let what = if matches!(self.form, Form::Dense) { "data" } else { "values" };
            return Err(invalid_argument!(
                "Weights and {what} must have the same shape. Weight shape: {}; {what} shape: {}",
                weights.shape(),
                data.shape()
            ));
        }
        let values = data.to_i64_vec()?;
        if values.iter().any(|&value| value < 0) {
            return Err(invalid_argument!("Input values must all be non-negative"));
        }
        let counted = |value: i64| self.longest <= 0 || value < self.longest;
        let largest = values.iter().copied().filter(|&value| counted(value)).max().unwrap_or(0);
        let width = if self.longest > 0 { self.longest } else { largest.saturating_add(1).max(self.shortest) };
        let mut keys: Vec<(usize, i64)> = Vec::new();
        let counts = dispatch!(weights.dtype(), T in [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64] => {
            let weights = weights.as_slice::<T>()?;
            let mut counts: BTreeMap<(usize, i64), T> = BTreeMap::new();
            for (i, (&value, &row)) in values.iter().zip(&plan.row_of).enumerate().filter(|(_, (v, _))| counted(**v)) {
                let slot = counts.entry((row, value)).or_default();
                *slot = if self.binary { one() } else { slot.plus(weights.get(i).copied().unwrap_or(one())) };
            }
            keys.extend(counts.keys());
            Tensor::vector(&counts.into_values().collect::<Vec<T>>())
        });
        let counts = counts.unwrap_or_else(|| Err(internal!("no such type")))?;
        let (indices, shape) = match plan.rows {
            None => (index_matrix(&keys.iter().map(|key| key.1).collect::<Vec<i64>>(), keys.len(), 1)?, vec![width]),
            Some(rows) => {
                let flat: Vec<i64> = keys.iter().flat_map(|&(row, value)| [row as i64, value]).collect();
                (index_matrix(&flat, keys.len(), 2)?, vec![rows as i64, width])
            }
        };
        ctx.set_output(0, indices)?;
        ctx.set_output(1, counts)?;
        ctx.set_output(2, Tensor::vector(&shape)?)
    }
}
