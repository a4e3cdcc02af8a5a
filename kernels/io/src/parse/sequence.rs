//! `ParseSequenceExample` and its relatives.

use super::example::Keys;
use graphmill_formats::{Dense, DenseList, Layout, ParsedSequences, Ragged, SequenceLayout, Sparse, parse_sequences};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, invalid_argument};
use std::collections::HashSet;
use std::ops::Range;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ParseSequenceExample").kernel(|c| ParseSequence::new(c, Version::One));
    registry.op("ParseSequenceExampleV2").kernel(|c| ParseSequence::new(c, Version::Two));
    registry.op("ParseSingleSequenceExample").kernel(|c| ParseSequence::new(c, Version::Single));
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
    Single,
}

/// Names and element types of some features.
struct Group {
    keys: Keys,
    types: Vec<DType>,
}

/// Names, element types and types of row splits of some features.
struct RaggedGroup {
    keys: Keys,
    types: Vec<(DType, DType)>,
}

/// Where it says which missing lists are empty.
enum Missing {
    /// Their names, in an attribute.
    Names(Vec<Bytes>),
    /// Their names, in an input.
    InputNames(usize),
    /// A truth value for each list, in an input.
    Flags(usize),
}

/// Takes a context and lists of features out of serialized examples.
struct ParseSequence {
    version: Version,
    names: usize,
    context_sparse: Group,
    context_dense: Group,
    context_ragged: RaggedGroup,
    context_shapes: Vec<Shape>,
    context_defaults: Range<usize>,
    sparse: Group,
    dense: Group,
    ragged: RaggedGroup,
    shapes: Vec<Shape>,
    missing: Missing,
}

impl ParseSequence {
    fn new(c: &Construction<'_>, version: Version) -> Result<ParseSequence> {
        let attrs = c.attrs();
        let group = |keys: &str, types: &str, count: Option<&str>| -> Result<Group> {
            let types = attrs.dtype_list(types)?;
            let keys = match version {
                Version::One => Keys::Known(attrs.string_list(keys)?.to_vec()),
                Version::Two => Keys::Input(c.input_range(keys)?.start),
                Version::Single => Keys::Inputs(c.input_range(keys)?),
            };
            let given = match &keys {
                Keys::Known(keys) => keys.len(),
                Keys::Inputs(range) => range.len(),
                Keys::Input(_) => types.len(),
            };
            let declared = match count {
                Some(count) => usize::try_from(attrs.int(count)?).unwrap_or(usize::MAX),
                None => types.len(),
            };
            if given != types.len() || declared != types.len() {
                return Err(invalid_argument!(
                    "{} ({declared}) must match the number of keys ({given}) and of types ({})",
                    count.unwrap_or("the number of features"),
                    types.len()
                ));
            }
            Ok(Group { keys, types })
        };
        let ragged = |keys: &str, values: &str, splits: &str| -> Result<RaggedGroup> {
            if version != Version::Two {
                return Ok(RaggedGroup { keys: Keys::Known(Vec::new()), types: Vec::new() });
            }
            let (values, splits) = (attrs.dtype_list(values)?, attrs.dtype_list(splits)?);
            if values.len() != splits.len() {
                return Err(invalid_argument!("{keys}: there must be as many types of values as of row splits"));
            }
            let types = values.into_iter().zip(splits).collect();
            Ok(RaggedGroup { keys: Keys::Input(c.input_range(keys)?.start), types })
        };
        let shapes = |name: &str, count: usize| -> Result<Vec<Shape>> {
            let shapes: Option<Vec<Shape>> = attrs.shape_list(name)?.iter().map(|shape| shape.to_shape()).collect();
            let shapes = shapes.ok_or_else(|| invalid_argument!("{name} must be fully defined"))?;
            if shapes.len() != count {
                return Err(invalid_argument!("len({name}) must be {count}, got {}", shapes.len()));
            }
            Ok(shapes)
        };
        // Version 2 knows how many there are from the lists of types alone.
        let counted = |name: &'static str| (version != Version::Two).then_some(name);
        let context_dense = group("context_dense_keys", "Tcontext_dense", counted("Ncontext_dense"))?;
        let dense = group("feature_list_dense_keys", "feature_list_dense_types", Some("Nfeature_list_dense"))?;
        let missing = "feature_list_dense_missing_assumed_empty";
        Ok(ParseSequence {
            version,
            names: c.input_range("debug_name")?.start,
            context_shapes: shapes("context_dense_shapes", context_dense.types.len())?,
            context_sparse: group("context_sparse_keys", "context_sparse_types", Some("Ncontext_sparse"))?,
            context_ragged: ragged("context_ragged_keys", "context_ragged_value_types", "context_ragged_split_types")?,
            context_defaults: c.input_range("context_dense_defaults")?,
            sparse: group("feature_list_sparse_keys", "feature_list_sparse_types", Some("Nfeature_list_sparse"))?,
            ragged: ragged(
                "feature_list_ragged_keys",
                "feature_list_ragged_value_types",
                "feature_list_ragged_split_types",
            )?,
            shapes: shapes("feature_list_dense_shapes", dense.types.len())?,
            missing: match version {
                Version::One => Missing::Names(attrs.string_list(missing)?.to_vec()),
                Version::Two => Missing::Flags(c.input_range(missing)?.start),
                Version::Single => Missing::InputNames(c.input_range(missing)?.start),
            },
            context_dense,
            dense,
        })
    }

