//! Cancellation of steps.

use graphmill_tensor::Status;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Callback = Box<dyn FnOnce() + Send>;
/// Says in words what somebody waits for.
type Waits = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Whether a step is cancelled, why, and whom to tell.
#[derive(Default)]
pub struct CancellationManager {
    cancelled: AtomicBool,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reason: Option<Status>,
    callbacks: HashMap<u64, (Callback, Option<Waits>)>,
}

/// Names a callback for [`CancellationManager::deregister`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackId(u64);

impl CancellationManager {
    /// Not cancelled, nobody to tell.
    pub fn new() -> CancellationManager {
        CancellationManager::default()
    }

    /// Whether the step is cancelled; cheap enough to ask for every node.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Why the step is cancelled, if it is.
    pub fn reason(&self) -> Option<Status> {
        self.state.lock().reason.clone()
    }

    /// Cancels: the first reason stays, callbacks run once, on this thread.
    pub fn cancel(&self, reason: Status) {
        let callbacks = {
            let mut state = self.state.lock();
            if state.reason.is_some() {
                return;
            }
            state.reason = Some(reason);
            self.cancelled.store(true, Ordering::Release);
            std::mem::take(&mut state.callbacks)
        };
        for (callback, _) in callbacks.into_values() {
            callback();
        }
    }

    /// Has `callback` run when the step is cancelled; `None` (and no call) if it is cancelled already.
    pub fn register(&self, callback: impl FnOnce() + Send + 'static) -> Option<CallbackId> {
        self.add(Box::new(callback), None)
    }

    /// As [`CancellationManager::register`], for somebody who waits: `waits` says in words what for, and is called without locks.
    pub fn register_waiting(
        &self,
        callback: impl FnOnce() + Send + 'static,
        waits: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Option<CallbackId> {
        self.add(Box::new(callback), Some(Arc::new(waits)))
    }

    fn add(&self, callback: Callback, waits: Option<Waits>) -> Option<CallbackId> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.reason.is_some() {
            return None;
        }
        state.callbacks.insert(id, (callback, waits));
        Some(CallbackId(id))
    }

    /// What is waited for in the step, in words.
    pub fn waits(&self) -> Vec<String> {
        // Those who wait look at their own state, so not under the lock.
        let waits: Vec<Waits> = self.state.lock().callbacks.values().filter_map(|(_, waits)| waits.clone()).collect();
        waits.iter().flat_map(|waits| waits()).collect()
    }

    /// Withdraws a callback. False if it has run or is about to run.
    pub fn deregister(&self, id: CallbackId) -> bool {
        self.state.lock().callbacks.remove(&id.0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::cancelled;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn callbacks_run_once_unless_withdrawn() {
        let manager = CancellationManager::new();
        let calls = Arc::new(AtomicU32::new(0));
        let add = |n: u32| {
            let calls = calls.clone();
            move || {
                calls.fetch_add(n, Ordering::Relaxed);
            }
        };
        manager.register(add(1)).unwrap();
        let withdrawn = manager.register(add(10)).unwrap();
        assert!(manager.deregister(withdrawn));
        manager.register_waiting(add(1000), || vec!["better days".to_owned()]).unwrap();
        assert_eq!(manager.waits(), ["better days"]);
        manager.cancel(cancelled!("first"));
        assert!(manager.waits().is_empty());
        manager.cancel(cancelled!("second"));
        assert_eq!(calls.load(Ordering::Relaxed), 1001);
        assert_eq!(manager.reason().unwrap().message(), "first");
        assert!(manager.register(add(100)).is_none());
        assert!(manager.is_cancelled());
    }
}
