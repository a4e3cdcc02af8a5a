//! Softmax, and the cross entropies of it with given distributions and labels.

use crate::simd::{Real, Wide, vectorized};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Status, Tensor, dispatch, internal, invalid_argument};
use num_traits::{Float, One, Zero};

/// Nanoseconds for an element of a softmax, roughly.
const COST: f64 = 1.5;

fn unsupported(dtype: DType) -> Status {
    internal!("no softmax of {dtype}")
}

/// Strands that a row is reduced in, so that one operation need not wait for the one before.
const STRANDS: usize = 32;

/// Reduces a row in [`STRANDS`] strands.
#[inline(always)]
fn reduce<W: Wide>(row: &[W], first: W, f: impl Fn(W, W) -> W) -> W {
    let mut strands = [first; STRANDS];
    let (chunks, rest) = row.as_chunks::<STRANDS>();
    for chunk in chunks {
        for i in 0..STRANDS {
            strands[i] = f(strands[i], chunk[i]);
        }
    }
    strands.iter_mut().zip(rest).for_each(|(s, &v)| *s = f(*s, v));
    if chunks.is_empty() {
        return strands[..rest.len()].iter().fold(first, |a, &b| f(a, b));
    }
    strands.iter().fold(first, |a, &b| f(a, b))
}

/// The largest of a row; NaN is passed over.
#[inline(always)]
fn largest<W: Wide>(row: &[W]) -> W {
    reduce(row, W::neg_infinity(), |best, v| if v > best { v } else { best })
}

vectorized! {
    /// Replaces a row by its distances from the largest element, and returns the sum of their exponentials, which `scratch` then
    /// holds.
    fn center[W: Wide](row: &mut [W], scratch: &mut [W]) -> W {
        let top = largest(row);
        for (v, e) in row.iter_mut().zip(scratch.iter_mut()) {
            *v = *v - top;
            *e = v.exponential();
        }
        reduce(scratch, W::zero(), |a, b| a + b)
    }
}

vectorized! {
    /// Replaces a row by the exponentials of the distances from the largest element, and returns their sum and the largest.
    fn exponentials[W: Wide](row: &mut [W]) -> (W, W) {
        let top = largest(row);
        row.iter_mut().for_each(|v| *v = (*v - top).exponential());
        (reduce(row, W::zero(), |a, b| a + b), top)
    }
}

vectorized! {
    fn widen[T: Real](to: &mut [T::Wide], from: &[T]) {
        to.iter_mut().zip(from).for_each(|(w, t)| *w = t.widen());
    }
}

vectorized! {
    fn scaled[T: Real](to: &mut [T], from: &[T::Wide], scale: T::Wide) {
        to.iter_mut().zip(from).for_each(|(t, w)| *t = T::narrow(*w * scale));
    }
}

vectorized! {
    fn lowered[T: Real](to: &mut [T], from: &[T::Wide], offset: T::Wide) {
        to.iter_mut().zip(from).for_each(|(t, w)| *t = T::narrow(*w - offset));
    }
}

vectorized! {
    /// Replaces labels by `exponential / sum - label`.
    fn difference[T: Real](labels: &mut [T], exponentials: &[T::Wide], sum: T::Wide) {
        labels.iter_mut().zip(exponentials).for_each(|(t, e)| *t = T::narrow(*e / sum - t.widen()));
    }
}

/// `Softmax(logits)`: `e^x / sum e^x` along the last dimension. `LogSoftmax(logits)`: its logarithm, `x - ln sum e^x`.
struct Softmax {
    dtype: DType,
    logarithm: bool,
}

impl Kernel for Softmax {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(self.dtype, T in floats => softmax::<T>(ctx, self.logarithm))
            .ok_or_else(|| unsupported(self.dtype))?
    }
}

