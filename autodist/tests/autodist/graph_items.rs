//! What is found in a graph is what TensorFlow recorded when it made it.

use crate::support::{data, item, meta_graph};
use graphmill_autodist::item::{Gradient, GraphItem};
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;

fn expected() -> BTreeMap<String, Value> {
    serde_json::from_slice(&data("expected.json")).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

fn describe(gradient: &Gradient) -> Vec<String> {
    gradient.key().split(';').map(str::to_owned).collect()
}

#[test]
fn variables_and_initialisers_are_those_of_the_collections() {
    for (name, expected) in expected() {
        let item = item(&name);
        let names: Vec<_> = item.variables().iter().map(|variable| variable.name.clone()).collect();
        assert_eq!(names, strings(&expected["variables"]), "{name}");
        let initializers: Vec<_> = item.initializers().map(str::to_owned).collect();
        assert_eq!(initializers, strings(&expected["initializers"]), "{name}");
        assert_eq!(item.savers().len(), 1, "{name}");
    }
}

#[test]
fn gradients_are_what_the_optimiser_was_given() {
    let mut wrong = Vec::new();
    for (name, expected) in expected() {
        let item = item(&name);
        let trained: Vec<&str> = item.trainable_variables().map(|variable| variable.name.as_str()).collect();
        for variable in trained {
            let found = item.update(variable).map(|update| describe(&update.gradient)).unwrap_or_default();
            let gradient = strings(&expected["gradients"][variable]);
            if found != gradient {
                wrong.push(format!("{name} {variable}: {found:?}, not {gradient:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn slots_are_the_optimisers() {
    let mut wrong = Vec::new();
    for (name, expected) in expected() {
        let item = item(&name);
        for update in item.updates() {
            let mut found: Vec<_> = update.slots.iter().map(|slot| format!("{slot}:0")).collect();
            found.sort();
            let slots = strings(&expected["slots"][&update.variable]);
            if found != slots {
                wrong.push(format!("{name} {}: {found:?}, not {slots:?}", update.variable));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn loops_and_branches_hold_their_variables() {
    // The read of a reference stands before the loop.
    for (name, held) in
        [("loop_resource", true), ("loop_reference", false), ("sgd_resource", false), ("sgd_reference", false)]
    {
        let item = item(name);
        let all: Vec<bool> = item.trainable_variables().map(|variable| item.is_under_control_flow(variable)).collect();
        assert!(all.iter().all(|&one| one == held), "{name}: {all:?}");
    }
}

#[test]
fn items_survive_a_round_trip() {
    for name in ["adam_resource", "adam_reference", "keras_adam", "branch_resource"] {
        let first = item(name);
        let message = first.to_proto();
        let second = GraphItem::decode(&message.encode_to_vec()).unwrap();
        assert_eq!(first.updates(), second.updates(), "{name}");
        assert_eq!(first.variables(), second.variables(), "{name}");
        assert_eq!(second.to_proto(), message, "{name}");
    }
    let bytes = item("adam_resource").to_proto().encode_to_vec();
    assert!(GraphItem::decode(&bytes[..bytes.len() - 1]).is_err());
    assert!(GraphItem::decode(&[]).is_err());
}

#[test]
fn damaged_graphs_are_refused() {
    let error = |change: fn(&mut graphmill_wire::tensorflow::GraphDef)| {
        let mut meta = meta_graph("sgd_resource");
        change(meta.graph_def.as_mut().unwrap());
        GraphItem::from_meta_graph(meta).unwrap_err().message().to_owned()
    };
    assert!(error(|graph| graph.node.retain(|node| node.name != "emb")).contains("no node \"emb\""));
    assert!(error(|graph| graph.node.push(graph.node[0].clone())).contains("two nodes named"));
    assert!(error(|graph| graph.node.clear()).contains("is no variable of the graph"));
    let twice = error(|graph| {
        let update = graph.node.iter().find(|node| node.op == "ResourceApplyGradientDescent").unwrap();
        let mut second = update.clone();
        second.name = "again".to_owned();
        graph.node.push(second);
    });
    assert!(twice.contains("\"again\""), "{twice}");
}
