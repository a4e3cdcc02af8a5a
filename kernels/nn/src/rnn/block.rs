//! `BlockLSTM` and its gradient: a sequence of steps.

use super::cell::{Activations, Cell, Forward, Gradients, Layout, Seen, zeros};
use super::lstm::slices;
use super::{Sizes, Term, add_transposed_product, expect_rank, expect_size, input, output, sum_of_products};
use crate::conv::View;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};

/// The names of inputs 1 to 8 of all four ops.
const NAMES: [&str; 8] = ["x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"];
const RANKS: [usize; 8] = [3, 2, 2, 2, 1, 1, 1, 1];

/// How many steps there are to run, of those that `x` holds.
fn steps(ctx: &Context<'_>, time: usize, sizes: Sizes) -> Result<usize> {
    let length = ctx.input(0)?;
    expect_rank(length, "seq_len_max_tensor", 0, |name, wanted, got| {
        format!("`{name}` must be rank {wanted} but is rank {got}")
    })?;
    let length = length.to_i64_vec()?.first().copied().unwrap_or(0);
    match usize::try_from(length) {
        // Of empty states there may be more than could ever be counted.
        Ok(steps) if steps <= time => Ok(if sizes.state() == 0 { 0 } else { steps }),
        _ => Err(invalid_argument!("seq_len_max must be between 0 and the number of time steps {time}, got {length}")),
    }
}

/// `BlockLSTM(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b) -> (i, cs, f, o, ci, co, h)` and `BlockLSTMV2`, which has the
/// gates in another order and no bias of the forget gate. Steps from `seq_len_max` on are zeros.
struct Sequence {
    layout: Layout,
    forget_bias: f32,
    clip: f32,
    peephole: bool,
}

impl Sequence {
    fn new(c: &Construction<'_>, layout: Layout) -> Result<Sequence> {
        let attrs = c.attrs();
        Ok(Sequence {
            layout,
            forget_bias: if attrs.has("forget_bias") { attrs.float("forget_bias")? } else { 0.0 },
            clip: attrs.float("cell_clip")?,
            peephole: attrs.bool("use_peephole")?,
        })
    }
}

impl Kernel for Sequence {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for (at, (name, rank)) in (1..).zip(NAMES.into_iter().zip(RANKS)) {
            expect_rank(ctx.input(at)?, name, rank, |name, wanted, _| format!("{name} must be {wanted}D"))?;
        }
        let x = ctx.input(1)?.shape();
        let time = x.dim(0);
        let sizes = Sizes { batch: x.dim(1), input: x.dim(2), cell: ctx.input(2)?.shape().dim(1) };
        expect_size(ctx.input(2)?, 0, sizes.batch, "cs_prev.dims(0) != batch_size")?;
        expect_size(ctx.input(3)?, 0, sizes.batch, "h_prev.dims(0) != batch_size")?;
        expect_size(ctx.input(3)?, 1, sizes.cell, "h_prev.dims(1) != cell_size")?;
        expect_size(ctx.input(4)?, 0, sizes.input + sizes.cell, "w.dim_size(0) != input_size + cell_size")?;
        expect_size(ctx.input(4)?, 1, sizes.cell * 4, "w.dim_size(1) != cell_size * 4")?;
        for (at, name) in (5..).zip(&NAMES[4..7]) {
            expect_size(ctx.input(at)?, 0, sizes.cell, &format!("{name}.dim_size(0) != cell_size"))?;
        }
        expect_size(ctx.input(8)?, 0, sizes.cell * 4, "b.dim_size(0) != cell_size * 4")?;
        let steps = steps(ctx, time, sizes)?;

