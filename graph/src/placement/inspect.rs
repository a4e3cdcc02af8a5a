//! Where the resources come from that calls give, by a look into the functions' bodies.

use super::Place;
use crate::{ArgDef, ArgType, Conflict, DeviceSpec, Endpoint, Node, NodeId};
use graphmill_tensor::Result;

/// Nodes of a body that are followed from a result to its origin.
const MAX_STEPS: usize = 100;

/// Where a resource comes from.
enum Origin {
    /// From this argument of the call.
    Argument(usize),
    /// From a node of the body that asks for this device.
    Body(DeviceSpec),
}

impl<'g> Place<'g, '_> {
    /// Where the value comes from that a call passes through, if it is an argument of the call; `None` if it is made in the body, which
    /// then binds `target` to the device that it asks for there.
    pub(super) fn resource_of_call(&mut self, given: Endpoint, target: NodeId) -> Result<Option<NodeId>> {
        let call: &'g Node = self.graph.node(given.node);
        match self.origin(call, given.slot as usize) {
            Some(Origin::Argument(at)) => Ok(call.inputs.get(at).map(|input| input.node)),
            Some(Origin::Body(wanted)) => {
                let wanted = self.specs.add(wanted);
                let root = self.root(target);
                let member = self.members[root];
                // What contradicts is found once the body is part of the graph.
                if self.specs.are_compatible(member.resource, wanted)
                    && self.specs.are_compatible(member.assigned, wanted)
                {
                    let resource = self.specs.merge(member.resource, wanted, Conflict::Fails)?;
                    self.members[root].resource = resource;
                    self.members[root].requested = self.specs.specialised(member.requested, resource);
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn origin(&self, call: &Node, slot: usize) -> Option<Origin> {
        let name = match call.op_name() {
            "PartitionedCall" | "StatefulPartitionedCall" => &call.attrs.func("f").ok()?.name,
            name => name,
        };
        let function = self.graph.library().get(name)?;
        let is_one = |arg: &ArgDef| arg.number_attr.is_none() && !matches!(arg.ty, ArgType::TypeListAttr(_));
        if !function.op.inputs.iter().chain(&function.op.outputs).all(is_one) {
            return None;
        }
        let output = function.op.outputs.get(slot)?;
        let mut source = function.def.ret.get(&*output.name)?;
        for _ in 0..MAX_STEPS {
            let name = source.split(':').next().unwrap_or(source);
            if let Some(at) = function.op.inputs.iter().position(|arg| *arg.name == *name) {
                return Some(Origin::Argument(at));
            }
            let node = function.def.node_def.iter().find(|node| node.name == name)?;
            match node.input.first() {
                None => {
                    let around = DeviceSpec::parse(&call.device)?;
                    return Some(Origin::Body(DeviceSpec::parse(&node.device)?.or(&around)));
                }
                Some(input) if node.op == "Identity" => source = input,
                Some(_) => return None,
            }
        }
        None
    }
}
