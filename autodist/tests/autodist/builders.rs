//! Strategies of every builder for graphs of TensorFlow.

use crate::support::{item, meta_graph};
use graphmill_autodist::builders::{
    AllReduceBuilder, AxisChoice, Division, Parallax, PartitionedAllReduce, PartitionedPs, Ps, PsLoadBalancing,
    ServerOptions, ShardLimit, StrategyBuilder,
};
use graphmill_autodist::item::GraphItem;
use graphmill_autodist::resources::ResourceSpec;
use graphmill_autodist::strategy::{Layout, Strategy, Synchronizer, new_id, validate};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use graphmill_wire::tensorflow::{AttrValue, TensorShapeProto};
use std::time::SystemTime;

const PAIR: &str = "launcher: external\nnodes:\n  - {address: 10.0.0.1, gpus: [0, 1], chief: true}\n  - {address: 10.0.0.2, gpus: [0, 1]}\n";
const SINGLE: &str = "nodes:\n  - {address: localhost, cpus: [0, 1]}\n";
const ID: &str = "20200101T000000M000000";

/// `emb` [10000, 16] with a sparse gradient, `w` [16, 16] and `b` [16].
fn example() -> GraphItem {
    let mut meta = meta_graph("sgd_resource");
    for node in &mut meta.graph_def.as_mut().unwrap().node {
        let dims: &[i64] = match node.name.as_str() {
            "emb" => &[10_000, 16],
            "w" => &[16, 16],
            "b" => &[16],
            _ => continue,
        };
        let dim = dims.iter().map(|&size| Dim { size, name: String::new() }).collect();
        let shape = TensorShapeProto { dim, unknown_rank: false };
        node.attr.insert("shape".to_owned(), AttrValue { value: Some(Value::Shape(shape)) });
    }
    GraphItem::from_meta_graph(meta).unwrap()
}

fn build(builder: &dyn StrategyBuilder, item: &GraphItem, spec: &str) -> Strategy {
    builder.build(item, &ResourceSpec::parse(spec).unwrap(), ID).unwrap()
}

/// One word a variable: `PS(A)`, `2,1[PS(A) PS(B)]`, `AR0`.
fn describe(strategy: &Strategy) -> Vec<String> {
    let one = |synchronizer: &Synchronizer| match synchronizer {
        Synchronizer::ParameterServer(server) => {
            let node = server.destination.replace("10.0.0.1:CPU:0", "A").replace("10.0.0.2:CPU:0", "B");
            format!("PS({node}){}", if server.local_replication { "proxy" } else { "" })
        }
        Synchronizer::AllReduce(reduce) => format!("AR{}", reduce.group),
    };
    let describe = |layout: &Layout| match layout {
        Layout::Whole(synchronizer) => one(synchronizer),
        Layout::Split(split) => {
            let parts: Vec<String> = split.parts.iter().map(|part| one(&part.synchronizer)).collect();
            format!("{}[{}]", split.partitioner, parts.join(" "))
        }
    };
    strategy.variables.iter().map(|entry| describe(&entry.layout)).collect()
}

fn uneven() -> PartitionedPs {
    PartitionedPs { division: Division::Uneven, ..PartitionedPs::default() }
}

#[test]
fn the_worked_example() {
    let item = example();
    let chunked = |chunk_size| AllReduceBuilder { chunk_size, ..AllReduceBuilder::default() };
    let partitioned = |chunk_size| PartitionedAllReduce { chunk_size, ..PartitionedAllReduce::default() };
    let cases: [(&dyn StrategyBuilder, [&str; 3]); 9] = [
        (&Ps::default(), ["PS(A)", "PS(A)", "PS(A)"]),
        (&PsLoadBalancing::default(), ["PS(A)", "PS(B)", "PS(B)"]),
        (&PartitionedPs::default(), ["2,1[PS(A) PS(B)]", "2,1[PS(A) PS(B)]", "2[PS(A) PS(B)]"]),
        (&uneven(), ["3,1[PS(A) PS(B) PS(A)]", "3,1[PS(B) PS(A) PS(B)]", "3[PS(B) PS(A) PS(B)]"]),
        (&chunked(128), ["AR0", "AR0", "AR0"]),
        (&chunked(1), ["AR0", "AR1", "AR2"]),
        (&partitioned(128), ["2,1[AR0 AR0]", "2,1[AR0 AR0]", "2[AR0 AR0]"]),
        (&partitioned(4), ["2,1[AR0 AR0]", "2,1[AR0 AR0]", "2[AR1 AR1]"]),
        (&Parallax::default(), ["PS(A)", "AR0", "AR0"]),
    ];
    for (builder, expected) in cases {
        let strategy = build(builder, &item, PAIR);
        assert_eq!(describe(&strategy), expected);
        assert_eq!(strategy.replicas, ["10.0.0.1:GPU:0", "10.0.0.1:GPU:1", "10.0.0.2:GPU:0", "10.0.0.2:GPU:1"]);
        assert_eq!(strategy.id, ID);
    }
}

