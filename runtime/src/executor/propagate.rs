//! Passing outputs on: readiness, deadness, and the coming and going of iterations and frames.
//!
//! The rules are those of TensorFlow's executor (see "Dynamic Control Flow in Large-Scale Machine Learning", Yu et al., EuroSys
//! 2018).

use crate::Value;
use crate::executor::frame::{FIRED, FrameInstance, Iteration, LIVE, NodeState, Waiting};
use crate::executor::program::{Program, ProgramNode, Target};
use crate::executor::run::{State, Task};
use graphmill_graph::{Flow, frame_id};
use graphmill_tensor::internal;
use smallvec::SmallVec;

impl State {
    /// Puts a node on the stack of ready ones.
    pub fn make_ready(&mut self, task: Task) {
        if let Some(iteration) = self.slabs.get_mut(task.slab as usize) {
            iteration.outstanding += 1;
            self.ready.push(task);
        }
    }

    fn frame_mut(&mut self, frame: u32) -> Option<&mut FrameInstance> {
        self.frames.get_mut(frame as usize)?.as_mut()
    }

    /// The frame that an iteration belongs to, and the iteration's number there.
    fn place(&self, slab: u32) -> Option<(u32, u64)> {
        self.slabs.get(slab as usize).map(|iteration| (iteration.frame, iteration.number))
    }

    /// The frame that a task runs in, by the number that all tasks of a step know, and its iteration.
    pub fn frame_and_iteration(&self, task: Task) -> (u64, u64) {
        let place = self.place(task.slab);
        place.map_or((0, 0), |(frame, iteration)| {
            let id = self.frames.get(frame as usize).and_then(Option::as_ref).map_or(0, |frame| frame.id);
            (id, iteration)
        })
    }

    /// Passes the outputs of a node on to where they go, and notes that the node is done. For a dead node every output counts as
    /// dead; of a live one those without a value are.
    pub fn propagate(&mut self, program: &Program, task: Task, node: &ProgramNode, outputs: &mut [Value]) {
        match (node.flow, node.enters) {
            (Flow::Enter, Some((child, is_constant))) => self.enter(program, task, node, child, is_constant, outputs),
            (Flow::Exit, _) => self.exit(program, task, node, outputs),
            (Flow::NextIteration, _) => self.next_iteration(program, task, node, outputs),
            _ => return self.finish_node(program, task, node, outputs),
        }
        if let Some(iteration) = self.slabs.get_mut(task.slab as usize) {
            iteration.outstanding -= 1;
            if iteration.outstanding == 0 {
                self.retire(program, task.slab);
            }
        }
    }

    /// What [`State::propagate`] does for a node whose outputs stay in its iteration.
    fn finish_node(&mut self, program: &Program, task: Task, node: &ProgramNode, outputs: &mut [Value]) {
        let Some(iteration) = self.slabs.get_mut(task.slab as usize) else { return };
        let newly_ready = deliver(program, iteration, task.slab, node, outputs, task.is_dead(), &mut self.ready);
        iteration.outstanding += newly_ready;
        iteration.outstanding -= 1;
        if iteration.outstanding == 0 && iteration.frame != 0 {
            self.retire(program, task.slab);
        }
    }

    /// Delivers outputs of a node to its successors in one iteration of a frame.
    fn deliver(&mut self, program: &Program, to: u32, source: u32, outputs: &mut [Value], dead: bool) {
        let node = &program.nodes[source as usize];
        let Some(iteration) = self.slabs.get_mut(to as usize) else { return };
        iteration.outstanding += deliver(program, iteration, to, node, outputs, dead, &mut self.ready);
    }

    fn enter(
        &mut self,
        program: &Program,
        task: Task,
        node: &ProgramNode,
        child: u32,
        is_constant: bool,
        outputs: &mut [Value],
    ) {
        let Some(instance) = self.child_frame(program, task, child) else {
            return self.fail(internal!("a loop's frame could not be made").at_node(&node.info.name));
        };
        let Some(frame) = self.frame_mut(instance) else { return };
        frame.missing_enters = frame.missing_enters.saturating_sub(1);
        let alive: SmallVec<[u32; 8]> = frame.iterations.iter().copied().collect();
        if is_constant {
            frame.constants.push((task.node, outputs.iter().cloned().collect(), task.is_dead()));
            for &iteration in &alive {
                let mut copy: SmallVec<[Value; 1]> = outputs.iter().cloned().collect();
                self.deliver(program, iteration, task.node, &mut copy, task.is_dead());
            }
        } else if let Some(first) = frame.iteration(0) {
            self.deliver(program, first, task.node, outputs, task.is_dead());
        }
        if let Some(&oldest) = alive.first() {
            self.retire(program, oldest);
        }
    }

