//! Running graphs: kernels and their registry, devices, resources, the executor and cancellation.

mod blocking;
mod cancellation;
mod collective;
mod denormals;
mod device;
mod executor;
mod function;
mod intra_op;
mod kernel;
mod owned;
mod part;
pub mod philox;
mod queue;
mod queue_order;
mod queue_spec;
mod registry;
mod remote;
mod rendezvous;
mod resource;
mod step;
mod table;
pub mod testing;
mod trace;
mod value;
mod variable;
mod variant;

pub use blocking::run_blocking;
pub use cancellation::{CallbackId, CancellationManager};
pub use collective::{
    CollectiveInstance, CollectiveKind, CollectiveMember, CollectivePart, Collectives, Fetched, Joined, Taken,
};
pub use device::{Device, Devices, local_name};
pub use executor::{Executor, KernelCache, PartialRun, Port, Program};
pub use function::{Call, Function, FunctionHandle, FunctionRuntime, outputs};
pub use graphmill_graph::{DeviceSpec, RemoteBody, hash64, hash64_combine, is_job_name};
pub use intra_op::IntraOpPool;
pub use kernel::{AnyKernel, AsyncContext, AsyncKernel, Construction, Context, Kernel, NodeInfo, Outputs, SlotTypes};
pub use owned::{OwnedResource, unique_number};
pub use part::Part;
pub use queue::{Queue, QueueDone};
pub use queue_order::{QueueOrder, Tuple};
pub use queue_spec::{QueueSpec, dtype_list, shape_list};
pub use registry::{Entry, Registration, Registry};
pub use remote::{RemoteFunction, RemoteTasks};
pub use rendezvous::{LocalRendezvous, Parcel, Receiver, Rendezvous, WaiterId};
pub use resource::{Resource, ResourceManager, type_hash};
pub use step::Step;
pub use table::{DenseSpec, Table};
pub use trace::{NodeTrace, Trace};
pub use value::Value;
pub use variable::{LegacyVariable, ResourceVariable, Variable};
pub use variant::{Optional, Stored, TensorList, TensorMap, sum_of, sum_of_variants, zeros_of, zeros_of_variant};
