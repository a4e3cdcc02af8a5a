//! What is wrong with requests, in TensorFlow's words.

use crate::harness::*;
use graphmill_tensor::{Code, Tensor};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::*;

#[test]
fn names_in_a_step() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let int = Tensor::scalar(1i32).unwrap();
    let failure = |feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]| {
        client.run(&step(&handle, feeds, fetches, targets)).unwrap_err()
    };
    let expect = |failure: Failure, code, text: &str| assert_eq!(failure, (code, text.to_owned()));
    expect(failure(&[], &["nope:0"], &[]), Code::NotFound, "FetchOutputs node nope:0: not found");
    expect(failure(&[], &["a:3"], &[]), Code::InvalidArgument, "FetchOutputs a:3: output index too large, must be < 1");
    let (code, text) = failure(&[], &["nothing:0"], &[]);
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.starts_with("Tried to fetch data for 'nothing:0', which produces no output."), "{text}");
    expect(
        failure(&[], &[], &["nope", "nothing", "neither"]),
        Code::NotFound,
        "PruneForTargets: Some target nodes not found: neither nope ",
    );
    expect(
        failure(&[("zz:0", int.clone())], &["a:0"], &[]),
        Code::NotFound,
        "FeedInputs: unable to find feed output zz:0",
    );
    expect(
        failure(&[("a:2", int.clone())], &["b:0"], &[]),
        Code::InvalidArgument,
        "FeedInputs: a:2 should have output index < 1",
    );
    expect(failure(&[x(1.), x(2.)], &["b:0"], &[]), Code::InvalidArgument, "Endpoint \"x:0\" fed more than once.");
    expect(failure(&[x(1.)], &["x:0"], &[]), Code::InvalidArgument, "x:0 is both fed and fetched.");
    expect(failure(&[], &[], &[]), Code::InvalidArgument, "Must specify at least one target to fetch or execute.");
    expect(
        failure(&[("x:0", int)], &["b:0"], &[]),
        Code::Internal,
        &format!(
            "From {TASK}:\nOutput 0 of type int32 does not match declared output type float for node {{{{node _recv_x_0}}}}"
        ),
    );
    expect(
        failure(&[], &["b:0"], &[]),
        Code::InvalidArgument,
        &format!(
            "From {TASK}:\nYou must feed a value for placeholder tensor 'x' with dtype float\n\t [[{{{{node x}}}}]]"
        ),
    );
    // None of this has harmed the session.
    assert_eq!(client.run(&step(&handle, &[x(2.)], &["b:0"], &["nothing"])).unwrap().tensor.len(), 1);
}

#[test]
fn malformed_feeds() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    for tensor in [None, Some(TensorProto::default()), Some(TensorProto { dtype: 99, ..Default::default() })] {
        let mut request = step(&handle, &[x(1.), ("a:0", Tensor::scalar(1f32).unwrap())], &["b:0"], &[]);
        request.feed[1].tensor = tensor;
        let expected = (Code::InvalidArgument, "Invalid TensorProto for feed value 1".to_owned());
        assert_eq!(client.run(&request).unwrap_err(), expected);
    }
}

#[test]
fn sessions_that_do_not_exist() {
    let server = TestServer::start();
    let client = server.client();
    let expect = |failure: Failure, code, text: &str| assert_eq!(failure, (code, text.to_owned()));
    for handle in ["zz", "0123456789abcdef"] {
        let not_found = format!("Session {handle} is not found.");
        let restarted = format!("{not_found} Possibly, this master has restarted.");
        let request = step(handle, &[], &["a:0"], &[]);
        expect(client.run(&request).unwrap_err(), Code::Aborted, &not_found);
        let as_status = RunStepRequest { store_errors_in_response_body: false, ..request };
        expect(
            client.call::<RunStepResponse>(MasterMethod::RunStep, &as_status).unwrap_err(),
            Code::Aborted,
            &not_found,
        );
        expect(client.extend(handle, sample(), 0).unwrap_err(), Code::Aborted, &not_found);
        expect(client.close(handle).unwrap_err(), Code::Aborted, &restarted);
        let list = ListDevicesRequest { session_handle: handle.to_owned() };
        expect(
            client.call::<ListDevicesResponse>(MasterMethod::ListDevices, &list).unwrap_err(),
            Code::InvalidArgument,
            &restarted,
        );
    }
}

#[test]
fn steps_in_parts_need_a_setup() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let request = RunStepRequest { partial_run_handle: "0".to_owned(), ..step(&handle, &[], &["a:0"], &[]) };
    let expected = (Code::InvalidArgument, "Must run PartialRunSetup before performing partial runs".to_owned());
    assert_eq!(client.run(&request).unwrap_err(), expected);
}

#[test]
fn partition_graphs_are_given_unless_the_session_has_them_off() {
    let server = TestServer::start();
    let client = server.client();
    let experimental = config_proto::Experimental { disable_output_partition_graphs: true, ..Default::default() };
    let off = ConfigProto { experimental: Some(experimental), ..Default::default() };
    let options = Some(RunOptions { output_partition_graphs: true, ..Default::default() });

    let handle = client.create_with(sample(), off).unwrap();
    let request = RunStepRequest { options: options.clone(), ..step(&handle, &[], &["a:0"], &[]) };
    assert_eq!(client.run(&request).unwrap_err().0, Code::InvalidArgument);

    let handle = client.create(sample());
    let request = RunStepRequest { options, ..step(&handle, &[], &["a:0"], &[]) };
    let graphs = client.run(&request).unwrap().metadata.unwrap().partition_graphs;
    let names: Vec<&str> = graphs[0].node.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "_send_a_0"]);
}
