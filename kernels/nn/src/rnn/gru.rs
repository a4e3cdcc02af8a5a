//! `GRUBlockCell` and its gradient.

use super::cell::zeros;
use super::lstm::slices;
use super::{Sizes, Term, expect_rank, expect_size, input, output, sigmoid, sum_of_products};
use crate::conv::View;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor};

fn rank_text(name: &str, wanted: usize, got: usize) -> String {
    format!("Rank of {name} must be {wanted}, got {got}")
}

/// Checks the six inputs that both ops begin with.
fn sizes(ctx: &Context<'_>) -> Result<Sizes> {
    let inputs = [("x", 2), ("h_prev", 2), ("w_ru_", 2), ("w_c", 2), ("b_ru", 1), ("b_c", 1)];
    for (at, (name, rank)) in inputs.into_iter().enumerate() {
        expect_rank(ctx.input(at)?, name, rank, rank_text)?;
    }
    let (x, h_prev) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
    let sizes = Sizes { batch: x.dim(0), input: x.dim(1), cell: h_prev.dim(1) };
    let rows = sizes.input + sizes.cell;
    expect_size(ctx.input(1)?, 0, sizes.batch, "h_prev.dims(0) != batch_size")?;
    expect_size(ctx.input(2)?, 0, rows, "w_ru.dim_size(0) != input_size + cell_size")?;
    expect_size(ctx.input(2)?, 1, sizes.cell * 2, "w_ru.dim_size(1) != cell_size * 2")?;
    expect_size(ctx.input(3)?, 0, rows, "w_c.dim_size(0) != input_size + cell_size")?;
    expect_size(ctx.input(3)?, 1, sizes.cell, "w_c.dim_size(1) != cell_size")?;
    expect_size(ctx.input(4)?, 0, sizes.cell * 2, "b_ru.dim_size(0) != cell_size * 2")?;
    expect_size(ctx.input(5)?, 0, sizes.cell, "b_c.dim_size(0) != cell_size")?;
    Ok(sizes)
}

/// `GRUBlockCell(x, h_prev, w_ru, w_c, b_ru, b_c) -> (r, u, c, h)`: reset and update gate, candidate, new state `u * h_prev + (1 -
/// u) * c`.
struct Step;

impl Kernel for Step {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = sizes(ctx)?;
        let given: Vec<Tensor> = (0..6).map(|i| input(ctx, i)).collect::<Result<_>>()?;
        let [x, h_prev, w_ru, w_c, b_ru, b_c] = slices(&given)?;
        let Sizes { batch, input: width, cell } = sizes;
        let state = [batch, cell];
        let [mut r, mut u, mut c, mut h] = [zeros(&state)?, zeros(&state)?, zeros(&state)?, zeros(&state)?];
        let [mut gates, mut reset] = [zeros(&[batch, 2 * cell])?, zeros(&state)?];
        let terms = |states, weights, columns: usize| {
            let of_input = Term { left: x, length: width, right: weights, view: View::rows(0, columns) };
            let view = View::rows(width * columns, columns);
            [of_input, Term { left: states, length: cell, right: weights, view }]
        };
        sum_of_products(ctx, gates.as_mut_slice()?, 2 * cell, &terms(h_prev, w_ru, 2 * cell));
        let gates = gates.as_slice::<f32>()?;
        {
            let (r, u, reset) = (r.as_mut_slice::<f32>()?, u.as_mut_slice::<f32>()?, reset.as_mut_slice::<f32>()?);
            for at in 0..sizes.state() {
                let (row, unit) = (at / cell, at % cell);
                let gate = |which: usize| gates[(2 * row + which) * cell + unit] + b_ru[which * cell + unit];
                (r[at], u[at]) = (sigmoid(gate(0)), sigmoid(gate(1)));
                reset[at] = h_prev[at] * r[at];
            }
        }
        sum_of_products(ctx, c.as_mut_slice()?, cell, &terms(reset.as_slice()?, w_c, cell));
        {
            let (u, c, h) = (u.as_slice::<f32>()?, c.as_mut_slice::<f32>()?, h.as_mut_slice::<f32>()?);
            for at in 0..sizes.state() {
                c[at] = (c[at] + b_c[at % cell]).tanh();
                h[at] = u[at] * (h_prev[at] - c[at]) + c[at];
            }
        }
        for (at, tensor) in [r, u, c, h].into_iter().enumerate() {
            output(ctx, at, tensor)?;
        }
        Ok(())
    }
}

