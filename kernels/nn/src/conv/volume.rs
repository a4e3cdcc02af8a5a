//! Convolution in three dimensions and its gradients, as matrix products over patches.

use super::attrs::sizes_shape;
use super::product::{Scalar, View};
use crate::convert::{narrowed, try_parallel_chunks, try_parallel_for, widened};
use crate::volume::{VolumeAttrs, channels_last, channels_second, shape, sizes};
use crate::window::{Axis, DataFormat};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::ops::Range;
use std::sync::Mutex;

/// Elements of a block of patches at most, unless one position has more.
const BLOCK: usize = 64 << 10;
/// Nanoseconds for a multiplication and an addition, roughly.
const COST: f64 = 0.02;
/// Into how many parts the volumes are dealt for a filter gradient, so that the sum has one order.
const PARTS: usize = 8;

/// The sizes of one convolution.
struct Volume {
    batch: usize,
    axes: [Axis; 3],
    in_depth: usize,
    /// Input channels that each output channel sees.
    patch_depth: usize,
    out_depth: usize,
}

impl Volume {
    fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.window).product()
    }

    fn patch(&self) -> usize {
        self.taps() * self.patch_depth
    }

    fn input(&self) -> usize {
        self.axes.iter().map(|a| a.input).product::<usize>() * self.in_depth
    }

    /// Output positions of one volume.
    fn positions(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    fn groups(&self) -> usize {
        self.in_depth.checked_div(self.patch_depth).unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.batch * self.positions() * self.out_depth == 0 || self.input() * self.patch() == 0
    }

    fn block(&self) -> usize {
        (BLOCK / self.patch().max(1)).clamp(1, self.positions().max(1))
    }

    /// Calls `visit` for each position of `range` and each tap, with the channels under it: the tap's elements among the patches,
    /// and where its first channel lies in the volume, if it does.
    fn for_each_tap(&self, range: Range<usize>, group: usize, mut visit: impl FnMut(Range<usize>, Option<usize>)) {
        let [planes, rows, cols] = &self.axes;
        let mut to = 0;
        for position in range {
            let (z, y, x) =
                (position / (rows.output * cols.output), position / cols.output % rows.output, position % cols.output);
            for i in 0..planes.window {
                let plane = planes.source(z, i);
                for j in 0..rows.window {
                    let row = rows.source(y, j);
                    for k in 0..cols.window {
                        let from = match (plane, row, cols.source(x, k)) {
                            (Some(z), Some(y), Some(x)) => {
                                let at = (z * rows.input + y) * cols.input + x;
                                Some(at * self.in_depth + group * self.patch_depth)
                            }
                            _ => None,
                        };
                        visit(to..to + self.patch_depth, from);
                        to += self.patch_depth;
                    }
                }
            }
        }
    }

    fn gather<T: Scalar>(&self, volume: &[T], group: usize, range: Range<usize>, patches: &mut [T]) {
        self.for_each_tap(range, group, |to, from| match from {
            Some(from) => patches[to].copy_from_slice(&volume[from..from + self.patch_depth]),
            None => patches[to].fill(T::default()),
        });
    }

    fn scatter<T: Scalar>(&self, patches: &[T], group: usize, range: Range<usize>, volume: &mut [T]) {
        self.for_each_tap(range, group, |of, to| {
            if let Some(to) = to {
                let target = &mut volume[to..to + self.patch_depth];
                target.iter_mut().zip(&patches[of]).for_each(|(t, &p)| *t = t.plus(p));
            }
        });
    }
}

fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size.max(1)).map(move |start| start..(start + size).min(end))
}

fn forward<T: Scalar>(ctx: &Context<'_>, v: &Volume, input: &[T], filter: &[T], output: &mut [T]) -> Result<()> {
    let (patch, groups, block, positions) = (v.patch(), v.groups(), v.block(), v.positions());
    let per_group = v.out_depth / groups;
    let cost = v.out_depth as f64 * patch as f64 * COST;
    try_parallel_chunks(ctx, output, v.out_depth, cost, |range, part| {
        let mut patches = vec![T::default(); block * patch];
        let first = range.start;
        // Blocks end where a volume does.
        let volumes = range.start / positions..range.end.div_ceil(positions);
        for volume in volumes {
            let source = &input[volume * v.input()..(volume + 1) * v.input()];
            let within = range.start.max(volume * positions)..range.end.min((volume + 1) * positions);
            for block in blocks(within, block) {
                let start = (block.start - first) * v.out_depth;
                let local = block.start - volume * positions..block.end - volume * positions;
                for group in 0..groups {
                    v.gather(source, group, local.clone(), &mut patches);
                    T::product(
                        (block.len(), per_group, patch),
                        (part, View::rows(start + group * per_group, v.out_depth)),
                        (&patches, View::rows(0, patch)),
                        (filter, View::rows(group * per_group, v.out_depth)),
                        false,
                    );
                }
            }
        }
        Ok(())
    })
}

