//! Files that were damaged, or made to harm, are read or refused: no panic, no memory beyond what they hold, no endless loop.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;

use damage::{Damage, check};
use graphmill_formats::*;
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor};
use graphmill_wire::tensorflow::feature::Kind;
use graphmill_wire::tensorflow::{
    BytesList, Event, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List, SequenceExample,
    event,
};
use prost::Message;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

const ROUNDS: usize = 4000;
/// What readers may hold besides what they read: their buffers.
const BUFFERS: usize = 3 << 20;

fn files() -> Arc<dyn FileSystem> {
    Arc::new(LocalFileSystem::new())
}

/// Makes a file anew: one that is cut to nothing and written again is flushed to the disk by some file systems.
fn put(path: &Path, contents: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, contents).unwrap();
}

/// A table's blocks: all but the footer, each with the kind of its compression and a checksum behind it.
fn blocks(table: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = 0;
    for end in 1..table.len().saturating_sub(47) {
        let sum = end.checked_sub(start + 5).and_then(|size| Some((size, table.get(end - 4..end)?)));
        let Some((size, sum)) = sum else { continue };
        if masked_crc32c(&table[start..=start + size]).to_le_bytes() == sum {
            found.push((start, size));
            start = end;
        }
    }
    found
}

/// Damages what the blocks of a table hold and makes their checksums fit again.
fn damage_blocks(damage: &mut Damage, table: &[u8], blocks: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = table.to_vec();
    for _ in 0..=damage.below(2) {
        let (start, size) = blocks[damage.below(blocks.len())];
        let mut block = damage.of(&bytes[start..=start + size]);
        block.resize(size + 1, 0);
        bytes[start..=start + size].copy_from_slice(&block);
        let sum = masked_crc32c(&block).to_le_bytes();
        bytes[start + size + 1..start + size + 5].copy_from_slice(&sum);
    }
    bytes
}

/// Either kind of damage to a table.
fn damage_table(damage: &mut Damage, table: &[u8], blocks: &[(usize, usize)]) -> Vec<u8> {
    if damage.below(4) == 0 { damage.of(table) } else { damage_blocks(damage, table, blocks) }
}

fn tensors() -> Vec<(&'static str, Tensor)> {
    let strings = vec![Bytes::from("one"), Bytes::new(), Bytes::from("three\0")];
    vec![
        ("a/floats", Tensor::from_slice(Shape::from_dims(&[3, 4]).unwrap(), &[0.5f32; 12]).unwrap()),
        ("a/numbers", Tensor::vector(&[1i64, -2, 3]).unwrap()),
        ("b/strings", Tensor::from_strings(Shape::vector(3), strings).unwrap()),
        ("c", Tensor::scalar(true).unwrap()),
    ]
}

