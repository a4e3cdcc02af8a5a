//! Shapes as values, and the same elements under another shape.

use crate::args::{axis_of, index_vector, integer, integers};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Shape").types("out_type", DType::INDICES).kernel(|_| Ok(ShapeOf { op: "Shape" }));
    registry.op("ShapeN").types("out_type", DType::INDICES).kernel(|_| Ok(ShapeOf { op: "ShapeN" }));
    registry.op("Size").types("out_type", DType::INDICES).kernel(|_| Ok(Size));
    registry.op("Rank").kernel(|_| Ok(Rank));
    registry.op("Reshape").types("Tshape", DType::INDICES).kernel(|_| Ok(Reshape));
    registry.op("Squeeze").kernel(Squeeze::new);
    registry.op("ExpandDims").types("Tdim", DType::INDICES).kernel(|_| Ok(ExpandDims));
    registry.op("Bitcast").kernel(Bitcast::new);
}

/// The sizes of each input.
struct ShapeOf {
    op: &'static str,
}

impl Kernel for ShapeOf {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for i in 0..ctx.num_outputs() {
            let dims: Dims<i64> = ctx.input(i)?.shape().dims_i64().collect();
            let dtype = ctx.output_type(i)?;
            if dtype == DType::Int32
                && let Some((axis, dim)) = dims.iter().enumerate().find(|&(_, &d)| d >= i64::from(i32::MAX))
            {
                return Err(if self.op == "Shape" {
                    invalid_argument!("Shape output type is 32-bit  but dim {axis} is {dim}")
                } else {
                    invalid_argument!("ShapeN output type is 32-bit but shape {i} dim {axis} is {dim}")
                });
            }
            ctx.set_output(i, index_vector(dtype, &dims)?)?;
        }
        Ok(())
    }
}

/// The number of elements.
struct Size;

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = ctx.input(0)?.num_elements() as i64;
        if ctx.output_type(0)? == DType::Int64 {
            return ctx.set_scalar(0, size);
        }
        match i32::try_from(size) {
            Ok(size) if size < i32::MAX => ctx.set_scalar(0, size),
            _ => Err(invalid_argument!("Number of elements was larger than representable by 32-bit output type")),
        }
    }
}

/// The number of dimensions.
struct Rank;

impl Kernel for Rank {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rank = ctx.input(0)?.shape().rank() as i32;
        ctx.set_scalar(0, rank)
    }
}

/// The elements under the shape that input 1 spells out; one size may be -1 and follows from the others.
struct Reshape;

impl Reshape {
    fn shape(tensor: &Tensor, sizes: &Tensor) -> Result<Shape> {
        if sizes.shape().rank() > 1 {
            return Err(invalid_argument!("sizes input must be 1-D, not {}", sizes.shape()));
        }
        let mut dims = integers(sizes)?;
        let mut product = 1i64;
        let mut unknown = None;
        let mut has_zero = false;
        for (d, &size) in dims.iter().enumerate() {
            match size {
                -1 => match unknown {
                    Some(first) => {
                        return Err(invalid_argument!("Only one input size may be -1, not both {first} and {d}"));
                    }
                    None => unknown = Some(d),
                },
                0 => has_zero = true,
                1.. => match product.checked_mul(size) {
                    Some(next) => product = next,
                    None => {
                        let sizes: Vec<String> = dims.iter().map(i64::to_string).collect();
                        return Err(invalid_argument!("Shape [{}] has too many elements", sizes.join(", ")));
                    }
                },
                _ => return Err(invalid_argument!("Size {d} must be non-negative, not {size}")),
            }
        }
        if let Some(unknown) = unknown {
            // Sizes of 0 on both sides cancel, as in TensorFlow.
            let zero = tensor.num_elements() == 0;
            let kept = tensor.shape().dims_i64().filter(|&d| d > 0 || !has_zero);
            let elements = if zero { kept.product() } else { tensor.num_elements() as i64 };
            let missing = elements / product;
            let input_has_zero = zero && has_zero;
            if !input_has_zero && product * missing != elements {
                return Err(invalid_argument!(
                    "Input to reshape is a tensor with {elements} values, but the requested shape requires a multiple of {product}"
                ));
            }
            dims[unknown] = missing;
        }
        let shape = Shape::new(&dims)?;
        if shape.num_elements() != tensor.num_elements() {
            return Err(invalid_argument!(
                "Input to reshape is a tensor with {} values, but the requested shape has {}",
                tensor.num_elements(),
                shape.num_elements()
            ));
        }
        Ok(shape)
    }
}

