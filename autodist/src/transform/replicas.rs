//! Writes the copies of the model, one for each replica of the task.

use super::gradients::Gathered;
use super::job::scope;
use super::nodes::node;
use super::roles::{Change, Home, Learner};
use super::servers::{APPLY, Plan};
use super::writer::{Spot, Writer, after, bytes, set, ty};
use crate::item::{Source, is_control_flow, update_kind};
use graphmill_graph::op_def;
use graphmill_tensor::{DType, Result};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;
use std::collections::HashMap;

/// Reads of variables that live on one device for all replicas, and what becomes of gradients.
pub(super) struct Wiring<'p> {
    /// By the learner's number.
    pub plans: &'p [Plan],
    /// By a node that takes gradients: the numbers of the learners whose gradients it takes.
    pub takers: HashMap<usize, Vec<usize>>,
    /// The device of nodes between a gradient and a served variable.
    pub devices: HashMap<usize, String>,
}

impl<'p> Wiring<'p> {
    pub fn new(writer: &Writer<'_>, plans: &'p [Plan]) -> Wiring<'p> {
        let mut takers: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut devices = HashMap::new();
        for (number, learner) in writer.roles.learners.iter().enumerate() {
            for &node in &learner.region {
                takers.entry(node).or_default().push(number);
                if let Some(device) = writer.roles.shared(learner.variable.node) {
                    devices.insert(node, device.to_owned());
                }
            }
        }
        Wiring { plans, takers, devices }
    }
}

