//! Messages that are not what they should be.

use crate::harness::*;
use graphmill_tensor::Code;
use graphmill_wire::service::{MasterMethod, WorkerMethod};
use graphmill_wire::tensorflow::*;
use prost::Message;
use std::io::Write;

/// The session still answers.
fn check_alive(client: &Client, handle: &str) {
    client.run(&step(handle, &[], &["a:0"], &[])).unwrap();
}

#[test]
fn unknown_methods_and_services() {
    let server = TestServer::start();
    let client = server.client();
    for path in [
        "/tensorflow.grpc.MasterService/Reset",
        "/tensorflow.MasterService/NoSuchMethod",
        "/tensorflow.eager.EagerService/CreateContext",
        "/tensorflow.CoordinationService/Heartbeat",
        "/grpc.health.v1.Health/Check",
        "/",
    ] {
        let answer = client.raw(path, &[], framed(&[]));
        assert_eq!((answer.http_status, answer.status().0), (200, Code::Unimplemented), "{path}");
    }
    let answer = client.raw(WorkerMethod::Tracing.path(), &[], framed(&[]));
    assert!(answer.status().0 == Code::Unimplemented && answer.status().1.contains("Tracing"));
}

#[test]
fn what_is_not_grpc_is_refused() {
    let server = TestServer::start();
    let client = server.client();
    let answer = client.raw(MasterMethod::Reset.path(), &[("content-type", "application/json")], b"{}".to_vec());
    assert_eq!(answer.http_status, 415);
}

#[test]
fn broken_frames() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let good = framed(&step(&handle, &[], &["a:0"], &[]).encode_to_vec());
    let with_first = |first: u8| {
        let mut body = good.clone();
        body[0] = first;
        body
    };
    let bodies = [
        Vec::new(),
        vec![0],
        good[..5].to_vec(),
        good[..good.len() - 1].to_vec(),
        [&good[..], b"x"].concat(),
        [&good[..], &good].concat(),
        with_first(1),
        with_first(7),
        framed(&[0xff; 20]),
        framed(&good),
    ];
    for body in bodies {
        let answer = client.raw(MasterMethod::RunStep.path(), &[], body.clone());
        assert_eq!(answer.status().0, Code::Internal, "{body:?}");
    }
    let answer = client.raw(MasterMethod::RunStep.path(), &[], vec![0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(answer.status().0, Code::ResourceExhausted);
    let answer = client.raw(MasterMethod::RunStep.path(), &[("grpc-encoding", "snappy")], good.clone());
    assert_eq!(answer.status().0, Code::Unimplemented);
    assert_eq!(answer.headers["grpc-accept-encoding"], "identity,deflate,gzip");
    check_alive(&client, &handle);
}

#[test]
fn compressed_requests() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    gzip.write_all(&step(&handle, &[x(3.)], &["b:0"], &[]).encode_to_vec()).unwrap();
    let mut body = framed(&gzip.finish().unwrap());
    body[0] = 1;
    let answer = client.raw(MasterMethod::RunStep.path(), &[("grpc-encoding", "gzip")], body);
    assert_eq!(decode::<RunStepResponse>(&answer).unwrap().tensor.len(), 1);
}

/// A call from the recordings that the wire crate is tested with: path and request.
fn recorded_calls() -> Vec<(String, Vec<u8>)> {
    use base64::Engine;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data/runtime-fixtures.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let request = record["req"].as_str().unwrap();
            let request = base64::engine::general_purpose::STANDARD.decode(request).unwrap();
            (record["method"].as_str().unwrap().to_owned(), request)
        })
        .filter(|(path, _)| path.starts_with("/tensorflow.MasterService/"))
        .collect()
}

#[test]
fn recorded_requests_are_answered_whole_and_damaged() {
    let server = TestServer::start();
    let client = server.client();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let calls = recorded_calls();
    assert!(calls.len() > 50);
    let mut damaged = 0;
    for (path, request) in &calls {
        let session = client.create(sample());
        // A session over tasks that are not here waits for them.
        assert_eq!(client.raw(path, &[("grpc-timeout", "500m")], framed(request)).http_status, 200);
        for _ in 0..3 {
            let mut body = request.clone();
            // Mostly into a session that exists, so that more than the handle is looked at.
            if let Some(at) = body.windows(16).position(|w| w.iter().all(u8::is_ascii_hexdigit)) {
                body[at..at + 16].copy_from_slice(session.as_bytes());
            }
            match random(3) {
                0 => body.truncate(random(body.len())),
                _ if body.is_empty() => body.push(random(256) as u8),
                _ => {
                    for _ in 0..1 + random(4) {
                        let at = random(body.len());
                        body[at] ^= 1 << random(8);
                    }
                }
            }
            let answer = client.raw(path, &[("grpc-timeout", "500m")], framed(&body));
            assert_eq!(answer.http_status, 200);
            damaged += usize::from(answer.status().0 != Code::Ok);
        }
    }
    assert!(damaged > 0);
    let handle = client.create(sample());
    check_alive(&client, &handle);
}
