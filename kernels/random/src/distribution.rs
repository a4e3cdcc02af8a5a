//! From random words to values, as TensorFlow does it.
#![allow(unsafe_code)]

use graphmill_runtime::philox::{DRAWS_PER_OUTPUT, LANES, Philox, Words};
use graphmill_tensor::{Element, bf16, f16};

/// Compiles an expression twice, for the processor that every build assumes and for one with 256-bit vectors, and runs the one
/// that this processor can.
macro_rules! with_vectors {
    ($name:ident($($arg:ident: $ty:ty),*) $body:expr) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,f16c")]
            fn $name($($arg: $ty),*) {
                $body
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
                // SAFETY: the processor has the features.
                return unsafe { $name($($arg),*) };
            }
        }
        $body
    }};
}

/// A real type of random numbers. Its functions fill a slice that starts with a group of [`Real::GROUP`] values, and may end within
/// one.
pub(crate) trait Real: Element {
    /// Values that one draw gives: 4, or 2 for the type that takes two words a value.
    const GROUP: usize;

    /// Uniform in [0, 1); one draw a group.
    fn uniform(stream: Philox, out: &mut [Self]);

    /// Standard normal; one draw a group.
    fn normal(stream: Philox, out: &mut [Self]);

    /// Standard normal, cut off 2 standard deviations from 0; [`truncated_draws`] set aside for each group.
    fn truncated(stream: Philox, out: &mut [Self]);
}

/// Draws from one group of the truncated normal distribution to the next: 64 for each value, whatever is used.
pub(crate) const fn truncated_draws(group: usize) -> u64 {
    group as u64 * DRAWS_PER_OUTPUT / 4
}

/// A number in [0, 1) from the low 23 bits.
#[inline(always)]
pub(crate) fn uniform_f32(word: u32) -> f32 {
    f32::from_bits(0x3F80_0000 | (word & 0x007F_FFFF)) - 1.0
}

/// A number in [0, 1) from the low 10 bits.
#[inline(always)]
fn uniform_f16(word: u32) -> f16 {
    // The value and 1 both have few enough bits for the difference to be exact in any type.
    f16::from_f32(f16::from_bits(0x3C00 | (word & 0x03FF) as u16).to_f32() - 1.0)
}

/// A number in [0, 1) from the low 7 bits.
#[inline(always)]
fn uniform_bf16(word: u32) -> bf16 {
    bf16::from_f32(f32::from_bits(0x3F80_0000 | (word & 0x7F) << 16) - 1.0)
}

/// A number in [0, 1) from the low 20 bits of the first word and all of the second.
#[inline(always)]
pub(crate) fn uniform_f64(high: u32, low: u32) -> f64 {
    f64::from_bits(0x3FF0_0000_0000_0000 | u64::from(high & 0x000F_FFFF) << 32 | u64::from(low)) - 1.0
}

/// TensorFlow keeps the argument of the logarithm away from 0 by this much.
const LEAST_UNIFORM: f64 = 1e-7;

/// Two normal numbers from two words, by Box and Muller's transform. The angle is a product of doubles, rounded once.
fn box_muller_f32(a: u32, b: u32) -> [f32; 2] {
    let u = uniform_f32(a).max(LEAST_UNIFORM as f32);
    let angle = (2.0 * std::f64::consts::PI * f64::from(uniform_f32(b))) as f32;
    let radius = (-2.0 * u.ln()).sqrt();
    [angle.sin() * radius, angle.cos() * radius]
}

fn box_muller_f64(words: [u32; 4]) -> [f64; 2] {
    let u = uniform_f64(words[0], words[1]).max(LEAST_UNIFORM);
    let angle = 2.0 * std::f64::consts::PI * uniform_f64(words[2], words[3]);
    let radius = (-2.0 * u.ln()).sqrt();
    [angle.sin() * radius, angle.cos() * radius]
}

/// Puts the values within 2 of 0 into `out`, from as many pairs as it takes.
fn keep_inside<T, U: Copy + Into<f64>>(out: &mut [T], mut pair: impl FnMut() -> [U; 2], to: fn(U) -> T) {
    let mut filled = 0;
    while filled < out.len() {
        for value in pair() {
            if value.into().abs() < 2.0
                && let Some(slot) = out.get_mut(filled)
            {
                *slot = to(value);
                filled += 1;
            }
        }
    }
}

