//! Activations that TensorFlow's graphs spell out in several ops, and that its optimiser makes one of.

use super::of_type;
use crate::simd::{Real, Wide};
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, internal};

/// Nanoseconds for an element of a simple function.
const COST: f64 = 1.0;

#[derive(Clone, Copy)]
enum Shape {
    /// `x / 2 * (1 + erf(x / sqrt 2))`.
    GeluExact,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluApproximate,
    /// `x * min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `x * sigmoid(x)`.
    Swish,
    /// `x * tanh(ln(1 + e^x))`.
    Mish,
}

/// An activation: the element times a curve of it. Half precision is computed in single.
pub(super) struct Curve {
    shape: Shape,
    /// The functions that make the curve of its argument, one after the other.
    parts: Vec<Part>,
}

impl Curve {
    /// The activation that an attribute `fused_ops` calls `name`, if there is one.
    pub fn named(c: &Construction<'_>, name: &str) -> Result<Option<Curve>> {
        let shape = match name {
            "GeluExact" => Shape::GeluExact,
            "GeluApproximate" => Shape::GeluApproximate,
            "_FusedHardSwish" => Shape::HardSwish,
            "_MklSwish" => Shape::Swish,
            "Mish" | "_MklFusedMish" => Shape::Mish,
            _ => return Ok(None),
        };
        Curve::new(c, shape).map(Some)
    }

    fn new(c: &Construction<'_>, shape: Shape) -> Result<Curve> {
        let functions: &[&str] = match shape {
            Shape::GeluExact => &["Erf"],
            Shape::GeluApproximate => &["Tanh"],
            Shape::HardSwish => &[],
            Shape::Swish => &["Sigmoid"],
            Shape::Mish => &["Softplus", "Tanh"],
        };
        let wide = if c.dtype("T")? == DType::Double { DType::Double } else { DType::Float };
        let parts = functions.iter().map(|op| c.part(op, of_type(wide))).collect::<Result<_>>()?;
        Ok(Curve { shape, parts })
    }

    /// Applies the activation to every element.
    pub fn run(&self, ctx: &Context<'_>, x: &Tensor) -> Result<Tensor> {
        dispatch!(x.dtype(), T in floats => self.run_in::<T>(ctx, x))
            .unwrap_or_else(|| Err(internal!("no activation of {}", x.dtype())))
    }

    fn run_in<T: Real>(&self, ctx: &Context<'_>, x: &Tensor) -> Result<Tensor> {
        let of = T::Wide::of;
        let source = x.as_slice::<T>()?;
        let mut curve = Tensor::alloc(<T::Wide as Element>::DTYPE, x.shape().clone())?;
        let (third, slope) = (of(0.044_715), of((2.0 / std::f64::consts::PI).sqrt()));
        let root = of(std::f64::consts::FRAC_1_SQRT_2);
        let clamped = |x: T::Wide| num_traits::Float::min(num_traits::Float::max(x, of(0.0)), of(6.0));
        ctx.parallel_chunks(curve.as_mut_slice::<T::Wide>()?, 1, COST, |range, part| {
            for (to, x) in part.iter_mut().zip(&source[range]) {
                let x = x.widen();
                *to = match self.shape {
                    Shape::GeluExact => x * root,
                    Shape::GeluApproximate => slope * (x + third * x * x * x),
                    Shape::HardSwish => clamped(x + of(3.0)) / of(6.0),
                    Shape::Swish | Shape::Mish => x,
                };
            }
        });
        for part in &self.parts {
            curve = part.run_one(ctx, &mut [Value::Tensor(curve)])?;
        }
        let curve = curve.as_slice::<T::Wide>()?;
        let mut result = Tensor::alloc(T::DTYPE, x.shape().clone())?;
        ctx.parallel_chunks(result.as_mut_slice::<T>()?, 1, COST, |range, part| {
            for ((to, x), y) in part.iter_mut().zip(&source[range.clone()]).zip(&curve[range]) {
                let factor = match self.shape {
                    Shape::GeluExact | Shape::GeluApproximate => of(0.5) * (of(1.0) + *y),
                    Shape::HardSwish | Shape::Swish | Shape::Mish => *y,
                };
                *to = T::narrow(x.widen() * factor);
            }
        });
        Ok(result)
    }
}

/// `_MklSwish(features)`, `_MklFusedMish(features)`.
struct Activation(Curve);

impl Kernel for Activation {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let output = self.0.run(ctx, ctx.input(0)?)?;
        ctx.set_output(0, output)
    }
}

pub(super) fn register(registry: &mut Registry) {
    let types = &[DType::BFloat16, DType::Float, DType::Half];
    for (op, shape) in [("_MklSwish", Shape::Swish), ("_MklFusedMish", Shape::Mish)] {
        registry.op(op).types("T", types).kernel(move |c: &Construction<'_>| Curve::new(c, shape).map(Activation));
    }
}