        let given: Vec<Tensor> = (1..9).map(|i| input(ctx, i)).collect::<Result<_>>()?;
        let [x, cs_prev, h_prev, w, wci, wcf, wco, b] = slices(&given)?;
        let all = [time, sizes.batch, sizes.cell];
        let [mut i, mut cs, mut f, mut o] = [zeros(&all)?, zeros(&all)?, zeros(&all)?, zeros(&all)?];
        let [mut ci, mut co, mut h] = [zeros(&all)?, zeros(&all)?, zeros(&all)?];
        let mut gates = zeros(&[sizes.batch, 4 * sizes.cell])?;
        let cell = Cell { sizes, layout: self.layout, weights: w, peephole: self.peephole.then_some([wci, wcf, wco]) };
        let forward = Forward { bias: b, forget_bias: self.forget_bias, clip: self.clip };
        let (state, per_step) = (sizes.state(), sizes.batch * sizes.input);
        for t in 0..steps {
            let now = t * state..(t + 1) * state;
            let (cs_before, cs_now) = cs.as_mut_slice::<f32>()?.split_at_mut(now.start);
            let (h_before, h_now) = h.as_mut_slice::<f32>()?.split_at_mut(now.start);
            let last = |before: &'_ [f32]| before.len() - state;
            let before = match t {
                0 => [cs_prev, h_prev],
                _ => [&cs_before[last(cs_before)..], &h_before[last(h_before)..]],
            };
            let to = Activations {
                i: &mut i.as_mut_slice()?[now.clone()],
                cs: &mut cs_now[..state],
                f: &mut f.as_mut_slice()?[now.clone()],
                o: &mut o.as_mut_slice()?[now.clone()],
                ci: &mut ci.as_mut_slice()?[now.clone()],
                co: &mut co.as_mut_slice()?[now.clone()],
                h: &mut h_now[..state],
            };
            let inputs = [&x[t * per_step..(t + 1) * per_step], before[0], before[1]];
            cell.forward(ctx, &forward, inputs, gates.as_mut_slice()?, to);
        }
        for (at, tensor) in [i, cs, f, o, ci, co, h].into_iter().enumerate() {
            output(ctx, at, tensor)?;
        }
        Ok(())
    }
}

/// `BlockLSTMGrad(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, i, cs, f, o, ci, co, h, cs_grad, h_grad) -> (x_grad,
/// cs_prev_grad, h_prev_grad, w_grad, wci_grad, wcf_grad, wco_grad, b_grad)` and `BlockLSTMGradV2`.
struct Gradient {
    layout: Layout,
    peephole: bool,
}

impl Gradient {
    fn new(c: &Construction<'_>, layout: Layout) -> Result<Gradient> {
        Ok(Gradient { layout, peephole: c.attrs().bool("use_peephole")? })
    }

