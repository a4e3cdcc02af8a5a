//! Ragged tensors within variants: `RaggedTensorToVariant`, `RaggedTensorFromVariant`, `RaggedTensorToVariantGradient`.

use crate::coo::chain;
use crate::number::Number;
use crate::ragged::{VALUES, splits_tensor};
use crate::types::INDICES;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, Variant, VariantObject, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RaggedTensorToVariant").types("Tvalues", &VALUES).types("Tsplits", &INDICES).kernel(ToVariant::new);
    registry
        .op("RaggedTensorFromVariant")
        .types("Tvalues", &VALUES)
        .types("Tsplits", &INDICES)
        .kernel(FromVariant::new);
    registry
        .op("RaggedTensorToVariantGradient")
        .types("Tvalues", &VALUES)
        .types("Tsplits", &INDICES)
        .kernel(|c: &Construction<'_>| Ok(Gradient { dtype: c.dtype("Tvalues")? }));
}

/// The registered name of the type.
const NAME: &str = "RaggedTensorVariant";

/// A ragged tensor as a value: the splits of its dimensions, from the outermost on, and its values.
#[derive(Clone, Debug)]
struct Ragged {
    splits: Vec<Tensor>,
    values: Tensor,
}

impl VariantObject for Ragged {
    fn type_name(&self) -> &str {
        NAME
    }

    fn serialize(&self) -> Result<Variant> {
        let tensors = self.splits.iter().chain([&self.values]).cloned().collect();
        Ok(Variant { type_name: NAME.to_owned(), tensors, ..Variant::default() })
    }

    fn zeros_like(&self) -> Result<Variant> {
        let values = Tensor::zeros(self.values.dtype(), self.values.shape().clone())?;
        Ok(Variant::of(Ragged { splits: self.splits.clone(), values }))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let other = Ragged::of(other).ok_or_else(|| internal!("a ragged tensor is added to another value"))?;
        if other.values.shape() != self.values.shape() || other.values.dtype() != self.values.dtype() {
            return Err(invalid_argument!(
                "Can't add RaggedTensorVariants of different shapes: {} and {}",
                self.values.shape(),
                other.values.shape()
            ));
        }
        let sum = dispatch!(self.values.dtype(), T in numbers => {
            let (a, b) = (self.values.as_slice::<T>()?, other.values.as_slice::<T>()?);
            let sum: Vec<T> = a.iter().zip(b).map(|(&a, &b)| a.plus(b)).collect();
            Tensor::from_slice(self.values.shape().clone(), &sum)
        });
        let values = sum.unwrap_or_else(|| Err(invalid_argument!("{} values cannot be added", self.values.dtype())))?;
        Ok(Variant::of(Ragged { splits: self.splits.clone(), values }))
    }
}

impl Ragged {
    /// The ragged tensor in a variant, whichever form that has.
    fn of(variant: &Variant) -> Option<Ragged> {
        if let Some(ragged) = variant.get::<Ragged>() {
            return Some(ragged.clone());
        }
        if variant.type_name != NAME || variant.object.is_some() {
            return None;
        }
        let (values, splits) = variant.tensors.split_last()?;
        Some(Ragged { splits: splits.to_vec(), values: values.clone() })
    }
}

struct ToVariant {
    ragged_rank: usize,
    batched: bool,
    splits: DType,
}

impl ToVariant {
    fn new(c: &Construction<'_>) -> Result<ToVariant> {
        Ok(ToVariant {
            ragged_rank: c.input_range("rt_nested_splits")?.len(),
            batched: c.attrs().bool("batched_input")?,
            splits: c.dtype("Tsplits")?,
        })
    }

