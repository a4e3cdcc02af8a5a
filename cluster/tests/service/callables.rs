//! Steps that are prepared once and run by a handle.

use crate::harness::*;
use graphmill_tensor::{Code, Tensor};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::*;

fn make(client: &Client, handle: &str, options: CallableOptions) -> Result<i64, Failure> {
    let request =
        MakeCallableRequest { session_handle: handle.to_owned(), options: Some(options), request_id: fresh_id() };
    client.call::<MakeCallableResponse>(MasterMethod::MakeCallable, &request).map(|response| response.handle)
}

fn call(client: &Client, handle: &str, callable: i64, feeds: &[f32]) -> Result<Vec<f32>, Failure> {
    let request = RunCallableRequest {
        session_handle: handle.to_owned(),
        handle: callable,
        feed: feeds.iter().map(|&value| Tensor::scalar(value).unwrap().to_proto()).collect(),
        request_id: fresh_id(),
    };
    let response: RunCallableResponse = client.call(MasterMethod::RunCallable, &request)?;
    assert!(response.metadata.is_some());
    let value = |proto| Tensor::from_proto(proto).unwrap().scalar_value::<f32>().unwrap();
    Ok(response.fetch.iter().map(value).collect())
}

fn release(client: &Client, handle: &str, callable: i64) -> Result<(), Failure> {
    let request = ReleaseCallableRequest { session_handle: handle.to_owned(), handle: callable };
    client.call::<ReleaseCallableResponse>(MasterMethod::ReleaseCallable, &request).map(|_| ())
}

fn options(feeds: &[&str], fetches: &[&str]) -> CallableOptions {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    CallableOptions { feed: owned(feeds), fetch: owned(fetches), ..Default::default() }
}

#[test]
fn lists_keep_their_order() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let callable = make(&client, &handle, options(&["x:0", "a:0"], &["b:0", "b:0"])).unwrap();
    assert_eq!(callable, 0);
    assert_eq!(call(&client, &handle, callable, &[2., 3.]).unwrap(), [2., 2.]);
    let second = make(&client, &handle, options(&["a", "x"], &["b:0"])).unwrap();
    assert_eq!(second, 1);
    assert_eq!(call(&client, &handle, second, &[2., 3.]).unwrap(), [3.]);
}

#[test]
fn handles_and_feeds_that_do_not_fit() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let invalid = |failure: Failure, text: &str| assert_eq!(failure, (Code::InvalidArgument, text.to_owned()));
    invalid(call(&client, &handle, 7, &[]).unwrap_err(), "No such callable handle: 7");
    invalid(call(&client, &handle, -1, &[]).unwrap_err(), "No such callable handle: -1");
    let callable = make(&client, &handle, options(&["x:0"], &["b:0"])).unwrap();
    invalid(call(&client, &handle, callable, &[]).unwrap_err(), "Callable 0 takes 1 feeds, got 0");
    invalid(call(&client, &handle, callable, &[1., 2.]).unwrap_err(), "Callable 0 takes 1 feeds, got 2");
    release(&client, &handle, callable).unwrap();
    release(&client, &handle, callable).unwrap();
    release(&client, &handle, 99).unwrap();
    invalid(
        call(&client, &handle, callable, &[1.]).unwrap_err(),
        "Attempted to run callable after handle was released: 0",
    );
    let nothing = make(&client, &handle, CallableOptions::default()).unwrap_err();
    invalid(nothing, "Must specify at least one target to fetch or execute.");
    for result in [
        make(&client, "zz", options(&[], &["a:0"])).map(|_| ()),
        call(&client, "zz", 0, &[]).map(|_| ()),
        release(&client, "zz", 0),
    ] {
        assert_eq!(result.unwrap_err(), (Code::Aborted, "Session zz is not found.".to_owned()));
    }
}

#[test]
fn errors_and_limits_of_steps() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let callable = make(&client, &handle, options(&[], &["b:0"])).unwrap();
    let (code, text) = call(&client, &handle, callable, &[]).unwrap_err();
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.starts_with(&format!("From {TASK}:%0AYou must feed a value")), "{text}");
    let run_options = Some(RunOptions { timeout_in_ms: 50, ..Default::default() });
    let callable = make(&client, &handle, CallableOptions { run_options, ..options(&[], &["wait:0"]) }).unwrap();
    assert_eq!(call(&client, &handle, callable, &[]).unwrap_err().0, Code::DeadlineExceeded);
    let request = MakeCallableRequest { session_handle: handle, request_id: fresh_id(), ..Default::default() };
    let twice = || client.call::<MakeCallableResponse>(MasterMethod::MakeCallable, &request).unwrap_err();
    assert_eq!(twice().0, Code::InvalidArgument);
    assert!(twice().1.starts_with("The same MakeCallable (Master) request was received twice. "));
}

#[test]
fn tensors_that_feed_tensors() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let connect = |from: &str, to: &str| {
        let connection = TensorConnection { from_tensor: from.to_owned(), to_tensor: to.to_owned() };
        CallableOptions { tensor_connection: vec![connection], ..options(&[], &["b:0"]) }
    };
    let callable = make(&client, &handle, connect("a:0", "x:0")).unwrap();
    assert_eq!(call(&client, &handle, callable, &[]).unwrap(), [1.5]);
    // Other runs do not see the connection.
    assert_eq!(client.run(&step(&handle, &[], &["b:0"], &[])).unwrap_err().0, Code::InvalidArgument);
    let code = |options| make(&client, &handle, options).unwrap_err().0;
    assert_eq!(code(connect("b:0", "x:0")), Code::InvalidArgument);
    assert_eq!(code(connect("nope:0", "x:0")), Code::InvalidArgument);
    assert_eq!(code(connect("a:0", "nope:0")), Code::NotFound);
    assert_eq!(code(connect("a:1", "x:0")), Code::InvalidArgument);
    assert_eq!(code(connect("rank:0", "a:0")), Code::InvalidArgument);
    assert_eq!(code(CallableOptions { feed: vec!["x".to_owned()], ..connect("a:0", "x:0") }), Code::InvalidArgument);
}
