//! What each node of a graph has to do with training: where variables live, which nodes change them and why, and which nodes stand
//! between a gradient and its variable.

use super::job::Job;
use crate::compiler::CompiledLeaf;
use crate::item::{Gradient, GraphItem, Source, Variable, is_variable, update_kind};
use crate::strategy::{ParameterServer, Synchronizer};
use graphmill_graph::EndpointName;
use graphmill_tensor::{Result, invalid_argument};
use std::collections::{HashMap, HashSet};

/// Where a variable lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// Once for the whole job, on this device.
    Shared(String),
    /// Once in each replica.
    Local,
}

/// Why a node changes a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It gives the variable its first value.
    Initialise,
    /// It takes the value from a checkpoint.
    Restore,
    /// It is part of a training step.
    Step,
    /// The user wants it.
    User,
}

/// A variable that is trained, or a part of one.
pub(super) struct Learner<'a> {
    pub leaf: &'a CompiledLeaf,
    pub variable: &'a Variable,
    /// The node that changes the variable.
    pub update: usize,
    /// The gradient's tensors: one, or indices and values.
    pub sources: Vec<Source>,
    /// Nodes that take the gradient on its way to the variable or its slots, the last ones included.
    pub region: HashSet<usize>,
    /// The nodes of its slots.
    pub slots: Vec<usize>,
}

/// The roles of a graph's nodes.
pub(super) struct Roles<'a> {
    pub item: &'a GraphItem,
    /// By node; of the item's variables.
    pub homes: HashMap<usize, Home>,
    /// Nodes that change a variable of the item, with the variable's node.
    pub changes: HashMap<usize, (usize, Change)>,
    /// In the strategy's order.
    pub learners: Vec<Learner<'a>>,
    /// Nodes that must run for the gradients.
    pub backward: HashSet<usize>,
}

impl Learner<'_> {
    /// The server, if there is one.
    pub fn server(&self) -> Option<&ParameterServer> {
        match &self.leaf.synchronizer {
            Synchronizer::ParameterServer(server) => Some(server),
            Synchronizer::AllReduce(_) => None,
        }
    }

    pub fn op_name(&self) -> &str {
        self.variable.op_name()
    }
}

