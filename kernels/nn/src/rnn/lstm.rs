//! `LSTMBlockCell` and its gradient.

use super::cell::{Activations, Cell, Forward, Gradients, Layout, Seen, zeros};
use super::{Sizes, expect_rank, expect_size, input, output};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};

/// The names of the inputs that both ops begin with.
const NAMES: [&str; 8] = ["x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"];

fn rank_text(name: &str, wanted: usize, got: usize) -> String {
    format!("{name}_tensor must be rank {wanted} but is rank {got}.")
}

/// Checks the first eight inputs.
fn sizes(ctx: &Context<'_>, peephole: bool) -> Result<Sizes> {
    for (at, name) in NAMES.iter().enumerate() {
        expect_rank(ctx.input(at)?, name, if at < 4 { 2 } else { 1 }, rank_text)?;
    }
    let (x, cs_prev) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
    let sizes = Sizes { batch: x.dim(0), input: x.dim(1), cell: cs_prev.dim(1) };
    expect_size(ctx.input(1)?, 0, sizes.batch, "cs_prev.dims(0) != batch_size")?;
    expect_size(ctx.input(2)?, 0, sizes.batch, "h_prev.dims(0) != batch_size")?;
    expect_size(ctx.input(2)?, 1, sizes.cell, "h_prev.dims(1) != cell_size")?;
    expect_size(ctx.input(3)?, 0, sizes.input + sizes.cell, "w.dim_size(0) != input_size + cell_size")?;
    expect_size(ctx.input(3)?, 1, sizes.cell * 4, "w.dim_size(1) != cell_size * 4")?;
    expect_size(ctx.input(7)?, 0, sizes.cell * 4, "b.dim_size(0) != cell_size * 4")?;
    if peephole {
        for (at, name) in (4..).zip(&NAMES[4..7]) {
            expect_size(ctx.input(at)?, 0, sizes.cell, &format!("{name}.dim_size(0) != cell_size"))?;
        }
    }
    Ok(sizes)
}

/// `LSTMBlockCell(x, cs_prev, h_prev, w, wci, wcf, wco, b) -> (i, cs, f, o, ci, co, h)`.
struct Step {
    forget_bias: f32,
    clip: f32,
    peephole: bool,
}

impl Step {
    fn new(c: &Construction<'_>) -> Result<Step> {
        let attrs = c.attrs();
        Ok(Step {
            forget_bias: attrs.float("forget_bias")?,
            clip: attrs.float("cell_clip")?,
            peephole: attrs.bool("use_peephole")?,
        })
    }
}

impl Kernel for Step {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for (at, name) in [(1, "cs_prev"), (2, "h_prev")] {
            let tensor = ctx.input(at)?;
            if tensor.num_elements() == 0 {
                let dims: Vec<String> = tensor.shape().dims().iter().map(usize::to_string).collect();
                return Err(invalid_argument!("{name}_tensor is empty, has shape: ({}).", dims.join(",")));
            }
        }
        let sizes = sizes(ctx, self.peephole)?;
        let given: Vec<Tensor> = (0..8).map(|i| input(ctx, i)).collect::<Result<_>>()?;
        let [x, cs_prev, h_prev, w, wci, wcf, wco, b] = slices(&given)?;
        let state = [sizes.batch, sizes.cell];
        let [mut i, mut cs, mut f, mut o] = [zeros(&state)?, zeros(&state)?, zeros(&state)?, zeros(&state)?];
        let [mut ci, mut co, mut h] = [zeros(&state)?, zeros(&state)?, zeros(&state)?];
        let mut gates = zeros(&[sizes.batch, 4 * sizes.cell])?;
        let cell = Cell {
            sizes,
            layout: Layout::CellThenForget,
            weights: w,
            peephole: self.peephole.then_some([wci, wcf, wco]),
        };
        let forward = Forward { bias: b, forget_bias: self.forget_bias, clip: self.clip };
        let to = Activations {
            i: i.as_mut_slice()?,
            cs: cs.as_mut_slice()?,
            f: f.as_mut_slice()?,
            o: o.as_mut_slice()?,
            ci: ci.as_mut_slice()?,
            co: co.as_mut_slice()?,
            h: h.as_mut_slice()?,
        };
        cell.forward(ctx, &forward, [x, cs_prev, h_prev], gates.as_mut_slice()?, to);
        for (at, tensor) in [i, cs, f, o, ci, co, h].into_iter().enumerate() {
            output(ctx, at, tensor)?;
        }
        Ok(())
    }
}

