//! `SparseToDense`.

use crate::coo::{check_indices, is_inside, strides};
use crate::types::INDICES;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Mover, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    use DType::*;
    let types = [
        BFloat16, Bool, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, QInt16, QInt8, QUInt16,
        QUInt8, String, UInt16, UInt32, UInt64, UInt8,
    ];
    registry.op("SparseToDense").types("T", &types).types("Tindices", &INDICES).kernel(SparseToDense::new);
}

/// A default everywhere but at some indices.
struct SparseToDense {
    validates: bool,
}

impl SparseToDense {
    fn new(c: &Construction<'_>) -> Result<SparseToDense> {
        Ok(SparseToDense { validates: c.attrs().bool("validate_indices")? })
    }
}

/// Elements that are a default but at some places.
struct Fill<'a> {
    places: &'a [usize],
    one_value: bool,
}

impl Mover for Fill<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let [values, default] = sources else { return };
        if let Some(default) = default.first() {
            target.fill(default.clone());
        }
        for (i, &place) in self.places.iter().enumerate() {
            if let (Some(to), Some(from)) = (target.get_mut(place), values.get(if self.one_value { 0 } else { i })) {
                *to = from.clone();
            }
        }
    }
}

impl Kernel for SparseToDense {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, output_shape, values, default) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        let shape = indices.shape();
        if shape.rank() > 2 {
            return Err(invalid_argument!("sparse_indices should be a scalar, vector, or matrix, got shape {shape}"));
        }
        let count = if shape.rank() > 0 { shape.dim(0) } else { 1 };
        let rank = if shape.rank() > 1 { shape.dim(1) } else { 1 };
        if !output_shape.shape().is_vector() {
            return Err(invalid_argument!("output_shape must be rank 1, got shape {}", output_shape.shape()));
        }
        if output_shape.num_elements() != rank {
            return Err(invalid_argument!(
                "output_shape has incorrect number of elements: {} should be: {rank}",
                output_shape.num_elements()
            ));
        }
        let one_value = values.shape().is_scalar();
        if !one_value && (!values.shape().is_vector() || values.num_elements() != count) {
            return Err(invalid_argument!(
                "sparse_values has incorrect shape {}, should be [] or [{count}]",
                values.shape()
            ));
        }
        if !default.shape().is_scalar() {
            return Err(invalid_argument!("default_value should be a scalar."));
        }
        let dims = output_shape.to_i64_vec()?;
        let dense_shape = Shape::new(&dims)?;
        let indices = indices.to_i64_vec()?;
        if self.validates {
            check_indices(&indices, &dims)?;
        }
        let strides = strides(&dims);
        let mut places = Vec::with_capacity(count);
        for i in 0..count {
            let row = indices.get(i * rank..(i + 1) * rank).unwrap_or_default();
            if !is_inside(row, &dims) {
                return Err(invalid_argument!("Indices are not valid (out of bounds).  Shape: {dense_shape}"));
            }
            places.push(row.iter().zip(&strides).map(|(index, stride)| index * stride).sum::<i64>() as usize);
        }
        let mut out = Tensor::alloc(values.dtype(), dense_shape)?;
        out.move_from(&[values, default], Fill { places: &places, one_value })?;
        ctx.set_output(0, out)
    }
}