/// `GRUBlockCellGrad(x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, d_h) -> (d_x, d_h_prev, d_c_bar, d_r_bar_u_bar)`: the last two are
/// the gradients of candidate and gates before their functions.
struct Gradient;

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = sizes(ctx)?;
        // TensorFlow's text on the rank of the candidate names its weights.
        for (at, (name, label)) in (6..).zip([("r", "r"), ("u", "u"), ("c", "w_c"), ("d_h", "d_h")]) {
            expect_rank(ctx.input(at)?, label, 2, rank_text)?;
            expect_size(ctx.input(at)?, 0, sizes.batch, &format!("{name}.dims(0) != batch_size"))?;
            expect_size(ctx.input(at)?, 1, sizes.cell, &format!("{name}.dims(1) != cell_size"))?;
        }
        let given: Vec<Tensor> = (0..10).map(|i| input(ctx, i)).collect::<Result<_>>()?;
        let [_, h_prev, w_ru, w_c, _, _, r, u, c, d_h] = slices(&given)?;
        let Sizes { batch, input: width, cell } = sizes;
        let [mut d_x, mut d_h_prev, mut d_c_bar, mut d_gates, mut d_reset] = [
            zeros(&[batch, width])?,
            zeros(&[batch, cell])?,
            zeros(&[batch, cell])?,
            zeros(&[batch, 2 * cell])?,
            zeros(&[batch, cell])?,
        ];
        {
            let (bar, gates) = (d_c_bar.as_mut_slice::<f32>()?, d_gates.as_mut_slice::<f32>()?);
            for at in 0..sizes.state() {
                bar[at] = d_h[at] * (1.0 - u[at]) * (1.0 - c[at] * c[at]);
                gates[(2 * (at / cell) + 1) * cell + at % cell] =
                    d_h[at] * (h_prev[at] - c[at]) * u[at] * (1.0 - u[at]);
            }
        }
        let bar = d_c_bar.as_slice::<f32>()?;
        let back = |left, columns: usize, weights, start: usize| {
            let view = View::rows(start * columns, columns).transposed();
            Term { left, length: columns, right: weights, view }
        };
        sum_of_products(ctx, d_reset.as_mut_slice()?, cell, &[back(bar, cell, w_c, width)]);
        let d_reset = d_reset.as_slice::<f32>()?;
        {
            let gates = d_gates.as_mut_slice::<f32>()?;
            for at in 0..sizes.state() {
                gates[2 * (at / cell) * cell + at % cell] = d_reset[at] * h_prev[at] * r[at] * (1.0 - r[at]);
            }
        }
        let gates = d_gates.as_slice::<f32>()?;
        let terms = [back(gates, 2 * cell, w_ru, 0), back(bar, cell, w_c, 0)];
        sum_of_products(ctx, d_x.as_mut_slice()?, width, &terms);
        sum_of_products(ctx, d_h_prev.as_mut_slice()?, cell, &[back(gates, 2 * cell, w_ru, width)]);
        for (at, to) in d_h_prev.as_mut_slice::<f32>()?.iter_mut().enumerate() {
            *to += d_reset[at] * r[at] + d_h[at] * u[at];
        }
        for (at, tensor) in [d_x, d_h_prev, d_c_bar, d_gates].into_iter().enumerate() {
            output(ctx, at, tensor)?;
        }
        Ok(())
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("GRUBlockCell").types("T", &[DType::Float]).kernel(|_| Ok(Step));
    registry.op("GRUBlockCellGrad").types("T", &[DType::Float]).kernel(|_| Ok(Gradient));
}