fn read_table(path: &Path) -> Result<usize> {
    let table = Table::open(&LocalFileSystem::new(), path)?;
    let mut entries = table.entries()?;
    let mut count = 0;
    while let Some((key, _)) = entries.next()? {
        table.get(&key)?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn indices_of_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("model");
    let mut writer = BundleWriter::create(files(), &prefix).unwrap();
    for (name, tensor) in tensors() {
        writer.add(name.as_bytes(), &tensor).unwrap();
    }
    let shape = Shape::from_dims(&[4, 2]).unwrap();
    for rows in ["0,2:-", "2,2:-"] {
        let part = Tensor::from_slice(Shape::from_dims(&[2, 2]).unwrap(), &[1.0f32; 4]).unwrap();
        writer.add_slice(b"parts", &shape, &TensorSlice::parse(rows).unwrap(), &part).unwrap();
    }
    writer.finish().unwrap();
    let index = index_file_name(&prefix);
    let valid = fs::read(&index).unwrap();
    let blocks = blocks(&valid);
    assert!(!blocks.is_empty());
    let mut damage = Damage::new(1);
    let all = |_: &Vec<u8>| -> Result<()> {
        let mut reader = BundleReader::open(files(), &prefix)?;
        let names = tensors().into_iter().map(|(name, _)| name).chain(["parts"]);
        let found: Vec<Result<Tensor>> = names
            .map(|name| {
                reader.dtype_and_shape(name.as_bytes())?;
                reader.tensor(name.as_bytes())
            })
            .collect();
        reader.slice(b"parts", &TensorSlice::parse("1,2:-").unwrap())?;
        found.into_iter().collect::<Result<Vec<_>>>()?;
        read_table(&index)?;
        Ok(())
    };
    all(&valid).unwrap();
    let write = || {
        let file = damage_table(&mut damage, &valid, &blocks);
        put(&index, &file);
        file
    };
    check(ROUNDS, write, |_| BUFFERS, all);
}

#[test]
fn data_of_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("model");
    let mut writer = BundleWriter::create(files(), &prefix).unwrap();
    for (name, tensor) in tensors() {
        writer.add(name.as_bytes(), &tensor).unwrap();
    }
    writer.finish().unwrap();
    let data = data_file_name(&prefix, 0, 1);
    let valid = fs::read(&data).unwrap();
    let mut damage = Damage::new(2);
    let write = || {
        let file = damage.of(&valid);
        put(&data, &file);
        file
    };
    check(
        ROUNDS,
        write,
        |_| BUFFERS,
        |_| {
            let mut reader = BundleReader::open(files(), &prefix)?;
            let found: Vec<_> = tensors().into_iter().map(|(name, _)| reader.tensor(name.as_bytes())).collect();
            found.into_iter().collect::<Result<Vec<_>>>()
        },
    );
}

/// A table of one data block, compressed by snappy if that is wanted, with an index block and a footer.
fn one_block(block: &[u8], compressed: bool) -> Vec<u8> {
    let mut table = Vec::new();
    let mut add = |block: &[u8], kind: u8| {
        let handle = (table.len() as u64, block.len() as u64);
        table.extend_from_slice(block);
        table.push(kind);
        let sum = masked_crc32c(&table[handle.0 as usize..]);
        table.extend(sum.to_le_bytes());
        handle
    };
    let handle = |(offset, size): (u64, u64)| {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(offset, &mut bytes);
        prost::encoding::encode_varint(size, &mut bytes);
        bytes
    };
    let data = if compressed { add(&snap::raw::Encoder::new().compress_vec(block).unwrap(), 1) } else { add(block, 0) };
    let data = handle(data);
    let mut index = vec![0, 1, data.len() as u8, b'~'];
    index.extend(&data);
    index.extend([0u32.to_le_bytes(), 1u32.to_le_bytes()].concat());
    let index = add(&index, 0);
    let mut footer = handle((0, 0));
    footer.extend(handle(index));
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
    table.extend(footer);
    table
}

#[test]
fn compressed_blocks_of_tables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let mut block = Vec::new();
    for key in b'a'..=b'h' {
        block.extend([0, 1, 100, key]);
        block.extend([key; 100]);
    }
    block.extend([0u32.to_le_bytes(), 1u32.to_le_bytes()].concat());
    for compressed in [true, false] {
        let valid = one_block(&block, compressed);
        put(&path, &valid);
        assert_eq!(read_table(&path).unwrap(), 8);
        let blocks = blocks(&valid);
        assert_eq!(blocks.len(), 2);
        let mut damage = Damage::new(3);
        let write = || {
            let file = damage_table(&mut damage, &valid, &blocks);
            put(&path, &file);
            file
        };
        check(ROUNDS, write, |_| BUFFERS, |_| read_table(&path));
    }
}

