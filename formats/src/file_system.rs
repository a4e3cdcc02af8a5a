//! What the formats need of a file system.

use graphmill_tensor::{Code, Result, Status, out_of_range};
use std::io;
use std::path::Path;

/// A place where files are. Paths are what clients wrote; an implementation decides what they mean and which it allows.
///
/// Errors carry the codes and texts of TensorFlow's: `NOT_FOUND` `PATH; No such file or directory`.
pub trait FileSystem: Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, and what else the system says.
    fn open(&self, path: &Path) -> Result<Box<dyn RandomAccessFile>>;

    /// Opens a file for writing from its start; what it held is gone.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>>;

    /// Opens a file for writing behind what it holds.
    ///
    /// # Errors
    /// What the system says.
    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>>;

    /// Whether there is a file or directory, and which: `Some(true)` for a directory.
    fn is_directory(&self, path: &Path) -> Option<bool>;

    /// Names in a directory, in no order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, directory: &Path) -> Result<Vec<std::ffi::OsString>>;

    /// Makes a directory and those above it; ones that exist are fine.
    ///
    /// # Errors
    /// What the system says.
    fn create_directories(&self, path: &Path) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the system says.
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// Gives a file another name, in one step; a file of that name is replaced.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Paths that match a pattern (`*`, `?`, `[..]`, none of them across `/`), sorted.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a pattern that cannot be.
    fn matching(&self, pattern: &Path) -> Result<Vec<Vec<u8>>>;

    /// Writes a whole file beside its name and moves it into place, so that a reader sees all of it or what was there before.
    ///
    /// # Errors
    /// What the system says.
    fn replace(&self, path: &Path, contents: &[u8]) -> Result<()> {
        let beside = temporary_name(path);
        let written = self.create(&beside).and_then(|mut file| {
            file.write(contents)?;
            file.close()
        });
        let moved = written.and_then(|()| self.rename(&beside, path));
        if moved.is_err() {
            // The first error is the one to report.
            let _ = self.remove_file(&beside);
        }
        moved
    }
}

/// A file open for reading at any place, from any thread.
pub trait RandomAccessFile: Send + Sync {
    /// The number of bytes.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> Result<u64>;

    /// Reads from an offset on until the buffer is full or the file ends; says how much it was.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Fills the buffer from an offset on.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if the file ends before.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.read_at(offset, buffer)? == buffer.len() {
            return Ok(());
        }
        Err(out_of_range!("Read less bytes than requested"))
    }

    /// Bytes at a place, without reserving memory for more than the file has.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if the file ends before.
    fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let end = offset.checked_add(length).filter(|&end| end <= self.size().unwrap_or(0));
        let (Some(_), Ok(length)) = (end, usize::try_from(length)) else {
            return Err(out_of_range!("Read less bytes than requested"));
        };
        let mut bytes = vec![0; length];
        self.read_exact_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// A file open for writing.
pub trait WritableFile: Send {
    /// Writes bytes behind what has been written.
    ///
    /// # Errors
    /// What the system says.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// What the system says.
    fn flush(&mut self) -> Result<()>;

    /// Ends the file. Without this, errors of the last writes are lost.
    ///
    /// # Errors
    /// What the system says.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A file read from front to back.
pub struct FileReader {
    file: Box<dyn RandomAccessFile>,
    at: u64,
}

impl FileReader {
    /// From the start of a file.
    pub fn new(file: Box<dyn RandomAccessFile>) -> FileReader {
        FileReader { file, at: 0 }
    }
}

impl io::Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.at, buffer).map_err(io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// A name beside a file that nobody else uses.
pub(crate) fn temporary_name(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tempstate{}", rand::random::<u64>()));
    name.into()
}

/// TensorFlow's status for an error of the system: `CONTEXT; text of the error`. A status that came through [`io::Error`] stays.
pub fn io_error(context: &str, error: io::Error) -> Status {
    let code = match error.raw_os_error() {
        Some(number) => code_of(number),
        None => match error.downcast::<Status>() {
            Ok(status) => return status,
            Err(error) => return Status::new(kind_of(error.kind()), format!("{context}; {error}")),
        },
    };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    Status::new(code, format!("{context}; {text}"))
}

fn kind_of(kind: io::ErrorKind) -> Code {
    match kind {
        io::ErrorKind::InvalidInput => Code::InvalidArgument,
        io::ErrorKind::InvalidData => Code::DataLoss,
        io::ErrorKind::UnexpectedEof => Code::OutOfRange,
        _ => Code::Unknown,
    }
}

fn code_of(number: i32) -> Code {
    match number {
        libc::EINVAL | libc::ENAMETOOLONG | libc::E2BIG | libc::EFAULT | libc::EILSEQ | libc::ENOTTY | libc::ESPIPE => {
            Code::InvalidArgument
        }
        libc::ETIMEDOUT | libc::ETIME => Code::DeadlineExceeded,
        libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::ESRCH => Code::NotFound,
        libc::EEXIST => Code::AlreadyExists,
        libc::EPERM | libc::EACCES | libc::EROFS => Code::PermissionDenied,
        libc::ENOTEMPTY | libc::EISDIR | libc::ENOTDIR | libc::EBADF | libc::EBUSY | libc::EPIPE | libc::ETXTBSY => {
            Code::FailedPrecondition
        }
        libc::ENOSPC | libc::EDQUOT | libc::EMFILE | libc::EMLINK | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
            Code::ResourceExhausted
        }
        libc::EFBIG | libc::EOVERFLOW | libc::ERANGE => Code::OutOfRange,
        libc::ENOSYS | libc::ENOTSUP | libc::EXDEV => Code::Unimplemented,
        libc::EAGAIN | libc::EINTR | libc::ENOLCK | libc::ENOLINK => Code::Unavailable,
        libc::EDEADLK | libc::ESTALE => Code::Aborted,
        libc::ECANCELED => Code::Cancelled,
        _ => Code::Unknown,
    }
}
