//! Parsing examples, one or a batch of them.

use super::column::Column;
use super::layout::{Dense, Layout};
use super::wire::{Feature, Fields, Value, features_of};
use graphmill_tensor::{Bytes, DType, Result, Shape, Status, Tensor, invalid_argument};
use std::collections::{HashMap, HashSet};

/// What was taken out of examples, in the order of the layout.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Where each value of the sparse features is: example and position, or position alone for one example.
    pub sparse_indices: Vec<Tensor>,
    /// The values of the sparse features.
    pub sparse_values: Vec<Tensor>,
    /// The shapes of the sparse features.
    pub sparse_shapes: Vec<Tensor>,
    /// The dense features, examples one behind the other.
    pub dense_values: Vec<Tensor>,
    /// The values of the ragged features.
    pub ragged_values: Vec<Tensor>,
    /// Where the values of each example start, and where the last one's end; nothing for one example.
    pub ragged_splits: Vec<Tensor>,
}

/// Takes features out of a vector of examples. `names` are what errors call the examples; there may be none.
///
/// # Errors
/// `INVALID_ARGUMENT` for broken messages, missing features, and values of another type or number.
pub fn parse_batch(layout: &Layout, examples: &[Bytes], names: &[Bytes]) -> Result<Parsed> {
    let unknown = Bytes::from_static(b"<unknown>");
    let name_of = |i: usize| String::from_utf8_lossy(names.get(i).unwrap_or(&unknown)).into_owned();
    let texts = Texts {
        feature: &|i, key| format!("Name: {}, Key: {key}, Index: {i}.  ", name_of(i)),
        missing: &|i| format!("Name: {}, ", name_of(i)),
    };
    parse(layout, examples, Some(examples.len()), &texts)
}

/// Takes features out of one example.
///
/// # Errors
/// As [`parse_batch`].
pub fn parse_single(layout: &Layout, example: &Bytes) -> Result<Parsed> {
    let texts = Texts { feature: &|_, key| format!("Key: {key}.  "), missing: &|_| String::new() };
    parse(layout, std::slice::from_ref(example), None, &texts)
}

/// How errors start.
struct Texts<'a> {
    feature: &'a dyn Fn(usize, &str) -> String,
    missing: &'a dyn Fn(usize) -> String,
}

impl Texts<'_> {
    fn broken(&self, example: usize, key: &[u8]) -> Status {
        let start = (self.feature)(example, &String::from_utf8_lossy(key));
        invalid_argument!("{start}Can't parse serialized Example.")
    }
}

/// The features that an example has, by name.
type Found<'a> = HashMap<&'a [u8], &'a [u8]>;

fn find<'a>(example: &'a Bytes, wanted: &HashSet<&[u8]>) -> Option<Found<'a>> {
    let mut found = HashMap::with_capacity(wanted.len());
    for field in Fields(example) {
        if let (1, Value::Bytes(features)) = field? {
            features_of(features, |name| wanted.contains(name), &mut found)?;
        }
    }
    Some(found)
}

