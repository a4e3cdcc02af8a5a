//! Crosses of features: `SparseCross`, `SparseCrossV2`, `SparseCrossHashed`, `RaggedCross`.

use crate::columns::{Column, Feature, bucket, combinations, fingerprint_cat, for_each_combination, joined_text};
use crate::coo::index_matrix;
use crate::types::INDICES;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use siphasher::sip::SipHasher24;
use std::ops::Range;

pub(crate) fn register(registry: &mut Registry) {
    const TYPES: [DType; 2] = [DType::Int64, DType::String];
    registry.op("SparseCross").types("out_type", &TYPES).types("internal_type", &TYPES).kernel(SparseCross::new);
    registry.op("SparseCrossV2").kernel(|c| Ok(SparseCrossV2(Inputs::new(c)?)));
    registry.op("SparseCrossHashed").kernel(|c| Ok(SparseCrossHashed(Inputs::new(c)?)));
    registry.op("RaggedCross").types("out_row_splits_type", &INDICES).kernel(RaggedCross::new);
}

/// What separates features where nothing else is said.
const SEPARATOR: &[u8] = b"_X_";

/// Where the lists of inputs are.
struct Inputs {
    indices: Range<usize>,
    values: Range<usize>,
    shapes: Range<usize>,
    dense: Range<usize>,
}

impl Inputs {
    fn new(c: &Construction<'_>) -> Result<Inputs> {
        Ok(Inputs {
            indices: c.input_range("indices")?,
            values: c.input_range("values")?,
            shapes: c.input_range("shapes")?,
            dense: c.input_range("dense_inputs")?,
        })
    }

    /// The columns and the number of rows. `internal` is the type that features have, if that is fixed.
    fn columns(&self, ctx: &Context<'_>, internal: Option<DType>) -> Result<(Vec<Column>, usize)> {
        let get = |range: &Range<usize>, i: usize| ctx.input(range.start + i);
        let count = self.indices.len();
        let text_only = internal == Some(DType::String);
        for i in 0..count {
            let (indices, values) = (get(&self.indices, i)?, get(&self.values, i)?);
            if !indices.shape().is_matrix() {
                return Err(invalid_argument!(
                    "Input indices should be a matrix but received shape {} at position {i}",
                    indices.shape()
                ));
            }
            if indices.shape().dim(1) != 2 {
                return Err(invalid_argument!(
                    "Expected D2 of index to be 2 got {} at position {i}",
                    indices.shape().dim(1)
                ));
            }
            if text_only && values.dtype() == DType::Int64 {
                return Err(invalid_argument!("Input values should be of internal type string but received int64"));
            }
            if !values.shape().is_vector() {
                return Err(invalid_argument!(
                    "Input values should be a vector but received shape {} at position {i}",
                    values.shape()
                ));
            }
            if indices.shape().dim(0) != values.num_elements() {
                return Err(invalid_argument!(
                    "Expected size of values to be {} got {} at position {i}",
                    indices.shape().dim(0),
                    values.num_elements()
                ));
            }
            let shape = get(&self.shapes, i)?;
            if !shape.shape().is_vector() {
                return Err(invalid_argument!(
                    "Input shapes should be a vector but received shape {} at position {i}",
                    shape.shape()
                ));
            }
            if shape.num_elements() != 2 {
                return Err(invalid_argument!(
                    "shape should imply a 2D tensor, but got {} at position {i}",
                    shape.shape()
                ));
            }
        }
        for i in 0..self.dense.len() {
            let dense = get(&self.dense, i)?;
            if text_only && dense.dtype() == DType::Int64 {
                return Err(invalid_argument!("Dense inputs should be of internal type string but received int64"));
            }
            if !dense.shape().is_matrix() {
                return Err(invalid_argument!(
                    "Dense inputs should be a matrix but received shape {} at position {i}",
                    dense.shape()
                ));
            }
        }
        let mut rows = None;
        for i in 0..count {
            let size = get(&self.shapes, i)?.as_slice::<i64>()?[0];
            let rows = *rows.get_or_insert(size);
            if size != rows {
                return Err(invalid_argument!("Expected batch size {rows} got {size} at position {i}"));
            }
        }
        for i in 0..self.dense.len() {
            let size = get(&self.dense, i)?.shape().dim(0) as i64;
            let rows = *rows.get_or_insert(size);
            if size != rows {
                return Err(invalid_argument!("Expected batch size {rows} got {size} at dense tensor {i}"));
            }
        }
        let rows = rows.unwrap_or(0);
        // Checks that there is memory for as many rows.
        let rows = Tensor::alloc(DType::Int64, Shape::new(&[rows])?)?.num_elements();
        let sparse = (0..count).map(|i| Column::sparse(get(&self.indices, i)?, get(&self.values, i)?, rows));
        let dense = (0..self.dense.len()).map(|i| Column::dense(get(&self.dense, i)?));
        Ok((sparse.chain(dense).collect::<Result<_>>()?, rows))
    }
}

