//! Numbers of variable length.

/// Appends a number in groups of seven bits, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front; `None` if it is cut off or longer than 64 bits.
pub(crate) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * i as u32)?;
        if byte < 0x80 {
            *input = input.get(i + 1..)?;
            return Some(value);
        }
    }
    None
}

/// [`take_varint`] for numbers that have to fit 32 bits.
pub(crate) fn take_varint32(input: &mut &[u8]) -> Option<u32> {
    u32::try_from(take_varint(input)?).ok()
}

/// A little-endian number at a place; `None` past the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    bytes.get(at..end)?.try_into().ok().map(u32::from_le_bytes)
}

/// As [`u32_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let end = at.checked_add(8)?;
    bytes.get(at..end)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut rest = bytes.as_slice();
            assert_eq!(take_varint(&mut rest), Some(value));
            assert!(rest.is_empty());
            let mut cut = &bytes[..bytes.len() - 1];
            assert_eq!(take_varint(&mut cut), None);
        }
        assert_eq!(take_varint(&mut [0x80u8; 11].as_slice()), None);
        assert_eq!(take_varint32(&mut [0xff, 0xff, 0xff, 0xff, 0x7f].as_slice()), None);
    }
}
