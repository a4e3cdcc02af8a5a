//! The engine of elementwise ops: operands, broadcasting, reuse of an input's memory, splitting over threads.

use crate::isa::{Function2, Map1, Map2};
use graphmill_runtime::{Context, Kernel};
use graphmill_tensor::{Broadcast, Element, Result, SCALAR, Shape, Tensor, invalid_argument, unimplemented_op};

/// Elements that in-place loops and repeated operands are processed at a time: few enough to stay in the first-level cache.
const BLOCK: usize = 256;
/// Dimensions behind the merging of alike neighbours up to which TensorFlow's binary kernels broadcast.
const MAX_BROADCAST_RANK: usize = 5;

/// An op of one operand with a result of the same type; overwrites the operand where nobody else needs it.
pub(crate) struct Unary<T> {
    cost: f64,
    body: Map1<T, T>,
}

impl<T: Element> Unary<T> {
    /// `cost` is nanoseconds for an element, roughly.
    pub fn new(cost: f64, body: Map1<T, T>) -> Unary<T> {
        Unary { cost, body }
    }
}

impl<T: Element> Kernel for Unary<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        let (mut out, taken) = ctx.reuse_or_alloc(&[0], 0, &shape)?;
        let y = out.as_mut_slice::<T>()?;
        if taken.is_some() {
            ctx.parallel_chunks(y, 1, self.cost, |_, part| in_place(part, |x, y| (self.body)(x, y)));
        } else {
            let x = ctx.input(0)?.as_slice::<T>()?;
            ctx.parallel_chunks(y, 1, self.cost, |range, part| (self.body)(&x[range], part));
        }
        ctx.set_output(0, out)
    }
}

/// An op of one operand with a result of another type.
pub(crate) struct Convert<T, U> {
    cost: f64,
    body: Map1<T, U>,
}

impl<T: Element, U: Element> Convert<T, U> {
    /// `cost` is nanoseconds for an element, roughly.
    pub fn new(cost: f64, body: Map1<T, U>) -> Convert<T, U> {
        Convert { cost, body }
    }
}

impl<T: Element, U: Element> Kernel for Convert<T, U> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let x = input.as_slice::<T>()?;
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let y = out.as_mut_slice::<U>()?;
        ctx.parallel_chunks(y, 1, self.cost, |range, part| (self.body)(&x[range], part));
        ctx.set_output(0, out)
    }
}

/// A test of the second operand before any element is computed.
pub(crate) type Check<T> = fn(&[T]) -> Result<()>;

/// An op of two operands with a result of the same type; overwrites an operand where nobody else needs it.
pub(crate) struct Binary<T> {
    cost: f64,
    body: Map2<T, T>,
    check: Option<Check<T>>,
}

impl<T: Element> Binary<T> {
    /// `cost` is nanoseconds for an element, roughly.
    pub fn new(cost: f64, body: Map2<T, T>) -> Binary<T> {
        Binary { cost, body, check: None }
    }

    /// With a test of the second operand.
    pub fn checked(cost: f64, body: Map2<T, T>, check: Check<T>) -> Binary<T> {
        Binary { cost, body, check: Some(check) }
    }

    /// Two scalars, of which graphs have many, without a plan and without a loop.
    fn scalars(&self, ctx: &mut Context<'_>, a: T, b: T) -> Result<()> {
        if let Some(check) = self.check {
            check(&[b])?;
        }
        let value = self.body.one(a, b);
        ctx.overwrite(&[0, 1], 0, &SCALAR)?.as_mut_slice::<T>()?.fill(value);
        Ok(())
    }
}

impl<T: Element> Kernel for Binary<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        if a.shape().is_scalar() && b.shape().is_scalar() {
            let (a, b) = (a.scalar_value::<T>()?, b.scalar_value::<T>()?);
            return self.scalars(ctx, a, b);
        }
        let plan = Plan::new(a.shape(), b.shape())?;
        let shape = plan.shape(a.shape(), b.shape()).clone();
        if let Some(check) = self.check
            && shape.num_elements() > 0
        {
            check(b.as_slice::<T>()?)?;
        }
        let (mut out, taken) = ctx.reuse_or_alloc(&[0, 1], 0, &shape)?;
        let y = out.as_mut_slice::<T>()?;
        let other = |i: usize| ctx.input(i).and_then(Tensor::as_slice::<T>);
        let (a, b) = match taken {
            None => (Some(other(0)?), Some(other(1)?)),
            Some(0) => (None, Some(other(1)?)),
            Some(_) => (Some(other(0)?), None),
        };
        ctx.parallel_chunks(y, 1, self.cost, |range, part| {
            let base = range.start;
            plan.for_each_run(range, |run, at| {
                let part = &mut part[run.start - base..run.end - base];
                let operand = |values: &Option<&'_ [T]>, i: usize| match values {
                    None => Operand::Output,
                    Some(values) if plan.repeats(i) => Operand::One(values[at[i]]),
                    Some(_) => Operand::Each(at[i]),
                };
                run_binary(self.body.as_ref(), a, b, operand(&a, 0), operand(&b, 1), part);
            });
        });
        ctx.set_output(0, out)
    }
}

