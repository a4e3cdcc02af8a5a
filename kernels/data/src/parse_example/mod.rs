//! `ParseExampleDataset` and `ParseExampleDatasetV2`: the features of batches of serialized `tf.Example` messages.

mod column;
mod parse;

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, inputs, scalar};
use crate::function::declared_order;
use crate::parallel::Parallel;
use crate::parallel_map::workers;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use parse::{Feature, Kind};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    let ops = ["ParseExampleDataset", "ExperimentalParseExampleDataset", "ParseExampleDatasetV2"];
    dataset_ops(registry, &ops, |c| {
        let attrs = Attributes::new(c)?;
        Ok(move |ctx: &Context<'_>| ParseExample::new(ctx, &attrs))
    });
}

struct Attributes {
    order: Option<bool>,
    spec: Arc<Spec>,
    defaults: std::ops::Range<usize>,
    dense: Vec<(Vec<u8>, DType, PartialShape)>,
    /// The features of the other kinds.
    others: Vec<Feature>,
}

/// The attributes `name`, if the op has it.
fn keys(c: &Construction<'_>, name: &str) -> Result<Vec<Vec<u8>>> {
    if !c.attrs().has(name) {
        return Ok(Vec::new());
    }
    Ok(c.attrs().string_list(name)?.iter().map(|key| key.to_vec()).collect())
}

fn types(c: &Construction<'_>, name: &str) -> Result<Vec<DType>> {
    if c.attrs().has(name) { c.attrs().dtype_list(name) } else { Ok(Vec::new()) }
}

fn check_type(dtype: DType) -> Result<DType> {
    match dtype {
        DType::Int64 | DType::Float | DType::String => Ok(dtype),
        other => Err(invalid_argument!("Invalid config dtype: {other}")),
    }
}

impl Attributes {
    fn new(c: &Construction<'_>) -> Result<Attributes> {
        let (dense_keys, dense_types) = (keys(c, "dense_keys")?, c.attrs().dtype_list("Tdense")?);
        let dense_shapes = c.attrs().shape_list("dense_shapes")?;
        let (sparse_keys, sparse_types) = (keys(c, "sparse_keys")?, types(c, "sparse_types")?);
        let ragged_keys = keys(c, "ragged_keys")?;
        let (ragged_types, split_types) = (types(c, "ragged_value_types")?, types(c, "ragged_split_types")?);
        for (what, keys, others) in [
            ("dense_keys", dense_keys.len(), [dense_types.len(), dense_shapes.len()]),
            ("sparse_keys", sparse_keys.len(), [sparse_types.len(); 2]),
            ("ragged_keys", ragged_keys.len(), [ragged_types.len(), split_types.len()]),
        ] {
            if others != [keys; 2] {
                return Err(invalid_argument!("{what} has {keys} elements, its types or shapes have {others:?}"));
            }
        }
        for (i, shape) in dense_shapes.iter().enumerate() {
            if shape.dims().is_none_or(|dims| dims.iter().skip(1).any(|&d| d == -1)) {
                return Err(invalid_argument!(
                    "dense_shapes[{i}] has unknown rank or unknown inner dimensions: {shape}"
                ));
            }
        }
        let mut others = Vec::new();
        for (key, dtype) in sparse_keys.into_iter().zip(sparse_types) {
            others.push(Feature { key, dtype: check_type(dtype)?, kind: Kind::Sparse });
        }
        for ((key, dtype), splits) in ragged_keys.into_iter().zip(ragged_types).zip(split_types) {
            if splits != DType::Int32 && splits != DType::Int64 {
                return Err(invalid_argument!("Invalid ragged_split_type: {splits}"));
            }
            others.push(Feature { key, dtype: check_type(dtype)?, kind: Kind::Ragged { splits } });
        }
        let dense = dense_keys.into_iter().zip(dense_types).zip(dense_shapes).map(|((k, t), s)| (k, t, s)).collect();
        Ok(Attributes {
            order: declared_order(c)?,
            spec: Spec::of(c)?,
            defaults: c.input_range("dense_defaults")?,
            dense,
            others,
        })
    }

    /// The features in the order of their keys, which is that of the components of elements.
    fn features(&self, defaults: Vec<Tensor>) -> Result<Vec<Feature>> {
        let mut features = self.others.clone();
        for (i, ((key, dtype, shape), default)) in self.dense.iter().zip(defaults).enumerate() {
            if default.dtype() != *dtype {
                return Err(invalid_argument!(
                    "dense_defaults[{i}].dtype() == {} != dense_types_[{i}] == {dtype}",
                    default.dtype()
                ));
            }
            let dims = shape.dims().unwrap_or_default();
            let variable = dims.first() == Some(&-1);
            if variable && default.num_elements() != 1 {
                return Err(invalid_argument!(
                    "dense_shape[{i}] is a variable length shape: {shape}, therefore def_value[{i}] must contain a single \
                     element (the padding element).  But its shape is: {}",
                    default.shape()
                ));
            }
            if !variable && default.num_elements() > 0 && !shape.is_compatible_with(default.shape()) {
                return Err(invalid_argument!(
                    "def_value[{i}].shape() == {} is not compatible with dense_shapes_[{i}] == {shape}",
                    default.shape()
                ));
            }
            let inner: Vec<i64> = dims.iter().copied().skip(usize::from(variable)).collect();
            let inner = graphmill_tensor::Shape::new(&inner)?;
            let kind = Kind::Dense { shape: shape.clone(), inner, variable, default };
            features.push(Feature { key: key.clone(), dtype: check_type(*dtype)?, kind });
        }
        features.sort_by(|a, b| a.key.cmp(&b.key));
        match features.windows(2).find(|pair| pair[0].key == pair[1].key) {
            Some(pair) => {
                Err(invalid_argument!("Duplicate key not allowed: {}", String::from_utf8_lossy(&pair[0].key)))
            }
            None => Ok(features),
        }
    }
}

struct ParseExample {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    features: Arc<Vec<Feature>>,
    workers: usize,
    order: Option<bool>,
}

impl ParseExample {
    fn new(ctx: &Context<'_>, attrs: &Attributes) -> Result<ParseExample> {
        let input = input_dataset(ctx, 0)?;
        if input.spec().types != [DType::String] {
            return Err(invalid_argument!("ParseExampleDataset takes a dataset of vectors of strings"));
        }
        let workers = workers(ctx, scalar(ctx, 1, "num_parallel_calls")?)?;
        let features = Arc::new(attrs.features(inputs(ctx, attrs.defaults.clone())?)?);
        Ok(ParseExample { spec: attrs.spec.clone(), input, features, workers, order: attrs.order })
    }
}

impl Dataset for ParseExample {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "ParseExample"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let own = ctx.child();
        let input = self.input.iterator(&own)?;
        let (features, spec) = (self.features.clone(), self.spec.clone());
        let work = move |_: &IteratorContext, element: Tuple| {
            let examples = match element.first() {
                Some(examples) if examples.shape().is_vector() => examples.strings()?,
                _ => return Err(invalid_argument!("Expected serialized to be a vector of strings")),
            };
            let parsed = parse::parse(&features, examples)?;
            spec.verify_element(&parsed)?;
            Ok(Some(parsed))
        };
        Ok(Box::new(Parallel::new(
            "ParseExample",
            own,
            input,
            self.workers,
            ctx.is_ordered(self.order),
            Box::new(work),
        )))
    }
}
