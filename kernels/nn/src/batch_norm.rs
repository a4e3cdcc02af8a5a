//! Batch normalisation and its gradient.

use crate::convert::{channels_last, channels_second};
use crate::simd::{Real, vectorized};
use crate::window::DataFormat;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, bf16, dispatch, f16, internal, invalid_argument};

/// Nanoseconds for an element in one pass, roughly.
const COST: f64 = 0.3;

/// The attributes of all these ops, and whether they have the outputs that the third version added.
struct BatchNorm {
    dtype: DType,
    epsilon: f32,
    /// The weight of this batch in the running averages; 1 for the gradients, which have none.
    factor: f32,
    format: DataFormat,
    training: bool,
    third: bool,
}

impl BatchNorm {
    fn new(c: &Construction<'_>, third: bool) -> Result<BatchNorm> {
        let has_factor = c.attrs().has("exponential_avg_factor");
        Ok(BatchNorm {
            dtype: c.dtype("T")?,
            epsilon: c.attrs().float("epsilon")?,
            factor: if has_factor { c.attrs().float("exponential_avg_factor")? } else { 1.0 },
            format: DataFormat::from_attr(c)?,
            training: c.attrs().bool("is_training")?,
            third,
        })
    }

    fn unsupported(&self) -> Status {
        internal!("no batch normalisation of {}", self.dtype)
    }

    /// Whether TensorFlow leaves this element type to oneDNN.
    fn general(&self) -> bool {
        matches!(self.dtype, DType::Float | DType::BFloat16)
    }

    fn check_rank(&self, shape: &Shape) -> Result<()> {
        match shape.rank() {
            4 | 5 => Ok(()),
            _ if self.general() => Err(invalid_argument!("input must be 4-dimensional{shape}")),
            _ => Err(invalid_argument!("input must be 4 or 5-dimensional{shape}")),
        }
    }

    fn channels(&self, shape: &Shape) -> usize {
        shape.dim(if self.format == DataFormat::Nhwc { shape.rank() - 1 } else { 1 })
    }

    /// The tensor with the channels last.
    fn last<T: Real>(&self, ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
        if self.format == DataFormat::Nhwc {
            return Ok(tensor.clone());
        }
        let shape = tensor.shape();
        let flat = Shape::from_dims(&[shape.dim(0), shape.dim(1), shape.stride(1), 1])?;
        channels_last::<T>(ctx, &tensor.reshaped(flat)?)
    }

    /// A result with the channels last in the order and shape of the inputs.
    fn restored<T: Real>(&self, ctx: &Context<'_>, result: Tensor, shape: &Shape) -> Result<Tensor> {
        if self.format == DataFormat::Nhwc {
            return result.into_shape(shape.clone());
        }
        let flat = Shape::from_dims(&[shape.dim(0), shape.stride(1), 1, shape.dim(1)])?;
        channels_second::<T>(ctx, &result.into_shape(flat)?)?.into_shape(shape.clone())
    }
}

/// Checks that a tensor is a vector.
fn check_vector(tensor: &Tensor, name: &str) -> Result<()> {
    if tensor.shape().is_vector() {
        Ok(())
    } else {
        Err(invalid_argument!("{name} must be 1-dimensional{}", tensor.shape()))
    }
}

/// Checks that a vector has an element for each channel.
fn check_channels(tensor: &Tensor, name: &str, channels: usize) -> Result<()> {
    if tensor.num_elements() == channels {
        Ok(())
    } else {
        Err(invalid_argument!(
            "{name} must have the same number of elements as the channels of x, got {} and {channels}",
            tensor.num_elements()
        ))
    }
}

/// Sums `N` numbers for each channel over all rows; `add(row, sums)` adds those of a row. Blocks of rows are summed on their own,
/// how many does not depend on the threads.
fn sums<const N: usize>(
    ctx: &Context<'_>,
    rows: usize,
    channels: usize,
    add: impl Fn(usize, &mut [[f32; N]]) + Sync,
) -> Vec<[f32; N]> {
    let blocks = (rows / 64).clamp(1, 64);
    let mut partial = vec![[0f32; N]; blocks * channels];
    let cost = rows.div_ceil(blocks) as f64 * channels as f64 * COST;
    ctx.parallel_chunks(&mut partial, channels, cost, |range, part| {
        for (block, part) in range.zip(part.chunks_exact_mut(channels)) {
            (rows * block / blocks..rows * (block + 1) / blocks).for_each(|row| add(row, part));
        }
    });
    let mut total = vec![[0f32; N]; channels];
    for part in partial.chunks_exact(channels.max(1)) {
        for (total, part) in total.iter_mut().zip(part) {
            total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
        }
    }
    total
}