/// The elements of as many tensors.
pub(super) fn slices<const N: usize>(tensors: &[Tensor]) -> Result<[&[f32]; N]> {
    let mut all: [&[f32]; N] = [&[]; N];
    for (slice, tensor) in all.iter_mut().zip(tensors) {
        *slice = tensor.as_slice::<f32>()?;
    }
    Ok(all)
}

/// `LSTMBlockCellGrad(x, cs_prev, h_prev, w, wci, wcf, wco, b, i, cs, f, o, ci, co, cs_grad, h_grad) -> (cs_prev_grad, dicfo,
/// wci_grad, wcf_grad, wco_grad)`: the gradients of the gates are left for the caller to multiply.
struct Gradient {
    peephole: bool,
}

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = sizes(ctx, self.peephole)?;
        // The text for the forget gate names the input gate, as TensorFlow's does.
        let names = [
            ("i", "i.dim_size(0)", "i.dim_size(1)"),
            ("cs", "cs.dim_size(0)", "cs.dim_size(1)"),
            ("f", "f.dim_size(0)", "i.dim_size(1)"),
            ("o", "o.dim_size(0)", "o.dim_size(1)"),
            ("ci", "ci.dim_size(0)", "ci.dim_size(1)"),
            ("co", "co.dim_size(0)", "co.dim_size(1)"),
            ("cs_grad", "cs_grad_tensor.dims(0)", "cs_grad_tensor.dims(1)"),
            ("h_grad", "h_grad_tensor.dims(0)", "h_grad_tensor.dims(1)"),
        ];
        for (at, (name, rows, columns)) in (8..).zip(names) {
            expect_rank(ctx.input(at)?, name, 2, rank_text)?;
            expect_size(ctx.input(at)?, 0, sizes.batch, &format!("{rows} != batch_size"))?;
            expect_size(ctx.input(at)?, 1, sizes.cell, &format!("{columns} != cell_size"))?;
        }
        let given: Vec<Tensor> = (0..16).map(|i| input(ctx, i)).collect::<Result<_>>()?;
        let [_, cs_prev, _, w, wci, wcf, wco, _, i, cs, f, o, ci, co, cs_grad, h_grad] = slices(&given)?;
        let mut cs_prev_grad = zeros(&[sizes.batch, sizes.cell])?;
        let mut gates = zeros(&[sizes.batch, 4 * sizes.cell])?;
        let [mut d_wci, mut d_wcf, mut d_wco] =
            [zeros(given[4].shape().dims())?, zeros(given[5].shape().dims())?, zeros(given[6].shape().dims())?];
        let cell = Cell {
            sizes,
            layout: Layout::CellThenForget,
            weights: w,
            peephole: self.peephole.then_some([wci, wcf, wco]),
        };
        let mut to = Gradients {
            gates: gates.as_mut_slice()?,
            cs_prev: cs_prev_grad.as_mut_slice()?,
            peephole: [d_wci.as_mut_slice()?, d_wcf.as_mut_slice()?, d_wco.as_mut_slice()?],
        };
        cell.backward(Seen { cs_prev, i, cs, f, o, ci, co, cs_grad, h_grad }, &mut to);
        for (at, tensor) in [cs_prev_grad, gates, d_wci, d_wcf, d_wco].into_iter().enumerate() {
            output(ctx, at, tensor)?;
        }
        Ok(())
    }
}

pub(super) fn register(registry: &mut Registry) {
    let types = &[DType::Float, DType::Half];
    registry.op("LSTMBlockCell").types("T", types).kernel(Step::new);
    registry
        .op("LSTMBlockCellGrad")
        .types("T", types)
        .kernel(|c| Ok(Gradient { peephole: c.attrs().bool("use_peephole")? }));
}
