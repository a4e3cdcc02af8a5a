//! `PaddedBatchDataset` and `PaddedBatchDatasetV2`.

use crate::batch::{batch_count, batch_size, collect};
use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, inputs, scalar};
use crate::state::{Reader, Writer};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, data_loss, dispatch, invalid_argument};
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for (op, has_remainder) in [("PaddedBatchDataset", false), ("PaddedBatchDatasetV2", true)] {
        dataset_ops(registry, &[op], move |c| {
            let spec = Spec::of_attrs(c, "Toutput_types")?;
            let (shapes, values) = (c.input_range("padded_shapes")?, c.input_range("padding_values")?);
            Ok(move |ctx: &Context<'_>| {
                let drop_remainder = if has_remainder { scalar(ctx, values.end, "drop_remainder")? } else { false };
                let shapes = inputs(ctx, shapes.clone())?;
                PaddedBatch::new(ctx, spec.clone(), shapes, inputs(ctx, values.clone())?, drop_remainder)
            })
        });
    }
}

/// Elements padded to a common shape and stacked.
struct PaddedBatch {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    size: usize,
    drop_remainder: bool,
    padding: Arc<Vec<Padding>>,
}

/// How a component is padded: up to which shape, and with what.
struct Padding {
    shape: PartialShape,
    value: Tensor,
}

impl PaddedBatch {
    fn new(
        ctx: &Context<'_>,
        spec: Arc<Spec>,
        shapes: Vec<Tensor>,
        values: Vec<Tensor>,
        drop_remainder: bool,
    ) -> Result<PaddedBatch> {
        let input = input_dataset(ctx, 0)?;
        let size = batch_size(ctx, 1)?;
        let types = &input.spec().types;
        if shapes.len() != types.len() {
            return Err(invalid_argument!(
                "Number of padded shapes ({}) must match the number of components in the input dataset's elements ({})",
                shapes.len(),
                types.len()
            ));
        }
        if values.len() != types.len() {
            return Err(invalid_argument!(
                "Number of padding values ({}) must match the number of components in the input dataset's elements ({})",
                values.len(),
                types.len()
            ));
        }
        let mut padding = Vec::with_capacity(shapes.len());
        for (i, (shape, value)) in shapes.into_iter().zip(values).enumerate() {
            if !shape.shape().is_vector() {
                return Err(invalid_argument!("All padded shapes must be vectors"));
            }
            if !value.shape().is_scalar() {
                return Err(invalid_argument!("All padding values must be scalars"));
            }
            if types.get(i) != Some(&value.dtype()) {
                return Err(invalid_argument!(
                    "Mismatched type between padding value {i} and input dataset's component {i}: {} vs. {}",
                    value.dtype(),
                    types.get(i).map_or("none", |t| t.name())
                ));
            }
            padding.push(Padding { shape: PartialShape::new(&shape.to_i64_vec()?)?, value });
        }
        Ok(PaddedBatch { spec, input, size, drop_remainder, padding: Arc::new(padding) })
    }
}

impl Dataset for PaddedBatch {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        batch_count(self.input.cardinality(), self.size, self.drop_remainder)
    }

    fn name(&self) -> &'static str {
        "PaddedBatch"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(PaddedIterator {
            input: Some(self.input.iterator(ctx)?),
            size: self.size,
            drop_remainder: self.drop_remainder,
            padding: self.padding.clone(),
        }))
    }
}

struct PaddedIterator {
    input: Option<Box<dyn DatasetIterator>>,
    size: usize,
    drop_remainder: bool,
    padding: Arc<Vec<Padding>>,
}

impl DatasetIterator for PaddedIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let elements = collect(&mut self.input, self.size)?;
        if elements.is_empty() || (self.drop_remainder && elements.len() < self.size) {
            return Ok(None);
        }
        self.padding.iter().enumerate().map(|(i, p)| p.batch(&elements, i)).collect::<Result<_>>().map(Some)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("PaddedBatch");
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("PaddedBatch")?;
        restore_optional(reader, &mut self.input)
    }
}

