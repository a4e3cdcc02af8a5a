//! Sounds in summaries.

use crate::inputs::{first, set_string, text};
use graphmill_formats::encode_wav;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Tensor, internal, invalid_argument};
use graphmill_wire::tensorflow::Summary;
use graphmill_wire::tensorflow::summary::{Audio, Value, value};
use prost::Message;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AudioSummary").kernel(|c| AudioSummary::new(c, Some(c.attrs().float("sample_rate")?)));
    registry.op("AudioSummaryV2").kernel(|c| AudioSummary::new(c, None));
}

/// Sounds of a batch under a tag.
struct AudioSummary {
    most: usize,
    sample_rate: Option<f32>,
}

impl AudioSummary {
    fn new(c: &Construction<'_>, sample_rate: Option<f32>) -> Result<AudioSummary> {
        Ok(AudioSummary { most: most_sounds(c)?, sample_rate })
    }
}

impl Kernel for AudioSummary {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tag, sounds) = (ctx.input(0)?, ctx.input(1)?);
        if !tag.shape().is_scalar() {
            return Err(invalid_argument!("Tag must be a scalar"));
        }
        let sample_rate = match self.sample_rate {
            Some(rate) => rate,
            None => ctx.input(2)?.scalar_value::<f32>()?,
        };
        let value = audio_values(&text(first(tag)?), sounds, self.most, sample_rate)?;
        set_string(ctx, 0, Summary { value }.encode_to_vec())
    }
}

/// The attribute `max_outputs`.
pub(super) fn most_sounds(c: &Construction<'_>) -> Result<usize> {
    match usize::try_from(c.attrs().int("max_outputs")?) {
        Ok(most) if most > 0 => Ok(most),
        _ => Err(invalid_argument!("max_outputs must be > 0")),
    }
}

/// Up to `most` sounds of a batch as WAV under `TAG/audio/NUMBER`, or `TAG/audio` if there is to be one at most.
pub(super) fn audio_values(tag: &str, sounds: &Tensor, most: usize, sample_rate: f32) -> Result<Vec<Value>> {
    let shape = sounds.shape();
    let (batch, frames, channels) = match *shape.dims() {
        [batch, frames] => (batch, frames, 1),
        [batch, frames, channels] => (batch, frames, channels),
        _ => return Err(invalid_argument!("Tensor must be 3-D or 2-D, got: {shape}")),
    };
    if sample_rate.is_nan() || sample_rate <= 0.0 {
        return Err(invalid_argument!("sample_rate must be > 0"));
    }
    let samples = sounds.as_slice::<f32>()?;
    let mut values = Vec::new();
    for i in 0..batch.min(most) {
        let range = i * frames * channels..(i + 1) * frames * channels;
        let sound = samples.get(range).ok_or_else(|| internal!("a sound is out of range"))?;
        let rate = (sample_rate.round_ties_even() as u64).max(1);
        let audio = Audio {
            sample_rate,
            num_channels: channels as i64,
            length_frames: frames as i64,
            encoded_audio_string: encode_wav(sound, rate, channels, frames)?.into(),
            content_type: "audio/wav".to_owned(),
        };
        let tag = if most > 1 { format!("{tag}/audio/{i}") } else { format!("{tag}/audio") };
        values.push(Value { tag, value: Some(value::Value::Audio(audio)), ..Value::default() });
    }
    Ok(values)
}