    /// The instance of a child frame within the iteration a task runs in.
    fn child_frame(&mut self, program: &Program, task: Task, child: u32) -> Option<u32> {
        let iteration = self.slabs.get(task.slab as usize)?;
        if let Some(&(_, instance)) = iteration.children.iter().find(|(info, _)| *info == child) {
            return Some(instance);
        }
        let info = program.frames.get(child as usize)?;
        let number = iteration.number;
        let around = self.frames.get(iteration.frame as usize)?.as_ref()?.id;
        let id = frame_id(around, number, &info.name);
        let free = self.frames.iter().position(Option::is_none).unwrap_or(self.frames.len());
        if free == self.frames.len() {
            self.frames.push(None);
        }
        self.frames[free] = Some(FrameInstance::new(child, id, task.slab, info.enters));
        let instance = u32::try_from(free).ok()?;
        self.add_iteration(program, instance)?;
        self.slabs.get_mut(task.slab as usize)?.children.push((child, instance));
        Some(instance)
    }

    /// Adds an empty iteration to a frame.
    pub fn add_iteration(&mut self, program: &Program, instance: u32) -> Option<u32> {
        let frame = self.frames.get_mut(instance as usize)?.as_mut()?;
        let mut iteration = program.frames.get(frame.info as usize)?.take_slab();
        iteration.frame = instance;
        iteration.number = frame.base + frame.iterations.len() as u64;
        let slab = match self.free_slabs.pop() {
            Some(slab) => {
                self.slabs[slab as usize] = iteration;
                slab
            }
            None => {
                self.slabs.push(iteration);
                u32::try_from(self.slabs.len() - 1).ok()?
            }
        };
        frame.iterations.push_back(slab);
        Some(slab)
    }

    fn exit(&mut self, program: &Program, task: Task, node: &ProgramNode, outputs: &mut [Value]) {
        let Some((frame, _)) = self.place(task.slab) else { return };
        let Some(frame) = self.frame_mut(frame) else { return };
        if !task.is_dead() {
            let parent = frame.parent;
            if let Some(around) = self.slabs.get_mut(parent as usize) {
                around.outstanding += deliver(program, around, parent, node, outputs, false, &mut self.ready);
            }
        } else if frame.iterations.back() == Some(&task.slab) {
            frame.dead_exits.push(task.node);
        }
    }

    fn next_iteration(&mut self, program: &Program, task: Task, node: &ProgramNode, outputs: &mut [Value]) {
        if task.is_dead() {
            return;
        }
        let Some((instance, number)) = self.place(task.slab) else { return };
        let Some(frame) = self.frame_mut(instance) else { return };
        let next = match frame.iteration(number + 1) {
            Some(next) => Some(next),
            None if frame.iterations.len() >= program.frames[frame.info as usize].parallel_iterations => {
                let values = outputs.iter_mut().map(std::mem::take).collect();
                return frame.next.push((task.node, values, false));
            }
            None => self.begin_iteration(program, instance),
        };
        let Some(next) = next else { return };
        if let Some(iteration) = self.slabs.get_mut(next as usize) {
            iteration.outstanding += deliver(program, iteration, next, node, outputs, false, &mut self.ready);
        }
    }

    /// Adds an iteration to a frame, and gives it the loop invariants.
    fn begin_iteration(&mut self, program: &Program, instance: u32) -> Option<u32> {
        let slab = self.add_iteration(program, instance)?;
        let frame = self.frame_mut(instance)?;
        frame.dead_exits.clear();
        let constants: Vec<Waiting> = frame.constants.clone();
        for (node, mut values, dead) in constants {
            self.deliver(program, slab, node, &mut values, dead);
        }
        Some(slab)
    }

