//! Values of columns as tensors, converted as SQLite converts them when it is asked for another type.

use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use rusqlite::types::ValueRef;

/// A value as a scalar. An integer that does not fit is cut off.
///
/// # Errors
/// `INVALID_ARGUMENT` for a type that a column cannot be read as.
pub(super) fn tensor(value: ValueRef<'_>, dtype: DType) -> Result<Tensor> {
    match dtype {
        DType::String => Tensor::from_strings(Shape::scalar(), vec![Bytes::from(text(value))]),
        DType::Int8 => Tensor::scalar(int(value) as i8),
        DType::Int16 => Tensor::scalar(int(value) as i16),
        DType::Int32 => Tensor::scalar(int(value) as i32),
        DType::Int64 => Tensor::scalar(int(value)),
        DType::UInt8 => Tensor::scalar(int(value) as u8),
        DType::UInt16 => Tensor::scalar(int(value) as u16),
        DType::Bool => Tensor::scalar(int(value) != 0),
        DType::Double => Tensor::scalar(real(value)),
        other => Err(invalid_argument!("A column cannot be read as {other}")),
    }
}

fn int(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Null => 0,
        ValueRef::Integer(value) => value,
        ValueRef::Real(value) => value as i64,
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            let end = prefix(text, |rest, byte| byte.is_ascii_digit() || (rest == 0 && matches!(byte, b'+' | b'-')));
            // A number that is too large is taken as a real one, which is cut off at the largest integer.
            end.parse().unwrap_or_else(|_| end.parse::<f64>().unwrap_or(0.0) as i64)
        }
    }
}

fn real(value: ValueRef<'_>) -> f64 {
    match value {
        ValueRef::Null => 0.0,
        ValueRef::Integer(value) => value as f64,
        ValueRef::Real(value) => value,
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            let numeric = prefix(text, |_, byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            // The longest part from the front on that is a number.
            (0..=numeric.len()).rev().find_map(|end| numeric.get(..end)?.parse().ok()).unwrap_or(0.0)
        }
    }
}

/// The bytes from the front on that `takes` takes, behind white space.
fn prefix(text: &[u8], takes: impl Fn(usize, u8) -> bool) -> &str {
    let text = text.trim_ascii_start();
    let end = text.iter().enumerate().position(|(i, &byte)| !takes(i, byte)).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or_default()
}

fn text(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Null => Vec::new(),
        ValueRef::Integer(value) => value.to_string().into_bytes(),
        ValueRef::Real(value) => real_text(value).into_bytes(),
        ValueRef::Text(text) | ValueRef::Blob(text) => text.to_vec(),
    }
}

/// A real number with 15 digits and always a point: `%!.15g` of SQLite's own format.
fn real_text(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let scientific = format!("{value:.14e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let with_point = |text: &str| {
        let text = text.trim_end_matches('0');
        if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
    };
    if (-4..15).contains(&exponent) {
        let places = usize::try_from(14 - exponent).unwrap_or(0).max(1);
        return with_point(&format!("{value:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", with_point(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_converted_as_by_sqlite() {
        assert_eq!(int(ValueRef::Text(b" -12abc")), -12);
        assert_eq!(int(ValueRef::Text(b"99999999999999999999")), i64::MAX);
        assert_eq!(int(ValueRef::Real(-2.9)), -2);
        assert_eq!(real(ValueRef::Text(b"2.5e3x")), 2500.0);
        assert_eq!(real(ValueRef::Text(b"1e")), 1.0);
        for (value, expected) in
            [(2.0, "2.0"), (0.1, "0.1"), (1e15, "1.0e+15"), (-1.5e-7, "-1.5e-07"), (123456.75, "123456.75")]
        {
            assert_eq!(text(ValueRef::Real(value)), expected.as_bytes());
        }
    }
}
