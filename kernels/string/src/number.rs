//! `StringToNumber`.

use crate::case::strip;
use crate::map::map_to;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Status, invalid_argument};
use std::str::FromStr;

pub(crate) fn register(registry: &mut Registry) {
    use DType::{Double, Float, Int32, Int64, UInt32, UInt64};
    let types = [Double, Float, Int32, Int64, UInt32, UInt64];
    registry.op("StringToNumber").types("out_type", &types).kernel(StringToNumber::new);
}

struct StringToNumber {
    dtype: DType,
}

impl StringToNumber {
    fn new(c: &Construction<'_>) -> Result<StringToNumber> {
        Ok(StringToNumber { dtype: c.dtype("out_type")? })
    }
}

fn bad(text: &[u8]) -> Status {
    // TensorFlow shows the text as a C string.
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    invalid_argument!("StringToNumberOp could not correctly convert string: {}", String::from_utf8_lossy(text))
}

/// An integer in decimal digits, with white space around it.
fn integer<T: FromStr>(text: &Bytes) -> Result<T> {
    let digits = std::str::from_utf8(strip(text)).map_err(|_| bad(text))?;
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(bad(text));
    }
    digits.parse().map_err(|_| bad(text))
}

/// A float in decimal or hexadecimal digits, infinity or NaN, with white space around it.
fn float<T: FromStr>(text: &Bytes, from_f64: impl Fn(f64) -> T) -> Result<T> {
    let digits = std::str::from_utf8(strip(text)).map_err(|_| bad(text))?;
    let (negative, unsigned) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    if let Some(hex) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let value = u64::from_str_radix(hex, 16).map_err(|_| bad(text))? as f64;
        return Ok(from_f64(if negative { -value } else { value }));
    }
    digits.parse().map_err(|_| bad(text))
}

impl Kernel for StringToNumber {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        match self.dtype {
            DType::Float => map_to(ctx, |text| float(text, |v| v as f32)),
            DType::Double => map_to(ctx, |text| float(text, |v| v)),
            DType::Int32 => map_to(ctx, integer::<i32>),
            DType::Int64 => map_to(ctx, integer::<i64>),
            DType::UInt32 => map_to(ctx, integer::<u32>),
            _ => map_to(ctx, integer::<u64>),
        }
    }
}
