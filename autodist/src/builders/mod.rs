//! Strategy builders: from a graph and a cluster to a strategy.
//!
//! The result depends on the arguments alone. Replicas are the cluster's, and there is one entry for each trained variable, in
//! order, whether or not the graph updates it. Devices of equal load are taken in the order of the resource file.

mod all_reduce;
mod loads;
mod parallax;
mod partitioned_all_reduce;
mod partitioned_ps;
mod ps;
mod random;
mod shards;

pub use all_reduce::AllReduceBuilder;
pub use parallax::Parallax;
pub use partitioned_all_reduce::{AxisChoice, PartitionedAllReduce};
pub use partitioned_ps::{Division, PartitionedPs};
pub use ps::{Ps, PsLoadBalancing};
pub use shards::{MAX_SHARDS, ShardLimit, smallest_divisor, smallest_non_divisor};

use crate::item::{GraphItem, Variable};
use crate::resources::ResourceSpec;
use crate::strategy::{AllReduce, Layout, ParameterServer, Strategy, Synchronizer, VariableStrategy};
use graphmill_tensor::{Result, invalid_argument};

/// Makes strategies.
pub trait StrategyBuilder {
    /// The strategy for a graph on a cluster, under this id.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for arguments out of range, and for variables of unknown size where sizes matter.
    fn build(&self, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy>;
}

/// How a parameter server treats a variable; the arguments that builders with servers share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// Whether each node keeps a copy for reading.
    pub local_proxy_variable: bool,
    /// Whether an update waits for the gradients of all nodes.
    pub sync: bool,
    /// By how many steps nodes may run ahead of each other.
    pub staleness: u32,
}

impl Default for ServerOptions {
    /// No copies, and no node ahead of another.
    fn default() -> ServerOptions {
        ServerOptions { local_proxy_variable: false, sync: true, staleness: 0 }
    }
}

impl ServerOptions {
    fn check(self) -> Result<()> {
        if self.staleness > 0 && !self.sync {
            return Err(invalid_argument!("staleness {} needs sync; set sync, or staleness 0", self.staleness));
        }
        if i32::try_from(self.staleness).is_err() {
            return Err(invalid_argument!("staleness {} is too large", self.staleness));
        }
        Ok(())
    }

    fn on(self, destination: &str) -> Synchronizer {
        Synchronizer::ParameterServer(ParameterServer {
            destination: destination.to_owned(),
            local_replication: self.local_proxy_variable,
            sync: self.sync,
            staleness: self.staleness,
        })
    }
}

/// How many variables, in order, form a group whose gradients may travel together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Chunks(usize);

impl Chunks {
    fn new(chunk_size: usize) -> Result<Chunks> {
        if chunk_size < 1 {
            return Err(invalid_argument!(
                "chunk_size is 0 but must be at least 1, which puts each variable in a group of its own"
            ));
        }
        Ok(Chunks(chunk_size))
    }

    fn group(self, number: usize) -> u32 {
        u32::try_from(number / self.0).unwrap_or(u32::MAX)
    }
}

/// The default of `chunk_size`.
pub const DEFAULT_CHUNK_SIZE: usize = 128;

fn strategy(id: &str, spec: &ResourceSpec, variables: Vec<VariableStrategy>) -> Strategy {
    let replicas = spec.replicas().iter().map(ToString::to_string).collect();
    Strategy { id: id.to_owned(), path: String::new(), variables, replicas }
}

fn whole(variable: &Variable, synchronizer: Synchronizer) -> VariableStrategy {
    VariableStrategy { variable: variable.name.clone(), layout: Layout::Whole(synchronizer) }
}

fn all_reduce(reduce: AllReduce) -> Synchronizer {
    Synchronizer::AllReduce(reduce)
}
