//! Which device each node runs on, by TensorFlow's rules.
//!
//! Nodes that must be together form groups: those that pass references, resources or datasets to each other, and those whose class names
//! another node. A group goes to the best device that fits what all its nodes ask for and that has kernels for all of them.

mod candidates;
mod devices;
mod explain;
mod groups;
mod inspect;
mod specs;

use crate::{DeviceSpec, Flow, Graph, Node, NodeId, summary};
use candidates::Candidates;
use devices::{Devices, Types};
use explain::Link;
use graphmill_tensor::{Result, internal, invalid_argument};
use groups::{Member, makes_state};
use specs::{SpecId, Specs};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A device that nodes may be placed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementDevice {
    /// The full name.
    pub name: String,
    /// The type, such as `CPU`.
    pub device_type: String,
    /// Whether it is a device of this process, which is preferred to others of its type.
    pub local: bool,
}

/// What a session asks of placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlacementOptions {
    /// Whether a device of another type or number will do where the one asked for does not exist or has no kernel.
    pub soft: bool,
    /// Whether to say where each node was placed and which requests were ignored.
    pub log: bool,
}

/// Assigns a device to every node; nodes that have one keep it. `has_kernel` says whether a node can run on a type of device. On an
/// error the graph is as before. The result is what there is to log: `name: (Op): device` for each node, and ignored requests.
///
/// # Errors
/// With TensorFlow's texts: `INVALID_ARGUMENT` for a malformed device name, one that no device matches, an op without a kernel, and
/// nodes that must be on one device but ask for others, with the chain of constraints between them; `FAILED_PRECONDITION` if there
/// are no devices; `INTERNAL` for a node that is assigned to a device which does not exist.
pub fn place(
    graph: &mut Graph,
    devices: &[PlacementDevice],
    has_kernel: &dyn Fn(&Node, &str) -> bool,
    options: &PlacementOptions,
) -> Result<Vec<String>> {
    if let [device] = devices
        && !options.log
        && all_fit(graph, device, has_kernel)
    {
        let name: Arc<str> = match graph.nodes().next_back() {
            Some((_, node)) if *node.assigned_device == *device.name => node.assigned_device.clone(),
            _ => Arc::from(device.name.as_str()),
        };
        for at in 0..graph.len() {
            assign(graph, NodeId(at as u32), &name);
        }
        return Ok(Vec::new());
    }
    let mut place = Place::new(graph, devices, has_kernel, options)?;
    place.join_edges()?;
    place.join_classes()?;
    place.assign()?;
    let Place { devices, assigned, log, .. } = place;
    for (at, device) in assigned.into_iter().enumerate() {
        if let Some(device) = device {
            assign(graph, NodeId(at as u32), &devices.all[device].name);
        }
    }
    Ok(log)
}

fn assign(graph: &mut Graph, id: NodeId, device: &Arc<str>) {
    let assigned = &graph.node(id).assigned_device;
    if !Arc::ptr_eq(assigned, device) && assigned != device {
        graph.node_mut(id).assigned_device = device.clone();
    }
}

/// Whether each node may be on the only device as it is, so that there is nothing to decide.
fn all_fit(graph: &Graph, device: &PlacementDevice, has_kernel: &dyn Fn(&Node, &str) -> bool) -> bool {
    let Some(own) = DeviceSpec::parse(&device.name).filter(DeviceSpec::is_full) else {
        return false;
    };
    // Neighbouring nodes mostly ask for the same device, in the same allocation.
    let mut checked: Option<&Arc<str>> = None;
    graph.nodes().all(|(_, node)| {
        let wanted = &node.device;
        if !(wanted.is_empty() || checked.is_some_and(|last| Arc::ptr_eq(last, wanted))) {
            if !DeviceSpec::parse(wanted).is_some_and(|wanted| wanted.matches(&own)) {
                return false;
            }
            checked = Some(wanted);
        }
        (node.assigned_device.is_empty() || *node.assigned_device == *device.name)
            && (has_kernel(node, &device.device_type) || graph.library().get(&node.op.name).is_some())
    })
}

