//! Whole variables on parameter servers.

use super::loads::Loads;
use super::{ServerOptions, StrategyBuilder, strategy, whole};
use crate::item::GraphItem;
use crate::resources::ResourceSpec;
use crate::strategy::Strategy;
use graphmill_tensor::Result;

/// Every variable on the first processor of the cluster.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ps {
    /// How the server treats them.
    pub options: ServerOptions,
}

/// Each variable on the processor that holds the fewest bytes so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct PsLoadBalancing {
    /// How the servers treat them.
    pub options: ServerOptions,
}

impl StrategyBuilder for Ps {
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy> {
        self.options.check()?;
        // A cluster has a node, and each node a processor.
        let Some(first) = spec.destinations().first().map(ToString::to_string) else {
            return Ok(strategy(id, spec, Vec::new()));
        };
        let variables = item.trainable_variables().map(|variable| whole(variable, self.options.on(&first)));
        Ok(strategy(id, spec, variables.collect()))
    }
}

impl StrategyBuilder for PsLoadBalancing {
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy> {
        self.options.check()?;
        let mut loads = Loads::new(spec);
        let mut variables = Vec::new();
        for variable in item.trainable_variables() {
            let destination = loads.place(variable.bytes()?);
            variables.push(whole(variable, self.options.on(&destination)));
        }
        Ok(strategy(id, spec, variables))
    }
}
