//! Checkpoints of the second version: an index, and data files that hold the tensors one behind the other.

mod data;
mod merge;
mod reader;
mod writer;

pub use merge::merge_bundles;
pub use reader::BundleReader;
pub use writer::BundleWriter;

use graphmill_tensor::{Result, Status, data_loss};
use prost::Message;
use std::path::{Path, PathBuf};

/// The version of the format.
const VERSION: i32 = 1;

/// The index of the checkpoint `prefix`.
pub fn index_file_name(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".index")
}

/// A data file of the checkpoint `prefix`.
pub fn data_file_name(prefix: &Path, shard: i32, shards: i32) -> PathBuf {
    with_suffix(prefix, &format!(".data-{shard:05}-of-{shards:05}"))
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn decode<M: Message + Default>(key: &[u8], value: &[u8]) -> Result<M> {
    M::decode(value).map_err(|_| data_loss!("Entry for key {} not parseable.", String::from_utf8_lossy(key)))
}

/// What is said of an index that cannot be understood.
fn corrupt(file: &Path, detail: &str, cause: Option<Status>) -> Status {
    let text = format!(
        "Unable to read file ({}). Perhaps the file is corrupt or was produced by a newer version of TensorFlow with format \
         changes ({detail})",
        file.display()
    );
    match cause {
        Some(cause) => {
            let text = format!("{text}: {}", cause.message());
            cause.with_message(text)
        }
        None => graphmill_tensor::internal!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSystem, LocalFileSystem, TensorSlice};
    use graphmill_tensor::{Bytes, Code, Complex32, DType, Shape, Tensor, Variant, bf16};
    use std::sync::Arc;

    fn files() -> Arc<dyn FileSystem> {
        Arc::new(LocalFileSystem::new())
    }

    fn ramp(rows: usize, columns: usize) -> Tensor {
        let values: Vec<i32> = (0..(rows * columns) as i32).collect();
        Tensor::from_slice(Shape::from_dims(&[rows, columns]).unwrap(), &values).unwrap()
    }

    fn tensors() -> Vec<(&'static str, Tensor)> {
        let strings = vec![Bytes::from("a"), Bytes::new(), Bytes::from(vec![7u8; 300])];
        let variant = Variant { type_name: "int".into(), metadata: Bytes::from("xy"), ..Variant::default() };
        vec![
            ("a/float", Tensor::vector(&[1.5f32, f32::NAN]).unwrap()),
            ("b", Tensor::scalar(true).unwrap()),
            ("complex", Tensor::vector(&[Complex32::new(1.0, -2.0)]).unwrap()),
            ("empty", Tensor::zeros(DType::Int64, Shape::from_dims(&[0, 3]).unwrap()).unwrap()),
            ("no strings", Tensor::from_strings(Shape::vector(0), Vec::new()).unwrap()),
            ("ramp", ramp(70, 5000)),
            ("small", Tensor::vector(&[bf16::from_f32(2.0)]).unwrap()),
            ("strings", Tensor::from_strings(Shape::vector(3), strings).unwrap()),
            ("variant", Tensor::from_variants(Shape::scalar(), vec![variant]).unwrap()),
        ]
    }

    fn write(prefix: &Path) {
        let mut writer = BundleWriter::create(files(), prefix).unwrap();
        for (name, tensor) in tensors() {
            writer.add(name.as_bytes(), &tensor).unwrap();
        }
        assert_eq!(writer.add(b"b", &ramp(1, 1)).unwrap_err().code(), Code::InvalidArgument);
        writer.finish().unwrap();
    }

    #[test]
    fn every_type_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("new/dir/model");
        write(&prefix);
        let mut reader = BundleReader::open(files(), &prefix).unwrap();
        for (name, tensor) in tensors() {
            let found = reader.tensor(name.as_bytes()).unwrap();
            assert_eq!((found.dtype(), found.shape()), (tensor.dtype(), tensor.shape()), "{name}");
            assert_eq!(found.as_bytes(), tensor.as_bytes(), "{name}");
            assert_eq!(found.strings().ok(), tensor.strings().ok());
            assert_eq!(
                found.variants().ok().map(|v| v[0].metadata.clone()),
                tensor.variants().ok().map(|v| v[0].metadata.clone())
            );
        }
        let error = reader.tensor(b"absent").unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::NotFound, "Key absent not found in checkpoint"));
        assert_eq!(std::fs::read_dir(prefix.parent().unwrap()).unwrap().count(), 2);
        let mut unfinished = BundleWriter::create(files(), &prefix).unwrap();
        unfinished.add(b"x", &ramp(2, 2)).unwrap();
        drop(unfinished);
        assert_eq!(std::fs::read_dir(prefix.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn blocks_are_put_together_across_merged_files() {
        let directory = tempfile::tempdir().unwrap();
        let full = ramp(6, 4);
        let slice = |text: &str| TensorSlice::parse(text).unwrap();
        let parts: [&[(&str, &[i32])]; 2] = [
            &[("0,2:-", &[0, 1, 2, 3, 4, 5, 6, 7])],
            &[("2,4:0,1", &[8, 12, 16, 20]), ("2,4:1,3", &[9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23])],
        ];
        let prefixes = [directory.path().join("temp/part-0"), directory.path().join("temp/part-1")];
        for (prefix, parts) in prefixes.iter().zip(parts) {
            let mut writer = BundleWriter::create(files(), prefix).unwrap();
            for (text, values) in parts {
                let block = slice(text);
                let shape = block.shape_of(full.shape()).unwrap();
                writer.add_slice(b"v", full.shape(), &block, &Tensor::from_slice(shape, values).unwrap()).unwrap();
            }
            writer.add(prefix.file_name().unwrap().as_encoded_bytes(), &ramp(1, 1)).unwrap();
            writer.finish().unwrap();
        }
        let merged = directory.path().join("model");
        let prefixes: Vec<&Path> = prefixes.iter().map(PathBuf::as_path).collect();
        merge_bundles(&*files(), &prefixes, &merged, false).unwrap();
        assert_eq!(std::fs::read_dir(directory.path().join("temp")).unwrap().count(), 0);
        let mut reader = BundleReader::open(files(), &merged).unwrap();
        assert_eq!(reader.tensor(b"v").unwrap().as_bytes(), full.as_bytes());
        assert_eq!(reader.slice(b"v", &slice("0,6:-")).unwrap().as_bytes(), full.as_bytes());
        let middle = reader.slice(b"v", &slice("1,3:1,2")).unwrap();
        assert_eq!(middle.as_slice::<i32>().unwrap(), [5, 6, 9, 10, 13, 14]);
        let stored = reader.slice(b"v", &slice("2,4:0,1")).unwrap();
        assert_eq!(stored.as_slice::<i32>().unwrap(), [8, 12, 16, 20]);
        assert_eq!(reader.slice(b"v", &slice("5,2:-")).unwrap_err().code(), Code::Internal);
        assert!(reader.tensor(b"part-1").is_ok());
    }

    #[test]
    fn a_part_that_is_not_there_is_named_and_the_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let parts = [directory.path().join("part-0"), directory.path().join("part-1")];
        let merged = directory.path().join("model");
        let merge = |count: usize| {
            let prefixes: Vec<&Path> = parts[..count].iter().map(PathBuf::as_path).collect();
            merge_bundles(&*files(), &prefixes, &merged, false).unwrap_err()
        };
        write(&parts[0]);
        let error = merge(2);
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.message().contains("part-1.index") && error.message().contains("part 2 of the 2"), "{error}");
        std::fs::remove_file(data_file_name(&parts[0], 0, 1)).unwrap();
        let error = merge(1);
        assert!(error.message().contains("part-0.data-00000-of-00001"), "{error}");
        assert!(index_file_name(&parts[0]).exists());
        let error = BundleReader::open(files(), &parts[0]).unwrap().tensor(b"b").unwrap_err();
        assert!(error.message().contains("part-0.data-00000-of-00001"), "{error}");
    }

    #[test]
    fn a_cover_with_a_hole_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("model");
        let mut writer = BundleWriter::create(files(), &prefix).unwrap();
        let shape = Shape::from_dims(&[6, 4]).unwrap();
        writer.add_slice(b"v", &shape, &TensorSlice::parse("0,2:-").unwrap(), &ramp(2, 4)).unwrap();
        writer.finish().unwrap();
        let mut reader = BundleReader::open(files(), &prefix).unwrap();
        let error = reader.tensor(b"v").unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().starts_with("Does not have sufficient slices for partitioned tensor v"));
    }

    #[test]
    fn every_broken_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("model");
        write(&prefix);
        let read = || -> Result<()> {
            let mut reader = BundleReader::open(files(), &prefix)?;
            tensors().into_iter().try_for_each(|(name, _)| reader.tensor(name.as_bytes()).map(drop))
        };
        read().unwrap();
        for path in [data_file_name(&prefix, 0, 1), index_file_name(&prefix)] {
            let good = std::fs::read(&path).unwrap();
            let step = (good.len() / 200).max(1);
            // The end of an index is what the tests of tables break; part of it is not looked at.
            for at in (0..good.len() - 100).step_by(step) {
                let mut bad = good.clone();
                bad[at] ^= 0x81;
                std::fs::write(&path, &bad).unwrap();
                let code = read().unwrap_err().code();
                assert!(matches!(code, Code::DataLoss | Code::OutOfRange | Code::Internal), "{at}: {code:?}");
            }
            std::fs::write(&path, &good[..good.len() / 2]).unwrap();
            assert!(read().is_err());
            std::fs::write(&path, &good).unwrap();
        }
    }
}
