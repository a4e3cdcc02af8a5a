//! Moving blocks of space to depth or to the batch, and back.

use crate::args::integers;
use crate::types::{OBJECTS, union};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let moved = union(&[DType::NUMBERS_AND_BOOL, OBJECTS]);
    registry
        .op("SpaceToDepth")
        .types("T", &union(&[&moved, &[DType::QInt8]]))
        .kernel(|c| Ok(SpaceToDepth(block_size(c)?)));
    registry.op("DepthToSpace").types("T", &moved).kernel(|c| Ok(DepthToSpace(block_size(c)?)));
    for (op, to_batch) in [("SpaceToBatchND", true), ("BatchToSpaceND", false)] {
        registry.op(op).types("T", DType::REALS).kernel(move |_| Ok(Blocks { to_batch, size: None }));
    }
    for (op, to_batch) in [("SpaceToBatch", true), ("BatchToSpace", false)] {
        registry
            .op(op)
            .types("T", DType::REALS)
            .kernel(move |c| Ok(Blocks { to_batch, size: Some(c.attrs().int("block_size")?) }));
    }
}

fn block_size(construction: &Construction<'_>) -> Result<usize> {
    let format = construction.attrs().str("data_format")?;
    if format != "NHWC" {
        return Err(invalid_argument!(
            "No OpKernel was registered to support Op '{}' used by {{{{node {}}}}} with these attrs: [data_format=\"{format}\"]",
            construction.node().op.name,
            construction.name()
        ));
    }
    let size = construction.attrs().int("block_size")?;
    match usize::try_from(size) {
        Ok(block) if (2..=i32::MAX as usize).contains(&block) => Ok(block),
        _ => Err(invalid_argument!("Block size should be > 1, but was: {size}")),
    }
}

/// Squares of pixels become one pixel each, their channels one after the other.
struct SpaceToDepth(usize);

