//! Steps: concurrency, deadlines, cancellation, repeated requests.

use crate::harness::*;
use bytes::Bytes;
use graphmill_tensor::{Code, DType, Shape, Tensor};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::*;
use prost::Message;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn fetches_are_echoed_under_the_names_of_the_request() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let response =
        client.run(&step(&handle, &[("x", Tensor::scalar(2f32).unwrap())], &["b", "a:0", "b:0", "a:0"], &[]));
    let response = response.unwrap();
    let names: Vec<&str> = response.tensor.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["b", "a:0", "b:0"]);
    for (tensor, expected) in response.tensor.iter().zip([2f32, 1.5, 2.]) {
        let tensor = tensor.tensor.as_ref().unwrap();
        assert!(tensor.tensor_shape.is_some());
        assert_eq!(Tensor::from_proto(tensor).unwrap().scalar_value::<f32>().unwrap(), expected);
    }
    // A target alone gives nothing back, and a feed that nothing needs is ignored.
    assert!(client.run(&step(&handle, &[x(1.)], &[], &["nothing:0"])).unwrap().tensor.is_empty());
}

#[test]
fn tensors_of_megabytes_go_through() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let values: Vec<f32> = (0..5_000_000).map(|i| i as f32).collect();
    let tensor = Tensor::from_slice(Shape::new(&[5, 1_000_000]).unwrap(), &values).unwrap();
    let response = client.run(&step(&handle, &[("x:0", tensor)], &["b:0"], &[])).unwrap();
    let back = Tensor::from_proto(response.tensor[0].tensor.as_ref().unwrap()).unwrap();
    assert_eq!(back.shape().dims(), [5, 1_000_000]);
    assert!(back.as_slice::<f32>().unwrap() == values);
    let empty = Tensor::zeros(DType::Float, Shape::new(&[0, 3]).unwrap()).unwrap();
    let response = client.run(&step(&handle, &[("x:0", empty)], &["b:0"], &[])).unwrap();
    let back = Tensor::from_proto(response.tensor[0].tensor.as_ref().unwrap()).unwrap();
    assert_eq!(back.shape().dims(), [0, 3]);
}

#[test]
fn repeated_requests_are_refused() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let request = RunStepRequest { request_id: fresh_id(), ..step(&handle, &[], &["count:0"], &[]) };
    client.run(&request).unwrap();
    let (code, text) = client.run(&request).unwrap_err();
    assert_eq!(code, Code::Aborted);
    assert!(text.starts_with("The same RunStep (Master) request was received twice. "), "{text}");
    let as_status = RunStepRequest { store_errors_in_response_body: false, ..request };
    let (code, _) = client.call::<RunStepResponse>(MasterMethod::RunStep, &as_status).unwrap_err();
    assert_eq!(code, Code::Aborted);
    // Neither repeat has run.
    assert_eq!(client.fetch_i32(&handle, "count:0").unwrap(), 2);
    assert_eq!(client.fetch_i32(&handle, "count:0").unwrap(), 3);
}

#[test]
fn a_deadline_cancels_the_step_and_nothing_else() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let options = Some(RunOptions { timeout_in_ms: 100, ..Default::default() });
    let wait = step(&handle, &[], &["wait:0"], &[]);
    let start = Instant::now();
    let in_options = client.run(&RunStepRequest { options, ..wait.clone() }).unwrap_err();
    assert_eq!(in_options, (Code::DeadlineExceeded, "Deadline Exceeded".to_owned()));
    assert!(start.elapsed() >= Duration::from_millis(100));

    let body = framed(&wait.encode_to_vec());
    let answer = client.raw(MasterMethod::RunStep.path(), &[("grpc-timeout", "100m")], body);
    let code = match answer.status() {
        (Code::Ok, _) => Code::from_number(decode::<RunStepResponse>(&answer).unwrap().status_code),
        (code, _) => code,
    };
    assert_eq!(code, Code::DeadlineExceeded);

    let config = ConfigProto { operation_timeout_in_ms: 100, ..Default::default() };
    let limited = client.create_with(sample(), config).unwrap();
    let in_session = client.run(&step(&limited, &[], &["wait:0"], &[])).unwrap_err();
    assert_eq!(in_session.0, Code::DeadlineExceeded);
    assert_eq!(client.fetch_i32(&handle, "count:0").unwrap(), 1);
    client.close(&handle).unwrap();
}

