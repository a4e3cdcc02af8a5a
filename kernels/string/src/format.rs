//! `StringFormat`: a template with tensors in it.

use crate::printf::round_trip;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Bytes, DType, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Tensor, bf16, dispatch, f16, invalid_argument,
};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringFormat").kernel(Format::new);
}

struct Format {
    parts: Vec<String>,
    summarize: i64,
}

impl Format {
    fn new(c: &Construction<'_>) -> Result<Format> {
        let (template, placeholder) = (c.attrs().str("template")?, c.attrs().str("placeholder")?);
        let parts: Vec<String> = if placeholder.is_empty() {
            // An empty placeholder is between any two characters.
            template.chars().map(String::from).collect()
        } else {
            template.split(placeholder).map(str::to_owned).collect()
        };
        let placeholders = parts.len().saturating_sub(1);
        if placeholders != c.num_inputs() {
            return Err(invalid_argument!(
                "num placeholders in template and num inputs must match: {placeholders} vs. {}",
                c.num_inputs()
            ));
        }
        Ok(Format { parts, summarize: c.attrs().int("summarize")? })
    }
}

impl Kernel for Format {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut text = Vec::new();
        for (i, part) in self.parts.iter().enumerate() {
            if i > 0 {
                text.extend(summary(ctx.input(i - 1)?, self.summarize)?);
            }
            text.extend_from_slice(part.as_bytes());
        }
        ctx.set_output(0, Tensor::from_strings(graphmill_tensor::Shape::scalar(), vec![Bytes::from(text)])?)
    }
}

/// The first and last elements of each dimension, in brackets.
fn summary(tensor: &Tensor, summarize: i64) -> Result<Vec<u8>> {
    let total = tensor.num_elements();
    let ends = usize::try_from(summarize).map_or(total, |limit| limit.min(total));
    let element = element_text(tensor)?;
    let mut out = Vec::new();
    if tensor.shape().is_scalar() {
        out = if ends > 0 { element(0) } else { b"...".to_vec() };
    } else {
        dimension(tensor.shape().dims(), 0, 0, ends, &*element, &mut out);
    }
    Ok(out)
}

fn dimension(
    dims: &[usize],
    axis: usize,
    at: usize,
    ends: usize,
    element: &dyn Fn(usize) -> Vec<u8>,
    out: &mut Vec<u8>,
) {
    let Some(&count) = dims.get(axis) else {
        out.extend(element(at));
        return;
    };
    let stride: usize = dims[axis + 1..].iter().product();
    let space = |out: &mut Vec<u8>| {
        if axis + 1 == dims.len() {
            out.push(b' ');
        } else {
            out.extend(std::iter::repeat_n(b'\n', dims.len() - axis - 1));
            out.extend(std::iter::repeat_n(b' ', axis + 1));
        }
    };
    out.push(b'[');
    for i in 0..ends.min(count) {
        if i > 0 {
            space(out);
        }
        dimension(dims, axis + 1, at + i * stride, ends, element, out);
    }
    if count > ends.saturating_mul(2) {
        space(out);
        out.extend(b"...");
    }
    for i in ends.max(count.saturating_sub(ends))..count {
        space(out);
        dimension(dims, axis + 1, at + i * stride, ends, element, out);
    }
    out.push(b']');
}

type ElementText<'a> = Box<dyn Fn(usize) -> Vec<u8> + 'a>;

fn element_text(tensor: &Tensor) -> Result<ElementText<'_>> {
    fn float(value: f32) -> String {
        round_trip(f64::from(value), 6, 9, |t| t.parse::<f32>().is_ok_and(|p| p.to_bits() == value.to_bits()))
    }
    macro_rules! texts {
        ($rust:ty, $text:expr) => {{
            let values = tensor.as_slice::<$rust>()?;
            let text: fn($rust) -> String = $text;
            Box::new(move |i: usize| values.get(i).copied().map(text).unwrap_or_default().into_bytes())
        }};
    }
    Ok(match tensor.dtype() {
        DType::Float => texts!(f32, float),
        DType::Half => texts!(f16, |v| float(v.to_f32())),
        DType::BFloat16 => texts!(bf16, |v| float(v.to_f32())),
        DType::Double => {
            texts!(f64, |v| round_trip(v, 15, 17, |t| t.parse::<f64>().is_ok_and(|p| p.to_bits() == v.to_bits())))
        }
        DType::Bool => texts!(bool, |v| u8::from(v).to_string()),
        DType::QInt8 => texts!(QInt8, |v| v.0.to_string()),
        DType::QUInt8 => texts!(QUInt8, |v| v.0.to_string()),
        DType::QInt16 => texts!(QInt16, |v| v.0.to_string()),
        DType::QUInt16 => texts!(QUInt16, |v| v.0.to_string()),
        DType::QInt32 => texts!(QInt32, |v| v.0.to_string()),
        DType::String => {
            let values = tensor.strings()?;
            Box::new(move |i| values.get(i).map(|text| escape(text)).unwrap_or_default())
        }
        dtype => {
            let integers = dispatch!(dtype, T in integers => {
                let texts: ElementText<'_> = texts!(T, |v| v.to_string());
                texts
            });
            integers.unwrap_or_else(|| Box::new(|_| b"?".to_vec()))
        }
    })
}

/// In quotes, with C's escapes for what is not printable; bytes beyond ASCII stay.
fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            b'"' | b'\'' | b'\\' => out.extend([b'\\', byte]),
            byte if byte.is_ascii_control() => out.extend(format!("\\{byte:03o}").into_bytes()),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
    out
}