/// Crosses as they are made.
enum Crosses {
    Texts(Vec<Bytes>),
    Numbers(Vec<i64>),
}

impl Crosses {
    fn into_tensor(self) -> Result<Tensor> {
        match self {
            Crosses::Texts(texts) => Tensor::from_strings(Shape::vector(texts.len()), texts),
            Crosses::Numbers(numbers) => Tensor::vector(&numbers),
        }
    }
}

/// Sets the three outputs of a sparse cross.
fn give_out(
    ctx: &mut Context<'_>,
    columns: &[Column],
    rows: usize,
    mut crosses: Crosses,
    mut visit: impl FnMut(&[&Feature], &mut Crosses),
) -> Result<()> {
    let (mut indices, mut widest) = (Vec::new(), 0);
    for row in 0..rows {
        let count = combinations(columns, row)?;
        widest = widest.max(count);
        indices.extend((0..count).flat_map(|i| [row as i64, i as i64]));
        if count > 0 {
            for_each_combination(columns, row, |features| visit(features, &mut crosses));
        }
    }
    ctx.set_output(0, index_matrix(&indices, indices.len() / 2, 2)?)?;
    ctx.set_output(1, crosses.into_tensor()?)?;
    ctx.set_output(2, Tensor::vector(&[rows as i64, widest as i64])?)
}

struct SparseCross {
    inputs: Inputs,
    hashed: bool,
    buckets: i64,
    key: u64,
    internal: DType,
}

impl SparseCross {
    fn new(c: &Construction<'_>) -> Result<SparseCross> {
        let hashed = c.dtype("out_type")? == DType::Int64;
        let internal = c.dtype("internal_type")?;
        Ok(SparseCross {
            inputs: Inputs::new(c)?,
            hashed,
            buckets: c.attrs().int("num_buckets")?,
            key: c.attrs().int("hash_key")? as u64,
            internal,
        })
    }
}

fn hash(features: &[&Feature], key: u64, buckets: i64) -> i64 {
    bucket(features.iter().fold(key, |hash, feature| fingerprint_cat(hash, feature.number())), buckets)
}

impl Kernel for SparseCross {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (columns, rows) = self.inputs.columns(ctx, Some(self.internal))?;
        let crosses = if self.hashed { Crosses::Numbers(Vec::new()) } else { Crosses::Texts(Vec::new()) };
        give_out(ctx, &columns, rows, crosses, |features, crosses| match crosses {
            Crosses::Numbers(numbers) => numbers.push(hash(features, self.key, self.buckets)),
            Crosses::Texts(texts) => texts.push(joined_text(features, SEPARATOR)),
        })
    }
}

/// Crosses of text with a separator that is an input.
struct SparseCrossV2(Inputs);

impl Kernel for SparseCrossV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (columns, rows) = self.0.columns(ctx, None)?;
        let separator = match ctx.input(self.0.dense.end)?.strings()? {
            [separator] => separator.clone(),
            _ => return Err(invalid_argument!("sep must be a scalar")),
        };
        give_out(ctx, &columns, rows, Crosses::Texts(Vec::new()), |features, crosses| {
            if let Crosses::Texts(texts) = crosses {
                texts.push(joined_text(features, &separator));
            }
        })
    }
}

