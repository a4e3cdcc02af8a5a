//! `UnicodeDecode`, `UnicodeDecodeWithOffsets`, `UnicodeEncode`, `UnicodeTranscode`.

use crate::encoding::Encoding;
use crate::map::map_strings;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Status, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    const SPLITS: [DType; 2] = [DType::Int32, DType::Int64];
    registry.op("UnicodeTranscode").kernel(Transcode::new);
    registry.op("UnicodeDecode").types("Tsplits", &SPLITS).kernel(|c| Decode::new(c, false));
    registry.op("UnicodeDecodeWithOffsets").types("Tsplits", &SPLITS).kernel(|c| Decode::new(c, true));
    registry.op("UnicodeEncode").types("Tsplits", &SPLITS).kernel(Encode::new);
}

/// What becomes of bytes that are no characters.
#[derive(Clone, Copy, PartialEq)]
enum OnError {
    Fail,
    Replace,
    Ignore,
}

struct Policy {
    on_error: OnError,
    replacement: u32,
    replaces_control: bool,
}

impl Policy {
    fn new(c: &Construction<'_>) -> Result<Policy> {
        let on_error = match c.attrs().str("errors")? {
            "strict" => OnError::Fail,
            "replace" => OnError::Replace,
            "ignore" => OnError::Ignore,
            _ => return Err(invalid_argument!("errors policy must be one of 'strict', 'replace', or 'ignore'")),
        };
        let replacement = c.attrs().int("replacement_char")?;
        let replacement = u32::try_from(replacement).ok().filter(|&code| code <= 0x10_FFFF);
        let replacement =
            replacement.ok_or_else(|| invalid_argument!("replacement_char out of unicode codepoint range"))?;
        let name = "replace_control_characters";
        let replaces_control = c.attrs().has(name) && c.attrs().bool(name)?;
        Ok(Policy { on_error, replacement, replaces_control })
    }

    /// What becomes of a character that was read.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is none and that is not allowed.
    fn apply(&self, code: Option<u32>) -> Result<Option<u32>> {
        match code {
            Some(code) if code > 0x1F || !self.replaces_control => Ok(Some(code)),
            _ => match self.on_error {
                OnError::Fail => Err(malformed()),
                OnError::Replace => Ok(Some(self.replacement)),
                OnError::Ignore => Ok(None),
            },
        }
    }
}

fn malformed() -> Status {
    invalid_argument!("Invalid formatting on input string")
}

struct Transcode {
    policy: Policy,
    from: Encoding,
    to: Encoding,
}

impl Transcode {
    fn new(c: &Construction<'_>) -> Result<Transcode> {
        Ok(Transcode {
            policy: Policy::new(c)?,
            to: Encoding::output(c.attrs().str("output_encoding")?)?,
            from: Encoding::input(c.attrs().str("input_encoding")?)?,
        })
    }
}

impl Kernel for Transcode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        map_strings(ctx, |text| {
            let mut out = Vec::with_capacity(text.len());
            for (code, _) in self.from.decode(text) {
                if let Some(code) = self.policy.apply(code)? {
                    self.to.encode(code, &mut out);
                }
            }
            Ok(Bytes::from(out))
        })
    }
}

/// The characters of strings as a ragged tensor.
struct Decode {
    policy: Policy,
    from: Encoding,
    offsets: bool,
}

impl Decode {
    fn new(c: &Construction<'_>, offsets: bool) -> Result<Decode> {
        let from = Encoding::input(c.attrs().str("input_encoding")?)?;
        Ok(Decode { policy: Policy::new(c)?, from, offsets })
    }
}

fn splits_tensor(dtype: DType, splits: &[i64]) -> Result<Tensor> {
    if dtype == DType::Int64 {
        return Tensor::vector(splits);
    }
    Tensor::vector(&splits.iter().map(|&split| split as i32).collect::<Vec<i32>>())
}

impl Kernel for Decode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (mut splits, mut codes, mut starts) = (vec![0i64], Vec::<i32>::new(), Vec::<i64>::new());
        for text in ctx.input(0)?.strings()? {
            let mut start = 0i64;
            for (code, length) in self.from.decode(text) {
                if let Some(code) = self.policy.apply(code)? {
                    codes.push(code as i32);
                    starts.push(start);
                }
                start += length as i64;
            }
            splits.push(codes.len() as i64);
        }
        ctx.set_output(0, splits_tensor(ctx.output_type(0)?, &splits)?)?;
        ctx.set_output(1, Tensor::vector(&codes)?)?;
        if self.offsets {
            ctx.set_output(2, Tensor::vector(&starts)?)?;
        }
        Ok(())
    }
}

/// Strings of the characters of a ragged tensor.
struct Encode {
    policy: Policy,
    to: Encoding,
}

impl Encode {
    fn new(c: &Construction<'_>) -> Result<Encode> {
        let to = Encoding::output(c.attrs().str("output_encoding")?)?;
        Ok(Encode { policy: Policy::new(c)?, to })
    }
}

impl Kernel for Encode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (codes, splits) = (ctx.input(0)?.as_slice::<i32>()?, ctx.input(1)?.to_i64_vec()?);
        let (Some(&first), Some(&last)) = (splits.first(), splits.last()) else {
            return Err(invalid_argument!(
                "Input_splits should contain elements, but given input_values has 0 elements"
            ));
        };
        if first != 0 {
            return Err(invalid_argument!("First value in input_splits must be zero."));
        }
        if last != codes.len() as i64 {
            return Err(invalid_argument!("Last value in input_splits must be equal to length of input_tensor."));
        }
        let mut texts = Vec::with_capacity(splits.len() - 1);
        for pair in splits.windows(2) {
            if pair[0] > pair[1] {
                return Err(invalid_argument!("Values in input_splits must be equal or in ascending order."));
            }
            let row = codes.get(pair[0] as usize..pair[1] as usize).ok_or_else(|| {
                invalid_argument!("Values in input_splits must be less than or equal to input_tensor length.")
            })?;
            let mut text = Vec::with_capacity(row.len());
            for &code in row {
                let code = u32::try_from(code).ok().filter(|&code| char::from_u32(code).is_some());
                match (code, self.policy.on_error) {
                    (Some(code), _) => self.to.encode(code, &mut text),
                    (None, OnError::Fail) => {
                        return Err(invalid_argument!("Code point is out of range for Unicode, or is a surrogate."));
                    }
                    (None, OnError::Replace) => self.to.encode(self.policy.replacement, &mut text),
                    (None, OnError::Ignore) => {}
                }
            }
            texts.push(Bytes::from(text));
        }
        ctx.set_output(0, Tensor::from_strings(Shape::vector(texts.len()), texts)?)
    }
}