fn parse(layout: &Layout, examples: &[Bytes], batch: Option<usize>, texts: &Texts<'_>) -> Result<Parsed> {
    let dense_keys = layout.dense.iter().map(|f| f.key.as_ref());
    let sparse_keys = layout.sparse.iter().map(|f| f.key.as_ref());
    let ragged_keys = layout.ragged.iter().map(|f| f.key.as_ref());
    let wanted: HashSet<&[u8]> = dense_keys.chain(sparse_keys).chain(ragged_keys).collect();
    let mut dense = layout.dense.iter().map(DenseColumn::new).collect::<Result<Vec<_>>>()?;
    let mut sparse = layout.sparse.iter().map(|f| RowColumn::new(f.dtype)).collect::<Result<Vec<_>>>()?;
    let mut ragged = layout.ragged.iter().map(|f| RowColumn::new(f.dtype)).collect::<Result<Vec<_>>>()?;
    for (i, example) in examples.iter().enumerate() {
        let found = find(example, &wanted).ok_or_else(|| {
            invalid_argument!("Could not parse example input, value: '{}'", String::from_utf8_lossy(example))
        })?;
        let get = |key: &Bytes| match found.get(key.as_ref()) {
            Some(message) => Feature::parse(message).ok_or_else(|| texts.broken(i, key)),
            None => Ok(Feature::Missing),
        };
        for (config, column) in layout.dense.iter().zip(&mut dense) {
            column.add(config, get(&config.key)?, example, i, texts)?;
        }
        for (config, column) in layout.sparse.iter().zip(&mut sparse) {
            column.add(get(&config.key)?, example, i, &config.key, config.dtype, texts)?;
        }
        for (config, column) in layout.ragged.iter().zip(&mut ragged) {
            column.add(get(&config.key)?, example, i, &config.key, config.dtype, texts)?;
        }
    }
    let mut parsed = Parsed::default();
    for (config, column) in layout.dense.iter().zip(dense) {
        parsed.dense_values.push(column.finish(config, batch)?);
    }
    for column in sparse {
        parsed.sparse_indices.push(column.indices(batch.is_some())?);
        parsed.sparse_shapes.push(column.shape(batch)?);
        parsed.sparse_values.push(column.values()?);
    }
    for (config, column) in layout.ragged.iter().zip(ragged) {
        parsed.ragged_splits.push(match batch {
            Some(_) => splits(&column.ends, config.splits)?,
            None => Tensor::alloc(config.splits, Shape::vector(0))?,
        });
        parsed.ragged_values.push(column.values()?);
    }
    Ok(parsed)
}

/// What kind of list a feature has, as errors call it.
fn kind_of(feature: Feature<'_>) -> &'static str {
    match feature {
        Feature::Missing => "INVALID",
        Feature::Strings(_) => "string",
        Feature::Floats(_) => "float",
        Feature::Integers(_) => "int64",
    }
}

/// A dense feature over examples.
struct DenseColumn {
    values: Column,
    /// Where each example's values end, for a first dimension that varies.
    ends: Vec<usize>,
    stride: usize,
}

impl DenseColumn {
    fn new(config: &Dense) -> Result<DenseColumn> {
        Ok(DenseColumn { values: Column::new(config.dtype)?, ends: Vec::new(), stride: config.shape.num_elements() })
    }

    fn add(&mut self, config: &Dense, feature: Feature<'_>, whole: &Bytes, i: usize, texts: &Texts<'_>) -> Result<()> {
        let before = self.values.len();
        let start = || (texts.feature)(i, &String::from_utf8_lossy(&config.key));
        match self.values.extend(feature, whole) {
            None => return Err(texts.broken(i, &config.key)),
            Some(false) => {
                return Err(invalid_argument!(
                    "{}Data types don't match. Data type: {} but expected type: {}",
                    start(),
                    kind_of(feature),
                    config.dtype
                ));
            }
            Some(true) => {}
        }
        let count = self.values.len() - before;
        let kind = if config.dtype == DType::String { "bytes" } else { config.dtype.name() };
        if feature == Feature::Missing && !config.variable {
            if config.default.num_elements() == 0 {
                return Err(invalid_argument!(
                    "{}Feature: {} (data type: {}) is required but could not be found.",
                    (texts.missing)(i),
                    String::from_utf8_lossy(&config.key),
                    config.dtype
                ));
            }
            self.values.extend_from(&config.default)?;
        } else if !config.variable && count != self.stride {
            return Err(invalid_argument!(
                "{}Number of {kind} values != expected.  Values size: {count} but output shape: {}",
                start(),
                config.declared()
            ));
        } else if config.variable && count != 0 && count.checked_rem(self.stride) != Some(0) {
            return Err(invalid_argument!(
                "{}Number of {kind} values is not a multiple of stride length. Saw {count} values but output shape is: {}",
                start(),
                config.declared()
            ));
        }
        self.ends.push(self.values.len());
        Ok(())
    }

    fn finish(self, config: &Dense, batch: Option<usize>) -> Result<Tensor> {
        let mut dims: Vec<usize> = batch.into_iter().collect();
        if !config.variable {
            dims.extend_from_slice(config.shape.dims());
            return self.values.into_tensor(Shape::from_dims(&dims)?);
        }
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let longest = self.ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0);
        dims.push(longest.checked_div(self.stride).unwrap_or(0));
        dims.extend_from_slice(config.shape.dims());
        let shape = Shape::from_dims(&dims)?;
        if shape.num_elements() == self.values.len() {
            return self.values.into_tensor(shape);
        }
        let values = self.values.into_tensor(Shape::vector(self.ends.last().copied().unwrap_or(0)))?;
        let mut padded = Column::new(config.dtype)?;
        padded.pad(Some(&config.default), shape.num_elements())?;
        let mut tensor = padded.into_tensor(shape)?;
        let mut start = 0;
        for (row, &end) in self.ends.iter().enumerate() {
            tensor.copy_elements(row * longest, &values, start..end)?;
            start = end;
        }
        Ok(tensor)
    }
}

