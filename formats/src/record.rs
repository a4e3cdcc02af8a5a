//! TFRecord files: for each record its length, the length's checksum, the record, and its checksum.

use crate::coding::{u32_at, u64_at};
use crate::compression::{read_up_to, skip};
use crate::file_system::io_error;
use crate::{Compression, FileSystem, WritableFile, crc32c, masked_crc32c, unmask};
use flate2::write::{GzEncoder, ZlibEncoder};
use graphmill_tensor::{Result, data_loss};
use std::io::{self, BufRead, Write};
use std::path::Path;

/// Bytes read at a time where nobody says otherwise.
const BUFFER: usize = 256 << 10;
/// Length and its checksum.
const HEADER: u64 = 12;
/// Checksum of the record.
const FOOTER: u64 = 4;

/// Reads records one after the other.
pub struct RecordReader {
    input: Box<dyn BufRead + Send>,
    offset: u64,
}

impl RecordReader {
    /// From an uncompressed stream at the start of a record.
    pub fn new(input: Box<dyn BufRead + Send>) -> RecordReader {
        RecordReader { input, offset: 0 }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub fn open(files: &dyn FileSystem, path: &Path, compression: Compression) -> Result<RecordReader> {
        Ok(RecordReader::new(compression.open(files, path, BUFFER)?))
    }

    /// Where the next record starts, in uncompressed bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes on to an offset further back that [`RecordReader::offset`] has given for this stream.
    ///
    /// # Errors
    /// What reading returns.
    pub fn skip_to(&mut self, offset: u64) -> Result<()> {
        self.offset += skip(&mut *self.input, offset.saturating_sub(self.offset))?;
        Ok(())
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// `DATA_LOSS` for a record that is cut off or does not match its checksums.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(length) = self.header()? else { return Ok(None) };
        match self.checked(self.offset + HEADER, length)? {
            Some(record) => {
                self.offset += HEADER + length + FOOTER;
                Ok(Some(record))
            }
            None => Err(data_loss!("truncated record at {}' failed with eof", self.offset)),
        }
    }

    /// Leaves out the next record without a look at its checksum; false at the end.
    ///
    /// # Errors
    /// As [`RecordReader::next`].
    pub fn skip(&mut self) -> Result<bool> {
        let Some(length) = self.header()? else { return Ok(false) };
        let whole = length.saturating_add(FOOTER);
        if skip(&mut *self.input, whole)? < whole {
            return Err(data_loss!("truncated record at {}' failed with eof", self.offset));
        }
        self.offset += HEADER + whole;
        Ok(true)
    }

    /// The length of the next record.
    fn header(&mut self) -> Result<Option<u64>> {
        let length = self.checked(self.offset, 8)?.and_then(|header| u64_at(&header, 0));
        match length {
            // No file is that long; sums with such a length would overflow.
            Some(length) if length > u64::MAX / 4 => Err(data_loss!("record size too large")),
            length => Ok(length),
        }
    }

    /// Bytes that a checksum follows; `None` if there is nothing at all.
    fn checked(&mut self, offset: u64, length: u64) -> Result<Option<Vec<u8>>> {
        let mut bytes = read_up_to(&mut *self.input, length + FOOTER)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if (bytes.len() as u64) < length + FOOTER {
            return Err(data_loss!("truncated record at {offset}"));
        }
        let end = bytes.len() - FOOTER as usize;
        let stored = u32_at(&bytes, end);
        bytes.truncate(end);
        if stored.map(unmask) != Some(crc32c(&bytes)) {
            return Err(data_loss!("corrupted record at {offset}"));
        }
        Ok(Some(bytes))
    }
}

/// Writes records one after the other.
pub struct RecordWriter {
    output: Output,
}

enum Output {
    Plain(FileWriter),
    Zlib(ZlibEncoder<FileWriter>),
    Gzip(GzEncoder<FileWriter>),
}

/// A file as the encoders write to it.
struct FileWriter(Box<dyn WritableFile>);

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}

impl RecordWriter {
    /// Into a file.
    pub fn new(file: Box<dyn WritableFile>, compression: Compression) -> RecordWriter {
        let (file, level) = (FileWriter(file), flate2::Compression::default());
        let output = match compression {
            Compression::None => Output::Plain(file),
            Compression::Zlib => Output::Zlib(ZlibEncoder::new(file, level)),
            Compression::Gzip => Output::Gzip(GzEncoder::new(file, level)),
        };
        RecordWriter { output }
    }