vectorized! {
    fn add_row[T: Real<Wide = f32>](sums: &mut [[f32; 1]], row: &[T]) {
        sums.iter_mut().zip(row).for_each(|(s, x)| s[0] += x.widen());
    }
}

vectorized! {
    /// Adds the squares of the distances from the mean.
    fn add_squares[T: Real<Wide = f32>](sums: &mut [[f32; 1]], row: &[T], mean: &[f32]) {
        for ((s, x), m) in sums.iter_mut().zip(row).zip(mean) {
            let centered = x.widen() - m;
            s[0] += centered * centered;
        }
    }
}

vectorized! {
    /// Adds gradients, and their products with the distances from the mean.
    fn add_products[T: Real<Wide = f32>](sums: &mut [[f32; 2]], dy: &[T], x: &[T], mean: &[f32]) {
        for (((s, dy), x), m) in sums.iter_mut().zip(dy).zip(x).zip(mean) {
            s[0] += dy.widen();
            s[1] += dy.widen() * (x.widen() - m);
        }
    }
}

vectorized! {
    /// `(x - mean) * factor + offset`, row by row.
    fn normalize[T: Real<Wide = f32>](to: &mut [T], from: &[T], mean: &[f32], factor: &[f32], offset: &[f32]) {
        let channels = mean.len();
        for (to, from) in to.chunks_exact_mut(channels).zip(from.chunks_exact(channels)) {
            let parameters = mean.iter().zip(factor).zip(offset);
            for ((to, from), ((mean, factor), offset)) in to.iter_mut().zip(from).zip(parameters) {
                *to = T::narrow((from.widen() - mean) * factor + offset);
            }
        }
    }
}

vectorized! {
    /// `factor * (dy - offset - (x - mean) * slope)`, row by row; a term is factor, offset, slope.
    fn propagate[T: Real<Wide = f32>](to: &mut [T], dy: &[T], x: &[T], terms: &[[f32; 3]], mean: &[f32]) {
        let channels = mean.len();
        let rows = to.chunks_exact_mut(channels).zip(dy.chunks_exact(channels)).zip(x.chunks_exact(channels));
        for ((to, dy), x) in rows {
            for (((to, dy), x), ([factor, offset, slope], mean)) in
                to.iter_mut().zip(dy).zip(x).zip(terms.iter().zip(mean))
            {
                *to = T::narrow(factor * (dy.widen() - offset - (x.widen() - mean) * slope));
            }
        }
    }
}

/// `FusedBatchNorm(x, scale, offset, mean, variance)` and its later versions: `(x - mean) / sqrt(variance + epsilon) * scale +
/// offset`, with the batch's own mean and variance when training, which then enter the running averages.
struct Forward(BatchNorm);

impl Kernel for Forward {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let op = &self.0;
        let (x, scale, offset) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let (mean, variance) = (ctx.input(3)?, ctx.input(4)?);
        op.check_rank(x.shape())?;
        let vectors =
            [(scale, "scale"), (offset, "offset"), (mean, "estimated_mean"), (variance, "estimated_variance")];
        for (tensor, name) in vectors {
            check_vector(tensor, name)?;
        }
        let channels = op.channels(x.shape());
        check_channels(scale, "scale", channels)?;
        check_channels(offset, "offset", channels)?;
        if !op.training || op.factor != 1.0 {
            let when = if op.training { "exponential_avg_factor != 1" } else { "is_training=false" };
            check_channels(mean, &format!("When {when}, mean"), channels)?;
            check_channels(variance, &format!("When {when}, variance"), channels)?;
        }
        let shape = x.shape().clone();
        let results = dispatch!(op.dtype, T in [f32, f16, bf16] => forward::<T>(ctx, op, channels));
        let (y, vectors) = results.ok_or_else(|| op.unsupported())??;
        let empty_reserve = op.general() && shape.rank() == 4;
        ctx.set_output(0, y)?;
        for (at, vector) in vectors.iter().enumerate() {
            ctx.set_output(at + 1, Tensor::vector(vector)?)?;
        }
        if op.third {
            let reserve = if empty_reserve { Shape::vector(0) } else { Shape::scalar() };
            ctx.set_output(5, Tensor::zeros(DType::Float, reserve)?)?;
        }
        Ok(())
    }
}

