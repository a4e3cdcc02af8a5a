//! The servers.

use crate::network::Fabric;
use graphmill_cluster::{Random, Server, ServerConfig};
use graphmill_runtime::Registry;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The hosts: three servers, and the client, which comes last.
pub const HOSTS: [&str; 4] = ["ps0", "worker0", "worker1", "client"];
/// Where the master is.
pub const MASTER: &str = "worker0:1";

const CLUSTER: &str = "ps=ps0:1;worker=worker0:1,worker1:1";

/// A parameter server and two workers on a network.
pub struct Cluster {
    fabric: Arc<Fabric>,
    seed: u64,
    started: AtomicU64,
    servers: Mutex<HashMap<&'static str, Server>>,
}

impl Cluster {
    pub fn new(seed: u64) -> Cluster {
        let cluster =
            Cluster { fabric: Fabric::new(seed), seed, started: AtomicU64::new(0), servers: Mutex::default() };
        for host in ["ps0", "worker0", "worker1"] {
            cluster.start(host);
        }
        cluster
    }

    pub fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    /// Starts a server on a host, unless it runs.
    pub fn start(&self, host: &'static str) {
        let mut servers = self.servers.lock().unwrap();
        if servers.contains_key(host) {
            return;
        }
        self.fabric.down(host, false);
        let (job, task) = host.split_at(host.len() - 1);
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let config = ServerConfig {
            job: Some(job.to_owned()),
            task: task.parse().unwrap(),
            cluster: CLUSTER.parse().unwrap(),
            inter_op_threads: 1,
            intra_op_threads: 1,
            random: Random::seeded(self.seed.wrapping_mul(100).wrapping_add(number)).into(),
            ..Default::default()
        };
        let server = Server::bind_on(self.fabric.host(host), config, registry()).unwrap();
        servers.insert(host, server);
    }

    /// Takes a server away without a word to the others.
    pub fn kill(&self, host: &'static str) {
        self.fabric.down(host, true);
        let server = self.servers.lock().unwrap().remove(host);
        // Its end, which takes its time, is none of the network's business any more.
        std::thread::spawn(move || drop(server));
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_array::register(&mut registry);
    graphmill_kernels_control::register(&mut registry);
    graphmill_kernels_math::register(&mut registry);
    graphmill_kernels_state::register(&mut registry);
    registry
}
