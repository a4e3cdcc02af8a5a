//! Saving and restoring checkpoints (version 2).

use crate::checkpoint_v1;
use crate::inputs::{first, path, text};
use graphmill_formats::{
    BundleReader, BundleWriter, FileSystem, SliceReader, index_file_name, merge_bundles, parse_shape_and_slice,
};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Checkpoints beyond this are read by several threads.
const WORTH_SPLITTING: usize = 8 << 20;
/// Threads that read a checkpoint, at most.
const READERS: usize = 8;
/// Inputs of both ops in front of the tensors.
const FIXED_INPUTS: usize = 3;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let kept = files.clone();
    registry.op("SaveV2").blocking_kernel(move |_| Ok(SaveV2(kept.clone())));
    let kept = files.clone();
    registry.op("RestoreV2").blocking_kernel(move |c| RestoreV2::new(c, kept.clone()));
    let kept = files.clone();
    registry.op("MergeV2Checkpoints").blocking_kernel(move |c| MergeV2Checkpoints::new(c, kept.clone()));
}

/// The checks that saving and restoring share.
fn check_names(prefix: &Tensor, names: &Tensor, slices: &Tensor) -> Result<()> {
    if prefix.num_elements() != 1 {
        return Err(invalid_argument!(
            "Input prefix should have a single element, got {} instead.",
            prefix.num_elements()
        ));
    }
    if !names.shape().is_vector() || !slices.shape().is_vector() {
        return Err(invalid_argument!(
            "Input tensor_names and shape_and_slices should be an 1-D tensors, got {} and {} instead.",
            names.shape(),
            slices.shape()
        ));
    }
    if names.num_elements() != slices.num_elements() {
        return Err(invalid_argument!(
            "tensor_names and shape_and_slices have different number of elements: {} vs. {}",
            names.num_elements(),
            slices.num_elements()
        ));
    }
    Ok(())
}

/// Writes tensors, or blocks of them, to a checkpoint.
struct SaveV2(Arc<dyn FileSystem>);

impl Kernel for SaveV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (prefix, names, slices) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        check_names(prefix, names, slices)?;
        let count = names.num_elements();
        if ctx.num_inputs() != count + FIXED_INPUTS {
            return Err(invalid_argument!(
                "Got {count} tensor names but {} tensors.",
                ctx.num_inputs().saturating_sub(FIXED_INPUTS)
            ));
        }
        let mut writer = BundleWriter::create(self.0.clone(), path(first(prefix)?))?;
        for (i, (name, slice)) in names.strings()?.iter().zip(slices.strings()?).enumerate() {
            let tensor = ctx.input(i + FIXED_INPUTS)?;
            if slice.is_empty() {
                writer.add(name, tensor)?;
                continue;
            }
            let slice = text(slice);
            let (shape, block, block_shape) = parse_shape_and_slice(&slice)?;
            if block_shape != *tensor.shape() {
                return Err(invalid_argument!(
                    "Slice in shape_and_slice specification does not match the shape of the tensor to  save: {slice}, tensor: \
                     {}",
                    tensor.shape()
                ));
            }
            writer.add_slice(name, &shape, &block, tensor)?;
        }
        writer.finish()
    }
}

/// Reads tensors, or blocks of them, from a checkpoint of either version.
struct RestoreV2 {
    files: Arc<dyn FileSystem>,
    dtypes: Vec<DType>,
}

impl RestoreV2 {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<RestoreV2> {
        Ok(RestoreV2 { files, dtypes: c.attrs().dtype_list("dtypes")? })
    }
}

/// One tensor to restore.
struct Wanted<'a> {
    output: usize,
    name: &'a [u8],
    slice: &'a [u8],
    bytes: usize,
}

impl Kernel for RestoreV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (prefix, names, slices) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if names.num_elements() != self.dtypes.len() {
            return Err(invalid_argument!(
                "Got {} tensor names, but {} expected dtypes.",
                names.num_elements(),
                self.dtypes.len()
            ));
        }
        check_names(prefix, names, slices)?;
        let prefix = path(first(prefix)?);
        let tensors = if self.files.matching(&index_file_name(prefix)).is_ok_and(|found| !found.is_empty()) {
            self.restore(ctx, prefix)?
        } else {
            let reader = SliceReader::open(&*self.files, prefix)?;
            let mut tensors = Vec::with_capacity(self.dtypes.len());
            for ((name, slice), &dtype) in names.strings()?.iter().zip(slices.strings()?).zip(&self.dtypes) {
                tensors.push(checkpoint_v1::restore(&reader, prefix, name, slice, dtype)?);
            }
            tensors
        };
        for (i, tensor) in tensors.into_iter().enumerate() {
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    }
}

