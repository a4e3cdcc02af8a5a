//! The inner loops of the direct convolutions: sums for a few pixels by a few vectors of channels, held in registers.
//!
//! All functions here check the reach of what they are given against the slices once, before a loop that does not.
#![allow(unsafe_code)]

use crate::simd::Level;

/// Vectors of channels in a tile.
const VECTORS: usize = 2;

/// A run of elements in the source: how far it starts behind a pixel's first element, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub offset: usize,
    pub length: usize,
}

/// Sums for pixels that lie in one row: `target[i * target_step + c] (+)= sum over l of source[start + i * step + at(l)] *
/// panel[l * panel_step + c]`, where `at` counts through the runs.
pub(super) struct Correlation<'a> {
    pub source: &'a [f32],
    pub start: usize,
    pub step: usize,
    pub runs: &'a [Run],
    /// Elements behind a pixel's first element that the runs reach to: the greatest offset plus length.
    pub reach: usize,
    /// For each element of the runs the weights of the channels, filled up to whole vectors.
    pub panel: &'a [f32],
    pub panel_step: usize,
    /// How many pixels, at most [`Tiles::pixels`].
    pub pixels: usize,
    /// How many channels, at most [`Tiles::width`].
    pub channels: usize,
    /// Whether to add to the target.
    pub add: bool,
}

/// Sums over pixels: `target[i * target_step + c] += sum over y, x of source[start + y * row + x * step + i] * gradient[y *
/// gradient_row + x * gradient_step + c]`.
pub(super) struct Outer<'a> {
    pub source: &'a [f32],
    pub start: usize,
    pub row: usize,
    pub step: usize,
    pub gradient: &'a [f32],
    pub gradient_start: usize,
    pub gradient_row: usize,
    pub gradient_step: usize,
    pub rows: usize,
    pub cols: usize,
    /// How many elements of the source, at most [`Tiles::pixels`].
    pub taps: usize,
    /// How many channels, at most [`Tiles::width`].
    pub channels: usize,
}

type CorrelationLoop = unsafe fn(&Correlation<'_>, *mut f32, usize);
type OuterLoop = unsafe fn(&Outer<'_>, *mut f32, usize);

/// The loops for one kind of vectors.
pub(super) struct Tiles {
    lanes: usize,
    /// By number of pixels less 1, then by number of vectors less 1.
    correlations: &'static [[CorrelationLoop; VECTORS]],
    outers: &'static [[OuterLoop; VECTORS]],
}

impl Tiles {
    /// The loops for this machine, if it has vectors that they exist for.
    pub fn detect() -> Option<&'static Tiles> {
        match crate::simd::level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Some(&avx512::TILES),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Some(&avx2::TILES),
            _ => None,
        }
    }

    /// Pixels in a tile at most.
    pub fn pixels(&self) -> usize {
        self.correlations.len()
    }

    /// Channels in a tile at most.
    pub fn width(&self) -> usize {
        self.lanes * VECTORS
    }

    /// Channels in the narrower of a tile's vectors that hold `channels`; panels have rows of this many.
    pub fn panel_width(&self, channels: usize) -> usize {
        channels.div_ceil(self.lanes).min(VECTORS) * self.lanes
    }

    /// Computes one tile of a correlation at the beginning of `target`, whose pixels are `target_step` apart.
    pub fn correlate(&self, c: &Correlation<'_>, target: &mut [f32], target_step: usize) {
        let (last, vectors) = (c.pixels - 1, c.channels.div_ceil(self.lanes));
        let weights: usize = c.runs.iter().map(|r| r.length).sum();
        assert!(c.runs.iter().all(|r| r.offset + r.length <= c.reach));
        assert!(c.start + last * c.step + c.reach <= c.source.len());
        assert!(weights == 0 || (weights - 1) * c.panel_step + vectors * self.lanes <= c.panel.len());
        assert!(last * target_step + c.channels <= target.len());
        let run = self.correlations[last][vectors - 1];
        // SAFETY: the loop reads the source up to the reach behind each pixel, the panel row by row, and writes the channels
        // of each pixel, all checked above; `detect` hands out only loops whose instructions the machine has.
        unsafe { run(c, target.as_mut_ptr(), target_step) }
    }

    /// Adds one tile of an outer sum at the beginning of `target`, whose rows are `target_step` apart.
    pub fn outer(&self, o: &Outer<'_>, target: &mut [f32], target_step: usize) {
        let (last, vectors) = (o.taps - 1, o.channels.div_ceil(self.lanes));
        let (down, right) = (o.rows - 1, o.cols - 1);
        assert!(o.start + down * o.row + right * o.step + o.taps <= o.source.len());
        let gradient_end = o.gradient_start + down * o.gradient_row + right * o.gradient_step + o.channels;
        assert!(gradient_end <= o.gradient.len());
        assert!(last * target_step + o.channels <= target.len());
        let run = self.outers[last][vectors - 1];
        // SAFETY: the loop reads `taps` elements of the source and `channels` of the gradient at each pixel, and reads and
        // writes the channels of each row of the target, all checked above; `detect` hands out only loops whose instructions
        // the machine has.
        unsafe { run(o, target.as_mut_ptr(), target_step) }
    }
}

