//! The ops on several devices of one process: results, and the keys under which buffers go from one to another.

#![allow(clippy::unwrap_used, clippy::panic)]

use graphmill_graph::Graph;
use graphmill_runtime::{
    AnyKernel, AsyncContext, CollectiveInstance, CollectiveMember, CollectivePart, Collectives, Construction, Device,
    Fetched, IntraOpPool, Joined, NodeInfo, Outputs, Registry, Step, Taken, Value,
};
use graphmill_tensor::{DType, Result, Tensor};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef, attr_value};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Devices that exchange buffers in memory. Each is a task of its own.
struct Memory {
    devices: usize,
    source: Option<usize>,
    entries: Mutex<BTreeMap<String, Entry>>,
    keys: Mutex<BTreeSet<String>>,
}

enum Entry {
    Offered(Tensor, Taken),
    Awaited(Fetched),
}

fn task(rank: usize) -> String {
    format!("/job:worker/replica:0/task:{rank}")
}

impl Collectives for Memory {
    fn join(&self, device: &Device, part: CollectivePart, joined: Joined) {
        let member = |rank| CollectiveMember {
            device: format!("{}/device:CPU:0", task(rank)),
            task: task(rank),
            incarnation: 1,
        };
        let members: Arc<[CollectiveMember]> = (0..self.devices).map(member).collect();
        let rank = members.iter().position(|member| member.device == device.name()).unwrap();
        let (group_key, instance_key) = (part.group_key, part.instance_key);
        let source_rank = self.source;
        joined(Ok(CollectiveInstance { members, rank, source_rank, group_key, instance_key, timeout: None }));
    }

    fn post(&self, _: &CollectiveInstance, _: usize, key: String, buffer: Tensor, taken: Taken) {
        self.keys.lock().insert(key.clone());
        let found = self.entries.lock().remove(&key);
        match found {
            Some(Entry::Awaited(fetched)) => {
                fetched(Ok(buffer));
                taken(Ok(()));
            }
            Some(Entry::Offered(..)) => panic!("{key} is offered twice"),
            None => drop(self.entries.lock().insert(key, Entry::Offered(buffer, taken))),
        }
    }

    fn fetch(
        &self,
        _: &CollectiveInstance,
        _: usize,
        key: String,
        (dtype, elements): (DType, usize),
        fetched: Fetched,
    ) {
        let found = self.entries.lock().remove(&key);
        match found {
            Some(Entry::Offered(buffer, taken)) => {
                assert_eq!((buffer.dtype(), buffer.num_elements()), (dtype, elements), "{key}");
                fetched(Ok(buffer));
                taken(Ok(()));
            }
            Some(Entry::Awaited(_)) => panic!("{key} is awaited twice"),
            None => drop(self.entries.lock().insert(key, Entry::Awaited(fetched))),
        }
    }
}

fn attrs(values: &[(&str, attr_value::Value)]) -> BTreeMap<String, AttrValue> {
    values.iter().map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) })).collect()
}

