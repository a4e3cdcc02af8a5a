//! Pooling in three dimensions and its gradients. Both element types are computed in single precision.

use crate::convert::{narrowed, widened};
use crate::volume::{VolumeAttrs, shape, sizes};
use crate::window::{Axis, DataFormat};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};
use std::ops::Range;

/// Elements this near to the maximum count as it, in TensorFlow's gradient.
const NEAR: f32 = 1e-5;

/// The sizes of one pooling.
struct Pool {
    batch: usize,
    axes: [Axis; 3],
    depth: usize,
}

impl Pool {
    fn input(&self) -> usize {
        self.axes.iter().map(|a| a.input).product::<usize>() * self.depth
    }

    fn positions(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    fn window(&self) -> f64 {
        self.axes.iter().map(|a| a.window.min(a.input) as f64).product()
    }

    fn output_shape(&self) -> Result<Shape> {
        shape(DataFormat::Nhwc, self.batch, self.axes.map(|a| a.output), self.depth)
    }

    /// The ranges of input planes, rows and columns under output position `at` of a volume.
    fn covered(&self, at: usize) -> [Range<usize>; 3] {
        let [planes, rows, cols] = &self.axes;
        [
            planes.covered(at / (rows.output * cols.output)),
            rows.covered(at / cols.output % rows.output),
            cols.covered(at % cols.output),
        ]
    }

    /// Calls `visit` with where each input position under an output position begins in its volume.
    fn for_each_covered(&self, at: usize, mut visit: impl FnMut(usize)) {
        let [planes, rows, cols] = self.covered(at);
        for z in planes {
            for y in rows.clone() {
                for x in cols.clone() {
                    visit(((z * self.axes[1].input + y) * self.axes[2].input + x) * self.depth);
                }
            }
        }
    }

    /// How many input positions are under an output position.
    fn count(&self, at: usize) -> usize {
        self.covered(at).iter().map(|r| r.len()).product()
    }
}

/// Which computation.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Max,
    Average,
    MaxGradient,
    MaxSecondGradient,
    AverageGradient,
}

/// `MaxPool3D(input)`, `AvgPool3D(input)`, `MaxPool3DGrad(orig_input, orig_output, grad)`, `MaxPool3DGradGrad(..)`,
/// `AvgPool3DGrad(orig_input_shape, grad)`.
struct Pool3D {
    form: Form,
    attrs: VolumeAttrs,
    window: [i64; 3],
}

fn five(tensor: &Tensor, name: &str) -> Result<()> {
    if tensor.shape().rank() == 5 { Ok(()) } else { Err(invalid_argument!("{name} must be 5-dimensional")) }
}

fn expect(tensor: &Tensor, name: &str, expected: &Shape) -> Result<()> {
    if tensor.shape() == expected {
        return Ok(());
    }
    Err(invalid_argument!("Expected {name} shape to be {expected}, but got {}", tensor.shape()))
}

impl Pool3D {
    fn new(c: &Construction<'_>, form: Form) -> Result<Pool3D> {
        let kernel = match form {
            Form::Max | Form::Average => "Pooling3DOp",
            Form::MaxGradient => "MaxPooling3dGradOp",
            Form::MaxSecondGradient => "MaxPooling3dGradGradOp",
            Form::AverageGradient => "AvgPooling3dGradOp",
        };
        let (attrs, window) = VolumeAttrs::pooling(c, kernel)?;
        Ok(Pool3D { form, attrs, window })
    }

    fn pool(&self, input: &Shape) -> Result<Pool> {
        let Some((batch, inner, depth)) = sizes(DataFormat::Nhwc, input) else {
            return Err(invalid_argument!("tensor_in must be 5-dimensional"));
        };
        let window = self.window.map(|k| usize::try_from(k).unwrap_or(usize::MAX));
        Ok(Pool { batch, axes: self.attrs.axes(inner, window)?, depth })
    }

    fn forward(&self, ctx: &Context<'_>, input: &Tensor) -> Result<Tensor> {
        five(input, "tensor_in")?;
        let pool = self.pool(input.shape())?;
        let mut output = Tensor::alloc(DType::Float, pool.output_shape()?)?;
        let x = input.as_slice::<f32>()?;
        let cost = pool.depth as f64 * pool.window() * 0.3;
        ctx.parallel_chunks(output.as_mut_slice::<f32>()?, pool.depth, cost, |range, part| {
            for (at, to) in range.zip(part.chunks_exact_mut(pool.depth)) {
                let (volume, at) = (at / pool.positions(), at % pool.positions());
                let x = &x[volume * pool.input()..(volume + 1) * pool.input()];
                if self.form == Form::Max {
                    to.fill(f32::MIN);
                    pool.for_each_covered(at, |from| {
                        let from = &x[from..from + pool.depth];
                        to.iter_mut().zip(from).for_each(|(t, &x)| *t = if *t < x { x } else { *t });
                    });
                } else {
                    to.fill(0.0);
                    pool.for_each_covered(at, |from| {
                        to.iter_mut().zip(&x[from..from + pool.depth]).for_each(|(t, &x)| *t += x);
                    });
                    let count = pool.count(at) as f32;
                    to.iter_mut().for_each(|t| *t /= count);
                }
            }
        });
        Ok(output)
    }

