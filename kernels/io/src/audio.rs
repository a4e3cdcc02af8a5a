//! Sounds as WAV.

use crate::inputs::{first, set_string};
use graphmill_formats::{decode_wav, encode_wav};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DecodeWav").kernel(DecodeWav::new);
    registry.op("EncodeWav").kernel(|_| Ok(EncodeWav));
}

/// Decodes a sound to frames of channels between -1 and 1, and gives its sample rate. With a number of channels asked for, the last one
/// stands in for those that the file lacks; with a number of frames, silence follows.
struct DecodeWav {
    channels: Option<usize>,
    frames: Option<usize>,
}

impl DecodeWav {
    fn new(c: &Construction<'_>) -> Result<DecodeWav> {
        let wanted = |name: &str| Ok(usize::try_from(c.attrs().int32(name)?).ok());
        Ok(DecodeWav { channels: wanted("desired_channels")?, frames: wanted("desired_samples")? })
    }
}

impl Kernel for DecodeWav {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let contents = ctx.input(0)?;
        if !contents.shape().is_scalar() {
            return Err(invalid_argument!("contents must be scalar, got shape {}", contents.shape()));
        }
        let wav = decode_wav(first(contents)?)?;
        let own = usize::from(wav.channels);
        let (channels, frames) = (self.channels.unwrap_or(own), self.frames.unwrap_or(wav.frames));
        let mut output = Tensor::zeros(DType::Float, Shape::from_dims(&[frames, channels])?)?;
        if channels > 0 {
            let source = wav.samples.chunks_exact(own);
            for (target, source) in output.as_mut_slice::<f32>()?.chunks_exact_mut(channels).zip(source) {
                for (i, sample) in target.iter_mut().enumerate() {
                    *sample = source.get(i.min(own - 1)).copied().unwrap_or_default();
                }
            }
        }
        ctx.set_output(0, output)?;
        ctx.set_scalar(1, wav.sample_rate as i32)
    }
}

/// Encodes frames of channels.
struct EncodeWav;

impl Kernel for EncodeWav {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (audio, rate) = (ctx.input(0)?, ctx.input(1)?);
        let &[frames, channels] = audio.shape().dims() else {
            return Err(invalid_argument!("audio must be 2-dimensional{}", audio.shape()));
        };
        if !rate.shape().is_scalar() {
            return Err(invalid_argument!(
                "Input sample_rate should be a scalar tensor, got {} instead.",
                rate.shape()
            ));
        }
        if i32::try_from(channels).is_err() || i32::try_from(frames).is_err() {
            return Err(invalid_argument!("Cannot encode audio with >= max int32 elements"));
        }
        let rate = rate.scalar_value::<i32>()?;
        let rate =
            u64::try_from(rate).map_err(|_| invalid_argument!("sample_rate must be in (0, 2^32), got: {rate}"))?;
        let file = encode_wav(audio.as_slice::<f32>()?, rate, channels, frames)?;
        set_string(ctx, 0, file)
    }
}
