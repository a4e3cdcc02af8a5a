//! Event files: records that hold `Event` messages, which viewers of summaries read.

use crate::{Compression, FileSystem, RecordWriter};
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::{Event, SourceMetadata, event};
use prost::Message;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the first event of a file says of its format.
const FILE_VERSION: &str = "brain.Event:2";

/// Who wrote a file, as readers of event files know it.
const WRITER: &str = "tensorflow.core.util.events_writer";

/// Writes an event file.
pub struct EventsWriter {
    files: Arc<dyn FileSystem>,
    path: PathBuf,
    records: RecordWriter,
}

impl EventsWriter {
    /// Starts the file `PREFIX.out.tfevents.SECONDS.HOSTSUFFIX`, with the event that says what it is.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(files: Arc<dyn FileSystem>, prefix: &str, suffix: &str) -> Result<EventsWriter> {
        let seconds = seconds_now().trunc();
        let path = PathBuf::from(format!("{prefix}.out.tfevents.{:010}.{}{suffix}", seconds as u64, host_name()));
        let mut records = RecordWriter::new(files.create(&path)?, Compression::None);
        let what = Some(event::What::FileVersion(FILE_VERSION.to_owned()));
        let source_metadata = Some(SourceMetadata { writer: WRITER.to_owned() });
        records.write(&Event { wall_time: seconds, what, source_metadata, ..Event::default() }.encode_to_vec())?;
        records.flush()?;
        Ok(EventsWriter { files, path, records })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.records.write(&event.encode_to_vec())
    }

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// What the file system says.
    pub fn flush(&mut self) -> Result<()> {
        self.records.flush()
    }

    /// Whether the file is still there: someone may have removed it.
    pub fn exists(&self) -> bool {
        self.files.is_directory(&self.path).is_some()
    }
}

/// Seconds since 1970, as events carry them.
pub fn seconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalFileSystem, RecordReader};

    #[test]
    fn a_file_starts_with_its_version() {
        let directory = tempfile::tempdir().unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
        let prefix = directory.path().join("events");
        let mut writer = EventsWriter::create(files.clone(), prefix.to_str().unwrap(), ".v2").unwrap();
        writer.write(&Event { step: 7, ..Event::default() }).unwrap();
        writer.flush().unwrap();
        assert!(writer.exists());
        let found = files.matching(&directory.path().join("events.out.tfevents.*.v2")).unwrap();
        let path = PathBuf::from(String::from_utf8(found[0].clone()).unwrap());
        let mut records = RecordReader::open(&*files, &path, Compression::None).unwrap();
        let first = Event::decode(records.next().unwrap().unwrap().as_slice()).unwrap();
        assert_eq!(first.what, Some(event::What::FileVersion("brain.Event:2".to_owned())));
        assert_eq!(Event::decode(records.next().unwrap().unwrap().as_slice()).unwrap().step, 7);
    }
}
