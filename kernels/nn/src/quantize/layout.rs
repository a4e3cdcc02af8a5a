//! Pooling, joining and reshaping of quantised tensors.

use super::convert::Quantized;
use super::range::{Range, Rescale, range, set_range};
use graphmill_graph::Attrs;
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, QInt8, QInt32, QUInt8, Result, Tensor, dispatch, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value;

/// Nanoseconds for an element.
const COST: f64 = 0.5;

/// Attributes of a part of this element type, with those of the op that have these names.
fn attrs_of(c: &Construction<'_>, dtype: DType, names: &[&str]) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set("T", attr_value::Value::Type(dtype.number()));
    for name in names {
        if let Some(value) = c.attrs().get(name).and_then(|attr| attr.value.clone()) {
            attrs.set(name, value);
        }
    }
    attrs
}

/// `QuantizedMaxPool(input, min_input, max_input) -> (output, min_output, max_output)` and `QuantizedAvgPool`, the average
/// rounded towards 0. Levels of 8 bits are exact in double precision, as are their maxima and quotients.
struct Pool(Part);

impl Pool {
    fn new(c: &Construction<'_>, op: &str) -> Result<Pool> {
        c.part(op, attrs_of(c, DType::Double, &["ksize", "strides", "padding"])).map(Pool)
    }

    fn run<T: Quantized>(&self, ctx: &Context<'_>) -> Result<Tensor> {
        let input = ctx.input(0)?;
        let x = input.as_slice::<T>()?;
        let mut levels = Tensor::alloc(DType::Double, input.shape().clone())?;
        ctx.parallel_chunks(levels.as_mut_slice::<f64>()?, 1, COST, |range, part| {
            part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = x.level() as f64);
        });
        let pooled = self.0.run_one(ctx, &mut [Value::Tensor(levels)])?;
        let mut output = ctx.alloc_output(0, pooled.shape().clone())?;
        let pooled = pooled.as_slice::<f64>()?;
        ctx.parallel_chunks(output.as_mut_slice::<T>()?, 1, COST, |range, part| {
            part.iter_mut().zip(&pooled[range]).for_each(|(to, x)| *to = T::from_level(*x as i64));
        });
        Ok(output)
    }
}

impl Kernel for Pool {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let range = range(ctx, 1, ["min_input", "max_input"])?;
        let output = dispatch!(ctx.input(0)?.dtype(), T in [QInt8, QUInt8] => self.run::<T>(ctx))
            .ok_or_else(|| internal!("no pooling of this type"))??;
        ctx.set_output(0, output)?;
        set_range(ctx, range)
    }
}

/// `QuantizedConcat(concat_dim, values, input_mins, input_maxes) -> (output, output_min, output_max)`: into a range that holds
/// those of all inputs.
struct Concat {
    count: usize,
    part: Part,
}

impl Concat {
    fn new(c: &Construction<'_>) -> Result<Concat> {
        let count = c.input_range("values")?.len();
        Ok(Concat { count, part: c.part("Concat", attrs_of(c, c.dtype("T")?, &["N"]))? })
    }

    /// Checks that all values have the shape of the first but for the joined dimension.
    fn check_shapes(&self, ctx: &Context<'_>, axis: i64) -> Result<()> {
        let first = ctx.input(1)?.shape();
        for i in 1..self.count {
            let shape = ctx.input(1 + i)?.shape();
            let text = if shape.rank() != first.rank() {
                "Ranks of all input tensors should match"
            } else if (0..first.rank()).any(|d| d as i64 != axis && shape.dim(d) != first.dim(d)) {
                "Dimensions of inputs should match"
            } else {
                continue;
            };
            return Err(invalid_argument!("ConcatOp : {text}: shape[0] = {first} vs. shape[{i}] = {shape}"));
        }
        Ok(())
    }

    fn ranges(&self, ctx: &Context<'_>) -> Result<Vec<Range>> {
        let first = |i: usize| -> Result<f32> {
            let tensor = ctx.input(i)?;
            match tensor.as_slice::<f32>()? {
                [value] => Ok(*value),
                values => Err(invalid_argument!("each range must be a number, got {} of them", values.len())),
            }
        };
        let range = |i: usize| -> Result<Range> {
            Ok(Range { low: first(1 + self.count + i)?, high: first(1 + 2 * self.count + i)? })
        };
        (0..self.count).map(range).collect()
    }
}

