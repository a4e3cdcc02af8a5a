//! Why nodes cannot be placed, in words.

use super::Place;
use super::specs::SpecId;
use crate::NodeId;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

/// Why two nodes must be on one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why<'g> {
    /// The first is of this class, or has its name; so does the second.
    Class(&'g str),
    /// The second takes a reference from the first.
    Reference,
    /// The second takes a resource from the first.
    Resource,
    /// The second takes a dataset from the first.
    Dataset,
    /// The second takes a resource from the first, through the call of this name.
    Call(&'g str),
}

/// Two nodes that must be on one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link<'g> {
    pub a: NodeId,
    pub b: NodeId,
    pub why: Why<'g>,
}

/// Which nodes ask for devices that cannot be one, and the chain of constraints between them, given the link that would have made
/// one group of two.
pub(super) fn conflict(place: &Place<'_, '_>, link: Link<'_>) -> String {
    let wanted = |root: NodeId| place.members[root_of(place, root).index()].requested;
    let (a_wants, b_wants) = (wanted(link.a), wanted(link.b));
    let mut chain = path_to_conflict(place, link.a, b_wants);
    chain.reverse();
    let from = chain.first().map_or(link.a, |step| step.1);
    let rest = path_to_conflict(place, link.b, a_wants);
    let to = rest.last().map_or(link.b, |step| step.1);

    let device = |id: NodeId| {
        let node = place.graph.node(id);
        if node.assigned_device.is_empty() { &node.device } else { &node.assigned_device }
    };
    let name = |id: NodeId| &place.graph.node(id).name;
    let mut text = format!(
        "\nNode '{}' asks for '{}' and node '{}' asks for '{}', and they must be on one device:",
        name(from),
        device(from),
        name(to),
        device(to)
    );
    let links = chain.iter().map(|step| step.0).chain([link]).chain(rest.iter().map(|step| step.0));
    for Link { a, b, why } in links {
        let (a, b) = (name(a), name(b));
        // Writing to a string does not fail.
        let _ = match why {
            Why::Class(class) if **b == *class => write!(text, "\n  '{a}' has the class 'loc:@{class}'"),
            Why::Class(class) if **a == *class => write!(text, "\n  '{b}' has the class 'loc:@{class}'"),
            Why::Class(class) => write!(text, "\n  '{a}' and '{b}' have the class 'loc:@{class}'"),
            Why::Reference => write!(text, "\n  '{b}' takes a reference from '{a}'"),
            Why::Resource => write!(text, "\n  '{b}' takes a resource from '{a}'"),
            Why::Dataset => write!(text, "\n  '{b}' takes a dataset from '{a}'"),
            Why::Call(call) => write!(text, "\n  '{b}' takes a resource from '{a}' through the call '{call}'"),
        };
    }
    text
}

/// The links from a node to the nearest one of its group that asks for a device other than the one that is wanted, each with the node
/// that it leads to; none if the node itself does, or no one.
fn path_to_conflict<'g>(place: &Place<'g, '_>, start: NodeId, wanted: SpecId) -> Vec<(Link<'g>, NodeId)> {
    let mut neighbours: HashMap<NodeId, Vec<Link<'g>>> = HashMap::new();
    for &link in &place.links {
        neighbours.entry(link.a).or_default().push(link);
        neighbours.entry(link.b).or_default().push(link);
    }
    let mut came_by: HashMap<NodeId, Option<Link<'g>>> = HashMap::from([(start, None)]);
    let mut queue = VecDeque::from([start]);
    let other = |link: Link<'g>, id| if link.a == id { link.b } else { link.a };
    while let Some(id) = queue.pop_front() {
        if !place.specs.are_compatible(place.wanted[id.index()], wanted) {
            let mut path = Vec::new();
            let mut at = id;
            while let Some(&Some(link)) = came_by.get(&at) {
                path.push((link, at));
                at = other(link, at);
            }
            path.reverse();
            return path;
        }
        for &link in neighbours.get(&id).into_iter().flatten() {
            let next = other(link, id);
            if let Entry::Vacant(place) = came_by.entry(next) {
                place.insert(Some(link));
                queue.push_back(next);
            }
        }
    }
    Vec::new()
}

fn root_of(place: &Place<'_, '_>, id: NodeId) -> NodeId {
    let mut at = id;
    loop {
        match place.members[at.index()].parent() {
            parent if parent == at => return at,
            parent => at = parent,
        }
    }
}

/// The nodes of a group, with the types that they can run on and the devices that they ask for.
pub(super) fn members(place: &Place<'_, '_>, root: usize) -> String {
    let mut text =
        "\nColocation Debug Info:\nColocation group had the following types and supported devices: ".to_owned();
    let members: Vec<NodeId> =
        place.graph.nodes().map(|(id, _)| id).filter(|&id| root_of(place, id).index() == root).collect();
    let mut ops: Vec<(&str, String)> = Vec::new();
    for &id in &members {
        let op = place.graph.node(id).op_name();
        if ops.iter().all(|(known, _)| *known != op) {
            let types = place.supported(place.graph.node(id));
            let names = place.devices.types.iter().enumerate().filter(|(at, _)| types.0 >> at & 1 == 1);
            ops.push((op, names.map(|(_, name)| format!("{name} ")).collect()));
        }
    }
    for (op, types) in ops {
        let _ = write!(text, "\n{op}: {types}");
    }
    text.push_str("\n\nColocation members, user-requested devices, and framework assigned devices, if any:");
    for id in members {
        let node = place.graph.node(id);
        let _ = write!(text, "\n  {} ({}) {}", node.name, node.op_name(), node.device);
        if !node.assigned_device.is_empty() {
            let _ = write!(text, " framework assigned device={}", node.assigned_device);
        }
    }
    text.push('\n');
    text
}
