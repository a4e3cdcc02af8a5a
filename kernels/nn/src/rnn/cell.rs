//! The arithmetic of one step of a long short-term memory, forwards and backwards.

use super::{Sizes, Term, sigmoid, sum_of_products};
use crate::conv::View;
use graphmill_runtime::Context;
use graphmill_tensor::{DType, Result, Shape, Tensor};

/// Where the gates lie in a row of the weights: the input gate first, the output gate last, and between them the cell input and
/// the forget gate in this order or the other.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Layout {
    CellThenForget,
    ForgetThenCell,
}

impl Layout {
    /// The positions of cell input and forget gate.
    fn order(self) -> (usize, usize) {
        match self {
            Layout::CellThenForget => (1, 2),
            Layout::ForgetThenCell => (2, 1),
        }
    }
}

/// What stays the same from step to step.
pub(super) struct Cell<'a> {
    pub sizes: Sizes,
    pub layout: Layout,
    pub weights: &'a [f32],
    /// The weights with which the gates see the state: of input, forget and output gate.
    pub peephole: Option<[&'a [f32]; 3]>,
}

/// What only the forward step needs.
pub(super) struct Forward<'a> {
    pub bias: &'a [f32],
    pub forget_bias: f32,
    /// Where the state is cut off; not at all unless it is above 0.
    pub clip: f32,
}

/// The results of a step, each a state: input gate, state, forget gate, output gate, cell input, cell output, output.
pub(super) struct Activations<'a> {
    pub i: &'a mut [f32],
    pub cs: &'a mut [f32],
    pub f: &'a mut [f32],
    pub o: &'a mut [f32],
    pub ci: &'a mut [f32],
    pub co: &'a mut [f32],
    pub h: &'a mut [f32],
}

/// What the backward step sees of the forward one, and the gradients of state and output.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub cs_prev: &'a [f32],
    pub i: &'a [f32],
    pub cs: &'a [f32],
    pub f: &'a [f32],
    pub o: &'a [f32],
    pub ci: &'a [f32],
    pub co: &'a [f32],
    pub cs_grad: &'a [f32],
    pub h_grad: &'a [f32],
}

/// What the backward step gives: the gradients of the gates before their functions and of the previous state are written, those
/// of the peephole weights added up.
pub(super) struct Gradients<'a> {
    pub gates: &'a mut [f32],
    pub cs_prev: &'a mut [f32],
    pub peephole: [&'a mut [f32]; 3],
}

/// A tensor of zeros to compute in.
pub(super) fn zeros(dims: &[usize]) -> Result<Tensor> {
    Tensor::zeros(DType::Float, Shape::from_dims(dims)?)
}

impl Cell<'_> {
    /// `[x, h_prev] * weights`, then the functions of the gates; `gates` is room for the products.
    pub fn forward(
        &self,
        ctx: &Context<'_>,
        forward: &Forward<'_>,
        [x, cs_prev, h_prev]: [&[f32]; 3],
        gates: &mut [f32],
        to: Activations<'_>,
    ) {
        let Sizes { input, cell, .. } = self.sizes;
        let width = 4 * cell;
        let terms = [
            Term { left: x, length: input, right: self.weights, view: View::rows(0, width) },
            Term { left: h_prev, length: cell, right: self.weights, view: View::rows(input * width, width) },
        ];
        sum_of_products(ctx, gates, width, &terms);
        let (at_cell, at_forget) = self.layout.order();
        for (at, &previous) in cs_prev.iter().enumerate() {
            let (row, unit) = (at / cell, at % cell);
            let gate = |which: usize| gates[row * width + which * cell + unit] + forward.bias[which * cell + unit];
            let peep = |which: usize, state: f32| self.peephole.map_or(0.0, |weights| state * weights[which][unit]);
            let i = sigmoid(gate(0) + peep(0, previous));
            let ci = gate(at_cell).tanh();
            let f = sigmoid(gate(at_forget) + forward.forget_bias + peep(1, previous));
            let mut cs = i * ci + f * previous;
            if forward.clip > 0.0 {
                cs = cs.max(-forward.clip).min(forward.clip);
            }
            let co = cs.tanh();
            let o = sigmoid(gate(3) + peep(2, cs));
            (to.i[at], to.cs[at], to.f[at], to.o[at]) = (i, cs, f, o);
            (to.ci[at], to.co[at], to.h[at]) = (ci, co, o * co);
        }
    }

    /// The gradients of the gates and of the state before the step.
    pub fn backward(&self, seen: Seen<'_>, to: &mut Gradients<'_>) {
        let Sizes { cell, .. } = self.sizes;
        let width = 4 * cell;
        let (at_cell, at_forget) = self.layout.order();
        for at in 0..self.sizes.state() {
            let (row, unit) = (at / cell, at % cell);
            let (i, f, o, ci, co) = (seen.i[at], seen.f[at], seen.o[at], seen.ci[at], seen.co[at]);
            let (previous, h_grad) = (seen.cs_prev[at], seen.h_grad[at]);
            let d_o = o * (1.0 - o) * h_grad * co;
            let mut d_cs = (1.0 - co * co) * h_grad * o + seen.cs_grad[at];
            if let Some([_, _, output]) = self.peephole {
                d_cs += d_o * output[unit];
            }
            let d_ci = (1.0 - ci * ci) * d_cs * i;
            let d_f = f * (1.0 - f) * d_cs * previous;
            let d_i = i * (1.0 - i) * d_cs * ci;
            for (which, value) in [(0, d_i), (at_cell, d_ci), (at_forget, d_f), (3, d_o)] {
                to.gates[row * width + which * cell + unit] = value;
            }
            let mut d_previous = d_cs * f;
            if let Some([input, forget, _]) = self.peephole {
                d_previous += d_i * input[unit] + d_f * forget[unit];
                to.peephole[0][unit] += d_i * previous;
                to.peephole[1][unit] += d_f * previous;
                to.peephole[2][unit] += d_o * seen.cs[at];
            }
            to.cs_prev[at] = d_previous;
        }
    }
}
