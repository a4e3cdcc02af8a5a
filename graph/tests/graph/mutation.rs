use crate::build::*;
use graphmill_graph::{ClientDevice, Graph, ImportOptions, Signature, frames, prune, topological_order};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef};

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.next() % from.len()]
    }
}

fn valid() -> GraphDef {
    let nodes = vec![
        node("x", "Placeholder", &[], [("dtype", ty(FLOAT))]),
        constant("a"),
        node("v", "VariableV2", &[], [("dtype", ty(FLOAT)), ("shape", Value::Shape(Default::default()))]),
        node("set", "Assign", &["v", "a"], [("T", ty(FLOAT))]),
        node("sum", "AddN", &["x", "a", "set"], [("T", ty(FLOAT)), ("N", int(3))]),
        node("call", "f", &["sum", "^set"], []),
        enter("enter", "call", "loop"),
        node("merge", "Merge", &["enter", "next"], [("T", ty(FLOAT)), ("N", int(2))]),
        node("less", "Less", &["merge", "merge"], [("T", ty(FLOAT))]),
        node("cond", "LoopCond", &["less"], []),
        node("switch", "Switch", &["merge", "cond"], [("T", ty(FLOAT))]),
        node("next", "NextIteration", &["switch:1"], [("T", ty(FLOAT))]),
        node("exit", "Exit", &["switch"], [("T", ty(FLOAT))]),
        node("all", "IdentityN", &["exit", "sum"], [("T", types(&[FLOAT, FLOAT]))]),
        node("done", "NoOp", &["^all", "^call"], []),
    ];
    let body = function("f", vec![identity("r", &["x"])]);
    with_functions(nodes, vec![body, function("g", vec![node("r", "f", &["x"], [])])])
}

const OPS: [&str; 14] = [
    "Identity",
    "AddV2",
    "AddN",
    "Merge",
    "Switch",
    "Enter",
    "Exit",
    "NextIteration",
    "LoopCond",
    "Assign",
    "IdentityN",
    "f",
    "NoOp",
    "Nope",
];

const NAMES: [&str; 14] =
    ["x", "a", "sum", "merge", "next", "switch:1", "^a", "^done", "all:1", "all:99999999999", "", "^", "a:-1", "done"];

fn random_value(random: &mut Random) -> Value {
    match random.next() % 10 {
        0 => ty(FLOAT),
        1 => ty(random.next() as i32 % 140),
        2 => int(random.next() as i64),
        3 => int((random.next() % 5) as i64 - 1),
        4 => text("loop"),
        5 => types(&[FLOAT, INT32, 0]),
        6 => ints(&[1, -1]),
        7 => func("g"),
        8 => Value::Placeholder("p".into()),
        _ => Value::B(true),
    }
}

fn mutate(node: &mut NodeDef, random: &mut Random) {
    match random.next() % 8 {
        0 => node.op = (*random.pick(&OPS)).to_owned(),
        1 => node.name = (*random.pick(&NAMES)).to_owned(),
        2 => node.input.push((*random.pick(&NAMES)).to_owned()),
        3 => {
            node.input.pop();
        }
        4 | 5 if !node.input.is_empty() => {
            let at = random.next() % node.input.len();
            node.input[at] = (*random.pick(&NAMES)).to_owned();
        }
        6 if !node.attr.is_empty() => {
            let at = random.next() % node.attr.len();
            let name = node.attr.keys().nth(at).cloned().unwrap_or_default();
            node.attr.remove(&name);
        }
        _ => {
            let name =
                *random.pick(&["T", "N", "dtype", "frame_name", "parallel_iterations", "is_constant", "f", "shape"]);
            node.attr.insert(name.to_owned(), AttrValue { value: Some(random_value(random)) });
        }
    }
}

#[test]
fn damaged_graphs_end_in_an_error_or_a_sound_graph() {
    let valid = valid();
    assert!(Graph::from_def(&valid).is_ok());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let client = ClientDevice { name: "/cpu:0".into(), incarnation: 1 };
    let (mut good, mut bad) = (0, 0);
    for round in 0..20_000 {
        let mut def = valid.clone();
        for _ in 0..1 + random.next() % 3 {
            if random.next().is_multiple_of(8) {
                let library = def.library.as_mut().unwrap();
                let at = random.next() % library.function.len();
                let function = &mut library.function[at];
                match random.next() % 3 {
                    0 => mutate(&mut function.node_def[0], &mut random),
                    1 => function.signature = None,
                    _ => function.node_def[0].op = "g".into(),
                }
            } else {
                let at = random.next() % def.node.len();
                mutate(&mut def.node[at], &mut random);
            }
        }
        let options = ImportOptions { allow_internal_names: round % 2 == 0, ..Default::default() };
        let Ok(graph) = Graph::from_def_with(def, options) else {
            bad += 1;
            continue;
        };
        good += 1;
        let order = topological_order(&graph).unwrap();
        assert_eq!(order.len(), graph.len());
        let _ = frames(&graph);
        let targets = vec!["done".to_owned()];
        if let Ok(pruned) = prune(&graph, &Signature::new(vec!["x:0".into()], vec!["sum".into()], targets), &client) {
            assert!(topological_order(&pruned).is_ok());
            assert!(
                Graph::from_def_with(pruned.to_def(), ImportOptions { allow_internal_names: true, ..options }).is_ok()
            );
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad");
}
