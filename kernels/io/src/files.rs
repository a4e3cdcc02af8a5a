//! Whole files.

use crate::inputs::{first, path, set_string};
use graphmill_formats::{FileReader, FileSystem, io_error};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, Shape, Tensor, invalid_argument};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let kept = files.clone();
    registry.op("ReadFile").blocking_kernel(move |_| Ok(ReadFile(kept.clone())));
    let kept = files.clone();
    registry.op("WriteFile").blocking_kernel(move |_| Ok(WriteFile(kept.clone())));
    let kept = files.clone();
    registry.op("MatchingFiles").blocking_kernel(move |_| Ok(MatchingFiles(kept.clone())));
}

/// What a file holds.
///
/// # Errors
/// `NOT_FOUND` if there is none.
pub(crate) fn read_whole(files: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    let file = files.open(path)?;
    let mut contents = Vec::with_capacity(usize::try_from(file.size()?).unwrap_or(0));
    // Read to its end, not to its size: files such as those of /proc claim to be empty.
    FileReader::new(file).read_to_end(&mut contents).map_err(|error| io_error(&path.to_string_lossy(), error))?;
    Ok(contents)
}

/// Outputs the contents of a file.
struct ReadFile(Arc<dyn FileSystem>);

impl Kernel for ReadFile {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let name = ctx.input(0)?;
        if !name.shape().is_scalar() {
            return Err(invalid_argument!("Input filename tensor must be scalar, but had shape: {}", name.shape()));
        }
        let contents = read_whole(&*self.0, path(first(name)?))?;
        set_string(ctx, 0, contents)
    }
}

/// Writes a file, with the directories above it.
struct WriteFile(Arc<dyn FileSystem>);

impl Kernel for WriteFile {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (name, contents) = (ctx.input(0)?, ctx.input(1)?);
        if !name.shape().is_scalar() {
            return Err(invalid_argument!("Input filename tensor must be scalar, but had shape: {}", name.shape()));
        }
        if !contents.shape().is_scalar() {
            return Err(invalid_argument!("Contents tensor must be scalar, but had shape: {}", contents.shape()));
        }
        let name = path(first(name)?);
        if let Some(directory) = name.parent()
            && self.0.is_directory(directory).is_none()
        {
            self.0.create_directories(directory)?;
        }
        let mut file = self.0.create(name)?;
        file.write(first(contents)?)?;
        file.close()
    }
}

/// Outputs the sorted paths that match patterns; one that matches two patterns is there twice.
struct MatchingFiles(Arc<dyn FileSystem>);

impl Kernel for MatchingFiles {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let patterns = ctx.input(0)?;
        if patterns.shape().rank() > 1 {
            return Err(invalid_argument!(
                "Input patterns tensor must be scalar or vector, but had shape: {}",
                patterns.shape()
            ));
        }
        let mut found = Vec::new();
        for pattern in patterns.strings()? {
            found.extend(self.0.matching(path(pattern))?);
        }
        found.sort();
        let names: Vec<Bytes> = found.into_iter().map(Bytes::from).collect();
        ctx.set_output(0, Tensor::from_strings(Shape::vector(names.len()), names)?)
    }
}