    /// The rows of the outermost dimension.
    fn rows(&self, whole: &Ragged) -> Result<Vec<Ragged>> {
        let nested = whole.splits.iter().map(Tensor::to_i64_vec).collect::<Result<Vec<_>>>()?;
        let bad = || invalid_argument!("Invalid ragged splits");
        let count = match nested.first() {
            Some(splits) if splits.is_empty() => return Err(internal!("Invalid split argument.")),
            Some(splits) => splits.len() - 1,
            None if whole.values.shape().is_scalar() => return Err(bad()),
            None => whole.values.shape().dim(0),
        };
        let mut rows = Vec::with_capacity(count);
        for row in 0..count {
            if nested.is_empty() {
                let shape = Shape::from_dims(&whole.values.shape().dims()[1..])?;
                let values = whole.values.rows(row, 1)?.into_shape(shape)?;
                rows.push(Ragged { splits: Vec::new(), values });
                continue;
            }
            let (mut start, mut limit) = (row, row + 1);
            let mut splits = Vec::with_capacity(nested.len() - 1);
            for (level, all) in nested.iter().enumerate() {
                let part = all.get(start..=limit).filter(|part| part.is_sorted()).ok_or_else(bad)?;
                if level > 0 {
                    let own: Vec<i64> = part.iter().map(|split| split - part[0]).collect();
                    splits.push(splits_tensor(self.splits, &own)?);
                }
                start = usize::try_from(part[0]).map_err(|_| bad())?;
                limit = usize::try_from(part[part.len() - 1]).map_err(|_| bad())?;
            }
            if whole.values.shape().is_scalar() || limit > whole.values.shape().dim(0) {
                return Err(bad());
            }
            rows.push(Ragged { splits, values: whole.values.rows(start, limit - start)? });
        }
        Ok(rows)
    }
}

impl Kernel for ToVariant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let splits = (0..self.ragged_rank).map(|i| ctx.input(i).cloned()).collect::<Result<Vec<_>>>()?;
        let whole = Ragged { splits, values: ctx.input(self.ragged_rank)?.clone() };
        let encoded = if self.batched {
            let rows: Vec<Variant> = self.rows(&whole)?.into_iter().map(Variant::of).collect();
            Tensor::from_variants(Shape::vector(rows.len()), rows)?
        } else {
            Tensor::from_variants(Shape::scalar(), vec![Variant::of(whole)])?
        };
        ctx.set_output(0, encoded)
    }
}

struct FromVariant {
    input_rank: i64,
    output_rank: i64,
    values: DType,
    splits: DType,
}

impl FromVariant {
    fn new(c: &Construction<'_>) -> Result<FromVariant> {
        Ok(FromVariant {
            input_rank: c.attrs().int("input_ragged_rank")?,
            output_rank: c.attrs().int("output_ragged_rank")?,
            values: c.dtype("Tvalues")?,
            splits: c.dtype("Tsplits")?,
        })
    }

