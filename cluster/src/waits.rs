//! Who waits here for other tasks, for those who want to know why something does not go on.

use crate::grpc::Channel;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The tensors that steps have asked other tasks for.
#[derive(Default)]
pub(crate) struct Receives {
    by_number: Mutex<HashMap<u64, (i64, Arc<str>)>>,
    next: AtomicU64,
}

/// A receive, until it is dropped.
pub(crate) struct NotedReceive {
    receives: Arc<Receives>,
    number: u64,
}

impl Receives {
    /// Notes that a step waits for the tensor of a key.
    pub fn note(self: &Arc<Self>, step: i64, key: Arc<str>) -> NotedReceive {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.by_number.lock().insert(number, (step, key));
        NotedReceive { receives: self.clone(), number }
    }

    /// The keys of the tensors that a step waits for.
    pub fn of(&self, step: i64) -> Vec<Arc<str>> {
        let all = self.by_number.lock();
        all.values().filter(|(of, _)| *of == step).map(|(_, key)| key.clone()).collect()
    }
}

impl Drop for NotedReceive {
    fn drop(&mut self) {
        self.receives.by_number.lock().remove(&self.number);
    }
}

/// The sessions that are being made and wait for tasks.
#[derive(Default)]
pub(crate) struct Creations(Arc<Mutex<HashMap<u64, Creation>>>);

struct Creation {
    begun: Instant,
    asked: Vec<Arc<Channel>>,
    /// The numbers of those that have not answered.
    missing: BTreeSet<usize>,
}

/// A session that is being made, until it is dropped.
pub(crate) struct NotedCreation {
    all: Arc<Mutex<HashMap<u64, Creation>>>,
    number: u64,
}

impl Creations {
    /// Notes that a session waits for the answers of tasks.
    pub fn begin(&self, asked: Vec<Arc<Channel>>) -> NotedCreation {
        let missing = (0..asked.len()).collect();
        let mut all = self.0.lock();
        let number = all.keys().max().map_or(0, |last| last.wrapping_add(1));
        all.insert(number, Creation { begun: Instant::now(), asked, missing });
        NotedCreation { all: self.0.clone(), number }
    }

    /// For how long each session has waited, and the tasks that it waits for; the longest first.
    pub fn list(&self) -> Vec<(Duration, Vec<Arc<Channel>>)> {
        let all = self.0.lock();
        let waiting = |creation: &Creation| {
            creation.missing.iter().filter_map(|&number| creation.asked.get(number).cloned()).collect::<Vec<_>>()
        };
        let mut listed: Vec<_> = all.values().map(|creation| (creation.begun.elapsed(), waiting(creation))).collect();
        listed.retain(|(_, tasks)| !tasks.is_empty());
        listed.sort_by_key(|(since, _)| std::cmp::Reverse(*since));
        listed
    }
}

impl NotedCreation {
    /// Notes that the task with this number among those asked has answered.
    pub fn answered(&self, number: usize) {
        if let Some(creation) = self.all.lock().get_mut(&self.number) {
            creation.missing.remove(&number);
        }
    }
}

impl Drop for NotedCreation {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_known_while_they_wait() {
        let receives = Arc::new(Receives::default());
        let first = receives.note(1, Arc::from("a"));
        let _second = receives.note(2, Arc::from("b"));
        assert_eq!(receives.of(1), [Arc::from("a")]);
        drop(first);
        assert!(receives.of(1).is_empty());
        assert_eq!(receives.of(2), [Arc::from("b")]);
    }

    #[test]
    fn creations_are_known_until_all_have_answered() {
        let creations = Creations::default();
        let channel = |task: &str| Arc::new(Channel::new(task, "h:1", Arc::new(crate::network::Tcp)));
        let first = creations.begin(vec![channel("a"), channel("b")]);
        let second = creations.begin(vec![channel("c")]);
        first.answered(0);
        second.answered(0);
        let listed = creations.list();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].1[0].task(), "b");
        drop(first);
        assert!(creations.list().is_empty());
    }
}
