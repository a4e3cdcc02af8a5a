//! Graphs in memory: op schemas, validation, functions, pruning, control flow analysis, placement on devices and partition among them.
//!
//! [`Graph::from_def`] turns a `GraphDef` off the wire into a checked arena of nodes: every node's op is known, its attributes
//! fit the op's schema, every edge joins slots that exist and agree in type, and cycles are loops. What is built from a
//! [`Graph`] later need not check these things again.

mod attrs;
mod body;
mod call_def;
mod control_flow;
mod device_spec;
mod function;
mod gradient;
mod graph;
mod hash;
mod import;
mod inline;
mod lower;
mod names;
mod op_schema;
mod order;
mod partition;
mod placement;
mod prune;
mod remote;
mod rendezvous_key;
mod shape;
mod summary;
mod validate;

pub use attrs::Attrs;
pub use body::{FunctionBody, instantiate};
pub use control_flow::{EnterInfo, Frame, FrameId, FrameMap, frames};
pub use device_spec::{Conflict, DeviceSpec, is_job_name};
pub use function::{Function, FunctionLibrary};
pub use graph::{Endpoint, Graph, Inputs, Node, NodeId, SlotTypes};
pub use hash::{hash64, hash64_combine};
pub use import::{GRAPH_DEF_VERSION, ImportOptions};
pub use lower::lower;
pub use names::{EndpointName, is_valid_node_name};
pub use op_schema::{ArgDef, ArgType, AttrDef, AttrKind, AttrType, Flow, OpDef, op_def, op_defs};
pub use order::topological_order;
pub use partition::{Partition, PartitionOptions, check_partition_devices, colocate_control_flow, partition};
pub use placement::{PlacementDevice, PlacementOptions, place};
pub use prune::{ClientDevice, Signature, prune};
pub use remote::{REMOTE_INCARNATION, RemoteBody, remote_body};
pub use rendezvous_key::{ROOT_FRAME_ID, RendezvousKey, frame_id};
pub use shape::PartialShape;
