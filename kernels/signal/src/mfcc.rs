//! `Mfcc`: cepstral coefficients of spectra on the mel scale, as recognisers of speech take them.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use std::f64::consts::PI;

/// What the energy of a band is at least, before its logarithm is taken.
const FLOOR: f64 = 1e-12;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Mfcc").kernel(Mfcc::new);
}

/// Takes `[channels, windows, frequencies]` and a sample rate to `[channels, windows, coefficients]`.
struct Mfcc {
    upper: f64,
    lower: f64,
    bands: i64,
    coefficients: i64,
}

impl Mfcc {
    fn new(c: &Construction<'_>) -> Result<Mfcc> {
        Ok(Mfcc {
            upper: f64::from(c.attrs().float("upper_frequency_limit")?),
            lower: f64::from(c.attrs().float("lower_frequency_limit")?),
            bands: c.attrs().int("filterbank_channel_count")?,
            coefficients: c.attrs().int("dct_coefficient_count")?,
        })
    }

    /// The number of bands and of coefficients, if the whole makes sense for spectra like this.
    fn sizes(&self, frequencies: usize, sample_rate: i32) -> Option<(usize, usize)> {
        let limits = self.lower >= 0.0 && self.upper > self.lower;
        let counts = (1..=self.bands).contains(&self.coefficients) && self.bands <= i64::from(i32::MAX);
        let sensible = limits && counts && sample_rate > 0 && frequencies >= 2;
        sensible.then_some((self.bands as usize, self.coefficients as usize))
    }
}

fn mel(frequency: f64) -> f64 {
    1127.0 * (frequency / 700.0).ln_1p()
}

/// Triangular bands that overlap: each frequency falls on the right side of one and on the left side of the next.
struct Filters {
    /// The first frequency in use.
    start: usize,
    /// For each frequency in use, the band on whose left side it falls, and its weight in the band before that.
    places: Vec<(usize, f64)>,
    bands: usize,
}

impl Filters {
    fn new(op: &Mfcc, bands: usize, frequencies: usize, sample_rate: i32) -> Filters {
        let (low, high) = (mel(op.lower), mel(op.upper));
        let spacing = (high - low) / (bands + 1) as f64;
        let centre = |band: usize| low + spacing * (band + 1) as f64;
        let width = 0.5 * f64::from(sample_rate) / (frequencies - 1) as f64;
        let start = (1.5 + op.lower / width) as usize;
        let end = (op.upper / width) as usize;
        // Spectra that end before the upper limit are too short: all bands are empty then.
        let used = if end < frequencies { start..end + 1 } else { start..start };
        let mut band = 0;
        let mut places = Vec::with_capacity(used.len());
        for frequency in used {
            let at = mel(frequency as f64 * width);
            while band < bands && centre(band) < at {
                band += 1;
            }
            let weight = if band > 0 {
                (centre(band) - at) / (centre(band) - centre(band - 1))
            } else {
                (centre(0) - at) / (centre(0) - low)
            };
            places.push((band, weight));
        }
        Filters { start, places, bands: if end < frequencies { bands } else { 0 } }
    }

    fn apply(&self, spectrum: &[f32], bands: &mut [f64]) {
        bands.fill(0.0);
        let used = spectrum.iter().skip(self.start);
        for (&energy, &(band, weight)) in used.zip(&self.places) {
            let magnitude = f64::from(energy).sqrt();
            let weighted = magnitude * weight;
            if let Some(before) = band.checked_sub(1).and_then(|band| bands.get_mut(band)) {
                *before += weighted;
            }
            if let Some(own) = bands.get_mut(band) {
                *own += magnitude - weighted;
            }
        }
    }
}

impl Kernel for Mfcc {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (spectrogram, rate) = (ctx.input(0)?, ctx.input(1)?);
        let &[channels, windows, frequencies] = spectrogram.shape().dims() else {
            return Err(invalid_argument!("spectrogram must be 3-dimensional{}", spectrogram.shape()));
        };
        if !rate.shape().is_scalar() {
            return Err(invalid_argument!(
                "Input sample_rate should be a scalar tensor, got {} instead.",
                rate.shape()
            ));
        }
        let rate = rate.scalar_value::<i32>()?;
        let Some((bands, coefficients)) = self.sizes(frequencies, rate) else {
            return Err(invalid_argument!(
                "Mfcc initialization failed for channel count {frequencies}, sample rate {rate} and filterbank channel count {}",
                self.bands
            ));
        };
        let mut output = Tensor::zeros(spectrogram.dtype(), Shape::from_dims(&[channels, windows, coefficients])?)?;
        let filters = Filters::new(self, bands, frequencies, rate);
        let mut energies = Tensor::zeros(DType::Double, Shape::vector(filters.bands))?;
        let energies = energies.as_mut_slice::<f64>()?;
        let (norm, turn) = ((2.0 / bands as f64).sqrt(), PI / bands as f64);
        let mut cosines = Tensor::zeros(DType::Double, Shape::from_dims(&[coefficients, energies.len()])?)?;
        let cosines = cosines.as_mut_slice::<f64>()?;
        for (at, cosine) in cosines.iter_mut().enumerate() {
            let (i, j) = (at / energies.len(), at % energies.len());
            *cosine = norm * (i as f64 * turn * (j as f64 + 0.5)).cos();
        }
        let spectra = spectrogram.as_slice::<f32>()?.chunks_exact(frequencies);
        for (spectrum, out) in spectra.zip(output.as_mut_slice::<f32>()?.chunks_exact_mut(coefficients)) {
            filters.apply(spectrum, energies);
            for energy in energies.iter_mut() {
                *energy = (if *energy < FLOOR { FLOOR } else { *energy }).ln();
            }
            for (out, cosines) in out.iter_mut().zip(cosines.chunks_exact(energies.len().max(1))) {
                *out = energies.iter().zip(cosines).map(|(energy, cosine)| energy * cosine).sum::<f64>() as f32;
            }
        }
        ctx.set_output(0, output)
    }
}
