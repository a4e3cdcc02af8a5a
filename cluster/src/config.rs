//! What a server is told when it starts.

use crate::cluster_spec::split_address;
use crate::{ClusterSpec, Random};
use graphmill_runtime::is_job_name;
use graphmill_tensor::{Result, invalid_argument};
use std::time::Duration;

/// The port of a server that was told none.
const DEFAULT_PORT: u16 = 2222;

/// Most CPU devices of one task.
pub const MAX_CPU_DEVICES: usize = 1024;

/// Settings of a server. The default is a cluster of one task, `/job:localhost/task:0`, reachable from this machine only.
#[derive(Default)]
pub struct ServerConfig {
    /// Host name or address to listen on. Without one: all interfaces if the cluster has the own task under an address that is
    /// not a loopback one, else the loopback addresses.
    pub host: Option<String>,
    /// Port to listen on, 0 for a free one. Without one: that of the own task in the cluster, else 2222.
    pub port: Option<u16>,
    /// The own job. Without one: the only job of the cluster, else `localhost`.
    pub job: Option<String>,
    /// The index of the own task.
    pub task: u32,
    /// The cluster; empty for a cluster of this task alone.
    pub cluster: ClusterSpec,
    /// How many CPU devices the task has, at most [`MAX_CPU_DEVICES`]; 0 for one.
    pub cpu_devices: usize,
    /// Threads that work on a loop within a kernel; 0 for as many as the machine has.
    pub intra_op_threads: usize,
    /// Threads that run kernels; 0 for as many as the machine has.
    pub inter_op_threads: usize,
    /// How long a session may be without a call before it is ended; for ever if absent.
    pub session_timeout: Option<Duration>,
    /// The task that leads groups of collective operations, such as `/job:worker/task:0`. Without one: task 0 of job `worker`, else the
    /// first task of the first job.
    pub collective_leader: Option<String>,
    /// Longest piece, in bytes, in which a collective operation sends a buffer to a TensorFlow task; 0 for 4096, negative for no limit.
    pub recv_buf_max_chunk: i64,
    /// Where random numbers come from.
    pub random: Random,
}

/// What follows from a [`ServerConfig`] once it is checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub job: String,
    pub task: u32,
    /// Hosts to listen on: the first has to work, the others are for machines that have them.
    pub hosts: Vec<String>,
    pub port: u16,
    /// Host under which clients of this machine reach the server.
    pub target_host: String,
}

impl ServerConfig {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that says what is wrong and what there is.
    pub(crate) fn identity(&self) -> Result<Identity> {
        let job = match &self.job {
            Some(job) => job.clone(),
            None => {
                let mut jobs = self.cluster.jobs();
                match (jobs.next(), jobs.next()) {
                    (None, _) => "localhost".to_owned(),
                    (Some(only), None) => only.to_owned(),
                    (Some(_), Some(_)) => {
                        return Err(invalid_argument!("The cluster has several jobs, so the own job has to be named"));
                    }
                }
            }
        };
        if !is_job_name(&job) {
            return Err(invalid_argument!(
                "\"{job}\" is not the name of a job, which is a letter followed by letters, digits and underscores"
            ));
        }
        let own = match self.cluster.is_empty() {
            true => None,
            false => Some(split_address(self.cluster.address(&job, self.task)?)?),
        };
        let port = self.port.or(own.map(|(_, port)| port)).unwrap_or(DEFAULT_PORT);
        let loopback = || vec!["127.0.0.1".to_owned(), "::1".to_owned()];
        let (hosts, target_host) = match (&self.host, own) {
            (Some(host), _) if host == "localhost" => (loopback(), "localhost".to_owned()),
            (Some(host), _) => {
                let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let everywhere = matches!(bare.as_str(), "0.0.0.0" | "::");
                let target = match (everywhere, bare.contains(':')) {
                    (true, _) => "localhost".to_owned(),
                    (false, true) => format!("[{bare}]"),
                    (false, false) => bare.clone(),
                };
                (vec![bare], target)
            }
            (None, Some((host, _))) if !is_loopback(host) => {
                (vec!["0.0.0.0".to_owned(), "::".to_owned()], "localhost".to_owned())
            }
            (None, _) => (loopback(), "localhost".to_owned()),
        };
        Ok(Identity { job, task: self.task, hosts, port, target_host })
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str) -> ServerConfig {
        ServerConfig { cluster: cluster.parse().unwrap(), random: Random::seeded(1), ..Default::default() }
    }

    #[test]
    fn without_settings_it_is_a_local_task() {
        let identity = ServerConfig::default().identity().unwrap();
        assert_eq!((identity.job.as_str(), identity.task, identity.port), ("localhost", 0, 2222));
        assert_eq!(identity.hosts, ["127.0.0.1", "::1"]);
        assert_eq!(identity.target_host, "localhost");
    }

    #[test]
    fn the_port_comes_from_the_flag_before_the_cluster() {
        let mut config = config("worker=localhost:7,127.0.0.1:8");
        config.task = 1;
        assert_eq!(config.identity().unwrap().port, 8);
        config.port = Some(9);
        let identity = config.identity().unwrap();
        assert_eq!((identity.job.as_str(), identity.port), ("worker", 9));
        assert_eq!(identity.hosts, ["127.0.0.1", "::1"]);
    }

    #[test]
    fn a_task_that_others_dial_listens_to_them() {
        assert_eq!(config("worker=10.0.0.1:7").identity().unwrap().hosts, ["0.0.0.0", "::"]);
        let host = |host: &str| ServerConfig { host: Some(host.to_owned()), ..config("worker=10.0.0.1:7") };
        assert_eq!(host("localhost").identity().unwrap().hosts, ["127.0.0.1", "::1"]);
        assert_eq!(host("[::1]").identity().unwrap().target_host, "[::1]");
        assert_eq!(host("0.0.0.0").identity().unwrap().target_host, "localhost");
    }

    #[test]
    fn a_task_outside_the_cluster_is_refused() {
        let job = |job: &str, task| ServerConfig { job: Some(job.to_owned()), task, ..config("ps=h:1;worker=h:2") };
        assert!(config("ps=h:1;worker=h:2").identity().unwrap_err().message().contains("several jobs"));
        assert!(job("chief", 0).identity().is_err());
        assert!(job("worker", 1).identity().is_err());
        assert!(job("worker", 0).identity().is_ok());
        assert!(ServerConfig { job: Some("9".to_owned()), ..Default::default() }.identity().is_err());
    }
}
