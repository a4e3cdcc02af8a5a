//! Sparse variables on parameter servers, dense ones all-reduced.

use super::loads::Loads;
use super::{Chunks, DEFAULT_CHUNK_SIZE, ServerOptions, StrategyBuilder, all_reduce, strategy, whole};
use crate::item::{Gradient, GraphItem};
use crate::resources::ResourceSpec;
use crate::strategy::{AllReduce, Communication, Compressor, Strategy};
use graphmill_tensor::{Result, invalid_argument};

/// Each variable in the way that suits its gradient.
#[derive(Clone, Copy, Debug)]
pub struct Parallax {
    /// How many variables, sparse ones counted, form a group.
    pub chunk_size: usize,
    /// How servers treat sparse variables. `local_proxy_variable` has no effect: sparse variables are never copied.
    pub options: ServerOptions,
}

impl Default for Parallax {
    fn default() -> Parallax {
        Parallax { chunk_size: DEFAULT_CHUNK_SIZE, options: ServerOptions::default() }
    }
}

impl StrategyBuilder for Parallax {
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy> {
        self.options.check()?;
        let chunks = Chunks::new(self.chunk_size)?;
        let options = ServerOptions { local_proxy_variable: false, ..self.options };
        let mut loads = Loads::new(spec);
        let mut variables = Vec::new();
        for (i, variable) in item.trainable_variables().enumerate() {
            let Some(update) = item.update(&variable.name) else {
                return Err(invalid_argument!(
                    "Variable \"{}\" has no gradient, so Parallax cannot tell whether it is sparse; make it untrainable",
                    variable.name
                ));
            };
            let synchronizer = match update.gradient {
                Gradient::Sparse { .. } => options.on(&loads.place(variable.bytes()?)),
                Gradient::Dense(_) => all_reduce(AllReduce {
                    communication: Communication::Nccl,
                    compressor: Compressor::None,
                    group: chunks.group(i),
                }),
            };
            variables.push(whole(variable, synchronizer));
        }
        Ok(strategy(id, spec, variables))
    }
}