/// The loops for one kind of vectors: `splat`, `load`, `fma` and masked `load` and `store` are its instructions.
macro_rules! loops {
    (
        $module:ident, $features:literal, $lanes:literal, $vector:ty, $mask:ty, [$($pixels:literal)*],
        zero: $zero:expr,
        splat: |$s:ident| $splat:expr,
        load: |$l:ident| $load:expr,
        fma: |$a:ident, $b:ident, $c:ident| $fma:expr,
        mask: |$n:ident| $mask_of:expr,
        masked_load: |$lp:ident, $lm:ident| $masked_load:expr,
        masked_store: |$sp:ident, $sm:ident, $sv:ident| $masked_store:expr $(,)?
    ) => {
        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::{Correlation, CorrelationLoop, Outer, OuterLoop, Tiles, VECTORS};
            use std::arch::x86_64::*;

            const LANES: usize = $lanes;

            pub(super) static TILES: Tiles = Tiles {
                lanes: LANES,
                correlations: &[$([correlate::<$pixels, 1> as CorrelationLoop, correlate::<$pixels, 2>]),*],
                outers: &[$([outer::<$pixels, 1> as OuterLoop, outer::<$pixels, 2>]),*],
            };

            #[target_feature(enable = $features)]
            fn masks<const V: usize>(channels: usize) -> [$mask; V] {
                std::array::from_fn(|v| {
                    let $n = channels.saturating_sub(v * LANES).min(LANES);
                    $mask_of
                })
            }

            /// # Safety
            /// See [`Tiles::correlate`].
            #[target_feature(enable = $features)]
            unsafe fn correlate<const P: usize, const V: usize>(c: &Correlation<'_>, target: *mut f32, target_step: usize) {
                const { assert!(V <= VECTORS) };
                let masks = masks::<V>(c.channels);
                let mut sums = [[$zero; V]; P];
                // SAFETY: the caller has checked that every address here lies in its slice.
                unsafe {
                    if c.add {
                        for p in 0..P {
                            for v in 0..V {
                                let ($lp, $lm) = (target.add(p * target_step + v * LANES), masks[v]);
                                sums[p][v] = $masked_load;
                            }
                        }
                    }
                    let mut panel = c.panel.as_ptr();
                    let start = c.source.as_ptr().add(c.start);
                    for run in c.runs {
                        let source = start.add(run.offset);
                        for l in 0..run.length {
                            let weights: [$vector; V] = std::array::from_fn(|v| {
                                let $l = panel.add(v * LANES);
                                $load
                            });
                            panel = panel.wrapping_add(c.panel_step);
                            for p in 0..P {
                                let $s = source.add(l + p * c.step);
                                let $a = $splat;
                                for v in 0..V {
                                    let ($b, $c) = (weights[v], sums[p][v]);
                                    sums[p][v] = $fma;
                                }
                            }
                        }
                    }
                    for p in 0..P {
                        for v in 0..V {
                            let ($sp, $sm, $sv) = (target.add(p * target_step + v * LANES), masks[v], sums[p][v]);
                            $masked_store;
                        }
                    }
                }
            }

            /// # Safety
            /// See [`Tiles::outer`].
            #[target_feature(enable = $features)]
            unsafe fn outer<const P: usize, const V: usize>(o: &Outer<'_>, target: *mut f32, target_step: usize) {
                let masks = masks::<V>(o.channels);
                let mut sums = [[$zero; V]; P];
                // SAFETY: the caller has checked that every address here lies in its slice.
                unsafe {
                    for p in 0..P {
                        for v in 0..V {
                            let ($lp, $lm) = (target.add(p * target_step + v * LANES), masks[v]);
                            sums[p][v] = $masked_load;
                        }
                    }
                    for y in 0..o.rows {
                        let mut source = o.source.as_ptr().add(o.start + y * o.row);
                        let mut gradient = o.gradient.as_ptr().add(o.gradient_start + y * o.gradient_row);
                        for _ in 0..o.cols {
                            let factors: [$vector; V] = std::array::from_fn(|v| {
                                let ($lp, $lm) = (gradient.wrapping_add(v * LANES), masks[v]);
                                $masked_load
                            });
                            for p in 0..P {
                                let $s = source.add(p);
                                let $a = $splat;
                                for v in 0..V {
                                    let ($b, $c) = (factors[v], sums[p][v]);
                                    sums[p][v] = $fma;
                                }
                            }
                            source = source.wrapping_add(o.step);
                            gradient = gradient.wrapping_add(o.gradient_step);
                        }
                    }
                    for p in 0..P {
                        for v in 0..V {
                            let ($sp, $sm, $sv) = (target.add(p * target_step + v * LANES), masks[v], sums[p][v]);
                            $masked_store;
                        }
                    }
                }
            }
        }
    };
}