impl Kernel for Reshape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = Reshape::shape(ctx.input(0)?, ctx.input(1)?)?;
        let tensor = ctx.take_input(0)?.into_shape(shape)?;
        ctx.set_output(0, tensor)
    }
}

/// Drops dimensions of size 1: those listed, or all.
struct Squeeze {
    axes: Vec<i64>,
}

impl Squeeze {
    fn new(construction: &Construction<'_>) -> Result<Squeeze> {
        Ok(Squeeze { axes: construction.attrs().int_list("squeeze_dims")?.to_vec() })
    }

    fn shape(&self, shape: &Shape) -> Result<Shape> {
        let rank = shape.rank();
        let mut dims: Dims<usize> = Dims::new();
        if self.axes.is_empty() {
            dims.extend(shape.dims().iter().copied().filter(|&d| d != 1));
            return Shape::from_dims(&dims);
        }
        let mut listed: Dims<bool> = smallvec::smallvec![false; rank];
        for &axis in &self.axes {
            match axis_of(axis, rank) {
                Some(axis) => listed[axis] = true,
                None => {
                    return Err(invalid_argument!(
                        "Tried to squeeze dim index {axis} for tensor with {rank} dimensions."
                    ));
                }
            }
        }
        for (axis, (&dim, listed)) in shape.dims().iter().zip(listed).enumerate() {
            match (listed, dim) {
                (false, _) => dims.push(dim),
                (true, 1) => {}
                (true, _) => {
                    return Err(invalid_argument!("Can not squeeze dim[{axis}], expected a dimension of 1, got {dim}"));
                }
            }
        }
        Shape::from_dims(&dims)
    }
}

impl Kernel for Squeeze {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        if ctx.input(0)?.dtype() == DType::Variant {
            return Err(invalid_argument!("Squeeze on Variant not supported"));
        }
        let shape = self.shape(ctx.input(0)?.shape())?;
        let tensor = ctx.take_input(0)?.into_shape(shape)?;
        ctx.set_output(0, tensor)
    }
}

/// Inserts a dimension of size 1.
struct ExpandDims;

impl Kernel for ExpandDims {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tensor, axis) = (ctx.input(0)?, ctx.input(1)?);
        if tensor.dtype() == DType::Variant {
            return Err(invalid_argument!("ExpandDims on Variant not supported"));
        }
        if axis.num_elements() != 1 {
            return Err(invalid_argument!("'dim' must be a tensor with a single value"));
        }
        let (axis, rank) = (integer(axis)?, tensor.shape().rank());
        let Some(place) = axis_of(axis, rank + 1) else {
            return Err(invalid_argument!("Tried to expand dim index {axis} for tensor with {rank} dimensions."));
        };
        let mut dims = Dims::from_slice(tensor.shape().dims());
        dims.insert(place, 1);
        let shape = Shape::from_dims(&dims)?;
        let tensor = ctx.take_input(0)?.into_shape(shape)?;
        ctx.set_output(0, tensor)
    }
}

/// The bytes as elements of another type. A smaller type adds a last dimension, a larger one uses it up.
struct Bitcast {
    to: DType,
}

impl Bitcast {
    fn new(construction: &Construction<'_>) -> Result<Bitcast> {
        Ok(Bitcast { to: construction.dtype("type")? })
    }

    fn shape(&self, tensor: &Tensor) -> Result<Shape> {
        let (from, to) = (tensor.dtype(), self.to);
        if !from.is_fixed_size() || !to.is_fixed_size() {
            return Err(internal!("cannot bitcast from {from} to {to}"));
        }
        let mut dims = Dims::from_slice(tensor.shape().dims());
        if from.size() < to.size() {
            let ratio = to.size() / from.size();
            if dims.pop() != Some(ratio) {
                return Err(invalid_argument!("Cannot bitcast from {} to {}", from.number(), to.number()));
            }
        } else if from.size() > to.size() {
            dims.push(from.size() / to.size());
        }
        Shape::from_dims(&dims)
    }
}

impl Kernel for Bitcast {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = self.shape(ctx.input(0)?)?;
        let tensor = ctx.take_input(0)?;
        let tensor =
            if tensor.dtype() == self.to { tensor.into_shape(shape)? } else { tensor.bitcast(self.to, shape)? };
        ctx.set_output(0, tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, run, tensor};
    use graphmill_runtime::testing::OpRun;