#[test]
fn a_client_that_goes_away_takes_its_step_along() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let wait = framed(&step(&handle, &[], &["wait:0"], &[]).encode_to_vec());
    client.runtime.block_on(async {
        let call = Client::send(&client.channel, MasterMethod::RunStep.path(), &[], wait);
        let started = async {
            while server.observed.waiting.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            answer = call => panic!("{answer:?}"),
            () = started => {}
        }
        // The connection has to say that the call is over.
        while server.observed.cancelled.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(client.fetch_i32(&handle, "count:0").unwrap(), 1);
}

#[test]
fn steps_that_wait_hold_no_threads() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let waiting = 40;
    let wait = framed(&step(&handle, &[], &["wait:0"], &[]).encode_to_vec());
    let answers: Vec<_> = client.runtime.block_on(async {
        let calls: Vec<_> = (0..waiting)
            .map(|_| {
                let (channel, wait) = (client.channel.clone(), wait.clone());
                tokio::spawn(async move { Client::send(&channel, MasterMethod::RunStep.path(), &[], wait).await })
            })
            .collect();
        while server.observed.waiting.load(Ordering::SeqCst) < waiting {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let other = server.client_in_thread(move |client| {
            assert_eq!(client.fetch_i32(&handle, "count:0").unwrap(), 1);
            client.close(&handle).unwrap();
        });
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap());
        }
        other.join().unwrap();
        answers
    });
    for answer in answers {
        assert_eq!(decode::<RunStepResponse>(&answer).unwrap().status_code, Code::Cancelled as i32);
    }
}

#[test]
fn the_first_runs_of_a_signature_prepare_it_once() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let handle = handle.clone();
            server.client_in_thread(move |client| {
                for _ in 0..5 {
                    let response = client.run(&step(&handle, &[x(1.)], &["rank:0"], &[])).unwrap();
                    assert_eq!(response.tensor.len(), 1);
                }
            })
        })
        .collect();
    runs.into_iter().for_each(|run| run.join().unwrap());
    // Another order of the same names is the same run.
    for fetches in [["rank:0", "a:0"], ["a:0", "rank:0"]] {
        let response = client.run(&step(&handle, &[x(1.)], &fetches, &[])).unwrap();
        assert_eq!(response.tensor[0].name, fetches[0]);
    }
    assert_eq!(server.observed.built.load(Ordering::SeqCst), 2);
}

#[test]
fn ops_without_a_kernel_are_named() {
    let server = TestServer::start();
    let client = server.client();
    let float = || attr_value::Value::Type(1);
    let nodes = vec![
        constant("a", &Tensor::scalar(1f32).unwrap()),
        node("y", "Tanh", &["a"], &[("T", float())]),
        node("r", "Rank", &["i"], &[("T", attr_value::Value::Type(3))]),
        constant("i", &Tensor::scalar(1i32).unwrap()),
    ];
    let handle = client.create(graph(nodes));
    for _ in 0..2 {
        let (code, text) = client.run(&step(&handle, &[], &["y:0"], &[])).unwrap_err();
        assert_eq!(code, Code::Unimplemented);
        assert!(text.contains("Tanh") && text.contains("{{node y}}"), "{text}");
        let (code, text) = client.run(&step(&handle, &[], &["r:0"], &[])).unwrap_err();
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.contains("No OpKernel was registered to support Op 'Rank'"), "{text}");
    }
}

#[test]
fn a_panic_of_a_kernel_is_an_error_of_its_step() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    for _ in 0..3 {
        assert_eq!(client.run(&step(&handle, &[], &[], &["panic"])).unwrap_err().0, Code::Internal);
    }
    assert_eq!(client.fetch_i32(&handle, "count:0").unwrap(), 1);
}

#[test]
fn strings_go_both_ways() {
    let server = TestServer::start();
    let client = server.client();
    let nodes = vec![node("s", "Placeholder", &[], &[("dtype", attr_value::Value::Type(7))])];
    let handle = client.create(graph(nodes));
    let identity = node("t", "Identity", &["s"], &[("T", attr_value::Value::Type(7))]);
    client.extend(&handle, graph(vec![identity]), 0).unwrap();
    let strings = vec![Bytes::new(), Bytes::from(vec![0xff; 200]), Bytes::from_static(b"a")];
    let tensor = Tensor::from_strings(Shape::vector(3), strings.clone()).unwrap();
    let response = client.run(&step(&handle, &[("s:0", tensor)], &["t:0"], &[])).unwrap();
    let proto = response.tensor[0].tensor.as_ref().unwrap();
    assert!(proto.string_val.is_empty() && !proto.tensor_content.is_empty());
    assert_eq!(Tensor::from_proto(proto).unwrap().strings().unwrap(), strings);
}
