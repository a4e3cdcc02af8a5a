//! Activation functions and their gradients, element by element.

use crate::simd::{Real, Wide, vectorized};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, bf16, dispatch, f16, internal, invalid_argument};
use num_traits::Float;

/// Scale and slope of the self-normalising unit (Klambauer et al. 2017).
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_SCALE_ALPHA: f64 = 1.758_099_340_847_376_8;

/// A number that the rectifiers take: of any real type.
trait Rectified: Element + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const SIX: Self;
    /// The attribute `alpha` in this type, as a cast makes it.
    fn slope(alpha: f32) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! rectified {
    (ints: $($int:ty),*; floats: $($float:ty),*; halves: $($half:ty),*) => {
        $(impl Rectified for $int {
            const ZERO: $int = 0;
            const ONE: $int = 1;
            const SIX: $int = 6;
            fn slope(alpha: f32) -> $int { alpha as $int }
            #[inline(always)]
            fn times(self, other: $int) -> $int { self.wrapping_mul(other) }
        })*
        $(impl Rectified for $float {
            const ZERO: $float = 0.0;
            const ONE: $float = 1.0;
            const SIX: $float = 6.0;
            fn slope(alpha: f32) -> $float { alpha.into() }
            #[inline(always)]
            fn times(self, other: $float) -> $float { self * other }
        })*
        $(impl Rectified for $half {
            const ZERO: $half = <$half>::from_f32_const(0.0);
            const ONE: $half = <$half>::from_f32_const(1.0);
            const SIX: $half = <$half>::from_f32_const(6.0);
            fn slope(alpha: f32) -> $half { <$half>::from_f32(alpha) }
            #[inline(always)]
            fn times(self, other: $half) -> $half { <$half>::from_f32(self.to_f32() * other.to_f32()) }
        })*
    };
}

rectified!(ints: i8, i16, i32, i64, u8, u16, u32, u64; floats: f32, f64; halves: f16, bf16);

vectorized! {
    fn map_in_place[T: Element, F: Fn(T) -> T](target: &mut [T], f: F) {
        target.iter_mut().for_each(|t| *t = f(*t));
    }
}

vectorized! {
    fn map[T: Element, F: Fn(T) -> T](target: &mut [T], source: &[T], f: F) {
        target.iter_mut().zip(source).for_each(|(t, s)| *t = f(*s));
    }
}

vectorized! {
    fn map_pairs_in_place[T: Element, F: Fn(T, T) -> T](target: &mut [T], other: &[T], f: F) {
        target.iter_mut().zip(other).for_each(|(t, o)| *t = f(*t, *o));
    }
}

vectorized! {
    fn map_pairs[T: Element, F: Fn(T, T) -> T](target: &mut [T], a: &[T], b: &[T], f: F) {
        target.iter_mut().zip(a).zip(b).for_each(|((t, a), b)| *t = f(*a, *b));
    }
}

/// Applies `f` to every element of input 0, in its memory if nobody else needs it.
fn unary<T: Element>(ctx: &mut Context<'_>, cost: f64, f: impl Fn(T) -> T + Sync + Copy) -> Result<()> {
    let shape = ctx.input(0)?.shape().clone();
    let (mut output, reused) = ctx.reuse_or_alloc(&[0], 0, &shape)?;
    let target = output.as_mut_slice::<T>()?;
    if reused.is_some() {
        ctx.parallel_chunks(target, 1, cost, |_, part| map_in_place(part, f));
    } else {
        let source = ctx.input(0)?.as_slice::<T>()?;
        ctx.parallel_chunks(target, 1, cost, |range, part| map(part, &source[range], f));
    }
    ctx.set_output(0, output)
}

/// Applies `f` to pairs of elements of inputs 0 and 1, which must have one shape.
fn binary<T: Element>(ctx: &mut Context<'_>, cost: f64, f: impl Fn(T, T) -> T + Sync + Copy) -> Result<()> {
    let shape = ctx.input(0)?.shape().clone();
    let other = ctx.input(1)?.shape();
    if shape != *other {
        return Err(invalid_argument!(
            "Inputs to operation {} of type {} must have the same size and shape.  Input 0: {shape} != input 1: {other}",
            ctx.node().name,
            ctx.node().op
        ));
    }
    let (mut output, reused) = ctx.reuse_or_alloc(&[0, 1], 0, &shape)?;
    let target = output.as_mut_slice::<T>()?;
    match reused {
        Some(0) => {
            let b = ctx.input(1)?.as_slice::<T>()?;
            ctx.parallel_chunks(target, 1, cost, |range, part| map_pairs_in_place(part, &b[range], f));
        }
        Some(_) => {
            let a = ctx.input(0)?.as_slice::<T>()?;
            ctx.parallel_chunks(target, 1, cost, |range, part| {
                map_pairs_in_place(part, &a[range], move |b, a| f(a, b));
            });
        }
        None => {
            let (a, b) = (ctx.input(0)?.as_slice::<T>()?, ctx.input(1)?.as_slice::<T>()?);
            ctx.parallel_chunks(target, 1, cost, |range, part| map_pairs(part, &a[range.clone()], &b[range], f));
        }
    }
    ctx.set_output(0, output)
}

