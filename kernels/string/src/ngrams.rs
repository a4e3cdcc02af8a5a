//! `StringNGrams`: runs of words within the rows of a ragged tensor.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringNGrams").types("Tsplits", &[DType::Int32, DType::Int64]).kernel(NGrams::new);
}

struct NGrams {
    separator: Vec<u8>,
    widths: Vec<i64>,
    left_pad: Vec<u8>,
    right_pad: Vec<u8>,
    pad_width: i64,
    preserve_short: bool,
}

impl NGrams {
    fn new(c: &Construction<'_>) -> Result<NGrams> {
        Ok(NGrams {
            separator: c.attrs().string("separator")?.to_vec(),
            widths: c.attrs().int_list("ngram_widths")?.to_vec(),
            left_pad: c.attrs().string("left_pad")?.to_vec(),
            right_pad: c.attrs().string("right_pad")?.to_vec(),
            pad_width: i64::from(c.attrs().int32("pad_width")?),
            preserve_short: c.attrs().bool("preserve_short_sequences")?,
        })
    }

    fn pad_width(&self, width: i64) -> i64 {
        if self.pad_width < 0 { width - 1 } else { self.pad_width.min(width - 1) }
    }

    fn count(&self, length: usize, width: i64) -> Result<i64> {
        let pad = self.pad_width(width);
        let length = length as i64;
        if pad > i64::from(i32::MAX) / 2 - length {
            return Err(invalid_argument!("Pad width could lead to integer overflow, got pad_width = {pad}"));
        }
        Ok((length + 2 * pad - width + 1).max(0))
    }

    /// The runs of one width within a row.
    fn runs(&self, row: &[Bytes], count: i64, width: i64, out: &mut Vec<Bytes>) {
        let pad = self.pad_width(width);
        for i in 0..count {
            let left = (pad - i).max(0);
            let right = (pad - (count - (i + 1))).max(0);
            let words = (width - left - right).max(0);
            let start = if left > 0 { 0 } else { i - pad };
            let mut parts: Vec<&[u8]> = vec![&self.left_pad; left as usize];
            parts.extend(row.iter().skip(start.max(0) as usize).take(words as usize).map(|word| &word[..]));
            parts.extend(vec![&self.right_pad[..]; right as usize]);
            out.push(parts.join(&self.separator[..]).into());
        }
    }
}

fn check_splits(splits: &[i64], size: i64) -> Result<()> {
    let Some(&first) = splits.first() else { return Ok(()) };
    if first != 0 {
        return Err(invalid_argument!("First split value must be 0, got {first}"));
    }
    for pair in splits.windows(2) {
        if pair[1] < pair[0] || pair[1] > size {
            return Err(invalid_argument!("Invalid split value {}, must be in [{}, {size}]", pair[1], pair[0]));
        }
    }
    match splits.last() {
        Some(&last) if last != size => {
            Err(invalid_argument!("Last split value must be data size. Expected {size}, got {last}"))
        }
        _ => Ok(()),
    }
}

impl Kernel for NGrams {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        if self.widths.iter().any(|&width| width <= 0) {
            return Err(invalid_argument!("ngram_widths must contain positive values"));
        }
        let (data, splits) = (ctx.input(0)?, ctx.input(1)?);
        let (words, ends) = (data.strings()?, splits.to_i64_vec()?);
        check_splits(&ends, words.len() as i64)?;
        let mut out = Vec::new();
        let mut out_ends: Vec<i64> = if ends.is_empty() { Vec::new() } else { vec![0] };
        for pair in ends.windows(2) {
            let row = words.get(pair[0] as usize..pair[1] as usize).unwrap_or_default();
            if !words.is_empty() {
                let before = out.len();
                for &width in &self.widths {
                    let count = self.count(row.len(), width)?;
                    self.runs(row, count, width, &mut out);
                }
                if self.preserve_short && out.len() == before && !row.is_empty() {
                    if self.pad_width < 0 {
                        return Err(invalid_argument!(
                            "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not \
                             provided, got {}",
                            self.pad_width
                        ));
                    }
                    self.runs(row, 1, row.len() as i64 + 2 * self.pad_width, &mut out);
                }
            }
            out_ends.push(out.len() as i64);
        }
        let out_splits = match splits.dtype() {
            DType::Int32 => Tensor::from_slice(
                splits.shape().clone(),
                &out_ends.iter().map(|&end| end as i32).collect::<Vec<i32>>(),
            )?,
            _ => Tensor::from_slice(splits.shape().clone(), &out_ends)?,
        };
        let shape = if words.is_empty() { data.shape().clone() } else { Shape::vector(out.len()) };
        ctx.set_output(0, Tensor::from_strings(shape, out)?)?;
        ctx.set_output(1, out_splits)
    }
}
