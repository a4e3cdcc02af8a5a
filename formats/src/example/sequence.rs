//! Parsing examples with sequences: a context, which is an example, and lists of features.

use super::batch::splits;
use super::column::Column;
use super::layout::{Layout, Ragged, Sparse};
use super::wire::{Feature, Fields, Value, features_of};
use super::{Parsed, parse_batch, parse_single};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use std::collections::{HashMap, HashSet};

/// A list of features with as many values each.
#[derive(Clone, Debug)]
pub struct DenseList {
    /// Its name.
    pub key: Bytes,
    /// Its element type.
    pub dtype: DType,
    /// The shape of a feature's value.
    pub shape: Shape,
    /// Whether the list is empty where it is missing.
    pub may_miss: bool,
}

/// All that is to be taken out of examples with sequences.
#[derive(Clone, Debug, Default)]
pub struct SequenceLayout {
    /// Features of the context.
    pub context: Layout,
    /// Lists with as many values in each feature.
    pub dense: Vec<DenseList>,
    /// Lists to become sparse tensors.
    pub sparse: Vec<Sparse>,
    /// Lists to become ragged tensors.
    pub ragged: Vec<Ragged>,
}

/// What was taken out of examples with sequences, in the order of the layout.
#[derive(Debug, Default)]
pub struct ParsedSequences {
    /// Of the context.
    pub context: Parsed,
    /// Where each value of the sparse lists is: example (in a batch), feature and position.
    pub sparse_indices: Vec<Tensor>,
    /// The values of the sparse lists.
    pub sparse_values: Vec<Tensor>,
    /// The shapes of the sparse lists.
    pub sparse_shapes: Vec<Tensor>,
    /// The dense lists; in a batch, filled up to the longest one.
    pub dense_values: Vec<Tensor>,
    /// How many features the dense lists have.
    pub dense_lengths: Vec<Tensor>,
    /// The values of the ragged lists.
    pub ragged_values: Vec<Tensor>,
    /// Where each example's features end; nothing for one example.
    pub ragged_outer_splits: Vec<Tensor>,
    /// Where each feature's values end.
    pub ragged_inner_splits: Vec<Tensor>,
}

/// Takes a context and lists out of a batch of examples, or out of one if `batched` is false.
///
/// # Errors
/// `INVALID_ARGUMENT` for broken messages, missing features, and values of another type or number.
pub fn parse_sequences(
    layout: &SequenceLayout,
    examples: &[Bytes],
    names: &[Bytes],
    batched: bool,
) -> Result<ParsedSequences> {
    let context = match examples {
        [example] if !batched => parse_single(&layout.context, example)?,
        _ => parse_batch(&layout.context, examples, names)?,
    };
    let keys = layout.dense.iter().map(|f| &f.key).chain(layout.sparse.iter().map(|f| &f.key));
    let wanted: HashSet<&[u8]> = keys.chain(layout.ragged.iter().map(|f| &f.key)).map(|key| key.as_ref()).collect();
    let new = |dtype: DType| ListColumn::new(dtype);
    let mut dense = layout.dense.iter().map(|f| new(f.dtype)).collect::<Result<Vec<_>>>()?;
    let mut sparse = layout.sparse.iter().map(|f| new(f.dtype)).collect::<Result<Vec<_>>>()?;
    let mut ragged = layout.ragged.iter().map(|f| new(f.dtype)).collect::<Result<Vec<_>>>()?;
    for (i, example) in examples.iter().enumerate() {
        let name = || String::from_utf8_lossy(names.get(i).map_or(b"<unknown>".as_slice(), |name| name)).into_owned();
        let lists = find(example, &wanted)
            .ok_or_else(|| invalid_argument!("Invalid protocol message input, example id: {}", name()))?;
        for (config, column) in layout.dense.iter().zip(&mut dense) {
            let list = lists.get(config.key.as_ref()).copied();
            if list.is_none() && !config.may_miss {
                return Err(invalid_argument!(
                    "Name: {}, Feature list '{}' is required but could not be found.  Did you mean to include it in \
                     feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",
                    name(),
                    String::from_utf8_lossy(&config.key)
                ));
            }
            column.add(list, example, &name, &config.key, Some(&config.shape))?;
        }
        for (config, column) in layout.sparse.iter().zip(&mut sparse) {
            column.add(lists.get(config.key.as_ref()).copied(), example, &name, &config.key, None)?;
        }
        for (config, column) in layout.ragged.iter().zip(&mut ragged) {
            column.add(lists.get(config.key.as_ref()).copied(), example, &name, &config.key, None)?;
        }
    }
    let mut parsed = ParsedSequences { context, ..ParsedSequences::default() };
    for (config, column) in layout.dense.iter().zip(dense) {
        let lengths: Vec<i64> = column.lengths().map(|length| length as i64).collect();
        parsed.dense_lengths.push(match (batched, lengths.as_slice()) {
            (false, &[length]) => Tensor::scalar(length)?,
            _ => Tensor::vector(&lengths)?,
        });
        parsed.dense_values.push(column.into_dense(&config.shape, batched)?);
    }
    for column in sparse {
        parsed.sparse_indices.push(column.indices(batched)?);
        parsed.sparse_shapes.push(column.shape(batched)?);
        parsed.sparse_values.push(column.into_values()?);
    }
    for (config, column) in layout.ragged.iter().zip(ragged) {
        parsed.ragged_outer_splits.push(match batched {
            true => splits(&column.example_ends, config.splits)?,
            false => Tensor::alloc(config.splits, Shape::vector(0))?,
        });
        parsed.ragged_inner_splits.push(splits(&column.feature_ends, config.splits)?);
        parsed.ragged_values.push(column.into_values()?);
    }
    Ok(parsed)
}