/// Runs one op on each device, and yields the results with the keys of all buffers.
fn run(
    devices: usize,
    source: Option<usize>,
    node: impl Fn(usize) -> (&'static str, Option<Tensor>, BTreeMap<String, AttrValue>),
) -> (Vec<Result<Tensor>>, Vec<String>) {
    let mut registry = Registry::new();
    graphmill_kernels_collective::register(&mut registry);
    let memory = Arc::new(Memory { devices, source, entries: Mutex::default(), keys: Mutex::default() });
    let mut outcomes = Vec::new();
    for rank in 0..devices {
        let device = Arc::new(Device::cpu(&task(rank), "worker", 0, 1, IntraOpPool::new(1)));
        let (op, input, attrs_of_op) = node(rank);
        let mut nodes = Vec::new();
        if let Some(input) = &input {
            let number = attr_value::Value::Type(input.dtype().number());
            nodes.push(NodeDef {
                name: "x".into(),
                op: "Placeholder".into(),
                attr: attrs(&[("dtype", number)]),
                ..Default::default()
            });
        }
        let inputs = nodes.iter().map(|_| "x".to_owned()).collect();
        nodes.push(NodeDef {
            name: "op".into(),
            op: op.into(),
            input: inputs,
            attr: attrs_of_op,
            ..Default::default()
        });
        let versions = Some(VersionDef { producer: 2474, ..Default::default() });
        let graph = Graph::from_def(&GraphDef { node: nodes, versions, ..Default::default() }).unwrap();
        let node = graph.node(graph.find("op").unwrap());
        let info = NodeInfo {
            name: node.name.clone(),
            op: node.op.name.clone(),
            input_types: node.input_types.as_slice().into(),
            output_types: node.output_types.as_slice().into(),
        };
        let step = Arc::new(Step::new(1).with_collectives(memory.clone()));
        let (sender, receiver) = mpsc::channel();
        let done = move |outcome: Result<Outputs>| drop(sender.send(outcome));
        let inputs = input.into_iter().map(Value::Tensor).collect();
        let ctx = AsyncContext::new(Arc::new(info), step, device.clone(), inputs, done).in_frame(3, 4);
        match registry.build(&Construction::new(node, &device)).unwrap() {
            AnyKernel::Async(kernel) => kernel.start(ctx),
            AnyKernel::Sync(_) => panic!("{op} waits for others"),
        }
        outcomes.push(receiver);
    }
    let outcome = |receiver: mpsc::Receiver<Result<Outputs>>| {
        receiver.recv_timeout(Duration::from_secs(60)).unwrap().and_then(|outputs| outputs[0].snapshot())
    };
    let results = outcomes.into_iter().map(outcome).collect();
    assert!(memory.entries.lock().is_empty());
    let keys = memory.keys.lock().iter().cloned().collect();
    (results, keys)
}

fn keyed(more: &[(&str, attr_value::Value)], devices: usize) -> BTreeMap<String, AttrValue> {
    let number = |value: i64| attr_value::Value::I(value);
    let mut all = attrs(&[
        ("T", attr_value::Value::Type(DType::Float.number())),
        ("group_size", number(devices as i64)),
        ("group_key", number(1)),
        ("instance_key", number(2)),
    ]);
    all.extend(attrs(more));
    all
}

fn text(value: &'static str) -> attr_value::Value {
    attr_value::Value::S(value.as_bytes().into())
}

fn offsets(values: &[i64]) -> attr_value::Value {
    attr_value::Value::List(Box::new(attr_value::ListValue { i: values.to_vec(), ..Default::default() }))
}

fn shape(length: i64) -> attr_value::Value {
    let dim = graphmill_wire::tensorflow::tensor_shape_proto::Dim { size: length, ..Default::default() };
    attr_value::Value::Shape(graphmill_wire::tensorflow::TensorShapeProto { dim: vec![dim], unknown_rank: false })
}

fn input(rank: usize, length: usize) -> Tensor {
    Tensor::vector(&(0..length).map(|i| (i + 10 * rank) as f32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn reductions_of_all_sizes() {
    for devices in 1..=4 {
        for length in [0, 1, 5, 32, 40, 64, 3000, 100_000] {
            for rings in [vec![0], vec![0, 0, 0], vec![]] {
                let node = |rank| {
                    let more =
                        [("merge_op", text("Add")), ("final_op", text("Div")), ("subdiv_offsets", offsets(&rings))];
                    ("CollectiveReduce", Some(input(rank, length)), keyed(&more, devices))
                };
                let mean = 10.0 * (devices - 1) as f32 / 2.0;
                for result in run(devices, None, node).0 {
                    let result = result.unwrap();
                    let wrong =
                        result.as_slice::<f32>().unwrap().iter().enumerate().position(|(i, &v)| v != i as f32 + mean);
                    assert_eq!((result.num_elements(), wrong), (length, None), "{devices} devices, {length} elements");
                }
            }
        }
    }
}

#[test]
fn keys_name_the_round_the_section_and_the_sender() {
    let node = |rank| {
        let more = [("merge_op", text("Max")), ("final_op", text("Id")), ("subdiv_offsets", offsets(&[0]))];
        ("CollectiveReduce", Some(input(rank, 40)), keyed(&more, 2))
    };
    let (_, keys) = run(2, None, node);
    assert_eq!(keys, ["1:2:3:4:0:0:0", "1:2:3:4:0:1:1", "1:2:3:4:1:0:1", "1:2:3:4:1:1:0"]);
}

#[test]
fn gathers_and_broadcasts() {
    for devices in 1..=5 {
        let gather = |rank| ("CollectiveGather", Some(input(rank, 2)), keyed(&[("shape", shape(2))], devices));
        let expected: Vec<f32> = (0..devices).flat_map(|rank| [10.0 * rank as f32, 10.0 * rank as f32 + 1.0]).collect();
        for result in run(devices, None, gather).0 {
            assert_eq!(result.unwrap().as_slice::<f32>().unwrap(), expected);
        }
        for source in 0..devices {
            let broadcast = |rank| match rank == source {
                true => ("CollectiveBcastSend", Some(input(rank, 3)), keyed(&[("shape", shape(3))], devices)),
                false => ("CollectiveBcastRecv", None, keyed(&[("shape", shape(3))], devices)),
            };
            for result in run(devices, Some(source), broadcast).0 {
                assert_eq!(result.unwrap().as_slice::<f32>().unwrap(), input(source, 3).as_slice::<f32>().unwrap());
            }
        }
    }
    let broadcast = |rank| match rank {
        0 => ("CollectiveBcastSend", Some(input(rank, 3)), keyed(&[("shape", shape(3))], 2)),
        _ => ("CollectiveBcastRecv", None, keyed(&[("shape", shape(3))], 2)),
    };
    assert_eq!(run(2, Some(0), broadcast).1, ["1:2:3:4:0:0:1"]);
}