fn softmax<T: Real>(ctx: &mut Context<'_>, logarithm: bool) -> Result<()> {
    let shape = ctx.input(0)?.shape().clone();
    let Some(&classes) = shape.dims().last() else {
        return Err(invalid_argument!("logits must have >= 1 dimension, got {shape}"));
    };
    let (mut output, reused) = ctx.reuse_or_alloc(&[0], 0, &shape)?;
    let target = output.as_mut_slice::<T>()?;
    let source = if reused.is_some() { None } else { Some(ctx.input(0)?.as_slice::<T>()?) };
    ctx.parallel_chunks(target, classes, classes as f64 * COST, |range, part| {
        let mut row = vec![T::Wide::zero(); classes];
        let mut scratch = vec![T::Wide::zero(); if logarithm { classes } else { 0 }];
        for (at, to) in range.zip(part.chunks_exact_mut(classes)) {
            match source {
                Some(source) => widen(&mut row, &source[at * classes..(at + 1) * classes]),
                None => widen(&mut row, to),
            }
            if logarithm {
                let offset = Float::ln(center(&mut row, &mut scratch));
                lowered(to, &row, offset);
            } else {
                let scale = T::Wide::one() / exponentials(&mut row).0;
                scaled(to, &row, scale);
            }
        }
    });
    ctx.set_output(0, output)
}

/// `SoftmaxCrossEntropyWithLogits(features, labels) -> (loss, backprop)`: for each row `loss = sum labels * (ln sum e^x - x)` and
/// `backprop = softmax(x) - labels`. Logits and labels are broadcast to one matrix.
struct SoftmaxCrossEntropy(DType);

impl Kernel for SoftmaxCrossEntropy {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (logits, labels) = (ctx.input(0)?, ctx.input(1)?);
        let (rows, classes) = common_matrix(logits.shape(), labels.shape())?;
        let outputs = dispatch!(self.0, T in floats => cross_entropy::<T>(ctx, logits, labels, rows, classes));
        let (loss, backprop) = outputs.ok_or_else(|| unsupported(self.0))??;
        ctx.set_output(0, loss)?;
        ctx.set_output(1, backprop)
    }
}

/// The matrix that logits and labels are broadcast to.
fn common_matrix(logits: &Shape, labels: &Shape) -> Result<(usize, usize)> {
    let rank = logits.rank().max(labels.rank());
    let size = |shape: &Shape, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |at| shape.dim(at));
    let mut dims = [1; 2];
    for axis in 0..rank {
        let (a, b) = (size(logits, axis), size(labels, axis));
        if a != b && a != 1 && b != 1 {
            return Err(invalid_argument!(
                "logits and labels must be broadcastable: logits_size={logits} labels_size={labels}"
            ));
        }
        if let Some(dim) = dims.get_mut(axis) {
            *dim = if a == 1 { b } else { a };
        }
    }
    if rank != 2 {
        return Err(invalid_argument!(
            "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
        ));
    }
    Ok((dims[0], dims[1]))
}

/// Rows of a tensor that is broadcast to a matrix.
struct Rows<'a, T> {
    values: &'a [T],
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T: Element> Rows<'a, T> {
    fn new(tensor: &'a Tensor) -> Result<Rows<'a, T>> {
        let shape = tensor.shape();
        let columns = shape.dims().last().copied().unwrap_or(1);
        let rows = if shape.rank() == 2 { shape.dim(0) } else { 1 };
        let row_stride = if rows == 1 { 0 } else { columns };
        Ok(Rows { values: tensor.as_slice()?, row_stride, column_stride: usize::from(columns != 1) })
    }

    fn row(&self, row: usize) -> impl Iterator<Item = T> + '_ {
        let start = row * self.row_stride;
        let stride = self.column_stride;
        (0..).map_while(move |column| self.values.get(start + column * stride).copied())
    }
}

