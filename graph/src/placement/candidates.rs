//! The devices that a group may be on.

use super::devices::Types;
use super::explain;
use super::specs::SpecId;
use super::{Place, groups::Member};
use crate::{DeviceSpec, NodeId};
use graphmill_tensor::{Result, invalid_argument};
use std::rc::Rc;

/// What decides which devices a group may be on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Candidates {
    assigned: SpecId,
    resource: SpecId,
    requested: SpecId,
    types: Types,
}

impl Place<'_, '_> {
    /// The devices that a node's group may be on, best first; at least one.
    pub(super) fn candidates(&mut self, id: NodeId) -> Result<Rc<[usize]>> {
        let root = self.root(id);
        let member = self.members[root];
        let Member { assigned, resource, requested, types, .. } = member;
        let key = Candidates { assigned, resource, requested, types };
        if let Some(known) = self.candidates.get(&key) {
            return Ok(known.clone());
        }
        let mut found = self.devices.matching(self.specs.get(requested), types);
        if found.is_empty() && self.options.soft && requested != SpecId::OPEN {
            found = self.soft(key, &[assigned, resource]);
            if found.is_empty() {
                found = self.soft(key, &[assigned]);
            }
        }
        if found.is_empty() {
            let name = &self.graph.node(id).name;
            let why = self.why_none(id, root, requested);
            return Err(invalid_argument!("Cannot assign a device for operation {name}: {why}").at_node(name));
        }
        let found: Rc<[usize]> = found.into();
        self.candidates.insert(key, found.clone());
        Ok(found)
    }

    /// The devices that match once type and number are left out, other than those that one of `firm` has.
    fn soft(&self, key: Candidates, firm: &[SpecId]) -> Vec<usize> {
        let mut wanted = self.specs.get(key.requested).clone();
        if firm.iter().all(|&spec| self.specs.get(spec).device_type.is_none()) {
            wanted.device_type = None;
        }
        if firm.iter().all(|&spec| self.specs.get(spec).id.is_none()) {
            wanted.id = None;
        }
        self.devices.matching(&wanted, key.types)
    }

    fn why_none(&self, id: NodeId, root: usize, requested: SpecId) -> String {
        let node = self.graph.node(id);
        let all = self.devices.names();
        if requested == SpecId::OPEN {
            let inputs: Vec<String> =
                node.input_types.iter().map(|input| crate::summary::type_name(input.number())).collect();
            return format!(
                "Node had no OpKernel registered to support this operation: Operation was {} and inputs were [{}].\n{}",
                node.op_name(),
                inputs.join(", "),
                explain::members(self, root)
            );
        }
        let own: Option<DeviceSpec> = DeviceSpec::parse(&node.device);
        let requested = self.specs.get(requested);
        match own {
            Some(own) if own == *requested => {
                let exists = !self.devices.matching(&own, self.devices.all_types()).is_empty();
                match &own.device_type {
                    _ if !exists => {
                        let is_gpu = own.device_type.as_ref().is_some_and(|ty| ty.eq_ignore_ascii_case("gpu"));
                        let hint = if is_gpu {
                            " The requested device appears to be a GPU, but CUDA is not enabled."
                        } else {
                            ""
                        };
                        format!(
                            "{{{{node {}}}}} was explicitly assigned to {} but available devices are [ {all} ]. Make sure the device \
                             specification refers to a valid device.{hint}",
                            node.name, node.device
                        )
                    }
                    Some(device_type) => format!(
                        "Could not satisfy explicit device specification '{}' because no supported kernel for {device_type} devices is \
                         available.{}\nOp: {}",
                        node.device,
                        explain::members(self, root),
                        node.op_name()
                    ),
                    None => format!(
                        "Could not satisfy explicit device specification '{}'{}",
                        node.device,
                        explain::members(self, root)
                    ),
                }
            }
            _ => format!(
                "Could not satisfy explicit device specification '{}' because the node {{{{colocation_node {}}}}} was colocated with a \
                 group of nodes that required incompatible device '{requested}'. All available devices [{all}]. {}",
                node.device,
                node.name,
                explain::members(self, root)
            ),
        }
    }
}