#[test]
fn checkpoints_of_the_first_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model");
    let mut writer = SliceWriter::new(files(), &path);
    for (name, tensor) in tensors() {
        writer.add(name, tensor.shape(), &TensorSlice::whole(tensor.shape().rank()), &tensor).unwrap();
    }
    let shape = Shape::from_dims(&[4, 2]).unwrap();
    for rows in ["0,2:-", "2,2:-"] {
        let part = Tensor::from_slice(Shape::from_dims(&[2, 2]).unwrap(), &[1.0f32; 4]).unwrap();
        writer.add("parts", &shape, &TensorSlice::parse(rows).unwrap(), &part).unwrap();
    }
    writer.finish().unwrap();
    let valid = fs::read(&path).unwrap();
    let blocks = blocks(&valid);
    assert!(blocks.len() >= 2);
    let mut damage = Damage::new(4);
    let write = || {
        let file = damage_table(&mut damage, &valid, &blocks);
        put(&path, &file);
        file
    };
    check(
        ROUNDS,
        write,
        |_| BUFFERS,
        |_| {
            let reader = SliceReader::open(&LocalFileSystem::new(), &path)?;
            for (name, tensor) in tensors() {
                reader.dtype_and_shape(name.as_bytes());
                reader.slice(name.as_bytes(), &TensorSlice::whole(tensor.shape().rank()))?;
            }
            reader.slice(b"parts", &TensorSlice::parse("1,2:-").unwrap())
        },
    );
}

/// Reads all records, and skips every other one in a second pass.
fn read_records(path: &Path, compression: Compression) -> Result<usize> {
    let mut reader = RecordReader::open(&LocalFileSystem::new(), path, compression)?;
    let mut size = 0;
    while let Some(record) = reader.next()? {
        size += record.len();
    }
    let mut reader = RecordReader::open(&LocalFileSystem::new(), path, compression)?;
    while reader.skip()? {
        if reader.next()?.is_none() {
            break;
        }
    }
    Ok(size)
}

#[test]
fn records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records");
    for (seed, compression) in [Compression::None, Compression::Zlib, Compression::Gzip].into_iter().enumerate() {
        let mut writer = RecordWriter::new(files().create(&path).unwrap(), compression);
        for record in [b"one".as_slice(), b"", &[7; 300], b"the last"] {
            writer.write(record).unwrap();
        }
        writer.close().unwrap();
        let valid = fs::read(&path).unwrap();
        assert_eq!(read_records(&path, compression).unwrap(), 311);
        let mut damage = Damage::new(5 + seed as u64);
        let write = || {
            let file = damage.of(&valid);
            put(&path, &file);
            file
        };
        check(ROUNDS / 2, write, |_| BUFFERS, |_| read_records(&path, compression));
    }
}

#[test]
fn lengths_of_records_that_fit_their_checksum() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records");
    for length in [1u64 << 20, 1 << 32, 1 << 50, u64::MAX / 4, u64::MAX - 3, u64::MAX] {
        let header = length.to_le_bytes();
        let file = [&header[..], &masked_crc32c(&header).to_le_bytes(), b"short"].concat();
        put(&path, &file);
        check(1, || file.clone(), |_| BUFFERS, |_| read_records(&path, Compression::None));
    }
}

#[test]
fn events() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("run");
    let mut writer = EventsWriter::create(files(), prefix.to_str().unwrap(), ".v2").unwrap();
    for step in 0..5 {
        let what = Some(event::What::FileVersion("brain.Event:2".to_owned()));
        writer.write(&Event { step, what, ..Event::default() }).unwrap();
    }
    writer.flush().unwrap();
    let path = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let valid = fs::read(&path).unwrap();
    let mut damage = Damage::new(8);
    let write = || {
        let file = damage.of(&valid);
        put(&path, &file);
        file
    };
    check(ROUNDS / 2, write, |_| BUFFERS, |_| read_records(&path, Compression::None));
}

#[test]
fn compressed_streams() {
    let text: Vec<u8> = (0..2000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
    let mut damage = Damage::new(9);
    for compression in [Compression::Zlib, Compression::Gzip] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stream");
        let mut writer = RecordWriter::new(files().create(&path).unwrap(), compression);
        writer.write(&text).unwrap();
        writer.close().unwrap();
        let valid = fs::read(&path).unwrap();
        check(
            ROUNDS / 2,
            || damage.of(&valid),
            |_| BUFFERS,
            |file| {
                let stream = || decompress_reader(compression, Cursor::new(file.clone()), 1 << 12);
                let mut lines = LineReader::new(stream());
                while lines.next()?.is_some() {}
                let mut pieces = FixedLengthReader::new(stream(), FixedLength::new(3, 100, 5, 70)?)?;
                while pieces.next()?.is_some() {}
                Ok::<_, graphmill_tensor::Status>(())
            },
        );
    }
}

