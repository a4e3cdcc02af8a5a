//! What a server is told when it starts.

use crate::cluster_spec::split_address;
use crate::collective::Leader;
use crate::peers::task_name;
use crate::{ClusterSpec, Random};
use graphmill_runtime::is_job_name;
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::ConfigProto;
use std::sync::Arc;
use std::time::Duration;

/// The port of a server that was told none.
const DEFAULT_PORT: u16 = 2222;

/// Most CPU devices of one task.
pub const MAX_CPU_DEVICES: usize = 1024;

/// Settings of a server. The default is a cluster of one task, `/job:localhost/task:0`, reachable from this machine only.
#[derive(Default)]
pub struct ServerConfig {
    /// Host name or address to listen on, `*` for all interfaces. Without one: all interfaces if the cluster has the own task under an address that is
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
    /// How many CPU devices the task has, at most [`MAX_CPU_DEVICES`]; 0 for as many as `session_config` says, else one.
    pub cpu_devices: usize,
    /// Threads that work on a loop within a kernel; 0 for as many as the machine has.
    pub intra_op_threads: usize,
    /// Threads that run kernels; 0 for as many as the machine has.
    pub inter_op_threads: usize,
    /// How long a session may be without a call before it is ended; for ever if absent.
    pub session_timeout: Option<Duration>,
    /// Settings that are merged into those of each client, as protocol buffers are: its scalars win, its lists are appended. Its numbers
    /// of threads count where none is set above.
    pub session_config: ConfigProto,
    /// How long running steps may go on when somebody asks the server to stop; only told to those who ask.
    pub grace: Duration,
    /// Whether the server may be stopped from other machines.
    pub allow_remote_stop: bool,
    /// Whether to ask for the end of the server when the chief of its cluster has ended.
    pub exit_with_chief: bool,
    /// The task that leads groups of collective operations, such as `/job:worker/task:0`. Without one: that of `session_config`, else task
    /// 0 of job `worker`, else the first task of the first job, where clients may choose another one.
    pub collective_leader: Option<String>,
    /// Longest piece, in bytes, in which a collective operation sends a buffer to a TensorFlow task; 0 for 4096, negative for no limit.
    pub recv_buf_max_chunk: i64,
    /// Where random numbers come from.
    pub random: Arc<Random>,
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
    pub leader: Leader,
}

impl ServerConfig {
    /// The own job, and the port to listen on.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for settings that do not fit together.
    pub fn place(&self) -> Result<(String, u16)> {
        self.identity().map(|identity| (identity.job, identity.port))
    }

    /// Whether to listen on all interfaces.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for settings that do not fit together.
    pub fn listens_to_all(&self) -> Result<bool> {
        self.identity().map(|identity| identity.hosts == everywhere())
    }

    /// The numbers of threads that work on loops and that run kernels; 0 for as many as the machine has.
    pub fn threads(&self) -> (usize, usize) {
        let chosen = |own: usize, default: i32| if own > 0 { own } else { usize::try_from(default).unwrap_or(0) };
        let default = &self.session_config;
        (
            chosen(self.intra_op_threads, default.intra_op_parallelism_threads),
            chosen(self.inter_op_threads, default.inter_op_parallelism_threads),
        )
    }

    /// The number of CPU devices.
    pub fn cpu_devices(&self) -> usize {
        let default = || self.session_config.device_count.get("CPU").and_then(|&count| usize::try_from(count).ok());
        let count = if self.cpu_devices > 0 { self.cpu_devices } else { default().unwrap_or(0) };
        count.clamp(1, MAX_CPU_DEVICES)
    }

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
            (Some(host), _) if host == "*" => (everywhere(), "localhost".to_owned()),
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
            (None, Some((host, _))) if !is_loopback(host) => (everywhere(), "localhost".to_owned()),
            (None, _) => (loopback(), "localhost".to_owned()),
        };
        let of_sessions = self.session_config.experimental.as_ref().map(|more| more.collective_group_leader.as_str());
        let told = self.collective_leader.as_deref().or(of_sessions.filter(|leader| !leader.is_empty()));
        let leader = Leader::new(told, &self.cluster, &task_name(&job, self.task))?;
        Ok(Identity { job, task: self.task, hosts, port, target_host, leader })
    }
}

/// All interfaces.
fn everywhere() -> Vec<String> {
    vec!["0.0.0.0".to_owned(), "::".to_owned()]
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str) -> ServerConfig {
        ServerConfig { cluster: cluster.parse().unwrap(), random: Random::seeded(1).into(), ..Default::default() }
    }

    #[test]
    fn without_settings_it_is_a_local_task() {
        let identity = ServerConfig::default().identity().unwrap();
        assert_eq!((identity.job.as_str(), identity.task, identity.port), ("localhost", 0, 2222));
        assert_eq!(identity.hosts, ["127.0.0.1", "::1"]);
        assert_eq!(identity.target_host, "localhost");
    }

    #[test]
    fn threads_come_from_the_settings_of_sessions_last() {
        let session_config =
            ConfigProto { intra_op_parallelism_threads: 3, inter_op_parallelism_threads: -1, ..Default::default() };
        let config = ServerConfig { session_config, ..Default::default() };
        assert_eq!(config.threads(), (3, 0));
        assert_eq!(ServerConfig { intra_op_threads: 2, inter_op_threads: 1, ..config }.threads(), (2, 1));
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
        assert!(host("*").listens_to_all().unwrap() && !host("localhost").listens_to_all().unwrap());
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