/// A graph that is being placed.
struct Place<'g, 'o> {
    graph: &'g Graph,
    devices: Devices,
    has_kernel: &'o dyn Fn(&Node, &str) -> bool,
    options: &'o PlacementOptions,
    specs: Specs,
    members: Vec<Member>,
    /// What each node asks for, or is assigned to.
    wanted: Vec<SpecId>,
    /// What made groups of nodes.
    links: Vec<Link<'g>>,
    /// The devices of nodes placed so far.
    assigned: Vec<Option<usize>>,
    candidates: HashMap<Candidates, Rc<[usize]>>,
    log: Vec<String>,
}

impl<'g, 'o> Place<'g, 'o> {
    fn new(
        graph: &'g Graph,
        devices: &[PlacementDevice],
        has_kernel: &'o dyn Fn(&Node, &str) -> bool,
        options: &'o PlacementOptions,
    ) -> Result<Place<'g, 'o>> {
        let mut specs = Specs::new();
        let devices = Devices::new(devices, &mut specs)?;
        let mut place = Place {
            graph,
            devices,
            has_kernel,
            options,
            specs,
            members: Vec::with_capacity(graph.len()),
            wanted: Vec::with_capacity(graph.len()),
            links: Vec::new(),
            assigned: vec![None; graph.len()],
            candidates: HashMap::new(),
            log: Vec::new(),
        };
        // Neighbouring nodes mostly ask for the same device, in the same allocation.
        let mut last: Option<(&Arc<str>, SpecId)> = None;
        for (id, node) in graph.nodes() {
            let mut member = Member::new(id);
            let wanted = if !node.assigned_device.is_empty() {
                member.types = place.supported(node);
                let wanted = place.assigned_before(id, node, member.types)?;
                member.assigned = wanted;
                wanted
            } else {
                let wanted = match last {
                    _ if node.device.is_empty() => SpecId::OPEN,
                    Some((device, wanted)) if Arc::ptr_eq(device, &node.device) => wanted,
                    _ => place.parse(id, node)?,
                };
                last = Some((&node.device, wanted));
                member.types = place.supported(node);
                if member.types == Types(0) {
                    return Err(place.no_kernel(node));
                }
                if makes_state(node) {
                    member.resource = wanted;
                }
                wanted
            };
            member.requested = wanted;
            place.wanted.push(wanted);
            place.members.push(member);
        }
        Ok(place)
    }

    fn parse(&mut self, id: NodeId, node: &Node) -> Result<SpecId> {
        match DeviceSpec::parse(&node.device) {
            Some(spec) => Ok(self.specs.add(spec)),
            None => Err(invalid_argument!(
                "Malformed device specification '{}' in node: {}",
                node.device,
                self.described(id, node)
            )
            .at_node(&node.name)),
        }
    }

    /// A node as TensorFlow shows it in texts.
    fn described(&self, id: NodeId, node: &Node) -> String {
        let mut attrs = attrs_of(node);
        attrs.push(format!("_device=\"{}\"", node.device));
        // Numbers begin behind the source and the sink.
        let number = id.index().saturating_add(2);
        let inputs = self.graph.node_to_def(node).input.join(", ");
        format!(
            "{{name:'{0}' id:{number} op device:{{requested: '{1}', assigned: '{2}'}} def:{{{{{{node {0}}}}} = {3}[{4}]({inputs})}}}}",
            node.name,
            node.device,
            node.assigned_device,
            node.op_name(),
            attrs.join(", ")
        )
    }

