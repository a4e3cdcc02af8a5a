//! The numbers of steps with collective operations: all members of a group count them alike, so that their steps meet.

use parking_lot::Mutex;
use std::collections::HashMap;

/// The top seven bits of a step's number are zero.
const STEP_ID_MASK: u64 = (1 << 57) - 1;

/// Most graphs that are remembered. Beyond that all are counted anew.
const MOST: usize = 100_000;

/// By graph key, the number of the next step.
#[derive(Default)]
pub(super) struct Sequences(Mutex<HashMap<i64, Sequence>>);

#[derive(Default)]
struct Sequence {
    next: Option<i64>,
    /// The last step that failed.
    failed: Option<i64>,
}

impl Sequences {
    /// The number of the next step as the leader has it.
    pub fn lead(&self, key: i64, random: impl FnOnce() -> u64) -> i64 {
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(&key) {
            all.clear();
        }
        *all.entry(key).or_default().next.get_or_insert_with(|| (random() & STEP_ID_MASK).cast_signed())
    }

    /// The number of the next step, if it is known.
    pub fn next(&self, key: i64) -> Option<i64> {
        self.0.lock().get(&key).and_then(|sequence| sequence.next)
    }

    /// Notes what the leader has said.
    pub fn set(&self, key: i64, next: i64) {
        self.0.lock().entry(key).or_default().next = Some(next);
    }

    /// Whether this step is the last that failed.
    pub fn has_failed(&self, key: i64, step: i64) -> bool {
        self.0.lock().get(&key).is_some_and(|sequence| sequence.failed == Some(step))
    }

    /// Counts a step that has succeeded. One out of order has the number asked for again.
    pub fn retire(&self, key: i64, step: i64) {
        let mut all = self.0.lock();
        let sequence = all.entry(key).or_default();
        let following = (step.cast_unsigned().wrapping_add(1) & STEP_ID_MASK).cast_signed();
        sequence.next = (sequence.next == Some(step)).then_some(following);
    }

    /// Has the number of the next step asked for again, or made anew by the leader, because this one has failed.
    pub fn fail(&self, step: i64) {
        let mut all = self.0.lock();
        for sequence in all.values_mut().filter(|sequence| sequence.next == Some(step)) {
            *sequence = Sequence { next: None, failed: Some(step) };
        }
    }
}

/// The number by which tasks know a graph with these keys of instances; ops of the later versions have theirs as inputs. 0 for a graph
/// without collective operations.
pub(super) fn graph_key(mut instance_keys: Vec<i64>, has_dynamic_keys: bool) -> i64 {
    const START: u64 = 0x8774_aa60_5c72_9c72;
    if instance_keys.is_empty() && !has_dynamic_keys {
        return 0;
    }
    instance_keys.sort_unstable();
    instance_keys.dedup();
    let fold = |hash, &key: &i64| graphmill_runtime::hash64_combine(key.cast_unsigned(), hash);
    instance_keys.iter().fold(START, fold).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_have_the_keys_that_other_masters_compute() {
        assert_eq!(graph_key(vec![600], false), 2_714_584_368_877_565_647);
        assert_eq!(graph_key(vec![600, 600], true), 2_714_584_368_877_565_647);
        assert_eq!(graph_key(vec![], true).cast_unsigned(), 0x8774_aa60_5c72_9c72);
        assert_eq!(graph_key(vec![], false), 0);
        assert_eq!(graph_key(vec![2, 1], false), graph_key(vec![1, 2], false));
    }

    #[test]
    fn steps_count_up_and_begin_anew_after_a_failure() {
        let sequences = Sequences::default();
        let all = STEP_ID_MASK.cast_signed();
        assert_eq!(sequences.lead(1, || u64::MAX), all);
        assert_eq!(sequences.lead(1, || 7), all);
        sequences.retire(1, all);
        assert_eq!(sequences.next(1), Some(0));
        sequences.fail(3);
        assert_eq!(sequences.next(1), Some(0));
        sequences.fail(0);
        assert!(sequences.has_failed(1, 0) && sequences.next(1).is_none());
        assert_eq!(sequences.lead(1, || 7), 7);
        sequences.retire(1, 9);
        assert_eq!(sequences.next(1), None);
    }
}
