//! The resource behind the ops that write summaries to a file.

use graphmill_formats::{EventsWriter, FileSystem, seconds_now};
use graphmill_runtime::Resource;
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::summary::Value;
use graphmill_wire::tensorflow::{Event, Summary, event};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tells the files of a process apart.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

/// How a writer is set up.
pub(super) struct Settings {
    /// Events that wait to be written, at most.
    pub max_queue: usize,
    /// How long they wait, at most, when another one comes.
    pub flush_every: Duration,
    /// The directory of the file.
    pub directory: String,
    /// What the file's name ends with.
    pub suffix: String,
}

/// Writes events to a file, several at a time.
pub(super) struct SummaryWriter {
    files: Arc<dyn FileSystem>,
    settings: Settings,
    prefix: String,
    state: Mutex<State>,
}

struct State {
    file: EventsWriter,
    queue: Vec<Event>,
    flushed: Instant,
}

impl Resource for SummaryWriter {
    const TYPE_NAME: &'static str = "N10tensorflow22SummaryWriterInterfaceE";
}

impl SummaryWriter {
    /// Starts a file, with its directory.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn create(files: Arc<dyn FileSystem>, mut settings: Settings) -> Result<SummaryWriter> {
        if files.is_directory(Path::new(&settings.directory)) != Some(true) {
            files.create_directories(Path::new(&settings.directory))?;
        }
        let dot = if settings.suffix.starts_with('.') { "" } else { "." };
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        settings.suffix = format!(".{}.{number}{dot}{}", std::process::id(), settings.suffix);
        let prefix = Path::new(&settings.directory).join("events").to_string_lossy().into_owned();
        let file = EventsWriter::create(files.clone(), &prefix, &settings.suffix)?;
        let state = Mutex::new(State { file, queue: Vec::new(), flushed: Instant::now() });
        Ok(SummaryWriter { files, settings, prefix, state })
    }

    /// Writes values of a step.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn write_values(&self, step: i64, value: Vec<Value>) -> Result<()> {
        self.write_what(step, event::What::Summary(Summary { value }))
    }

    /// Writes something of a step, at this time.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn write_what(&self, step: i64, what: event::What) -> Result<()> {
        self.write(Event { step, wall_time: seconds_now(), what: Some(what), ..Event::default() })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn write(&self, event: Event) -> Result<()> {
        let mut state = self.state.lock();
        state.queue.push(event);
        if state.queue.len() > self.settings.max_queue || state.flushed.elapsed() > self.settings.flush_every {
            self.flush_locked(&mut state)?;
        }
        Ok(())
    }

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn flush(&self) -> Result<()> {
        self.flush_locked(&mut self.state.lock())
    }

    fn flush_locked(&self, state: &mut State) -> Result<()> {
        if !state.queue.is_empty() && !state.file.exists() {
            state.file = EventsWriter::create(self.files.clone(), &self.prefix, &self.settings.suffix)?;
        }
        for event in state.queue.drain(..) {
            state.file.write(&event)?;
        }
        state.flushed = Instant::now();
        state.file.flush()
    }
}

impl Drop for SummaryWriter {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.flush();
    }
}
