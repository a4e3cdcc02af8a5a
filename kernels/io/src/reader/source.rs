//! Where records come from.

use crate::files::read_whole;
use crate::inputs::path;
use graphmill_formats::{
    Compression, FileSystem, FixedLength, FixedLengthReader, LineReader, LmdbReader, RecordReader,
};
use graphmill_tensor::{Bytes, Result};

/// Bytes read from a file at a time.
const BUFFER: usize = 256 << 10;

/// What a unit of work is, and how it is cut into records.
pub(super) enum Format {
    /// The work itself is the record.
    Identity,
    /// A file is a record.
    WholeFile,
    /// A file of records.
    Records(Compression),
    /// A file of lines; so many of its first ones are left out.
    Lines(usize),
    /// A file of records of one length.
    FixedLength(FixedLength, Compression),
    /// A database of keys and values.
    Lmdb,
}

/// A unit of work under way.
pub(super) enum Source {
    Single { whole_file: bool },
    Records(RecordReader),
    Lines { lines: LineReader, number: u64 },
    FixedLength { records: FixedLengthReader, number: u64 },
    Lmdb(LmdbReader),
}

/// What a read gives.
pub(super) enum Record {
    /// A key and a value; with `last`, nothing comes behind it.
    Produced { key: Bytes, value: Bytes, last: bool },
    /// The work is done.
    End,
}

impl Format {
    /// Starts a unit of work.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn open(&self, files: &dyn FileSystem, work: &[u8]) -> Result<Source> {
        let work = path(work);
        match self {
            Format::Identity => Ok(Source::Single { whole_file: false }),
            Format::WholeFile => Ok(Source::Single { whole_file: true }),
            Format::Records(compression) => Ok(Source::Records(RecordReader::open(files, work, *compression)?)),
            Format::Lines(skipped) => {
                let mut lines = LineReader::new(Compression::None.open(files, work, BUFFER)?);
                let mut number = 0;
                for _ in 0..*skipped {
                    if lines.next()?.is_none() {
                        break;
                    }
                    number += 1;
                }
                Ok(Source::Lines { lines, number })
            }
            Format::FixedLength(layout, compression) => {
                let records = FixedLengthReader::new(compression.open(files, work, BUFFER)?, *layout)?;
                Ok(Source::FixedLength { records, number: 0 })
            }
            Format::Lmdb => Ok(Source::Lmdb(LmdbReader::open(files, work)?)),
        }
    }
}

impl Source {
    /// The next record of a unit of work.
    ///
    /// # Errors
    /// What reading returns.
    pub(super) fn read(&mut self, files: &dyn FileSystem, work: &Bytes) -> Result<Record> {
        let (at, value) = match self {
            Source::Single { whole_file } => {
                let value = if *whole_file { read_whole(files, path(work))?.into() } else { work.clone() };
                return Ok(Record::Produced { key: work.clone(), value, last: true });
            }
            Source::Records(records) => (records.offset(), records.next()?),
            Source::Lines { lines, number } => {
                *number += 1;
                (*number, lines.next()?)
            }
            Source::FixedLength { records, number } => {
                *number += 1;
                (*number - 1, records.next()?)
            }
            Source::Lmdb(entries) => {
                return Ok(match entries.next()? {
                    Some((key, value)) => Record::Produced { key: key.into(), value: value.into(), last: false },
                    None => Record::End,
                });
            }
        };
        Ok(match value {
            Some(value) => {
                let key = [work.as_ref(), b":", at.to_string().as_bytes()].concat();
                Record::Produced { key: key.into(), value: value.into(), last: false }
            }
            None => Record::End,
        })
    }
}