/// One function of this file, with its parameter.
struct Activation {
    dtype: DType,
    alpha: f32,
    run: fn(&Activation, &mut Context<'_>) -> Result<()>,
}

impl Kernel for Activation {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        (self.run)(self, ctx)
    }
}

impl Activation {
    fn new(c: &Construction<'_>, run: fn(&Activation, &mut Context<'_>) -> Result<()>) -> Result<Activation> {
        let alpha = if c.attrs().has("alpha") { c.attrs().float("alpha")? } else { 0.0 };
        Ok(Activation { dtype: c.dtype("T")?, alpha, run })
    }

    fn unsupported(&self) -> graphmill_tensor::Status {
        internal!("no activation of {}", self.dtype)
    }
}

/// Registers rows of ops: name, number of inputs, nanoseconds an element, scalar function. `real` functions take the parameter
/// and elements of any real type; `float` functions take elements widened to `f32` or `f64`.
macro_rules! activations {
    ($registry:ident; $($kind:ident $name:literal $inputs:ident $cost:literal $f:ident;)*) => {$(
        activations!(@$kind $registry $name $inputs $cost $f);
    )*};
    (@real $registry:ident $name:literal $inputs:ident $cost:literal $f:ident) => {
        $registry.op($name).types("T", DType::REALS).kernel(|c: &Construction<'_>| {
            Activation::new(c, |a, ctx| {
                dispatch!(a.dtype, T in reals => {
                    let alpha = <T as Rectified>::slope(a.alpha);
                    activations!(@real_call $inputs T ctx $cost $f alpha)
                })
                .ok_or_else(|| a.unsupported())?
            })
        });
    };
    (@real_call unary $t:ident $ctx:ident $cost:literal $f:ident $alpha:ident) => {
        unary::<$t>($ctx, $cost, move |x| $f(x, $alpha))
    };
    (@real_call binary $t:ident $ctx:ident $cost:literal $f:ident $alpha:ident) => {
        binary::<$t>($ctx, $cost, move |g, x| $f(g, x, $alpha))
    };
    (@float $registry:ident $name:literal $inputs:ident $cost:literal $f:ident) => {
        $registry.op($name).types("T", DType::FLOATS).kernel(|c: &Construction<'_>| {
            Activation::new(c, |a, ctx| {
                dispatch!(a.dtype, T in floats => activations!(@float_call $inputs T ctx $cost $f))
                    .ok_or_else(|| a.unsupported())?
            })
        });
    };
    (@float_call unary $t:ident $ctx:ident $cost:literal $f:ident) => {
        unary::<$t>($ctx, $cost, |x| <$t>::narrow($f(x.widen())))
    };
    (@float_call binary $t:ident $ctx:ident $cost:literal $f:ident) => {
        binary::<$t>($ctx, $cost, |g, x| <$t>::narrow($f(g.widen(), x.widen())))
    };
}

/// `Relu(features)`: `max(x, 0)`; NaN stays.
#[inline(always)]
fn relu<T: Rectified>(x: T, _: T) -> T {
    if x < T::ZERO { T::ZERO } else { x }
}

/// `ReluGrad(gradients, features)`: `g * 1` where the feature is above 0, else `g * 0`, also at NaN; so a negative gradient leaves
/// a negative zero.
#[inline(always)]
fn relu_grad<T: Rectified>(g: T, x: T, _: T) -> T {
    g.times(if x > T::ZERO { T::ONE } else { T::ZERO })
}

/// `Relu6(features)`: `min(max(x, 0), 6)`; NaN stays.
#[inline(always)]
fn relu6<T: Rectified>(x: T, zero: T) -> T {
    let x = relu(x, zero);
    if x > T::SIX { T::SIX } else { x }
}

/// `Relu6Grad(gradients, features)`: `g * 1` where the feature is strictly between 0 and 6, else `g * 0`.
#[inline(always)]
fn relu6_grad<T: Rectified>(g: T, x: T, _: T) -> T {
    g.times(if x > T::ZERO && x < T::SIX { T::ONE } else { T::ZERO })
}

/// `LeakyRelu(features)`: `x` above 0, else `alpha * x`.
#[inline(always)]
fn leaky_relu<T: Rectified>(x: T, alpha: T) -> T {
    if x > T::ZERO { x } else { x.times(alpha) }
}

