//! Strings as the bytes of numbers.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    use DType::*;
    let plain = [BFloat16, Double, Float, Int16, Int32, Int64, Int8, UInt16, UInt8];
    let all = [&plain[..], &[Bool, Complex128, Complex64, Half]].concat();
    registry.op("DecodeRaw").types("out_type", &all).kernel(DecodeRaw::new);
    registry.op("DecodePaddedRaw").types("out_type", &plain).kernel(|c| Ok(DecodePaddedRaw(DecodeRaw::new(c)?)));
}

/// Makes of each string, all of one length, a row of numbers.
struct DecodeRaw {
    dtype: DType,
    little_endian: bool,
}

impl DecodeRaw {
    fn new(c: &Construction<'_>) -> Result<DecodeRaw> {
        Ok(DecodeRaw { dtype: c.dtype("out_type")?, little_endian: c.attrs().bool("little_endian")? })
    }

    /// The strings' bytes one behind the other, each cut or filled up with zeros to `width` numbers.
    fn decode(&self, strings: &Tensor, width: usize) -> Result<Tensor> {
        let mut dims = strings.shape().dims().to_vec();
        dims.push(width);
        let mut output = Tensor::alloc(self.dtype, Shape::from_dims(&dims)?)?;
        let size = self.dtype.size();
        let row = width.checked_mul(size).ok_or_else(|| internal!("rows are too long"))?;
        if row == 0 {
            return Ok(output);
        }
        // The parts of a complex number are numbers of their own.
        let unit = if self.dtype.is_complex() { size / 2 } else { size };
        let strings = strings.strings()?;
        let count = output.num_elements();
        output.fill_bytes(0..count, |bytes| {
            for (target, string) in bytes.chunks_exact_mut(row).zip(strings) {
                let given = string.len().min(row);
                let (front, back) = target.split_at_mut(given);
                front.copy_from_slice(string.get(..given).unwrap_or_default());
                back.fill(0);
                if !self.little_endian {
                    target.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
                }
            }
            Ok(())
        })?;
        Ok(output)
    }
}

impl Kernel for DecodeRaw {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let length = strings.first().map_or(0, |first| first.len());
        if let Some((i, other)) = strings.iter().enumerate().find(|(_, string)| string.len() != length) {
            return Err(invalid_argument!(
                "DecodeRaw requires input strings to all be the same size, but element {i} has size {length} != {}",
                other.len()
            ));
        }
        let size = self.dtype.size();
        if length.checked_rem(size) != Some(0) {
            return Err(invalid_argument!(
                "Input to DecodeRaw has length {length} that is not a multiple of {size}, the size of {}",
                self.dtype
            ));
        }
        let output = self.decode(input, length / size)?;
        ctx.set_output(0, output)
    }
}

/// Makes of each string a row of numbers of a given length.
struct DecodePaddedRaw(DecodeRaw);

impl Kernel for DecodePaddedRaw {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let length = ctx.input(1)?;
        if !length.shape().is_scalar() {
            return Err(invalid_argument!("k must be scalar, got shape {}", length.shape()));
        }
        let length = length.scalar_value::<i32>()?;
        let size = self.0.dtype.size();
        let bytes = usize::try_from(length.unsigned_abs()).unwrap_or(0);
        if bytes.checked_rem(size) != Some(0) {
            return Err(invalid_argument!(
                "fixed_length ({length}) must be a multiple of the size of out_type ({size})"
            ));
        }
        if length <= 0 {
            return Err(invalid_argument!("fixed_length ({length}) must be greater than zero."));
        }
        let output = self.0.decode(ctx.input(0)?, bytes / size)?;
        ctx.set_output(0, output)
    }
}
