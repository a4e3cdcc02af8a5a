//! `Select`, `SelectV2` and `ClipByValue`.

use crate::isa::{Vectorised, vectorised};
use crate::number::Ordered;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{
    Broadcast, Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal,
    invalid_argument, unimplemented_op,
};

/// Nanoseconds for an element.
const COST: f64 = 0.4;
/// Dimensions behind the merging of alike neighbours up to which TensorFlow's kernel broadcasts.
const MAX_BROADCAST_RANK: usize = 8;

/// `Select`: the condition is a scalar, a vector that chooses rows, or of the shape of both others.
struct Select;

impl Kernel for Select {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (cond, then, other) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let same = |a: &Tensor, b: &Tensor| a.shape() == b.shape();
        if cond.shape().is_scalar() {
            if !same(then, other) {
                return Err(different_size(then, other));
            }
            let chosen = if cond.scalar_value::<bool>()? { 1 } else { 2 };
            let chosen = ctx.take_input(chosen)?;
            return ctx.set_output(0, chosen);
        }
        if cond.shape().is_vector() && !(same(cond, then) && same(then, other)) {
            return select_rows(ctx);
        }
        for (i, shape) in [(1, then.shape()), (2, other.shape())] {
            if cond.shape() != shape {
                return Err(invalid_argument!(
                    "Inputs to operation {} of type Select must have the same size and shape.  Input 0: {} != input {i}: {shape}",
                    ctx.node().name,
                    cond.shape()
                ));
            }
        }
        let shape = cond.shape().clone();
        let plan = Broadcast::of(&[&shape, &shape, &shape])?;
        select(ctx, &plan)
    }
}

fn different_size(then: &Tensor, other: &Tensor) -> graphmill_tensor::Status {
    invalid_argument!(
        "'then' and 'else' must have the same size.  but received: {} vs. {}",
        then.shape(),
        other.shape()
    )
}

fn select_rows(ctx: &mut Context<'_>) -> Result<()> {
    let (cond, then, other) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    if then.shape().is_scalar() {
        return Err(invalid_argument!("'then' must be at least a vector, but saw shape: {}", then.shape()));
    }
    if then.shape().dim(0) != cond.num_elements() {
        return Err(invalid_argument!(
            "Number of batches of 'then' must match size of 'cond', but saw: {} vs. {}",
            then.shape().dim(0),
            cond.num_elements()
        ));
    }
    if then.shape() != other.shape() {
        return Err(different_size(then, other));
    }
    let row = then.shape().stride(0);
    let mut out = ctx.alloc_output(0, then.shape().clone())?;
    for (i, &first) in cond.as_slice::<bool>()?.iter().enumerate() {
        out.copy_elements(i * row, if first { then } else { other }, i * row..(i + 1) * row)?;
    }
    ctx.set_output(0, out)
}

/// `SelectV2`: all three operands broadcast.
struct SelectV2;

impl Kernel for SelectV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (cond, then, other) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if cond.shape().is_scalar() && then.shape() == other.shape() {
            let chosen = if cond.scalar_value::<bool>()? { 1 } else { 2 };
            let chosen = ctx.take_input(chosen)?;
            return ctx.set_output(0, chosen);
        }
        let plan = Broadcast::of(&[cond.shape(), then.shape(), other.shape()]).map_err(|error| {
            if error.message().starts_with("Incompatible") {
                invalid_argument!(
                    "condition {}, then {}, and else {} must be broadcastable",
                    cond.shape(),
                    then.shape(),
                    other.shape()
                )
            } else {
                error
            }
        })?;
        if plan.merged_rank() > MAX_BROADCAST_RANK && plan.shape().num_elements() > 0 {
            return Err(unimplemented_op!(
                "Broadcast between {} and {} is not supported yet.",
                cond.shape(),
                then.shape()
            ));
        }
        select(ctx, &plan)
    }
}

fn select(ctx: &mut Context<'_>, plan: &Broadcast) -> Result<()> {
    let (cond, then, other) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let mut out = ctx.alloc_output(0, plan.shape().clone())?;
    if !out.dtype().is_fixed_size() {
        let cond = cond.as_slice::<bool>()?;
        let mut outcome = Ok(());
        plan.for_each_run(0..out.num_elements(), |run, at| {
            for (k, position) in run.enumerate() {
                let (from, i) = if cond[at[0] + k * plan.run_stride(0)] { (then, 1) } else { (other, 2) };
                let from_at = at[i] + k * plan.run_stride(i);
                if let Err(error) = out.copy_elements(position, from, from_at..from_at + 1) {
                    outcome = Err(error);
                }
            }
        });
        outcome?;
        return ctx.set_output(0, out);
    }
    let done = dispatch!(out.dtype(), T in numbers_and_bool => {
        let (cond, then, other) = (cond.as_slice::<bool>()?, then.as_slice::<T>()?, other.as_slice::<T>()?);
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, COST, |range, part| {
            let base = range.start;
            plan.for_each_run(range, |run, at| {
                vectorised(Choose {
                    cond: &cond[at[0]..],
                    then: &then[at[1]..],
                    other: &other[at[2]..],
                    steps: [plan.run_stride(0), plan.run_stride(1), plan.run_stride(2)],
                    y: &mut part[run.start - base..run.end - base],
                });
            });
        });
    });
    done.ok_or_else(|| internal!("Select has no kernel for {}", out.dtype()))?;
    ctx.set_output(0, out)
}