#[test]
fn names_of_parts_count_from_zero() {
    let strategy = build(&PartitionedPs::default(), &example(), PAIR);
    let names: Vec<&str> = strategy.variables.iter().flat_map(|entry| entry.leaves()).map(|(name, _)| name).collect();
    assert_eq!(names, ["emb/part_0:0", "emb/part_1:0", "w/part_0:0", "w/part_1:0", "b/part_0:0", "b/part_1:0"]);
}

#[test]
fn random_axes_follow_the_seed() {
    let item = example();
    let seeded = |seed| PartitionedAllReduce {
        axis: AxisChoice::Random { seed },
        chunk_size: 4,
        ..PartitionedAllReduce::default()
    };
    let mut seen = [false; 2];
    for seed in 0..32 {
        let strategy = build(&seeded(Some(seed)), &item, PAIR);
        assert_eq!(strategy, build(&seeded(Some(seed)), &item, PAIR));
        let [emb, w, b] = &describe(&strategy)[..] else { panic!("{strategy:?}") };
        assert_eq!((emb.as_str(), b.as_str()), ("2,1[AR0 AR0]", "2[AR1 AR1]"));
        seen[usize::from(w == "1,2[AR0 AR0]")] = true;
        assert!(w == "2,1[AR0 AR0]" || w == "1,2[AR0 AR0]", "{w}");
    }
    assert_eq!(seen, [true, true]);
    assert_eq!(build(&seeded(None), &item, PAIR), build(&seeded(None), &item, PAIR));
}

