//! Encodings of Unicode.

use graphmill_tensor::{Result, invalid_argument};

/// An encoding to read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Encoding {
    Utf8,
    Utf16 { big: bool },
    Utf32 { big: bool },
    Latin1,
    Ascii,
}

/// A character that was read: its code, or nothing where the bytes are none, and how many bytes it took.
pub(crate) type Decoded = (Option<u32>, usize);

impl Encoding {
    /// The encoding of this name; names differ in case, dashes and underscores.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that is not known.
    pub fn input(name: &str) -> Result<Encoding> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
        Ok(match plain.as_str() {
            "UTF8" => Encoding::Utf8,
            "UTF16BE" | "UTF16" => Encoding::Utf16 { big: true },
            "UTF16LE" => Encoding::Utf16 { big: false },
            "UTF32BE" | "UTF32" => Encoding::Utf32 { big: true },
            "UTF32LE" => Encoding::Utf32 { big: false },
            "ISO88591" | "LATIN1" | "L1" => Encoding::Latin1,
            "ASCII" | "USASCII" => Encoding::Ascii,
            _ => return Err(invalid_argument!("Could not create converter for input encoding: {name}")),
        })
    }

    /// The encoding of attribute `output_encoding`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that the ops do not write.
    pub fn output(name: &str) -> Result<Encoding> {
        match name {
            "UTF-8" => Ok(Encoding::Utf8),
            "UTF-16-BE" => Ok(Encoding::Utf16 { big: true }),
            "UTF-32-BE" => Ok(Encoding::Utf32 { big: true }),
            _ => Err(invalid_argument!("Invalid encoding \"{name}\": Should be one of: UTF-8, UTF-16-BE, UTF-32-BE")),
        }
    }

    /// The characters of a text.
    pub fn decode(self, text: &[u8]) -> Vec<Decoded> {
        match self {
            Encoding::Utf8 => {
                let mut out = Vec::with_capacity(text.len());
                for chunk in text.utf8_chunks() {
                    out.extend(chunk.valid().chars().map(|c| (Some(u32::from(c)), c.len_utf8())));
                    if !chunk.invalid().is_empty() {
                        out.push((None, chunk.invalid().len()));
                    }
                }
                out
            }
            Encoding::Latin1 => text.iter().map(|&byte| (Some(u32::from(byte)), 1)).collect(),
            Encoding::Ascii => text.iter().map(|&byte| (byte.is_ascii().then_some(u32::from(byte)), 1)).collect(),
            Encoding::Utf16 { big } => decode_utf16(text, big),
            Encoding::Utf32 { big } => {
                let code = |unit: [u8; 4]| if big { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) };
                let (units, rest) = text.as_chunks::<4>();
                let valid = |code: u32| char::from_u32(code).map(u32::from);
                let mut out: Vec<Decoded> = units.iter().map(|&unit| (valid(code(unit)), 4)).collect();
                if !rest.is_empty() {
                    out.push((None, rest.len()));
                }
                out
            }
        }
    }

    /// Appends a character; a code that is none becomes U+FFFD.
    pub fn encode(self, code: u32, out: &mut Vec<u8>) {
        let c = char::from_u32(code).unwrap_or('\u{FFFD}');
        match self {
            Encoding::Utf16 { .. } => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.extend(unit.to_be_bytes());
                }
            }
            Encoding::Utf32 { .. } => out.extend(u32::from(c).to_be_bytes()),
            _ => {
                let mut bytes = [0; 4];
                out.extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
            }
        }
    }
}

fn decode_utf16(text: &[u8], big: bool) -> Vec<Decoded> {
    let (units, rest) = text.as_chunks::<2>();
    let units = units.iter().map(|&unit| if big { u16::from_be_bytes(unit) } else { u16::from_le_bytes(unit) });
    let mut out: Vec<Decoded> = char::decode_utf16(units)
        .map(|c| match c {
            Ok(c) => (Some(u32::from(c)), c.len_utf16() * 2),
            Err(_) => (None, 2),
        })
        .collect();
    if !rest.is_empty() {
        out.push((None, 1));
    }
    out
}
