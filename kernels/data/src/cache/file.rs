//! Elements kept in a checkpoint on disk.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple};
use crate::files::{SharedFiles, path, read_all, write_all};
use crate::state::{Reader, Writer};
use graphmill_formats::{BundleReader, BundleWriter, FileSystem, data_file_name, index_file_name, merge_bundles};
use graphmill_tensor::{Result, already_exists, internal, invalid_argument};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Elements that a cache file may have.
const MAX_ITEMS: usize = 10_000_000;

/// The elements of the input, read once and then from files.
pub(crate) struct FileCache {
    files: SharedFiles,
    input: Arc<dyn Dataset>,
    prefix: Arc<PathBuf>,
}

impl FileCache {
    pub fn new(files: SharedFiles, input: Arc<dyn Dataset>, filename: &[u8]) -> FileCache {
        FileCache { files, input, prefix: Arc::new(path(filename)) }
    }
}

impl Dataset for FileCache {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "FileCache"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let (ctx, input, prefix) = (ctx.clone(), self.input.clone(), self.prefix.clone());
        let mode = Mode::new(&ctx, &self.files, &input, &prefix)?;
        Ok(Box::new(FileIterator { ctx, files: self.files.clone(), input, prefix, mode }))
    }
}

struct FileIterator {
    ctx: IteratorContext,
    files: SharedFiles,
    input: Arc<dyn Dataset>,
    prefix: Arc<PathBuf>,
    mode: Mode,
}

enum Mode {
    Read(CacheReader),
    Write(Box<CacheWriter>),
}

/// Whether a file is there.
fn exists(files: &dyn FileSystem, path: &Path) -> bool {
    files.is_directory(path).is_some()
}

/// A path with more at its end.
fn extended(prefix: &Path, more: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

impl Mode {
    fn new(ctx: &IteratorContext, files: &SharedFiles, input: &Arc<dyn Dataset>, prefix: &Path) -> Result<Mode> {
        let files = files.clone();
        let names = Names::new(input.spec().types.len());
        if exists(&*files, &index_file_name(prefix)) {
            let reader = BundleReader::open(files, prefix)?;
            return Ok(Mode::Read(CacheReader { reader, names, next: 0 }));
        }
        Ok(Mode::Write(Box::new(CacheWriter {
            files,
            prefix: prefix.to_owned(),
            names,
            input: Some(input.iterator(ctx)?),
            writer: None,
            shard: 0,
            next: 0,
        })))
    }
}

/// The names of tensors in the checkpoint: numbers padded such that they sort by element.
struct Names {
    components: usize,
    width: usize,
}

impl Names {
    fn new(components: usize) -> Names {
        Names { components, width: components.saturating_sub(1).to_string().len() }
    }

    fn name(&self, item: usize, component: usize) -> String {
        let items = (MAX_ITEMS - 1).to_string().len();
        format!("{item:items$}_{component:width$}", width = self.width)
    }
}

struct CacheReader {
    reader: BundleReader,
    names: Names,
    next: usize,
}

impl CacheReader {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let at = self.next;
        // The checkpoint does not say how many elements it has.
        if self.names.components == 0 || self.reader.dtype_and_shape(self.names.name(at, 0).as_bytes()).is_err() {
            return Ok(None);
        }
        self.next += 1;
        let element = (0..self.names.components).map(|i| self.reader.tensor(self.names.name(at, i).as_bytes()));
        element.collect::<Result<_>>().map(Some)
    }
}

/// Writes elements to checkpoints, a new one after each save of its position, and puts those together at the end.
struct CacheWriter {
    files: SharedFiles,
    prefix: PathBuf,
    names: Names,
    /// Gone once everything is written.
    input: Option<Box<dyn DatasetIterator>>,
    /// Present while a lock file stands for it.
    writer: Option<BundleWriter>,
    shard: usize,
    next: usize,
}

impl CacheWriter {
    fn shard_prefix(&self, shard: usize) -> PathBuf {
        extended(&self.prefix, &format!("_{shard}"))
    }

    fn lock_file(&self, shard: usize) -> PathBuf {
        extended(&self.shard_prefix(shard), ".lockfile")
    }