fn cross_entropy<T: Real>(
    ctx: &Context<'_>,
    logits: &Tensor,
    labels: &Tensor,
    rows: usize,
    classes: usize,
) -> Result<(Tensor, Tensor)> {
    let mut loss = Tensor::zeros(T::DTYPE, Shape::vector(rows))?;
    let mut backprop = Tensor::alloc(T::DTYPE, Shape::from_dims(&[rows, classes])?)?;
    let (logits, labels) = (Rows::<T>::new(logits)?, Rows::<T>::new(labels)?);
    per_row(ctx, &mut loss, &mut backprop, classes, |row, buffer, loss, to: &mut [T]| {
        let (distances, exponentials) = buffer.split_at_mut(classes);
        distances.iter_mut().zip(logits.row(row)).for_each(|(d, x)| *d = x.widen());
        to.iter_mut().zip(labels.row(row)).for_each(|(t, x)| *t = x);
        let sum = center(distances, exponentials);
        let offset = Float::ln(sum);
        let total: T::Wide = distances.iter().zip(to.iter()).map(|(&d, l)| l.widen() * (offset - d)).sum();
        *loss = T::narrow(total);
        difference(to, exponentials, sum);
    })?;
    Ok((loss, backprop))
}

/// Runs `body` for each row: its number, a buffer of twice `classes` numbers, and the row's places in the loss and in `backprop`.
fn per_row<T: Real>(
    ctx: &Context<'_>,
    loss: &mut Tensor,
    backprop: &mut Tensor,
    classes: usize,
    body: impl Fn(usize, &mut [T::Wide], &mut T, &mut [T]) + Sync,
) -> Result<()> {
    if classes == 0 {
        return Ok(());
    }
    let places = loss.as_mut_slice::<T>()?.iter_mut().zip(backprop.as_mut_slice::<T>()?.chunks_exact_mut(classes));
    let mut places: Vec<(&mut T, &mut [T])> = places.collect();
    ctx.parallel_chunks(&mut places, 1, classes as f64 * COST * 2.0, |range, part| {
        let mut buffer = vec![T::Wide::zero(); 2 * classes];
        for (row, (loss, to)) in range.zip(part) {
            body(row, &mut buffer, loss, to);
        }
    });
    Ok(())
}

/// `SparseSoftmaxCrossEntropyWithLogits(features, labels) -> (loss, backprop)`: as `SoftmaxCrossEntropyWithLogits` with all of a
/// row's probability on its label.
struct SparseSoftmaxCrossEntropy(DType);

impl Kernel for SparseSoftmaxCrossEntropy {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (logits, labels) = (ctx.input(0)?, ctx.input(1)?);
        let shape = logits.shape();
        if !shape.is_matrix() {
            return Err(invalid_argument!("logits must be 2-D, but got shape {shape}"));
        }
        if !labels.shape().is_vector() {
            return Err(invalid_argument!("labels must be 1-D, but got shape {}", labels.shape()));
        }
        if shape.dim(0) != labels.shape().dim(0) {
            return Err(invalid_argument!(
                "logits and labels must have the same first dimension, got logits shape {shape} and labels shape {}",
                labels.shape()
            ));
        }
        if shape.dim(1) == 0 {
            return Err(invalid_argument!("Must have at least one class, but got logits shape {shape}"));
        }
        let labels = checked_labels(&labels.to_i64_vec()?, shape.dim(1))?;
        let outputs = dispatch!(self.0, T in floats => sparse_cross_entropy::<T>(ctx, logits, &labels));
        let (loss, backprop) = outputs.ok_or_else(|| unsupported(self.0))??;
        ctx.set_output(0, loss)?;
        ctx.set_output(1, backprop)
    }
}

fn checked_labels(labels: &[i64], classes: usize) -> Result<Vec<usize>> {
    let valid = |&label: &i64| usize::try_from(label).ok().filter(|&l| l < classes);
    if let Some(labels) = labels.iter().map(valid).collect() {
        return Ok(labels);
    }
    let least = labels.iter().copied().min().unwrap_or_default();
    let bad = if least < 0 { least } else { labels.iter().copied().max().unwrap_or_default() };
    let all: Vec<String> = labels.iter().map(i64::to_string).collect();
    Err(invalid_argument!(
        "Received a label value of {bad} which is outside the valid range of [0, {classes}).  Label values: {}",
        all.join(" ")
    ))
}

