//! `AudioSpectrogram`: the squared magnitudes of the spectrum of windows of sound.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, internal, invalid_argument};
use realfft::RealFftPlanner;
use std::f64::consts::PI;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AudioSpectrogram").kernel(AudioSpectrogram::new);
}

/// Takes `[samples, channels]` to `[channels, windows, frequencies]`. Windows are weighted with a Hann function and filled up with
/// zeros to a power of two.
struct AudioSpectrogram {
    window: usize,
    stride: usize,
    squared: bool,
}

impl AudioSpectrogram {
    fn new(c: &Construction<'_>) -> Result<AudioSpectrogram> {
        let (window, stride) = (c.attrs().int("window_size")?, c.attrs().int("stride")?);
        let squared = c.attrs().bool("magnitude_squared")?;
        let positive = |value: i64, least: i64| i32::try_from(value).ok().filter(|_| value >= least);
        match (positive(window, 2), positive(stride, 1)) {
            (Some(window), Some(stride)) => {
                Ok(AudioSpectrogram { window: window as usize, stride: stride as usize, squared })
            }
            _ => {
                Err(invalid_argument!("Spectrogram initialization failed for window size {window} and stride {stride}"))
            }
        }
    }
}

impl Kernel for AudioSpectrogram {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let &[samples, channels] = input.shape().dims() else {
            return Err(invalid_argument!("input must be 2-dimensional{}", input.shape()));
        };
        let length = self.window.next_power_of_two();
        let frequencies = 1 + length / 2;
        let windows = samples.checked_sub(self.window).map_or(0, |rest| 1 + rest / self.stride);
        let mut output = Tensor::zeros(input.dtype(), Shape::from_dims(&[channels, windows, frequencies])?)?;
        let out = output.as_mut_slice::<f32>()?;
        if out.is_empty() {
            return ctx.set_output(0, output);
        }
        let turn = 2.0 * PI / self.window as f64;
        let weights: Vec<f64> = (0..self.window).map(|i| 0.5 - 0.5 * (turn * i as f64).cos()).collect();
        let plan = RealFftPlanner::<f64>::new().plan_fft_forward(length);
        let (mut window, mut spectrum) = (plan.make_input_vec(), plan.make_output_vec());
        let sound = input.as_slice::<f32>()?;
        for (i, out) in out.chunks_exact_mut(frequencies).enumerate() {
            let (channel, start) = (i / windows, i % windows * self.stride);
            let values = sound.iter().skip(start * channels + channel).step_by(channels);
            window.fill(0.0);
            for ((place, &value), weight) in window.iter_mut().zip(values).zip(&weights) {
                *place = f64::from(value) * weight;
            }
            plan.process(&mut window, &mut spectrum).map_err(|error| internal!("a transform failed: {error}"))?;
            for (out, value) in out.iter_mut().zip(&spectrum) {
                let square = value.norm_sqr() as f32;
                *out = if self.squared { square } else { square.sqrt() };
            }
        }
        ctx.set_output(0, output)
    }
}