struct Choose<'a, T> {
    cond: &'a [bool],
    then: &'a [T],
    other: &'a [T],
    steps: [usize; 3],
    y: &'a mut [T],
}

impl<T: Element> Vectorised for Choose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let n = self.y.len();
        match self.steps {
            [1, 1, 1] => {
                let operands = self.cond[..n].iter().zip(&self.then[..n]).zip(&self.other[..n]);
                for (y, ((&cond, &then), &other)) in self.y.iter_mut().zip(operands) {
                    *y = if cond { then } else { other };
                }
            }
            [0, t, o] => {
                let (from, step) = if self.cond[0] { (self.then, t) } else { (self.other, o) };
                if step == 1 {
                    self.y.copy_from_slice(&from[..n]);
                } else {
                    self.y.fill(from[0]);
                }
            }
            [c, t, o] => {
                for (k, y) in self.y.iter_mut().enumerate() {
                    *y = if self.cond[k * c] { self.then[k * t] } else { self.other[k * o] };
                }
            }
        }
    }
}

/// How `ClipByValue` orders elements: complex numbers by their parts, each on its own.
trait Clip: Element {
    fn clip(self, low: Self, high: Self) -> Self;
}

macro_rules! clip {
    ($($t:ty),*) => {$(
        impl Clip for $t {
            /// The lower bound wins over the upper one; NaN in a bound clips nothing.
            #[inline(always)]
            fn clip(self, low: $t, high: $t) -> $t {
                let below = if self.above(high) { high } else { self };
                if low.above(below) { low } else { below }
            }
        }
    )*};
}

clip!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16);

macro_rules! clip_complex {
    ($($t:ty),*) => {$(
        impl Clip for $t {
            #[inline(always)]
            fn clip(self, low: $t, high: $t) -> $t {
                <$t>::new(self.re.clip(low.re, high.re), self.im.clip(low.im, high.im))
            }
        }
    )*};
}

clip_complex!(Complex32, Complex64);

/// `ClipByValue`: each bound is a scalar or of the operand's shape.
struct ClipByValue;

impl Kernel for ClipByValue {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (x, low, high) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let fits = |bound: &Shape| bound == x.shape() || bound.is_scalar();
        if !fits(low.shape()) || !fits(high.shape()) {
            return Err(invalid_argument!(
                "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. \
                 input shape: {}clip_value_min shape: {}clip_value_max shape: {}",
                x.shape(),
                low.shape(),
                high.shape()
            ));
        }
        let shape = x.shape().clone();
        let (out, _) = ctx.reuse_or_alloc(&[0], 0, &shape)?;
        let out = dispatch!(out.dtype(), T in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, Complex32, Complex64
        ] => clip::<T>(ctx, out)?);
        ctx.set_output(0, out.ok_or_else(|| internal!("ClipByValue has no kernel for this type"))?)
    }
}

fn clip<T: Clip>(ctx: &Context<'_>, mut out: Tensor) -> Result<Tensor> {
    if ctx.has_input(0) {
        out.copy_elements(0, ctx.input(0)?, 0..out.num_elements())?;
    }
    let (low, high) = (ctx.input(1)?, ctx.input(2)?);
    let step = |bound: &Tensor| usize::from(!bound.shape().is_scalar());
    let steps = [step(low), step(high)];
    let (low, high) = (low.as_slice::<T>()?, high.as_slice::<T>()?);
    ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, COST, |range, y| {
        let bound = |values: &'_ [T], step: usize| range.start * step..if step == 0 { values.len() } else { range.end };
        let (low, high) = (&low[bound(low, steps[0])], &high[bound(high, steps[1])]);
        vectorised(ClipLoop { low, high, steps, y });
    });
    Ok(out)
}

struct ClipLoop<'a, T> {
    low: &'a [T],
    high: &'a [T],
    steps: [usize; 2],
    y: &'a mut [T],
}

impl<T: Clip> Vectorised for ClipLoop<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        match (self.low, self.high) {
            (&[low], &[high]) if self.steps == [0, 0] => {
                for y in self.y {
                    *y = y.clip(low, high);
                }
            }
            (low, high) => {
                for (k, y) in self.y.iter_mut().enumerate() {
                    *y = y.clip(low[k * self.steps[0]], high[k * self.steps[1]]);
                }
            }
        }
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Select").types("T", DType::COMMON).kernel(|_| Ok(Select));
    r.op("SelectV2").types("T", DType::COMMON).kernel(|_| Ok(SelectV2));
    for dtype in [
        DType::BFloat16,
        DType::Complex128,
        DType::Complex64,
        DType::Double,
        DType::Float,
        DType::Half,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::Int8,
        DType::UInt16,
        DType::UInt8,
    ] {
        r.op("ClipByValue").types("T", &[dtype]).kernel(|_| Ok(ClipByValue));
    }
}
