//! The cluster that a strategy is made for: its nodes, their devices, and their place among TensorFlow's tasks.

mod cluster;
mod device;
mod host;
mod parse;
mod spec;

pub(crate) use cluster::tensorflow_device;
pub use cluster::{ClusterLayout, PortCounter, Task};
pub use device::{DeviceKind, DeviceName};
pub use host::Host;
pub use spec::{Launcher, Measured, Node, ResourceSpec, SshSettings};