/// The normalised tensor, and the vectors of outputs 1 to 4: running mean and variance, batch mean and variance.
fn forward<T: Real<Wide = f32>>(ctx: &Context<'_>, op: &BatchNorm, channels: usize) -> Result<(Tensor, [Vec<f32>; 4])> {
    let x = ctx.input(0)?;
    let shape = x.shape();
    let (scale, offset) = (ctx.input(1)?.as_slice::<f32>()?, ctx.input(2)?.as_slice::<f32>()?);
    let (old_mean, old_variance) = (ctx.input(3)?.as_slice::<f32>()?, ctx.input(4)?.as_slice::<f32>()?);
    if shape.num_elements() == 0 {
        let (nan, zero) = (vec![f32::NAN; channels], vec![0.0; channels]);
        return Ok((Tensor::alloc(T::DTYPE, shape.clone())?, [nan.clone(), nan, zero.clone(), zero]));
    }
    let x = op.last::<T>(ctx, x)?;
    let source = x.as_slice::<T>()?;
    let rows = source.len() / channels;
    let (mean, variance, vectors);
    if op.training {
        let per_row = |row: usize| &source[row * channels..(row + 1) * channels];
        let totals = sums::<1>(ctx, rows, channels, |row, sums| {
            add_row(sums, per_row(row));
        });
        let batch_mean: Vec<f32> = totals.iter().map(|s| s[0] / rows as f32).collect();
        let totals = sums::<1>(ctx, rows, channels, |row, sums| {
            add_squares(sums, per_row(row), &batch_mean);
        });
        let batch_variance: Vec<f32> = totals.iter().map(|s| s[0] / rows as f32).collect();
        // The running variance takes the unbiased estimate.
        let unbiased = rows as f32 / (rows.max(2) - 1) as f32;
        let running = |old: &[f32], new: &[f32], correction: f32| -> Vec<f32> {
            if op.factor == 1.0 {
                return new.iter().map(|n| n * correction).collect();
            }
            old.iter().zip(new).map(|(o, n)| (1.0 - op.factor) * o + op.factor * correction * n).collect()
        };
        let new_mean = running(old_mean, &batch_mean, 1.0);
        let new_variance = running(old_variance, &batch_variance, unbiased);
        vectors = [new_mean, new_variance, batch_mean.clone(), batch_variance.clone()];
        (mean, variance) = (batch_mean, batch_variance);
    } else {
        (mean, variance) = (old_mean.to_vec(), old_variance.to_vec());
        vectors = [mean.clone(), variance.clone(), mean.clone(), variance.clone()];
    }
    let factor: Vec<f32> = variance.iter().zip(scale).map(|(v, s)| s / (v + op.epsilon).sqrt()).collect();
    let mut y = Tensor::alloc(T::DTYPE, x.shape().clone())?;
    ctx.parallel_chunks(y.as_mut_slice::<T>()?, channels, channels as f64 * COST, |range, part| {
        normalize(part, &source[range.start * channels..range.end * channels], &mean, &factor, offset);
    });
    Ok((op.restored::<T>(ctx, y, shape)?, vectors))
}

/// `FusedBatchNormGrad(y_backprop, x, scale, mean, variance)` and its later versions: the gradients of `x`, `scale` and `offset`.
/// When training, mean and variance are the batch's and take part in the gradient; otherwise they are constants.
struct Gradient(BatchNorm);

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let op = &self.0;
        let (y_backprop, x, scale) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let (mean, variance) = (ctx.input(3)?, ctx.input(4)?);
        op.check_rank(y_backprop.shape())?;
        op.check_rank(x.shape())?;
        for (tensor, name) in [(scale, "scale"), (mean, "saved mean"), (variance, "saved variance")] {
            check_vector(tensor, name)?;
        }
        if x.shape() != y_backprop.shape() {
            return Err(invalid_argument!(
                "x and y_backprop must have same shape, but x has shape {} and y_backprop has shape {}",
                x.shape(),
                y_backprop.shape()
            ));
        }
        let channels = op.channels(x.shape());
        check_channels(scale, "scale", channels)?;
        check_channels(mean, "reserve_space_1", channels)?;
        check_channels(variance, "reserve_space_2", channels)?;
        let results = dispatch!(op.dtype, T in [f32, f16, bf16] => gradient::<T>(ctx, op, channels));
        let (x_backprop, scale_backprop, offset_backprop) = results.ok_or_else(|| op.unsupported())??;
        ctx.set_output(0, x_backprop)?;
        ctx.set_output(1, Tensor::vector(&scale_backprop)?)?;
        ctx.set_output(2, Tensor::vector(&offset_backprop)?)?;
        ctx.set_scalar(3, 0f32)?;
        ctx.set_scalar(4, 0f32)
    }
}

