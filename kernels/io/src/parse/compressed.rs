//! `DecodeCompressed`.

use graphmill_formats::{Compression, decompress_reader, io_error};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, Tensor, invalid_argument, resource_exhausted};
use std::io::{Cursor, Read};

/// What a string may grow to.
const LARGEST: u64 = i32::MAX as u64;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DecodeCompressed").kernel(DecodeCompressed::new);
}

/// Undoes the compression of each string.
struct DecodeCompressed(Compression);

impl DecodeCompressed {
    fn new(c: &Construction<'_>) -> Result<DecodeCompressed> {
        match Compression::from_name(c.attrs().string("compression_type")?) {
            Some(compression) => Ok(DecodeCompressed(compression)),
            None => Err(invalid_argument!("Only ZLIB, GZIP or NONE are supported compressions")),
        }
    }
}

impl Kernel for DecodeCompressed {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        if self.0 == Compression::None {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let input = ctx.input(0)?;
        let mut outputs = Vec::with_capacity(input.num_elements());
        for string in input.strings()? {
            let mut plain = Vec::new();
            let mut reader = decompress_reader(self.0, Cursor::new(string.clone()), 256 << 10).take(LARGEST);
            reader.read_to_end(&mut plain).map_err(|error| io_error("decompress", error))?;
            if plain.len() as u64 == LARGEST {
                return Err(resource_exhausted!("A string becomes larger than {LARGEST} bytes"));
            }
            outputs.push(Bytes::from(plain));
        }
        let output = Tensor::from_strings(input.shape().clone(), outputs)?;
        ctx.set_output(0, output)
    }
}
