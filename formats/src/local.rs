//! The machine's own file system.

use crate::file_system::{FileSystem, RandomAccessFile, WritableFile, io_error};
use crate::glob;
use graphmill_tensor::{Result, Status, permission_denied, unimplemented_op};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Bytes gathered before they are handed to the system.
const WRITE_BUFFER: usize = 256 << 10;

/// Files of this machine. With a root, only those below it: paths are taken from there, and whatever leads out is refused.
#[derive(Default)]
pub struct LocalFileSystem {
    root: Option<PathBuf>,
}

impl LocalFileSystem {
    /// All files, as the process may see them.
    pub fn new() -> LocalFileSystem {
        LocalFileSystem::default()
    }

    /// Only files below a directory. A relative path starts there; an absolute one has to lead there.
    ///
    /// # Errors
    /// What the system says if there is no such directory.
    pub fn below(root: &Path) -> Result<LocalFileSystem> {
        let root = fs::canonicalize(root).map_err(|error| io_error(&root.to_string_lossy(), error))?;
        Ok(LocalFileSystem { root: Some(root) })
    }

    /// The path on this machine that a client's path stands for.
    fn resolve<'a>(&self, path: &'a Path) -> Result<Cow<'a, Path>> {
        let path = match scheme_of(path) {
            None => path,
            Some((b"file", rest)) => rest,
            Some((scheme, _)) => {
                return Err(unimplemented_op!(
                    "File system scheme '{}' not implemented (file: '{}')",
                    String::from_utf8_lossy(scheme),
                    path.display()
                ));
            }
        };
        let Some(root) = &self.root else { return Ok(Cow::Borrowed(path)) };
        let wanted = normalised(&root.join(path));
        // Links are followed as far as the path exists: a link must not lead out either.
        let mut existing = wanted.as_path();
        let real = loop {
            match fs::canonicalize(existing) {
                Ok(real) => break real,
                Err(_) => match existing.parent() {
                    Some(parent) => existing = parent,
                    None => break PathBuf::new(),
                },
            }
        };
        let dangling = existing != wanted && fs::symlink_metadata(&wanted).is_ok();
        if wanted.starts_with(root) && real.starts_with(root) && !dangling {
            return Ok(Cow::Owned(wanted));
        }
        Err(permission_denied!("{}; is outside of the directory that this server may use", path.display()))
    }

    fn run<T>(&self, path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> Result<T> {
        let real = self.resolve(path)?;
        work(&real).map_err(|error| failure(path, error))
    }
}

/// The scheme of `scheme://rest`, and the rest.
fn scheme_of(path: &Path) -> Option<(&[u8], &Path)> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.windows(3).position(|window| window == b"://")?;
    let (scheme, rest) = bytes.split_at(end);
    let valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'.');
    valid.then(|| (scheme, Path::new(std::ffi::OsStr::from_bytes(&rest[3..]))))
}

/// The path without `.` and `..`.
fn normalised(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

fn failure(path: &Path, error: io::Error) -> Status {
    io_error(&path.to_string_lossy(), error)
}

impl FileSystem for LocalFileSystem {
    fn open(&self, path: &Path) -> Result<Box<dyn RandomAccessFile>> {
        let file = self.run(path, |real| File::open(real))?;
        Ok(Box::new(LocalFile { file, path: path.to_owned() }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = self.run(path, |real| File::create(real))?;
        Ok(Box::new(LocalWriter { file: BufWriter::with_capacity(WRITE_BUFFER, file), path: path.to_owned() }))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = self.run(path, |real| OpenOptions::new().append(true).create(true).open(real))?;
        Ok(Box::new(LocalWriter { file: BufWriter::with_capacity(WRITE_BUFFER, file), path: path.to_owned() }))
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        let real = self.resolve(path).ok()?;
        fs::metadata(real).ok().map(|data| data.is_dir())
    }

    fn list(&self, directory: &Path) -> Result<Vec<OsString>> {
        self.run(directory, |real| fs::read_dir(real)?.map(|entry| Ok(entry?.file_name())).collect())
    }

    fn create_directories(&self, path: &Path) -> Result<()> {
        // The directory of a bare file name is the empty path.
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        self.run(path, |real| fs::create_dir_all(real))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.run(path, |real| fs::remove_file(real))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.run(path, |real| fs::remove_dir(real))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let target = self.resolve(to)?;
        self.run(from, |real| fs::rename(real, &target))
    }

    fn matching(&self, pattern: &Path) -> Result<Vec<Vec<u8>>> {
        self.resolve(pattern)?;
        Ok(glob::matching(self, pattern))
    }
}

struct LocalFile {
    file: File,
    path: PathBuf,
}

impl RandomAccessFile for LocalFile {
    fn size(&self) -> Result<u64> {
        self.file.metadata().map(|data| data.len()).map_err(|error| failure(&self.path, error))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            // An offset that no file has, such as one made up by a broken index, is past every end.
            let Some(at) = offset.checked_add(done as u64).filter(|&at| i64::try_from(at).is_ok()) else { break };
            match self.file.read_at(buffer.get_mut(done..).unwrap_or_default(), at) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(&self.path, error)),
            }
        }
        Ok(done)
    }
}

struct LocalWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl WritableFile for LocalWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| failure(&self.path, error))
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| failure(&self.path, error))
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;

    #[test]
    fn a_root_cannot_be_left() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(outside.path().join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", root.join("dangling")).unwrap();
        let files = LocalFileSystem::below(&root).unwrap();
        for bad in
            ["../secret", "a/../../secret", "/etc/passwd", "link/secret", "link/new", "dangling", "file:///etc/passwd"]
        {
            let code = files.create(Path::new(bad)).err().unwrap().code();
            assert_eq!(code, Code::PermissionDenied, "{bad}");
            assert_eq!(files.open(Path::new(bad)).err().unwrap().code(), Code::PermissionDenied, "{bad}");
        }
        files.create_directories(Path::new("a/b")).unwrap();
        files.replace(Path::new("a/b/c"), b"hello").unwrap();
        let absolute = root.join("a/b/../b/c");
        assert_eq!(files.open(&absolute).unwrap().read_range(1, 3).unwrap(), b"ell");
        assert_eq!(files.matching(Path::new("a/*/c")).unwrap(), [b"a/b/c"]);
        assert_eq!(files.list(Path::new("a/b")).unwrap(), ["c"]);
    }

    #[test]
    fn errors_speak_tensorflow() {
        let files = LocalFileSystem::new();
        let error = files.open(Path::new("/nonexistent/x")).err().unwrap();
        assert_eq!((error.code(), error.message()), (Code::NotFound, "/nonexistent/x; No such file or directory"));
        let error = files.open(Path::new("gs://bucket/x")).err().unwrap();
        assert_eq!(error.code(), Code::Unimplemented);
        assert_eq!(error.message(), "File system scheme 'gs' not implemented (file: 'gs://bucket/x')");
        let directory = tempfile::tempdir().unwrap();
        let error = files.create(directory.path()).err().unwrap();
        assert_eq!(error.code(), Code::FailedPrecondition);
        let path = directory.path().join("f");
        files.replace(&path, b"abc").unwrap();
        let file = files.open(&path).unwrap();
        assert_eq!(file.read_range(2, 2).unwrap_err().code(), Code::OutOfRange);
        assert_eq!(file.read_range(u64::MAX, 2).unwrap_err().code(), Code::OutOfRange);
        assert_eq!(file.read_at(u64::MAX - 1, &mut [0; 4]).unwrap(), 0);
    }
}
