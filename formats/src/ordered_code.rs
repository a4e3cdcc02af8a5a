//! Keys of several parts that sort as their parts do: how the key of a slice is made of a tensor's name and the slice.

use crate::TensorSlice;

/// The key under which a slice of a tensor is stored: 0, the name, the rank, and start and length of every dimension (0 and -1 for
/// a whole one).
pub(crate) fn slice_key(name: &[u8], slice: &TensorSlice) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 8 + 4 * slice.rank());
    put_number(&mut key, 0);
    put_string(&mut key, name);
    put_number(&mut key, slice.rank() as u64);
    for (start, length) in slice.stored_extents() {
        put_signed(&mut key, start);
        put_signed(&mut key, length);
    }
    key
}

/// A byte string: 0 and 255 are escaped, and an end that sorts before everything follows.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            0 => out.extend_from_slice(&[0, 0xff]),
            0xff => out.extend_from_slice(&[0xff, 0]),
            other => out.push(other),
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// A number: how many bytes it takes, then those, the highest first.
fn put_number(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let skipped = value.leading_zeros() as usize / 8;
    out.push((8 - skipped) as u8);
    out.extend(bytes.iter().skip(skipped));
}

/// A signed number: a run of bits equal to the (inverted) sign says how long it is, then its bits in two's complement.
fn put_signed(out: &mut Vec<u8>, value: i64) {
    // Of `length` bytes, `length` bits are for the run and its end, and one of those left is the sign's.
    let magnitude_bits = 64 - (if value < 0 { !value } else { value }).leading_zeros() as usize;
    let length = magnitude_bits / 7 + 1;
    let length = length.min(10);
    let mut bytes = [if value < 0 { 0xff } else { 0u8 }; 10];
    if let Some(low) = bytes.last_chunk_mut::<8>() {
        *low = value.to_be_bytes();
    }
    let header: u16 = match length {
        1..=9 => !(0xffffu32 >> length) as u16,
        _ => 0xffc0,
    };
    let [high, low] = header.to_be_bytes();
    let start = 10 - length;
    bytes[start] ^= high;
    if length >= 2 {
        bytes[start + 1] ^= low;
    }
    out.extend(bytes.iter().skip(start));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_signed(&mut out, value);
        out
    }

    #[test]
    fn signed_numbers_have_the_documented_form() {
        assert_eq!(signed(0), [0x80]);
        assert_eq!(signed(-1), [0x7f]);
        assert_eq!(signed(63), [0xbf]);
        assert_eq!(signed(64), [0xc0, 0x40]);
        assert_eq!(signed(-64), [0x40]);
        assert_eq!(signed(0x42_4242), [0xf0, 0x42, 0x42, 0x42]);
        assert_eq!(signed(-0x800), [0x38, 0x00]);
        assert_eq!(signed(i64::MAX).len(), 10);
        assert_eq!(signed(i64::MAX)[..2], [0xff, 0xc0]);
        assert_eq!(signed(1 << 54).len(), 8);
        assert_eq!(signed(1 << 55).len(), 9);
        assert_eq!(signed(1 << 55)[..2], [0xff, 0x80]);
    }

    #[test]
    fn keys_sort_as_numbers_do() {
        let values = [i64::MIN, -(1 << 40), -65, -64, -1, 0, 1, 63, 64, 8191, 8192, 1 << 30, 1 << 61, i64::MAX];
        let keys: Vec<_> = values.iter().map(|&v| signed(v)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn names_are_escaped() {
        let slice = TensorSlice::new(&[(0, 2), (0, -1)]);
        assert_eq!(slice_key(b"a\0b", &slice), [0, b'a', 0, 0xff, b'b', 0, 1, 1, 2, 0x80, 0x82, 0x80, 0x7f]);
    }
}
