//! Saving and restoring checkpoints of the first version.

use crate::inputs::{first, path, text};
use graphmill_formats::{FileSystem, SliceReader, SliceWriter, TensorSlice, parse_shape_and_slice};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument, not_found, unimplemented_op};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    for (op, slices) in [("Save", false), ("SaveSlices", true)] {
        let kept = files.clone();
        registry.op(op).blocking_kernel(move |_| Ok(Save { files: kept.clone(), slices }));
    }
    for (op, slices) in [("Restore", false), ("RestoreSlice", true)] {
        let kept = files.clone();
        registry.op(op).blocking_kernel(move |c| Restore::new(c, kept.clone(), slices));
    }
}

/// Whether the format has values of a type.
fn is_storable(dtype: DType) -> bool {
    use DType::*;
    let other = matches!(dtype, Half | Float | Double | Bool | String | QInt8 | QUInt8 | QInt32);
    let integer = dtype.is_integer() && !matches!(dtype, Int4 | UInt4 | Int2 | UInt2);
    other || integer || dtype.is_complex()
}

/// Writes tensors, or blocks of them, to a file.
struct Save {
    files: Arc<dyn FileSystem>,
    slices: bool,
}

impl Kernel for Save {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (file, names) = (ctx.input(0)?, ctx.input(1)?);
        if file.num_elements() != 1 {
            return Err(invalid_argument!(
                "Input 0 (filename) must be a string scalar; got a tensor of {}elements",
                file.num_elements()
            ));
        }
        let fixed = if self.slices { 3 } else { 2 };
        let count = names.num_elements();
        let slices = if self.slices { Some(ctx.input(2)?) } else { None };
        if let Some(slices) = slices.filter(|slices| slices.num_elements() != count) {
            return Err(invalid_argument!(
                "Expected {count} elements for the tensor shapes and slices but got {}",
                slices.num_elements()
            ));
        }
        if ctx.num_inputs() != count + fixed {
            return Err(invalid_argument!(
                "Expected totally {} inputs as input #1 (which is a string tensor of saved names) contains {count} names, but \
                 received {} inputs",
                count + fixed,
                ctx.num_inputs()
            ));
        }
        let names = names.strings()?;
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&i| names.get(i));
        let mut writer = SliceWriter::new(self.files.clone(), path(first(file)?));
        for i in order {
            let tensor = ctx.input(i + fixed)?;
            if !is_storable(tensor.dtype()) {
                return Err(unimplemented_op!("Saving data type {} not yet supported", tensor.dtype()));
            }
            let name = names.get(i).map(|name| text(name)).unwrap_or_default();
            let slice = match slices {
                Some(slices) => slices.strings()?.get(i).map(|slice| text(slice)).unwrap_or_default(),
                None => String::new(),
            };
            if slice.is_empty() {
                writer.add(&name, tensor.shape(), &TensorSlice::whole(tensor.shape().rank()), tensor)?;
                continue;
            }
            let (shape, block, block_shape) = parse_shape_and_slice(&slice)?;
            if block_shape != *tensor.shape() {
                return Err(invalid_argument!(
                    "Slice in shape_and_slice specification does not match the shape of the tensor to  save: {slice}, tensor: \
                     {}",
                    tensor.shape()
                ));
            }
            writer.add(&name, &shape, &block, tensor)?;
        }
        writer.finish()
    }
}

/// Reads a tensor, or a block of one, from files.
struct Restore {
    files: Arc<dyn FileSystem>,
    dtype: DType,
    slices: bool,
}

impl Restore {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>, slices: bool) -> Result<Restore> {
        if c.attrs().int("preferred_shard")? < -1 {
            return Err(invalid_argument!("Attribute 'preferred_shard' must be greater or equal to -1"));
        }
        Ok(Restore { files, dtype: c.dtype("dt")?, slices })
    }
}

impl Kernel for Restore {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (pattern, names) = (ctx.input(0)?, ctx.input(1)?);
        if pattern.num_elements() != 1 {
            return Err(invalid_argument!(
                "Input 0 (file_pattern) must be a string scalar; got a tensor of {} elements",
                pattern.num_elements()
            ));
        }
        if names.num_elements() == 0 {
            return Err(invalid_argument!("Input 1 (file_pattern) must be a have at least 1 elements"));
        }
        let slice: &[u8] = match self.slices {
            true if ctx.input(2)?.num_elements() == 0 => {
                return Err(invalid_argument!("Input 2 (shapes_and_slices) must have at least 1 elements"));
            }
            true => first(ctx.input(2)?)?,
            false => b"",
        };
        let pattern = path(first(pattern)?);
        let reader = SliceReader::open(&*self.files, pattern)?;
        let tensor = restore(&reader, pattern, first(names)?, slice, self.dtype)?;
        ctx.set_output(0, tensor)
    }
}

/// A tensor, or the block of it that `slice` describes if that is not empty.
pub(crate) fn restore(
    reader: &SliceReader,
    pattern: &Path,
    name: &[u8],
    slice: &[u8],
    expected: DType,
) -> Result<Tensor> {
    let Some((dtype, shape)) = reader.dtype_and_shape(name) else {
        return Err(not_found!("Tensor name \"{}\" not found in checkpoint files {}", text(name), pattern.display()));
    };
    if dtype != expected {
        return Err(invalid_argument!(
            "Expected to restore a tensor of type {expected}, got a tensor of type {dtype} instead: tensor_name = {}",
            text(name)
        ));
    }
    let (block, block_shape) = if slice.is_empty() {
        (TensorSlice::whole(shape.rank()), shape.clone())
    } else {
        let (parsed, block, block_shape) = parse_shape_and_slice(&text(slice))?;
        if parsed != *shape {
            return Err(invalid_argument!(
                "Shape in shape_and_slice spec does not match the shape in the save file: {parsed}, save file shape: {shape}"
            ));
        }
        (block, block_shape)
    };
    if block_shape.num_elements() == 0 {
        return Tensor::alloc(dtype, block_shape);
    }
    if !is_storable(dtype) {
        return Err(unimplemented_op!("Restoring data type {dtype} not yet supported"));
    }
    reader.slice(name, &block)
}