/// What the builders make of small models: a line with scalars, a loop, a branch, an embedding.
#[test]
fn small_models_on_one_node_and_two() {
    let proxy = ServerOptions { local_proxy_variable: true, ..ServerOptions::default() };
    let ps = PartitionedPs { options: proxy, ..PartitionedPs::default() };
    let ar = PartitionedAllReduce::default();
    let lb = PsLoadBalancing { options: proxy };
    let parallax = Parallax { options: proxy, ..Parallax::default() };
    let cases: &[(&str, &dyn StrategyBuilder, &str, &[&str])] = &[
        ("line_resource", &ps, PAIR, &["PS(A)proxy", "PS(B)proxy"]),
        ("line_resource", &ar, PAIR, &["AR0", "AR0"]),
        ("line_resource", &parallax, PAIR, &["AR0", "AR0"]),
        ("loop_resource", &ps, PAIR, &["PS(A)proxy", "PS(B)proxy"]),
        // `emb` is read outside the branch only; `other`'s handle goes into the branch.
        ("branch_resource", &ps, PAIR, &["2,1[PS(A)proxy PS(B)proxy]", "PS(A)proxy"]),
        ("branch_resource", &parallax, PAIR, &["PS(A)", "PS(B)"]),
        ("sgd_reference", &lb, PAIR, &["PS(A)proxy", "PS(B)proxy", "PS(B)proxy"]),
        ("sgd_reference", &uneven(), PAIR, &["3,1[PS(A) PS(B) PS(A)]", "3,1[PS(B) PS(A) PS(B)]", "2[PS(B) PS(A)]"]),
        (
            "sgd_resource",
            &PartitionedPs::default(),
            SINGLE,
            &[
                "2,1[PS(localhost:CPU:0) PS(localhost:CPU:1)]",
                "2,1[PS(localhost:CPU:0) PS(localhost:CPU:1)]",
                "3[PS(localhost:CPU:0) PS(localhost:CPU:1) PS(localhost:CPU:0)]",
            ],
        ),
        ("sgd_resource", &lb, "nodes: [{address: localhost, gpus: [0]}]", &["PS(localhost:CPU:0)proxy"; 3]),
    ];
    for (name, builder, spec, expected) in cases {
        let item = item(name);
        let mut strategy = build(*builder, &item, spec);
        assert_eq!(describe(&strategy), *expected, "{name}");
        let encoded = Strategy::decode(&strategy.encode(), |_| None).unwrap();
        assert_eq!(encoded, strategy, "{name}");
        let warnings = validate(&mut strategy, &item, &ResourceSpec::parse(spec).unwrap()).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn limits_and_single_destinations() {
    let item = example();
    let total = PartitionedPs { limit: ShardLimit::Total(1), ..PartitionedPs::default() };
    assert_eq!(describe(&build(&total, &item, PAIR)), ["PS(A)", "PS(B)", "PS(B)"]);
    let single = PartitionedPs { partition_single_destination: false, ..PartitionedPs::default() };
    let spec = "nodes: [{address: 10.0.0.1}]";
    assert_eq!(describe(&build(&single, &item, spec)), ["PS(A)", "PS(A)", "PS(A)"]);
}

#[test]
fn arguments_are_checked() {
    let item = example();
    let spec = ResourceSpec::parse(PAIR).unwrap();
    let error = |builder: &dyn StrategyBuilder| builder.build(&item, &spec, ID).unwrap_err().message().to_owned();
    let options = ServerOptions { sync: false, staleness: 3, ..ServerOptions::default() };
    assert!(error(&Ps { options }).contains("needs sync"));
    assert!(error(&PsLoadBalancing { options }).contains("needs sync"));
    assert!(error(&PartitionedPs { options, ..PartitionedPs::default() }).contains("needs sync"));
    assert!(error(&Parallax { options, ..Parallax::default() }).contains("needs sync"));
    assert!(error(&AllReduceBuilder { chunk_size: 0, ..AllReduceBuilder::default() }).contains("at least 1"));
    assert!(error(&PartitionedAllReduce { chunk_size: 0, ..PartitionedAllReduce::default() }).contains("at least 1"));
    assert!(AllReduceBuilder::named(1, "MPI", "NoneCompressor").unwrap_err().message().contains("AUTO, NCCL or RING"));
    assert!(AllReduceBuilder::named(1, "RING", "zip").unwrap_err().message().contains("HorovodCompressorEF"));
    assert!(AllReduceBuilder::named(1, "RING", "HorovodCompressorEF").is_ok());
}

#[test]
fn strategies_that_do_not_fit_are_refused() {
    let item = example();
    let spec = ResourceSpec::parse(PAIR).unwrap();
    let error = |change: fn(&mut Strategy)| {
        let mut strategy = build(&PartitionedPs::default(), &item, PAIR);
        change(&mut strategy);
        validate(&mut strategy, &item, &spec).unwrap_err().message().to_owned()
    };
    let moved = error(|strategy| {
        let Layout::Split(split) = &mut strategy.variables[0].layout else { panic!("{strategy:?}") };
        let Synchronizer::ParameterServer(server) = &mut split.parts[1].synchronizer else { panic!("{split:?}") };
        server.destination = "10.0.0.2:CPU:1".to_owned();
    });
    assert!(moved.contains("\"emb:0\": the resource file has no device \"10.0.0.2:CPU:1\""), "{moved}");
    assert!(error(|s| s.replicas[0] = "10.0.0.9:GPU:0".to_owned()).contains("no device \"10.0.0.9:GPU:0\""));
    assert!(error(|s| s.replicas.retain(|r| r.starts_with("10.0.0.2"))).contains("No replica is on the chief"));
    assert!(error(|s| s.replicas[1] = s.replicas[0].clone()).contains("there twice"));
    assert!(error(|s| s.variables.push(s.variables[0].clone())).contains("it is there twice"));
    assert!(error(|s| s.variables[0].layout = s.variables[2].layout.clone()).contains("does not fit the shape"));

    let mut strategy = build(&Ps::default(), &item, PAIR);
    strategy.variables[1].variable = "gone:0".to_owned();
    let warnings = validate(&mut strategy, &item, &spec).unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("\"gone:0\""));
    assert_eq!(strategy.variables.len(), 2);
}

#[test]
fn sparse_variables_are_split_on_their_rows_only() {
    let item = example();
    let spec = ResourceSpec::parse(PAIR).unwrap();
    let builder =
        PartitionedAllReduce { axis: AxisChoice::Random { seed: Some(0) }, ..PartitionedAllReduce::default() };
    let mut strategy = builder.build(&item, &spec, &new_id(SystemTime::UNIX_EPOCH)).unwrap();
    let Layout::Split(split) = &mut strategy.variables[0].layout else { panic!() };
    split.partitioner = graphmill_autodist::strategy::Partitioner::new(2, 1, 2).unwrap();
    let error = validate(&mut strategy, &item, &spec).unwrap_err();
    assert!(error.message().contains("\"emb:0\": its gradient is sparse"), "{error}");
}

#[test]
fn what_a_branch_reads_stays_whole() {
    let item = item("branch_resource");
    let spec = ResourceSpec::parse(PAIR).unwrap();
    let mut strategy = PartitionedAllReduce::default().build(&item, &spec, ID).unwrap();
    assert_eq!(describe(&strategy), ["2,1[AR0 AR0]", "2,1[AR0 AR0]"]);
    let warnings = validate(&mut strategy, &item, &spec).unwrap();
    assert_eq!(describe(&strategy), ["2,1[AR0 AR0]", "AR0"]);
    assert!(warnings[0].contains("\"other:0\" stays whole"), "{warnings:?}");
}