fn gradient<T: Real<Wide = f32>>(
    ctx: &Context<'_>,
    op: &BatchNorm,
    channels: usize,
) -> Result<(Tensor, Vec<f32>, Vec<f32>)> {
    let shape = ctx.input(1)?.shape();
    if shape.num_elements() == 0 {
        return Ok((Tensor::alloc(T::DTYPE, shape.clone())?, vec![0.0; channels], vec![0.0; channels]));
    }
    let (y_backprop, x) = (op.last::<T>(ctx, ctx.input(0)?)?, op.last::<T>(ctx, ctx.input(1)?)?);
    let (dy, x) = (y_backprop.as_slice::<T>()?, x.as_slice::<T>()?);
    let scale = ctx.input(2)?.as_slice::<f32>()?;
    let (mean, variance) = (ctx.input(3)?.as_slice::<f32>()?, ctx.input(4)?.as_slice::<f32>()?);
    let rows = x.len() / channels;
    let totals = sums::<2>(ctx, rows, channels, |row, sums| {
        let row = row * channels..(row + 1) * channels;
        add_products(sums, &dy[row.clone()], &x[row], mean);
    });
    let deviation: Vec<f32> = variance.iter().map(|v| 1.0 / (v + op.epsilon).sqrt()).collect();
    // For each channel: the factor of dy, and what the means of dy and of dy * (x - mean) take away.
    let count = rows as f32;
    let terms: Vec<[f32; 3]> = totals
        .iter()
        .zip(&deviation)
        .zip(scale)
        .map(|((t, d), s)| if op.training { [s * d, t[0] / count, t[1] / count * d * d] } else { [s * d, 0.0, 0.0] })
        .collect();
    let mut x_backprop = Tensor::alloc(T::DTYPE, y_backprop.shape().clone())?;
    ctx.parallel_chunks(x_backprop.as_mut_slice::<T>()?, channels, channels as f64 * COST, |range, part| {
        let range = range.start * channels..range.end * channels;
        propagate(part, &dy[range.clone()], &x[range], &terms, mean);
    });
    let scale_backprop = totals.iter().zip(&deviation).map(|(t, d)| t[1] * d).collect();
    let offset_backprop = totals.iter().map(|t| t[0]).collect();
    Ok((op.restored::<T>(ctx, x_backprop, shape)?, scale_backprop, offset_backprop))
}

