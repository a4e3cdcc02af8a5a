//! Sessions: how they begin, grow, share state and end.

use crate::harness::*;
use graphmill_tensor::{Code, Tensor};
use graphmill_wire::service::{MasterMethod, WorkerMethod};
use graphmill_wire::tensorflow::*;
use std::sync::atomic::Ordering;

#[test]
fn graphs_grow_by_versions() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(GraphDef::default());
    assert_eq!(client.extend(&handle, sample(), 0).unwrap(), 1);
    let more = |name: &str| graph(vec![node(name, "Identity", &["a"], &[("T", attr_value::Value::Type(1))])]);
    let conflict = client.extend(&handle, more("c"), 3).unwrap_err();
    assert_eq!(conflict, (Code::Aborted, "Current version is 1 but caller expected 3.".to_owned()));
    let duplicate = client.extend(&handle, more("a"), 1).unwrap_err();
    assert_eq!(duplicate.0, Code::InvalidArgument);
    assert!(duplicate.1.contains("includes node 'a', which was created by a previous call"), "{}", duplicate.1);
    let unknown = client.extend(&handle, graph(vec![node("q", "NoSuchOp", &[], &[])]), 1).unwrap_err();
    assert_eq!(unknown.0, Code::NotFound);
    let input = graph(vec![node("q", "Identity", &["nope"], &[("T", attr_value::Value::Type(1))])]);
    let unknown = client.extend(&handle, input, 1).unwrap_err();
    assert_eq!(unknown, (Code::InvalidArgument, "Node 'q': Unknown input node 'nope'".to_owned()));
    let mut device = more("d");
    device.node[0].device = "/job:ps".to_owned();
    assert_eq!(client.extend(&handle, device.clone(), 1).unwrap_err().0, Code::InvalidArgument);
    assert_eq!(client.extend(&handle, device, 1).unwrap_err().0, Code::InvalidArgument);
    assert_eq!(client.extend(&handle, more("c"), 1).unwrap(), 2);
    let fetched = client.run(&step(&handle, &[], &["c:0"], &[])).unwrap();
    let value = Tensor::from_proto(fetched.tensor[0].tensor.as_ref().unwrap()).unwrap();
    assert_eq!(value.scalar_value::<f32>().unwrap(), 1.5);
}

#[test]
fn graphs_of_static_sessions_do_not_grow() {
    let server = TestServer::start();
    let client = server.client();
    let experimental = config_proto::Experimental { optimize_for_static_graph: true, ..Default::default() };
    let config = ConfigProto { experimental: Some(experimental), ..Default::default() };
    let handle = client.create_with(sample(), config).unwrap();
    assert_eq!(client.extend(&handle, GraphDef::default(), 0).unwrap_err().0, Code::FailedPrecondition);
}

#[test]
fn settings_that_a_distributed_session_cannot_have() {
    let server = TestServer::start();
    let client = server.client();
    let config = ConfigProto { use_per_session_threads: true, ..Default::default() };
    let expected = "Distributed session does not support session thread pool options.".to_owned();
    assert_eq!(client.create_with(sample(), config).unwrap_err(), (Code::InvalidArgument, expected));
}

#[test]
fn state_outlives_sessions_until_a_reset_names_its_container() {
    let server = TestServer::start();
    let client = server.client();
    let graph = || graph(vec![counter("named", "c"), counter("default", "")]);
    let first = client.create(graph());
    assert_eq!(client.fetch_i32(&first, "named:0").unwrap(), 1);
    assert_eq!(client.fetch_i32(&first, "default:0").unwrap(), 1);
    client.close(&first).unwrap();
    let second = client.create(graph());
    assert_eq!(client.fetch_i32(&second, "named:0").unwrap(), 2);

    let isolated = ConfigProto { isolate_session_state: true, ..Default::default() };
    let alone = client.create_with(graph(), isolated).unwrap();
    assert_eq!(client.fetch_i32(&alone, "named:0").unwrap(), 1);
    assert_eq!(client.fetch_i32(&alone, "named:0").unwrap(), 2);

    client.reset(&["other"]);
    for dead in [second, alone] {
        assert_eq!(client.fetch_i32(&dead, "named:0").unwrap_err().0, Code::Aborted);
    }
    let third = client.create(graph());
    assert_eq!(client.fetch_i32(&third, "named:0").unwrap(), 3);
    assert_eq!(client.fetch_i32(&third, "default:0").unwrap(), 2);
    client.reset(&[]);
    let fourth = client.create(graph());
    assert_eq!(client.fetch_i32(&fourth, "default:0").unwrap(), 1);
    assert_eq!(client.fetch_i32(&fourth, "named:0").unwrap(), 4);
    client.reset(&["c"]);
    let fifth = client.create(graph());
    assert_eq!(client.fetch_i32(&fifth, "named:0").unwrap(), 1);
}

#[test]
fn closing_cancels_what_runs() {
    let server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let steps: Vec<_> = (0..4)
        .map(|_| {
            let (client, handle) = (server.client(), handle.clone());
            std::thread::spawn(move || client.run(&step(&handle, &[], &["wait:0"], &[])))
        })
        .collect();
    server.wait_for(4);
    client.close(&handle).unwrap();
    for step in steps {
        let text = "Step was cancelled by an explicit call to `Session::Close()`.".to_owned();
        assert_eq!(step.join().unwrap().unwrap_err(), (Code::Cancelled, text));
    }
    assert_eq!(client.fetch_i32(&handle, "count:0").unwrap_err().0, Code::Aborted);
    assert_eq!(client.close(&handle).unwrap_err().0, Code::Aborted);
}

#[test]
fn devices_are_listed_with_and_without_a_session() {
    let server = TestServer::start();
    let client = server.client();
    let session_handle = client.create(GraphDef::default());
    let list = |session_handle| {
        client.call::<ListDevicesResponse>(MasterMethod::ListDevices, &ListDevicesRequest { session_handle }).unwrap()
    };
    let devices = list(String::new());
    assert_eq!(devices, list(session_handle));
    assert!(devices.remote_device.is_empty());
    let device = &devices.local_device[0];
    assert_eq!(device.name, format!("{TASK}/device:CPU:0"));
    assert_eq!((device.device_type.as_str(), device.memory_limit, device.xla_global_id), ("CPU", 268435456, -1));
    assert_ne!(device.incarnation, 0);

    let status = client.raw(WorkerMethod::GetStatus.path(), &[], framed(&[]));
    let status: GetStatusResponse = decode(&status).unwrap();
    assert_eq!(status.device_attributes, devices.local_device);
}

#[test]
fn the_end_of_the_server_ends_steps() {
    let mut server = TestServer::start();
    let client = server.client();
    let handle = client.create(sample());
    let waiting = std::thread::spawn(move || client.run(&step(&handle, &[], &["wait:0"], &[])));
    server.wait_for(1);
    let start = std::time::Instant::now();
    server.server.shutdown(std::time::Duration::from_secs(10));
    assert!(start.elapsed() < std::time::Duration::from_secs(9));
    let (code, text) = waiting.join().unwrap().unwrap_err();
    assert_eq!((code, text.as_str()), (Code::Aborted, "Step was cancelled because the server shuts down."));
    assert_eq!(server.observed.waiting.load(Ordering::SeqCst), 1);
}