    fn parts(&self, encoded: &Tensor, rank: i64) -> Result<Vec<Ragged>> {
        let mut parts = Vec::with_capacity(encoded.num_elements());
        for (i, variant) in encoded.variants()?.iter().enumerate() {
            let part = Ragged::of(variant).ok_or_else(|| {
                invalid_argument!(
                    "Input Variant element at index {i} doesn't hold a RaggedTensorVariant: Variant<type: {} value: >",
                    if variant.type_name.is_empty() { "INVALID" } else { &variant.type_name }
                )
            })?;
            if part.splits.len() as i64 != rank {
                return Err(invalid_argument!(
                    "Encoded input RaggedTensorVariant has ragged_rank={}.  Expected ragged_rank={rank}.",
                    part.splits.len()
                ));
            }
            if part.values.dtype() != self.values {
                return Err(invalid_argument!(
                    "Expected values Tensor dtype: {}, found: {}",
                    self.values,
                    part.values.dtype()
                ));
            }
            if part.values.shape().is_scalar() && !(encoded.shape().rank() > 0 && rank == 0) {
                return Err(invalid_argument!(
                    "Ragged values must have rank >= 1; encoded scalar element at index {i} has values Tensor: of shape {}",
                    part.values.shape()
                ));
            }
            for splits in &part.splits {
                if splits.dtype() != self.splits {
                    return Err(invalid_argument!(
                        "Expected row_splits Tensor dtype: {}, found: {}",
                        self.splits,
                        splits.dtype()
                    ));
                }
                if !splits.shape().is_vector() {
                    return Err(invalid_argument!(
                        "Ragged splits must have rank 1; encoded scalar element at index {i} has splits Tensor of shape {}",
                        splits.shape()
                    ));
                }
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// The parts as one ragged tensor, whose outer dimensions are those of the encoded tensor.
    fn stack(&self, parts: &[Ragged], dims: &[usize], rank: usize) -> Result<Ragged> {
        let mut splits = Vec::with_capacity(dims.len() + rank);
        let mut rows = 1;
        for pair in dims.windows(2) {
            rows *= pair[0];
            let ends: Vec<i64> = (0..=rows as i64).map(|row| row * pair[1] as i64).collect();
            splits.push(splits_tensor(self.splits, &ends)?);
        }
        let mut ends = vec![0i64];
        for part in parts {
            let length = match part.splits.first() {
                Some(splits) => splits.num_elements() as i64 - 1,
                None => part.values.shape().dim(0) as i64,
            };
            ends.push(ends.last().copied().unwrap_or(0) + length);
        }
        splits.push(splits_tensor(self.splits, &ends)?);
        for level in 0..rank {
            let mut ends = vec![0i64];
            for part in parts {
                let last = ends.last().copied().unwrap_or(0);
                ends.extend(part.splits[level].to_i64_vec()?.iter().skip(1).map(|end| end.wrapping_add(last)));
            }
            splits.push(splits_tensor(self.splits, &ends)?);
        }
        let first = parts.first().map_or_else(|| Shape::vector(0), |part| part.values.shape().clone());
        let mut total = 0;
        for (i, part) in parts.iter().enumerate() {
            let shape = part.values.shape();
            if shape.rank() != first.rank() {
                return Err(invalid_argument!(
                    "Rank of values must match for all components; values shape at index 0: {first}, values shape at index {i}: \
                     {shape}"
                ));
            }
            let inner = |shape: &Shape| Shape::from_dims(shape.dims().get(1..).unwrap_or_default());
            if shape.dims().get(1..) != first.dims().get(1..) {
                return Err(invalid_argument!(
                    "All flat_values must have compatible shapes.  Shape at index 0: {}.  Shape at index {i}: {}.  If you are \
                     using tf.map_fn, then you may need to specify an explicit fn_output_signature with appropriate \
                     ragged_rank, and/or convert output tensors to RaggedTensors.",
                    inner(&first)?,
                    inner(shape)?
                ));
            }
            total += shape.dim(0);
        }
        let values: Vec<&Tensor> = parts.iter().map(|part| &part.values).collect();
        let values = chain(self.values, &values)?;
        let shape = if first.is_scalar() { Shape::vector(total) } else { first.with_dim(0, total)? };
        Ok(Ragged { splits, values: values.into_shape(shape)? })
    }
}

impl Kernel for FromVariant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let encoded = ctx.input(0)?;
        let outer = encoded.shape().rank() as i64;
        let rank = if self.input_rank == -1 { self.output_rank - outer } else { self.input_rank };
        if rank < 0 {
            return Err(invalid_argument!(
                "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, found \
                 output_ragged_rank: {}, encoded_variant.dims(): {outer}, inferred input_ragged_rank: {rank}",
                self.output_rank
            ));
        }
        if self.output_rank != outer + rank {
            return Err(invalid_argument!(
                "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); output_ragged_rank: {}, \
                 input_ragged_rank: {rank}, encoded_variant.dims(): {outer}.",
                self.output_rank
            ));
        }
        let parts = self.parts(encoded, rank)?;
        let whole = match parts.as_slice() {
            [only] if outer == 0 => only.clone(),
            parts => self.stack(parts, encoded.shape().dims(), rank as usize)?,
        };
        let levels = whole.splits.len();
        for (i, splits) in whole.splits.into_iter().enumerate() {
            ctx.set_output(i, splits)?;
        }
        ctx.set_output(levels, whole.values)
    }
}

/// The gradient for the values, from those of the rows; a row without one has zeros.
struct Gradient {
    dtype: DType,
}

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (encoded, splits, shape) = (ctx.input(0)?, ctx.input(1)?.to_i64_vec()?, ctx.input_as_shape(2)?);
        let variants = encoded.variants()?;
        let mut parts = Vec::with_capacity(variants.len());
        for (i, variant) in variants.iter().enumerate() {
            if let Some(ragged) = Ragged::of(variant) {
                parts.push(ragged.values);
                continue;
            }
            // A scalar stands for all of the values.
            let rows = match (splits.get(i), splits.get(i + 1)) {
                (Some(start), Some(end)) => usize::try_from(end.wrapping_sub(*start)),
                _ => Ok(shape.dim(0)),
            };
            let rows = rows.map_err(|_| invalid_argument!("row_splits must be sorted"))?;
            let part = if shape.is_scalar() { shape.clone() } else { shape.with_dim(0, rows)? };
            parts.push(Tensor::zeros(self.dtype, part)?);
        }
        let out = match parts.as_slice() {
            [only] => only.clone(),
            parts => {
                if parts.iter().any(|part| part.dtype() != self.dtype) {
                    return Err(invalid_argument!("The gradients of the rows are not of type {}", self.dtype));
                }
                chain(self.dtype, &parts.iter().collect::<Vec<_>>())?.into_shape(shape)?
            }
        };
        ctx.set_output(0, out)
    }
}