#[test]
fn sounds() {
    let samples: Vec<f32> = (0..400).map(|n| (n as f32 * 0.1).sin()).collect();
    let valid = encode_wav(&samples, 8000, 2, 200).unwrap();
    assert_eq!(decode_wav(&valid).unwrap().frames, 200);
    let mut damage = Damage::new(10);
    check(ROUNDS, || damage.of(&valid), |file| 4 * file.len() + (1 << 12), |file| decode_wav(file));
}

fn feature(kind: Kind) -> Feature {
    Feature { kind: Some(kind) }
}

fn kinds() -> [(&'static str, Feature); 3] {
    [
        ("floats", feature(Kind::FloatList(FloatList { value: vec![0.5, 1.5] }))),
        ("numbers", feature(Kind::Int64List(Int64List { value: vec![3, -4, 5] }))),
        ("words", feature(Kind::BytesList(BytesList { value: vec![Bytes::from("a"), Bytes::from("bcd")] }))),
    ]
}

fn layout() -> Layout {
    let key = |name: &'static str| Bytes::from(name);
    let dense = |name, dtype, variable, size| Dense {
        key: key(name),
        dtype,
        shape: if variable { Shape::scalar() } else { Shape::vector(size) },
        variable,
        default: Tensor::alloc(dtype, Shape::vector(0)).unwrap(),
    };
    Layout {
        dense: vec![dense("floats", DType::Float, false, 2), dense("numbers", DType::Int64, false, 3)],
        sparse: vec![
            Sparse { key: key("words"), dtype: DType::String },
            Sparse { key: key("numbers"), dtype: DType::Int64 },
        ],
        ragged: vec![Ragged { key: key("floats"), dtype: DType::Float, splits: DType::Int32 }],
    }
}

#[test]
fn examples() {
    let map = kinds().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let valid = Example { features: Some(Features { feature: map }) }.encode_to_vec();
    parse_single(&layout(), &Bytes::from(valid.clone())).unwrap();
    let mut damage = Damage::new(11);
    check(
        2 * ROUNDS,
        || damage.of(&valid),
        |file| 64 * file.len() + (1 << 16),
        |file| {
            let example = Bytes::from(file.clone());
            parse_batch(&layout(), &[example.clone(), Bytes::from(valid.clone())], &[])?;
            parse_single(&layout(), &example)
        },
    );
}

#[test]
fn examples_of_sequences() {
    let context = kinds().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let list = |(name, value): (&str, Feature)| (name.to_owned(), FeatureList { feature: vec![value.clone(), value] });
    let valid = SequenceExample {
        context: Some(Features { feature: context }),
        feature_lists: Some(FeatureLists { feature_list: kinds().into_iter().map(list).collect() }),
    }
    .encode_to_vec();
    let layout = SequenceLayout {
        context: layout(),
        dense: vec![DenseList {
            key: Bytes::from("numbers"),
            dtype: DType::Int64,
            shape: Shape::vector(3),
            may_miss: false,
        }],
        sparse: vec![Sparse { key: Bytes::from("words"), dtype: DType::String }],
        ragged: vec![Ragged { key: Bytes::from("floats"), dtype: DType::Float, splits: DType::Int64 }],
    };
    let mut damage = Damage::new(12);
    check(
        2 * ROUNDS,
        || damage.of(&valid),
        |file| 64 * file.len() + (1 << 16),
        |file| {
            let example = Bytes::from(file.clone());
            parse_sequences(&layout, &[example.clone(), Bytes::from(valid.clone())], &[], true)?;
            parse_sequences(&layout, &[example], &[], false)
        },
    );
}
