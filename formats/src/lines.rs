//! Text files cut into lines.

use crate::file_system::io_error;
use graphmill_tensor::Result;
use std::io::BufRead;

/// Reads lines one after the other. Line ends are not part of them, nor is any carriage return.
pub struct LineReader {
    input: Box<dyn BufRead + Send>,
}

impl LineReader {
    /// From a stream at the start of a line.
    pub fn new(input: Box<dyn BufRead + Send>) -> LineReader {
        LineReader { input }
    }

    /// The next line; `None` at the end. A last line needs no line end.
    ///
    /// # Errors
    /// What reading returns.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if self.input.read_until(b'\n', &mut line).map_err(|error| io_error("read", error))? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.contains(&b'\r') {
            line.retain(|&byte| byte != b'\r');
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_ends() {
        let mut lines = LineReader::new(Box::new(&b"one\r\n\ntwo\rx\nlast"[..]));
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(all, ["one", "", "twox", "last"]);
        assert_eq!(LineReader::new(Box::new(&b""[..])).next().unwrap(), None);
    }
}
