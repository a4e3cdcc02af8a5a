//! Sound in WAV files: 16-bit linear samples.

use crate::coding::u32_at;
use graphmill_tensor::{Result, invalid_argument, out_of_range};

/// Bytes in front of the samples.
const HEADER: usize = 44;

/// Samples as a WAV file: `frames` times `channels` of them, between -1 and 1.
///
/// # Errors
/// `INVALID_ARGUMENT` for numbers that the format cannot hold.
pub fn encode_wav(samples: &[f32], sample_rate: u64, channels: usize, frames: usize) -> Result<Vec<u8>> {
    let rate = u32::try_from(sample_rate).ok().filter(|&rate| rate > 0);
    let Some(rate) = rate else {
        return Err(invalid_argument!("sample_rate must be in (0, 2^32), got: {sample_rate}"));
    };
    let Some(channel_count) = u16::try_from(channels).ok().filter(|&count| count > 0) else {
        return Err(invalid_argument!("num_channels must be in (0, 2^16), got: {channels}"));
    };
    if frames == 0 {
        return Err(invalid_argument!("num_frames must be positive."));
    }
    let bytes = frames.checked_mul(channels).and_then(|count| count.checked_mul(2));
    let size = bytes.and_then(|bytes| u32::try_from(bytes.checked_add(HEADER)?).ok());
    let (Some(bytes), Some(size)) = (bytes, size) else {
        return Err(invalid_argument!("Provided channels and frames cannot be encoded as a WAV."));
    };
    let per_frame = channel_count.wrapping_mul(2);
    let mut file = Vec::with_capacity(size as usize);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(size - 8).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16u32.to_le_bytes());
    file.extend_from_slice(&1u16.to_le_bytes());
    file.extend_from_slice(&channel_count.to_le_bytes());
    file.extend_from_slice(&rate.to_le_bytes());
    file.extend_from_slice(&rate.wrapping_mul(u32::from(per_frame)).to_le_bytes());
    file.extend_from_slice(&per_frame.to_le_bytes());
    file.extend_from_slice(&16u16.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&(bytes as u32).to_le_bytes());
    for &sample in samples.iter().take(bytes / 2) {
        let scaled = (sample * 32768.0).round_ties_even().clamp(-32768.0, 32767.0);
        file.extend_from_slice(&(scaled as i16).to_le_bytes());
    }
    Ok(file)
}

/// What a WAV file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Wav {
    /// Samples, all channels of a frame together, between -1 and 1.
    pub samples: Vec<f32>,
    /// Channels in a frame.
    pub channels: u16,
    /// Frames.
    pub frames: usize,
    /// Frames in a second.
    pub sample_rate: u32,
}

/// Reads a WAV file of 16-bit linear samples.
///
/// # Errors
/// `INVALID_ARGUMENT` for another format, `OUT_OF_RANGE` for a file that is cut off.
pub fn decode_wav(file: &[u8]) -> Result<Wav> {
    let mut rest = file;
    expect(&mut rest, b"RIFF")?;
    take_u32(&mut rest)?;
    expect(&mut rest, b"WAVE")?;
    expect(&mut rest, b"fmt ")?;
    let format_size = take_u32(&mut rest)?;
    if format_size != 16 && format_size != 18 {
        return Err(invalid_argument!("Bad format chunk size for WAV: Expected 16 or 18, but got{format_size}"));
    }
    let format = take_u16(&mut rest)?;
    if format != 1 {
        return Err(invalid_argument!("Bad audio format for WAV: Expected 1 (PCM), but got{format}"));
    }
    let channels = take_u16(&mut rest)?;
    if channels == 0 {
        return Err(invalid_argument!("Bad number of channels for WAV: Expected at least 1, but got 0"));
    }
    let sample_rate = take_u32(&mut rest)?;
    let bytes_per_second = take_u32(&mut rest)?;
    let bytes_per_sample = take_u16(&mut rest)?;
    let bits_per_sample = take_u16(&mut rest)?;
    if bits_per_sample != 16 {
        return Err(invalid_argument!("Can only read 16-bit WAV files, but received {bits_per_sample}"));
    }
    let expected = u32::from(bits_per_sample) * u32::from(channels) / 8;
    if u32::from(bytes_per_sample) != expected {
        return Err(invalid_argument!(
            "Bad bytes per sample in WAV header: Expected {expected} but got {bytes_per_sample}"
        ));
    }
    if u64::from(bytes_per_second) != u64::from(expected) * u64::from(sample_rate) {
        return Err(invalid_argument!(
            "Bad bytes per second in WAV header: Expected {} but got {bytes_per_second} (sample_rate={sample_rate}, \
             bytes_per_sample={bytes_per_sample})",
            u64::from(expected) * u64::from(sample_rate)
        ));
    }
    if format_size == 18 {
        take_u16(&mut rest)?;
    }
    let mut samples = None;
    while !rest.is_empty() {
        let name: [u8; 4] = *take(&mut rest, 4)?.first_chunk().ok_or_else(cut_off)?;
        let size = take_u32(&mut rest)? as usize;
        if i32::try_from(size).is_err() {
            return Err(invalid_argument!("WAV data chunk '{}' is too large", String::from_utf8_lossy(&name)));
        }
        if &name == b"data" {
            if samples.is_some() {
                return Err(invalid_argument!("More than one data chunk found in WAV"));
            }
            let whole = size / usize::from(bytes_per_sample) * usize::from(bytes_per_sample);
            let bytes = take(&mut rest, whole)?;
            let behind = (size - whole).min(rest.len());
            take(&mut rest, behind)?;
            let (pairs, _) = bytes.as_chunks::<2>();
            samples = Some(pairs.iter().map(|&pair| f32::from(i16::from_le_bytes(pair)) / 32768.0).collect::<Vec<_>>());
        } else {
            take(&mut rest, size)?;
        }
    }
    match samples {
        Some(samples) => {
            let frames = samples.len() / usize::from(channels);
            Ok(Wav { samples, channels, frames, sample_rate })
        }
        None => Err(invalid_argument!("No data chunk found in WAV")),
    }
}

fn cut_off() -> graphmill_tensor::Status {
    out_of_range!("Data too short when trying to read string")
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (front, back) = rest.split_at_checked(count).ok_or_else(cut_off)?;
    *rest = back;
    Ok(front)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32> {
    u32_at(take(rest, 4)?, 0).ok_or_else(cut_off)
}

fn take_u16(rest: &mut &[u8]) -> Result<u16> {
    take(rest, 2)?.first_chunk().copied().map(u16::from_le_bytes).ok_or_else(cut_off)
}

fn expect(rest: &mut &[u8], text: &[u8; 4]) -> Result<()> {
    let found = take(rest, 4)?;
    if found == text {
        return Ok(());
    }
    Err(invalid_argument!(
        "Header mismatch: Expected {} but found {}",
        String::from_utf8_lossy(text),
        String::from_utf8_lossy(found)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_comes_back() {
        let samples = [0.0, 0.5, -0.5, 1.0, -1.0, 0.25];
        let file = encode_wav(&samples, 44_100, 2, 3).unwrap();
        let wav = decode_wav(&file).unwrap();
        assert_eq!((wav.channels, wav.frames, wav.sample_rate), (2, 3, 44_100));
        assert_eq!(wav.samples, [0.0, 0.5, -0.5, 32767.0 / 32768.0, -1.0, 0.25]);
        for length in 0..file.len() {
            assert!(decode_wav(&file[..length]).is_err(), "{length}");
        }
        assert!(encode_wav(&samples, 0, 2, 3).is_err());
        assert!(encode_wav(&samples, 1, 0, 3).is_err());
    }
}