/// Where the elements of one run of an operand are.
enum Operand<T> {
    /// One element, repeated.
    One(T),
    /// Elements from this position on.
    Each(usize),
    /// In the output, about to be overwritten.
    Output,
}

fn run_binary<T: Element>(
    body: &dyn Function2<T, T>,
    a: Option<&[T]>,
    b: Option<&[T]>,
    run_a: Operand<T>,
    run_b: Operand<T>,
    y: &mut [T],
) {
    let n = y.len();
    let (a, b) = (a.unwrap_or(&[]), b.unwrap_or(&[]));
    match (run_a, run_b) {
        (Operand::Each(i), Operand::Each(j)) => body.each(&a[i..i + n], &b[j..j + n], y),
        (Operand::Each(i), Operand::One(v)) => {
            repeated(v, y, |at, v, y| body.each(&a[i + at..i + at + y.len()], v, y));
        }
        (Operand::One(v), Operand::Each(j)) => {
            repeated(v, y, |at, v, y| body.each(v, &b[j + at..j + at + y.len()], y));
        }
        (Operand::One(v), Operand::One(w)) => {
            if let Some((first, rest)) = y.split_first_mut() {
                body.each(&[v], &[w], std::slice::from_mut(first));
                rest.fill(*first);
            }
        }
        (Operand::Output, Operand::Each(j)) => {
            let mut at = j;
            in_place(y, |x, y| {
                body.each(x, &b[at..at + y.len()], y);
                at += y.len();
            });
        }
        (Operand::Each(i), Operand::Output) => {
            let mut at = i;
            in_place(y, |x, y| {
                body.each(&a[at..at + y.len()], x, y);
                at += y.len();
            });
        }
        (Operand::Output, Operand::One(v)) => {
            repeated(v, y, |_, v, y| in_place(y, |x, y| body.each(x, &v[..y.len()], y)))
        }
        (Operand::One(v), Operand::Output) => {
            repeated(v, y, |_, v, y| in_place(y, |x, y| body.each(&v[..y.len()], x, y)))
        }
        (Operand::Output, Operand::Output) => in_place(y, |x, y| body.each(x, x, y)),
    }
}

/// Runs a loop block by block with a copy of the output's former elements as its operand.
fn in_place<T: Element>(y: &mut [T], mut body: impl FnMut(&[T], &mut [T])) {
    if y.len() <= 16 {
        small_block::<T, 16>(y, &mut body);
    } else {
        for block in y.chunks_mut(BLOCK) {
            small_block::<T, BLOCK>(block, &mut body);
        }
    }
}

fn small_block<T: Element, const N: usize>(y: &mut [T], body: &mut impl FnMut(&[T], &mut [T])) {
    let mut copy = [T::default(); N];
    let copy = &mut copy[..y.len()];
    copy.copy_from_slice(y);
    body(copy, y);
}

/// Runs a loop block by block with as many copies of one element as its operand; the body also gets the block's position.
fn repeated<T: Element, U>(value: T, y: &mut [U], mut body: impl FnMut(usize, &[T], &mut [U])) {
    if let [one] = y {
        body(0, &[value], std::slice::from_mut(one));
    } else if y.len() <= 16 {
        body(0, &[value; 16][..y.len()], y);
    } else {
        let copies = [value; BLOCK];
        for (i, block) in y.chunks_mut(BLOCK).enumerate() {
            body(i * BLOCK, &copies[..block.len()], block);
        }
    }
}

/// An op of two operands with a result of another type.
pub(crate) struct Compare<T, U> {
    cost: f64,
    body: Map2<T, U>,
    on_mismatch: Option<U>,
}

impl<T: Element, U: Element> Compare<T, U> {
    /// `cost` is nanoseconds for an element, roughly. Operands that do not broadcast are an error, or yield the scalar
    /// `on_mismatch`.
    pub fn new(cost: f64, body: Map2<T, U>, on_mismatch: Option<U>) -> Compare<T, U> {
        Compare { cost, body, on_mismatch }
    }
}