impl<'a> Roles<'a> {
    /// Finds them.
    pub fn new(item: &'a GraphItem, job: &Job<'a>) -> Result<Roles<'a>> {
        let mut learners = Vec::new();
        for leaf in job.strategy.variables.iter().flat_map(|entry| &entry.leaves) {
            learners.push(learner(item, leaf)?);
        }
        for update in item.updates() {
            if !learners.iter().any(|learner| learner.variable.name == update.variable) {
                return Err(invalid_argument!(
                    "The strategy says nothing of variable \"{}\", which the graph trains; build it anew for this graph",
                    update.variable
                ));
            }
        }
        let starts = learners.iter().flat_map(|learner| learner.sources.iter().map(|source| source.node));
        let backward = closure(item, starts, Direction::Backward);
        let mut roles = Roles { item, homes: HashMap::new(), changes: HashMap::new(), learners, backward };
        roles.find_changes();
        roles.find_homes(job);
        for at in 0..roles.learners.len() {
            roles.learners[at].region = roles.region(&roles.learners[at]);
        }
        Ok(roles)
    }

    /// The variable that a node changes.
    fn target(&self, node: usize) -> Option<usize> {
        let mut at = node;
        // References are passed on by the nodes that change them.
        for _ in 0..self.item.graph().node.len() {
            update_kind(&self.item.graph().node[at].op)?;
            at = self.item.index().data_input(at, 0)?.node;
            if self.item.variables().iter().any(|variable| variable.node == at) {
                return Some(at);
            }
        }
        None
    }

    fn find_changes(&mut self) {
        let updates = || self.learners.iter().map(|learner| learner.update);
        let before = closure(self.item, updates(), Direction::Backward);
        let after = closure(self.item, updates(), Direction::Forward);
        let initializers: HashSet<&str> = self.item.initializers().collect();
        let slots: HashSet<usize> = self.learners.iter().flat_map(|learner| learner.slots.iter().copied()).collect();
        let trained: HashSet<usize> = self.learners.iter().map(|learner| learner.variable.node).collect();
        for (node, def) in self.item.graph().node.iter().enumerate() {
            let Some(variable) = self.target(node) else { continue };
            let in_step = after.contains(&node)
                || slots.contains(&variable)
                || before.contains(&node) && (trained.contains(&variable) || !self.comes_from_model(node, &trained));
            let change = if initializers.contains(&&*def.name) {
                Change::Initialise
            } else if self.item.is_restored(node) {
                Change::Restore
            } else if in_step {
                Change::Step
            } else {
                Change::User
            };
            self.changes.insert(node, (variable, change));
        }
    }

    /// Whether the value that a node assigns depends on data or on trained variables, as moving averages do and schedules do not.
    fn comes_from_model(&self, node: usize, trained: &HashSet<usize>) -> bool {
        let index = self.item.index();
        let mut seen = HashSet::new();
        let mut queue: Vec<usize> = index.data_inputs(node).skip(1).map(|source| source.node).collect();
        while let Some(at) = queue.pop() {
            let inputs = index.data_inputs(at).count();
            let op = self.item.graph().node[at].op.as_str();
            let is_data = inputs == 0 && !is_variable(op) && op != "Const" || op.starts_with("IteratorGetNext");
            if trained.contains(&at) || is_data {
                return true;
            }
            if seen.insert(at) {
                queue.extend(index.data_inputs(at).map(|source| source.node));
            }
        }
        false
    }

    /// Trained variables and their slots live where the strategy says. Counters that follow the training live with the chief, but
    /// where any variable is reduced by all replicas, all of them count.
    fn find_homes(&mut self, job: &Job<'_>) {
        self.homes = self.item.variables().iter().map(|variable| (variable.node, Home::Local)).collect();
        let all_served = self.learners.iter().all(|learner| learner.server().is_some());
        for learner in &self.learners {
            let Some(server) = learner.server() else { continue };
            let device = job.device(&server.destination);
            for node in learner.slots.iter().copied().chain([learner.variable.node]) {
                self.homes.insert(node, Home::Shared(device.clone()));
            }
        }
        let learned: HashSet<usize> = self
            .learners
            .iter()
            .flat_map(|learner| learner.slots.iter().copied().chain([learner.variable.node]))
            .collect();
        for &(variable, change) in self.changes.values() {
            if all_served && change == Change::Step && !learned.contains(&variable) {
                self.homes.insert(variable, Home::Shared(job.chief_processor()));
            }
        }
    }

    /// The device of a shared variable.
    pub fn shared(&self, node: usize) -> Option<&str> {
        match self.homes.get(&node)? {
            Home::Shared(device) => Some(device),
            Home::Local => None,
        }
    }

    /// What a node reads at a source, past the one node through which Keras passes all gradients.
    pub fn behind_identity(&self, source: Source) -> Source {
        let passed = || self.item.index().data_input(source.node, usize::try_from(source.slot?).ok()?);
        if self.item.graph().node[source.node].op == "IdentityN" { passed().unwrap_or(source) } else { source }
    }

    fn region(&self, learner: &Learner<'_>) -> HashSet<usize> {
        let own: Vec<usize> = learner.slots.iter().copied().chain([learner.variable.node]).collect();
        let is_own_step = |node: usize| {
            self.changes.get(&node).is_some_and(|(variable, change)| *change == Change::Step && own.contains(variable))
        };
        let mut roots: Vec<usize> = self.changes.keys().copied().filter(|&node| is_own_step(node)).collect();
        roots.push(learner.update);
        // Backwards from the changes up to the gradient, then what of it takes the gradient.
        let mut behind: HashSet<usize> = HashSet::new();
        let mut order = Vec::new();
        let mut takers: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut queue = roots;
        while let Some(node) = queue.pop() {
            if !behind.insert(node) {
                continue;
            }
            for &edge in self.item.index().inputs(node) {
                let source = self.behind_identity(edge);
                if edge.slot.is_some() && learner.sources.contains(&source) {
                    order.push(node);
                } else if edge.slot.is_some() || is_own_step(source.node) {
                    takers.entry(source.node).or_default().push(node);
                    queue.push(source.node);
                }
            }
        }
        let mut region = HashSet::new();
        while let Some(node) = order.pop() {
            if region.insert(node) {
                order.extend(takers.get(&node).into_iter().flatten());
            }
        }
        region
    }
}

fn learner<'a>(item: &'a GraphItem, leaf: &'a CompiledLeaf) -> Result<Learner<'a>> {
    let (Some(variable), Some(update)) = (item.variable(&leaf.name), item.update(&leaf.name)) else {
        return Err(invalid_argument!(
            "The graph does not train \"{}\", which the strategy synchronises; build the strategy anew for this graph",
            leaf.name
        ));
    };
    let find = |tensor: &str| {
        let name = EndpointName::parse(tensor);
        let node = item.index().find(name.node);
        let Some(node) = node else {
            return Err(invalid_argument!("The gradient \"{tensor}\" of \"{}\" is not in the graph", leaf.name));
        };
        Ok(Source { node, slot: name.slot })
    };
    let sources = match &update.gradient {
        Gradient::Dense(name) => vec![find(name)?],
        Gradient::Sparse { indices, values, .. } => vec![find(indices)?, find(values)?],
    };
    let Some(op) = item.index().find(&update.op) else {
        return Err(invalid_argument!("The update \"{}\" of \"{}\" is not in the graph", update.op, leaf.name));
    };
    let slots = update.slots.iter().filter_map(|slot| item.index().find(slot)).collect();
    let region = HashSet::new();
    Ok(Learner { leaf, variable, update: op, sources, region, slots })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Backward,
    Forward,
}

/// These nodes and all that they wait for, or that wait for them.
pub(super) fn closure(item: &GraphItem, starts: impl Iterator<Item = usize>, direction: Direction) -> HashSet<usize> {
    let mut reached = HashSet::new();
    let mut queue: Vec<usize> = starts.collect();
    while let Some(node) = queue.pop() {
        if reached.insert(node) {
            match direction {
                Direction::Backward => queue.extend(item.index().inputs(node).iter().map(|source| source.node)),
                Direction::Forward => queue.extend(item.index().consumers(node)),
            }
        }
    }
    reached
}
