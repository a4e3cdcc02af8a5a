//! Tensors as text, the way TensorFlow's `Assert` and `Print` show them.

use graphmill_tensor::{DType, Result, Tensor, dispatch};

/// The first `limit` elements (all if negative), rows in brackets; `...` where elements are left out.
pub(crate) fn summarize(tensor: &Tensor, limit: i64) -> Result<String> {
    let total = tensor.num_elements();
    let limit = usize::try_from(limit).map_or(total, |limit| limit.min(total));
    let elements = texts(tensor, limit)?;
    let mut out = String::new();
    if tensor.shape().is_scalar() {
        out.push_str(&elements.join(" "));
    } else {
        let mut next = 0;
        dimension(tensor.shape().dims(), 0, &elements, &mut next, &mut out);
    }
    if limit < total {
        out.push_str("...");
    }
    Ok(out)
}

fn dimension(dims: &[usize], axis: usize, elements: &[String], next: &mut usize, out: &mut String) {
    if axis + 1 == dims.len() {
        for i in 0..dims[axis] {
            let Some(element) = elements.get(*next) else {
                if axis > 0 {
                    out.push_str("...");
                }
                return;
            };
            if i > 0 {
                out.push(' ');
            }
            out.push_str(element);
            *next += 1;
        }
        return;
    }
    for _ in 0..dims[axis] {
        let opened = *next < elements.len();
        if !opened {
            return;
        }
        out.push('[');
        dimension(dims, axis + 1, elements, next, out);
        out.push(']');
    }
}

/// The first elements, each as text.
fn texts(tensor: &Tensor, limit: usize) -> Result<Vec<String>> {
    macro_rules! all {
        ($($rust:ty => $text:expr),* $(,)?) => {
            match tensor.dtype() {
                $(d if d == <$rust as graphmill_tensor::Element>::DTYPE => {
                    let text: fn(&$rust) -> String = $text;
                    return Ok(tensor.as_slice::<$rust>()?.iter().take(limit).map(text).collect());
                })*
                _ => {}
            }
        };
    }
    all! {
        f32 => |v| float(f64::from(*v), 6, 9, |t| t.parse::<f32>().is_ok_and(|p| p.to_bits() == v.to_bits())),
        f64 => |v| float(*v, 15, 17, |t| t.parse::<f64>().is_ok_and(|p| p.to_bits() == v.to_bits())),
        graphmill_tensor::f16 => |v| short(v.to_f32()),
        graphmill_tensor::bf16 => |v| short(v.to_f32()),
        bool => |v| u8::from(*v).to_string(),
        graphmill_tensor::QInt8 => |v| v.0.to_string(),
        graphmill_tensor::QUInt8 => |v| v.0.to_string(),
        graphmill_tensor::QInt16 => |v| v.0.to_string(),
        graphmill_tensor::QUInt16 => |v| v.0.to_string(),
        graphmill_tensor::QInt32 => |v| v.0.to_string(),
    }
    if tensor.dtype() == DType::String {
        return Ok(tensor.strings()?.iter().take(limit).map(|s| escape(s)).collect());
    }
    let integers = dispatch!(tensor.dtype(), T in integers => {
        tensor.as_slice::<T>()?.iter().take(limit).map(ToString::to_string).collect::<Vec<String>>()
    });
    Ok(integers.unwrap_or_else(|| vec!["?".to_owned(); limit]))
}

fn short(value: f32) -> String {
    float(f64::from(value), 6, 9, |t| t.parse::<f32>().is_ok_and(|p| p.to_bits() == value.to_bits()))
}

/// `%g` with few digits, or with as many as it takes to get the value back.
fn float(value: f64, few: usize, many: usize, exact: impl Fn(&str) -> bool) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = general(value, few);
    if exact(&text) { text } else { general(value, many) }
}

/// C's `%.{digits}g` of a finite value.
fn general(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        text.to_owned()
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trim(&format!("{value:.decimals$}"))
}

/// C's escapes for what is not printable.
fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\'' => out.push_str("\\'"),
            b'\\' => out.push_str("\\\\"),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{Bytes, Shape};

    #[test]
    fn rows_are_bracketed_and_the_rest_is_dots() {
        let t = Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[1i32, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(summarize(&t, -1).unwrap(), "[1 2 3][4 5 6]");
        assert_eq!(summarize(&t, 4).unwrap(), "[1 2 3][4...]...");
        assert_eq!(summarize(&t, 3).unwrap(), "[1 2 3]...");
        assert_eq!(summarize(&Tensor::vector(&[1i32, 2, 3]).unwrap(), 2).unwrap(), "1 2...");
        assert_eq!(summarize(&Tensor::scalar(7u8).unwrap(), 3).unwrap(), "7");
    }

    #[test]
    fn floats_look_as_printf_makes_them() {
        let text = |v: f32| summarize(&Tensor::scalar(v).unwrap(), -1).unwrap();
        assert_eq!(text(1.0), "1");
        assert_eq!(text(0.1), "0.1");
        assert_eq!(text(1e10), "1e+10");
        assert_eq!(text(1.5e-5), "1.5e-05");
        assert_eq!(text(f32::NAN), "nan");
        assert_eq!(text(f32::NEG_INFINITY), "-inf");
        assert_eq!(text(16777217.0), "16777216");
        assert_eq!(text(1.0 / 3.0), "0.333333343");
        assert_eq!(summarize(&Tensor::scalar(1.0f64 / 3.0).unwrap(), -1).unwrap(), "0.33333333333333331");
    }

    #[test]
    fn bytes_that_are_not_text_are_escaped() {
        let t =
            Tensor::from_strings(Shape::vector(2), vec![Bytes::from_static(b"a\0b"), Bytes::from_static(b"\xff\n")]);
        assert_eq!(summarize(&t.unwrap(), -1).unwrap(), "a\\000b \\377\\n");
        assert_eq!(summarize(&Tensor::vector(&[true, false]).unwrap(), -1).unwrap(), "1 0");
    }
}
