//! Numbers as text.

/// A whole number as TensorFlow reads it: blanks around it, one sign, decimal digits.
pub(crate) fn integer<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A real number as TensorFlow reads it: blanks around it, decimals with an exponent, `inf`, `infinity` and `nan` in any case.
pub(crate) fn real<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    // Both languages have the same numbers and words here; that of C++ also has numbers in base 16.
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(integer::<i32>(b" -7 "), Some(-7));
        assert_eq!(integer::<i32>(b"+7"), Some(7));
        assert_eq!(integer::<i32>(b"2147483648"), None);
        assert_eq!(integer::<i64>(b"2147483648"), Some(1 << 31));
        for bad in ["", "-", "+-7", "7x", "0x7", "7.0", "--7"] {
            assert_eq!(integer::<i64>(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(real::<f32>(b" 1.5e3 "), Some(1500.0));
        assert_eq!(real::<f64>(b"-INF"), Some(f64::NEG_INFINITY));
        assert!(real::<f32>(b"NaN").is_some_and(f32::is_nan));
        assert_eq!(real::<f32>(b"1.5x"), None);
    }
}