fn sparse_cross_entropy<T: Real>(ctx: &Context<'_>, logits: &Tensor, labels: &[usize]) -> Result<(Tensor, Tensor)> {
    let classes = logits.shape().dim(1);
    let mut loss = Tensor::zeros(T::DTYPE, Shape::vector(labels.len()))?;
    let mut backprop = Tensor::alloc(T::DTYPE, logits.shape().clone())?;
    let logits = logits.as_slice::<T>()?;
    per_row(ctx, &mut loss, &mut backprop, classes, |row, buffer, loss, to: &mut [T]| {
        let from = &logits[row * classes..(row + 1) * classes];
        let (buffer, _) = buffer.split_at_mut(classes);
        widen(buffer, from);
        let label = labels[row];
        let logit = buffer[label];
        let (sum, top) = exponentials(buffer);
        *loss = T::narrow(Float::ln(sum) - (logit - top));
        let scale = T::Wide::one() / sum;
        scaled(to, buffer, scale);
        to[label] = T::narrow(buffer[label] * scale - T::Wide::one());
    })?;
    Ok((loss, backprop))
}

pub(crate) fn register(registry: &mut Registry) {
    for (op, logarithm) in [("Softmax", false), ("LogSoftmax", true)] {
        registry
            .op(op)
            .types("T", DType::FLOATS)
            .kernel(move |c: &Construction<'_>| Ok(Softmax { dtype: c.dtype("T")?, logarithm }));
    }
    registry
        .op("SoftmaxCrossEntropyWithLogits")
        .types("T", DType::FLOATS)
        .kernel(|c: &Construction<'_>| c.dtype("T").map(SoftmaxCrossEntropy));
    registry
        .op("SparseSoftmaxCrossEntropyWithLogits")
        .types("T", DType::FLOATS)
        .types("Tlabels", &[DType::Int32, DType::Int64])
        .kernel(|c: &Construction<'_>| c.dtype("T").map(SparseSoftmaxCrossEntropy));
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::bf16;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    fn run(op: &str, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let mut registry = Registry::new();
        register(&mut registry);
        let run = OpRun::new(op).attr_type("T", inputs[0].dtype());
        let sparse = op.starts_with("Sparse");
        let run = if sparse { run.attr_type("Tlabels", inputs[1].dtype()) } else { run };
        run.run(&registry, inputs)
    }

    fn matrix(rows: usize, values: &[f32]) -> Tensor {
        let columns = values.len().checked_div(rows).unwrap_or(3);
        Tensor::from_slice(Shape::from_dims(&[rows, columns]).unwrap(), values).unwrap()
    }

    fn assert_near(got: &Tensor, want: &[f32]) {
        let got = got.as_slice::<f32>().unwrap();
        assert_eq!(got.len(), want.len());
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() <= 2e-7 * w.abs().max(1.0) || g == w || g.is_nan() && w.is_nan(), "{got:?}");
        }
    }

    #[test]
    fn softmax_and_its_logarithm() {
        let rows = matrix(2, &[1.0, 2.0, 3.0, 1.0, -INF, 2.0]);
        let expected = [0.090_030_57, 0.244_728_48, 0.665_240_9, 0.268_941_43, 0.0, 0.731_058_54];
        assert_near(&run("Softmax", vec![rows.clone()]).unwrap()[0], &expected);
        let logs = [-2.407_606, -1.407_606, -0.407_605_9, -1.313_261_6, -INF, -0.313_261_66];
        assert_near(&run("LogSoftmax", vec![rows]).unwrap()[0], &logs);
        let hopeless = matrix(2, &[-INF, -INF, 1.0, NAN]);
        assert_near(&run("LogSoftmax", vec![hopeless]).unwrap()[0], &[NAN; 4]);
        assert!(run("Softmax", vec![Tensor::scalar(1f32).unwrap()]).is_err());
        assert_eq!(run("Softmax", vec![matrix(0, &[])]).unwrap()[0].num_elements(), 0);
    }

    #[test]
    fn long_rows_sum_to_one_in_every_type() {
        let values: Vec<f64> = (0..1003).map(|v| f64::from(v) / 100.0).collect();
        let wide = run("Softmax", vec![Tensor::vector(&values).unwrap()]).unwrap();
        assert!((wide[0].as_slice::<f64>().unwrap().iter().sum::<f64>() - 1.0).abs() < 1e-14);
        let narrow: Vec<bf16> = values.iter().map(|&v| bf16::from_f64(v)).collect();
        let narrow = run("Softmax", vec![Tensor::vector(&narrow).unwrap()]).unwrap();
        let sum: f32 = narrow[0].as_slice::<bf16>().unwrap().iter().map(|v| v.to_f32()).sum();
        assert!((sum - 1.0).abs() < 1e-2);
    }

    /// Values of TensorFlow 2.21.
    #[test]
    fn cross_entropy_broadcasts_both_inputs() {
        let op = "SoftmaxCrossEntropyWithLogits";
        let (logits, labels) = (matrix(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0]), matrix(2, &[0.0, 0.0, 1.0, 0.2, 0.3, 0.5]));
        let plain = run(op, vec![logits.clone(), labels.clone()]).unwrap();
        assert_near(&plain[0], &[0.407_605_95, 1.369_846_1]);
        let backprop = [0.090_030_57, 0.244_728_48, -0.334_759_06, -0.157_989_93, -0.185_804_81, 0.343_794_7];
        assert_near(&plain[1], &backprop);
        let one_label = run(op, vec![logits, matrix(1, &[0.0, 0.0, 1.0])]).unwrap();
        assert_near(&one_label[0], &[0.407_605_95, 0.169_846_04]);
        let one_row = run(op, vec![Tensor::vector(&[1f32, 2.0, 3.0]).unwrap(), labels]).unwrap();
        assert_near(&one_row[0], &[0.407_605_95, 1.107_605_9]);
        let columns = run(op, vec![matrix(2, &[1.0, 2.0]), matrix(1, &[0.0, 0.0, 1.0])]).unwrap();
        assert_near(&columns[0], &[1.098_612_3; 2]);
        let infinite = run(op, vec![matrix(1, &[1.0, -INF, 3.0]), matrix(1, &[0.0, 0.0, 1.0])]).unwrap();
        assert_near(&infinite[0], &[NAN]);
        let message = |a: Tensor, b: Tensor| run(op, vec![a, b]).unwrap_err().message().to_owned();
        let text = "logits and labels must be broadcastable: logits_size=[2,3] labels_size=[2,4]";
        assert_eq!(message(matrix(2, &[0.0; 6]), matrix(2, &[0.0; 8])), text);
        let vector = Tensor::vector(&[1f32]).unwrap();
        assert!(message(vector.clone(), vector).contains("broadcasted to be 2-dimensional"));
    }

    #[test]
    fn labels_pick_one_class_and_must_exist() {
        let op = "SparseSoftmaxCrossEntropyWithLogits";
        let logits = matrix(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0]);
        let outputs = run(op, vec![logits.clone(), Tensor::vector(&[0i64, 2]).unwrap()]).unwrap();
        assert_near(&outputs[0], &[2.407_606, 0.169_846_04]);
        let backprop = [-0.909_969_45, 0.244_728_48, 0.665_240_94, 0.042_010_07, 0.114_195_2, -0.156_205_3];
        assert_near(&outputs[1], &backprop);
        let far = run(op, vec![matrix(1, &[1.0, -INF, 3.0]), Tensor::vector(&[1i32]).unwrap()]).unwrap();
        assert_near(&far[0], &[INF]);
        assert_near(&far[1], &[0.119_202_92, -1.0, 0.880_797]);
        let message = |labels: &[i32]| {
            run(op, vec![logits.clone(), Tensor::vector(labels).unwrap()]).unwrap_err().message().to_owned()
        };
        let text = "which is outside the valid range of [0, 3).  Label values:";
        assert_eq!(message(&[0, 3]), format!("Received a label value of 3 {text} 0 3"));
        assert_eq!(message(&[-1, 3]), format!("Received a label value of -1 {text} -1 3"));
        assert!(message(&[0]).starts_with("logits and labels must have the same first dimension"));
    }
}
