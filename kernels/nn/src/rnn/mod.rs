//! Recurrent cells: the long short-term memory (Hochreiter and Schmidhuber 1997), a step or a sequence of it, and the gated
//! recurrent unit (Cho et al. 2014). Half precision is computed in single.

mod block;
mod cell;
mod gru;
mod lstm;

#[cfg(test)]
mod tests;

use crate::conv::{Scalar, View};
use crate::convert::{narrowed, widened};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};

/// Nanoseconds for a multiplication and an addition within a product.
const COST: f64 = 0.02;

/// The sizes of a cell.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    input: usize,
    cell: usize,
}

impl Sizes {
    /// Elements of a state.
    fn state(self) -> usize {
        self.batch * self.cell
    }
}

/// The text for a tensor of the wrong rank: its name, the rank it should have and the one it has.
type RankText = fn(&str, usize, usize) -> String;

fn expect_rank(tensor: &Tensor, name: &str, rank: usize, text: RankText) -> Result<()> {
    let got = tensor.shape().rank();
    if got == rank { Ok(()) } else { Err(invalid_argument!("{}", text(name, rank, got))) }
}

/// Checks a size of a tensor whose rank was checked; `text` says what it has to be equal to.
fn expect_size(tensor: &Tensor, axis: usize, wanted: usize, text: &str) -> Result<()> {
    let got = tensor.shape().dim(axis);
    if got == wanted { Ok(()) } else { Err(invalid_argument!("{text}: {got} vs. {wanted}")) }
}

/// Input `i` in the type to compute in.
fn input(ctx: &Context<'_>, i: usize) -> Result<Tensor> {
    let tensor = ctx.input(i)?;
    if tensor.dtype() == DType::Half { widened(ctx, tensor) } else { Ok(tensor.clone()) }
}

/// Sets output `i` to what was computed.
fn output(ctx: &mut Context<'_>, i: usize, tensor: Tensor) -> Result<()> {
    let dtype = ctx.output_type(i)?;
    let tensor = if dtype == DType::Half { narrowed(ctx, &tensor, dtype)? } else { tensor };
    ctx.set_output(i, tensor)
}

/// One product in a sum of them: a matrix with rows of `length`, and a matrix with as many rows, seen through `view`.
struct Term<'a> {
    left: &'a [f32],
    length: usize,
    right: &'a [f32],
    view: View,
}

/// `target = sum of left * right`; rows of the target have `width` elements.
fn sum_of_products(ctx: &Context<'_>, target: &mut [f32], width: usize, terms: &[Term<'_>]) {
    if target.is_empty() {
        return;
    }
    let cost = terms.iter().map(|term| term.length).sum::<usize>() as f64 * width as f64 * COST;
    ctx.parallel_chunks(target, width, cost, |rows, part| {
        let mut add = false;
        for Term { left, length, right, view } in terms.iter().filter(|term| term.length > 0) {
            let left = (*left, View::rows(rows.start * length, *length));
            f32::product((rows.len(), width, *length), (&mut *part, View::rows(0, width)), left, (right, *view), add);
            add = true;
        }
        if !add {
            part.fill(0.0);
        }
    });
}

/// `target += left^T * right`, of matrices with `rows` rows of `height` and `width` elements.
fn add_transposed_product(
    target: &mut [f32],
    (height, left): (usize, &[f32]),
    (width, right): (usize, &[f32]),
    rows: usize,
) {
    if height * width * rows > 0 {
        let left = (left, View::rows(0, height).transposed());
        f32::product((height, width, rows), (target, View::rows(0, width)), left, (right, View::rows(0, width)), true);
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn register(registry: &mut Registry) {
    block::register(registry);
    gru::register(registry);
    lstm::register(registry);
}
