//! The fork-join pool that kernels share to split their loops.
//!
//! Each worker has one slot in which a caller offers a job; the caller works on the job too, and both claim chunks from one
//! counter. When no chunk is left the caller takes back every offer that no worker has taken up, so that it never waits for a
//! thread which the system has not scheduled.
#![allow(unsafe_code)]

use crate::denormals::FlushDenormals;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Work below this, in nanoseconds, is not split: waking a thread costs a good part of it.
const WORTH_SPLITTING: f64 = 20_000.0;
/// Work that a chunk should hold at least, in nanoseconds.
const CHUNK: f64 = 10_000.0;
/// How long an idle worker looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

struct Job {
    run: *const (dyn Fn(usize) + Sync),
    chunks: usize,
    next: AtomicUsize,
    finished_workers: AtomicUsize,
    panicked: AtomicBool,
    caller: Thread,
}

impl Job {
    fn work(&self) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks {
                return;
            }
            // SAFETY: the closure outlives the job: `IntraOpPool::run` does not return before every worker that took the job up
            // has counted itself as finished.
            let run = unsafe { &*self.run };
            if catch_unwind(AssertUnwindSafe(|| run(chunk))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
                self.next.store(self.chunks, Ordering::Relaxed);
            }
        }
    }
}

/// A worker's slot: null when idle, the offered job, or [`BUSY`].
struct Slot {
    job: AtomicPtr<Job>,
    asleep: AtomicBool,
}

/// Marks the slot of a worker that is at work. No job can have this address: a job is aligned to more than 1.
const BUSY: *mut Job = ptr::without_provenance_mut(1);

struct Shared {
    slots: Vec<Slot>,
    stop: AtomicBool,
}

/// A pool for loops within kernels. Cloning shares it; the threads end with the last clone.
#[derive(Clone)]
pub struct IntraOpPool(Arc<Workers>);

struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl IntraOpPool {
    /// A pool in which `threads` threads work on a loop, the caller included; 0 means as many as the machine has.
    pub fn new(threads: usize) -> IntraOpPool {
        let available = || thread::available_parallelism().map_or(1, usize::from);
        let workers = if threads == 0 { available() } else { threads }.saturating_sub(1);
        let slot = || Slot { job: AtomicPtr::new(ptr::null_mut()), asleep: AtomicBool::new(false) };
        let shared = Arc::new(Shared { slots: (0..workers).map(|_| slot()).collect(), stop: AtomicBool::new(false) });
        let threads = (0..workers)
            .filter_map(|index| {
                let shared = shared.clone();
                let builder = thread::Builder::new().name(format!("intra-op-{index}"));
                builder.spawn(move || worker(&shared, index)).ok()
            })
            .collect();
        IntraOpPool(Arc::new(Workers { shared, threads }))
    }

    /// Threads that can work on one loop, the caller included.
    pub fn threads(&self) -> usize {
        self.0.threads.len() + 1
    }

    /// Runs `body` over `0..total` in ranges, on several threads where the work is worth it.
    ///
    /// `cost` is the time of one unit in nanoseconds, roughly. Ranges are disjoint and cover everything; their number and order
    /// are not fixed.
    pub fn parallel_for(&self, total: usize, cost: f64, body: impl Fn(Range<usize>) + Sync) {
        let chunks = self.chunks(total, cost);
        if chunks <= 1 {
            if total > 0 {
                body(0..total);
            }
            return;
        }
        self.run(chunks, &|chunk| body(total * chunk / chunks..total * (chunk + 1) / chunks));
    }

    /// Runs `body` over a slice cut into units of `unit` elements: the body gets a range of units and their elements.
    ///
    /// `cost` is the time of one unit in nanoseconds, roughly. Elements behind the last whole unit are not visited.
    pub fn parallel_chunks<T: Send>(
        &self,
        data: &mut [T],
        unit: usize,
        cost: f64,
        body: impl Fn(Range<usize>, &mut [T]) + Sync,
    ) {
        let total = data.len().checked_div(unit).unwrap_or(0);
        let chunks = self.chunks(total, cost);
        if chunks <= 1 {
            if total > 0 {
                body(0..total, &mut data[..total * unit]);
            }
            return;
        }
        let mut parts = Vec::with_capacity(chunks);
        let mut rest = data;
        for chunk in 0..chunks {
            let units = total * chunk / chunks..total * (chunk + 1) / chunks;
            let (part, behind) = rest.split_at_mut(units.len() * unit);
            rest = behind;
            parts.push(parking_lot::Mutex::new((units, part)));
        }
        self.run(chunks, &|chunk| {
            let mut part = parts[chunk].lock();
            let (units, elements) = &mut *part;
            body(units.clone(), elements);
        });
    }

    fn chunks(&self, total: usize, cost: f64) -> usize {
        let work = total as f64 * cost;
        if work < WORTH_SPLITTING || self.0.threads.is_empty() {
            return 1;
        }
        // More chunks than threads, so that a thread that is held up does not hold up the loop.
        ((work / CHUNK) as usize).min(self.threads() * 4).min(total)
    }

    fn run(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; the pointer is not used after this function returns (see `Job::work`).
        let run = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(body)
        };
        let job = Job {
            run,
            chunks,
            next: AtomicUsize::new(0),
            finished_workers: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            caller: thread::current(),
        };
        let offer = ptr::from_ref(&job).cast_mut();
        let slots = &self.0.shared.slots;
        let mut offered = 0;
        for (slot, thread) in slots.iter().zip(&self.0.threads) {
            if offered + 1 >= chunks {
                break;
            }
            if slot.job.compare_exchange(ptr::null_mut(), offer, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                offered += 1;
                if slot.asleep.load(Ordering::SeqCst) {
                    thread.thread().unpark();
                }
            }
        }
        job.work();
        let mut taken = 0;
        for slot in slots {
            if offered == 0 {
                break;
            }
            // A slot that another loop's offer occupies never holds this job's address, as this frame is still alive.
            if slot.job.compare_exchange(offer, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                offered -= 1;
            }
        }
        taken += offered;
        let started = Instant::now();
        while job.finished_workers.load(Ordering::Acquire) < taken {
            if started.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                // Woken by the worker's unpark; the time limit only covers a wake-up lost to another user of this thread's token.
                thread::park_timeout(Duration::from_millis(1));
            }
        }
        if job.panicked.load(Ordering::Relaxed) {
            resume_unwind(Box::new("a parallel loop panicked"));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker can hold the last reference itself only while it runs a kernel's loop; it must not join itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn worker(shared: &Shared, index: usize) {
    let _flush = FlushDenormals::on();
    let slot = &shared.slots[index];
    let mut idle_since = Instant::now();
    loop {
        let offered = slot.job.load(Ordering::Acquire);
        if !offered.is_null() {
            if slot.job.compare_exchange(offered, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: the exchange succeeded, so the caller could not take the offer back and waits for us to finish.
                let job = unsafe { &*offered };
                job.work();
                let caller = job.caller.clone();
                slot.job.store(ptr::null_mut(), Ordering::Release);
                // The job may be gone as soon as this is visible.
                job.finished_workers.fetch_add(1, Ordering::Release);
                caller.unpark();
            }
            idle_since = Instant::now();
            continue;
        }
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        if idle_since.elapsed() < SPIN {
            std::hint::spin_loop();
            continue;
        }
        slot.asleep.store(true, Ordering::SeqCst);
        // Looked at once more after the flag is up: an offer made before it could not see that a wake-up is needed.
        if slot.job.load(Ordering::SeqCst).is_null() && !shared.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        slot.asleep.store(false, Ordering::SeqCst);
        idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_visited_once() {
        let pool = IntraOpPool::new(4);
        for total in [0, 1, 7, 1000, 100_000] {
            let mut seen = vec![0u8; total];
            pool.parallel_chunks(&mut seen, 1, 100.0, |range, part| {
                assert_eq!(range.len(), part.len());
                part.iter_mut().for_each(|s| *s += 1);
            });
            assert!(seen.iter().all(|&s| s == 1), "{total}");
            let sum = AtomicUsize::new(0);
            pool.parallel_for(total, 1000.0, |range| {
                sum.fetch_add(range.sum::<usize>(), Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), total * total.saturating_sub(1) / 2);
        }
    }

    #[test]
    fn many_callers_share_the_workers() {
        let pool = IntraOpPool::new(3);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..200 {
                        let count = AtomicUsize::new(0);
                        pool.parallel_for(64, 5000.0, |range| {
                            // A loop within a loop must not wait for itself.
                            pool.parallel_for(range.len(), 20_000.0, |inner| {
                                count.fetch_add(inner.len(), Ordering::Relaxed);
                            });
                        });
                        assert_eq!(count.into_inner(), 64, "{round}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = IntraOpPool::new(2);
        let result =
            catch_unwind(AssertUnwindSafe(|| pool.parallel_for(100, 10_000.0, |range| assert!(range.start < 50))));
        assert!(result.is_err());
        let count = AtomicUsize::new(0);
        pool.parallel_for(100, 10_000.0, |range| {
            count.fetch_add(range.len(), Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 100);
    }
}