/// The wanted lists of an example, by name.
fn find<'a>(example: &'a Bytes, wanted: &HashSet<&[u8]>) -> Option<HashMap<&'a [u8], &'a [u8]>> {
    let mut found = HashMap::new();
    for field in Fields(example) {
        if let (2, Value::Bytes(lists)) = field? {
            features_of(lists, |name| wanted.contains(name), &mut found)?;
        }
    }
    Some(found)
}

/// A list of features over examples.
struct ListColumn {
    values: Column,
    dtype: DType,
    /// Where each feature's values end.
    feature_ends: Vec<usize>,
    /// Where each example's features end.
    example_ends: Vec<usize>,
}

impl ListColumn {
    fn new(dtype: DType) -> Result<ListColumn> {
        Ok(ListColumn { values: Column::new(dtype)?, dtype, feature_ends: Vec::new(), example_ends: Vec::new() })
    }

    /// Adds an example's list. With a shape, every feature has to have as many values.
    fn add(
        &mut self,
        list: Option<&[u8]>,
        whole: &Bytes,
        name: &dyn Fn() -> String,
        key: &Bytes,
        shape: Option<&Shape>,
    ) -> Result<()> {
        let key = || String::from_utf8_lossy(key);
        let broken = || invalid_argument!("Error in sequence feature {} in example {}", key(), name());
        for (index, field) in Fields(list.unwrap_or_default()).enumerate() {
            let (1, Value::Bytes(feature)) = field.ok_or_else(broken)? else { continue };
            let before = self.values.len();
            let feature = Feature::parse(feature).ok_or_else(broken)?;
            if !self.values.extend(feature, whole).ok_or_else(broken)? {
                return Err(invalid_argument!(
                    "Name: {}, Feature list: {}, Index: {index}.  Data types don't match. Expected type: {}",
                    name(),
                    key(),
                    self.dtype
                ));
            }
            let count = self.values.len() - before;
            if let Some(shape) = shape.filter(|shape| shape.num_elements() != count) {
                return Err(invalid_argument!(
                    "Name: {}, Key: {}, Index: {index}.  Number of {} values != expected.  values size: {count} but output \
                     shape: {shape}",
                    name(),
                    key(),
                    self.dtype
                ));
            }
            self.feature_ends.push(self.values.len());
        }
        self.example_ends.push(self.feature_ends.len());
        Ok(())
    }

