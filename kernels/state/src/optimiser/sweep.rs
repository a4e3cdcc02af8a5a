//! Running a rule over slices.
#![allow(unsafe_code)]

use super::rule::{Field, Step};
use graphmill_runtime::Context;
use parking_lot::Mutex;
use std::array::from_fn;

/// Elements that are loaded before a rule runs on them. Copies of a fixed size on the stack cannot overlap, which is what lets the
/// compiler use vector instructions for any number of variables.
const BLOCK: usize = 64;
/// Elements in a part that one thread works on.
const PART: usize = 8192;
/// Time for an element in nanoseconds, roughly.
const COST: f64 = 1.5;

/// Runs a rule over elements at the same positions of the variables and the gradient, all of one length.
pub(crate) fn sweep<T: Field, R: Step<T, V, S>, const V: usize, const S: usize>(
    rule: &R,
    state: [&mut [T]; V],
    gradient: &[T],
    scalars: &[T; S],
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has the features.
        return unsafe { vector_sweep(rule, state, gradient, scalars) };
    }
    blocks(rule, state, gradient, scalars);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn vector_sweep<T: Field, R: Step<T, V, S>, const V: usize, const S: usize>(
    rule: &R,
    state: [&mut [T]; V],
    gradient: &[T],
    scalars: &[T; S],
) {
    blocks(rule, state, gradient, scalars);
}

#[inline(always)]
fn blocks<T: Field, R: Step<T, V, S>, const V: usize, const S: usize>(
    rule: &R,
    mut state: [&mut [T]; V],
    gradient: &[T],
    scalars: &[T; S],
) {
    let mut start = 0;
    for gradient in gradient.chunks(BLOCK) {
        let end = start + gradient.len();
        let mut held = [[T::default(); BLOCK]; V];
        for (held, state) in held.iter_mut().zip(&state) {
            held[..gradient.len()].copy_from_slice(&state[start..end]);
        }
        if let Ok(gradient) = <&[T; BLOCK]>::try_from(gradient) {
            for i in 0..BLOCK {
                let new = rule.step(from_fn(|v| held[v][i]), gradient[i], scalars);
                (0..V).for_each(|v| held[v][i] = new[v]);
            }
        } else {
            for (i, &gradient) in gradient.iter().enumerate() {
                let new = rule.step(from_fn(|v| held[v][i]), gradient, scalars);
                (0..V).for_each(|v| held[v][i] = new[v]);
            }
        }
        for (held, state) in held.iter().zip(&mut state) {
            state[start..end].copy_from_slice(&held[..gradient.len()]);
        }
        start = end;
    }
}

/// As [`sweep`], on several threads where that is worth it.
pub(crate) fn parallel_sweep<T: Field, R: Step<T, V, S>, const V: usize, const S: usize>(
    ctx: &Context<'_>,
    rule: &R,
    mut state: [&mut [T]; V],
    gradient: &[T],
    scalars: &[T; S],
) {
    if gradient.len() <= 2 * PART {
        return sweep(rule, state, gradient, scalars);
    }
    let mut parts = Vec::with_capacity(gradient.len().div_ceil(PART));
    for gradient in gradient.chunks(PART) {
        let part: [&mut [T]; V] = from_fn(|v| {
            let (part, rest) = std::mem::take(&mut state[v]).split_at_mut(gradient.len());
            state[v] = rest;
            part
        });
        parts.push(Mutex::new(Some((part, gradient))));
    }
    ctx.parallel_for(parts.len(), COST * PART as f64, |range| {
        for part in &parts[range] {
            if let Some((part, gradient)) = part.lock().take() {
                sweep(rule, part, gradient, scalars);
            }
        }
    });
}
