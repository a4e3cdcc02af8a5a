//! Variables in parts on parameter servers.

use super::loads::Loads;
use super::shards::{ShardLimit, smallest_divisor, smallest_non_divisor};
use super::{ServerOptions, StrategyBuilder, strategy, whole};
use crate::item::{GraphItem, Variable};
use crate::resources::ResourceSpec;
use crate::strategy::{Layout, Part, Partitioner, Split, Strategy, VariableStrategy, part_name};
use graphmill_tensor::Result;

/// How the number of parts follows from the size of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Division {
    /// As few equal parts as possible.
    #[default]
    Even,
    /// As few unequal parts as possible.
    Uneven,
}

/// Each variable split on axis 0 over the processors that hold the fewest bytes so far. Variables that a loop or branch reads stay
/// whole.
#[derive(Clone, Copy, Debug)]
pub struct PartitionedPs {
    /// How the servers treat the parts.
    pub options: ServerOptions,
    /// AutoDist's `PartitionedPS` divides evenly, its `UnevenPartitionedPS` unevenly.
    pub division: Division,
    /// The most parts of a variable.
    pub limit: ShardLimit,
    /// Whether to split even if there is one processor only.
    pub partition_single_destination: bool,
}

impl Default for PartitionedPs {
    fn default() -> PartitionedPs {
        PartitionedPs {
            options: ServerOptions::default(),
            division: Division::default(),
            limit: ShardLimit::default(),
            partition_single_destination: true,
        }
    }
}

impl StrategyBuilder for PartitionedPs {
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy> {
        self.options.check()?;
        let mut loads = Loads::new(spec);
        let mut variables = Vec::new();
        for variable in item.trainable_variables() {
            let shards = self.shards(item, variable, loads.count())?;
            let destinations = loads.place_parts(variable.bytes()?, shards);
            variables.push(match (&destinations[..], variable.shape.rank()) {
                ([single], _) => whole(variable, self.options.on(single)),
                (_, rank) => self.split(variable, rank.unwrap_or(0), &destinations)?,
            });
        }
        Ok(strategy(id, spec, variables))
    }
}

impl PartitionedPs {
    fn shards(&self, item: &GraphItem, variable: &Variable, destinations: usize) -> Result<usize> {
        let single = destinations == 1 && !self.partition_single_destination;
        if single || item.is_under_control_flow(variable) {
            return Ok(1);
        }
        let size =
            variable.shape.dims().and_then(|dims| dims.first()).map_or(1, |&size| u64::try_from(size).unwrap_or(1));
        let shards = match self.division {
            Division::Even => smallest_divisor(size),
            Division::Uneven => smallest_non_divisor(size),
        };
        self.limit.apply(shards, destinations, &variable.name)
    }

    fn split(&self, variable: &Variable, rank: usize, destinations: &[String]) -> Result<VariableStrategy> {
        let partitioner = Partitioner::new(rank, 0, destinations.len())?;
        let parts = destinations.iter().enumerate().map(|(i, destination)| Part {
            name: part_name(&variable.name, i),
            synchronizer: self.options.on(destination),
        });
        let split = Split { partitioner, parts: parts.collect() };
        Ok(VariableStrategy { variable: variable.name.clone(), layout: Layout::Split(split) })
    }
}