/// The range of the result; for signed types 0 is in its middle.
fn common<T: Quantized>(ranges: &[Range]) -> Range {
    let low = ranges.iter().map(|range| range.low).fold(f32::MAX, f32::min).min(0.0);
    let high = ranges.iter().map(|range| range.high).fold(f32::MIN, f32::max);
    if T::LOWEST == 0.0 {
        return Range { low, high };
    }
    let largest = low.abs().max(high.abs());
    Range { low: -largest, high: largest }
}

fn rescaled<T: Quantized>(ctx: &Context<'_>, input: &Tensor, from: Range, to: Range) -> Result<Tensor> {
    if from == to {
        return Ok(input.clone());
    }
    let rescale = Rescale::new::<T, T>(from, to);
    let x = input.as_slice::<T>()?;
    let mut result = Tensor::alloc(T::DTYPE, input.shape().clone())?;
    ctx.parallel_chunks(result.as_mut_slice::<T>()?, 1, COST, |range, part| {
        part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = T::from_level(rescale.level(x.to_f32())));
    });
    Ok(result)
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let axis = ctx.input(0)?;
        if !axis.shape().is_scalar() {
            return Err(invalid_argument!(
                "Concat dim tensor should be a scalar integer, but got shape {}",
                axis.shape()
            ));
        }
        let rank = if self.count == 0 { 0 } else { ctx.input(1)?.shape().rank() };
        let at = axis.to_i64_vec()?.first().copied().unwrap_or(0);
        if usize::try_from(at).is_err() || at >= rank as i64 {
            return Err(invalid_argument!(
                "ConcatOp : Expected concatenating dimensions in the range [0, {rank}), but got {at}"
            ));
        }
        self.check_shapes(ctx, at)?;
        let ranges = self.ranges(ctx)?;
        let dtype = ctx.output_type(0)?;
        let prepared = dispatch!(dtype, T in [QInt32, QUInt8] => {
            let total = common::<T>(&ranges);
            let one = |(i, from): (usize, &Range)| {
                rescaled::<T>(ctx, ctx.input(1 + i)?, *from, total).map(Value::Tensor)
            };
            ranges.iter().enumerate().map(one).collect::<Result<Vec<Value>>>().map(|values| (total, values))
        });
        let (total, values) = prepared.ok_or_else(|| internal!("no joining of {dtype}"))??;
        let mut inputs = vec![Value::Tensor(ctx.input(0)?.clone())];
        inputs.extend(values);
        let output = self.part.run_one(ctx, &mut inputs)?;
        ctx.set_output(0, output)?;
        set_range(ctx, total)
    }
}

/// `QuantizedReshape(tensor, shape, input_min, input_max) -> (output, output_min, output_max)`.
struct Reshape(Part);

impl Kernel for Reshape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut inputs = [ctx.take_value(0)?, ctx.take_value(1)?];
        let output = self.0.run_one(ctx, &mut inputs)?;
        let mut range = [0.0; 2];
        for (i, name) in ["input_min", "input_max"].into_iter().enumerate() {
            let tensor = ctx.input(2 + i)?;
            range[i] = match tensor.as_slice::<f32>()? {
                [value] if tensor.shape().rank() <= 1 => *value,
                _ => return Err(invalid_argument!("{name} must be a scalar or a vector of 1 element")),
            };
        }
        ctx.set_output(0, output)?;
        set_range(ctx, Range { low: range[0], high: range[1] })
    }
}

pub(super) fn register(registry: &mut Registry) {
    let bytes = &[DType::QInt8, DType::QUInt8];
    let both = &[DType::QInt32, DType::QUInt8];
    registry.op("QuantizedMaxPool").types("T", bytes).kernel(|c| Pool::new(c, "MaxPool"));
    registry.op("QuantizedAvgPool").types("T", bytes).kernel(|c| Pool::new(c, "AvgPool"));
    registry.op("QuantizedConcat").types("T", both).kernel(Concat::new);
    registry
        .op("QuantizedReshape")
        .types("T", both)
        .kernel(|c: &Construction<'_>| c.part("Reshape", attrs_of(c, c.dtype("T")?, &["Tshape"])).map(Reshape));
}
