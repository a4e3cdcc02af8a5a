//! Frames at run time: the live iterations of loops, and what waits at their edges.

use crate::Value;
use crate::executor::program::FrameInfo;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// How far a node is from running in one iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeState {
    /// Inputs still missing; of a `Merge`, control inputs only.
    pub pending: u32,
    /// Inputs that came dead.
    pub dead: u32,
}

/// Set in [`NodeState::dead`] of a `Merge` when a live input has come.
pub(crate) const LIVE: u32 = 1 << 31;
/// Set in [`NodeState::dead`] of a `Merge` when it has been made ready.
pub(crate) const FIRED: u32 = 1 << 30;

/// One iteration of a frame: a slab of counters and input values for the frame's nodes.
#[derive(Debug)]
pub(crate) struct Iteration {
    pub states: Vec<NodeState>,
    pub values: Vec<Value>,
    /// Nodes that are ready or running.
    pub outstanding: usize,
    /// Child frames that are alive: static frame, instance.
    pub children: SmallVec<[(u32, u32); 1]>,
}

impl Iteration {
    pub fn new(info: &FrameInfo) -> Iteration {
        Iteration {
            states: info.initial.clone(),
            values: vec![Value::None; info.slots],
            outstanding: 0,
            children: SmallVec::new(),
        }
    }

    /// Makes a used slab as good as new. Inputs of nodes that never ran are dropped.
    pub fn reset(&mut self, info: &FrameInfo) {
        self.states.copy_from_slice(&info.initial);
        self.values.iter_mut().for_each(|value| *value = Value::None);
        self.outstanding = 0;
        self.children.clear();
    }

    fn is_done(&self) -> bool {
        self.outstanding == 0 && self.children.is_empty()
    }
}

/// Outputs that wait to enter an iteration: the node they come from, its values, and whether they are dead.
pub(crate) type Waiting = (u32, SmallVec<[Value; 1]>, bool);

/// A frame that is alive: one execution of a loop, or the root.
#[derive(Debug)]
pub(crate) struct FrameInstance {
    /// The static frame.
    pub info: u32,
    /// Instance and iteration that entered it; of the root, itself.
    pub parent: (u32, u64),
    /// Live iterations, oldest first.
    pub iterations: VecDeque<Iteration>,
    /// Number of the oldest live iteration.
    pub base: u64,
    /// `Enter` nodes that have not delivered yet.
    pub missing_enters: u32,
    /// Loop invariants, delivered to every iteration.
    pub constants: Vec<Waiting>,
    /// What `NextIteration` nodes gave while as many iterations as permitted were alive.
    pub next: Vec<Waiting>,
    /// `Exit` nodes that came dead in the newest iteration.
    pub dead_exits: Vec<u32>,
}

impl FrameInstance {
    /// Number of the newest iteration.
    pub fn newest(&self) -> u64 {
        (self.base + self.iterations.len() as u64).saturating_sub(1)
    }

    #[inline]
    pub fn iteration(&mut self, number: u64) -> Option<&mut Iteration> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.iterations.get_mut(index)
    }

    /// Whether the oldest iteration has nothing left to do. The first one also waits for every `Enter`.
    pub fn oldest_is_done(&self) -> bool {
        self.iterations.front().is_some_and(Iteration::is_done) && (self.base > 0 || self.missing_enters == 0)
    }
}
