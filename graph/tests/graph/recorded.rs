//! Graphs of TensorFlow's own clients and masters, from recorded calls.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use graphmill_graph::{ClientDevice, Graph, ImportOptions, Signature, frames, prune, topological_order};
use graphmill_wire::tensorflow::{
    CreateSessionRequest, CreateSessionResponse, ExtendSessionRequest, RegisterGraphRequest, RunStepRequest,
    RunStepResponse,
};
use prost::Message;
use std::collections::HashMap;

pub struct Call {
    pub case: String,
    pub method: String,
    pub request: Vec<u8>,
    pub response: Vec<u8>,
}

/// The calls that succeeded.
pub fn calls() -> Vec<Call> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/tests/data/runtime-fixtures.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let good = lines.filter(|line| line["code"] == "OK");
    let bytes = |value: &serde_json::Value| STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    let call = |line: serde_json::Value| Call {
        case: line["case"].as_str().unwrap_or_default().to_owned(),
        method: line["method"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned(),
        request: bytes(&line["req"]),
        response: bytes(&line["resp"]),
    };
    good.map(call).collect()
}

#[test]
fn what_clients_send_can_be_pruned_as_they_ask() {
    let client = ClientDevice { name: "/job:worker/replica:0/task:0/device:CPU:0".into(), incarnation: 7 };
    let mut sessions: HashMap<String, Graph> = HashMap::new();
    let (mut extended, mut pruned) = (0, 0);
    for call in calls() {
        let request = call.request.as_slice();
        match call.method.as_str() {
            "CreateSession" => {
                let def = CreateSessionRequest::decode(request).unwrap().graph_def.unwrap_or_default();
                let handle = CreateSessionResponse::decode(call.response.as_slice()).unwrap().session_handle;
                sessions.insert(handle, Graph::from_def(&def).unwrap());
            }
            "ExtendSession" => {
                let request = ExtendSessionRequest::decode(request).unwrap();
                if let Some(graph) = sessions.get_mut(&request.session_handle) {
                    graph.extend(&request.graph_def.unwrap_or_default()).unwrap();
                    assert_eq!(topological_order(graph).unwrap().len(), graph.len());
                    extended += 1;
                }
            }
            "RunStep" => {
                let request = RunStepRequest::decode(request).unwrap();
                let response = RunStepResponse::decode(call.response.as_slice()).unwrap();
                if response.status_code != 0 || !request.partial_run_handle.is_empty() {
                    continue;
                }
                if let Some(graph) = sessions.get(&request.session_handle) {
                    let feeds: Vec<String> = request.feed.iter().map(|feed| feed.name.clone()).collect();
                    let fetches = request.fetch.len();
                    let part = prune(graph, &Signature::new(feeds, request.fetch, request.target), &client).unwrap();
                    frames(&part).unwrap();
                    let sends = part.nodes().filter(|(_, node)| node.op_name() == "_Send").count();
                    assert!(part.len() <= graph.len() + fetches + request.feed.len() && sends <= fetches);
                    pruned += 1;
                }
            }
            _ => {}
        }
    }
    assert!(extended >= 6 && pruned >= 40, "{extended} extended, {pruned} pruned");
}

#[test]
fn what_masters_register_is_accepted() {
    let options = ImportOptions { allow_internal_names: true, expect_device: true };
    let mut count = 0;
    for call in calls().iter().filter(|call| call.method == "RegisterGraph") {
        let def = RegisterGraphRequest::decode(call.request.as_slice()).unwrap().graph_def.unwrap_or_default();
        let graph = Graph::from_def_with(def, options).unwrap();
        frames(&graph).unwrap();
        let again = Graph::from_def_with(graph.to_def(), options).unwrap();
        assert_eq!(again.to_def(), graph.to_def());
        count += 1;
    }
    assert!(count > 10, "{count}");
}