impl Padding {
    /// One component of a batch.
    fn batch(&self, elements: &[Tuple], component: usize) -> Result<Tensor> {
        let parts: Vec<&Tensor> = elements.iter().filter_map(|element| element.get(component)).collect();
        let shape = self.common_shape(&parts, component)?;
        let dims: SmallVec<[usize; 8]> = std::iter::once(parts.len()).chain(shape.dims().iter().copied()).collect();
        let mut batch = Tensor::alloc(self.value.dtype(), Shape::from_dims(&dims)?)?;
        if parts.iter().any(|part| *part.shape() != shape) {
            fill(&mut batch, &self.value)?;
        }
        let size = shape.num_elements();
        for (i, part) in parts.iter().enumerate() {
            copy_corner(&mut batch, i * size, &shape, part)?;
        }
        Ok(batch)
    }

    fn common_shape(&self, parts: &[&Tensor], component: usize) -> Result<Shape> {
        let Some(padded) = self.shape.dims() else {
            return Err(invalid_argument!("All padded shapes must be vectors"));
        };
        let mut dims: SmallVec<[usize; 8]> = padded.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
        for part in parts {
            let shape = part.shape();
            if shape.rank() != padded.len() {
                return Err(invalid_argument!(
                    "All elements in a batch must have the same rank as the padded shape for component{component}: \
                     expected rank {} but got element with rank {}",
                    padded.len(),
                    shape.rank()
                ));
            }
            for ((dim, &size), &declared) in dims.iter_mut().zip(shape.dims()).zip(padded) {
                if declared == -1 {
                    *dim = (*dim).max(size);
                } else if size > *dim {
                    return Err(data_loss!("Attempted to pad to a smaller size than the input element."));
                }
            }
        }
        Shape::from_dims(&dims)
    }
}

/// Sets every element of a tensor to the one of `value`.
pub(crate) fn fill(tensor: &mut Tensor, value: &Tensor) -> Result<()> {
    if tensor.dtype() == DType::String {
        if let Some(value) = value.strings()?.first() {
            tensor.strings_mut()?.fill(value.clone());
        }
        return Ok(());
    }
    let filled = dispatch!(tensor.dtype(), T in all => {
        let value = value.scalar_value::<T>()?;
        tensor.as_mut_slice::<T>()?.fill(value);
    });
    match filled {
        Some(()) => Ok(()),
        None => (0..tensor.num_elements()).try_for_each(|i| tensor.copy_elements(i, value, 0..1)),
    }
}

/// Copies a tensor into the corner of a region of shape `outer` that begins at element `to`.
fn copy_corner(target: &mut Tensor, to: usize, outer: &Shape, part: &Tensor) -> Result<()> {
    let (inner, total) = (part.shape().dims(), part.num_elements());
    if total == 0 {
        return Ok(());
    }
    // Dimensions at the end that are equal move together.
    let equal = inner.iter().zip(outer.dims()).rev().take_while(|(a, b)| a == b).count();
    let axis = inner.len() - equal;
    if axis == 0 {
        return target.copy_elements(to, part, 0..total);
    }
    let run: usize = inner.iter().skip(axis - 1).product();
    let strides = outer.strides();
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, axis - 1);
    let mut from = 0;
    while from < total {
        let offset: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        target.copy_elements(to + offset, part, from..from + run)?;
        from += run;
        for (i, &size) in index.iter_mut().zip(inner).rev() {
            *i += 1;
            if *i < size {
                break;
            }
            *i = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_land_in_the_corner() {
        let padding = Padding { shape: PartialShape::new(&[-1, 3]).unwrap(), value: Tensor::scalar(9i32).unwrap() };
        let part =
            |dims: &[usize], values: &[i32]| vec![Tensor::from_slice(Shape::from_dims(dims).unwrap(), values).unwrap()];
        let elements = [part(&[2, 2], &[1, 2, 3, 4]), part(&[1, 3], &[5, 6, 7])];
        let batch = padding.batch(&elements, 0).unwrap();
        assert_eq!(batch.shape().dims(), [2, 2, 3]);
        assert_eq!(batch.as_slice::<i32>().unwrap(), [1, 2, 9, 3, 4, 9, 5, 6, 7, 9, 9, 9]);
        let error = padding.batch(&[part(&[1, 4], &[0; 4])], 0).unwrap_err();
        assert_eq!(error.message(), "Attempted to pad to a smaller size than the input element.");
    }
}
