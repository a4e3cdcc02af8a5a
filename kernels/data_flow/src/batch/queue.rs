//! Queues of batches that fill up, and the limit on those that run at the same time.

use super::options::{Options, Padding};
use super::process;
use super::task::Task;
use crate::timer;
use graphmill_runtime::Resource;
use graphmill_tensor::{Result, invalid_argument, unavailable};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Tasks that are processed together.
#[derive(Default)]
pub(super) struct Batch {
    pub tasks: Vec<Task>,
    pub rows: usize,
    /// When the first task came.
    opened: Option<Instant>,
}

impl Batch {
    fn add(&mut self, task: Task) {
        self.rows = self.rows.saturating_add(task.rows);
        self.opened.get_or_insert_with(Instant::now);
        self.tasks.push(task);
    }

    /// Leaves `rows` rows and gives back the tasks beyond; nothing if no task ends there.
    fn cut(&mut self, rows: usize) -> Vec<Task> {
        let mut kept = 0_usize;
        let at = self.tasks.iter().position(|task| {
            let full = kept == rows;
            kept = kept.saturating_add(task.rows);
            full
        });
        match at {
            Some(at) => {
                self.rows = rows;
                self.tasks.split_off(at)
            }
            None => Vec::new(),
        }
    }
}

/// The batches of one queue; the last one is open to more tasks. There is always an open one.
struct Queue(VecDeque<Batch>);

impl Queue {
    fn open_rows(&self) -> usize {
        self.0.back().map_or(0, |batch| batch.rows)
    }

    fn add(&mut self, task: Task, options: &Options) {
        let full = self.open_rows().saturating_add(task.rows) > options.batch_rows();
        if full || self.0.is_empty() {
            self.0.push_back(Batch::default());
        }
        if let Some(open) = self.0.back_mut() {
            open.add(task);
        }
    }

    /// The next batch that is full, or has waited long enough.
    fn take(&mut self, options: &Options, now: Instant) -> Option<Batch> {
        if self.0.len() > 1 {
            return self.0.pop_front();
        }
        let open = self.0.back()?;
        let waited = now.saturating_duration_since(open.opened?);
        if open.rows < options.batch_rows() && waited < options.timeout() {
            return None;
        }
        let mut batch = self.0.pop_front()?;
        let mut next = Batch::default();
        if let Some(rows) = options.cut(batch.rows) {
            batch.cut(rows).into_iter().for_each(|task| next.add(task));
        }
        self.0.push_back(next);
        Some(batch)
    }
}

struct Queues {
    by_name: BTreeMap<String, Queue>,
    running: usize,
    /// The queue that was served last; the next one in order goes first.
    last: String,
}

/// Batches that share a limit on how many of them run at the same time.
pub(super) struct Batcher {
    options: Options,
    queues: Mutex<Queues>,
}

/// As a resource of a device.
pub(super) struct Shared(pub Arc<Batcher>);

impl Resource for Shared {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_113BatchResourceE";
}

impl Batcher {
    pub fn new(options: Options) -> Arc<Batcher> {
        let queues = Mutex::new(Queues { by_name: BTreeMap::new(), running: 0, last: String::new() });
        Arc::new(Batcher { options, queues })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Adds a task to the open batch of a queue, and starts what is full.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more rows than an input may have, `UNAVAILABLE` if the queue is full, and what the options lack.
    pub fn schedule(self: &Arc<Self>, queue: &str, task: Task) -> Result<()> {
        let options = &self.options;
        options.check()?;
        if task.rows > options.input_rows() {
            let limit = options.max_input;
            return Err(match options.adaptive {
                true => invalid_argument!("Task size {} is larger than max input task size {limit}", task.rows),
                false => invalid_argument!("Task size {} is larger than maximum input batch size {limit}", task.rows),
            });
        }
        {
            let mut queues = self.queues.lock();
            if !queues.by_name.contains_key(queue) {
                queues.by_name.insert(queue.to_owned(), Queue([Batch::default()].into()));
            }
            if let Some(queue) = queues.by_name.get_mut(queue) {
                self.enqueue(queue, task)?;
            }
        }
        self.start();
        self.start_later();
        Ok(())
    }

    /// Has the batches looked at again that are open now, once they are due.
    fn start_later(self: &Arc<Self>) {
        let own = Arc::downgrade(self);
        timer::run_at(timer::later(self.options.timeout()), move || {
            if let Some(own) = own.upgrade() {
                own.start();
            }
        });
    }

    fn enqueue(&self, queue: &mut Queue, task: Task) -> Result<()> {
        let options = &self.options;
        let most = options.batch_rows();
        let open = queue.open_rows();
        if !options.split {
            if open.saturating_add(task.rows) > most && queue.0.len() >= options.enqueued() {
                return Err(unavailable!("The batch scheduling queue to which this task was submitted is full"));
            }
            queue.add(task, options);
            return Ok(());
        }
        let free = most.saturating_sub(open);
        let fresh = options.enqueued().saturating_sub(queue.0.len());
        let capacity = fresh.saturating_mul(most).saturating_add(free);
        if task.rows > capacity {
            return Err(unavailable!(
                "The batch scheduling queue to which this task was submitted is full; task size is {} but scheduling \
                 capacity is only {capacity} (num_enqueued_batches={}, max_enqueued_batches={}, open_batch_size={open}, \
                 max_execution_batch_size={most})",
                task.rows,
                queue.0.len(),
                options.max_enqueued
            ));
        }
        for part in task.divided(free, most)? {
            queue.add(part, options);
        }
        Ok(())
    }

    /// Starts the batches that may run now.
    pub fn start(self: &Arc<Self>) {
        while let Some(batch) = self.next() {
            if self.options.padding == Padding::Down {
                self.start_later();
            }
            process::run(self.clone(), batch);
        }
    }

    /// Gives back the place of a batch that has ended.
    pub fn ended(&self) {
        let mut queues = self.queues.lock();
        queues.running = queues.running.saturating_sub(1);
    }

    /// A batch that may run now, from the queues in turn. It counts as running.
    fn next(&self) -> Option<Batch> {
        let mut queues = self.queues.lock();
        let queues = &mut *queues;
        if queues.running >= usize::try_from(self.options.threads).unwrap_or(usize::MAX) {
            return None;
        }
        let now = Instant::now();
        let (before, after): (Vec<_>, Vec<_>) = queues.by_name.iter_mut().partition(|(name, _)| **name <= queues.last);
        for (name, queue) in after.into_iter().chain(before) {
            if let Some(batch) = queue.take(&self.options, now) {
                queues.last.clone_from(name);
                queues.running += 1;
                return Some(batch);
            }
        }
        None
    }
}
