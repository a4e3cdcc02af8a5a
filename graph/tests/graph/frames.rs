use crate::build::*;
use graphmill_graph::{FrameId, Graph, frames, topological_order};
use graphmill_tensor::{Code, Result};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

fn op(name: &str, op: &str, inputs: &[&str]) -> NodeDef {
    let bool_input = op == "LoopCond";
    if bool_input { node(name, op, inputs, []) } else { node(name, op, inputs, [("T", ty(FLOAT))]) }
}

/// The nodes of a loop over `input`, which leave through `{prefix}exit`.
fn while_loop(prefix: &str, input: &str, frame: &str) -> Vec<NodeDef> {
    let name = |suffix: &str| format!("{prefix}{suffix}");
    vec![
        enter(&name("enter"), input, frame),
        node(&name("merge"), "Merge", &[&name("enter"), &name("next")], [("T", ty(FLOAT)), ("N", int(2))]),
        node(&name("less"), "Less", &[&name("merge"), &name("merge")], [("T", ty(FLOAT))]),
        op(&name("cond"), "LoopCond", &[&name("less")]),
        op(&name("switch"), "Switch", &[&name("merge"), &name("cond")]),
        identity(&name("body"), &[&format!("{prefix}switch:1")]),
        op(&name("next"), "NextIteration", &[&name("body")]),
        op(&name("exit"), "Exit", &[&name("switch")]),
    ]
}

fn frame_error(nodes: Vec<NodeDef>) -> Result<()> {
    frames(&import(nodes).unwrap()).map(|_| ())
}

#[test]
fn nodes_of_a_loop_are_in_its_frame() {
    let mut nodes = vec![constant("a")];
    nodes.extend(while_loop("", "a", "loop"));
    let mut constant_enter = enter("limit", "a", "loop");
    constant_enter
        .attr
        .insert("is_constant".into(), graphmill_wire::tensorflow::AttrValue { value: Some(Value::B(true)) });
    nodes.push(constant_enter);
    nodes.push(identity("after", &["exit"]));
    let graph = import(nodes).unwrap();
    let map = frames(&graph).unwrap();
    let id = |name| graph.find(name).unwrap();
    let of = |name| map.of(id(name));
    assert!(map.has_loops());
    for name in ["a", "enter", "limit", "after"] {
        assert_eq!(of(name), FrameId::ROOT, "{name}");
    }
    for name in ["merge", "less", "cond", "switch", "body", "next", "exit"] {
        assert_eq!(of(name), FrameId(1), "{name}");
    }
    let frame = map.frame(FrameId(1));
    assert_eq!((&*frame.name, frame.parent, frame.parallel_iterations), ("loop", Some(FrameId::ROOT), 10));
    assert_eq!(frame.enters, [id("enter"), id("limit")]);
    assert_eq!((frame.exits.as_slice(), frame.loop_cond), ([id("exit")].as_slice(), Some(id("cond"))));
    assert!(map.enter(id("limit")).unwrap().is_constant && !map.enter(id("enter")).unwrap().is_constant);
    assert_eq!(
        (map.output_frame(&graph, id("exit")), map.output_frame(&graph, id("enter"))),
        (FrameId::ROOT, FrameId(1))
    );
    let order = topological_order(&graph).unwrap();
    let at = |name| order.iter().position(|&node| node == id(name)).unwrap();
    assert!(at("enter") < at("merge") && at("merge") < at("next") && at("exit") < at("after"));
}

#[test]
fn loops_nest() {
    let mut nodes = vec![constant("a"), enter("outer", "a", "outer")];
    nodes.extend(while_loop("in/", "outer", "inner"));
    nodes.push(node("leave", "Exit", &["in/exit"], [("T", ty(FLOAT))]));
    let graph = import(nodes).unwrap();
    let map = frames(&graph).unwrap();
    let of = |name| map.frame(map.of(graph.find(name).unwrap()));
    assert_eq!((&*of("in/enter").name, &*of("in/body").name, &*of("leave").name), ("outer", "inner", "outer"));
    assert_eq!(of("in/body").parent, Some(map.of(graph.find("leave").unwrap())));
}

#[test]
fn graphs_without_loops_have_one_frame() {
    let map = frames(&import(vec![constant("a"), identity("b", &["a"])]).unwrap()).unwrap();
    assert!(!map.has_loops());
    assert_eq!(map.frames.len(), 1);
    assert!(!frames(&Graph::new()).unwrap().has_loops());
}

#[test]
fn ill_formed_loops_are_refused() {
    let with = |mut nodes: Vec<NodeDef>, more: Vec<NodeDef>| {
        nodes.extend(more);
        nodes
    };
    let start = || vec![constant("a"), constant("b"), enter("e", "a", "f")];
    for (nodes, text) in [
        (
            with(start(), vec![node("x", "AddV2", &["e", "b"], [("T", ty(FLOAT))])]),
            "{{node x}} has inputs from different frames. The input {{node e}} is in frame 'f'. The input {{node b}} is in frame ''.",
        ),
        (
            with(start(), vec![enter("e2", "a", "g"), node("x", "AddV2", &["e", "e2"], [("T", ty(FLOAT))])]),
            "{{node x}} has inputs from different frames. The input {{node e2}} is in frame 'g'. The input {{node e}} is in frame 'f'.",
        ),
        (vec![constant("a"), enter("e", "a", "")], "The Enter {{node e}} must have a frame name."),
        (
            vec![constant("a"), op("x", "Exit", &["a"])],
            "Invalid Exit op: Cannot find a corresponding Enter op.\n\t [[{{node x}}]]",
        ),
    ] {
        fails(frame_error(nodes), Code::InvalidArgument, text);
    }
    let two_parents = with(start(), vec![enter("g", "e", "g"), enter("g2", "a", "g")]);
    assert_eq!(frame_error(two_parents).unwrap_err().code(), Code::Internal);
    let mut two_conds = vec![constant("a")];
    two_conds.extend(while_loop("", "a", "loop"));
    two_conds.push(op("cond2", "LoopCond", &["less"]));
    let error = frame_error(two_conds).unwrap_err();
    assert!(error.message().starts_with(
        "Invalid loop structure: Loop \"loop\" has more than one LoopCond node: {{node cond2}} and {{node cond}}."
    ));
}

#[test]
fn deep_nesting_is_no_recursion() {
    let mut nodes = vec![constant("e0")];
    nodes.extend((1..20_000).map(|at| enter(&format!("e{at}"), &format!("e{}", at - 1), &format!("f{at}"))));
    let graph = import(nodes).unwrap();
    assert_eq!(frames(&graph).unwrap().frames.len(), 20_000);
    assert_eq!(topological_order(&graph).unwrap().len(), 20_000);
}