/// A feature of any number of values over examples.
struct RowColumn {
    values: Column,
    /// Where each example's values end.
    ends: Vec<usize>,
}

impl RowColumn {
    fn new(dtype: DType) -> Result<RowColumn> {
        Ok(RowColumn { values: Column::new(dtype)?, ends: Vec::new() })
    }

    fn add(
        &mut self,
        feature: Feature<'_>,
        whole: &Bytes,
        i: usize,
        key: &Bytes,
        dtype: DType,
        texts: &Texts<'_>,
    ) -> Result<()> {
        match self.values.extend(feature, whole) {
            None => return Err(texts.broken(i, key)),
            Some(false) => {
                let start = (texts.feature)(i, &String::from_utf8_lossy(key));
                let actual = kind_of(feature);
                return Err(invalid_argument!(
                    "{start}Data types don't match. Expected type: {dtype}, Actual type: {actual}"
                ));
            }
            Some(true) => {}
        }
        self.ends.push(self.values.len());
        Ok(())
    }

    fn indices(&self, batched: bool) -> Result<Tensor> {
        let mut indices = Vec::new();
        let mut start = 0;
        for (row, &end) in self.ends.iter().enumerate() {
            for position in 0..(end - start) as i64 {
                if batched {
                    indices.push(row as i64);
                }
                indices.push(position);
            }
            start = end;
        }
        let width = if batched { 2 } else { 1 };
        Tensor::from_slice(Shape::from_dims(&[self.values.len(), width])?, &indices)
    }

    fn shape(&self, batch: Option<usize>) -> Result<Tensor> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let longest = self.ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0);
        match batch {
            Some(batch) => Tensor::vector(&[batch as i64, longest as i64]),
            None => Tensor::vector(&[longest as i64]),
        }
    }

    fn values(self) -> Result<Tensor> {
        let shape = Shape::vector(self.values.len());
        self.values.into_tensor(shape)
    }
}

