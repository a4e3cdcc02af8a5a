//! Compressed streams.

use crate::file_system::io_error;
use crate::{FileReader, FileSystem};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use graphmill_tensor::{Result, Status, data_loss};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1950.
    Zlib,
    /// RFC 1952.
    Gzip,
}

impl Compression {
    /// By the name that ops use: empty, `ZLIB` or `GZIP`.
    pub fn from_name(name: &[u8]) -> Option<Compression> {
        match name {
            b"" => Some(Compression::None),
            b"ZLIB" => Some(Compression::Zlib),
            b"GZIP" => Some(Compression::Gzip),
            _ => None,
        }
    }

    /// Opens a file and undoes its compression; `buffer` is how many bytes are read at a time.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub fn open(self, files: &dyn FileSystem, path: &Path, buffer: usize) -> Result<Box<dyn BufRead + Send>> {
        let file = FileReader::new(files.open(path)?);
        Ok(decompress_reader(self, BufReader::with_capacity(buffer.clamp(1 << 10, 64 << 20), file), buffer))
    }
}

/// Undoes compression. Broken data is an error that carries `DATA_LOSS`; data that is cut off just ends.
pub fn decompress_reader(
    compression: Compression,
    input: impl BufRead + Send + 'static,
    buffer: usize,
) -> Box<dyn BufRead + Send> {
    let buffer = buffer.clamp(1 << 10, 64 << 20);
    match compression {
        Compression::None => Box::new(input),
        Compression::Zlib => Box::new(BufReader::with_capacity(buffer, Inflated(ZlibDecoder::new(input)))),
        Compression::Gzip => Box::new(BufReader::with_capacity(buffer, Inflated(MultiGzDecoder::new(input)))),
    }
}

struct Inflated<R>(R);

impl<R: Read> Read for Inflated<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<Status>()) => Err(error),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Err(io::Error::other(data_loss!("inflate() failed with error -3: {error}")))
            }
            other => other,
        }
    }
}

/// Reads until the buffer is full or the input ends; how much it was.
pub(crate) fn read_full(input: &mut dyn BufRead, buffer: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_error("read", error)),
        }
    }
    Ok(done)
}

/// Reads up to `count` bytes, as memory for them turns out to be needed: the count may be made up.
pub(crate) fn read_up_to(input: &mut dyn BufRead, count: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(count).unwrap_or(usize::MAX).min(1 << 20));
    input.take(count).read_to_end(&mut bytes).map_err(|error| io_error("read", error))?;
    Ok(bytes)
}

/// Leaves out up to `count` bytes; how many there were.
pub(crate) fn skip(input: &mut dyn BufRead, count: u64) -> Result<u64> {
    let mut left = count;
    while left > 0 {
        let available = match input.fill_buf() {
            Ok([]) => break,
            Ok(bytes) => usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io_error("read", error)),
        };
        input.consume(available);
        left -= available as u64;
    }
    Ok(count - left)
}
