//! Encodings of Unicode.

use graphmill_tensor::{Result, invalid_argument};

/// An encoding to read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Encoding {
    Utf8,
    Utf16 {
        big: bool,
    },
    /// In the order that a mark at the beginning says, which is not a character then; big-endian without one.
    Utf16Marked,
    Utf32 {
        big: bool,
    },
    /// As [`Encoding::Utf16Marked`].
    Utf32Marked,
    Latin1,
    Ascii,
    /// One of the encodings of the web.
    Web(&'static encoding_rs::Encoding),
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
            "UTF16" => Encoding::Utf16Marked,
            "UTF32" => Encoding::Utf32Marked,
            "UTF16BE" => Encoding::Utf16 { big: true },
            "UTF16LE" => Encoding::Utf16 { big: false },
            "UTF32BE" => Encoding::Utf32 { big: true },
            "UTF32LE" => Encoding::Utf32 { big: false },
            "ISO88591" | "LATIN1" | "L1" => Encoding::Latin1,
            "ASCII" | "USASCII" => Encoding::Ascii,
            _ => {
                let lower = name.to_ascii_lowercase();
                let label = |label: &str| encoding_rs::Encoding::for_label_no_replacement(label.as_bytes());
                let found = label(&lower)
                    .or_else(|| label(&lower.replace('_', "-")))
                    .or_else(|| label(&lower.replace('-', "_")));
                let missing = || invalid_argument!("Could not create converter for input encoding: {name}");
                Encoding::Web(found.ok_or_else(missing)?)
            }
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
            Encoding::Utf16Marked => match text {
                [0xfe, 0xff, rest @ ..] => behind_mark(decode_utf16(rest, true), 2),
                [0xff, 0xfe, rest @ ..] => behind_mark(decode_utf16(rest, false), 2),
                whole => decode_utf16(whole, true),
            },
            Encoding::Utf32Marked => match text {
                [0, 0, 0xfe, 0xff, rest @ ..] => behind_mark(Encoding::Utf32 { big: true }.decode(rest), 4),
                [0xff, 0xfe, 0, 0, rest @ ..] => behind_mark(Encoding::Utf32 { big: false }.decode(rest), 4),
                whole => Encoding::Utf32 { big: true }.decode(whole),
            },
            Encoding::Web(encoding) => decode_web(text, encoding),
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

/// Characters behind a mark of this many bytes, which count as bytes of the first character.
fn behind_mark(mut characters: Vec<Decoded>, mark: usize) -> Vec<Decoded> {
    if let Some(first) = characters.first_mut() {
        first.1 += mark;
    }
    characters
}

/// Byte by byte, as only so it is known which bytes a character took.
fn decode_web(text: &[u8], encoding: &'static encoding_rs::Encoding) -> Vec<Decoded> {
    use encoding_rs::DecoderResult;
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut out: Vec<Decoded> = Vec::with_capacity(text.len());
    let mut pending = 0;
    for (i, _) in text.iter().enumerate() {
        pending += 1;
        let last = i + 1 == text.len();
        let mut rest = &text[i..=i];
        loop {
            let mut units = [0u16; 8];
            let (result, read, written) = decoder.decode_to_utf16_without_replacement(rest, &mut units, last);
            for c in char::decode_utf16(units[..written].iter().copied()).flatten() {
                out.push((Some(u32::from(c)), std::mem::take(&mut pending)));
            }
            rest = rest.get(read..).unwrap_or_default();
            match result {
                DecoderResult::Malformed(..) => out.push((None, std::mem::take(&mut pending))),
                DecoderResult::InputEmpty | DecoderResult::OutputFull => break,
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_bytes() {
        let sjis = Encoding::input("SHIFT-JIS").unwrap();
        assert_eq!(sjis.decode(b"a\x8f\x70b"), [(Some(0x61), 1), (Some(0x8853), 2), (Some(0x62), 1)]);
        assert_eq!(Encoding::input("UTF-16").unwrap().decode(b"\xff\xfe*\x00"), [(Some(0x2a), 4)]);
        assert_eq!(Encoding::Utf8.decode(b"a\xf0\x9fb"), [(Some(0x61), 1), (None, 2), (Some(0x62), 1)]);
        assert!(Encoding::input("no such").is_err());
    }
}