fn input_gradient<T: Scalar>(ctx: &Context<'_>, v: &Volume, filter: &[T], out: &[T], to: &mut [T]) -> Result<()> {
    let (patch, groups, block, positions) = (v.patch(), v.groups(), v.block(), v.positions());
    let per_group = v.out_depth / groups;
    let cost = positions as f64 * v.out_depth as f64 * patch as f64 * COST;
    try_parallel_chunks(ctx, to, v.input(), cost, |volumes, part| {
        let mut patches = vec![T::default(); block * patch];
        for (volume, target) in volumes.zip(part.chunks_exact_mut(v.input())) {
            target.fill(T::default());
            for block in blocks(0..positions, block) {
                let start = (volume * positions + block.start) * v.out_depth;
                for group in 0..groups {
                    T::product(
                        (block.len(), patch, per_group),
                        (&mut patches, View::rows(0, patch)),
                        (out, View::rows(start + group * per_group, v.out_depth)),
                        (filter, View::rows(group * per_group, v.out_depth).transposed()),
                        false,
                    );
                    v.scatter(&patches, group, block.clone(), target);
                }
            }
        }
        Ok(())
    })
}

fn filter_gradient<T: Scalar>(ctx: &Context<'_>, v: &Volume, input: &[T], out: &[T], to: &mut [T]) -> Result<()> {
    let (patch, groups, block, positions) = (v.patch(), v.groups(), v.block(), v.positions());
    let per_group = v.out_depth / groups;
    let all = v.batch * positions;
    let parts = PARTS.min(all);
    let mut sums = Tensor::zeros(T::DTYPE, Shape::from_dims(&[parts, to.len()])?)?;
    let slots: Vec<Mutex<&mut [T]>> = sums.as_mut_slice::<T>()?.chunks_exact_mut(to.len()).map(Mutex::new).collect();
    let cost = all.div_ceil(parts) as f64 * to.len() as f64 * COST;
    try_parallel_for(ctx, parts, cost, |range| {
        let mut patches = vec![T::default(); block * patch];
        for part in range {
            // Each part is one thread's, so that the lock is free; a panic elsewhere does not make the numbers wrong.
            let mut sum = slots[part].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mine = all * part / parts..all * (part + 1) / parts;
            for volume in mine.start / positions..mine.end.div_ceil(positions) {
                let source = &input[volume * v.input()..(volume + 1) * v.input()];
                let within = mine.start.max(volume * positions)..mine.end.min((volume + 1) * positions);
                for block in blocks(within, block) {
                    let local = block.start - volume * positions..block.end - volume * positions;
                    for group in 0..groups {
                        v.gather(source, group, local.clone(), &mut patches);
                        T::product(
                            (patch, per_group, block.len()),
                            (&mut sum, View::rows(group * per_group, v.out_depth)),
                            (&patches, View::rows(0, patch).transposed()),
                            (out, View::rows(block.start * v.out_depth + group * per_group, v.out_depth)),
                            true,
                        );
                    }
                }
            }
        }
        Ok(())
    })?;
    drop(slots);
    to.fill(T::default());
    for part in sums.as_slice::<T>()?.chunks_exact(to.len()) {
        to.iter_mut().zip(part).for_each(|(t, &s)| *t = t.plus(s));
    }
    Ok(())
}

/// Which computation.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Forward,
    InputGradient,
    FilterGradient,
}

fn run<T: Scalar>(ctx: &Context<'_>, step: Step, v: &Volume, a: &Tensor, b: &Tensor, to: Shape) -> Result<Tensor> {
    if v.is_empty() {
        return Tensor::zeros(T::DTYPE, to);
    }
    let mut result = Tensor::alloc(T::DTYPE, to)?;
    let (a, b, target) = (a.as_slice::<T>()?, b.as_slice::<T>()?, result.as_mut_slice::<T>()?);
    match step {
        Step::Forward => forward(ctx, v, a, b, target)?,
        Step::InputGradient => input_gradient(ctx, v, a, b, target)?,
        Step::FilterGradient => filter_gradient(ctx, v, a, b, target)?,
    }
    Ok(result)
}

