//! How tensors lie in data files.

use crate::coding::{put_varint, take_varint};
use crate::{RandomAccessFile, WritableFile, checksum, mask, unmask};
use graphmill_tensor::{Bytes, DType, Result, Tensor, Variant, data_loss, internal, invalid_argument};
use graphmill_wire::tensorflow::VariantTensorDataProto;
use prost::Message;
use std::ops::Range;

/// Bytes that are read or written, and summed up while they are still in the cache, at a time.
const CHUNK: usize = 1 << 20;

/// Reads elements of a fixed size into their place; their checksum.
pub(super) fn read_plain(
    file: &dyn RandomAccessFile,
    offset: u64,
    tensor: &mut Tensor,
    elements: Range<usize>,
) -> Result<u32> {
    let mut crc = 0;
    tensor.fill_bytes(elements, |bytes| {
        let mut at = offset;
        for chunk in bytes.chunks_mut(CHUNK) {
            file.read_exact_at(at, chunk)?;
            crc = checksum::extend(crc, chunk);
            at = at.saturating_add(chunk.len() as u64);
        }
        Ok(())
    })?;
    Ok(crc)
}

/// Writes elements of a fixed size; how many bytes it took, and their checksum.
fn write_plain(file: &mut dyn WritableFile, tensor: &Tensor) -> Result<(u64, u32)> {
    let bytes = tensor.as_bytes().ok_or_else(|| internal!("{} has no plain elements", tensor.dtype()))?;
    let mut crc = 0;
    for chunk in bytes.chunks(CHUNK) {
        crc = checksum::extend(crc, chunk);
        file.write(chunk)?;
    }
    Ok((bytes.len() as u64, crc))
}

/// Writes a tensor of any type; how many bytes it took, and their checksum (unmasked).
pub(super) fn write_tensor(file: &mut dyn WritableFile, tensor: &Tensor) -> Result<(u64, u32)> {
    match tensor.dtype() {
        DType::String => write_strings(file, tensor.strings()?),
        DType::Variant => write_variants(file, tensor.variants()?),
        DType::Resource => Err(invalid_argument!("a resource cannot be saved to a checkpoint")),
        _ => write_plain(file, tensor),
    }
}

/// The length of a string as checksums take it: 32 bits where they suffice, as older checkpoints had no longer strings.
fn extend_by_length(crc: u32, length: u64, swap: bool) -> u32 {
    match u32::try_from(length) {
        Ok(short) => checksum::extend(crc, &(if swap { short.swap_bytes() } else { short }).to_le_bytes()),
        Err(_) => checksum::extend(crc, &(if swap { length.swap_bytes() } else { length }).to_le_bytes()),
    }
}

/// Lengths, the checksum of the lengths, then all strings.
fn write_strings(file: &mut dyn WritableFile, strings: &[Bytes]) -> Result<(u64, u32)> {
    let mut lengths = Vec::with_capacity(strings.len() + 4);
    let mut crc = 0;
    for string in strings {
        put_varint(&mut lengths, string.len() as u64);
        crc = extend_by_length(crc, string.len() as u64, false);
    }
    let stored = mask(crc).to_le_bytes();
    lengths.extend_from_slice(&stored);
    crc = checksum::extend(crc, &stored);
    file.write(&lengths)?;
    let mut size = lengths.len() as u64;
    for string in strings {
        file.write(string)?;
        crc = checksum::extend(crc, string);
        size += string.len() as u64;
    }
    Ok((size, crc))
}

/// Reads strings out of their bytes in the file (of a machine of the other byte order if `swap`); with them their checksum.
pub(super) fn read_strings(bytes: Bytes, count: usize, end: u64, swap: bool) -> Result<(Vec<Bytes>, u32)> {
    let too_long = || data_loss!("String lengths longer than expected offset {end}");
    let mut rest = bytes.as_ref();
    let mut crc = 0;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        let length = take_varint(&mut rest).ok_or_else(too_long)?;
        crc = extend_by_length(crc, length, swap);
        lengths.push(usize::try_from(length).map_err(|_| too_long())?);
    }
    let stored = *rest.first_chunk::<4>().ok_or_else(too_long)?;
    let expected = unmask(if swap { u32::from_be_bytes(stored) } else { u32::from_le_bytes(stored) });
    if expected != crc {
        return Err(data_loss!("The length checksum does not match: expected {expected:08} but actual is {crc:08}"));
    }
    crc = checksum::extend(crc, &stored);
    let mut at = bytes.len() - rest.len() + 4;
    let mut strings = Vec::with_capacity(count);
    for length in lengths {
        let range = at..at.checked_add(length).filter(|&end| end <= bytes.len()).ok_or_else(too_long)?;
        at = range.end;
        let string = bytes.slice(range);
        crc = checksum::extend(crc, &string);
        strings.push(string);
    }
    Ok((strings, crc))
}

/// For each value its length, its message, and the checksum so far.
fn write_variants(file: &mut dyn WritableFile, variants: &[Variant]) -> Result<(u64, u32)> {
    let (mut size, mut crc) = (0, 0);
    for variant in variants {
        let message = variant.to_proto().encode_to_vec();
        let mut record = Vec::with_capacity(message.len() + 14);
        put_varint(&mut record, message.len() as u64);
        record.extend_from_slice(&message);
        crc = checksum::extend(crc, &(message.len() as u64).to_le_bytes());
        crc = checksum::extend(crc, &message);
        let stored = mask(crc).to_le_bytes();
        crc = checksum::extend(crc, &stored);
        record.extend_from_slice(&stored);
        file.write(&record)?;
        size += record.len() as u64;
    }
    Ok((size, crc))
}

/// Reads values out of their bytes in the file; with them their checksum.
pub(super) fn read_variants(bytes: &[u8], count: usize) -> Result<(Vec<Variant>, u32)> {
    let cut = || data_loss!("Unable to read a variant: its bytes end early");
    let mut rest = bytes;
    let mut crc = 0;
    let mut variants = Vec::new();
    for i in 0..count {
        let length = take_varint(&mut rest).ok_or_else(cut)?;
        let (message, behind) =
            usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)).ok_or_else(cut)?;
        let (stored, behind) = behind.split_first_chunk::<4>().ok_or_else(cut)?;
        rest = behind;
        crc = checksum::extend(crc, &length.to_le_bytes());
        crc = checksum::extend(crc, message);
        let expected = unmask(u32::from_le_bytes(*stored));
        if expected != crc {
            return Err(data_loss!(
                "The checksum after Variant {i} does not match. Expected: {expected:08} Actual: {crc:08}"
            ));
        }
        crc = checksum::extend(crc, stored);
        let proto = VariantTensorDataProto::decode(message)
            .map_err(|_| data_loss!("Unable to parse VariantTensorDataProto from buffer of size {length}."))?;
        variants.push(Variant::from_proto(&proto)?);
    }
    Ok((variants, crc))
}

/// Turns around the bytes of some elements, which come from a machine of the other byte order.
pub(super) fn swap_bytes(tensor: &mut Tensor, elements: Range<usize>) -> Result<()> {
    let dtype = tensor.dtype();
    // The two parts of a complex number are numbers of their own.
    let unit = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
    if unit <= 1 {
        return Ok(());
    }
    tensor.fill_bytes(elements, |bytes| {
        bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        Ok(())
    })
}