/// `LeakyReluGrad(gradients, features)`: `g` where the feature is above 0, else `alpha * g`.
#[inline(always)]
fn leaky_relu_grad<T: Rectified>(g: T, x: T, alpha: T) -> T {
    if x > T::ZERO { g } else { g.times(alpha) }
}

/// `Elu(features)`: `e^x - 1` below 0, else `x`.
#[inline(always)]
fn elu<W: Wide>(x: W) -> W {
    if x < W::zero() { Float::exp_m1(x) } else { x }
}

/// `EluGrad(gradients, outputs)`: `(y + 1) * g` where the output `y` of `Elu` is below 0, else `g`.
#[inline(always)]
fn elu_grad<W: Wide>(g: W, y: W) -> W {
    if y < W::zero() { (y + W::one()) * g } else { g }
}

/// `Selu(features)`: `scale * x` from 0 on, else `scale * alpha * (e^x - 1)`.
#[inline(always)]
fn selu<W: Wide>(x: W) -> W {
    if x < W::zero() { W::of(SELU_SCALE_ALPHA) * Float::exp_m1(x) } else { W::of(SELU_SCALE) * x }
}

/// `SeluGrad(gradients, outputs)`: `(y + scale * alpha) * g` where the output `y` of `Selu` is below 0, else `scale * g`.
#[inline(always)]
fn selu_grad<W: Wide>(g: W, y: W) -> W {
    if y < W::zero() { (y + W::of(SELU_SCALE_ALPHA)) * g } else { W::of(SELU_SCALE) * g }
}

/// `Softplus(features)`: `ln(1 + e^x)`, and its limits `x` and `e^x` where they are as near as the type can tell.
#[inline(always)]
fn softplus<W: Wide>(x: W) -> W {
    let threshold = Float::ln(W::epsilon()) + W::of(2.0);
    if x > -threshold {
        x
    } else if x < threshold {
        x.exponential()
    } else {
        Float::ln_1p(x.exponential())
    }
}

/// `SoftplusGrad(gradients, features)`: `g / (1 + e^-x)`.
#[inline(always)]
fn softplus_grad<W: Wide>(g: W, x: W) -> W {
    g / ((-x).exponential() + W::one())
}

/// `Softsign(features)`: `x / (1 + |x|)`.
#[inline(always)]
fn softsign<W: Wide>(x: W) -> W {
    x / (Float::abs(x) + W::one())
}

/// `SoftsignGrad(gradients, features)`: `g / (1 + |x|)^2`.
#[inline(always)]
fn softsign_grad<W: Wide>(g: W, x: W) -> W {
    let denominator = Float::abs(x) + W::one();
    g / (denominator * denominator)
}

