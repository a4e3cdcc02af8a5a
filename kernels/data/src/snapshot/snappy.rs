//! Streams of blocks compressed by Snappy, each with its size in front, as TensorFlow's snapshots have them.

use graphmill_formats::WritableFile;
use graphmill_tensor::{Result, data_loss, internal};
use std::io::{self, BufRead, Read};

/// Bytes in a block that is written. TensorFlow's reader takes blocks of up to twice the size.
const BLOCK: usize = 128 << 10;
/// A block never grows by more than this when it is decompressed.
const MOST_EXPANSION: usize = 64;

/// A file whose contents are compressed.
pub(super) struct SnappyFile {
    file: Box<dyn WritableFile>,
    block: Vec<u8>,
}

impl SnappyFile {
    pub fn new(file: Box<dyn WritableFile>) -> SnappyFile {
        SnappyFile { file, block: Vec::new() }
    }

    fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let compressed = compress(&self.block)?;
        self.block.clear();
        let size = u32::try_from(compressed.len()).map_err(|_| internal!("a block is too large"))?;
        self.file.write(&size.to_be_bytes())?;
        self.file.write(&compressed)
    }
}

impl WritableFile for SnappyFile {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK.saturating_sub(self.block.len())));
            self.block.extend_from_slice(now);
            bytes = rest;
            if self.block.len() >= BLOCK {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.end_block()?;
        self.file.flush()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.end_block()?;
        self.file.close()
    }
}

/// One block.
pub(super) fn compress(plain: &[u8]) -> Result<Vec<u8>> {
    let compressed = snap::raw::Encoder::new().compress_vec(plain);
    compressed.map_err(|_| internal!("Failed to compress using snappy."))
}

/// Undoes [`compress`].
pub(super) fn decompress(compressed: &[u8]) -> Result<Vec<u8>> {
    let length = snap::raw::decompress_len(compressed);
    let length = length.map_err(|_| data_loss!("Could not get snappy uncompressed length"))?;
    if length > compressed.len().saturating_mul(MOST_EXPANSION) {
        return Err(data_loss!("Failed to perform snappy decompression."));
    }
    let plain = snap::raw::Decoder::new().decompress_vec(compressed);
    plain.map_err(|_| data_loss!("Failed to perform snappy decompression."))
}

/// What a stream of blocks holds.
pub(super) struct SnappyReader<R> {
    input: R,
    block: Vec<u8>,
    used: usize,
}

impl<R: BufRead> SnappyReader<R> {
    pub fn new(input: R) -> SnappyReader<R> {
        SnappyReader { input, block: Vec::new(), used: 0 }
    }

    /// Reads the next block; false at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        let mut size = Vec::with_capacity(4);
        self.input.by_ref().take(4).read_to_end(&mut size)?;
        if size.is_empty() {
            return Ok(false);
        }
        let cut_off = || io::Error::other(data_loss!("A compressed block is cut off"));
        let size = u32::from_be_bytes(size.try_into().map_err(|_| cut_off())?);
        let mut compressed = Vec::new();
        self.input.by_ref().take(u64::from(size)).read_to_end(&mut compressed)?;
        if compressed.len() as u64 != u64::from(size) {
            return Err(cut_off());
        }
        self.block = decompress(&compressed).map_err(io::Error::other)?;
        self.used = 0;
        Ok(true)
    }
}

impl<R: BufRead> Read for SnappyReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.used >= self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let rest = self.block.get(self.used..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.used += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_or_made_up_is_an_error() {
        let block = compress(b"some bytes, some bytes, some bytes").unwrap();
        let mut stream = (block.len() as u32).to_be_bytes().to_vec();
        stream.extend(&block);
        let read = |bytes: &[u8]| {
            let mut plain = Vec::new();
            SnappyReader::new(bytes).read_to_end(&mut plain).map(|_| plain)
        };
        assert_eq!(read(&stream).unwrap(), b"some bytes, some bytes, some bytes");
        assert!(read(&stream[..stream.len() - 1]).is_err() && read(&stream[..3]).is_err());
        // A block of five bytes that claims to hold four gigabytes.
        assert!(decompress(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    }
}
