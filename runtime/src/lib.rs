//! Running graphs: kernels and their registry, devices, resources, the executor and cancellation.

mod blocking;
mod cancellation;
mod denormals;
mod device;
mod device_spec;
mod executor;
mod function;
mod hash;
mod intra_op;
mod kernel;
mod owned;
mod queue;
mod registry;
mod resource;
mod step;
pub mod testing;
mod value;
mod variable;
mod variant;

pub use blocking::run_blocking;
pub use cancellation::{CallbackId, CancellationManager};
pub use device::Device;
pub use device_spec::{DeviceSpec, is_job_name};
pub use executor::{Executor, KernelCache, PartialRun, Port, Program};
pub use function::{Call, Function, FunctionHandle, FunctionRuntime, outputs};
pub use hash::{hash64, hash64_combine};
pub use intra_op::IntraOpPool;
pub use kernel::{AnyKernel, AsyncContext, AsyncKernel, Construction, Context, Kernel, NodeInfo, Outputs, SlotTypes};
pub use owned::{OwnedResource, unique_number};
pub use queue::{Queue, QueueDone, QueueOrder, QueueSpec, Tuple, dtype_list, shape_list};
pub use registry::{Entry, Registration, Registry};
pub use resource::{Resource, ResourceManager, type_hash};
pub use step::Step;
pub use value::Value;
pub use variable::{LegacyVariable, ResourceVariable, Variable};
pub use variant::{Optional, Stored, TensorList, TensorMap, sum_of, sum_of_variants, zeros_of, zeros_of_variant};
