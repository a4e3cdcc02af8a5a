//! The state of a reader.

use super::line::Line;
use super::source::{Format, Record, Source};
use graphmill_formats::FileSystem;
use graphmill_runtime::Resource;
use graphmill_tensor::{Bytes, DType, Result, Tensor, invalid_argument, unimplemented_op};
use graphmill_wire::tensorflow::ReaderBaseState;
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;

/// A reader.
pub(super) struct Reader {
    files: Arc<dyn FileSystem>,
    name: String,
    format: Format,
    state: Mutex<State>,
    /// Those who want to read.
    pub(super) line: Line,
}

impl Resource for Reader {
    const TYPE_NAME: &'static str = "N10tensorflow15ReaderInterfaceE";
}

#[derive(Default)]
struct State {
    base: ReaderBaseState,
    source: Option<Source>,
}

/// Records that one read gathers.
#[derive(Default)]
pub(super) struct Gathered {
    pub keys: Vec<Bytes>,
    pub values: Vec<Bytes>,
}

/// How far a read has come.
pub(super) enum Progress {
    /// It has all that it wants or gets.
    Complete,
    /// It needs another unit of work.
    NeedsWork,
}

impl Reader {
    /// A reader that has read nothing. `kind` and the node's name are what errors call it.
    pub(super) fn new(files: Arc<dyn FileSystem>, kind: &str, node: &str, format: Format) -> Reader {
        let name = format!("{kind} '{node}'");
        Reader { files, name, format, state: Mutex::default(), line: Line::default() }
    }

    /// Starts the unit of work that a queue gave.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if that is not one string, and what opening a file returns.
    pub(super) fn start_work(&self, work: &[Tensor]) -> Result<()> {
        let [work] = work else { return Err(invalid_argument!("Expected single component queue")) };
        if work.dtype() != DType::String {
            return Err(invalid_argument!("Expected queue with single string component"));
        }
        let [work] = work.strings()? else {
            return Err(invalid_argument!("Expected to dequeue a one-element string tensor"));
        };
        let mut state = self.state.lock();
        state.base.current_work = work.clone();
        state.source = Some(self.format.open(&*self.files, work)?);
        state.base.work_started = state.base.work_started.saturating_add(1);
        Ok(())
    }

    /// Reads until `wanted` records are gathered, the work ends after some of them, or more work is needed.
    ///
    /// # Errors
    /// What reading returns.
    pub(super) fn read(&self, wanted: usize, gathered: &mut Gathered) -> Result<Progress> {
        let mut state = self.state.lock();
        let State { base, source } = &mut *state;
        while gathered.keys.len() < wanted {
            let Some(open) = source.as_mut().filter(|_| base.work_finished < base.work_started) else {
                return Ok(Progress::NeedsWork);
            };
            let ended = match open.read(&*self.files, &base.current_work)? {
                Record::Produced { key, value, last } => {
                    gathered.keys.push(key);
                    gathered.values.push(value);
                    base.num_records_produced = base.num_records_produced.saturating_add(1);
                    last
                }
                Record::End => true,
            };
            if ended {
                *source = None;
                base.work_finished = base.work_started;
                if !gathered.keys.is_empty() {
                    break;
                }
            }
        }
        Ok(Progress::Complete)
    }

    /// How many records it has given out.
    pub(super) fn records_produced(&self) -> i64 {
        self.state.lock().base.num_records_produced
    }

    /// How many units of work it is through with.
    pub(super) fn work_units_completed(&self) -> i64 {
        self.state.lock().base.work_finished
    }

    /// Forgets all that it has done.
    pub(super) fn reset(&self) {
        *self.state.lock() = State::default();
    }

    /// Its state, to be restored later.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` for a reader that may stop within a file.
    pub(super) fn serialize(&self) -> Result<Bytes> {
        match self.format {
            Format::Identity | Format::WholeFile => Ok(self.state.lock().base.encode_to_vec().into()),
            _ => Err(unimplemented_op!("Reader SerializeState")),
        }
    }

    /// Goes back to a state. A state that cannot be leaves the reader as if it were new.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` as for [`Reader::serialize`], `INVALID_ARGUMENT` for a state that cannot be.
    pub(super) fn restore(&self, serialized: &[u8]) -> Result<()> {
        let restored = self.checked_state(serialized);
        let (base, outcome) = match restored {
            Ok(base) => (base, Ok(())),
            Err(error) => (ReaderBaseState::default(), Err(error)),
        };
        *self.state.lock() = State { base, source: None };
        outcome
    }

    fn checked_state(&self, serialized: &[u8]) -> Result<ReaderBaseState> {
        if !matches!(self.format, Format::Identity | Format::WholeFile) {
            return Err(unimplemented_op!("Reader RestoreState"));
        }
        let state = ReaderBaseState::decode(serialized)
            .map_err(|_| invalid_argument!("Could not parse state for {}: {}", self.name, serialized.escape_ascii()))?;
        if state.work_started < 0 || state.work_finished < 0 || state.num_records_produced < 0 {
            return Err(invalid_argument!("Unexpected negative value when restoring in {}: {state:?}", self.name));
        }
        if state.work_started > state.work_finished {
            return Err(invalid_argument!(
                "Inconsistent work started vs. finished when restoring in {}: {state:?}",
                self.name
            ));
        }
        Ok(state)
    }
}
