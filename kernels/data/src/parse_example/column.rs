//! The values of one feature in a batch of examples.

use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor};
use graphmill_wire::tensorflow::Feature;
use graphmill_wire::tensorflow::feature::Kind;

/// Values of one of the three types that features have.
pub(super) enum Values {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<Bytes>),
}

impl Values {
    pub fn new(dtype: DType) -> Values {
        match dtype {
            DType::Int64 => Values::Ints(Vec::new()),
            DType::Float => Values::Floats(Vec::new()),
            _ => Values::Strings(Vec::new()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Values::Ints(values) => values.len(),
            Values::Floats(values) => values.len(),
            Values::Strings(values) => values.len(),
        }
    }

    /// Adds the values of a feature; the feature's type if it is another one.
    pub fn extend(&mut self, feature: &Feature) -> Result<(), DType> {
        match (self, &feature.kind) {
            (Values::Ints(values), Some(Kind::Int64List(list))) => values.extend_from_slice(&list.value),
            (Values::Floats(values), Some(Kind::FloatList(list))) => values.extend_from_slice(&list.value),
            (Values::Strings(values), Some(Kind::BytesList(list))) => values.extend(list.value.iter().cloned()),
            (_, Some(Kind::Int64List(_))) => return Err(DType::Int64),
            (_, Some(Kind::FloatList(_))) => return Err(DType::Float),
            (_, Some(Kind::BytesList(_))) => return Err(DType::String),
            (_, None) => {}
        }
        Ok(())
    }

    /// The values as a vector.
    pub fn into_tensor(self) -> Result<Tensor> {
        match self {
            Values::Ints(values) => Tensor::vector(&values),
            Values::Floats(values) => Tensor::vector(&values),
            Values::Strings(values) => Tensor::from_strings(Shape::vector(values.len()), values),
        }
    }
}

/// Values, and where those of each example end.
pub(super) struct Column {
    pub values: Values,
    pub ends: Vec<usize>,
}

impl Column {
    pub fn new(dtype: DType) -> Column {
        Column { values: Values::new(dtype), ends: Vec::new() }
    }

    /// Ends the values of an example.
    pub fn end(&mut self) {
        self.ends.push(self.values.len());
    }

    /// How many values each example has.
    pub fn counts(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start)
    }
}
