//! Base64 in the alphabet for addresses of the web: `EncodeBase64`, `DecodeBase64`.

use crate::map::map_strings;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("EncodeBase64").kernel(Encode::new);
    registry.op("DecodeBase64").kernel(|_| Ok(Decode));
}

const PLAIN: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);
const PADDED: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, GeneralPurposeConfig::new().with_encode_padding(true));

struct Encode {
    pad: bool,
}

impl Encode {
    fn new(c: &Construction<'_>) -> Result<Encode> {
        Ok(Encode { pad: c.attrs().bool("pad")? })
    }
}

impl Kernel for Encode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let engine = if self.pad { &PADDED } else { &PLAIN };
        map_strings(ctx, |text| Ok(Bytes::from(engine.encode(text))))
    }
}

/// Takes text with and without padding.
struct Decode;

impl Kernel for Decode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        map_strings(ctx, |text| decode(text).map(Bytes::from))
    }
}

fn decode(text: &[u8]) -> Result<Vec<u8>> {
    let text = match text {
        [start @ .., b'=', b'='] if text.len().is_multiple_of(4) => start,
        [start @ .., b'='] if text.len().is_multiple_of(4) => start,
        whole => whole,
    };
    if text.len() % 4 == 1 {
        return Err(invalid_argument!("Base64 string length cannot be 1 modulo 4."));
    }
    PLAIN.decode(text).map_err(|_| invalid_argument!("Invalid character found in base64."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_optional_and_other_alphabets_are_refused() {
        assert_eq!(decode(b"-_8=").unwrap(), [0xfb, 0xff]);
        assert_eq!(decode(b"-_8").unwrap(), [0xfb, 0xff]);
        assert_eq!(decode(b"YQ==").unwrap(), b"a");
        assert_eq!(decode(b"").unwrap(), b"");
        assert!(decode(b"+/8=").is_err());
        assert_eq!(decode(b"abcde").unwrap_err().message(), "Base64 string length cannot be 1 modulo 4.");
    }
}
