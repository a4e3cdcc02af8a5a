//! Sockets: where the server listens and what it says when it cannot.

use crate::harness::{Client, sample};
use crate::kernels;
use graphmill_cluster::{Random, Server, ServerConfig};
use graphmill_tensor::{Code, Status};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn config(host: Option<&str>, port: u16) -> ServerConfig {
    ServerConfig {
        host: host.map(str::to_owned),
        port: Some(port),
        inter_op_threads: 1,
        intra_op_threads: 1,
        random: Random::seeded(1).into(),
        ..Default::default()
    }
}

fn bind(host: Option<&str>, port: u16) -> Result<Server, Status> {
    Server::bind(config(host, port), kernels::registry().0)
}

fn port(server: &Server) -> u16 {
    server.target().rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn both_loopback_addresses_answer() {
    let server = bind(None, 0).unwrap();
    let port = port(&server);
    assert!(server.target().starts_with("grpc://localhost:"));
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    // A machine may lack IPv6 altogether.
    if TcpListener::bind("[::1]:0").is_ok() {
        TcpStream::connect(("::1", port)).unwrap();
    }
}

#[test]
fn a_port_is_free_again_when_its_server_has_ended() {
    let mut server = bind(Some("127.0.0.1"), 0).unwrap();
    let port = port(&server);
    let taken = bind(Some("127.0.0.1"), port).err().unwrap();
    assert_eq!(taken.code(), Code::Unavailable);
    assert!(taken.message().contains("is taken by another program"), "{taken}");
    let client = Client::new(server.target());
    client.create(sample());
    server.shutdown(Duration::from_secs(5));
    let server = bind(Some("127.0.0.1"), port).unwrap();
    Client::new(server.target()).create(sample());
}

#[test]
fn hosts_that_are_not_here() {
    let unknown = bind(Some("no such host"), 0).err().unwrap();
    assert_eq!(unknown.code(), Code::InvalidArgument);
    // An address for documentation, which no machine has.
    let elsewhere = bind(Some("192.0.2.1"), 0).err().unwrap();
    assert_eq!(elsewhere.code(), Code::Unavailable);
    assert!(elsewhere.message().contains("not an address of this machine"), "{elsewhere}");
}

#[tokio::test]
async fn a_server_can_end_within_another_runtime() {
    let mut server = bind(Some("127.0.0.1"), 0).unwrap();
    server.shutdown(Duration::from_secs(5));
    server.shutdown(Duration::from_secs(5));
}