    /// Retires iterations of a frame in order where an iteration of it has nothing left to do, begins the one that waits, and ends
    /// the frame after the last; then does the same for the frame around it. Iterations of the root stay to the end.
    fn retire(&mut self, program: &Program, slab: u32) {
        let mut slab = slab;
        loop {
            let Some((instance, _)) = self.place(slab) else { return };
            if instance == 0 {
                return;
            }
            self.drop_done_iterations(program, instance);
            let Some(frame) = self.frame_mut(instance) else { return };
            if !frame.next.is_empty()
                && frame.iterations.len() < program.frames[frame.info as usize].parallel_iterations
            {
                let waiting = std::mem::take(&mut frame.next);
                let Some(newest) = self.begin_iteration(program, instance) else { return };
                for (node, mut values, dead) in waiting {
                    self.deliver(program, newest, node, &mut values, dead);
                }
                slab = newest;
                continue;
            }
            if !frame.iterations.is_empty() {
                return;
            }
            let (parent, info) = (frame.parent, frame.info);
            for exit in std::mem::take(&mut frame.dead_exits) {
                self.deliver(program, parent, exit, &mut [], true);
            }
            self.frames[instance as usize] = None;
            let Some(around) = self.slabs.get_mut(parent as usize) else { return };
            around.children.retain(|(child, _)| *child != info);
            slab = parent;
        }
    }

    fn drop_done_iterations(&mut self, program: &Program, instance: u32) {
        let Some(frame) = self.frames.get_mut(instance as usize).and_then(Option::as_mut) else { return };
        while frame.may_retire()
            && let Some(&oldest) = frame.iterations.front()
            && let Some(iteration) = self.slabs.get_mut(oldest as usize)
            && iteration.is_done()
        {
            program.frames[frame.info as usize].give_back(std::mem::take(iteration));
            self.free_slabs.push(oldest);
            frame.iterations.pop_front();
            frame.base += 1;
        }
    }
}

/// Delivers outputs of a node to its successors in one iteration, and puts those that are now ready on the stack. Yields how many.
#[inline]
fn deliver(
    program: &Program,
    iteration: &mut Iteration,
    slab: u32,
    node: &ProgramNode,
    outputs: &mut [Value],
    dead: bool,
    ready: &mut Vec<Task>,
) -> usize {
    let mut newly_ready = 0;
    for edge in &program.data_edges[node.data_edges.start as usize..node.data_edges.end as usize] {
        let state = &mut iteration.states[edge.target.state as usize];
        if edge.target.is_merge && state.dead & FIRED != 0 {
            continue;
        }
        let live = match outputs.get_mut(edge.output as usize) {
            Some(value) if !dead && !value.is_none() => {
                let slot = &mut iteration.values[edge.slot as usize];
                if edge.last {
                    std::mem::swap(slot, value);
                } else {
                    *slot = value.clone();
                }
                true
            }
            _ => false,
        };
        if edge.target.is_merge {
            let data_inputs = program.nodes[edge.target.node as usize].data_inputs;
            state.dead = match live {
                true => state.dead | LIVE,
                // A dead `Enter` means that the loop is not run, so that nothing will come around.
                false if node.flow == Flow::Enter => data_inputs,
                false => state.dead + 1,
            };
            newly_ready += usize::from(fire_merge(state, data_inputs, edge.target, slab, ready));
            continue;
        }
        state.dead += u32::from(!live);
        newly_ready += usize::from(count_down(state, edge.target, slab, ready));
    }
    for target in &program.control_edges[node.control_edges.start as usize..node.control_edges.end as usize] {
        let state = &mut iteration.states[target.state as usize];
        if target.is_merge {
            state.pending -= 1;
            let data_inputs = program.nodes[target.node as usize].data_inputs;
            if state.dead & FIRED == 0 {
                newly_ready += usize::from(fire_merge(state, data_inputs, *target, slab, ready));
            }
            continue;
        }
        state.dead += u32::from(dead);
        newly_ready += usize::from(count_down(state, *target, slab, ready));
    }
    newly_ready
}

/// Makes a `Merge` ready that has a live input, or none that could still come. Yields whether it did.
fn fire_merge(state: &mut NodeState, data_inputs: u32, target: Target, slab: u32, ready: &mut Vec<Task>) -> bool {
    let live = state.dead & LIVE != 0;
    let fires = state.pending == 0 && (live || state.dead == data_inputs);
    if fires {
        state.dead |= FIRED;
        ready.push(Task::new(target.node, slab, !live));
    }
    fires
}

/// Notes that an input of a node has come, and makes the node ready after the last. Yields whether it did.
#[inline]
fn count_down(state: &mut NodeState, target: Target, slab: u32, ready: &mut Vec<Task>) -> bool {
    state.pending -= 1;
    let complete = state.pending == 0;
    if complete {
        ready.push(Task::new(target.node, slab, state.dead > 0 && !target.runs_dead));
    }
    complete
}
