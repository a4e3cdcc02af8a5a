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
#[derive(Debug, Default)]
pub(crate) struct Iteration {
    pub states: Vec<NodeState>,
    pub values: Vec<Value>,
    /// Nodes that are ready or running.
    pub outstanding: usize,
    /// Child frames that are alive: static frame, instance.
    pub children: SmallVec<[(u32, u32); 1]>,
    /// The instance of the frame.
    pub frame: u32,
    /// Its number in the frame.
    pub number: u64,
}

impl Iteration {
    pub fn new(info: &FrameInfo) -> Iteration {
        Iteration { states: info.initial.clone(), values: vec![Value::None; info.slots], ..Iteration::default() }
    }

    /// Makes a used slab as good as new. Inputs of nodes that never ran are dropped.
    pub fn reset(&mut self, info: &FrameInfo) {
        self.states.copy_from_slice(&info.initial);
        self.values.iter_mut().for_each(|value| *value = Value::None);
        self.outstanding = 0;
        self.children.clear();
    }

    /// Whether nothing is left to do in it.
    pub fn is_done(&self) -> bool {
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
    /// The number by which all tasks of a step know it; 0 for the root.
    pub id: u64,
    /// The iteration that entered it; of the root, its own.
    pub parent: u32,
    /// Live iterations, oldest first.
    pub iterations: VecDeque<u32>,
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
    /// An execution of a static frame, without iterations yet.
    pub fn new(info: u32, id: u64, parent: u32, enters: u32) -> FrameInstance {
        FrameInstance {
            info,
            id,
            parent,
            iterations: VecDeque::new(),
            base: 0,
            missing_enters: enters,
            constants: Vec::new(),
            next: Vec::new(),
            dead_exits: Vec::new(),
        }
    }

    /// The live iteration of this number.
    pub fn iteration(&self, number: u64) -> Option<u32> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.iterations.get(index).copied()
    }

    /// Whether the oldest iteration may go once it has nothing left to do: the first one waits for every `Enter`.
    pub fn may_retire(&self) -> bool {
        self.base > 0 || self.missing_enters == 0
    }
}