    /// The checkpoint to write to, which nobody else writes to.
    fn writer(&mut self) -> Result<&mut BundleWriter> {
        let (prefix, lock) = (self.shard_prefix(self.shard), self.lock_file(self.shard));
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => {
                let index = index_file_name(&prefix);
                if exists(&*self.files, &index) {
                    return Err(already_exists!(
                        "Existing cache files found: \n{}\n{}\nTo continue delete the above files.",
                        index.display(),
                        data_file_name(&prefix, 0, 1).display()
                    ));
                }
                if exists(&*self.files, &lock) {
                    let contents = read_all(&*self.files, &lock, 150).unwrap_or_default();
                    return Err(already_exists!(
                        "There appears to be a concurrent caching iterator running - cache lockfile already exists \
                         ('{}'). If you are sure no other running TF computations are using this cache prefix, delete \
                         the lockfile and re-initialize the iterator. Lockfile contents: {}",
                        lock.display(),
                        String::from_utf8_lossy(&contents)
                    ));
                }
                let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
                write_all(&*self.files, &lock, format!("Created at: {seconds}").as_bytes())?;
                Ok(none.insert(BundleWriter::create(self.files.clone(), &prefix)?))
            }
        }
    }

    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.input.is_none() {
            return Ok(None);
        }
        self.writer()?;
        if self.next >= MAX_ITEMS {
            self.finish()?;
            return Err(invalid_argument!(
                "Upstream iterator is producing more than {MAX_ITEMS} items, which is more than the cache limit."
            ));
        }
        let Some(input) = &mut self.input else { return Ok(None) };
        let Some(element) = input.next()? else {
            self.finish()?;
            return Ok(None);
        };
        if element.len() != self.names.components {
            return Err(internal!(
                "Upstream iterator returned invalid number of tensors. Expected {} got: {}",
                self.names.components,
                element.len()
            ));
        }
        for (i, tensor) in element.iter().enumerate() {
            let name = self.names.name(self.next, i);
            self.writer()?.add(name.as_bytes(), tensor)?;
        }
        self.next += 1;
        Ok(Some(element))
    }

    /// Puts the checkpoints together.
    fn finish(&mut self) -> Result<()> {
        self.input = None;
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        let prefixes: Vec<PathBuf> = (0..=self.shard).map(|shard| self.shard_prefix(shard)).collect();
        let prefixes: Vec<&Path> = prefixes.iter().map(PathBuf::as_path).collect();
        merge_bundles(&*self.files, &prefixes, &self.prefix, false)?;
        (0..=self.shard).try_for_each(|shard| self.files.remove_file(&self.lock_file(shard)))
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.size(self.next);
        let Some(input) = &mut self.input else {
            writer.bool(false);
            return Ok(());
        };
        writer.bool(true);
        if let Some(bundle) = self.writer.take() {
            // The lock file stays until the whole is written.
            bundle.finish()?;
            self.shard += 1;
        }
        writer.size(self.shard);
        input.save(writer)
    }
}

impl Drop for CacheWriter {
    fn drop(&mut self) {
        // What is not complete is of no use to the next iterator; a writer that never began must not remove another's files.
        if self.writer.take().is_some() {
            let pattern = extended(&self.shard_prefix(self.shard), "*");
            for name in self.files.matching(&pattern).unwrap_or_default() {
                let _ = self.files.remove_file(&path(&name));
            }
        }
    }
}

impl DatasetIterator for FileIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        match &mut self.mode {
            Mode::Read(reader) => reader.next(),
            Mode::Write(writer) => writer.next(),
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("FileCache");
        match &mut self.mode {
            Mode::Read(reader) => {
                writer.bool(false);
                writer.size(reader.next);
                Ok(())
            }
            Mode::Write(cache) => {
                writer.bool(true);
                cache.save(writer)
            }
        }
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("FileCache")?;
        let wrote = reader.bool()?;
        let next = reader.size()?;
        let unfinished = wrote && reader.bool()?;
        if !unfinished && let Mode::Write(_) = self.mode {
            self.mode = Mode::new(&self.ctx, &self.files, &self.input, &self.prefix)?;
        }
        match &mut self.mode {
            // Somebody may have completed the files since.
            Mode::Read(cache) => cache.next = next,
            Mode::Write(cache) => {
                cache.next = next;
                if !unfinished {
                    cache.input = None;
                    return Ok(());
                }
                cache.shard = reader.size()?;
                if let Some(input) = &mut cache.input {
                    input.restore(reader)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_element() {
        let names = Names::new(11);
        assert_eq!(names.name(3, 4), "      3_ 4");
        assert!(names.name(9, 10) < names.name(10, 0));
        assert_eq!(Names::new(1).name(1, 0), "      1_0");
    }
}