    /// The device that a node has already.
    fn assigned_before(&mut self, id: NodeId, node: &Node, types: Types) -> Result<SpecId> {
        let name = &node.assigned_device;
        let Some(device) = self.devices.find(name) else {
            return Err(internal!(
                "Assigned device '{name}' does not match any device. Here are the devices available: [{}].",
                self.devices.names()
            )
            .at_node(&node.name));
        };
        if self.devices.all[device].types.0 & types.0 == 0 {
            return Err(internal!(
                "Assigned device '{name}' does not have registered OpKernel support for {}",
                node.op_name()
            )
            .at_node(&node.name));
        }
        self.assigned[id.index()] = Some(device);
        Ok(self.devices.all[device].spec)
    }

    /// The types of devices that a node can run on. Calls can run on all; so may ops that are unknown here but asked for in another
    /// task, which may know them.
    fn supported(&self, node: &Node) -> Types {
        if self.graph.library().get(&node.op.name).is_some() {
            return self.devices.all_types();
        }
        let types = self.devices.types.iter().enumerate();
        let bits = types.fold(0, |bits, (at, name)| bits | u64::from((self.has_kernel)(node, name)) << at);
        let elsewhere =
            || DeviceSpec::parse(&node.device).is_some_and(|wanted| wanted.is_other_task(&self.devices.local));
        if bits == 0 && elsewhere() { self.devices.all_types() } else { Types(bits) }
    }

    fn no_kernel(&self, node: &Node) -> graphmill_tensor::Status {
        let mut types = self.devices.types.clone();
        types.sort_unstable();
        invalid_argument!(
            "No OpKernel was registered to support Op '{}' used by {{{{node {}}}}} with these attrs: [{}]\nRegistered devices: \
             [{}]\nRegistered kernels:\n  <no registered kernels>\n",
            node.op_name(),
            node.name,
            attrs_of(node).join(", "),
            types.join(", ")
        )
        .at_node(&node.name)
    }

    /// Gives every node a device: first those that take something, then those that make something out of nothing, which go where it
    /// is wanted.
    fn assign(&mut self) -> Result<()> {
        let graph = self.graph;
        let mut makers = Vec::new();
        for (id, node) in graph.nodes() {
            if let Some(device) = self.assigned[id.index()] {
                self.put(id, device)?;
            } else if is_maker(node) {
                makers.push(id);
            } else {
                let devices = self.candidates(id)?;
                // What asks for the shape of a value alone goes where the value is.
                let with = if is_about_shapes(node) { node.inputs.first() } else { None };
                let device = with.and_then(|input| self.assigned[input.node.index()]);
                self.put(id, device.filter(|device| devices.contains(device)).unwrap_or(devices[0]))?;
            }
        }
        if makers.is_empty() {
            return Ok(());
        }
        let consumers = if self.devices.all.len() > 1 { graph.consumers() } else { Vec::new() };
        for id in makers {
            let devices = self.candidates(id)?;
            let wanting = consumers.get(id.index()).map_or(&[][..], |list| list.as_slice());
            let device = wanting.first().and_then(|first| self.assigned[first.index()]);
            let is_agreed = wanting.iter().all(|other| self.assigned[other.index()] == device);
            let device = device.filter(|device| is_agreed && devices.contains(device));
            self.put(id, device.unwrap_or(devices[0]))?;
        }
        Ok(())
    }

    fn put(&mut self, id: NodeId, device: usize) -> Result<()> {
        self.assigned[id.index()] = Some(device);
        self.bind(id, device)?;
        if self.options.log {
            let node = self.graph.node(id);
            self.log.push(format!("{}: ({}): {}", node.name, node.op_name(), self.devices.all[device].name));
        }
        Ok(())
    }
}

fn attrs_of(node: &Node) -> Vec<String> {
    node.attrs.iter().map(|(name, value)| format!("{name}={}", summary::attr_value(value))).collect()
}

/// Whether this takes nothing and gives one value.
fn is_maker(node: &Node) -> bool {
    node.input_types.is_empty() && matches!(node.output_types.as_slice(), [output] if !output.is_ref)
}

fn is_about_shapes(node: &Node) -> bool {
    node.op.flow == Flow::Plain && matches!(node.op_name(), "Shape" | "Size" | "Rank")
}
