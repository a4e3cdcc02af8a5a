//! Files of records of one length.

use crate::compression::{read_full, skip};
use graphmill_tensor::{Result, invalid_argument};
use std::io::BufRead;

/// How a file is laid out, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLength {
    /// In front of the first record.
    pub header: u64,
    /// In a record.
    pub record: usize,
    /// Behind the last record.
    pub footer: usize,
    /// From the start of a record to that of the next.
    pub hop: usize,
}

impl FixedLength {
    /// From attributes; a hop of 0 is the length of a record.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a negative number.
    pub fn new(header: i64, record: i64, footer: i64, hop: i64) -> Result<FixedLength> {
        let bytes = |name: &str, value: i64| {
            usize::try_from(value).map_err(|_| invalid_argument!("{name} must be >= 0 not {value}"))
        };
        let (header, record) = (bytes("header_bytes", header)?, bytes("record_bytes", record)?);
        let (footer, hop) = (bytes("footer_bytes", footer)?, bytes("hop_bytes", hop)?);
        Ok(FixedLength { header: header as u64, record, footer, hop: if hop == 0 { record } else { hop } })
    }
}

/// Reads records one after the other. The footer is kept back, as a stream does not say where it ends.
pub struct FixedLengthReader {
    input: Box<dyn BufRead + Send>,
    layout: FixedLength,
    ahead: Vec<u8>,
    started: bool,
}

impl FixedLengthReader {
    /// From the start of a stream.
    ///
    /// # Errors
    /// What reading returns.
    pub fn new(mut input: Box<dyn BufRead + Send>, layout: FixedLength) -> Result<FixedLengthReader> {
        skip(&mut *input, layout.header)?;
        Ok(FixedLengthReader { input, layout, ahead: Vec::new(), started: false })
    }

    /// The next record; `None` when no whole record is left in front of the footer.
    ///
    /// # Errors
    /// What reading returns.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.started {
            let held = self.layout.hop.min(self.ahead.len());
            self.ahead.drain(..held);
            let behind = (self.layout.hop - held) as u64;
            if skip(&mut *self.input, behind)? < behind {
                return Ok(None);
            }
        }
        self.started = true;
        let wanted = self.layout.record.saturating_add(self.layout.footer);
        while self.ahead.len() < wanted {
            // In pieces: the length may be more than the file has.
            let held = self.ahead.len();
            self.ahead.resize(held + (wanted - held).min(1 << 20), 0);
            let read = read_full(&mut *self.input, self.ahead.get_mut(held..).unwrap_or_default())?;
            self.ahead.truncate(held + read);
            if read == 0 {
                return Ok(None);
            }
        }
        // Records of no bytes would never end.
        if self.layout.record == 0 {
            return Ok(None);
        }
        Ok(self.ahead.get(..self.layout.record).map(<[u8]>::to_vec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(bytes: &'static [u8], layout: FixedLength) -> Vec<String> {
        let mut reader = FixedLengthReader::new(Box::new(bytes), layout).unwrap();
        let mut all = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            all.push(String::from_utf8(record).unwrap());
        }
        all
    }

    #[test]
    fn headers_footers_and_hops() {
        let layout = |header, record, footer, hop| FixedLength::new(header, record, footer, hop).unwrap();
        assert_eq!(records(b"HHaabbccF", layout(2, 2, 1, 0)), ["aa", "bb", "cc"]);
        assert_eq!(records(b"HHaabbcc", layout(2, 2, 1, 0)), ["aa", "bb"]);
        assert_eq!(records(b"abcdef", layout(0, 3, 0, 1)), ["abc", "bcd", "cde", "def"]);
        assert_eq!(records(b"abcdefg", layout(0, 2, 1, 3)), ["ab", "de"]);
        assert_eq!(records(b"", layout(2, 2, 1, 0)), [""; 0]);
        assert_eq!(records(b"abc", layout(0, i64::MAX, 0, 0)), [""; 0]);
        assert_eq!(records(b"abc", layout(0, 0, 0, 0)), [""; 0]);
        assert!(FixedLength::new(0, -1, 0, 0).is_err());
    }
}