    /// Writes a record.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        let length = (record.len() as u64).to_le_bytes();
        let mut head = [0; HEADER as usize];
        let (front, back) = head.split_at_mut(8);
        front.copy_from_slice(&length);
        back.copy_from_slice(&masked_crc32c(&length).to_le_bytes());
        let parts = [&head[..], record, &masked_crc32c(record).to_le_bytes()];
        parts.iter().try_for_each(|part| self.writer().write_all(part)).map_err(|error| io_error("write", error))
    }

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// What the file system says.
    pub fn flush(&mut self) -> Result<()> {
        self.writer().flush().map_err(|error| io_error("flush", error))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn close(self) -> Result<()> {
        let file = match self.output {
            Output::Plain(file) => Ok(file),
            Output::Zlib(encoder) => encoder.finish(),
            Output::Gzip(encoder) => encoder.finish(),
        };
        file.map_err(|error| io_error("close", error))?.0.close()
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.output {
            Output::Plain(file) => file,
            Output::Zlib(encoder) => encoder,
            Output::Gzip(encoder) => encoder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFileSystem;
    use graphmill_tensor::Code;

    fn reader(bytes: &[u8]) -> RecordReader {
        RecordReader::new(Box::new(io::Cursor::new(bytes.to_vec())))
    }

    #[test]
    fn records_come_back_in_every_compression() {
        let directory = tempfile::tempdir().unwrap();
        let files = LocalFileSystem::new();
        let records: Vec<Vec<u8>> = (0..300usize).map(|i| vec![i as u8; i * i % 1000]).collect();
        for compression in [Compression::None, Compression::Zlib, Compression::Gzip] {
            let path = directory.path().join("records");
            let mut writer = RecordWriter::new(files.create(&path).unwrap(), compression);
            records.iter().for_each(|record| writer.write(record).unwrap());
            writer.close().unwrap();
            let mut reader = RecordReader::open(&files, &path, compression).unwrap();
            let mut offsets = Vec::new();
            for record in &records {
                offsets.push(reader.offset());
                assert_eq!(reader.next().unwrap().as_ref(), Some(record));
            }
            assert_eq!(reader.next().unwrap(), None);
            let mut reader = RecordReader::open(&files, &path, compression).unwrap();
            assert!(reader.skip().unwrap());
            assert_eq!(reader.next().unwrap().as_ref(), Some(&records[1]));
            reader.skip_to(offsets[200]).unwrap();
            assert_eq!(reader.next().unwrap().as_ref(), Some(&records[200]));
        }
    }

    #[test]
    fn damage_is_noticed() {
        let mut good = Vec::new();
        for record in [&b"first"[..], b"second"] {
            let length = (record.len() as u64).to_le_bytes();
            good.extend_from_slice(&length);
            good.extend_from_slice(&masked_crc32c(&length).to_le_bytes());
            good.extend_from_slice(record);
            good.extend_from_slice(&masked_crc32c(record).to_le_bytes());
        }
        assert_eq!(reader(&good).next().unwrap().unwrap(), b"first");
        for at in 0..21 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(reader(&bad).next().unwrap_err().code(), Code::DataLoss, "{at}");
        }
        for length in 1..21 {
            assert_eq!(reader(&good[..length]).next().unwrap_err().code(), Code::DataLoss, "{length}");
        }
        let length = (u64::MAX - 1).to_le_bytes();
        let huge = [&length[..], &masked_crc32c(&length).to_le_bytes(), b"x"].concat();
        assert_eq!(reader(&huge).next().unwrap_err().code(), Code::DataLoss);
        let length = (1u64 << 50).to_le_bytes();
        let huge = [&length[..], &masked_crc32c(&length).to_le_bytes(), b"x"].concat();
        assert_eq!(reader(&huge).next().unwrap_err().code(), Code::DataLoss);
    }

    #[test]
    fn a_stream_that_is_not_compressed_is_lost_data() {
        let directory = tempfile::tempdir().unwrap();
        let files = LocalFileSystem::new();
        let path = directory.path().join("plain");
        files.replace(&path, b"this is not a compressed stream").unwrap();
        for compression in [Compression::Zlib, Compression::Gzip] {
            let error = RecordReader::open(&files, &path, compression).unwrap().next().unwrap_err();
            assert_eq!(error.code(), Code::DataLoss, "{error}");
        }
    }
}