/// `Conv3D(input, filter)`, `Conv3DBackpropInputV2(input_sizes, filter, out_backprop)`,
/// `Conv3DBackpropFilterV2(input, filter_sizes, out_backprop)`; the older forms of the gradients have a tensor where the newer
/// ones have its sizes.
struct Conv3D {
    step: Step,
    attrs: VolumeAttrs,
    dtype: DType,
}

impl Conv3D {
    fn new(c: &Construction<'_>, step: Step) -> Result<Conv3D> {
        let (attrs, dtype) = (VolumeAttrs::convolution(c)?, c.dtype("T")?);
        // TensorFlow computes these two types by oneDNN, which takes more shapes.
        let general = matches!(dtype, DType::Float | DType::BFloat16) && c.attrs().has("data_format");
        if step != Step::Forward && !general {
            if attrs.format != DataFormat::Nhwc {
                let name = if step == Step::InputGradient { "Input" } else { "Filter" };
                return Err(invalid_argument!("Conv3DBackprop{name}OpV2 only supports NDHWC on the CPU."));
            }
            if attrs.dilations != [1; 3] {
                return Err(invalid_argument!(
                    "Current CPU implementation does not yet support dilation rates larger than 1."
                ));
            }
        }
        Ok(Conv3D { step, attrs, dtype })
    }

    fn volume(&self, input: &Shape, filter: &Shape) -> Result<Volume> {
        let Some((batch, inner, in_depth)) = sizes(self.attrs.format, input) else {
            return Err(invalid_argument!("input must be 5-dimensional"));
        };
        let &[planes, rows, cols, patch_depth, out_depth] = filter.dims() else {
            return Err(invalid_argument!("filter must be 5-dimensional"));
        };
        if patch_depth == 0 {
            return Err(invalid_argument!("filter_depth must be non-zero"));
        }
        if in_depth % patch_depth != 0 {
            return Err(invalid_argument!(
                "Input depth must be evenly divisible by filter depth: {in_depth} vs {patch_depth}"
            ));
        }
        if filter.num_elements() == 0 {
            return Err(invalid_argument!("filter must not have zero elements (i.e. all dimensions must be non-zero)"));
        }
        let groups = in_depth / patch_depth;
        if groups > 0 && out_depth % groups != 0 {
            return Err(invalid_argument!(
                "output depth must be evenly divisible by number of groups: {out_depth} vs {groups}"
            ));
        }
        let axes = self.attrs.axes(inner, [planes, rows, cols])?;
        Ok(Volume { batch, axes, in_depth, patch_depth, out_depth })
    }

    /// Checks the gradient against the sizes that the convolution has.
    fn check_gradient(&self, input: &Shape, filter: &Shape, out: &Shape) -> Result<()> {
        let label = if self.step == Step::InputGradient { "Conv3DBackpropInputOp" } else { "Conv3DBackpropFilterOp" };
        for (shape, name) in [(input, "input"), (filter, "filter_sizes"), (out, "out_backprop")] {
            if shape.rank() != 5 {
                return Err(invalid_argument!("{name} tensor must have 5 dimensions"));
            }
        }
        let (Some((batch, _, in_depth)), Some((out_batch, _, out_depth))) =
            (sizes(self.attrs.format, input), sizes(self.attrs.format, out))
        else {
            return Err(internal!("a shape of five dimensions has no sizes"));
        };
        if in_depth != filter.dim(3) {
            return Err(invalid_argument!(
                "input and filter_sizes must have the same number of channels. Got {in_depth} for input and {} for \
                 filter_sizes",
                filter.dim(3)
            ));
        }
        if out_depth != filter.dim(4) {
            return Err(invalid_argument!(
                "out_backprop and filter_sizes must have the same number of channels. Got {out_depth} for out_backprop \
                 and {} for filter_sizes",
                filter.dim(4)
            ));
        }
        if batch != out_batch {
            return Err(invalid_argument!(
                "{label}: input and out_backprop must have the same batch size. Input batch: {batch}, outbackprop \
                 batch: {out_batch}, batch_dim: 0"
            ));
        }
        Ok(())
    }