impl<T: Element, U: Element> Kernel for Compare<T, U> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        if a.shape().is_scalar() && b.shape().is_scalar() {
            let value = self.body.one(a.scalar_value::<T>()?, b.scalar_value::<T>()?);
            return ctx.set_scalar(0, value);
        }
        let plan = match (Plan::new(a.shape(), b.shape()), self.on_mismatch) {
            (Err(error), Some(value)) if error.message().starts_with("Incompatible shapes") => {
                return ctx.set_scalar(0, value);
            }
            (plan, _) => plan?,
        };
        let mut out = ctx.alloc_output(0, plan.shape(a.shape(), b.shape()).clone())?;
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        ctx.parallel_chunks(out.as_mut_slice::<U>()?, 1, self.cost, |range, part| {
            let base = range.start;
            plan.for_each_run(range, |run, at| {
                let y = &mut part[run.start - base..run.end - base];
                let (i, j, n) = (at[0], at[1], y.len());
                match (plan.repeats(0), plan.repeats(1)) {
                    (false, false) => self.body.each(&a[i..i + n], &b[j..j + n], y),
                    (false, true) => {
                        repeated(b[j], y, |at, v, y| self.body.each(&a[i + at..i + at + y.len()], v, y));
                    }
                    (true, false) => {
                        repeated(a[i], y, |at, v, y| self.body.each(v, &b[j + at..j + at + y.len()], y));
                    }
                    (true, true) => repeated(a[i], y, |_, v, y| {
                        repeated(b[j], y, |at, w, y| self.body.each(&v[at..at + y.len()], w, y));
                    }),
                }
            });
        });
        ctx.set_output(0, out)
    }
}

/// How two operands meet. The plain cases cost nothing to plan.
// A plan lives on the stack of one call; a box would cost more than the room.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Plan {
    /// Element by element.
    Same,
    /// The first operand is a scalar.
    ScalarFirst,
    /// The second operand is a scalar.
    ScalarSecond,
    /// Anything else.
    General(Broadcast),
}

impl Plan {
    /// For operands of these shapes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if they do not broadcast, `UNIMPLEMENTED` for more dimensions than TensorFlow's kernels take.
    pub fn new(a: &Shape, b: &Shape) -> Result<Plan> {
        if a == b {
            Ok(Plan::Same)
        } else if a.is_scalar() {
            Ok(Plan::ScalarFirst)
        } else if b.is_scalar() {
            Ok(Plan::ScalarSecond)
        } else {
            let plan = Broadcast::new(a, b)?;
            if plan.merged_rank() > MAX_BROADCAST_RANK && plan.shape().num_elements() > 0 {
                return Err(unimplemented_op!("Broadcast between {a} and {b} is not supported yet."));
            }
            Ok(Plan::General(plan))
        }
    }

    /// The shape of the output.
    pub fn shape<'a>(&'a self, a: &'a Shape, b: &'a Shape) -> &'a Shape {
        match self {
            Plan::Same | Plan::ScalarSecond => a,
            Plan::ScalarFirst => b,
            Plan::General(plan) => plan.shape(),
        }
    }

    /// Whether operand `i` repeats one element within a run.
    pub fn repeats(&self, i: usize) -> bool {
        match self {
            Plan::Same => false,
            Plan::ScalarFirst => i == 0,
            Plan::ScalarSecond => i == 1,
            Plan::General(plan) => plan.run_stride(i) == 0,
        }
    }

    /// As [`Broadcast::for_each_run`].
    pub fn for_each_run(&self, range: std::ops::Range<usize>, mut visit: impl FnMut(std::ops::Range<usize>, &[usize])) {
        let start = range.start;
        match self {
            _ if range.is_empty() => (),
            Plan::Same => visit(range, &[start, start]),
            Plan::ScalarFirst => visit(range, &[0, start]),
            Plan::ScalarSecond => visit(range, &[start, 0]),
            Plan::General(plan) => plan.for_each_run(range, visit),
        }
    }
}

/// An op of two operands with the same number of elements, as gradients of elementwise ops have them.
pub(crate) struct Paired<T> {
    cost: f64,
    body: Map2<T, T>,
}

impl<T: Element> Paired<T> {
    /// `cost` is nanoseconds for an element, roughly.
    pub fn new(cost: f64, body: Map2<T, T>) -> Paired<T> {
        Paired { cost, body }
    }
}

impl<T: Element> Kernel for Paired<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        if a.num_elements() != b.num_elements() {
            return Err(invalid_argument!(
                "The two arguments to a cwise op must have same number of elements, got {} and {}",
                a.num_elements(),
                b.num_elements()
            ));
        }
        let shape = a.shape().clone();
        let (mut out, taken) = ctx.reuse_or_alloc(&[0, 1], 0, &shape)?;
        let y = out.as_mut_slice::<T>()?;
        let other = |i: usize| ctx.input(i).and_then(Tensor::as_slice::<T>);
        match taken {
            None => {
                let (a, b) = (other(0)?, other(1)?);
                ctx.parallel_chunks(y, 1, self.cost, |range, part| self.body.each(&a[range.clone()], &b[range], part));
            }
            Some(0) => {
                let b = other(1)?;
                ctx.parallel_chunks(y, 1, self.cost, |range, part| {
                    run_binary(self.body.as_ref(), None, Some(b), Operand::Output, Operand::Each(range.start), part);
                });
            }
            Some(_) => {
                let a = other(0)?;
                ctx.parallel_chunks(y, 1, self.cost, |range, part| {
                    run_binary(self.body.as_ref(), Some(a), None, Operand::Each(range.start), Operand::Output, part);
                });
            }
        }
        ctx.set_output(0, out)
    }
}
