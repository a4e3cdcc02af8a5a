//! `ParseExample` and its relatives.

use crate::inputs::first;
use graphmill_formats::{Dense, Layout, Parsed, Ragged, Sparse, parse_batch, parse_single};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, invalid_argument};
use std::ops::Range;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ParseExample").kernel(|c| ParseExample::new(c, Version::One));
    registry.op("ParseExampleV2").kernel(|c| ParseExample::new(c, Version::Two));
    registry.op("ParseSingleExample").kernel(|c| ParseExample::new(c, Version::Single));
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
    Single,
}

/// Takes features out of serialized examples: dense, sparse and (version 2) ragged ones.
struct ParseExample {
    version: Version,
    sparse_types: Vec<DType>,
    dense_types: Vec<DType>,
    /// Shape of a value or of a stride, and whether the first dimension varies.
    dense_shapes: Vec<(Shape, bool)>,
    ragged_types: Vec<(DType, DType)>,
    sparse_keys: Keys,
    dense_keys: Keys,
    ragged_keys: Keys,
    defaults: Range<usize>,
}

/// Where the names of features are.
pub(super) enum Keys {
    /// In attributes.
    Known(Vec<Bytes>),
    /// In scalars, one for each.
    Inputs(Range<usize>),
    /// In one vector.
    Input(usize),
}

impl Keys {
    /// The names.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an input of another shape.
    pub(super) fn get(&self, ctx: &Context<'_>) -> Result<Vec<Bytes>> {
        match self {
            Keys::Known(keys) => Ok(keys.clone()),
            Keys::Inputs(range) => range
                .clone()
                .map(|i| {
                    let key = ctx.input(i)?;
                    if !key.shape().is_scalar() {
                        return Err(invalid_argument!("Expected a key to be a scalar, got shape: {}", key.shape()));
                    }
                    first(key).cloned()
                })
                .collect(),
            Keys::Input(i) => Ok(ctx.input(*i)?.strings()?.to_vec()),
        }
    }
}

impl ParseExample {
    fn new(c: &Construction<'_>, version: Version) -> Result<ParseExample> {
        let attrs = c.attrs();
        let sparse_types = attrs.dtype_list("sparse_types")?;
        let dense_types = attrs.dtype_list("Tdense")?;
        let mut dense_shapes = Vec::new();
        for (i, shape) in attrs.shape_list("dense_shapes")?.iter().enumerate() {
            dense_shapes.push(Dense::split_shape(shape.dims(), i)?);
        }
        let mut ragged_types = Vec::new();
        let (sparse_keys, dense_keys, ragged_keys) = match version {
            Version::One => {
                let keys = (c.input_range("sparse_keys")?, c.input_range("dense_keys")?);
                (Keys::Inputs(keys.0), Keys::Inputs(keys.1), Keys::Known(Vec::new()))
            }
            Version::Single => {
                let sparse = attrs.string_list("sparse_keys")?.to_vec();
                let dense = attrs.string_list("dense_keys")?.to_vec();
                (Keys::Known(sparse), Keys::Known(dense), Keys::Known(Vec::new()))
            }
            Version::Two => {
                let (values, splits) =
                    (attrs.dtype_list("ragged_value_types")?, attrs.dtype_list("ragged_split_types")?);
                if values.len() != splits.len() {
                    return Err(invalid_argument!("len(ragged_keys) != len(ragged_split_types)"));
                }
                ragged_types = values.into_iter().zip(splits).collect();
                (Keys::Input(2), Keys::Input(3), Keys::Input(4))
            }
        };
        let sparse_count = match version {
            Version::One => attrs.int("Nsparse")?,
            _ => attrs.int("num_sparse")?,
        };
        if usize::try_from(sparse_count) != Ok(sparse_types.len()) {
            return Err(invalid_argument!("len(sparse_keys) != len(sparse_types)"));
        }
        if dense_types.len() != dense_shapes.len() {
            return Err(invalid_argument!("len(dense_keys) != len(dense_shapes)"));
        }
        for (keys, count, name) in
            [(&sparse_keys, sparse_types.len(), "sparse"), (&dense_keys, dense_types.len(), "dense")]
        {
            let given = match keys {
                Keys::Known(keys) => keys.len(),
                Keys::Inputs(range) => range.len(),
                Keys::Input(_) => count,
            };
            if given != count {
                return Err(invalid_argument!("len({name}_keys) != len({name}_types)"));
            }
        }
        let defaults = c.input_range("dense_defaults")?;
        Ok(ParseExample {
            version,
            sparse_types,
            dense_types,
            dense_shapes,
            ragged_types,
            sparse_keys,
            dense_keys,
            ragged_keys,
            defaults,
        })
    }