    #[test]
    fn shapes_as_values() {
        let x = counting(&[2, 3]);
        assert_ints(&run(int_op("Shape"), &[&x]).unwrap(), &[2], &[2, 3]);
        assert_ints(&run(int_op("Shape"), &[&counting(&[])]).unwrap(), &[0], &[]);
        assert_ints(&run(int_op("Size"), &[&x]).unwrap(), &[], &[6]);
        assert_ints(&run(int_op("Rank"), &[&x]).unwrap(), &[], &[2]);
        let wide = run(int_op("Size").attr_type("out_type", DType::Int64), &[&x]).unwrap();
        assert_eq!(wide.as_slice::<i64>().unwrap(), [6]);
        let outputs = int_op("ShapeN").attr_int("N", 2).run(&registry(), vec![x, counting(&[5])]).unwrap();
        assert_ints(&outputs[1], &[1], &[5]);
    }

    #[test]
    fn reshape_follows_tensorflow() {
        let reshape = |from: &[i64], to: &[i32]| {
            run(int_op("Reshape"), &[&counting(from), &tensor(&[to.len() as i64], to)])
                .map(|t| t.shape().dims().to_vec())
        };
        assert_eq!(reshape(&[2, 3], &[3, -1]).unwrap(), [3, 2]);
        assert_eq!(reshape(&[1], &[]).unwrap(), [0usize; 0]);
        assert_eq!(reshape(&[0, 3], &[0, -1]).unwrap(), [0, 3]);
        assert_eq!(reshape(&[0, 3], &[-1]).unwrap(), [0]);
        assert_eq!(run(int_op("Reshape"), &[&counting(&[2, 2]), &tensor(&[], &[4])]).unwrap().shape().dims(), [4]);
        let start = "Input to reshape is a tensor with 6 values, but the requested shape";
        assert_error(reshape(&[2, 3], &[4]), &format!("{start} has 4"));
        assert_error(reshape(&[2, 3], &[4, -1]), &format!("{start} requires a multiple of 4"));
        assert_error(reshape(&[2, 3], &[-1, -1]), "Only one input size may be -1, not both 0 and 1");
        assert_error(reshape(&[2, 3], &[-2]), "Size 0 must be non-negative, not -2");
        let strings = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        let op = OpRun::new("Reshape").attr_type("T", DType::String);
        assert_eq!(run(op, &[&strings, &tensor(&[2], &[1, 2])]).unwrap().shape().dims(), [1, 2]);
    }

    #[test]
    fn sizes_of_one_come_and_go() {
        let x = counting(&[1, 2, 1]);
        assert_eq!(run(int_op("Squeeze"), &[&x]).unwrap().shape().dims(), [2]);
        let listed = |axes: &[i64]| run(int_op("Squeeze").attr_ints("squeeze_dims", axes), &[&x]);
        assert_eq!(listed(&[-1]).unwrap().shape().dims(), [1, 2]);
        assert_error(listed(&[1]), "Can not squeeze dim[1], expected a dimension of 1, got 2");
        assert_error(listed(&[3]), "Tried to squeeze dim index 3 for tensor with 3 dimensions.");
        let expand = |axis: i32| run(int_op("ExpandDims"), &[&counting(&[2, 3]), &tensor(&[], &[axis])]);
        assert_eq!(expand(-1).unwrap().shape().dims(), [2, 3, 1]);
        assert_eq!(expand(0).unwrap().shape().dims(), [1, 2, 3]);
        assert_error(expand(3), "Tried to expand dim index 3 for tensor with 2 dimensions.");
    }

    #[test]
    fn bitcast_regroups_bytes() {
        let op = |from, to| OpRun::new("Bitcast").attr_type("T", from).attr_type("type", to);
        let x = tensor(&[1, 2], &[1.0f32, -0.0]);
        let wide = run(op(DType::Float, DType::Int64), &[&x]).unwrap();
        assert_eq!(
            (wide.shape().dims(), wide.as_slice::<i64>().unwrap()),
            (&[1][..], &[0x8000_0000_3f80_0000u64 as i64][..])
        );
        let bytes = run(op(DType::Int64, DType::UInt8), &[&wide]).unwrap();
        assert_eq!(bytes.shape().dims(), [1, 8]);
        let error = run(op(DType::Float, DType::Int64), &[&tensor(&[1], &[1.0f32])]);
        assert_error(error, "Cannot bitcast from 1 to 9");
    }
}
