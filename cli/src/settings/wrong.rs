//! What is wrong with a text of settings, and where.

use std::fmt;

/// A fault, with as much of its place as is known. Written behind the name of what is read, as in `, line 3, key port: invalid u16`.
pub struct Wrong {
    /// The line, from 1 on.
    pub line: Option<usize>,
    /// The key that the fault is below.
    pub key: Option<String>,
    /// The fault itself, at whose end readers may have written the place once more.
    pub message: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        let message = self.message.rsplit_once(" at line ").map_or(self.message.as_str(), |(start, _)| start);
        write!(f, ": {}", message.trim())
    }
}

/// The key of a place, if it is below the top.
pub fn key(path: &serde_path_to_error::Path) -> Option<String> {
    let text = path.to_string();
    (text != "." && text != "?").then_some(text)
}
