//! Checksums as TensorFlow stores them.

const DELTA: u32 = 0xa282_ead8;

/// CRC-32C of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// A checksum as it is stored: a checksum of bytes that hold checksums is a weak one, so it is rotated and moved.
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(DELTA)
}

/// The checksum behind a stored one.
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(DELTA).rotate_left(15)
}

/// [`mask`] of [`crc32c`].
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    mask(crc32c(bytes))
}

/// Goes on with a checksum over more bytes.
pub(crate) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_check_value_and_its_mask() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(extend(crc32c(b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(unmask(mask(0x1234_5678)), 0x1234_5678);
        assert_ne!(mask(7), 7);
    }
}