/// Fills a slice with one value for each word, many draws at a time.
#[inline(always)]
pub(crate) fn fill_from_words<T>(stream: Philox, out: &mut [T], to: impl Fn(u32) -> T) {
    let mut draws = 0;
    let mut blocks = out.chunks_exact_mut(4 * LANES);
    for block in &mut blocks {
        let lanes = stream.at(draws).lanes();
        for (i, group) in block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for (w, value) in group.iter_mut().enumerate() {
                *value = to(lanes[w][i]);
            }
        }
        draws += LANES as u64;
    }
    for (group, draw) in blocks.into_remainder().chunks_mut(4).zip(draws..) {
        group.iter_mut().zip(stream.at(draw).words()).for_each(|(value, word)| *value = to(word));
    }
}

/// Fills a slice with one value for each pair of words, many draws at a time.
#[inline(always)]
pub(crate) fn fill_from_pairs<T>(stream: Philox, out: &mut [T], to: impl Fn(u32, u32) -> T) {
    let mut draws = 0;
    let mut blocks = out.chunks_exact_mut(2 * LANES);
    for block in &mut blocks {
        let lanes = stream.at(draws).lanes();
        for (i, group) in block.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *group = [to(lanes[0][i], lanes[1][i]), to(lanes[2][i], lanes[3][i])];
        }
        draws += LANES as u64;
    }
    for (group, draw) in blocks.into_remainder().chunks_mut(2).zip(draws..) {
        let [a, b, c, d] = stream.at(draw).words();
        group.iter_mut().zip([to(a, b), to(c, d)]).for_each(|(slot, value)| *slot = value);
    }
}

/// The types that take one word a value; normal numbers are computed as `f32` and then rounded.
macro_rules! one_word_reals {
    ($($real:ty, $uniform:expr, $round:expr;)*) => {$(
        impl Real for $real {
            const GROUP: usize = 4;

            fn uniform(stream: Philox, out: &mut [Self]) {
                with_vectors!(fill(stream: Philox, out: &mut [$real]) fill_from_words(stream, out, $uniform))
            }

            fn normal(stream: Philox, out: &mut [Self]) {
                for (group, draw) in out.chunks_mut(4).zip(0..) {
                    let [a, b, c, d] = stream.at(draw).words();
                    let pairs = [box_muller_f32(a, b), box_muller_f32(c, d)];
                    group.iter_mut().zip(pairs.as_flattened()).for_each(|(slot, &value)| *slot = $round(value));
                }
            }

            fn truncated(stream: Philox, out: &mut [Self]) {
                for (group, index) in out.chunks_mut(4).zip(0u64..) {
                    let mut words = Words::new(stream.at(index.wrapping_mul(truncated_draws(4))));
                    keep_inside(group, || box_muller_f32(words.next(), words.next()), $round);
                }
            }
        }
    )*};
}

one_word_reals! {
    f32, uniform_f32, std::convert::identity;
    f16, uniform_f16, f16::from_f32;
    bf16, uniform_bf16, bf16::from_f32;
}

impl Real for f64 {
    const GROUP: usize = 2;

    fn uniform(stream: Philox, out: &mut [Self]) {
        with_vectors!(fill(stream: Philox, out: &mut [f64]) fill_from_pairs(stream, out, uniform_f64))
    }

    fn normal(stream: Philox, out: &mut [Self]) {
        for (group, draw) in out.chunks_mut(2).zip(0..) {
            let values = box_muller_f64(stream.at(draw).words());
            group.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
        }
    }

    fn truncated(stream: Philox, out: &mut [Self]) {
        for (group, index) in out.chunks_mut(2).zip(0u64..) {
            let mut own = stream.at(index.wrapping_mul(truncated_draws(2)));
            let mut pair = || {
                let words = own.words();
                own = own.at(1);
                box_muller_f64(words)
            };
            keep_inside(group, &mut pair, std::convert::identity);
        }
    }
}

/// An integer type of random numbers; slices are as for [`Real`].
pub(crate) trait Integer: Element + PartialOrd + std::fmt::Display {
    /// Values that one draw gives.
    const GROUP: usize;

    /// Uniform in `[low, high)`, which must not be empty: a word, or two, modulo the size of the range.
    fn between(stream: Philox, low: Self, high: Self, out: &mut [Self]);
}

impl Integer for i32 {
    const GROUP: usize = 4;

    fn between(stream: Philox, low: i32, high: i32, out: &mut [i32]) {
        let range = (high as u32).wrapping_sub(low as u32).max(1);
        fill_from_words(stream, out, |word| low.wrapping_add((word % range) as i32));
    }
}

impl Integer for i64 {
    const GROUP: usize = 2;

    fn between(stream: Philox, low: i64, high: i64, out: &mut [i64]) {
        let range = (high as u64).wrapping_sub(low as u64).max(1);
        fill_from_pairs(stream, out, |a, b| low.wrapping_add((pair(a, b) % range) as i64));
    }
}

/// Two words as one number, the first one low.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
