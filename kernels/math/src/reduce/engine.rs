//! Folding elements along a [`Plan`].
//!
//! Work is cut into blocks that depend on the shapes alone, and partial results are merged in a fixed order, so that the result
//! does not depend on the number of threads. Blocks also keep rounding errors small: no partial result takes in more than
//! [`BLOCK`] elements one after the other.

use super::plan::{Plan, combinations, position};
use crate::isa::{Vectorised, vectorised};
use graphmill_runtime::Context;
use graphmill_tensor::{Element, Result, Tensor};
use std::ops::Range;

/// Elements of a contiguous run that are folded before partial results are merged.
const BLOCK: usize = 4096;
/// Partial results kept side by side, so that folding a run vectorises.
const LANES: usize = 32;
/// Rows that are folded into a row of partial results.
const ROWS: usize = 128;
/// Columns that are folded together.
const STRIP: usize = 1024;
/// Nanoseconds for an element.
const COST: f64 = 0.15;

/// What a reduction does with elements.
pub(crate) trait Reducer<T>: Send + Sync + 'static {
    /// A partial result.
    type Partial: Copy + Send + Sync;
    /// The partial result of no elements.
    const EMPTY: Self::Partial;
    /// Takes in an element.
    fn feed(partial: Self::Partial, x: T) -> Self::Partial;
    /// Joins partial results.
    fn merge(a: Self::Partial, b: Self::Partial) -> Self::Partial;
    /// The result for `count` elements.
    fn finish(partial: Self::Partial, count: usize) -> T;
}

/// Folds the elements of `input` into a tensor of the plan's shape.
pub(crate) fn reduce<T: Element, R: Reducer<T>>(ctx: &Context<'_>, plan: &Plan, input: &Tensor) -> Result<Tensor> {
    let x = input.as_slice::<T>()?;
    let mut out = Tensor::alloc(T::DTYPE, plan.shape.clone())?;
    let y = out.as_mut_slice::<T>()?;
    let count = plan.count();
    if x.is_empty() || y.is_empty() {
        y.fill(R::finish(R::EMPTY, count));
        return Ok(out);
    }
    match plan.reduced.last() {
        Some(last) if last.stride == 1 => along_runs::<T, R>(ctx, plan, x, y),
        _ => across_rows::<T, R>(ctx, plan, x, y),
    }
    Ok(out)
}

/// The innermost dimension is reduced: each element of the output folds contiguous runs.
fn along_runs<T: Element, R: Reducer<T>>(ctx: &Context<'_>, plan: &Plan, x: &[T], y: &mut [T]) {
    let Some((run, outer)) = plan.reduced.split_last() else { return };
    let count = plan.count();
    let runs = combinations(outer);
    if y.len() * runs < 64 && run.size > 4 * BLOCK {
        let mut partials = vec![R::EMPTY; run.size.div_ceil(BLOCK)];
        for (i, y) in y.iter_mut().enumerate() {
            let base = position(&plan.kept, i);
            let mut total = R::EMPTY;
            for j in 0..runs {
                let start = base + position(outer, j);
                let xs = &x[start..start + run.size];
                ctx.parallel_chunks(&mut partials, 1, COST * BLOCK as f64, |range, part| {
                    for (block, partial) in range.zip(part) {
                        let end = xs.len().min((block + 1) * BLOCK);
                        *partial = vectorised(FoldRun::<T, R>::new(&xs[block * BLOCK..end]));
                    }
                });
                total = R::merge(total, pairwise::<T, R>(&partials));
            }
            *y = R::finish(total, count);
        }
        return;
    }
    ctx.parallel_chunks(y, 1, COST * count as f64 + 2.0, |range, part| {
        for (i, y) in range.zip(part) {
            let base = position(&plan.kept, i);
            let mut total = R::EMPTY;
            for j in 0..runs {
                let start = base + position(outer, j);
                total = R::merge(total, fold_run::<T, R>(&x[start..start + run.size]));
            }
            *y = R::finish(total, count);
        }
    });
}

fn pairwise<T, R: Reducer<T>>(partials: &[R::Partial]) -> R::Partial {
    match partials {
        [] => R::EMPTY,
        [one] => *one,
        _ => {
            let (left, right) = partials.split_at(partials.len() / 2);
            R::merge(pairwise::<T, R>(left), pairwise::<T, R>(right))
        }
    }
}

fn fold_run<T: Element, R: Reducer<T>>(xs: &[T]) -> R::Partial {
    if xs.len() < LANES {
        return xs.iter().fold(R::EMPTY, |partial, &x| R::feed(partial, x));
    }
    if xs.len() <= BLOCK {
        return vectorised(FoldRun::<T, R>::new(xs));
    }
    let blocks = xs.len().div_ceil(BLOCK);
    let (left, right) = xs.split_at(blocks / 2 * BLOCK);
    R::merge(fold_run::<T, R>(left), fold_run::<T, R>(right))
}

struct FoldRun<'a, T, R> {
    xs: &'a [T],
    reducer: std::marker::PhantomData<R>,
}

impl<'a, T, R> FoldRun<'a, T, R> {
    fn new(xs: &'a [T]) -> Self {
        FoldRun { xs, reducer: std::marker::PhantomData }
    }
}

