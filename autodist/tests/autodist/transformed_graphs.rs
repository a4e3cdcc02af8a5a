//! Graphs of tasks.

use crate::support::{item, meta_graph};
use graphmill_autodist::builders::{AllReduceBuilder, PartitionedPs, Ps, ServerOptions, StrategyBuilder};
use graphmill_autodist::compiler::CompiledStrategy;
use graphmill_autodist::item::GraphItem;
use graphmill_autodist::resources::{ClusterLayout, PortCounter, ResourceSpec};
use graphmill_autodist::transform::{TransformOptions, TransformedGraph, transform};
use graphmill_tensor::{Code, Result};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

const PAIR: &str =
    "launcher: external\nnodes:\n  - {address: 10.0.0.1, cpus: [0, 1], chief: true}\n  - {address: 10.0.0.2}\n";

fn compiled(item: &GraphItem, builder: &dyn StrategyBuilder, text: &str) -> CompiledStrategy {
    let spec = ResourceSpec::parse(text).unwrap();
    let layout = ClusterLayout::new(&spec, &mut PortCounter::new()).unwrap();
    let strategy = builder.build(item, &spec, "id").unwrap();
    CompiledStrategy::new(&strategy, item, &spec, &layout).unwrap()
}

fn graph_of(item: &GraphItem, builder: &dyn StrategyBuilder, task: usize) -> Result<TransformedGraph> {
    transform(item, &compiled(item, builder, PAIR), task, TransformOptions::default())
}

fn find<'a>(written: &'a TransformedGraph, name: &str) -> &'a NodeDef {
    let nodes = &written.meta_graph.graph_def.as_ref().unwrap().node;
    nodes.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("there is no node {name}"))
}

#[test]
fn the_chief_updates_and_the_others_wait() {
    let item = item("line_resource");
    let update = "AutoDist-Replica-0/GradientDescent/update_W/ResourceApplyGradientDescent";
    let chief = graph_of(&item, &Ps::default(), 0).unwrap();
    assert!(chief.is_chief && chief.replicas == 2);
    assert_eq!(find(&chief, update).op, "NoOp");
    let apply = find(&chief, &format!("{update}/apply"));
    assert_eq!(apply.op, "ResourceApplyGradientDescent");
    assert_eq!(apply.device, "/job:worker/task:0/device:CPU:0");
    assert!(apply.input.contains(&"autodist-between/W/take_grad".to_owned()), "{:?}", apply.input);

    let worker = graph_of(&item, &Ps::default(), 1).unwrap();
    let gate = find(&worker, update);
    assert_eq!(gate.op, "NoOp");
    assert!(gate.input.contains(&"^autodist-between/W/updated".to_owned()), "{:?}", gate.input);
    assert_eq!(find(&worker, "AutoDist-Replica-0/W").device, "/job:worker/task:0/device:CPU:0");
    let nodes = &worker.meta_graph.graph_def.as_ref().unwrap().node;
    assert!(nodes.iter().all(|node| node.op != "ResourceApplyGradientDescent"));
    assert!(nodes.iter().all(|node| node.device.starts_with("/job:worker/task:")), "every node has a device");
}

#[test]
fn every_input_is_there_and_names_are_unique() {
    let proxy = Ps { options: ServerOptions { local_proxy_variable: true, ..ServerOptions::default() } };
    let stale = Ps { options: ServerOptions { staleness: 2, ..ServerOptions::default() } };
    let builders: [&dyn StrategyBuilder; 5] =
        [&Ps::default(), &proxy, &stale, &PartitionedPs::default(), &AllReduceBuilder::default()];
    for name in
        ["adam_resource", "adam_reference", "keras_adam", "loop_resource", "branch_reference", "ftrl_v2_resource"]
    {
        for builder in builders {
            for task in 0..2 {
                let written = graph_of(&item(name), builder, task).unwrap();
                GraphItem::from_meta_graph(written.meta_graph).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }
}

#[test]
fn loops_of_replicas_have_frames_of_their_own() {
    let written = graph_of(&item("loop_resource"), &AllReduceBuilder::default(), 0).unwrap();
    let nodes = &written.meta_graph.graph_def.as_ref().unwrap().node;
    let mut entered = 0;
    for node in nodes.iter().filter(|node| node.op == "Enter") {
        let Some(Value::S(frame)) = node.attr["frame_name"].value.as_ref() else { panic!("{node:?}") };
        let replica = node.name.split('/').next().unwrap();
        assert!(String::from_utf8_lossy(frame).starts_with(replica), "{frame:?} in {replica}");
        entered += 1;
    }
    assert!(entered > 2);
}

#[test]
fn feeds_are_split_and_fetches_run_where_they_must() {
    let item = item("adam_resource");
    let written = graph_of(&item, &AllReduceBuilder::default(), 0).unwrap();
    let ids = written.feeds.iter().find(|feed| feed.node == "ids").unwrap();
    assert_eq!(ids.copies, ["AutoDist-Replica-0/ids", "AutoDist-Replica-1/ids"]);
    assert!(ids.is_split);
    let fetch = |node: &str| written.fetches.iter().find(|fetch| fetch.node == node).unwrap();
    assert!(fetch("Adam").runs_all);
    assert!(!fetch("Mean").runs_all);
    let alone = graph_of(&item, &AllReduceBuilder::default(), 1).unwrap();
    assert!(alone.feeds.iter().all(|feed| !feed.is_split && feed.copies.len() == 1));
}

#[test]
fn what_cannot_be_is_told() {
    let whole = item("line_resource");
    let error = graph_of(&whole, &Ps::default(), 7).unwrap_err();
    assert!(error.message().contains("Task 7 hosts no replica"), "{error}");

    let mut strategy = compiled(&whole, &Ps::default(), PAIR);
    strategy.variables.pop();
    let error = transform(&whole, &strategy, 0, TransformOptions::default()).unwrap_err();
    assert!(error.message().contains("says nothing of variable \"b:0\""), "{error}");

    let mut strategy = compiled(&whole, &Ps::default(), PAIR);
    strategy.variables[0].leaves[0].name = "absent:0".to_owned();
    let error = transform(&whole, &strategy, 0, TransformOptions::default()).unwrap_err();
    assert!(error.message().contains("does not train \"absent:0\""), "{error}");

    let mut meta = meta_graph("loop_resource");
    for node in &mut meta.graph_def.as_mut().unwrap().node {
        if node.op == "ReadVariableOp" && node.input[0].contains("Enter") {
            node.op = "VarIsInitializedOp".to_owned();
        }
    }
    let error = graph_of(&GraphItem::from_meta_graph(meta).unwrap(), &Ps::default(), 0).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("cannot lie on a parameter server"), "{error}");
}

#[test]
fn updates_in_several_operations_keep_variables_whole() {
    let written = graph_of(&item("keras_rmsprop"), &PartitionedPs::default(), 0).unwrap();
    assert!(written.warnings.iter().any(|warning| warning.contains("stays whole")), "{:?}", written.warnings);
}
