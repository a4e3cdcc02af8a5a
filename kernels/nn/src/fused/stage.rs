//! What a fused op does to the result of the op that it begins with.

use super::curve::Curve;
use super::{Values, of_type, shared};
use crate::simd::{Real, Wide};
use crate::window::DataFormat;
use graphmill_graph::Attrs;
use graphmill_runtime::{Construction, Context, Part, Value};
use graphmill_tensor::{DType, Result, Tensor, dispatch, internal, invalid_argument, unimplemented_op};
use graphmill_wire::tensorflow::attr_value;

/// Nanoseconds for an element of a simple function.
const COST: f64 = 1.0;

/// One step after the first op.
pub(super) enum Stage {
    /// Adds a vector along the channels.
    Bias(Part),
    /// Adds a tensor.
    Add(Part),
    /// Normalises with given means and variances.
    Normalize(Normalize),
    /// An activation that is an op of its own.
    Activation(Part),
    /// One that is none.
    Curve(Curve),
}

/// The stages that the attribute `fused_ops` names: a bias or a normalisation, then a sum, then an activation, the latter two as
/// they may be. `label` begins the texts of errors; `padded` says that there may be none.
pub(super) fn of_attrs(c: &Construction<'_>, label: &str, padded: bool) -> Result<Vec<Stage>> {
    let names = c.attrs().string_list("fused_ops")?;
    if names.is_empty() && !padded {
        return Err(invalid_argument!("Fused {label} must have at least one fused op."));
    }
    let mut rest: Vec<&str> = Vec::with_capacity(names.len());
    for name in names {
        rest.push(std::str::from_utf8(name).map_err(|_| invalid_argument!("fused_ops holds a name that is no text"))?);
    }
    let unknown = || unimplemented_op!("Fusion is not implemented: [{}]", rest.join(","));
    let dtype = c.dtype("T")?;
    let mut names = rest.iter().copied().peekable();
    let mut stages = Vec::new();
    match names.next() {
        Some("BiasAdd") => stages.push(Stage::Bias(c.part("BiasAdd", bias_attrs(c, dtype)?)?)),
        Some("FusedBatchNorm") if label != "MatMul" => stages.push(Stage::Normalize(Normalize::new(c)?)),
        None => {}
        Some(_) => return Err(unknown()),
    }
    if names.next_if_eq(&"Add").is_some() {
        stages.push(Stage::Add(c.part("AddV2", of_type(dtype))?));
    }
    match names.next() {
        Some(name @ ("Relu" | "Relu6" | "Elu" | "Tanh" | "Sigmoid")) => {
            stages.push(Stage::Activation(c.part(name, of_type(dtype))?));
        }
        Some("LeakyRelu") => {
            let mut attrs = of_type(dtype);
            attrs.set("alpha", attr_value::Value::F(c.attrs().float("leakyrelu_alpha")?));
            stages.push(Stage::Activation(c.part("LeakyRelu", attrs)?));
        }
        Some(name) => stages.push(Stage::Curve(Curve::named(c, name)?.ok_or_else(unknown)?)),
        None => {}
    }
    if names.next().is_some() {
        return Err(unknown());
    }
    Ok(stages)
}

/// `BiasAdd` knows two formats, whatever the number of dimensions.
fn bias_attrs(c: &Construction<'_>, dtype: DType) -> Result<Attrs> {
    let mut attrs = shared(c, &["T"]);
    attrs.set("T", attr_value::Value::Type(dtype.number()));
    let format = if DataFormat::from_attr(c)? == DataFormat::Nhwc { "NHWC" } else { "NCHW" };
    attrs.set("data_format", attr_value::Value::S(format.as_bytes().to_vec().into()));
    Ok(attrs)
}

impl Stage {
    /// How many of the op's arguments the stage takes.
    pub fn arguments(&self) -> usize {
        match self {
            Stage::Bias(_) | Stage::Add(_) => 1,
            Stage::Normalize(_) => 4,
            Stage::Activation(_) | Stage::Curve(_) => 0,
        }
    }