/// Hashed crosses, with salt.
struct SparseCrossHashed(Inputs);

fn salted(feature: &Feature, dense: bool, strong: Option<(u64, u64)>) -> u64 {
    // Of an integer, TensorFlow hashes the lower half; a dense one it takes as it is unless the hash is strong.
    match (feature, strong) {
        (Feature::Text(text), Some((a, b))) => SipHasher24::new_with_keys(a, b).hash(text),
        (Feature::Int(value), Some((a, b))) => SipHasher24::new_with_keys(a, b).hash(&value.to_le_bytes()[..4]),
        (Feature::Text(text), None) => farmhash::fingerprint64(text),
        (Feature::Int(value), None) if dense => *value as u64,
        (Feature::Int(value), None) => farmhash::fingerprint64(&value.to_le_bytes()[..4]),
    }
}

impl Kernel for SparseCrossHashed {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (columns, rows) = self.0.columns(ctx, None)?;
        let at = self.0.dense.end;
        let buckets = ctx.input(at)?.scalar_value::<i64>()?;
        let strong = ctx.input(at + 1)?.scalar_value::<bool>()?;
        let &[a, b] = ctx.input(at + 2)?.as_slice::<i64>()? else {
            return Err(invalid_argument!("salt must have 2 elements"));
        };
        let key = strong.then_some((a as u64, b as u64));
        let dense: Vec<bool> = columns.iter().map(|column| column.dense).collect();
        give_out(ctx, &columns, rows, Crosses::Numbers(Vec::new()), |features, crosses| {
            let hashes = features.iter().zip(&dense).map(|(feature, &dense)| salted(feature, dense, key));
            if let (Crosses::Numbers(numbers), Some(hash)) = (crosses, hashes.reduce(fingerprint_cat)) {
                numbers.push(bucket(hash, buckets));
            }
        })
    }
}

struct RaggedCross {
    ragged_values: Range<usize>,
    ragged_splits: Range<usize>,
    sparse_indices: Range<usize>,
    sparse_values: Range<usize>,
    sparse_shapes: Range<usize>,
    dense: Range<usize>,
    order: String,
    buckets: i64,
    key: u64,
    splits: DType,
    hashed: bool,
}

impl RaggedCross {
    fn new(c: &Construction<'_>) -> Result<RaggedCross> {
        let cross = RaggedCross {
            ragged_values: c.input_range("ragged_values")?,
            ragged_splits: c.input_range("ragged_row_splits")?,
            sparse_indices: c.input_range("sparse_indices")?,
            sparse_values: c.input_range("sparse_values")?,
            sparse_shapes: c.input_range("sparse_shape")?,
            dense: c.input_range("dense_inputs")?,
            order: c.attrs().str("input_order")?.to_owned(),
            buckets: c.attrs().int("num_buckets")?,
            key: c.attrs().int("hash_key")? as u64,
            splits: c.dtype("out_row_splits_type")?,
            hashed: c.dtype("out_values_type")? == DType::Int64,
        };
        if cross.ragged_values.len() != cross.ragged_splits.len() {
            return Err(invalid_argument!("ragged values and splits must have the same length"));
        }
        if cross.sparse_indices.len() != cross.sparse_values.len() {
            return Err(invalid_argument!("sparse indices and values must have the same length"));
        }
        if cross.ragged_values.len() + cross.sparse_values.len() + cross.dense.len() != cross.order.len() {
            return Err(invalid_argument!("Invalid length for input_order"));
        }
        Ok(cross)
    }