impl<T: Element, R: Reducer<T>> Vectorised for FoldRun<'_, T, R> {
    type Output = R::Partial;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> R::Partial {
        let mut lanes = [R::EMPTY; LANES];
        let mut groups = self.xs.chunks_exact(LANES);
        for group in &mut groups {
            for (lane, &x) in lanes.iter_mut().zip(group) {
                *lane = R::feed(*lane, x);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(groups.remainder()) {
            *lane = R::feed(*lane, x);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] = R::merge(lanes[i], lanes[i + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// The innermost dimension stays: rows are folded element by element.
fn across_rows<T: Element, R: Reducer<T>>(ctx: &Context<'_>, plan: &Plan, x: &[T], y: &mut [T]) {
    let (columns, outer) = match plan.kept.split_last() {
        Some((last, outer)) if last.stride == 1 => (last.size, outer),
        _ => (1, plan.kept.as_slice()),
    };
    let count = plan.count();
    let rows = combinations(&plan.reduced);
    let blocks = rows.div_ceil((64 * 1024 / columns).max(ROWS));
    if blocks > 1 && y.len() < 8 * STRIP {
        // Too few results to share out: the rows are shared out instead.
        let per_block = rows.div_ceil(blocks);
        let mut partials = vec![R::EMPTY; y.len() * blocks];
        ctx.parallel_chunks(&mut partials, columns, COST * (columns * per_block) as f64, |range, part| {
            for (item, totals) in range.zip(part.chunks_exact_mut(columns)) {
                let (block, i) = (item % blocks, item / blocks);
                let rows = block * per_block..rows.min((block + 1) * per_block);
                fold_rows::<T, R>(plan, x, position(outer, i), rows, totals);
            }
        });
        let per_result = partials.chunks_exact(columns * blocks);
        for (results, partials) in y.chunks_exact_mut(columns).zip(per_result) {
            for (column, y) in results.iter_mut().enumerate() {
                let column = partials.iter().skip(column).step_by(columns);
                *y = R::finish(column.fold(R::EMPTY, |total, &p| R::merge(total, p)), count);
            }
        }
        return;
    }
    // A strip of columns at a time, so that the partial results stay in the first-level cache.
    let cost = COST * count as f64 + 1.0;
    ctx.parallel_chunks(y, 1, cost, |range, part| {
        let mut totals = [R::EMPTY; STRIP];
        let mut at = range.start;
        let mut part = part;
        while !part.is_empty() {
            let (i, column) = (at / columns, at % columns);
            let width = part.len().min(columns - column).min(STRIP);
            let totals = &mut totals[..width];
            totals.fill(R::EMPTY);
            fold_rows::<T, R>(plan, x, position(outer, i) + column, 0..rows, totals);
            let (done, rest) = part.split_at_mut(width);
            for (y, &total) in done.iter_mut().zip(totals.iter()) {
                *y = R::finish(total, count);
            }
            part = rest;
            at += width;
        }
    });
}

/// Folds some rows into `totals`, [`ROWS`] at a time.
fn fold_rows<T: Element, R: Reducer<T>>(
    plan: &Plan,
    x: &[T],
    base: usize,
    rows: Range<usize>,
    totals: &mut [R::Partial],
) {
    for strip in 0..totals.len().div_ceil(STRIP) {
        let columns = strip * STRIP..totals.len().min((strip + 1) * STRIP);
        let base = base + columns.start;
        let totals = &mut totals[columns];
        if rows.len() <= ROWS {
            fold_block::<T, R>(plan, x, base, rows.clone(), totals);
            continue;
        }
        let mut partials = [R::EMPTY; STRIP];
        let partials = &mut partials[..totals.len()];
        let mut start = rows.start;
        while start < rows.end {
            let end = rows.end.min(start + ROWS);
            partials.fill(R::EMPTY);
            fold_block::<T, R>(plan, x, base, start..end, partials);
            for (total, &partial) in totals.iter_mut().zip(partials.iter()) {
                *total = R::merge(*total, partial);
            }
            start = end;
        }
    }
}

fn fold_block<T: Element, R: Reducer<T>>(
    plan: &Plan,
    x: &[T],
    base: usize,
    rows: Range<usize>,
    partials: &mut [R::Partial],
) {
    if partials.len() < 8 {
        for row in rows {
            let at = base + position(&plan.reduced, row);
            for (partial, &x) in partials.iter_mut().zip(&x[at..]) {
                *partial = R::feed(*partial, x);
            }
        }
        return;
    }
    vectorised(FoldRows::<T, R> { plan, x, base, rows, partials });
}

struct FoldRows<'a, T, R: Reducer<T>> {
    plan: &'a Plan,
    x: &'a [T],
    base: usize,
    rows: Range<usize>,
    partials: &'a mut [R::Partial],
}

impl<T: Element, R: Reducer<T>> Vectorised for FoldRows<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let width = self.partials.len();
        for row in self.rows {
            let at = self.base + position(&self.plan.reduced, row);
            for (partial, &x) in self.partials.iter_mut().zip(&self.x[at..at + width]) {
                *partial = R::feed(*partial, x);
            }
        }
    }
}