loops! {
    avx512, "avx512f", 16, __m512, __mmask16, [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
    zero: _mm512_setzero_ps(),
    splat: |s| _mm512_set1_ps(*s),
    load: |l| _mm512_loadu_ps(l),
    fma: |a, b, c| _mm512_fmadd_ps(a, b, c),
    mask: |n| ((1u32 << n) - 1) as __mmask16,
    masked_load: |lp, lm| _mm512_maskz_loadu_ps(lm, lp),
    masked_store: |sp, sm, sv| _mm512_mask_storeu_ps(sp, sm, sv),
}

loops! {
    avx2, "avx2,fma", 8, __m256, __m256i, [1 2 3 4 5 6],
    zero: _mm256_setzero_ps(),
    splat: |s| _mm256_set1_ps(*s),
    load: |l| _mm256_loadu_ps(l),
    fma: |a, b, c| _mm256_fmadd_ps(a, b, c),
    mask: |n| _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
    masked_load: |lp, lm| _mm256_maskload_ps(lp, lm),
    masked_store: |sp, sm, sv| _mm256_maskstore_ps(sp, sm, sv),
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The loops that this machine can run.
    fn available() -> Vec<&'static Tiles> {
        let all = [(Level::Avx2, &avx2::TILES), (Level::Avx512, &avx512::TILES)];
        all.into_iter().filter(|(needed, _)| crate::simd::level() >= *needed).map(|(_, tiles)| tiles).collect()
    }

    fn numbers(count: usize, period: usize) -> Vec<f32> {
        (0..count).map(|i| (i * 5 % period) as f32 - 3.0).collect()
    }

    #[test]
    fn correlations_of_every_size_are_exact() {
        let source = numbers(200, 11);
        let runs = [Run { offset: 1, length: 3 }, Run { offset: 9, length: 2 }];
        for tiles in available() {
            let panel = numbers(5 * tiles.width(), 7);
            for (pixels, channels) in (1..=tiles.pixels()).flat_map(|p| (1..=tiles.width()).map(move |c| (p, c))) {
                for add in [false, true] {
                    let mut target = vec![7.0; pixels * 40 + 40];
                    let correlation = Correlation {
                        source: &source,
                        start: 2,
                        step: 4,
                        runs: &runs,
                        reach: 11,
                        panel: &panel,
                        panel_step: tiles.width(),
                        pixels,
                        channels,
                        add,
                    };
                    tiles.correlate(&correlation, &mut target, 40);
                    let sum = |pixel: usize, channel: usize| -> f32 {
                        let at = |l: usize| source[2 + pixel * 4 + [1, 2, 3, 9, 10][l]];
                        (0..5).map(|l| at(l) * panel[l * tiles.width() + channel]).sum()
                    };
                    for (i, &got) in target.iter().enumerate() {
                        let (pixel, channel) = (i / 40, i % 40);
                        let inside = pixel < pixels && channel < channels;
                        let before = if add || !inside { 7.0 } else { 0.0 };
                        assert_eq!(got, before + if inside { sum(pixel, channel) } else { 0.0 });
                    }
                }
            }
        }
    }

    #[test]
    fn outer_sums_of_every_size_are_exact() {
        let (source, gradient) = (numbers(300, 11), numbers(400, 7));
        for tiles in available() {
            for (taps, channels) in (1..=tiles.pixels()).flat_map(|p| (1..=tiles.width()).map(move |c| (p, c))) {
                let mut target = vec![1.0; taps * 33 + 33];
                let outer = Outer {
                    source: &source,
                    start: 3,
                    row: 50,
                    step: 7,
                    gradient: &gradient,
                    gradient_start: 5,
                    gradient_row: 120,
                    gradient_step: 36,
                    rows: 2,
                    cols: 3,
                    taps,
                    channels,
                };
                tiles.outer(&outer, &mut target, 33);
                for (i, &got) in target.iter().enumerate() {
                    let (tap, channel) = (i / 33, i % 33);
                    let product = |y: usize, x: usize| {
                        source[3 + y * 50 + x * 7 + tap] * gradient[5 + y * 120 + x * 36 + channel]
                    };
                    let sum: f32 = (0..6).map(|p| product(p / 3, p % 3)).sum();
                    assert_eq!(got, 1.0 + if tap < taps && channel < channels { sum } else { 0.0 });
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_tile_that_reaches_past_its_source_is_refused() {
        let tiles = available().pop().expect("vectors");
        let correlation = Correlation {
            source: &[1.0; 8],
            start: 4,
            step: 1,
            runs: &[Run { offset: 0, length: 4 }],
            reach: 4,
            panel: &[1.0; 200],
            panel_step: tiles.width(),
            pixels: 2,
            channels: 1,
            add: false,
        };
        tiles.correlate(&correlation, &mut [0.0; 80], 40);
    }
}
