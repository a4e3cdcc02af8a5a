//! Passing outputs on: readiness, deadness, and the coming and going of iterations and frames.
//!
//! The rules are those of TensorFlow's executor (see "Dynamic Control Flow in Large-Scale Machine Learning", Yu et al., EuroSys
//! 2018).

use crate::Value;
use crate::executor::frame::{FIRED, FrameInstance, LIVE, Waiting};
use crate::executor::program::{Program, ProgramNode};
use crate::executor::run::{State, Task};
use graphmill_graph::Flow;
use graphmill_tensor::internal;
use std::collections::VecDeque;

impl State {
    /// Puts a node on the stack of ready ones.
    pub fn make_ready(&mut self, task: Task) {
        if let Some(iteration) = self.frame_mut(task.frame).and_then(|f| f.iteration(task.iteration)) {
            iteration.outstanding += 1;
            self.ready.push(task);
        }
    }

    fn frame_mut(&mut self, frame: u32) -> Option<&mut FrameInstance> {
        self.frames.get_mut(frame as usize)?.as_mut()
    }

    /// Passes the outputs of a node on to where they go, and notes that the node is done. For a dead node every output counts as
    /// dead; of a live one those without a value are.
    pub fn propagate(&mut self, program: &Program, task: Task, node: &ProgramNode, outputs: &mut [Value]) {
        match (node.flow, node.enters) {
            (Flow::Enter, Some((child, is_constant))) => self.enter(program, task, node, child, is_constant, outputs),
            (Flow::Exit, _) => self.exit(program, task, outputs),
            (Flow::NextIteration, _) => self.next_iteration(program, task, outputs),
            _ => self.deliver(program, (task.frame, task.iteration), task.node, outputs, task.dead),
        }
        if let Some(iteration) = self.frame_mut(task.frame).and_then(|f| f.iteration(task.iteration)) {
            iteration.outstanding -= 1;
            if iteration.outstanding == 0 && task.frame != 0 {
                self.retire(program, task.frame);
            }
        }
    }

    /// Delivers outputs of `source` to its successors in one iteration of a frame.
    fn deliver(&mut self, program: &Program, to: (u32, u64), source: u32, outputs: &mut [Value], dead: bool) {
        let node = &program.nodes[source as usize];
        let (frame, iteration) = to;
        let Some(slab) =
            self.frames.get_mut(frame as usize).and_then(Option::as_mut).and_then(|f| f.iteration(iteration))
        else {
            return;
        };
        let mut newly_ready = 0;
        for edge in &program.data_edges[node.data_edges.start as usize..node.data_edges.end as usize] {
            let value = match outputs.get_mut(edge.output as usize) {
                Some(value) if !dead => {
                    if edge.last {
                        std::mem::take(value)
                    } else {
                        value.clone()
                    }
                }
                _ => Value::None,
            };
            let target = &program.nodes[edge.node as usize];
            let state = &mut slab.states[target.state as usize];
            let edge_dead = value.is_none();
            if target.flow == Flow::Merge {
                if state.dead & FIRED != 0 {
                    continue;
                }
                if edge_dead {
                    // A dead `Enter` means that the loop is not run, so that nothing will come around.
                    state.dead = if node.flow == Flow::Enter { target.data_inputs } else { state.dead + 1 };
                } else {
                    state.dead |= LIVE;
                    slab.values[edge.slot as usize] = value;
                }
                let live = state.dead & LIVE != 0;
                if state.pending == 0 && (live || state.dead == target.data_inputs) {
                    state.dead |= FIRED;
                    self.ready.push(Task { node: edge.node, frame, iteration, dead: !live });
                    newly_ready += 1;
                }
                continue;
            }
            if edge_dead {
                state.dead += 1;
            } else {
                slab.values[edge.slot as usize] = value;
            }
            state.pending -= 1;
            if state.pending == 0 {
                let dead = state.dead > 0 && target.flow != Flow::ControlTrigger;
                self.ready.push(Task { node: edge.node, frame, iteration, dead });
                newly_ready += 1;
            }
        }
        for edge in &program.control_edges[node.control_edges.start as usize..node.control_edges.end as usize] {
            let target = &program.nodes[edge.node as usize];
            let state = &mut slab.states[target.state as usize];
            state.pending -= 1;
            if target.flow == Flow::Merge {
                let live = state.dead & LIVE != 0;
                if state.pending == 0 && state.dead & FIRED == 0 && (live || state.dead == target.data_inputs) {
                    state.dead |= FIRED;
                    self.ready.push(Task { node: edge.node, frame, iteration, dead: !live });
                    newly_ready += 1;
                }
                continue;
            }
            state.dead += u32::from(dead);
            if state.pending == 0 {
                let dead = state.dead > 0 && target.flow != Flow::ControlTrigger;
                self.ready.push(Task { node: edge.node, frame, iteration, dead });
                newly_ready += 1;
            }
        }
        slab.outstanding += newly_ready;
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
        let alive = frame.base..frame.base + frame.iterations.len() as u64;
        if is_constant {
            frame.constants.push((task.node, outputs.iter().cloned().collect(), task.dead));
            for iteration in alive {
                let mut copy: Vec<Value> = outputs.to_vec();
                self.deliver(program, (instance, iteration), task.node, &mut copy, task.dead);
            }
        } else {
            self.deliver(program, (instance, 0), task.node, outputs, task.dead);
        }
        self.retire(program, instance);
    }