pub(crate) fn register(registry: &mut Registry) {
    activations! { registry;
        real "Relu" unary 0.15 relu;
        real "ReluGrad" binary 0.2 relu_grad;
        real "Relu6" unary 0.15 relu6;
        real "Relu6Grad" binary 0.2 relu6_grad;
        real "LeakyRelu" unary 0.15 leaky_relu;
        real "LeakyReluGrad" binary 0.2 leaky_relu_grad;
        float "Elu" unary 5.0 elu;
        float "EluGrad" binary 0.2 elu_grad;
        float "Selu" unary 5.0 selu;
        float "SeluGrad" binary 0.2 selu_grad;
        float "Softplus" unary 10.0 softplus;
        float "SoftplusGrad" binary 1.0 softplus_grad;
        float "Softsign" unary 0.3 softsign;
        float "SoftsignGrad" binary 0.3 softsign_grad;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::Tensor;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    const FEATURES: [f32; 9] = [NAN, -INF, INF, -1.0, 0.0, 1.0, 7.0, -100.0, 100.0];

    fn run(op: &str, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let mut registry = Registry::new();
        register(&mut registry);
        OpRun::new(op).attr_type("T", inputs[0].dtype()).run(&registry, inputs)
    }

    /// What TensorFlow 2.21 gives for `FEATURES`, with gradients of 1.
    #[test]
    fn special_values_are_as_tensorflow_has_them() {
        let table: &[(&str, usize, [f32; 9])] = &[
            ("Relu", 1, [NAN, 0.0, INF, 0.0, 0.0, 1.0, 7.0, 0.0, 100.0]),
            ("Relu6", 1, [NAN, 0.0, 6.0, 0.0, 0.0, 1.0, 6.0, 0.0, 6.0]),
            ("LeakyRelu", 1, [NAN, -INF, INF, -0.2, 0.0, 1.0, 7.0, -20.0, 100.0]),
            ("Elu", 1, [NAN, -1.0, INF, -0.632_120_55, 0.0, 1.0, 7.0, -1.0, 100.0]),
            ("Selu", 1, [NAN, -1.758_099_3, INF, -1.111_330_7, 0.0, 1.050_701, 7.354_907, -1.758_099_3, 105.070_1]),
            ("Softplus", 1, [NAN, 0.0, INF, 0.313_261_7, std::f32::consts::LN_2, 1.313_261_6, 7.000_911_7, 0.0, 100.0]),
            ("Softsign", 1, [NAN, NAN, NAN, -0.5, 0.0, 0.5, 0.875, -0.990_099, 0.990_099]),
            ("ReluGrad", 2, [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]),
            ("Relu6Grad", 2, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
            ("LeakyReluGrad", 2, [0.2, 0.2, 1.0, 0.2, 0.2, 1.0, 1.0, 0.2, 1.0]),
            ("EluGrad", 2, [1.0, -INF, 1.0, 0.0, 1.0, 1.0, 1.0, -99.0, 1.0]),
            (
                "SeluGrad",
                2,
                [1.050_701, -INF, 1.050_701, 0.758_099_3, 1.050_701, 1.050_701, 1.050_701, -98.241_9, 1.050_701],
            ),
            ("SoftplusGrad", 2, [NAN, 0.0, 1.0, 0.268_941_43, 0.5, 0.731_058_6, 0.999_089, 0.0, 1.0]),
            ("SoftsignGrad", 2, [NAN, 0.0, 0.0, 0.25, 1.0, 0.25, 0.015_625, 9.802_96e-5, 9.802_96e-5]),
        ];
        for (op, inputs, expected) in table {
            let features = Tensor::vector(&FEATURES).unwrap();
            let gradients = Tensor::vector(&[1f32; 9]).unwrap();
            let inputs = if *inputs == 1 { vec![features] } else { vec![gradients, features] };
            let outputs = run(op, inputs).unwrap();
            for (got, want) in outputs[0].as_slice::<f32>().unwrap().iter().zip(expected) {
                let near = (got - want).abs() <= want.abs() * 1e-6 + 1e-38 || got == want;
                assert!(near || got.is_nan() && want.is_nan(), "{op}: {got} for {want}");
            }
        }
    }

    #[test]
    fn half_precision_rounds_once_and_integers_work() {
        let x = Tensor::vector(&[bf16::from_f32(-1.0), bf16::from_f32(100.0)]).unwrap();
        let selu = run("Selu", vec![x.clone()]).unwrap();
        let values: Vec<f32> = selu[0].as_slice::<bf16>().unwrap().iter().map(|v| v.to_f32()).collect();
        assert_eq!(values, [-1.109_375, 105.0]);
        let leaky = run("LeakyRelu", vec![x]).unwrap();
        assert_eq!(leaky[0].as_slice::<bf16>().unwrap()[0].to_f32(), -0.200_195_31);
        let ints = run("Relu6", vec![Tensor::vector(&[-3i8, 3, 9]).unwrap()]).unwrap();
        assert_eq!(ints[0].as_slice::<i8>().unwrap(), &[0, 3, 6]);
        let bytes =
            run("ReluGrad", vec![Tensor::vector(&[1u8, 2]).unwrap(), Tensor::vector(&[0u8, 9]).unwrap()]).unwrap();
        assert_eq!(bytes[0].as_slice::<u8>().unwrap(), &[0, 2]);
    }

    #[test]
    fn gradients_of_rectifiers_are_products() {
        let inputs = vec![Tensor::vector(&[-2f32, NAN, INF]).unwrap(), Tensor::vector(&[-1f32, 7.0, -1.0]).unwrap()];
        let relu = run("ReluGrad", inputs.clone()).unwrap();
        let relu = relu[0].as_slice::<f32>().unwrap();
        assert!(relu[0] == 0.0 && relu[0].is_sign_negative() && relu[1].is_nan() && relu[2].is_nan());
        assert!(run("Relu6Grad", inputs).unwrap()[0].as_slice::<f32>().unwrap()[1].is_nan());
    }

    #[test]
    fn a_shared_input_is_left_alone_and_sizes_must_agree() {
        let x = Tensor::vector(&[-1f32; 100_000]).unwrap();
        let y = run("Relu", vec![x.clone()]).unwrap();
        assert!(y[0].as_slice::<f32>().unwrap().iter().all(|&v| v == 0.0));
        assert!(x.as_slice::<f32>().unwrap().iter().all(|&v| v == -1.0));
        let g = run("ReluGrad", vec![x.clone(), x]).unwrap();
        assert!(g[0].as_slice::<f32>().unwrap().iter().all(|&v| v == 0.0));
        let error =
            run("EluGrad", vec![Tensor::vector(&[1f32; 3]).unwrap(), Tensor::vector(&[1f32; 4]).unwrap()]).unwrap_err();
        assert_eq!(
            error.message(),
            "Inputs to operation op of type EluGrad must have the same size and shape.  Input 0: [3] != input 1: [4]"
        );
    }
}
