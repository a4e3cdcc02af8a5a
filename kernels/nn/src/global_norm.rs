//! `BatchNormWithGlobalNormalization` and its gradient, which newer programs have no use for.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, f16, internal, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 1.0;

/// A type that is computed in another one.
trait Real: Element {
    fn wide(self) -> f64;
    fn narrow(value: f64) -> Self;
}

impl Real for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> f32 {
        value as f32
    }
}

impl Real for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn narrow(value: f64) -> f64 {
        value
    }
}

impl Real for f16 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> f16 {
        f16::from_f64(value)
    }
}

/// `(t - m) / sqrt(v + epsilon) * gamma + beta`, or without `gamma`; the gradient has `t, m, v, gamma, backprop` as inputs and
/// those of `t, m, v, beta, gamma` as outputs.
struct Normalization {
    epsilon: f64,
    scale: bool,
    gradient: bool,
}

fn vector<T: Real>(ctx: &Context<'_>, i: usize, name: &str, depth: usize) -> Result<Vec<f64>> {
    let tensor = ctx.input(i)?;
    if tensor.shape().rank() != 1 {
        return Err(invalid_argument!("{name} must be 1-dimensional{}", tensor.shape()));
    }
    if tensor.num_elements() != depth {
        return Err(invalid_argument!("{name} must have {depth} elements, got {}", tensor.num_elements()));
    }
    Ok(tensor.as_slice::<T>()?.iter().map(|x| x.wide()).collect())
}

impl Normalization {
    fn new(c: &Construction<'_>, gradient: bool) -> Result<Normalization> {
        Ok(Normalization {
            epsilon: f64::from(c.attrs().float("variance_epsilon")?),
            scale: c.attrs().bool("scale_after_normalization")?,
            gradient,
        })
    }

    fn forward<T: Real>(&self, ctx: &mut Context<'_>, depth: usize) -> Result<()> {
        let (mean, variance) = (vector::<T>(ctx, 1, "mean", depth)?, vector::<T>(ctx, 2, "var", depth)?);
        let (beta, gamma) = (vector::<T>(ctx, 3, "beta", depth)?, vector::<T>(ctx, 4, "gamma", depth)?);
        let input = ctx.input(0)?;
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let factors: Vec<f64> = variance
            .iter()
            .zip(&gamma)
            .map(|(v, gamma)| (v + self.epsilon).sqrt().recip() * if self.scale { *gamma } else { 1.0 })
            .collect();
        let x = input.as_slice::<T>()?;
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, depth.max(1), COST * depth as f64, |rows, part| {
            for (row, out) in rows.zip(part.chunks_exact_mut(depth)) {
                for (c, (out, x)) in out.iter_mut().zip(&x[row * depth..]).enumerate() {
                    *out = T::narrow((x.wide() - mean[c]) * factors[c] + beta[c]);
                }
            }
        });
        ctx.set_output(0, out)
    }

    fn backward<T: Real>(&self, ctx: &mut Context<'_>, depth: usize) -> Result<()> {
        let (mean, variance) = (vector::<T>(ctx, 1, "mean", depth)?, vector::<T>(ctx, 2, "var", depth)?);
        let gamma = vector::<T>(ctx, 3, "gamma", depth)?;
        let (input, backprop) = (ctx.input(0)?, ctx.input(4)?);
        if backprop.shape() != input.shape() {
            return Err(invalid_argument!("out_backprop must be 4-dimensional{}", backprop.shape()));
        }
        let (x, g) = (input.as_slice::<T>()?, backprop.as_slice::<T>()?);
        let (mut sums, mut products) = (vec![0.0; depth], vec![0.0; depth]);
        for (at, (x, g)) in x.iter().zip(g).enumerate() {
            let c = at % depth;
            sums[c] += g.wide();
            products[c] += g.wide() * (x.wide() - mean[c]);
        }
        let scale = |c: usize| if self.scale { gamma[c] } else { 1.0 };
        let inverse: Vec<f64> = variance.iter().map(|v| (v + self.epsilon).sqrt().recip()).collect();
        let mut dx = ctx.alloc_output(0, input.shape().clone())?;
        for (at, (to, g)) in dx.as_mut_slice::<T>()?.iter_mut().zip(g).enumerate() {
            let c = at % depth;
            *to = T::narrow(g.wide() * inverse[c] * scale(c));
        }
        let output = |value: &dyn Fn(usize) -> f64| -> Result<Tensor> {
            Tensor::vector(&(0..depth).map(|c| T::narrow(value(c))).collect::<Vec<T>>())
        };
        let dm = output(&|c| -sums[c] * inverse[c] * scale(c))?;
        let dv = output(&|c| products[c] * -0.5 * inverse[c].powi(3) * scale(c))?;
        let db = output(&|c| sums[c])?;
        let dg = output(&|c| if self.scale { products[c] * inverse[c] } else { 0.0 })?;
        for (i, tensor) in [dx, dm, dv, db, dg].into_iter().enumerate() {
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    }
}

impl Kernel for Normalization {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if input.shape().rank() != 4 {
            return Err(invalid_argument!("input must be 4-dimensional{}", input.shape()));
        }
        let depth = input.shape().dim(3);
        dispatch!(input.dtype(), T in [f32, f64, f16] => {
            if self.gradient { self.backward::<T>(ctx, depth) } else { self.forward::<T>(ctx, depth) }
        })
        .unwrap_or_else(|| Err(internal!("no normalisation of this type")))
    }
}

pub(crate) fn register(registry: &mut Registry) {
    let types = [DType::Double, DType::Float, DType::Half];
    for (op, gradient) in [("BatchNormWithGlobalNormalization", false), ("BatchNormWithGlobalNormalizationGrad", true)]
    {
        registry.op(op).types("T", &types).kernel(move |c| Normalization::new(c, gradient));
    }
}