    fn check_output(&self, volume: &Volume, out: &Shape) -> Result<()> {
        let label = if self.step == Step::InputGradient { "Conv3DBackpropInputOp" } else { "Conv3DBackpropFilterOp" };
        let Some((_, inner, _)) = sizes(self.attrs.format, out) else {
            return Err(internal!("a shape of five dimensions has no sizes"));
        };
        for (i, (axis, &actual)) in volume.axes.iter().zip(&inner).enumerate() {
            if axis.output != actual {
                return Err(invalid_argument!(
                    "{label}: Size of out_backprop doesn't match computed: actual = {actual}, computed = {} \
                     spatial_dim: {i} input: {} filter: {} output: {actual} stride: {} dilation: {}",
                    axis.output,
                    axis.input,
                    axis.window,
                    axis.stride,
                    axis.dilation
                ));
            }
        }
        Ok(())
    }
}

/// The shape that an input is, or that its elements are.
fn shape_of(ctx: &Context<'_>, i: usize, by_sizes: bool, name: &str) -> Result<Shape> {
    if by_sizes { sizes_shape(name, ctx.input(i)?) } else { Ok(ctx.input(i)?.shape().clone()) }
}

impl Kernel for Conv3D {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let by_sizes = ctx.node().op.ends_with("V2");
        let (input, filter) = match self.step {
            Step::Forward => (ctx.input(0)?.shape().clone(), ctx.input(1)?.shape().clone()),
            Step::InputGradient => (shape_of(ctx, 0, by_sizes, "input_sizes")?, ctx.input(1)?.shape().clone()),
            Step::FilterGradient => (ctx.input(0)?.shape().clone(), shape_of(ctx, 1, by_sizes, "filter_sizes")?),
        };
        if self.step != Step::Forward {
            self.check_gradient(&input, &filter, ctx.input(2)?.shape())?;
        }
        let volume = self.volume(&input, &filter)?;
        if self.step != Step::Forward {
            self.check_output(&volume, ctx.input(2)?.shape())?;
        }
        let inner = volume.axes.map(|a| a.output);
        let to = match self.step {
            Step::Forward => shape(DataFormat::Nhwc, volume.batch, inner, volume.out_depth)?,
            Step::InputGradient => {
                shape(DataFormat::Nhwc, volume.batch, volume.axes.map(|a| a.input), volume.in_depth)?
            }
            Step::FilterGradient => filter,
        };
        // The two operands, and whether they are volumes whose channels may come second.
        let (operands, volumes) = match self.step {
            Step::Forward => ([0, 1], [true, false]),
            Step::InputGradient => ([1, 2], [false, true]),
            Step::FilterGradient => ([0, 2], [true, true]),
        };
        let second = self.attrs.format != DataFormat::Nhwc;
        let half = matches!(self.dtype, DType::Half | DType::BFloat16);
        let prepare = |i: usize| -> Result<Tensor> {
            let mut tensor = ctx.input(operands[i])?.clone();
            if half {
                tensor = widened(ctx, &tensor)?;
            }
            if second && volumes[i] {
                tensor = dispatch!(tensor.dtype(), T in [f32, f64] => channels_last::<T>(ctx, &tensor))
                    .ok_or_else(|| internal!("no convolution of {}", self.dtype))??;
            }
            Ok(tensor)
        };
        let (a, b) = (prepare(0)?, prepare(1)?);
        let result = if half {
            run::<f32>(ctx, self.step, &volume, &a, &b, to)?
        } else {
            dispatch!(self.dtype, T in [f32, f64] => run::<T>(ctx, self.step, &volume, &a, &b, to))
                .ok_or_else(|| internal!("no convolution of {}", self.dtype))??
        };
        let result = if second && self.step != Step::FilterGradient {
            dispatch!(result.dtype(), T in [f32, f64] => channels_second::<T>(ctx, &result))
                .ok_or_else(|| internal!("no convolution of {}", self.dtype))??
        } else {
            result
        };
        ctx.set_output(0, if half { narrowed(ctx, &result, self.dtype)? } else { result })
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("Conv3D").types("T", DType::FLOATS).kernel(|c| Conv3D::new(c, Step::Forward));
    let older = [DType::Double, DType::Float, DType::Half];
    for (op, types, step) in [
        ("Conv3DBackpropInput", &older[..], Step::InputGradient),
        ("Conv3DBackpropInputV2", DType::FLOATS, Step::InputGradient),
        ("Conv3DBackpropFilter", &older[..], Step::FilterGradient),
        ("Conv3DBackpropFilterV2", DType::FLOATS, Step::FilterGradient),
    ] {
        registry.op(op).types("T", types).kernel(move |c| Conv3D::new(c, step));
    }
}