impl RestoreV2 {
    fn restore(&self, ctx: &Context<'_>, prefix: &Path) -> Result<Vec<Tensor>> {
        let (names, slices) = (ctx.input(1)?.strings()?, ctx.input(2)?.strings()?);
        let mut wanted: Vec<Wanted<'_>> = names
            .iter()
            .zip(slices)
            .enumerate()
            .map(|(output, (name, slice))| Wanted { output, name, slice, bytes: 0 })
            .collect();
        // In the order in which they lie in the file.
        wanted.sort_by_key(|wanted| wanted.name);
        let mut reader = BundleReader::open(self.files.clone(), prefix)?;
        let mut mismatches = Vec::new();
        for wanted in &mut wanted {
            let (dtype, shape) = reader.dtype_and_shape(wanted.name)?;
            wanted.bytes = shape.num_elements().saturating_mul(dtype.size());
            let expected = self.dtypes.get(wanted.output).copied();
            if expected != Some(dtype) {
                let expected = expected.map_or("", DType::name);
                let name = text(wanted.name);
                mismatches.push(format!(
                    "tensor_name = {name}; expected dtype {expected} does not equal original dtype {dtype}"
                ));
            }
        }
        if !mismatches.is_empty() {
            return Err(invalid_argument!("{}", mismatches.join("\n")));
        }
        let total = wanted.iter().fold(0usize, |sum, wanted| sum.saturating_add(wanted.bytes));
        let readers = if total < WORTH_SPLITTING { 1 } else { ctx.device().pool().threads().min(READERS) };
        let next = AtomicUsize::new(0);
        let restored: Mutex<Vec<Option<Result<Tensor>>>> = Mutex::new(wanted.iter().map(|_| None).collect());
        let work = |reader: &mut BundleReader| {
            while let Some(wanted) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let tensor = restore_one(reader, wanted);
                let failed = tensor.is_err();
                if let Some(place) = restored.lock().get_mut(wanted.output) {
                    *place = Some(tensor);
                }
                if failed {
                    next.store(wanted_end(names.len()), Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..readers.min(names.len()) {
                let work = &work;
                // A thread that cannot be had leaves its share to the others.
                let _ = thread::Builder::new().name("restore".to_owned()).spawn_scoped(scope, move || {
                    if let Ok(mut reader) = BundleReader::open(self.files.clone(), prefix) {
                        work(&mut reader);
                    }
                });
            }
            work(&mut reader);
        });
        let restored = restored.into_inner();
        // The first error is the one to report; what comes behind it may not have been read.
        let error = restored.iter().find_map(|outcome| outcome.as_ref().and_then(|outcome| outcome.as_ref().err()));
        if let Some(error) = error {
            return Err(error.clone());
        }
        restored.into_iter().flatten().collect()
    }
}

/// A position that is behind every one of `count` tensors, with room to count on.
fn wanted_end(count: usize) -> usize {
    count.max(usize::MAX / 2)
}

fn restore_one(reader: &mut BundleReader, wanted: &Wanted<'_>) -> Result<Tensor> {
    if wanted.slice.is_empty() {
        return reader.tensor(wanted.name);
    }
    let (shape, block, _) = parse_shape_and_slice(&text(wanted.slice))?;
    let (_, stored): (DType, Shape) = reader.dtype_and_shape(wanted.name)?;
    if stored != shape {
        return Err(invalid_argument!(
            "tensor_name = {}; shape in shape_and_slice spec {shape} does not match the shape stored in checkpoint: {stored}",
            text(wanted.name)
        ));
    }
    reader.slice(wanted.name, &block)
}

/// Makes one checkpoint of those that several tasks wrote.
struct MergeV2Checkpoints {
    files: Arc<dyn FileSystem>,
    delete_old_directories: bool,
    allow_missing: bool,
}

impl MergeV2Checkpoints {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<MergeV2Checkpoints> {
        let delete_old_directories = c.attrs().bool("delete_old_dirs")?;
        let allow_missing = c.attrs().has("allow_missing_files") && c.attrs().bool("allow_missing_files")?;
        Ok(MergeV2Checkpoints { files, delete_old_directories, allow_missing })
    }
}

impl Kernel for MergeV2Checkpoints {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (prefixes, destination) = (ctx.input(0)?, ctx.input(1)?);
        if !prefixes.shape().is_vector() {
            return Err(invalid_argument!(
                "Input checkpoint_prefixes should be an 1-D tensor, got {} instead.",
                prefixes.shape()
            ));
        }
        if !destination.shape().is_scalar() {
            return Err(invalid_argument!(
                "Input destination_prefix should be a scalar tensor, got {} instead.",
                destination.shape()
            ));
        }
        let prefixes: Vec<&Path> = prefixes.strings()?.iter().map(|prefix| path(prefix)).collect();
        let destination = path(first(destination)?);
        merge_bundles(&*self.files, &prefixes, destination, self.allow_missing)?;
        if self.delete_old_directories {
            for directory in prefixes.iter().filter_map(|prefix| prefix.parent()) {
                if Some(directory) != destination.parent() {
                    // Of several in one directory only the last finds it empty.
                    let _ = self.files.remove_directory(directory);
                }
            }
        }
        Ok(())
    }
}