    /// The instance of a child frame within the iteration a task runs in.
    fn child_frame(&mut self, program: &Program, task: Task, child: u32) -> Option<u32> {
        let iteration = self.frame_mut(task.frame)?.iteration(task.iteration)?;
        if let Some(&(_, instance)) = iteration.children.iter().find(|(info, _)| *info == child) {
            return Some(instance);
        }
        let info = program.frames.get(child as usize)?;
        let frame = FrameInstance {
            info: child,
            parent: (task.frame, task.iteration),
            iterations: VecDeque::from([info.take_slab()]),
            base: 0,
            missing_enters: info.enters,
            constants: Vec::new(),
            next: Vec::new(),
            dead_exits: Vec::new(),
        };
        let free = self.frames.iter().position(Option::is_none).unwrap_or(self.frames.len());
        if free == self.frames.len() {
            self.frames.push(None);
        }
        self.frames[free] = Some(frame);
        let instance = u32::try_from(free).ok()?;
        self.frame_mut(task.frame)?.iteration(task.iteration)?.children.push((child, instance));
        Some(instance)
    }

    fn exit(&mut self, program: &Program, task: Task, outputs: &mut [Value]) {
        let Some(frame) = self.frame_mut(task.frame) else { return };
        if !task.dead {
            let parent = frame.parent;
            self.deliver(program, parent, task.node, outputs, false);
        } else if task.iteration == frame.newest() {
            frame.dead_exits.push(task.node);
        }
    }

    fn next_iteration(&mut self, program: &Program, task: Task, outputs: &mut [Value]) {
        if task.dead {
            return;
        }
        let Some(frame) = self.frame_mut(task.frame) else { return };
        if task.iteration < frame.newest() {
            return self.deliver(program, (task.frame, task.iteration + 1), task.node, outputs, false);
        }
        let limit = program.frames[frame.info as usize].parallel_iterations;
        if frame.iterations.len() >= limit {
            let values = outputs.iter_mut().map(std::mem::take).collect();
            frame.next.push((task.node, values, false));
            return;
        }
        self.begin_iteration(program, task.frame);
        self.deliver(program, (task.frame, task.iteration + 1), task.node, outputs, false);
    }

    /// Adds an iteration to a frame, and gives it the loop invariants.
    fn begin_iteration(&mut self, program: &Program, instance: u32) {
        let Some(frame) = self.frame_mut(instance) else { return };
        frame.iterations.push_back(program.frames[frame.info as usize].take_slab());
        frame.dead_exits.clear();
        let newest = frame.newest();
        let constants: Vec<Waiting> = frame.constants.clone();
        for (node, mut values, dead) in constants {
            self.deliver(program, (instance, newest), node, &mut values, dead);
        }
    }

    /// Retires iterations of a frame in order, begins the one that waits, and ends the frame after the last; then does the same
    /// for the frame around it.
    fn retire(&mut self, program: &Program, instance: u32) {
        let mut instance = instance;
        loop {
            let Some(frame) = self.frame_mut(instance) else { return };
            while frame.oldest_is_done() {
                let info = &program.frames[frame.info as usize];
                if let Some(slab) = frame.iterations.pop_front() {
                    info.give_back(slab);
                    frame.base += 1;
                }
            }
            if !frame.next.is_empty()
                && frame.iterations.len() < program.frames[frame.info as usize].parallel_iterations
            {
                let waiting = std::mem::take(&mut frame.next);
                self.begin_iteration(program, instance);
                let Some(newest) = self.frame_mut(instance).map(|f| f.newest()) else { return };
                for (node, mut values, dead) in waiting {
                    self.deliver(program, (instance, newest), node, &mut values, dead);
                }
                continue;
            }
            if !frame.iterations.is_empty() {
                return;
            }
            let (parent, iteration) = frame.parent;
            let info = frame.info;
            for exit in std::mem::take(&mut frame.dead_exits) {
                self.deliver(program, (parent, iteration), exit, &mut [], true);
            }
            self.frames[instance as usize] = None;
            let Some(around) = self.frame_mut(parent).and_then(|f| f.iteration(iteration)) else { return };
            around.children.retain(|(child, _)| *child != info);
            if parent == 0 {
                return;
            }
            instance = parent;
        }
    }
}