    fn max_gradient(&self, ctx: &Context<'_>, input: &Tensor, output: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        five(input, "tensor_in")?;
        five(output, "tensor_out")?;
        five(gradient, "out_backprop")?;
        let pool = self.pool(input.shape())?;
        let expected = pool.output_shape()?;
        expect(output, "orig_output", &expected)?;
        expect(gradient, "grad", &expected)?;
        let mut result = Tensor::zeros(DType::Float, input.shape().clone())?;
        let (x, max, g) = (input.as_slice::<f32>()?, output.as_slice::<f32>()?, gradient.as_slice::<f32>()?);
        let (depth, positions) = (pool.depth, pool.positions());
        let cost = (positions * depth) as f64 * pool.window() * 0.5;
        ctx.parallel_chunks(result.as_mut_slice::<f32>()?, pool.input(), cost, |volumes, part| {
            for (volume, to) in volumes.zip(part.chunks_exact_mut(pool.input())) {
                let x = &x[volume * pool.input()..(volume + 1) * pool.input()];
                for at in 0..positions {
                    let out = (volume * positions + at) * depth;
                    pool.for_each_covered(at, |from| {
                        for channel in 0..depth {
                            if (x[from + channel] - max[out + channel]).abs() < NEAR {
                                to[from + channel] += g[out + channel];
                            }
                        }
                    });
                }
            }
        });
        Ok(result)
    }

    fn max_second(&self, ctx: &Context<'_>, input: &Tensor, output: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        five(input, "tensor_in")?;
        five(output, "tensor_out")?;
        five(gradient, "out_grad_backprop")?;
        let pool = self.pool(input.shape())?;
        let expected = pool.output_shape()?;
        expect(output, "orig_output", &expected)?;
        expect(gradient, "grad", input.shape())?;
        let mut result = Tensor::zeros(DType::Float, expected)?;
        let (x, max, g) = (input.as_slice::<f32>()?, output.as_slice::<f32>()?, gradient.as_slice::<f32>()?);
        let cost = pool.depth as f64 * pool.window();
        ctx.parallel_chunks(result.as_mut_slice::<f32>()?, pool.depth, cost, |range, part| {
            for (at, to) in range.zip(part.chunks_exact_mut(pool.depth)) {
                let out = at * pool.depth;
                let (volume, at) = (at / pool.positions(), at % pool.positions());
                let start = volume * pool.input();
                for (channel, to) in to.iter_mut().enumerate() {
                    // The first of the elements that are the maximum.
                    let mut found = None;
                    pool.for_each_covered(at, |from| {
                        let here = start + from + channel;
                        if found.is_none() && x[here] == max[out + channel] {
                            found = Some(here);
                        }
                    });
                    *to = found.map_or(0.0, |found| g[found]);
                }
            }
        });
        Ok(result)
    }

    fn average_gradient(&self, ctx: &Context<'_>, sizes: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        if sizes.shape().dims() != [5] {
            return Err(invalid_argument!("tensor_in must be 1-dimensional and 5 elements"));
        }
        five(gradient, "out_backprop")?;
        let to = Shape::new(&sizes.to_i64_vec()?)?;
        let pool = self.pool(&to)?;
        let (from, expected) = (gradient.shape(), pool.output_shape()?);
        for (at, name) in [(0, "first"), (4, "last")] {
            if to.dim(at) != from.dim(at) {
                return Err(invalid_argument!(
                    "Expected {name} dimension of tensor_in_shape and out_backprop to match, got {} and {}",
                    to.dim(at),
                    from.dim(at)
                ));
            }
        }
        expect(gradient, "grad", &expected)?;
        let mut result = Tensor::zeros(DType::Float, to)?;
        let g = gradient.as_slice::<f32>()?;
        let (depth, positions) = (pool.depth, pool.positions());
        let cost = (positions * depth) as f64 * pool.window() * 0.3;
        ctx.parallel_chunks(result.as_mut_slice::<f32>()?, pool.input(), cost, |volumes, part| {
            for (volume, to) in volumes.zip(part.chunks_exact_mut(pool.input())) {
                for at in 0..positions {
                    let out = (volume * positions + at) * depth;
                    let share = (pool.count(at) as f32).recip();
                    pool.for_each_covered(at, |target| {
                        let target = &mut to[target..target + depth];
                        target.iter_mut().zip(&g[out..out + depth]).for_each(|(t, &g)| *t += g * share);
                    });
                }
            }
        });
        Ok(result)
    }
}

impl Kernel for Pool3D {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let dtype = ctx.output_type(0)?;
        let input = |i: usize| -> Result<Tensor> {
            let tensor = ctx.input(i)?;
            if tensor.dtype() == DType::BFloat16 { widened(ctx, tensor) } else { Ok(tensor.clone()) }
        };
        let result = match self.form {
            Form::Max | Form::Average => self.forward(ctx, &input(0)?),
            Form::MaxGradient => self.max_gradient(ctx, &input(0)?, &input(1)?, &input(2)?),
            Form::MaxSecondGradient => self.max_second(ctx, &input(0)?, &input(1)?, &input(2)?),
            Form::AverageGradient => self.average_gradient(ctx, ctx.input(0)?, &input(1)?),
        }?;
        let result = match dtype {
            DType::BFloat16 => narrowed(ctx, &result, dtype)?,
            DType::Float => result,
            other => return Err(internal!("no pooling of {other}")),
        };
        ctx.set_output(0, result)
    }
}

pub(super) fn register(registry: &mut Registry) {
    let types = [DType::BFloat16, DType::Float];
    registry.op("MaxPool3D").types("T", &types).kernel(|c| Pool3D::new(c, Form::Max));
    registry.op("AvgPool3D").types("T", &types).kernel(|c| Pool3D::new(c, Form::Average));
    registry.op("AvgPool3DGrad").types("T", &types).kernel(|c| Pool3D::new(c, Form::AverageGradient));
    registry.op("MaxPool3DGradGrad").types("T", &types).kernel(|c| Pool3D::new(c, Form::MaxSecondGradient));
    for dtype in types {
        registry
            .op("MaxPool3DGrad")
            .types("T", &[dtype])
            .types("TInput", &[dtype])
            .kernel(|c| Pool3D::new(c, Form::MaxGradient));
    }
}
