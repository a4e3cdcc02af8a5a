//! Compiled strategies.

use crate::support::item;
use graphmill_autodist::builders::{AllReduceBuilder, Parallax, PartitionedPs, StrategyBuilder};
use graphmill_autodist::compiler::{CompiledStrategy, instance_key, resolve_devices};
use graphmill_autodist::resources::{ClusterLayout, PortCounter, ResourceSpec};
use graphmill_autodist::strategy::Synchronizer;

/// The chief is task 1, as `10.20.41.146` comes first.
const PAIR: &str = "launcher: external\nnodes:\n  - {address: 10.20.41.57, gpus: [10, 2], chief: true}\n  - {address: 10.20.41.146, gpus: [0]}\n";

fn compile(builder: &dyn StrategyBuilder, name: &str) -> CompiledStrategy {
    let spec = ResourceSpec::parse(PAIR).unwrap();
    let layout = ClusterLayout::new(&spec, &mut PortCounter::new()).unwrap();
    let item = item(name);
    let strategy = builder.build(&item, &spec, "id").unwrap();
    CompiledStrategy::new(&strategy, &item, &spec, &layout).unwrap()
}

#[test]
fn replicas_are_numbered_by_task_and_index() {
    let compiled = compile(&AllReduceBuilder::default(), "sgd_resource");
    let devices: Vec<(usize, usize, &str)> =
        compiled.replicas.iter().map(|replica| (replica.task, replica.local, replica.device.as_str())).collect();
    assert_eq!(
        devices,
        [
            (0, 0, "/job:worker/task:0/device:GPU:0"),
            (1, 0, "/job:worker/task:1/device:GPU:2"),
            (1, 1, "/job:worker/task:1/device:GPU:10"),
        ]
    );
    assert_eq!((&compiled.participants[..], compiled.chief), (&[0, 1][..], 1));
    assert_eq!(compiled.local_replicas(1).count(), 2);
}

#[test]
fn groups_have_keys_of_their_first_member() {
    let compiled = compile(&AllReduceBuilder { chunk_size: 2, ..AllReduceBuilder::default() }, "sgd_resource");
    let groups: Vec<(&[String], u32)> =
        compiled.groups.iter().map(|group| (&group.members[..], group.instance_key)).collect();
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(groups[0], (&names(&["emb:0", "w:0"])[..], instance_key("emb/group")));
    assert_eq!(groups[1], (&names(&["b:0"])[..], instance_key("b/group")));
    assert_eq!(compiled.variables[0].leaves[0].instance_key, 136_606_542);
}

#[test]
fn destinations_are_tensorflows() {
    let compiled = compile(&PartitionedPs::default(), "adam_reference");
    let emb = &compiled.variables[0];
    assert_eq!(emb.plan.as_ref().unwrap().slice_spec(1).unwrap(), "10 4 5,5:0,4");
    let destinations: Vec<&str> = (emb.leaves.iter())
        .map(|leaf| match &leaf.synchronizer {
            Synchronizer::ParameterServer(server) => server.destination.as_str(),
            Synchronizer::AllReduce(_) => "",
        })
        .collect();
    assert_eq!(destinations, ["/job:worker/task:1/device:CPU:0", "/job:worker/task:0/device:CPU:0"]);
    assert!(compiled.groups.is_empty());

    let spec = ResourceSpec::parse(PAIR).unwrap();
    let layout = ClusterLayout::new(&spec, &mut PortCounter::new()).unwrap();
    let raw = Parallax::default().build(&item("sgd_resource"), &spec, "id").unwrap();
    let resolved = resolve_devices(&raw, &spec, &layout).unwrap();
    assert_eq!(resolved.replicas[0], "/job:worker/task:1/device:GPU:2");
    assert!(resolve_devices(&resolved, &spec, &layout).is_err());
}