    /// Runs the stage on a result and its arguments.
    pub fn run(&self, ctx: &Context<'_>, result: Tensor, arguments: Values) -> Result<Tensor> {
        match self {
            Stage::Bias(part) => {
                if let Some(Value::Tensor(bias)) = arguments.first()
                    && !bias.shape().is_vector()
                {
                    return Err(invalid_argument!("bias must be 1-dimensional{}", bias.shape()));
                }
                part.run_one(ctx, &mut operands(result, arguments))
            }
            Stage::Add(part) | Stage::Activation(part) => part.run_one(ctx, &mut operands(result, arguments)),
            Stage::Normalize(normalize) => normalize.run(ctx, result, &arguments),
            Stage::Curve(curve) => curve.run(ctx, &result),
        }
    }
}

fn operands(result: Tensor, arguments: Values) -> Values {
    std::iter::once(Value::Tensor(result)).chain(arguments).collect()
}

/// `(x - mean) * scale / sqrt(variance + epsilon) + offset` along the channels.
pub(super) struct Normalize {
    epsilon: f32,
    format: DataFormat,
}

impl Normalize {
    fn new(c: &Construction<'_>) -> Result<Normalize> {
        Ok(Normalize { epsilon: c.attrs().float("epsilon")?, format: DataFormat::from_attr(c)? })
    }

    fn run(&self, ctx: &Context<'_>, mut result: Tensor, arguments: &[Value]) -> Result<Tensor> {
        let [Value::Tensor(scale), Value::Tensor(offset), Value::Tensor(mean), Value::Tensor(variance)] = arguments
        else {
            return Err(internal!("a normalisation takes four tensors"));
        };
        let shape = result.shape();
        let axis = if self.format == DataFormat::Nhwc { shape.rank().saturating_sub(1) } else { 1 };
        let (channels, inner) = (shape.dim(axis), shape.stride(axis));
        let named = [(scale, "scale"), (offset, "offset"), (mean, "estimated_mean"), (variance, "estimated_variance")];
        for (vector, name) in named {
            if !vector.shape().is_vector() {
                return Err(invalid_argument!("{name} must be 1-dimensional{}", vector.shape()));
            }
            if vector.num_elements() != channels {
                return Err(invalid_argument!(
                    "{name} must have an element for each of the {channels} channels, has {}",
                    vector.num_elements()
                ));
            }
        }
        let done = dispatch!(result.dtype(), T in floats => {
            let vectors = Vectors {
                factor: factors::<T>(scale, variance, self.epsilon)?,
                mean: widened::<T>(mean)?,
                offset: widened::<T>(offset)?,
            };
            vectors.apply::<T>(ctx, &mut result, inner)
        });
        done.ok_or_else(|| internal!("no normalisation of {}", result.dtype()))??;
        Ok(result)
    }
}

struct Vectors<W> {
    mean: Vec<W>,
    factor: Vec<W>,
    offset: Vec<W>,
}

impl<W: Wide> Vectors<W> {
    fn apply<T: Real<Wide = W>>(&self, ctx: &Context<'_>, result: &mut Tensor, inner: usize) -> Result<()> {
        let channels = self.mean.len();
        if result.num_elements() == 0 {
            return Ok(());
        }
        // Rows of one channel, or, where the channels are last, of all of them.
        let row = if inner == 1 { channels } else { inner };
        ctx.parallel_chunks(result.as_mut_slice::<T>()?, row, row as f64 * COST, |range, part| {
            for (index, row) in range.zip(part.chunks_exact_mut(row)) {
                let first = if inner == 1 { 0 } else { index % channels };
                for (at, x) in row.iter_mut().enumerate() {
                    let c = if inner == 1 { at } else { first };
                    *x = T::narrow((x.widen() - self.mean[c]) * self.factor[c] + self.offset[c]);
                }
            }
        });
        Ok(())
    }
}

/// The elements of a vector of the type `T` or of `float`, to compute with.
fn widened<T: Real>(vector: &Tensor) -> Result<Vec<T::Wide>> {
    if vector.dtype() == T::DTYPE {
        return Ok(vector.as_slice::<T>()?.iter().map(|x| x.widen()).collect());
    }
    Ok(vector.as_slice::<f32>()?.iter().map(|&x| T::Wide::of(f64::from(x))).collect())
}

fn factors<T: Real>(scale: &Tensor, variance: &Tensor, epsilon: f32) -> Result<Vec<T::Wide>> {
    let epsilon = T::Wide::of(f64::from(epsilon));
    let (scale, variance) = (widened::<T>(scale)?, widened::<T>(variance)?);
    Ok(scale.iter().zip(&variance).map(|(&s, &v)| s / num_traits::Float::sqrt(v + epsilon)).collect())
}
