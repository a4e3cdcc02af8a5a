//! Whole variables, all-reduced.

use super::{Chunks, DEFAULT_CHUNK_SIZE, StrategyBuilder, all_reduce, strategy, whole};
use crate::item::GraphItem;
use crate::resources::ResourceSpec;
use crate::strategy::{AllReduce, Communication, Compressor, Strategy};
use graphmill_tensor::{Result, invalid_argument};

/// Every replica holds every variable. AutoDist calls it `AllReduce`.
#[derive(Clone, Copy, Debug)]
pub struct AllReduceBuilder {
    /// How many variables form a group; 1 keeps each to itself.
    pub chunk_size: usize,
    /// How devices talk to each other.
    pub communication: Communication,
    /// How gradients are encoded on the way.
    pub compressor: Compressor,
}

impl Default for AllReduceBuilder {
    fn default() -> AllReduceBuilder {
        AllReduceBuilder {
            chunk_size: DEFAULT_CHUNK_SIZE,
            communication: Communication::Nccl,
            compressor: Compressor::None,
        }
    }
}

impl AllReduceBuilder {
    /// A builder with AutoDist's names of its arguments: `AUTO`, `NCCL`, `RING`; `NoneCompressor`, `HorovodCompressor`,
    /// `HorovodCompressorEF`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for other names.
    pub fn named(chunk_size: usize, all_reduce_spec: &str, compressor: &str) -> Result<AllReduceBuilder> {
        let communication = match all_reduce_spec {
            "AUTO" => Communication::Auto,
            "NCCL" => Communication::Nccl,
            "RING" => Communication::Ring,
            other => return Err(invalid_argument!("all_reduce_spec is \"{other}\"; write AUTO, NCCL or RING")),
        };
        let compressor = match compressor {
            "NoneCompressor" => Compressor::None,
            "HorovodCompressor" => Compressor::Horovod,
            "HorovodCompressorEF" => Compressor::HorovodErrorFeedback,
            other => {
                return Err(invalid_argument!(
                    "compressor is \"{other}\"; write NoneCompressor, HorovodCompressor or HorovodCompressorEF"
                ));
            }
        };
        Ok(AllReduceBuilder { chunk_size, communication, compressor })
    }
}

impl StrategyBuilder for AllReduceBuilder {
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy> {
        let chunks = Chunks::new(self.chunk_size)?;
        let AllReduceBuilder { communication, compressor, .. } = *self;
        let variables = item.trainable_variables().enumerate().map(|(i, variable)| {
            whole(variable, all_reduce(AllReduce { communication, compressor, group: chunks.group(i) }))
        });
        Ok(strategy(id, spec, variables.collect()))
    }
}
