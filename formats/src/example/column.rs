//! Values of one feature, gathered over examples.

use super::wire::{Feature, Fields, Value};
use crate::coding::take_varint;
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};

/// Values of one of the three types that features have.
pub(crate) enum Column {
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<Bytes>),
}

impl Column {
    /// An empty column.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a type that no feature has.
    pub(crate) fn new(dtype: DType) -> Result<Column> {
        match dtype {
            DType::Int64 => Ok(Column::Integers(Vec::new())),
            DType::Float => Ok(Column::Floats(Vec::new())),
            DType::String => Ok(Column::Strings(Vec::new())),
            other => Err(invalid_argument!("Received input dtype: {other}")),
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Column::Integers(values) => values.len(),
            Column::Floats(values) => values.len(),
            Column::Strings(values) => values.len(),
        }
    }

    /// Adds a feature's values, which lie within `whole`. False if the feature is of another type, `None` if it is broken.
    pub(crate) fn extend(&mut self, feature: Feature<'_>, whole: &Bytes) -> Option<bool> {
        match (self, feature) {
            (_, Feature::Missing) => {}
            (Column::Integers(values), Feature::Integers(list)) => {
                for field in Fields(list) {
                    match field? {
                        (1, Value::Varint(value)) => values.push(value as i64),
                        (1, Value::Bytes(mut packed)) => {
                            while !packed.is_empty() {
                                values.push(take_varint(&mut packed)? as i64);
                            }
                        }
                        _ => {}
                    }
                }
            }
            (Column::Floats(values), Feature::Floats(list)) => {
                for field in Fields(list) {
                    match field? {
                        (1, Value::Fixed32(bits)) => values.push(f32::from_bits(bits)),
                        (1, Value::Bytes(packed)) => {
                            let (quads, rest) = packed.as_chunks::<4>();
                            if !rest.is_empty() {
                                return None;
                            }
                            values.extend(quads.iter().map(|&quad| f32::from_le_bytes(quad)));
                        }
                        _ => {}
                    }
                }
            }
            (Column::Strings(values), Feature::Strings(list)) => {
                for field in Fields(list) {
                    if let (1, Value::Bytes(value)) = field? {
                        values.push(whole.slice_ref(value));
                    }
                }
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Adds all values of a tensor of the column's type.
    ///
    /// # Errors
    /// `INTERNAL` if it is of another type.
    pub(crate) fn extend_from(&mut self, tensor: &Tensor) -> Result<()> {
        match self {
            Column::Integers(values) => values.extend_from_slice(tensor.as_slice()?),
            Column::Floats(values) => values.extend_from_slice(tensor.as_slice()?),
            Column::Strings(values) => values.extend_from_slice(tensor.strings()?),
        }
        Ok(())
    }

    /// Adds `count` times the one value of a tensor; zero or an empty string if it has none.
    ///
    /// # Errors
    /// `INTERNAL` if it is of another type.
    pub(crate) fn pad(&mut self, tensor: Option<&Tensor>, count: usize) -> Result<()> {
        match self {
            Column::Integers(values) => {
                let value = tensor.map(Tensor::as_slice::<i64>).transpose()?.and_then(|v| v.first().copied());
                values.resize(values.len().saturating_add(count), value.unwrap_or_default());
            }
            Column::Floats(values) => {
                let value = tensor.map(Tensor::as_slice::<f32>).transpose()?.and_then(|v| v.first().copied());
                values.resize(values.len().saturating_add(count), value.unwrap_or_default());
            }
            Column::Strings(values) => {
                let value = tensor.map(Tensor::strings).transpose()?.and_then(|v| v.first().cloned());
                values.resize(values.len().saturating_add(count), value.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// The values as a tensor of a shape.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if their number does not fit.
    pub(crate) fn into_tensor(self, shape: Shape) -> Result<Tensor> {
        match self {
            Column::Integers(values) => Tensor::from_slice(shape, &values),
            Column::Floats(values) => Tensor::from_slice(shape, &values),
            Column::Strings(values) => Tensor::from_strings(shape, values),
        }
    }
}
