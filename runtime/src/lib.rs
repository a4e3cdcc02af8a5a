//! Running graphs: kernels and their registry, devices, resources, the executor and cancellation.

mod cancellation;
mod denormals;
mod device;
mod executor;
mod function;
mod intra_op;
mod kernel;
mod registry;
mod resource;
mod step;
pub mod testing;
mod value;
mod variable;

pub use cancellation::{CallbackId, CancellationManager};
pub use device::Device;
pub use executor::{Executor, KernelCache, Port, Program};
pub use function::{Call, Function, FunctionHandle, FunctionRuntime, outputs};
pub use intra_op::IntraOpPool;
pub use kernel::{AnyKernel, AsyncContext, AsyncKernel, Construction, Context, Kernel, NodeInfo, Outputs};
pub use registry::{Entry, Registration, Registry};
pub use resource::{Resource, ResourceManager, type_hash};
pub use step::Step;
pub use value::Value;
pub use variable::{LegacyVariable, ResourceVariable, Variable};