    fn check_shapes(&self, ctx: &Context<'_>) -> Result<()> {
        let serialized = ctx.input(0)?.shape();
        let (fits, expected) = match self.version {
            Version::One => (serialized.is_vector(), "vector"),
            Version::Two => (serialized.rank() <= 1, "scalar or vector"),
            Version::Single => (serialized.is_scalar(), "scalar"),
        };
        if !fits {
            return Err(invalid_argument!("Expected serialized to be a {expected}, got shape: {serialized}"));
        }
        if self.version != Version::Single {
            let names = ctx.input(1)?.shape();
            if names.num_elements() > 0 && names != serialized {
                return Err(invalid_argument!(
                    "Expected names have the same shape as serialized: name.shape={names}, serialized.shape={serialized}"
                ));
            }
        }
        Ok(())
    }

    fn layout(&self, ctx: &Context<'_>) -> Result<Layout> {
        let (dense_keys, sparse_keys) = (self.dense_keys.get(ctx)?, self.sparse_keys.get(ctx)?);
        let ragged_keys = self.ragged_keys.get(ctx)?;
        let check = |what: &str, given: usize, count: usize| {
            if given == count {
                return Ok(());
            }
            Err(invalid_argument!("Expected {what} but got: {given} vs. {count}"))
        };
        check("len(dense_keys) == len(dense_types)", dense_keys.len(), self.dense_types.len())?;
        check("len(sparse_keys) == num_sparse", sparse_keys.len(), self.sparse_types.len())?;
        check("len(ragged_keys) == len(ragged_value_types)", ragged_keys.len(), self.ragged_types.len())?;
        check("len(dense_defaults) == len(dense_keys)", self.defaults.len(), self.dense_types.len())?;
        let mut layout = Layout::default();
        let configs = dense_keys.into_iter().zip(&self.dense_types).zip(&self.dense_shapes).zip(self.defaults.clone());
        for (position, (((key, &dtype), (shape, variable)), input)) in configs.enumerate() {
            let default = ctx.input(input)?.clone();
            let dense = Dense { key, dtype, shape: shape.clone(), variable: *variable, default };
            dense.check_default(position)?;
            layout.dense.push(dense);
        }
        layout.sparse =
            sparse_keys.into_iter().zip(&self.sparse_types).map(|(key, &dtype)| Sparse { key, dtype }).collect();
        layout.ragged = ragged_keys
            .into_iter()
            .zip(&self.ragged_types)
            .map(|(key, &(dtype, splits))| Ragged { key, dtype, splits })
            .collect();
        Ok(layout)
    }
}

impl Kernel for ParseExample {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.check_shapes(ctx)?;
        let layout = self.layout(ctx)?;
        let serialized = ctx.input(0)?;
        let parsed: Parsed = if serialized.shape().is_scalar() {
            parse_single(&layout, first(serialized)?)?
        } else {
            let names = if self.version == Version::Single { &[] } else { ctx.input(1)?.strings()? };
            parse_batch(&layout, serialized.strings()?, names)?
        };
        let groups = [
            parsed.sparse_indices,
            parsed.sparse_values,
            parsed.sparse_shapes,
            parsed.dense_values,
            parsed.ragged_values,
            parsed.ragged_splits,
        ];
        for (i, tensor) in groups.into_iter().flatten().enumerate() {
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::Tensor;

    #[test]
    fn a_single_example_has_no_batch_dimension() {
        let mut registry = Registry::new();
        register(&mut registry);
        let op = OpRun::new("ParseSingleExample")
            .attr_int("num_sparse", 0)
            .attr_types("sparse_types", &[])
            .attr_types("Tdense", &[DType::Int64]);
        let list = |keys: &[&'static str]| {
            use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
            let s = keys.iter().map(|k| Bytes::from_static(k.as_bytes())).collect();
            Value::List(Box::new(ListValue { s, ..ListValue::default() }))
        };
        let shapes = {
            use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
            Value::List(Box::new(ListValue { shape: vec![Default::default()], ..ListValue::default() }))
        };
        let op = op.attr("sparse_keys", list(&[])).attr("dense_keys", list(&["a"])).attr("dense_shapes", shapes);
        // One feature "a" with the integer 5.
        let example: &'static [u8] = &[10, 12, 10, 10, 10, 1, b'a', 18, 5, 26, 3, 10, 1, 5];
        let run = |bytes: &'static [u8], default: Tensor| {
            let serialized = Tensor::from_strings(Shape::scalar(), vec![Bytes::from_static(bytes)]).unwrap();
            op.run(&registry, vec![serialized, default])
        };
        let default = Tensor::scalar(9i64).unwrap();
        assert_eq!(run(example, default.clone()).unwrap()[0].as_slice::<i64>().unwrap(), [5]);
        assert_eq!(run(b"", default).unwrap()[0].as_slice::<i64>().unwrap(), [9]);
        let error = run(b"", Tensor::vector::<i64>(&[]).unwrap()).unwrap_err();
        assert_eq!(error.message(), "Feature: a (data type: int64) is required but could not be found.");
    }
}
