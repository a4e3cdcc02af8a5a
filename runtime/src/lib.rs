//! Running graphs: kernels and their registry, devices, resources, the executor and cancellation.

mod blocking;
mod cancellation;
mod denormals;
mod device;
mod executor;
mod intra_op;
mod kernel;
mod registry;
mod resource;
mod step;
pub mod testing;
mod value;
mod variable;

pub use blocking::run_blocking;
pub use cancellation::{CallbackId, CancellationManager};
pub use device::Device;
pub use executor::{Executor, KernelCache, Port, Program};
pub use intra_op::IntraOpPool;
pub use kernel::{AnyKernel, AsyncContext, AsyncKernel, Construction, Context, Kernel, NodeInfo, Outputs};
pub use registry::{Entry, Registration, Registry};
pub use resource::{Resource, ResourceManager, type_hash};
pub use step::Step;
pub use value::Value;
pub use variable::{LegacyVariable, ResourceVariable, Variable};