pub(crate) fn register(registry: &mut Registry) {
    let types = &[DType::BFloat16, DType::Float, DType::Half];
    let float = &[DType::Float];
    registry
        .op("FusedBatchNorm")
        .types("T", float)
        .kernel(|c: &Construction<'_>| BatchNorm::new(c, false).map(Forward));
    registry
        .op("FusedBatchNormGrad")
        .types("T", float)
        .kernel(|c: &Construction<'_>| BatchNorm::new(c, false).map(Gradient));
    for (op, third) in [("FusedBatchNormV2", false), ("FusedBatchNormV3", true)] {
        registry
            .op(op)
            .types("T", types)
            .types("U", float)
            .kernel(move |c: &Construction<'_>| BatchNorm::new(c, third).map(Forward));
    }
    for (op, third) in [("FusedBatchNormGradV2", false), ("FusedBatchNormGradV3", true)] {
        registry
            .op(op)
            .types("T", types)
            .types("U", float)
            .kernel(move |c: &Construction<'_>| BatchNorm::new(c, third).map(Gradient));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;

    const X: [f32; 8] = [1.0, 2.0, 3.0, 5.0, -1.0, 0.0, 4.0, 4.0];
    const DY: [f32; 8] = [1.0, -1.0, 0.5, 2.0, 0.0, 1.0, 2.0, 3.0];

    fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let mut registry = Registry::new();
        register(&mut registry);
        op.attr_type("T", inputs[0].dtype()).attr_type("U", DType::Float).run(&registry, inputs)
    }

    fn op(name: &str, training: bool) -> OpRun {
        OpRun::new(name).attr_bool("is_training", training)
    }

    fn image(dims: &[i64], values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    fn vector(values: &[f32]) -> Tensor {
        Tensor::vector(values).unwrap()
    }

    fn assert_near(tensor: &Tensor, expected: &[f32]) {
        let got = tensor.as_slice::<f32>().unwrap();
        assert_eq!(got.len(), expected.len());
        for (g, w) in got.iter().zip(expected) {
            assert!((g - w).abs() <= 2e-6 * w.abs().max(1.0) || g.is_nan() && w.is_nan(), "{got:?}");
        }
    }

    fn inputs(mean: &[f32], variance: &[f32]) -> Vec<Tensor> {
        let x = image(&[2, 2, 1, 2], &X);
        vec![x, vector(&[1.0, 2.0]), vector(&[0.5, -1.0]), vector(mean), vector(variance)]
    }

    /// Values of TensorFlow 2.21.
    #[test]
    fn training_takes_the_batch_and_inference_what_is_given() {
        let y = [
            0.109_438_54,
            -1.781_122_9,
            1.150_935_8,
            1.343_368_8,
            -0.932_058_7,
            -3.864_117_4,
            1.671_684_4,
            0.301_871_54,
        ];
        let outputs = run(op("FusedBatchNormV3", true), inputs(&[], &[])).unwrap();
        assert_near(&outputs[0], &y);
        assert_near(&outputs[1], &[1.75, 2.75]);
        assert_near(&outputs[2], &[4.916_667; 2]);
        assert_near(&outputs[4], &[3.6875; 2]);
        assert_eq!(outputs[5].shape().dims(), [0]);
        let averaged = op("FusedBatchNormV3", true).attr_float("exponential_avg_factor", 0.5);
        let outputs = run(averaged, inputs(&[0.1, 0.2], &[1.0, 2.0])).unwrap();
        assert_near(&outputs[1], &[0.925, 1.475]);
        assert_near(&outputs[2], &[2.958_333_5, 3.458_333_5]);
        let outputs = run(op("FusedBatchNormV3", false), inputs(&[0.1, 0.2], &[1.0, 2.0])).unwrap();
        assert_near(
            &outputs[0],
            &[1.399_955, 1.545_520_8, 3.399_855, 5.788_056, -0.599_945, -1.282_835_7, 4.399_805, 4.373_877_5],
        );
        let error = run(op("FusedBatchNormV3", false), inputs(&[], &[])).unwrap_err();
        assert!(error.message().starts_with("When is_training=false, mean must have the same number of elements"));
    }

    #[test]
    fn channels_may_come_second_and_the_batch_may_be_empty() {
        let mut second = inputs(&[], &[]);
        second[0] = image(&[2, 2, 2, 1], &[1.0, 3.0, 2.0, 5.0, -1.0, 4.0, 0.0, 4.0]);
        let outputs = run(op("FusedBatchNormV3", true).attr_str("data_format", "NCHW"), second).unwrap();
        let y = [
            0.109_438_54,
            1.150_935_8,
            -1.781_122_9,
            1.343_368_8,
            -0.932_058_7,
            1.671_684_4,
            -3.864_117_4,
            0.301_871_54,
        ];
        assert_near(&outputs[0], &y);
        let mut empty = inputs(&[], &[]);
        empty[0] = image(&[0, 2, 1, 2], &[]);
        let outputs = run(op("FusedBatchNormV3", true), empty).unwrap();
        assert_near(&outputs[1], &[f32::NAN; 2]);
        assert_near(&outputs[3], &[0.0; 2]);
    }

    /// Values of TensorFlow 2.21.
    #[test]
    fn gradients_of_both_modes() {
        let inputs = || {
            let (dy, x) = (image(&[2, 2, 1, 2], &DY), image(&[2, 2, 1, 2], &X));
            vec![dy, x, vector(&[1.0, 2.0]), vector(&[1.75, 2.75]), vector(&[3.6875; 2]), vector(&[])]
        };
        let outputs = run(op("FusedBatchNormGradV3", true), inputs()).unwrap();
        let expected = [
            0.180_934_95,
            -2.012_393_5,
            -0.388_349_68,
            -0.211_803_18,
            -0.030_903_33,
            0.953_201_95,
            0.238_318_09,
            1.270_994_7,
        ];
        assert_near(&outputs[0], &expected);
        assert_near(&outputs[1], &[2.278_275_3, 3.254_678_7]);
        assert_near(&outputs[2], &[3.5, 5.0]);
        let outputs = run(op("FusedBatchNormGradV3", false), inputs()).unwrap();
        let expected =
            [0.520_748_6, -1.041_497_2, 0.260_374_3, 2.082_994_5, 0.0, 1.041_497_2, 1.041_497_2, 3.124_491_7];
        assert_near(&outputs[0], &expected);
        let mut bad = inputs();
        bad[0] = image(&[1, 2, 1, 2], &DY[..4]);
        assert!(run(op("FusedBatchNormGradV3", true), bad).unwrap_err().message().contains("must have same shape"));
    }
}
