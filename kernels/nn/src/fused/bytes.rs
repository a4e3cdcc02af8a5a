//! Fused convolution of bytes, which is summed in integers and scaled once.

use super::shared;
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, Element, QInt8, Result, Tensor, dispatch, internal, invalid_argument, unimplemented_op};
use graphmill_wire::tensorflow::attr_value;

/// Nanoseconds for an element.
const COST: f64 = 1.0;

/// A number of 8 bits with a sign.
trait Byte: Element {
    fn value(self) -> i8;
    fn of(value: i8) -> Self;
}

impl Byte for i8 {
    fn value(self) -> i8 {
        self
    }
    fn of(value: i8) -> i8 {
        value
    }
}

impl Byte for QInt8 {
    fn value(self) -> i8 {
        self.0
    }
    fn of(value: i8) -> QInt8 {
        QInt8(value)
    }
}

/// `_FusedConv2D(input, filter, bias, side_input, conv_input_scale, side_input_scale) -> output` of bytes: the convolution and the
/// side input, each times its scale, and the bias, which is single precision; then perhaps the rectifier; the nearest byte.
struct ByteConv2D {
    part: Part,
    rectify: bool,
}

impl ByteConv2D {
    fn new(c: &Construction<'_>) -> Result<ByteConv2D> {
        let names = c.attrs().string_list("fused_ops")?;
        let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let rectify = match names[..] {
            [] => return Err(invalid_argument!("Fused Conv2D must have at least one fused op.")),
            [b"BiasAdd"] => false,
            [b"BiasAdd", b"Relu"] => true,
            _ => {
                let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
                return Err(unimplemented_op!("Fusion is not implemented: [{}]", names.join(",")));
            }
        };
        if c.num_inputs() != 6 {
            return Err(invalid_argument!(
                "Fused Conv2D for int8 must have 6 inputs and {} is provided",
                c.num_inputs()
            ));
        }
        let expected = [DType::Float, c.dtype("T")?, DType::Float, DType::Float];
        if c.input_types().iter().skip(2).zip(expected).any(|(slot, wanted)| slot.dtype != wanted) {
            return Err(invalid_argument!("Fused Conv2D for int8 takes a bias and scales of single precision"));
        }
        let mut attrs = shared(c, &["strides", "padding", "explicit_paddings", "data_format", "dilations"]);
        attrs.set("T", attr_value::Value::Type(DType::Int32.number()));
        Ok(ByteConv2D { part: c.part("Conv2D", attrs)?, rectify })
    }

    fn run<T: Byte>(&self, ctx: &Context<'_>) -> Result<Tensor> {
        let (bias, side) = (ctx.input(2)?, ctx.input(3)?);
        let wide = |i: usize| -> Result<Value> {
            let tensor = ctx.input(i)?;
            let x = tensor.as_slice::<T>()?;
            let mut result = Tensor::alloc(DType::Int32, tensor.shape().clone())?;
            ctx.parallel_chunks(result.as_mut_slice::<i32>()?, 1, COST, |range, part| {
                part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = i32::from(x.value()));
            });
            Ok(Value::Tensor(result))
        };
        let sums = self.part.run_one(ctx, &mut [wide(0)?, wide(1)?])?;
        let shape = sums.shape();
        let depth = shape.dim(3);
        if !bias.shape().is_vector() || bias.num_elements() != depth {
            return Err(invalid_argument!(
                "bias must have an element for each of the {depth} channels{}",
                bias.shape()
            ));
        }
        if side.shape() != shape {
            return Err(invalid_argument!("side_input must have the output's shape {shape}, has {}", side.shape()));
        }
        let scale = |i: usize| match ctx.input(i)?.as_slice::<f32>()? {
            [value] => Ok(*value),
            _ => Err(invalid_argument!("conv_input_scale and side_input_scale must be scalars")),
        };
        let (scale, side_scale) = (scale(4)?, scale(5)?);
        let (sums, bias, side) = (sums.as_slice::<i32>()?, bias.as_slice::<f32>()?, side.as_slice::<T>()?);
        let mut output = ctx.alloc_output(0, shape.clone())?;
        ctx.parallel_chunks(output.as_mut_slice::<T>()?, 1, COST, |range, part| {
            for (to, at) in part.iter_mut().zip(range) {
                let value = sums[at] as f32 * scale + f32::from(side[at].value()) * side_scale + bias[at % depth];
                let value = if self.rectify { value.max(0.0) } else { value };
                *to = T::of(value.round_ties_even() as i8);
            }
        });
        Ok(output)
    }
}

impl Kernel for ByteConv2D {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let output = dispatch!(ctx.output_type(0)?, T in [i8, QInt8] => self.run::<T>(ctx))
            .ok_or_else(|| internal!("no convolution of these bytes"))??;
        ctx.set_output(0, output)
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("_FusedConv2D").types("T", &[DType::Int8, DType::QInt8]).kernel(ByteConv2D::new);
}
