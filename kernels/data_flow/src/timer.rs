//! Work for later: one thread of the process waits for all of it, and only while there is some.

use graphmill_runtime::run_blocking;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

type Work = Box<dyn FnOnce() + Send>;

struct State {
    /// By time, and by number where times are equal.
    due: BTreeMap<(Instant, u64), Work>,
    next: u64,
    running: bool,
}

static STATE: Mutex<State> = Mutex::new(State { due: BTreeMap::new(), next: 0, running: false });
static WAKE: Condvar = Condvar::new();

/// Times further off than this are never reached.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The moment that is `wait` from now.
pub(crate) fn later(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait.min(LONGEST)).unwrap_or(now)
}

/// Runs `work` at a moment, or soon after.
pub(crate) fn run_at(moment: Instant, work: impl FnOnce() + Send + 'static) {
    let mut state = STATE.lock();
    let number = state.next;
    state.next += 1;
    state.due.insert((moment, number), Box::new(work));
    if state.running {
        WAKE.notify_one();
    } else if thread::Builder::new().name("timer".to_owned()).spawn(serve).is_ok() {
        state.running = true;
    } else {
        // No thread to wait on: better early than never.
        let work = std::mem::take(&mut state.due);
        drop(state);
        work.into_values().for_each(|work| work());
    }
}

fn serve() {
    let mut state = STATE.lock();
    while let Some((&(moment, _), _)) = state.due.first_key_value() {
        if moment > Instant::now() {
            WAKE.wait_until(&mut state, moment);
        } else if let Some((_, work)) = state.due.pop_first() {
            run_blocking(work);
        }
    }
    state.running = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_due_first_comes_first() {
        let (sender, receiver) = mpsc::channel();
        let start = Instant::now();
        for (wait, name) in [(400, "late"), (1, "early")] {
            let sender = sender.clone();
            run_at(later(Duration::from_millis(wait)), move || {
                let _ = sender.send((name, start.elapsed()));
            });
        }
        let (first, _) = receiver.recv().unwrap();
        let (second, waited) = receiver.recv().unwrap();
        assert_eq!((first, second), ("early", "late"));
        assert!(waited >= Duration::from_millis(400));
    }
}