    fn sizes(&self, ctx: &Context<'_>) -> Result<(usize, Sizes)> {
        for (at, (name, rank)) in (1..).zip(NAMES.into_iter().zip(RANKS)) {
            expect_rank(ctx.input(at)?, name, rank, |name, wanted, got| {
                format!("{name} must be rank {wanted} but is rank {got}")
            })?;
        }
        let (x, w) = (ctx.input(1)?.shape(), ctx.input(4)?.shape());
        let time = x.dim(0);
        let sizes = Sizes { batch: x.dim(1), input: x.dim(2), cell: w.dim(1) / 4 };
        if w.dim(0) != sizes.input + sizes.cell {
            return Err(invalid_argument!("w matrix rows don't match: {} vs. {}", sizes.input + sizes.cell, w.dim(0)));
        }
        let bias = ctx.input(8)?.shape().dim(0);
        if bias / 4 != sizes.cell {
            return Err(invalid_argument!("w and b cell_size don't match: {} vs. {bias}", sizes.cell));
        }
        expect_size(ctx.input(4)?, 1, sizes.cell * 4, "w.dim_size(1) != cell_size * 4")?;
        expect_size(ctx.input(8)?, 0, sizes.cell * 4, "b.dim_size(0) != cell_size * 4")?;
        for (at, name) in [(2, "cs_prev"), (3, "h_prev")] {
            expect_size(ctx.input(at)?, 0, sizes.batch, &format!("{name}.dims(0) != batch_size"))?;
            expect_size(ctx.input(at)?, 1, sizes.cell, &format!("{name}.dims(1) != cell_size"))?;
        }
        if self.peephole {
            for (at, name) in (5..).zip(&NAMES[4..7]) {
                expect_size(ctx.input(at)?, 0, sizes.cell, &format!("{name}.dim_size(0) != cell_size"))?;
            }
        }
        for (at, name) in (9..).zip(["i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"]) {
            expect_rank(ctx.input(at)?, name, 3, |name, wanted, got| {
                format!("{name} must be rank {wanted}. Received: {got}")
            })?;
            expect_size(ctx.input(at)?, 0, time, &format!("{name}.dims(0) != timelen"))?;
            expect_size(ctx.input(at)?, 1, sizes.batch, &format!("{name}.dims(1) != batch_size"))?;
            expect_size(ctx.input(at)?, 2, sizes.cell, &format!("{name}.dims(2) != cell_size"))?;
        }
        Ok((time, sizes))
    }
}

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (time, sizes) = self.sizes(ctx)?;
        let steps = steps(ctx, time, sizes)?;
        let given: Vec<Tensor> = (1..18).map(|i| input(ctx, i)).collect::<Result<_>>()?;
        let [x, cs_prev, h_prev, w, wci, wcf, wco, _, i, cs, f, o, ci, co, h, cs_grad, h_grad] = slices(&given)?;
        let mut results: Vec<Tensor> =
            given.iter().take(8).map(|tensor| zeros(tensor.shape().dims())).collect::<Result<_>>()?;
        let [x_grad, cs_prev_grad, h_prev_grad, w_grad, wci_grad, wcf_grad, wco_grad, b_grad] = &mut results[..] else {
            return Err(invalid_argument!("BlockLSTMGrad has eight outputs"));
        };
        let (state, per_step, width) = (sizes.state(), sizes.batch * sizes.input, 4 * sizes.cell);
        let split = sizes.input * width;
        let cell = Cell { sizes, layout: self.layout, weights: w, peephole: self.peephole.then_some([wci, wcf, wco]) };
        let [mut gates, mut state_sum, mut output_sum] =
            [zeros(&[sizes.batch, width])?, zeros(&[state])?, zeros(&[state])?];
        let add = |to: &mut [f32], a: &[f32], b: &[f32]| {
            to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = a + b);
        };
        for t in (0..steps).rev() {
            let now = t * state..(t + 1) * state;
            let of_x = t * per_step..(t + 1) * per_step;
            let before = |first: &'_ [f32], rest: &'_ [f32]| -> Vec<f32> {
                if t == 0 { first.to_vec() } else { rest[now.start - state..now.start].to_vec() }
            };
            let (cs_before, h_before) = (before(cs_prev, cs), before(h_prev, h));
            // What later steps ask of this state and output comes on top of what is asked of them directly.
            add(state_sum.as_mut_slice()?, cs_prev_grad.as_slice()?, &cs_grad[now.clone()]);
            add(output_sum.as_mut_slice()?, h_prev_grad.as_slice()?, &h_grad[now.clone()]);
            let seen = Seen {
                cs_prev: &cs_before,
                i: &i[now.clone()],
                cs: &cs[now.clone()],
                f: &f[now.clone()],
                o: &o[now.clone()],
                ci: &ci[now.clone()],
                co: &co[now.clone()],
                cs_grad: state_sum.as_slice()?,
                h_grad: output_sum.as_slice()?,
            };
            let mut to = Gradients {
                gates: gates.as_mut_slice()?,
                cs_prev: cs_prev_grad.as_mut_slice()?,
                peephole: [wci_grad.as_mut_slice()?, wcf_grad.as_mut_slice()?, wco_grad.as_mut_slice()?],
            };
            cell.backward(seen, &mut to);
            let gates = gates.as_slice::<f32>()?;
            let back = |start: usize| Term {
                left: gates,
                length: width,
                right: w,
                view: View::rows(start, width).transposed(),
            };
            sum_of_products(ctx, &mut x_grad.as_mut_slice()?[of_x.clone()], sizes.input, &[back(0)]);
            sum_of_products(ctx, h_prev_grad.as_mut_slice()?, sizes.cell, &[back(split)]);
            let (of_input, of_output) = w_grad.as_mut_slice::<f32>()?.split_at_mut(split);
            add_transposed_product(of_input, (sizes.input, &x[of_x]), (width, gates), sizes.batch);
            add_transposed_product(of_output, (sizes.cell, &h_before), (width, gates), sizes.batch);
            let sums = b_grad.as_mut_slice::<f32>()?;
            for row in gates.chunks_exact(width.max(1)) {
                sums.iter_mut().zip(row).for_each(|(sum, gate)| *sum += gate);
            }
        }
        for (at, tensor) in results.into_iter().enumerate() {
            output(ctx, at, tensor)?;
        }
        Ok(())
    }
}

pub(super) fn register(registry: &mut Registry) {
    use Layout::*;
    let types = &[DType::Float, DType::Half];
    for (op, layout) in [("BlockLSTM", CellThenForget), ("BlockLSTMV2", ForgetThenCell)] {
        registry.op(op).types("T", types).kernel(move |c: &Construction<'_>| Sequence::new(c, layout));
    }
    for (op, layout) in [("BlockLSTMGrad", CellThenForget), ("BlockLSTMGradV2", ForgetThenCell)] {
        registry.op(op).types("T", types).kernel(move |c: &Construction<'_>| Gradient::new(c, layout));
    }
}