    /// How many features each example has.
    fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let starts = std::iter::once(0).chain(self.example_ends.iter().copied());
        self.example_ends.iter().zip(starts).map(|(end, start)| end - start)
    }

    fn into_values(self) -> Result<Tensor> {
        let shape = Shape::vector(self.values.len());
        self.values.into_tensor(shape)
    }

    fn into_dense(self, shape: &Shape, batched: bool) -> Result<Tensor> {
        let longest = self.lengths().max().unwrap_or(0);
        let mut dims = if batched { vec![self.example_ends.len()] } else { Vec::new() };
        dims.push(longest);
        dims.extend_from_slice(shape.dims());
        let (whole, stride) = (Shape::from_dims(&dims)?, shape.num_elements());
        if whole.num_elements() == self.values.len() {
            return self.values.into_tensor(whole);
        }
        let mut padded = Tensor::zeros(self.dtype, whole)?;
        let ends = self.example_ends.clone();
        let values = self.into_values()?;
        let mut start = 0;
        for (row, end) in ends.into_iter().enumerate() {
            padded.copy_elements(row * longest * stride, &values, start * stride..end * stride)?;
            start = end;
        }
        Ok(padded)
    }

    fn indices(&self, batched: bool) -> Result<Tensor> {
        let mut indices = Vec::new();
        let (mut feature, mut value) = (0, 0);
        for (example, &last) in self.example_ends.iter().enumerate() {
            for (row, &end) in self.feature_ends.get(feature..last).unwrap_or_default().iter().enumerate() {
                for column in 0..(end - value) as i64 {
                    if batched {
                        indices.push(example as i64);
                    }
                    indices.extend([row as i64, column]);
                }
                value = end;
            }
            feature = last;
        }
        Tensor::from_slice(Shape::from_dims(&[self.values.len(), if batched { 3 } else { 2 }])?, &indices)
    }

    fn shape(&self, batched: bool) -> Result<Tensor> {
        let rows = self.lengths().max().unwrap_or(0) as i64;
        let starts = std::iter::once(0).chain(self.feature_ends.iter().copied());
        let columns = self.feature_ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0) as i64;
        if batched {
            Tensor::vector(&[self.example_ends.len() as i64, rows, columns])
        } else {
            Tensor::vector(&[rows, columns])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::feature::Kind;
    use graphmill_wire::tensorflow::{FeatureList, FeatureLists, Int64List, SequenceExample};
    use prost::Message;

    fn example(lists: &[(&str, &[&[i64]])]) -> Bytes {
        let feature = |values: &&[i64]| graphmill_wire::tensorflow::Feature {
            kind: Some(Kind::Int64List(Int64List { value: values.to_vec() })),
        };
        let list = |rows: &[&[i64]]| FeatureList { feature: rows.iter().map(feature).collect() };
        let feature_list = lists.iter().map(|(key, rows)| ((*key).to_owned(), list(rows))).collect();
        let lists = Some(FeatureLists { feature_list });
        SequenceExample { context: None, feature_lists: lists }.encode_to_vec().into()
    }

    #[test]
    fn lists_are_padded_or_kept_apart() {
        let key = |key: &'static str| Bytes::from(key);
        let layout = SequenceLayout {
            dense: vec![DenseList { key: key("d"), dtype: DType::Int64, shape: Shape::vector(2), may_miss: true }],
            sparse: vec![Sparse { key: key("s"), dtype: DType::Int64 }],
            ragged: vec![Ragged { key: key("s"), dtype: DType::Int64, splits: DType::Int64 }],
            ..SequenceLayout::default()
        };
        let examples = [example(&[("d", &[&[1, 2], &[3, 4]]), ("s", &[&[5], &[6, 7]])]), example(&[("s", &[&[8]])])];
        let parsed = parse_sequences(&layout, &examples, &[], true).unwrap();
        assert_eq!(parsed.dense_values[0].shape().dims(), [2, 2, 2]);
        assert_eq!(parsed.dense_values[0].as_slice::<i64>().unwrap(), [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(parsed.dense_lengths[0].as_slice::<i64>().unwrap(), [2, 0]);
        assert_eq!(parsed.sparse_indices[0].as_slice::<i64>().unwrap(), [0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0]);
        assert_eq!(parsed.sparse_shapes[0].as_slice::<i64>().unwrap(), [2, 2, 2]);
        assert_eq!(parsed.ragged_outer_splits[0].as_slice::<i64>().unwrap(), [0, 2, 3]);
        assert_eq!(parsed.ragged_inner_splits[0].as_slice::<i64>().unwrap(), [0, 1, 3, 4]);
        let single = parse_sequences(&layout, &examples[..1], &[], false).unwrap();
        assert_eq!(single.dense_values[0].shape().dims(), [2, 2]);
        assert_eq!(single.sparse_indices[0].as_slice::<i64>().unwrap(), [0, 0, 1, 0, 1, 1]);
        let wrong = [example(&[("d", &[&[1]])])];
        assert!(parse_sequences(&layout, &wrong, &[], true).unwrap_err().message().contains("!= expected"));
        assert!(parse_sequences(&layout, &[Bytes::from_static(b"\x12\x7f")], &[], true).is_err());
    }
}
