//! Sessions of the client crate within the process, on the kernels of the binary.
// Helpers of tests fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use graphmill_client::{
    CallableOptions, Client, Code, DType, GraphDef, ServerConfig, Session, Shape, Step, Tensor, from_array,
    to_string_array,
};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, NodeDef};
use ndarray::{arr1, arr2};
use std::time::{Duration, Instant};

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|&input| input.to_owned()).collect(),
        attr: attrs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }))
            .collect(),
        ..Default::default()
    }
}

fn dtype(dtype: DType) -> Value {
    Value::Type(dtype.number())
}

/// `y = x + x`, `z = y * y`, a text, and a queue that is always empty.
fn graph() -> GraphDef {
    let floats = [("T", dtype(DType::Float))];
    let list =
        graphmill_wire::tensorflow::attr_value::ListValue { r#type: vec![DType::Float.number()], ..Default::default() };
    let types = Value::List(Box::new(list));
    GraphDef {
        node: vec![
            node("x", "Placeholder", &[], &[("dtype", dtype(DType::Float))]),
            node("y", "Add", &["x", "x"], &floats),
            node("z", "Mul", &["y", "y"], &floats),
            node("copy", "Identity", &["x"], &floats),
            node("text", "Placeholder", &[], &[("dtype", dtype(DType::String))]),
            node("same", "Identity", &["text"], &[("T", dtype(DType::String))]),
            node("queue", "FIFOQueueV2", &[], &[("component_types", types.clone())]),
            node("take", "QueueDequeueV2", &["queue"], &[("component_types", types)]),
        ],
        ..Default::default()
    }
}

fn client() -> Client {
    let config = ServerConfig { intra_op_threads: 1, inter_op_threads: 1, ..Default::default() };
    Client::in_process(config, graphmill_kernels::registry()).unwrap()
}

async fn session(client: &Client) -> Session {
    client.session(graph(), Default::default()).await.unwrap()
}

#[tokio::test]
async fn steps_run() {
    let client = client();
    let session = session(&client).await;
    let x = from_array(&arr2(&[[1f32, 2.0], [3.0, -1.0]])).unwrap();
    let outputs = session.run(&Step::new().feed("x:0", x).fetch("y:0").fetch("z").target("y")).await.unwrap();
    assert_eq!(outputs.array::<f32>("y:0").unwrap(), arr2(&[[2.0, 4.0], [6.0, -2.0]]).into_dyn());
    assert_eq!(outputs.array::<f32>("z").unwrap()[[1, 1]], 4.0);
    let text = Tensor::from_strings(Shape::scalar(), vec!["\u{fc}".into()]).unwrap();
    let outputs = session.run(&Step::new().feed("text", text).fetch("same")).await.unwrap();
    assert_eq!(to_string_array(outputs.tensor("same").unwrap()).unwrap()[[]], "\u{fc}");
    assert!(client.devices().await.unwrap()[0].name.ends_with("/device:CPU:0"));
    assert_eq!(session.devices().await.unwrap().len(), 1);
    session.close().await.unwrap();
    assert_eq!(session.close().await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(session.run(&Step::new().fetch("y")).await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn large_tensors_are_shared_with_the_step() {
    let client = client();
    let session = session(&client).await;
    let x = Tensor::zeros(DType::Float, Shape::vector(1 << 20)).unwrap();
    let outputs = session.run(&Step::new().feed("x", x.clone()).fetch("copy")).await.unwrap();
    assert_eq!(outputs.tensors()[0].as_bytes().unwrap().as_ptr(), x.as_bytes().unwrap().as_ptr());
}

#[tokio::test]
async fn graphs_grow() {
    let client = client();
    let session = session(&client).await;
    let more = |name: &str| GraphDef {
        node: vec![node(name, "Neg", &["y"], &[("T", dtype(DType::Float))])],
        ..Default::default()
    };
    session.extend(more("a")).await.unwrap();
    assert_eq!(session.extend(more("a")).await.unwrap_err().code(), Code::InvalidArgument);
    session.extend(more("b")).await.unwrap();
    let x = from_array(&arr1(&[1f32])).unwrap();
    let outputs = session.run(&Step::new().feed("x", x).fetch_all(["a", "b"])).await.unwrap();
    assert_eq!(outputs.array::<f32>("b").unwrap()[[0]], -2.0);
}

#[tokio::test]
async fn partial_runs_and_callables() {
    let client = client();
    let session = session(&client).await;
    let run = session.partial_run(&["x"], &["y", "z"], &[]).await.unwrap();
    let x = || from_array(&arr1(&[3f32])).unwrap();
    let first = run.run(&Step::new().feed("x", x()).fetch("y")).await.unwrap();
    assert_eq!(first.array::<f32>("y").unwrap()[[0]], 6.0);
    assert_eq!(run.run(&Step::new().fetch("y")).await.unwrap_err().code(), Code::InvalidArgument);
    let second = run.run(&Step::new().fetch("z")).await.unwrap();
    assert_eq!(second.array::<f32>("z").unwrap()[[0]], 36.0);

    let options =
        CallableOptions { feed: vec!["x".into()], fetch: vec!["z:0".into(), "y".into()], ..Default::default() };
    let callable = session.callable(options).await.unwrap();
    let answers = callable.run(&[x()]).await.unwrap();
    assert_eq!([&answers[0], &answers[1]].map(|t| t.as_slice::<f32>().unwrap()[0]), [36.0, 6.0]);
    assert_eq!(callable.run(&[]).await.unwrap_err().code(), Code::InvalidArgument);
    callable.release().await.unwrap();
}

#[tokio::test]
async fn nothing_waits_for_ever() {
    let client = client();
    let session = session(&client).await;
    let begun = Instant::now();
    let late = session.within(Duration::from_millis(50)).run(&Step::new().fetch("take")).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    // A call whose future is dropped ends its step: closing would else wait for it.
    let step = Step::new().fetch("take");
    let dropped = tokio::time::timeout(Duration::from_millis(50), session.run(&step)).await;
    assert!(dropped.is_err());
    let waiting = tokio::spawn({
        let session = session.clone();
        async move { session.run(&Step::new().fetch("take")).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    session.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Cancelled);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn errors_are_tensorflows() {
    let client = client();
    let session = session(&client).await;
    let missing = session.run(&Step::new().fetch("nothing")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let unfed = session.run(&Step::new().fetch("y")).await.unwrap_err();
    assert_eq!(unfed.code(), Code::InvalidArgument);
    assert!(unfed.message().contains("You must feed a value for placeholder tensor 'x' with dtype float"), "{unfed}");
    let wrong = client
        .session(GraphDef { node: vec![node("a", "NoSuchOp", &[], &[])], ..Default::default() }, Default::default());
    assert!(wrong.await.is_err());
    client.reset(&[]).await.unwrap();
    assert_eq!(session.run(&Step::new().target("y")).await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_so() {
    let client = Client::new("grpc://127.0.0.1:1").unwrap();
    let error = client.devices().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("127.0.0.1:1"), "{error}");
    let late = client.within(Duration::from_millis(50)).ready().await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
}