    fn check(&self, ctx: &Context<'_>) -> Result<usize> {
        let rank_2 = || invalid_argument!("tf.ragged.cross only supports inputs with rank=2.");
        let mut sizes = Vec::new();
        for (values, splits) in self.ragged_values.clone().zip(self.ragged_splits.clone()) {
            if !ctx.input(values)?.shape().is_vector() {
                return Err(rank_2());
            }
            let splits = ctx.input(splits)?;
            if !splits.shape().is_vector() || splits.num_elements() == 0 {
                return Err(invalid_argument!("Invalid RaggedTensor"));
            }
            sizes.push(splits.num_elements() as i64 - 1);
        }
        for i in self.dense.clone() {
            let dense = ctx.input(i)?;
            if !dense.shape().is_matrix() {
                return Err(rank_2());
            }
            sizes.push(dense.shape().dim(0) as i64);
        }
        for i in 0..self.sparse_indices.len() {
            let indices = ctx.input(self.sparse_indices.start + i)?;
            let (values, shape) = (ctx.input(self.sparse_values.start + i)?, ctx.input(self.sparse_shapes.start + i)?);
            if !indices.shape().is_matrix()
                || !values.shape().is_vector()
                || !shape.shape().is_vector()
                || indices.shape().dim(0) != values.num_elements()
            {
                return Err(invalid_argument!("Invalid SparseTensor {i}"));
            }
            let &[rows, _] = shape.as_slice::<i64>()? else { return Err(rank_2()) };
            sizes.push(rows);
        }
        let rows = sizes.first().copied().unwrap_or(0);
        if sizes.iter().any(|&size| size != rows) {
            return Err(invalid_argument!("inputs must all have the same batch dimension size."));
        }
        Ok(Tensor::alloc(DType::Int64, Shape::new(&[rows])?)?.num_elements())
    }

    fn columns(&self, ctx: &Context<'_>, rows: usize) -> Result<Vec<Column>> {
        let (mut ragged, mut sparse, mut dense) = (0, 0, 0);
        let mut columns = Vec::with_capacity(self.order.len());
        let missing = |what: &str, at: usize, count: usize| {
            invalid_argument!(
                "input_order \"{}\" specifies reading a {what} at index {at} from a list of {count} values.",
                self.order
            )
        };
        for kind in self.order.chars() {
            match kind {
                'R' if ragged >= self.ragged_values.len() => {
                    return Err(missing("ragged tensor value", ragged, self.ragged_values.len()));
                }
                'R' => {
                    let (values, splits) = (self.ragged_values.start + ragged, self.ragged_splits.start + ragged);
                    columns.push(Column::ragged(ctx.input(values)?, ctx.input(splits)?)?);
                    ragged += 1;
                }
                'S' if sparse >= self.sparse_values.len() => {
                    return Err(missing("sparse tensor value", sparse, self.sparse_values.len()));
                }
                'S' => {
                    let (indices, values) = (self.sparse_indices.start + sparse, self.sparse_values.start + sparse);
                    columns.push(Column::sparse(ctx.input(indices)?, ctx.input(values)?, rows)?);
                    sparse += 1;
                }
                'D' if dense >= self.dense.len() => return Err(missing("dense tensor", dense, self.dense.len())),
                'D' => {
                    columns.push(Column::dense(ctx.input(self.dense.start + dense)?)?);
                    dense += 1;
                }
                _ => return Err(invalid_argument!("Unexpected input_order value.")),
            }
        }
        Ok(columns)
    }
}

impl Kernel for RaggedCross {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rows = self.check(ctx)?;
        let columns = self.columns(ctx, rows)?;
        let mut crosses = if self.hashed { Crosses::Numbers(Vec::new()) } else { Crosses::Texts(Vec::new()) };
        let mut splits = vec![0i64];
        for row in 0..rows {
            let count = combinations(&columns, row)?;
            splits.push(splits.last().copied().unwrap_or(0) + count as i64);
            if count == 0 {
                continue;
            }
            for_each_combination(&columns, row, |features| match &mut crosses {
                Crosses::Numbers(numbers) => numbers.push(hash(features, self.key, self.buckets)),
                Crosses::Texts(texts) => texts.push(joined_text(features, SEPARATOR)),
            });
        }
        ctx.set_output(0, crosses.into_tensor()?)?;
        let splits = match self.splits {
            DType::Int64 => Tensor::vector(&splits)?,
            _ => Tensor::vector(&splits.iter().map(|&split| split as i32).collect::<Vec<i32>>())?,
        };
        ctx.set_output(1, splits)
    }
}
