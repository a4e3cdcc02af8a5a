//! Distribution strategies in the manner of AutoDist: from a graph for one device and the description of a cluster to graphs
//! for every node.
//!
//! The way of the data: a `MetaGraphDef` becomes a [`item::GraphItem`], a resource file a [`resources::ResourceSpec`]. A
//! [`builders::StrategyBuilder`] makes a [`strategy::Strategy`] of the two: for each trainable variable, how its gradient is
//! brought together and whether it is split. [`compiler::CompiledStrategy`] is that strategy resolved for one graph and one
//! cluster. Files and messages have the bytes of AutoDist's own.

pub mod builders;
pub mod compiler;
pub mod item;
pub mod proto;
pub mod resources;
pub mod strategy;
pub mod transform;
