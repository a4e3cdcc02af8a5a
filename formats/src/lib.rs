//! TensorFlow's file formats, and the file systems they lie on.
//!
//! - [`FileSystem`]: where files are; [`LocalFileSystem`] is the machine's own.
//! - [`BundleReader`], [`BundleWriter`], [`merge_bundles`]: checkpoints (version 2).
//! - [`SliceReader`], [`SliceWriter`]: checkpoints of the first version.
//! - [`RecordReader`], [`RecordWriter`]: TFRecord files; [`LineReader`], [`FixedLengthReader`]: plain files cut into records.
//! - [`LmdbReader`]: databases of LMDB.
//! - [`parse_batch`]: examples, as record files hold them, to tensors.
//! - [`EventsWriter`]: event files, which hold summaries; [`encode_png`] and [`encode_wav`] for the pictures and sounds in them.
//! - [`read_npy`], [`read_npz`]: arrays of NumPy.
//!
//! Whatever a file says is checked before it is believed: a length never reserves memory that the file could not fill.

mod bundle;
mod checksum;
mod coding;
mod compression;
mod events;
mod example;
mod file_system;
mod fixed_length;
mod glob;
mod lines;
mod lmdb;
mod local;
mod npy;
mod npz;
mod ordered_code;
mod png_image;
mod record;
mod slice;
mod table;
mod table_builder;
mod v1;
mod versions;
mod wav;

pub use bundle::{BundleReader, BundleWriter, data_file_name, index_file_name, merge_bundles};
pub use checksum::{crc32c, mask, masked_crc32c, unmask};
pub use compression::{Compression, decompress_reader};
pub use events::{EventsWriter, seconds_now};
pub use example::{
    Dense, DenseList, Layout, Parsed, ParsedSequences, Ragged, SequenceLayout, Sparse, parse_batch, parse_sequences,
    parse_single,
};
pub use file_system::{FileReader, FileSystem, RandomAccessFile, WritableFile, io_error};
pub use fixed_length::{FixedLength, FixedLengthReader};
pub use lines::LineReader;
pub use lmdb::LmdbReader;
pub use local::LocalFileSystem;
pub use npy::{read_npy, write_npy};
pub use npz::{read_npz, write_npz};
pub use png_image::encode_png;
pub use record::{RecordReader, RecordWriter};
pub use slice::{TensorSlice, parse_shape_and_slice};
pub use table::{Table, TableEntries};
pub use table_builder::TableBuilder;
pub use v1::{SliceReader, SliceWriter};
pub use wav::{Wav, decode_wav, encode_wav};
