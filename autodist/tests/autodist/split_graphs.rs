//! Graphs with split variables.

use crate::support::{item, meta_graph};
use graphmill_autodist::builders::{PartitionedPs, Ps, StrategyBuilder};
use graphmill_autodist::compiler::CompiledStrategy;
use graphmill_autodist::item::{Gradient, GraphItem};
use graphmill_autodist::resources::{ClusterLayout, PortCounter, ResourceSpec};
use graphmill_autodist::transform::partition_variables;
use graphmill_tensor::{Code, Result};

fn split(item: &GraphItem, builder: &dyn StrategyBuilder) -> Result<GraphItem> {
    let spec = ResourceSpec::parse("nodes: [{address: localhost, cpus: [0, 1]}]").unwrap();
    let layout = ClusterLayout::new(&spec, &mut PortCounter::new()).unwrap();
    let strategy = builder.build(item, &spec, "id").unwrap();
    partition_variables(item, &CompiledStrategy::new(&strategy, item, &spec, &layout).unwrap())
}

#[test]
fn parts_are_variables_with_updates_and_slots() {
    for name in ["adam_resource", "momentum_reference", "keras_adagrad"] {
        let whole = item(name);
        let parts = split(&whole, &PartitionedPs::default()).unwrap();
        let names: Vec<&str> = parts.trainable_variables().map(|variable| variable.name.as_str()).collect();
        let expected =
            ["emb/part_0:0", "emb/part_1:0", "w/part_0:0", "w/part_1:0", "b/part_0:0", "b/part_1:0", "b/part_2:0"];
        assert_eq!(names, expected, "{name}");
        for old in &whole.graph().node {
            assert!(parts.index().find(&old.name).is_some(), "{name}: {} is gone", old.name);
        }
        let update = parts.update("w/part_1:0").unwrap();
        assert_eq!(update.slots.len(), whole.update("w:0").unwrap().slots.len(), "{name}");
        assert!(update.slots.iter().all(|slot| slot.ends_with("/part_1")), "{name}: {update:?}");
        assert!(matches!(update.gradient, Gradient::Dense(_)), "{name}");
        let slice = parts.variable("emb/part_1:0").unwrap().def.save_slice_info_def.clone().unwrap();
        assert_eq!(
            (slice.full_name.as_str(), &slice.var_offset[..], &slice.var_shape[..]),
            ("emb", &[5, 0][..], &[5, 4][..])
        );
    }
    for name in ["sgd_resource", "adagrad_reference"] {
        let parts = split(&item(name), &PartitionedPs::default()).unwrap();
        assert!(parts.is_sparse("emb/part_0:0") && parts.is_sparse("emb/part_1:0"), "{name}");
    }
}

#[test]
fn whole_variables_leave_the_graph_alone() {
    let whole = item("adam_resource");
    assert_eq!(split(&whole, &Ps::default()).unwrap().graph(), whole.graph());
}

#[test]
fn names_and_uses_that_do_not_fit_are_refused() {
    let mut meta = meta_graph("sgd_resource");
    let graph = meta.graph_def.as_mut().unwrap();
    let mut taken = graph.node.iter().find(|node| node.name == "ids").unwrap().clone();
    taken.name = "w/part_1".to_owned();
    graph.node.push(taken);
    let error = split(&GraphItem::from_meta_graph(meta).unwrap(), &PartitionedPs::default()).unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    assert!(error.message().contains("\"w/part_1\""), "{error}");

    let mut meta = meta_graph("sgd_resource");
    let graph = meta.graph_def.as_mut().unwrap();
    let read = graph.node.iter_mut().find(|node| node.name == "w/Read/ReadVariableOp").unwrap();
    read.op = "ResourceCountUpTo".to_owned();
    let error = split(&GraphItem::from_meta_graph(meta).unwrap(), &PartitionedPs::default()).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("\"w\" cannot be split"), "{error}");
}