    fn layout(&self, ctx: &Context<'_>) -> Result<SequenceLayout> {
        let keys = |keys: &Keys, count: usize, what: &str| {
            let keys = keys.get(ctx)?;
            if keys.len() == count {
                return Ok(keys);
            }
            Err(invalid_argument!("Expected len({what}) to match the number of its types: {} vs. {count}", keys.len()))
        };
        let sparse = |group: &Group, what: &str| -> Result<Vec<Sparse>> {
            let keys = keys(&group.keys, group.types.len(), what)?;
            Ok(keys.into_iter().zip(&group.types).map(|(key, &dtype)| Sparse { key, dtype }).collect())
        };
        let ragged = |group: &RaggedGroup, what: &str| -> Result<Vec<Ragged>> {
            let keys = keys(&group.keys, group.types.len(), what)?;
            let ragged = |(key, &(dtype, splits))| Ragged { key, dtype, splits };
            Ok(keys.into_iter().zip(&group.types).map(ragged).collect())
        };
        let mut context = Layout {
            sparse: sparse(&self.context_sparse, "context_sparse_keys")?,
            ragged: ragged(&self.context_ragged, "context_ragged_keys")?,
            dense: Vec::new(),
        };
        if self.context_defaults.len() != self.context_dense.types.len() {
            return Err(invalid_argument!(
                "Expected len(context_dense_defaults) == len(context_dense_keys) but got: {} vs. {}",
                self.context_defaults.len(),
                self.context_dense.types.len()
            ));
        }
        let context_keys = keys(&self.context_dense.keys, self.context_dense.types.len(), "context_dense_keys")?;
        let configs = context_keys.into_iter().zip(&self.context_dense.types).zip(&self.context_shapes);
        for (((key, &dtype), shape), input) in configs.zip(self.context_defaults.clone()) {
            let dense = Dense { key, dtype, shape: shape.clone(), variable: false, default: ctx.input(input)?.clone() };
            dense.check_default(context.dense.len())?;
            context.dense.push(dense);
        }
        let dense_keys = keys(&self.dense.keys, self.dense.types.len(), "feature_list_dense_keys")?;
        let may_miss = self.may_miss(ctx, &dense_keys)?;
        let lists = dense_keys.into_iter().zip(&self.dense.types).zip(&self.shapes).zip(may_miss);
        let list = |(((key, &dtype), shape), may_miss): (((Bytes, &DType), &Shape), bool)| DenseList {
            key,
            dtype,
            shape: shape.clone(),
            may_miss,
        };
        Ok(SequenceLayout {
            context,
            dense: lists.map(list).collect(),
            sparse: sparse(&self.sparse, "feature_list_sparse_keys")?,
            ragged: ragged(&self.ragged, "feature_list_ragged_keys")?,
        })
    }

    /// For each dense list, whether it is empty where it is missing.
    fn may_miss(&self, ctx: &Context<'_>, keys: &[Bytes]) -> Result<Vec<bool>> {
        let by_name = |names: &[Bytes]| {
            let names: HashSet<&Bytes> = names.iter().collect();
            keys.iter().map(|key| names.contains(key)).collect()
        };
        match &self.missing {
            Missing::Names(names) => Ok(by_name(names)),
            Missing::InputNames(i) => Ok(by_name(ctx.input(*i)?.strings()?)),
            Missing::Flags(i) => {
                let flags = ctx.input(*i)?.as_slice::<bool>()?;
                if flags.len() != keys.len() {
                    return Err(invalid_argument!(
                        "Expected len(feature_list_dense_missing_assumed_empty to match Nfeature_list_dense"
                    ));
                }
                Ok(flags.to_vec())
            }
        }
    }
}

impl Kernel for ParseSequence {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (serialized, names) = (ctx.input(0)?, ctx.input(self.names)?);
        let shape = serialized.shape();
        let (fits, expected) = match self.version {
            Version::Single => (shape.is_scalar(), "scalar"),
            _ => (shape.rank() <= 1, "scalar or vector"),
        };
        if !fits {
            return Err(invalid_argument!("Expected serialized to be a {expected}, got shape: {shape}"));
        }
        if names.num_elements() > 0 && names.num_elements() != serialized.num_elements() {
            return Err(invalid_argument!(
                "Expected len(names) == len(examples), but got: {} vs. {}",
                names.num_elements(),
                serialized.num_elements()
            ));
        }
        let layout = self.layout(ctx)?;
        let parsed: ParsedSequences =
            parse_sequences(&layout, serialized.strings()?, names.strings()?, shape.is_vector())?;
        let context = parsed.context;
        let mut groups = vec![
            context.sparse_indices,
            context.sparse_values,
            context.sparse_shapes,
            context.dense_values,
            context.ragged_values,
            context.ragged_splits,
            parsed.sparse_indices,
            parsed.sparse_values,
            parsed.sparse_shapes,
            parsed.dense_values,
        ];
        if self.version != Version::Single {
            groups.extend([
                parsed.dense_lengths,
                parsed.ragged_values,
                parsed.ragged_outer_splits,
                parsed.ragged_inner_splits,
            ]);
        }
        for (i, tensor) in groups.into_iter().flatten().enumerate() {
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    }
}