impl Writer<'_> {
    /// Writes every node of a replica.
    pub fn write_replica(&mut self, replica: usize, wiring: &Wiring<'_>) -> Result<()> {
        for at in 0..self.roles.item.graph().node.len() {
            self.write_node(at, replica, wiring)?;
        }
        Ok(())
    }

    fn write_node(&mut self, at: usize, replica: usize, wiring: &Wiring<'_>) -> Result<()> {
        if let Some(home) = self.roles.homes.get(&at) {
            return self.write_variable(at, replica, home.clone());
        }
        if let Some(variable) = self.plain_read(at)
            && let Some(home) = self.roles.shared(variable)
        {
            let home = home.to_owned();
            return self.write_read(at, variable, replica, home);
        }
        if let Some(&(variable, change)) = self.roles.changes.get(&at)
            && let Some(done) = self.write_change(at, variable, change, replica, wiring)?
        {
            return Ok(done);
        }
        let mut copy = self.copy(at, replica, wiring);
        if let Some(&variable) = self.in_loops.get(&at) {
            self.take_value(at, variable, &mut copy)?;
        }
        self.out.keep(copy);
        Ok(())
    }

    /// The copy of a node for a replica: with its names, its device, and the gradients that have been brought together.
    fn copy(&self, at: usize, replica: usize, wiring: &Wiring<'_>) -> NodeDef {
        let old = &self.roles.item.graph().node[at];
        let mut copy = old.clone();
        copy.name = self.node_name(at, replica);
        let learners =
            wiring.takers.get(&at).into_iter().flatten().map(|&number| (&self.roles.learners[number], number));
        let learners: Vec<(&Learner<'_>, usize)> = learners.collect();
        for (input, &edge) in copy.input.iter_mut().zip(self.roles.item.index().inputs(at)) {
            *input = self.tensor(edge, replica);
            if edge.slot.is_none() {
                continue;
            }
            if self.proxies_of_updates(at, edge.node, wiring) {
                *input = self.master_of(edge.node, input);
                continue;
            }
            let source = self.roles.behind_identity(edge);
            for (learner, number) in &learners {
                if let Some(gradient) = &wiring.plans[*number].gradient
                    && let Some(place) = learner.sources.iter().position(|&known| known == source)
                {
                    *input = gradient.tensors()[place].to_owned();
                }
            }
        }
        copy.device = self.device_of(at, replica, wiring);
        copy.attr.remove("_class");
        copy.attr.remove("_output_shapes");
        if old.op == "Enter" || old.op == "RefEnter" {
            // Loops of two replicas would be one in an executor that runs both.
            if let Some(Value::S(frame)) = old.attr.get("frame_name").and_then(|attr| attr.value.as_ref()) {
                let frame = format!("{}/{}", scope(replica), String::from_utf8_lossy(frame));
                set(&mut copy, &[("frame_name", bytes(&frame))]);
            }
        }
        if replica > 0
            && let Some(Value::S(shared)) = old.attr.get("shared_name").and_then(|attr| attr.value.as_ref())
            && !shared.is_empty()
        {
            let shared = format!("{}/{}", scope(replica), String::from_utf8_lossy(shared));
            set(&mut copy, &[("shared_name", bytes(&shared))]);
        }
        copy
    }

    /// Where a node of a replica runs: with the shared variable whose handle it takes or that it was placed with, with the variable that
    /// a gradient is on its way to, else on the replica's device.
    fn device_of(&self, at: usize, replica: usize, wiring: &Wiring<'_>) -> String {
        if let Some(device) = self.roles.handle_device(at) {
            return device.to_owned();
        }
        if let Some(device) = wiring.devices.get(&at) {
            return device.clone();
        }
        let mut seen = at;
        // A node may be placed with one that is itself placed with another.
        for _ in 0..8 {
            let Some(next) = self.colocated(seen) else { break };
            if let Some(device) = self.roles.shared(next).filter(|_| !self.proxies.contains_key(&next)) {
                return device.to_owned();
            }
            seen = next;
        }
        if self.is_of_processor(at) { self.job.processor() } else { self.job.replica_device(replica) }
    }

    /// The node that this one is to be placed with.
    fn colocated(&self, at: usize) -> Option<usize> {
        let node = &self.roles.item.graph().node[at];
        let Some(Value::List(list)) = node.attr.get("_class").and_then(|attr| attr.value.as_ref()) else { return None };
        let class = list.s.iter().rev().find_map(|class| {
            let name = std::str::from_utf8(class).ok()?.strip_prefix("loc:@")?;
            (name != node.name).then(|| self.roles.item.index().find(name))
        });
        class.flatten()
    }

    /// Whether a node can run on processors alone: it holds state other than variables and random numbers, or texts.
    fn is_of_processor(&self, at: usize) -> bool {
        let node = &self.roles.item.graph().node[at];
        let slots = op_def(&node.op).map_or(0, |schema| schema.outputs.len());
        let gives = |dtype| (0..slots as u32).any(|slot| super::gradients::output_type(node, slot) == Some(dtype));
        gives(DType::String) || gives(DType::Resource) && node.op != "VarHandleOp" && !is_control_flow(&node.op)
    }

    fn write_variable(&mut self, at: usize, replica: usize, home: Home) -> Result<()> {
        if replica > 0 && home != Home::Local {
            return Ok(());
        }
        let mut copy = self.variable_node(at);
        copy.name = self.node_name(at, replica);
        copy.device = match home {
            Home::Shared(device) => device,
            Home::Local => self.job.replica_device(replica),
        };
        if replica > 0 {
            let shared = format!("{}/{}", scope(replica), self.shared_name_of(at));
            set(&mut copy, &[("shared_name", bytes(&shared))]);
        }
        self.out.keep(copy);
        Ok(())
    }

    /// A variable's node under the name by which all tasks know it.
    pub fn variable_node(&self, at: usize) -> NodeDef {
        let mut copy = self.roles.item.graph().node[at].clone();
        copy.attr.remove("_class");
        copy.attr.remove("_output_shapes");
        set(&mut copy, &[("shared_name", bytes(&self.shared_name_of(at)))]);
        copy
    }

    fn shared_name_of(&self, at: usize) -> String {
        let node = &self.roles.item.graph().node[at];
        match node.attr.get("shared_name").and_then(|attr| attr.value.as_ref()) {
            Some(Value::S(shared)) if !shared.is_empty() => String::from_utf8_lossy(shared).into_owned(),
            _ => node.name.clone(),
        }
    }

    /// The variable that a node reads whenever it can.
    fn plain_read(&self, at: usize) -> Option<usize> {
        let node = &self.roles.item.graph().node[at];
        let [Source { node: variable, slot: Some(0) }] = *self.roles.item.index().inputs(at) else { return None };
        let is_resource = self.roles.item.graph().node.get(variable)?.op == "VarHandleOp";
        let reads = node.op == if is_resource { "ReadVariableOp" } else { "Identity" };
        (reads && self.roles.homes.contains_key(&variable)).then_some(variable)
    }

    /// The read through which all others of a shared variable go.
    pub fn default_read(&self, variable: usize) -> Option<usize> {
        let known = self.roles.item.variables().iter().find(|known| known.node == variable)?;
        let snapshot = graphmill_graph::EndpointName::parse(&known.def.snapshot_name).node;
        let snapshot = self.roles.item.index().find(snapshot).filter(|&at| self.plain_read(at).is_some());
        let any = || self.roles.item.index().data_consumers(variable).find(|&at| self.plain_read(at).is_some());
        snapshot.or_else(any)
    }

    /// The read of a learner that this step's gradients need, if any.
    pub fn read_of_step(&self, learner: &Learner<'_>) -> Option<String> {
        let needed = self.roles.item.index().data_consumers(learner.variable.node);
        let mut needed = needed.filter(|at| self.plain_read(*at).is_some() && self.roles.backward.contains(at));
        needed.next()?;
        Some(self.node_name(self.default_read(learner.variable.node)?, 0))
    }

    /// One read for all replicas, so that a step sees one value, which travels once.
    fn write_read(&mut self, at: usize, variable: usize, replica: usize, home: String) -> Result<()> {
        let Some(default) = self.default_read(variable) else { return Ok(()) };
        let name = self.node_name(at, replica);
        let def = if at == default && replica == 0 {
            let mut read = self.roles.item.graph().node[at].clone();
            read.attr.remove("_class");
            read.attr.remove("_output_shapes");
            read.name = name;
            read.input = vec![self.node_name(variable, 0)];
            read.device = home;
            if let Some(proxy) = self.proxies.get(&variable) {
                read = node("ReadVariableOp", read.name, &self.job.processor(), vec![proxy.handle.clone()]);
                set(&mut read, &[("dtype", ty(self.dtype_of(variable)))]);
            }
            read
        } else {
            let input = vec![self.node_name(default, 0)];
            let mut copy = node("Identity", name, &self.job.replica_device(replica), input);
            set(&mut copy, &[("T", ty(self.dtype_of(variable)))]);
            copy
        };
        self.out.keep(def);
        Ok(())
    }

    /// Whether a node of an update reads a variable that this task keeps a copy of.
    fn proxies_of_updates(&self, at: usize, read: usize, wiring: &Wiring<'_>) -> bool {
        let in_update = wiring.takers.contains_key(&at)
            || self.roles.changes.get(&at).is_some_and(|(_, change)| *change == Change::Step);
        in_update && self.plain_read(read).is_some_and(|variable| self.proxies.contains_key(&variable))
    }

    fn master_of(&self, read: usize, otherwise: &str) -> String {
        let proxy = self.plain_read(read).and_then(|variable| self.proxies.get(&variable));
        proxy.map_or_else(|| otherwise.to_owned(), |proxy| proxy.master.clone())
    }

    /// The element type of a variable.
    pub fn dtype_of(&self, variable: usize) -> DType {
        let known = self.roles.item.variables().iter().find(|known| known.node == variable);
        known.map_or(DType::Float, |known| known.dtype)
    }

    /// The name of a tensor with a shared variable's value.
    pub fn value_of(&self, variable: usize) -> String {
        match self.default_read(variable) {
            Some(read) => self.node_name(read, 0),
            None => self.missing_read(variable).name("value"),
        }
    }

    fn missing_read(&self, variable: usize) -> Spot {
        let name = &self.roles.item.graph().node[variable].name;
        let device = self.roles.shared(variable).unwrap_or_default().to_owned();
        Spot { scope: format!("autodist-between/{name}"), device }
    }

    /// Writes reads of variables that are read in loops alone.
    pub fn write_missing_reads(&mut self) -> Result<()> {
        let mut variables: Vec<usize> = self.in_loops.values().copied().collect();
        variables.sort_unstable();
        variables.dedup();
        variables.retain(|&variable| self.default_read(variable).is_none());
        for variable in variables {
            let spot = self.missing_read(variable);
            let handle = self.node_name(variable, 0);
            self.add(&spot, "value", "ReadVariableOp", &[&handle], &[("dtype", ty(self.dtype_of(variable)))])?;
        }
        Ok(())
    }

    /// Writes a node that changes a variable, if it is not a plain copy.
    fn write_change(
        &mut self,
        at: usize,
        variable: usize,
        change: Change,
        replica: usize,
        wiring: &Wiring<'_>,
    ) -> Result<Option<()>> {
        let is_shared = self.roles.shared(variable).is_some();
        let is_own_value = self.job.is_chief() && replica == 0;
        if change == Change::Initialise && !is_shared && !is_own_value {
            let value = self.first_value(variable, replica)?;
            let mut copy = self.copy(at, replica, wiring);
            if let (Some(value), Some(input)) = (value, copy.input.get_mut(1)) {
                *input = value;
            }
            self.out.keep(copy);
            return Ok(Some(()));
        }
        if !is_shared {
            return Ok(None);
        }
        let learner = self.roles.learners.iter().position(|learner| learner.update == at);
        let runs = match change {
            Change::Initialise | Change::Restore => is_own_value,
            Change::User => replica == 0,
            Change::Step => replica == 0 && self.runs_steps_of(variable, wiring),
        };
        let gate = learner.filter(|_| replica == 0).and_then(|learner| wiring.plans[learner].gate.clone());
        // A copy for reading follows what changes its variable outside of steps.
        let follows = replica == 0 && change != Change::Step && self.proxies.contains_key(&variable);
        let node_name = self.node_name(at, 0);
        let gate = match gate {
            None if follows => {
                let done = if runs { vec![format!("{node_name}/{APPLY}")] } else { Vec::new() };
                Some(self.refresh(variable, &format!("refresh/{node_name}"), done)?)
            }
            gate => gate,
        };
        if runs {
            let Some(gate) = gate else { return Ok(None) };
            let mut copy = self.copy(at, replica, wiring);
            copy.name = format!("{}/{APPLY}", copy.name);
            self.out.keep(copy);
            let stand_in = self.stand_in(at, variable, replica, &gate);
            self.out.keep(stand_in);
            return Ok(Some(()));
        }
        let mut waits = gate.unwrap_or_default();
        if let Some(learner) = learner {
            waits.extend(self.controls_of(&self.roles.learners[learner], replica));
        }
        if replica > 0 && matches!(change, Change::Initialise | Change::Restore) {
            waits.push(node_name);
        }
        if change == Change::Step && !wiring.takers.contains_key(&at) {
            // What it waits for may be told to its value alone.
            let values = self.roles.item.index().data_inputs(at).skip(1);
            waits.extend(values.map(|source| self.node_name(source.node, replica)));
        }
        let stand_in = self.stand_in(at, variable, replica, &waits);
        self.out.keep(stand_in);
        Ok(Some(()))
    }

    /// Whether this task's graph trains a shared variable.
    fn runs_steps_of(&self, variable: usize, wiring: &Wiring<'_>) -> bool {
        let of_learner = (self.roles.learners.iter().zip(wiring.plans))
            .find(|(learner, _)| learner.variable.node == variable || learner.slots.contains(&variable));
        match of_learner {
            Some((_, plan)) => plan.gradient.is_some(),
            // Counters of the job: the chief's, unless every node trains by itself.
            None => self.job.is_chief() || wiring.plans.iter().all(|plan| plan.gate.is_none()),
        }
    }

    /// A node in the place of a change that another replica makes. It waits for what the change waits for.
    fn stand_in(&self, at: usize, variable: usize, replica: usize, waits: &[String]) -> NodeDef {
        let old = &self.roles.item.graph().node[at];
        let mut inputs: Vec<String> = waits.iter().map(|node| after(node)).collect();
        for &edge in self.roles.item.index().inputs(at).iter().filter(|edge| edge.slot.is_none()) {
            let input = self.tensor(edge, replica);
            if !inputs.contains(&input) {
                inputs.push(input);
            }
        }
        let name = self.node_name(at, replica);
        if op_def(&old.op).is_some_and(|schema| schema.outputs.is_empty()) {
            return node("NoOp", name, &self.job.processor(), inputs);
        }
        // References are handed on.
        inputs.insert(0, self.node_name(variable, 0));
        let device = self.roles.shared(variable).unwrap_or_default();
        let mut read = node("Identity", name, device, inputs);
        set(&mut read, &[("T", ty(self.dtype_of(variable)))]);
        read
    }

    /// What a learner's update waits for beside its gradient and other updates, such as moving averages of the model.
    fn controls_of(&self, learner: &Learner<'_>, replica: usize) -> Vec<String> {
        let index = self.roles.item.index();
        let mut waits = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut queue = vec![learner.update];
        while let Some(at) = queue.pop() {
            // What stands in a branch or loop may not run, and must not be waited for outside.
            let is_flow = is_control_flow(&self.roles.item.graph().node[at].op);
            if is_flow || self.roles.backward.contains(&at) || !seen.insert(at) {
                continue;
            }
            for &edge in index.inputs(at) {
                let is_shared_change = self
                    .roles
                    .changes
                    .get(&edge.node)
                    .is_some_and(|(variable, _)| self.roles.shared(*variable).is_some());
                match edge.slot {
                    Some(_) => queue.push(edge.node),
                    None if !is_shared_change => waits.push(self.node_name(edge.node, replica)),
                    None => {}
                }
            }
        }
        waits
    }
}

impl super::roles::Roles<'_> {
    /// The device of the shared variable whose handle or reference a node takes.
    pub fn handle_device(&self, at: usize) -> Option<&str> {
        self.item.index().data_inputs(at).find_map(|source| {
            let variable = self.carried(source.node)?;
            self.shared(variable)
        })
    }

    /// The variable whose handle or reference a node gives.
    pub fn carried(&self, node: usize) -> Option<usize> {
        let mut at = node;
        for _ in 0..64 {
            if self.homes.contains_key(&at) {
                return Some(at);
            }
            let def = &self.item.graph().node[at];
            let passes = update_kind(&def.op).is_some()
                || super::gradients::output_type(def, 0) == Some(DType::Resource) && is_flow(&def.op);
            if !passes {
                return None;
            }
            at = self.item.index().data_input(at, 0)?.node;
        }
        None
    }
}

/// Whether an op hands a handle on within a device.
fn is_flow(op: &str) -> bool {
    matches!(op, "Switch" | "Identity" | "Merge")
}

/// The tensors of a plan's gradient.
pub(super) fn dense_of(gradient: &Gathered) -> Option<&str> {
    match gradient {
        Gathered::Dense(name) => Some(name),
        Gathered::Rows(_) => None,
    }
}
