//! Variables in parts, all-reduced.

use super::random::SplitMix;
use super::shards::{ShardLimit, smallest_divisor};
use super::{Chunks, DEFAULT_CHUNK_SIZE, StrategyBuilder, all_reduce, strategy, whole};
use crate::item::{GraphItem, Variable};
use crate::resources::ResourceSpec;
use crate::strategy::{
    AllReduce, Communication, Compressor, Layout, Part, Partitioner, Split, Strategy, VariableStrategy, part_name,
};
use graphmill_graph::hash64;
use graphmill_tensor::Result;

/// Which axis of a variable to split.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AxisChoice {
    /// Axis 0. AutoDist calls it `PartitionedAR`.
    #[default]
    First,
    /// Any axis longer than 1, and axis 0 where the gradient is sparse. AutoDist calls it `RandomAxisPartitionAR`.
    Random {
        /// The same seed chooses the same axes; `None` takes the strategy's id for one.
        seed: Option<u64>,
    },
}

/// Each variable in as few equal parts as possible, all of which every replica holds.
#[derive(Clone, Copy, Debug)]
pub struct PartitionedAllReduce {
    /// How many parts, in order, form a group.
    pub chunk_size: usize,
    /// Which axis is split.
    pub axis: AxisChoice,
    /// The most parts of a variable.
    pub limit: ShardLimit,
}

impl Default for PartitionedAllReduce {
    fn default() -> PartitionedAllReduce {
        PartitionedAllReduce {
            chunk_size: DEFAULT_CHUNK_SIZE,
            axis: AxisChoice::default(),
            limit: ShardLimit::default(),
        }
    }
}

impl StrategyBuilder for PartitionedAllReduce {
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy> {
        let chunks = Chunks::new(self.chunk_size)?;
        let mut random = match self.axis {
            AxisChoice::First => None,
            AxisChoice::Random { seed } => Some(SplitMix::new(seed.unwrap_or_else(|| hash64(id.as_bytes())))),
        };
        let destinations = spec.destinations().len();
        let mut variables = Vec::new();
        let mut number = 0;
        for variable in item.trainable_variables() {
            let (axis, size) = axis_of(item, variable, random.as_mut());
            let shards = self.limit.apply(smallest_divisor(size), destinations, &variable.name)?;
            let synchronizer = |i: usize| {
                all_reduce(AllReduce {
                    communication: Communication::Auto,
                    compressor: Compressor::None,
                    group: chunks.group(number + i),
                })
            };
            variables.push(if shards == 1 {
                whole(variable, synchronizer(0))
            } else {
                let partitioner = Partitioner::new(variable.shape.rank().unwrap_or(0), axis, shards)?;
                let part = |i| Part { name: part_name(&variable.name, i), synchronizer: synchronizer(i) };
                let split = Split { partitioner, parts: (0..shards).map(part).collect() };
                VariableStrategy { variable: variable.name.clone(), layout: Layout::Split(split) }
            });
            number += shards;
        }
        Ok(strategy(id, spec, variables))
    }
}

/// The axis to split and its size; a size of 1 leaves the variable whole.
fn axis_of(item: &GraphItem, variable: &Variable, random: Option<&mut SplitMix>) -> (usize, u64) {
    let dims = variable.shape.dims().unwrap_or_default();
    let size = |axis: usize| dims.get(axis).map_or(1, |&size| u64::try_from(size).unwrap_or(1));
    let Some(random) = random else { return (0, size(0)) };
    let axes: Vec<usize> = (0..dims.len()).filter(|&axis| size(axis) > 1).collect();
    if axes.is_empty() || item.is_sparse(&variable.name) {
        return (0, size(0));
    }
    let axis = axes[random.below(axes.len())];
    (axis, size(axis))
}
