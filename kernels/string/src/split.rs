//! `StringSplit`, `StringSplitV2`: strings as rows of a sparse tensor of their parts.

use crate::case::is_space;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringSplit").kernel(|c| Ok(StringSplit { skip_empty: c.attrs().bool("skip_empty")? }));
    registry.op("StringSplitV2").kernel(StringSplitV2::new);
}

fn split_all(ctx: &mut Context<'_>, separator: &str, split: impl Fn(&Bytes, &[u8]) -> Vec<Bytes>) -> Result<()> {
    let input = ctx.input(0)?;
    if !input.shape().is_vector() {
        return Err(invalid_argument!("input must be a vector, got shape: {}", input.shape()));
    }
    let by = ctx.input(1)?;
    let [by_text] = by.strings()? else {
        return Err(invalid_argument!("{separator} must be a scalar, got shape: {}", by.shape()));
    };
    if !by.shape().is_scalar() {
        return Err(invalid_argument!("{separator} must be a scalar, got shape: {}", by.shape()));
    }
    let (mut indices, mut parts, mut widest) = (Vec::new(), Vec::new(), 0);
    for (row, text) in input.strings()?.iter().enumerate() {
        let found = split(text, by_text);
        widest = widest.max(found.len());
        indices.extend((0..found.len()).flat_map(|column| [row as i64, column as i64]));
        parts.extend(found);
    }
    let shape = [input.num_elements() as i64, widest as i64];
    let count = parts.len();
    ctx.set_output(0, Tensor::from_slice(Shape::from_dims(&[count, 2])?, &indices)?)?;
    ctx.set_output(1, Tensor::from_strings(Shape::vector(count), parts)?)?;
    ctx.set_output(2, Tensor::vector(&shape)?)
}

/// Splits at each of the delimiter's characters; without a delimiter, into characters.
struct StringSplit {
    skip_empty: bool,
}

impl Kernel for StringSplit {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        split_all(ctx, "delimiter", |text, delimiter| {
            if text.is_empty() {
                return Vec::new();
            }
            if delimiter.is_empty() {
                return text.chunks(1).map(|part| text.slice_ref(part)).collect();
            }
            let parts = text.split(|byte| delimiter.contains(byte));
            parts.filter(|part| !self.skip_empty || !part.is_empty()).map(|part| text.slice_ref(part)).collect()
        })
    }
}

/// Splits as Python's `str.split` does.
struct StringSplitV2 {
    max_split: Option<usize>,
}

impl StringSplitV2 {
    fn new(c: &Construction<'_>) -> Result<StringSplitV2> {
        Ok(StringSplitV2 { max_split: usize::try_from(c.attrs().int("maxsplit")?).ok() })
    }

    fn split(&self, text: &Bytes, separator: &[u8]) -> Vec<Bytes> {
        if self.max_split == Some(0) {
            return vec![text.clone()];
        }
        let mut parts = Vec::new();
        if separator.is_empty() {
            let skip = |rest: &mut Bytes| {
                let spaces = rest.iter().take_while(|&&b| is_space(b)).count();
                *rest = rest.slice(spaces..);
            };
            let mut rest = text.clone();
            skip(&mut rest);
            while !rest.is_empty() {
                let length = rest.iter().take_while(|&&b| !is_space(b)).count();
                parts.push(rest.slice(..length));
                rest = rest.slice(length..);
                skip(&mut rest);
                if self.max_split == Some(parts.len()) {
                    parts.push(rest);
                    break;
                }
            }
            return parts;
        }
        let mut start = 0;
        while self.max_split != Some(parts.len()) {
            let found = text[start..].windows(separator.len()).position(|window| window == separator);
            let Some(length) = found else { break };
            parts.push(text.slice(start..start + length));
            start += length + separator.len();
        }
        parts.push(text.slice(start..));
        parts
    }
}

impl Kernel for StringSplitV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        split_all(ctx, "sep", |text, separator| self.split(text, separator))
    }
}
