//! How inputs are gathered into batches.

use graphmill_graph::Attrs;
use graphmill_runtime::Construction;
use graphmill_tensor::{Result, invalid_argument};
use std::time::Duration;

/// Batches that run at the same time at most where the number of threads is left to the scheduler.
const ADAPTIVE_LIMIT: i64 = 64;

/// What to do with a batch that is due and has no allowed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// It is filled up to the next allowed size with copies of its first row.
    Up,
    /// Tasks beyond the last allowed size wait for the next batch, if the batch can be cut there.
    Down,
}

/// The options of all queues of one batcher.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub threads: i64,
    pub adaptive: bool,
    /// Rows of one input at most.
    pub max_input: i64,
    /// Rows of a batch at most.
    pub max_batch: i64,
    pub timeout_micros: i64,
    pub max_enqueued: i64,
    pub allowed: Vec<i64>,
    /// Whether an input may go into several batches.
    pub split: bool,
    pub padding: Padding,
}

impl Options {
    /// For a node `Batch`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for allowed sizes that do not increase up to the largest size.
    pub fn of_batch(c: &Construction<'_>) -> Result<Options> {
        let options = Options::common(c.attrs())?;
        options.check_allowed("final entry in allowed_batch_sizes must equal max_batch_size")?;
        Ok(options)
    }

    /// For a node `BatchFunction`. Steps have no priorities, so that what is said about those of low priority says nothing; nor
    /// are there costs on TPUs to minimise, without which that policy pads.
    ///
    /// # Errors
    /// As [`Options::of_batch`].
    pub fn of_function(c: &Construction<'_>) -> Result<Options> {
        let attrs = c.attrs();
        let mut options = Options::common(attrs)?;
        options.split = attrs.bool("enable_large_batch_splitting")?;
        if attrs.str("batch_padding_policy")? == "BATCH_DOWN" {
            options.padding = Padding::Down;
        }
        options.check_allowed(
            "final entry in allowed_batch_sizes must equal max_batch_size when enable_large_batch_splitting is False",
        )?;
        let asked = attrs.has("_enable_adaptive_scheduler") && attrs.bool("_enable_adaptive_scheduler")?;
        options.adaptive = asked || options.threads <= 0;
        if options.adaptive {
            options.split = true;
            let limit = attrs.has("_max_inflight_batches").then(|| attrs.int("_max_inflight_batches")).transpose()?;
            options.threads = limit.unwrap_or(ADAPTIVE_LIMIT);
        }
        if options.split
            && let Some(&last) = options.allowed.last()
        {
            options.max_batch = last;
        }
        Ok(options)
    }

    fn common(attrs: &Attrs) -> Result<Options> {
        let largest = i64::from(attrs.int32("max_batch_size")?);
        Ok(Options {
            threads: i64::from(attrs.int32("num_batch_threads")?),
            adaptive: false,
            max_input: largest,
            max_batch: largest,
            timeout_micros: i64::from(attrs.int32("batch_timeout_micros")?),
            max_enqueued: i64::from(attrs.int32("max_enqueued_batches")?),
            allowed: attrs.int_list("allowed_batch_sizes")?.to_vec(),
            split: false,
            padding: Padding::Up,
        })
    }

    fn check_allowed(&self, last: &str) -> Result<()> {
        if !self.allowed.is_sorted_by(|a, b| a < b) {
            return Err(invalid_argument!("allowed_batch_sizes entries must be monotonically increasing"));
        }
        match self.allowed.last() {
            Some(&size) if !self.split && size != self.max_batch => Err(invalid_argument!("{last}")),
            _ => Ok(()),
        }
    }

    /// What is found out only when the first input comes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for numbers with which there are no batches.
    pub fn check(&self) -> Result<()> {
        let (threads, timeout) = (self.threads, self.timeout_micros);
        if threads < 1 {
            return Err(invalid_argument!("num_batch_threads must be positive; was {threads}"));
        }
        if self.max_input == 0 {
            return Err(invalid_argument!("input_batch_size_limit must be positive; was {}", self.max_input));
        }
        if timeout < 0 {
            return Err(invalid_argument!("batch_timeout_micros must be non-negative; was {timeout}"));
        }
        if self.split && self.max_batch < 1 {
            return Err(invalid_argument!("max_batch_size must be positive; was {}", self.max_batch));
        }
        if self.split && self.max_input < self.max_batch {
            return Err(invalid_argument!(
                "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal to \
                 max_execution_batch_size.1{}{}",
                self.max_input,
                self.max_batch
            ));
        }
        Ok(())
    }

    /// `max_input` as a number of rows; negative numbers are no limit.
    pub fn input_rows(&self) -> usize {
        usize::try_from(self.max_input).unwrap_or(usize::MAX)
    }

    /// `max_batch` as a number of rows; negative numbers are no limit.
    pub fn batch_rows(&self) -> usize {
        usize::try_from(self.max_batch).unwrap_or(usize::MAX)
    }

    /// `max_enqueued` as a number of batches; negative numbers are no limit.
    pub fn enqueued(&self) -> usize {
        usize::try_from(self.max_enqueued).unwrap_or(usize::MAX)
    }

    /// How long an open batch waits for more.
    pub fn timeout(&self) -> Duration {
        Duration::from_micros(self.timeout_micros.unsigned_abs())
    }

    /// The number of rows that a batch of `rows` is padded to.
    pub fn padded(&self, rows: usize) -> usize {
        let sizes = self.allowed.iter().filter_map(|&size| usize::try_from(size).ok());
        sizes.into_iter().find(|&size| size >= rows).unwrap_or(rows)
    }

    /// The largest allowed number of rows that `rows` can be cut down to, if it has to be.
    pub fn cut(&self, rows: usize) -> Option<usize> {
        if self.padding == Padding::Up || self.padded(rows) == rows {
            return None;
        }
        let sizes = self.allowed.iter().rev().filter_map(|&size| usize::try_from(size).ok());
        sizes.into_iter().find(|&size| size > 0 && size < rows)
    }
}
