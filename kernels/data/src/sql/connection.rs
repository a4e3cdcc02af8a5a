//! A query being read. A statement borrows from its connection, so both live on the stack of a thread, which makes a row when it
//! is asked for one.

use super::column;
use crate::context::IteratorContext;
use crate::dataset::Tuple;
use graphmill_tensor::{Bytes, Code, DType, Result, Status, internal, invalid_argument, resource_exhausted};
use parking_lot::Mutex;
use rusqlite::{InterruptHandle, OpenFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How often a reader that waits for a row looks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// The reading end. The thread ends when this is dropped.
pub(super) struct Connection {
    ask: Sender<()>,
    rows: Receiver<Result<Option<Tuple>>>,
    interrupt: Arc<Mutex<Option<InterruptHandle>>>,
}

impl Connection {
    /// Starts the thread; the database is opened when the first row is asked for.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there cannot be another thread.
    pub fn open(source: &Bytes, query: &Bytes, types: &[DType]) -> Result<Connection> {
        let ((ask, asked), (send, rows)) = (channel(), channel());
        let interrupt = Arc::new(Mutex::new(None));
        let work = Work {
            source: source.clone(),
            query: String::from_utf8_lossy(query).into_owned(),
            types: types.to_vec(),
            interrupt: interrupt.clone(),
        };
        let serve = move || {
            if asked.recv().is_ok()
                && let Err(error) = work.serve(&asked, &send)
            {
                // Nobody there to hear of it is fine.
                let _ = send.send(Err(error));
            }
        };
        let started = thread::Builder::new().name("sql".to_owned()).spawn(serve);
        started.map_err(|error| resource_exhausted!("A thread for a query cannot be started: {error}"))?;
        Ok(Connection { ask, rows, interrupt })
    }

    /// The next row.
    ///
    /// # Errors
    /// What the database says, and `CANCELLED` if the context is.
    pub fn next(&mut self, ctx: &IteratorContext) -> Result<Option<Tuple>> {
        let ended = || internal!("The query has ended with an error");
        self.ask.send(()).map_err(|_| ended())?;
        loop {
            match self.rows.recv_timeout(LOOK) {
                Ok(row) => return row,
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(cancelled) = ctx.check() {
                        if let Some(handle) = &*self.interrupt.lock() {
                            handle.interrupt();
                        }
                        return Err(cancelled);
                    }
                }
            }
        }
    }
}

/// What the thread does.
struct Work {
    source: Bytes,
    query: String,
    types: Vec<DType>,
    interrupt: Arc<Mutex<Option<InterruptHandle>>>,
}

impl Work {
    /// Answers requests, of which the first one is there already, until nobody makes any more or the query fails.
    fn serve(&self, asked: &Receiver<()>, send: &Sender<Result<Option<Tuple>>>) -> Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE
            | OpenFlags::SQLITE_OPEN_URI;
        let database = rusqlite::Connection::open_with_flags(OsStr::from_bytes(&self.source), flags);
        let database = database.map_err(|error| status(&error, "Sqlite::Open() failed"))?;
        *self.interrupt.lock() = Some(database.get_interrupt_handle());
        let failed = |error| status(&error, "Sqlite failed");
        let mut statement = database.prepare(&self.query).map_err(failed)?;
        if statement.column_count() != self.types.len() {
            return Err(invalid_argument!(
                "The number of columns in query ({}) must match the number of elements in output_types ({}).",
                statement.column_count(),
                self.types.len()
            ));
        }
        let mut rows = statement.query([]).map_err(failed)?;
        loop {
            let row = match rows.next().map_err(failed)? {
                Some(row) => {
                    let tensor = |(i, &dtype)| column::tensor(row.get_ref(i).map_err(failed)?, dtype);
                    Some(self.types.iter().enumerate().map(tensor).collect::<Result<Tuple>>()?)
                }
                None => None,
            };
            let ended = row.is_none();
            if send.send(Ok(row)).is_err() || ended || asked.recv().is_err() {
                return Ok(());
            }
        }
    }
}

/// SQLite's errors under the codes that TensorFlow gives them.
fn status(error: &rusqlite::Error, what: &str) -> Status {
    let code = match error {
        rusqlite::Error::SqliteFailure(failure, _) | rusqlite::Error::SqlInputError { error: failure, .. } => {
            failure.extended_code & 0xff
        }
        _ => 1,
    };
    let code = match code {
        4 => Code::Aborted,
        8 | 20 => Code::FailedPrecondition,
        2 | 21 => Code::Internal,
        25 => Code::OutOfRange,
        12 | 14 | 19 | 26 => Code::InvalidArgument,
        11 => Code::DataLoss,
        3 | 23 => Code::PermissionDenied,
        13 | 18 | 22 => Code::ResourceExhausted,
        5 | 6 | 7 | 15 => Code::Unavailable,
        9 => Code::Cancelled,
        _ => Code::Unknown,
    };
    Status::new(code, format!("{what}: {error}"))
}