/// Ends as row splits of a type: 0, then every end.
pub(super) fn splits(ends: &[usize], dtype: DType) -> Result<Tensor> {
    let all = std::iter::once(0).chain(ends.iter().copied());
    if dtype == DType::Int64 {
        return Tensor::vector(&all.map(|end| end as i64).collect::<Vec<_>>());
    }
    let narrow: Result<Vec<i32>, _> = all.map(i32::try_from).collect();
    Tensor::vector(&narrow.map_err(|_| invalid_argument!("too many values for int32 row splits"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{Ragged, Sparse};
    use graphmill_wire::tensorflow::{
        BytesList, Example, Feature as FeatureProto, Features, FloatList, Int64List, feature::Kind,
    };
    use prost::Message;

    fn example(features: &[(&str, Kind)]) -> Bytes {
        let feature =
            features.iter().map(|(key, kind)| ((*key).to_owned(), FeatureProto { kind: Some(kind.clone()) })).collect();
        Example { features: Some(Features { feature }) }.encode_to_vec().into()
    }

    fn ints(values: &[i64]) -> Kind {
        Kind::Int64List(Int64List { value: values.to_vec() })
    }

    fn dense(key: &'static str, dims: &[i64], default: Tensor) -> Dense {
        let (shape, variable) = Dense::split_shape(Some(dims), 0).unwrap();
        Dense { key: Bytes::from(key), dtype: default.dtype(), shape, variable, default }
    }

    #[test]
    fn a_batch_becomes_tensors() {
        let layout = Layout {
            dense: vec![
                dense("a", &[2], Tensor::vector(&[-1i64, -2]).unwrap()),
                dense("v", &[-1], Tensor::scalar(7i64).unwrap()),
                dense("f", &[], Tensor::scalar(0.5f32).unwrap()),
            ],
            sparse: vec![Sparse { key: Bytes::from("s"), dtype: DType::String }],
            ragged: vec![Ragged { key: Bytes::from("v"), dtype: DType::Int64, splits: DType::Int32 }],
        };
        let strings = Kind::BytesList(BytesList { value: vec![Bytes::from("x"), Bytes::from("y")] });
        let examples = [
            example(&[("a", ints(&[1, 2])), ("v", ints(&[5])), ("s", strings)]),
            example(&[("v", ints(&[8, 9])), ("f", Kind::FloatList(FloatList { value: vec![2.0] }))]),
        ];
        let parsed = parse_batch(&layout, &examples, &[]).unwrap();
        assert_eq!(parsed.dense_values[0].as_slice::<i64>().unwrap(), [1, 2, -1, -2]);
        assert_eq!(parsed.dense_values[1].as_slice::<i64>().unwrap(), [5, 7, 8, 9]);
        assert_eq!(parsed.dense_values[2].as_slice::<f32>().unwrap(), [0.5, 2.0]);
        assert_eq!(parsed.sparse_indices[0].as_slice::<i64>().unwrap(), [0, 0, 0, 1]);
        assert_eq!(parsed.sparse_shapes[0].as_slice::<i64>().unwrap(), [2, 2]);
        assert_eq!(parsed.ragged_splits[0].as_slice::<i32>().unwrap(), [0, 1, 3]);
        let single = parse_single(&layout, &examples[0]).unwrap();
        assert_eq!(single.dense_values[1].shape().dims(), [1]);
        assert_eq!(single.sparse_indices[0].shape().dims(), [2, 1]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let required = |dims: &[i64]| dense("a", dims, Tensor::vector::<i64>(&[]).unwrap());
        let layout = |dense: Dense| Layout { dense: vec![dense], ..Layout::default() };
        let text = |dense: Dense, example: Bytes| parse_batch(&layout(dense), &[example], &[]).unwrap_err();
        let error = text(required(&[2]), example(&[("a", ints(&[1]))]));
        let expected = "Name: <unknown>, Key: a, Index: 0.  Number of int64 values != expected.  Values size: 1 but output \
                        shape: [2]";
        assert_eq!(error.message(), expected);
        let error = text(required(&[2]), example(&[]));
        let expected = "Name: <unknown>, Feature: a (data type: int64) is required but could not be found.";
        assert_eq!(error.message(), expected);
        let floats = Kind::FloatList(FloatList { value: vec![1.0] });
        assert!(text(required(&[1]), example(&[("a", floats)])).message().contains("Data types don't match"));
        let error = text(required(&[1]), Bytes::from_static(b"\x0a\xff"));
        assert!(error.message().starts_with("Could not parse example input"));
    }
}
