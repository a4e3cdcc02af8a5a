//! Device names of a graph, each once, so that placing a node compares numbers.

use crate::{Conflict, DeviceSpec};
use graphmill_tensor::Result;
use std::collections::HashMap;

/// A device name by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct SpecId(u32);

impl SpecId {
    /// The name that leaves everything open.
    pub(super) const OPEN: SpecId = SpecId(0);
}

/// All names, and what became of merging them.
pub(super) struct Specs {
    specs: Vec<DeviceSpec>,
    by_spec: HashMap<DeviceSpec, SpecId>,
    merged: HashMap<(SpecId, SpecId, Conflict), SpecId>,
}

impl Specs {
    pub(super) fn new() -> Specs {
        let open = DeviceSpec::default();
        Specs { specs: vec![open.clone()], by_spec: HashMap::from([(open, SpecId::OPEN)]), merged: HashMap::new() }
    }

    pub(super) fn get(&self, id: SpecId) -> &DeviceSpec {
        &self.specs[id.0 as usize]
    }

    pub(super) fn add(&mut self, spec: DeviceSpec) -> SpecId {
        if let Some(&id) = self.by_spec.get(&spec) {
            return id;
        }
        // There are no more names than a few for each node, whose numbers fit.
        let id = SpecId(self.specs.len() as u32);
        self.specs.push(spec.clone());
        self.by_spec.insert(spec, id);
        id
    }

    /// As [`DeviceSpec::merge`].
    pub(super) fn merge(&mut self, a: SpecId, b: SpecId, conflict: Conflict) -> Result<SpecId> {
        if a == b || b == SpecId::OPEN {
            return Ok(a);
        }
        if a == SpecId::OPEN {
            return Ok(b);
        }
        if let Some(&merged) = self.merged.get(&(a, b, conflict)) {
            return Ok(merged);
        }
        let merged = self.get(a).merge(self.get(b), conflict)?;
        let merged = self.add(merged);
        self.merged.insert((a, b, conflict), merged);
        Ok(merged)
    }

    /// `a` with every part that `b` has replaced by that of `b`.
    pub(super) fn specialised(&mut self, a: SpecId, b: SpecId) -> SpecId {
        if a == b || b == SpecId::OPEN {
            return a;
        }
        let specialised = self.get(b).clone().or(self.get(a));
        self.add(specialised)
    }

    /// As [`DeviceSpec::is_compatible`].
    pub(super) fn are_compatible(&self, a: SpecId, b: SpecId) -> bool {
        a == b || a == SpecId::OPEN || b == SpecId::OPEN || self.get(a).is_compatible(self.get(b))
    }
}
