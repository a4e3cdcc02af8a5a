//! From serialized examples to tensors.

use super::column::{Column, Values};
use crate::dataset::Tuple;
use crate::padded::fill;
use graphmill_graph::PartialShape;
use graphmill_tensor::{Bytes, DType, Result, Shape, Status, Tensor, Variant, invalid_argument};
use graphmill_wire::tensorflow::Example;
use prost::Message;

/// A feature that is asked for.
#[derive(Clone)]
pub(super) struct Feature {
    pub key: Vec<u8>,
    pub dtype: DType,
    pub kind: Kind,
}

/// What becomes of a feature's values.
#[derive(Clone)]
pub(super) enum Kind {
    /// A tensor with a row for each example: of a fixed shape, or padded to the longest.
    Dense {
        shape: PartialShape,
        inner: Shape,
        variable: bool,
        default: Tensor,
    },
    Sparse,
    Ragged {
        splits: DType,
    },
}

/// One component for each feature.
pub(super) fn parse(features: &[Feature], examples: &[Bytes]) -> Result<Tuple> {
    let mut columns: Vec<Column> = features.iter().map(|feature| Column::new(feature.dtype)).collect();
    for (index, serialized) in examples.iter().enumerate() {
        let Ok(example) = Example::decode(serialized.clone()) else {
            let shown = String::from_utf8_lossy(serialized);
            return Err(invalid_argument!("Could not parse example input, value: '{shown}'"));
        };
        let found = example.features.map(|features| features.feature).unwrap_or_default();
        for (feature, column) in features.iter().zip(&mut columns) {
            let value = str::from_utf8(&feature.key).ok().and_then(|key| found.get(key));
            // A feature without a kind is as good as none.
            let value = value.filter(|value| value.kind.is_some());
            feature.add(column, value, index)?;
            column.end();
        }
    }
    features.iter().zip(columns).map(|(feature, column)| feature.tensor(column, examples.len())).collect()
}

impl Feature {
    fn add(
        &self,
        column: &mut Column,
        value: Option<&graphmill_wire::tensorflow::Feature>,
        index: usize,
    ) -> Result<()> {
        let key = String::from_utf8_lossy(&self.key);
        let wrong =
            |what: String| -> Status { invalid_argument!("Name: <unknown>, Key: {key}, Index: {index}.  {what}") };
        let before = column.values.len();
        if let Some(value) = value {
            column.values.extend(value).map_err(|found| match &self.kind {
                Kind::Dense { variable: false, .. } => {
                    wrong(format!("Data types don't match. Data type: {found} but expected type: {}", self.dtype))
                }
                _ => wrong(format!("Data types don't match. Expected type: {}", self.dtype)),
            })?;
        }
        let added = column.values.len() - before;
        let Kind::Dense { shape, inner, variable, default } = &self.kind else { return Ok(()) };
        let name = if self.dtype == DType::String { "bytes" } else { self.dtype.name() };
        let stride = inner.num_elements();
        match value {
            Some(_) if *variable && added.checked_rem(stride).unwrap_or(added) != 0 => Err(wrong(format!(
                "Number of {name} values is not a multiple of stride length. Saw {added} values but output shape is: {shape}"
            ))),
            Some(_) if !variable && added != stride => Err(wrong(format!(
                "Number of {name} values != expected.  Values size: {added} but output shape: {shape}"
            ))),
            None if !variable && default.num_elements() == 0 && stride > 0 => Err(invalid_argument!(
                "Name: <unknown>, Feature: {key} (data type: {}) is required but could not be found.",
                self.dtype
            )),
            None if !variable => add_default(&mut column.values, default),
            _ => Ok(()),
        }
    }

    fn tensor(&self, column: Column, examples: usize) -> Result<Tensor> {
        match &self.kind {
            Kind::Sparse => sparse(column, examples),
            Kind::Ragged { splits } => ragged(column, *splits),
            Kind::Dense { inner, variable: false, .. } => {
                let dims: Vec<usize> = std::iter::once(examples).chain(inner.dims().iter().copied()).collect();
                column.values.into_tensor()?.into_shape(Shape::from_dims(&dims)?)
            }
            Kind::Dense { inner, default, .. } => padded(column, examples, inner, default),
        }
    }
}

fn add_default(values: &mut Values, default: &Tensor) -> Result<()> {
    match values {
        Values::Ints(values) => values.extend_from_slice(default.as_slice()?),
        Values::Floats(values) => values.extend_from_slice(default.as_slice()?),
        Values::Strings(values) => values.extend(default.strings()?.iter().cloned()),
    }
    Ok(())
}

/// A row for each example, as long as the longest needs.
fn padded(column: Column, examples: usize, inner: &Shape, default: &Tensor) -> Result<Tensor> {
    let stride = inner.num_elements();
    let longest = column.counts().max().unwrap_or(0);
    let rows = longest.checked_div(stride).unwrap_or(0);
    let dims: Vec<usize> = [examples, rows].into_iter().chain(inner.dims().iter().copied()).collect();
    let mut tensor = Tensor::alloc(default.dtype(), Shape::from_dims(&dims)?)?;
    fill(&mut tensor, default)?;
    let counts: Vec<usize> = column.counts().collect();
    let (values, mut from) = (column.values.into_tensor()?, 0);
    for (i, count) in counts.into_iter().enumerate() {
        tensor.copy_elements(i * rows * stride, &values, from..from + count)?;
        from += count;
    }
    Ok(tensor)
}

/// The three parts of a sparse matrix with a row for each example, as variants.
fn sparse(column: Column, examples: usize) -> Result<Tensor> {
    let mut indices = Vec::with_capacity(column.values.len() * 2);
    for (row, count) in column.counts().enumerate() {
        indices.extend((0..count).flat_map(|at| [row as i64, at as i64]));
    }
    let longest = column.counts().max().unwrap_or(0);
    let indices = Tensor::from_slice(Shape::from_dims(&[column.values.len(), 2])?, &indices)?;
    let shape = Tensor::vector(&[examples as i64, longest as i64])?;
    let parts = [indices, column.values.into_tensor()?, shape].map(|part| variant("tensorflow::Tensor", vec![part]));
    Tensor::from_variants(Shape::vector(3), parts.to_vec())
}

/// The rows of a ragged matrix with a row for each example, as one variant.
fn ragged(column: Column, splits: DType) -> Result<Tensor> {
    let bounds = std::iter::once(0).chain(column.ends.iter().copied());
    let splits = match splits {
        DType::Int32 => Tensor::vector(&bounds.map(|n| n as i32).collect::<Vec<_>>())?,
        _ => Tensor::vector(&bounds.map(|n| n as i64).collect::<Vec<_>>())?,
    };
    let ragged = variant("RaggedTensorVariant", vec![splits, column.values.into_tensor()?]);
    Tensor::from_variants(Shape::scalar(), vec![ragged])
}

fn variant(type_name: &str, tensors: Vec<Tensor>) -> Variant {
    Variant { type_name: type_name.to_owned(), tensors, ..Variant::default() }
}