impl Kernel for SpaceToDepth {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (block, input) = (self.0, ctx.input(0)?);
        let &[batch, height, width, depth] = input.shape().dims() else {
            return Err(invalid_argument!("Input rank should be 4 instead of {}", input.shape().rank()));
        };
        if height % block != 0 || width % block != 0 {
            return Err(invalid_argument!(
                "Image width {width} and height {height} should be divisible by block_size: {block}"
            ));
        }
        let sizes = [batch, height / block, width / block, block, block, depth];
        let deep = [batch, height / block, width / block, depth.saturating_mul(block * block)];
        let mut output = ctx.alloc_output(0, Shape::from_dims(&deep)?)?;
        let (row, pixel) = ((width * depth) as isize, depth as isize);
        let b = block as isize;
        let steps = [row * height as isize, row * b, pixel * b, row, pixel, 1];
        Walk::gather(&sizes, &steps, 0).copy(ctx, input, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// Channels of a pixel become a square of pixels.
struct DepthToSpace(usize);

impl Kernel for DepthToSpace {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (block, input) = (self.0, ctx.input(0)?);
        let &[batch, height, width, depth] = input.shape().dims() else {
            return Err(invalid_argument!("Input rank should be: 4 instead of: {}", input.shape().rank()));
        };
        let square = block * block;
        if depth % square != 0 {
            return Err(invalid_argument!("Input depth dimension {depth} should be divisible by: {square}"));
        }
        let inner = depth / square;
        let wide = [batch, height.saturating_mul(block), width.saturating_mul(block), inner];
        let mut output = ctx.alloc_output(0, Shape::from_dims(&wide)?)?;
        let sizes = [batch, height, block, width, block, inner];
        let (row, pixel) = ((width * depth) as isize, depth as isize);
        let steps = [row * height as isize, row, (block * inner) as isize, pixel, inner as isize, 1];
        Walk::gather(&sizes, &steps, 0).copy(ctx, input, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// `SpaceToBatchND` and `BatchToSpaceND`: position `x * block + offset - margin` of a dimension in space is position x of the
/// batch that belongs to the offset. The margin is padded, or cropped.
struct Blocks {
    to_batch: bool,
    /// Of the older ops, which have two dimensions of one block size.
    size: Option<i64>,
}

/// How many dimensions TensorFlow's kernels handle behind those that stay as they are.
const MAX_BLOCK_DIMS: usize = 4;

/// One dimension in space.
#[derive(Clone, Copy)]
struct BlockDim {
    block: i64,
    margins: [i64; 2],
}

impl Blocks {
    fn dims(&self, ctx: &Context<'_>) -> Result<Dims<BlockDim>> {
        let input = ctx.input(0)?.shape();
        let name = if self.to_batch { "paddings" } else { "crops" };
        let (blocks, margins) = match self.size {
            Some(size) => {
                if input.rank() != 4 {
                    return Err(invalid_argument!("Input rank should be: 4instead of: {}", input.rank()));
                }
                (Dims::from_slice(&[size, size]), ctx.input(1)?)
            }
            None => {
                let blocks = ctx.input(1)?;
                if !blocks.shape().is_vector() {
                    return Err(invalid_argument!("block_shape rank should be 1 instead of {}", blocks.shape().rank()));
                }
                (integers(blocks)?, ctx.input(2)?)
            }
        };
        let count = blocks.len();
        if input.rank() <= count {
            return Err(invalid_argument!("input rank should be >= {} instead of {}", count + 1, input.rank()));
        }
        if margins.shape().dims() != [count, 2] {
            return Err(invalid_argument!("{name} should have shape [{count}, 2] instead of {}", margins.shape()));
        }
        let margins = integers(margins)?;
        let dim = |(&block, pair): (&i64, &[i64])| BlockDim { block, margins: [pair[0], pair[1]] };
        Ok(blocks.iter().zip(margins.chunks_exact(2)).map(dim).collect())
    }

    fn check(&self, dims: &[BlockDim]) -> Result<i64> {
        let mut product = 1i64;
        for (i, dim) in dims.iter().enumerate() {
            if self.to_batch && dim.block < 1 {
                return Err(invalid_argument!(
                    "All values in block_shape must be positive, got value, {} at index {i}.",
                    dim.block
                ));
            }
            product = product
                .checked_mul(dim.block)
                .ok_or_else(|| invalid_argument!("Product of block sizes must be positive, got an overflow"))?;
        }
        if product <= 0 || dims.iter().any(|d| d.block <= 0) {
            return Err(invalid_argument!("Product of block sizes must be positive, got {product}"));
        }
        let moves = |d: &&BlockDim| d.block != 1 || d.margins != [0, 0];
        let first = dims.iter().position(|d| moves(&d)).unwrap_or(dims.len());
        let last = dims.iter().rposition(|d| moves(&d)).map_or(first, |l| l + 1);
        if last - first > MAX_BLOCK_DIMS {
            return Err(invalid_argument!(
                "Maximum number of non-combined block dimensions is {} but must not exceed {MAX_BLOCK_DIMS}",
                last - first
            ));
        }
        Ok(product)
    }

    fn output_shape(&self, input: &Shape, dims: &[BlockDim], product: i64) -> Result<Shape> {
        let mut sizes: Dims<i64> = input.dims_i64().collect();
        if self.to_batch {
            sizes[0] = sizes[0]
                .checked_mul(product)
                .ok_or_else(|| invalid_argument!("Product of block sizes is too large: {product}"))?;
        } else {
            if sizes[0] % product != 0 {
                return Err(invalid_argument!(
                    "Input batch dimension ({}) is not divisible by product of block sizes ({product})",
                    sizes[0]
                ));
            }
            sizes[0] /= product;
        }
        for (i, (dim, size)) in dims.iter().zip(&mut sizes[1..]).enumerate() {
            let [before, behind] = dim.margins;
            if before < 0 || behind < 0 {
                let name = if self.to_batch { "Paddings" } else { "Crops" };
                return Err(invalid_argument!("{name} must be non-negative"));
            }
            let overflow = || invalid_argument!("dimension {i} overflows");
            if self.to_batch {
                let padded = size.checked_add(before).and_then(|n| n.checked_add(behind)).ok_or_else(overflow)?;
                if padded % dim.block != 0 {
                    return Err(invalid_argument!(
                        "padded_shape[{i}]={padded} is not divisible by block_shape[{i}]={}",
                        dim.block
                    ));
                }
                *size = padded / dim.block;
            } else {
                let whole = size.checked_mul(dim.block).ok_or_else(overflow)?;
                let cropped = whole.checked_sub(before).and_then(|n| n.checked_sub(behind)).ok_or_else(overflow)?;
                if cropped < 0 {
                    return Err(invalid_argument!("cropped_shape[{i}]={cropped} must be non-negative"));
                }
                *size = cropped;
            }
        }
        Shape::new(&sizes)
    }
}

impl Kernel for Blocks {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let dims = self.dims(ctx)?;
        let product = self.check(&dims)?;
        let input = ctx.input(0)?;
        let shape = self.output_shape(input.shape(), &dims, product)?;
        if dims.iter().all(|d| d.block == 1 && d.margins == [0, 0]) {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let mut output = Tensor::zeros(input.dtype(), shape)?;
        if output.num_elements() > 0 && input.num_elements() > 0 {
            self.copy(ctx, input, &dims, product as usize, &mut output)?;
        }
        ctx.set_output(0, output)
    }
}

impl Blocks {
    /// One strided copy for each combination of offsets within the block; there are no more than elements in the batched tensor.
    fn copy(
        &self,
        ctx: &Context<'_>,
        input: &Tensor,
        dims: &[BlockDim],
        product: usize,
        output: &mut Tensor,
    ) -> Result<()> {
        let (space, batched) =
            if self.to_batch { (input.shape(), output.shape()) } else { (output.shape(), input.shape()) };
        let (space_strides, batched_strides) = (strides_of(space), strides_of(batched));
        let batch = space.dim(0);
        let (space_dims, batched_dims) = (space.clone(), batched.clone());
        for combination in 0..product {
            let mut sizes: Dims<usize> = Dims::from_slice(&[batch]);
            let mut space_start = 0;
            let mut batched_start = combination * batch * batched_strides[0].unsigned_abs();
            let mut space_steps: Dims<isize> = Dims::from_slice(&[space_strides[0]]);
            let mut rest = combination;
            let offsets: Dims<i64> = dims
                .iter()
                .rev()
                .map(|d| {
                    let offset = rest as i64 % d.block;
                    rest /= d.block as usize;
                    offset
                })
                .collect();
            for (i, (dim, &offset)) in dims.iter().zip(offsets.iter().rev()).enumerate() {
                let axis = i + 1;
                // Positions x with 0 <= x * block + offset - margin < size.
                let shift = offset - dim.margins[0];
                let first = if shift >= 0 { 0 } else { (-shift + dim.block - 1) / dim.block };
                let past = (space_dims.dim(axis) as i64 - shift + dim.block - 1).max(0) / dim.block;
                let past = past.min(batched_dims.dim(axis) as i64);
                sizes.push(usize::try_from(past - first).unwrap_or(0));
                if first < past {
                    space_start += (first * dim.block + shift) as usize * space_strides[axis].unsigned_abs();
                    batched_start += first as usize * batched_strides[axis].unsigned_abs();
                }
                space_steps.push(space_strides[axis] * dim.block as isize);
            }
            let inner = space_dims.dims().get(dims.len() + 1..).unwrap_or_default();
            sizes.extend_from_slice(inner);
            space_steps.extend_from_slice(&space_strides[dims.len() + 1..]);
            let walk = if self.to_batch {
                Walk::new(&sizes, &space_steps, space_start, &batched_strides, batched_start)
            } else {
                Walk::new(&sizes, &batched_strides, batched_start, &space_steps, space_start)
            };
            walk.copy(ctx, input, output)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};

    #[test]
    fn depth_and_space() {
        let to_depth = int_op("SpaceToDepth").attr_int("block_size", 2);
        let y = run(to_depth, &[&counting(&[1, 2, 4, 1])]).unwrap();
        assert_ints(&y, &[1, 1, 2, 4], &[0, 1, 4, 5, 2, 3, 6, 7]);
        let to_space = || int_op("DepthToSpace").attr_int("block_size", 2);
        assert_ints(&run(to_space(), &[&y]).unwrap(), &[1, 2, 4, 1], &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_error(run(to_space(), &[&counting(&[1, 1, 1, 3])]), "Input depth dimension 3 should be divisible by: 4");
        assert!(run(to_space().attr_str("data_format", "NCHW"), &[&y]).is_err());
    }

    fn blocks(op: &str, x: &Tensor, block: &[i32], margins: &[i32]) -> Result<Tensor> {
        let n = block.len() as i64;
        run(int_op(op), &[x, &tensor(&[n], block), &tensor(&[n, 2], margins)])
    }

    #[test]
    fn batch_and_space() {
        let x = counting(&[1, 4, 2]);
        let y = blocks("SpaceToBatchND", &x, &[2], &[0, 0]).unwrap();
        assert_ints(&y, &[2, 2, 2], &[0, 1, 4, 5, 2, 3, 6, 7]);
        assert_ints(&blocks("BatchToSpaceND", &y, &[2], &[0, 0]).unwrap(), &[1, 4, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
        let y = blocks("SpaceToBatchND", &counting(&[1, 3]), &[2], &[2, 1]).unwrap();
        assert_ints(&y, &[2, 3], &[0, 0, 2, 0, 1, 0]);
        assert_ints(&blocks("BatchToSpaceND", &y, &[2], &[2, 1]).unwrap(), &[1, 3], &[0, 1, 2]);
        let y = blocks("SpaceToBatchND", &counting(&[1, 2, 2]), &[2, 2], &[0, 0, 0, 0]).unwrap();
        assert_ints(&y, &[4, 1, 1], &[0, 1, 2, 3]);
        assert_error(
            blocks("SpaceToBatchND", &counting(&[1, 3]), &[2], &[0, 0]),
            "padded_shape[0]=3 is not divisible by block_shape[0]=2",
        );
        assert_error(blocks("SpaceToBatchND", &x, &[2], &[-1, 0]), "Paddings must be non-negative");
        assert_error(
            blocks("SpaceToBatchND", &x, &[0], &[0, 0]),
            "All values in block_shape must be positive, got value, 0 at index 0.",
        );
        assert_error(
            blocks("BatchToSpaceND", &counting(&[3, 1]), &[2], &[0, 0]),
            "Input batch dimension (3) is not divisible by product of block sizes (2)",
        );
        assert_error(
            blocks("BatchToSpaceND", &counting(&[2, 3]), &[2], &[4, 4]),
            "cropped_shape[0]=-2 must be non-negative",
        );
    }
}
