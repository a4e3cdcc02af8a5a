//! `QuantizedMatMul` and `QuantizedConv2D`: products of the distances from the level of 0, which 32-bit integers hold.

use super::range::{Range, range, set_range};
use graphmill_graph::Attrs;
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, QInt32, QUInt8, Result, Tensor, invalid_argument};
use graphmill_wire::tensorflow::attr_value;

/// Nanoseconds for an element.
const COST: f64 = 0.5;

/// Attributes of the part that computes in 32-bit integers: those of the op that have these names.
fn of_integers(c: &Construction<'_>, names: &[&str]) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set("T", attr_value::Value::Type(DType::Int32.number()));
    for name in names {
        if let Some(value) = c.attrs().get(name).and_then(|attr| attr.value.clone()) {
            attrs.set(name, value);
        }
    }
    attrs
}

/// The distances of levels from that of 0.
fn distances(ctx: &Context<'_>, tensor: &Tensor, range: Range) -> Result<Tensor> {
    let zero = range.unclamped_level::<QUInt8>(0.0) as i32;
    let x = tensor.as_slice::<QUInt8>()?;
    let mut result = Tensor::alloc(DType::Int32, tensor.shape().clone())?;
    ctx.parallel_chunks(result.as_mut_slice::<i32>()?, 1, COST, |range, part| {
        part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = i32::from(x.0).wrapping_sub(zero));
    });
    Ok(result)
}

/// Runs the part on the distances, and takes its sums as levels.
fn multiply(ctx: &mut Context<'_>, part: &Part, [a, b]: [Range; 2]) -> Result<()> {
    let mut operands =
        [Value::Tensor(distances(ctx, ctx.input(0)?, a)?), Value::Tensor(distances(ctx, ctx.input(1)?, b)?)];
    let sums = part.run_one(ctx, &mut operands)?;
    let mut output = ctx.alloc_output(0, sums.shape().clone())?;
    let sums = sums.as_slice::<i32>()?;
    ctx.parallel_chunks(output.as_mut_slice::<QInt32>()?, 1, COST, |range, part| {
        part.iter_mut().zip(&sums[range]).for_each(|(to, x)| *to = QInt32(*x));
    });
    ctx.set_output(0, output)?;
    set_range(ctx, Range::of_products::<QUInt8, QUInt8, QInt32>(a, b))
}

/// `QuantizedMatMul(a, b, min_a, max_a, min_b, max_b) -> (out, min_out, max_out)`.
struct MatMul(Part);

impl Kernel for MatMul {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let ranges = [range(ctx, 2, ["min_a", "max_a"])?, range(ctx, 4, ["min_b", "max_b"])?];
        for (range, name) in ranges.iter().zip(["a", "b"]) {
            if range.high.is_nan() || range.high <= range.low {
                return Err(invalid_argument!("max_{name} must be larger than min_{name}."));
            }
        }
        for i in 0..2 {
            if ctx.input(i)?.shape().rank() != 2 {
                return Err(invalid_argument!("In[{i}] is not a matrix"));
            }
        }
        multiply(ctx, &self.0, ranges)
    }
}

/// `QuantizedConv2D(input, filter, min_input, max_input, min_filter, max_filter) -> (output, min_output, max_output)`.
struct Conv2D(Part);

impl Conv2D {
    fn new(c: &Construction<'_>) -> Result<Conv2D> {
        let attrs = c.attrs();
        let &[batch, rows, columns, depth] = attrs.int_list("strides")? else {
            return Err(invalid_argument!("Sliding window strides field must specify 4 dimensions"));
        };
        if rows != columns {
            return Err(invalid_argument!(
                "Current implementation only supports equal length strides in the row and column dimensions."
            ));
        }
        if batch != 1 || depth != 1 {
            return Err(invalid_argument!(
                "Current implementation does not yet support strides in the batch and depth dimensions."
            ));
        }
        let &[batch, rows, columns, depth] = attrs.int_list("dilations")? else {
            return Err(invalid_argument!("Dilations field must specify 4 dimensions"));
        };
        if rows != 1 || columns != 1 {
            return Err(invalid_argument!(
                "Current implementation only supports dilated rate as 1 in the row and column dimensions."
            ));
        }
        if batch != 1 || depth != 1 {
            return Err(invalid_argument!(
                "Current implementation does not yet support dilations in the batch and depth dimensions."
            ));
        }
        Ok(Conv2D(c.part("Conv2D", of_integers(c, &["strides", "padding"]))?))
    }
}

impl Kernel for Conv2D {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, filter) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        if input.rank() != 4 {
            return Err(invalid_argument!("input must be rank 4 but is rank {}", input.rank()));
        }
        if filter.rank() != 4 {
            return Err(invalid_argument!("filter must be rank 4 but is rank {}", filter.rank()));
        }
        let ranges = [range(ctx, 2, ["min_input", "max_input"])?, range(ctx, 4, ["min_filter", "max_filter"])?];
        if input.dim(3) != filter.dim(2) {
            return Err(invalid_argument!(
                "input and filter must have the same depth: {} vs {}",
                input.dim(3),
                filter.dim(2)
            ));
        }
        multiply(ctx, &self.0, ranges)
    }
}

pub(super) fn register(registry: &mut Registry) {
    let (byte, wide) = (&[DType::QUInt8], &[DType::QInt32]);
    let entry = registry.op("QuantizedMatMul").types("T1", byte).types("T2", byte).types("Toutput", wide);
    entry.kernel(|c: &Construction<'_>| c.part("MatMul", of_integers(c, &["transpose_a", "transpose_b"])).map(MatMul));
    let entry = registry.op("QuantizedConv2D").types("Tinput", byte).types("Tfilter", byte);
    entry.types("out_type", wide).kernel(Conv2D::new);
}
