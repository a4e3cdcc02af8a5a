//! The flags of `graphmill serve`, which `graphmill config show` takes too.

use super::cluster::ClusterText;
use super::device_count::DeviceCount;
use super::{Layer, seconds};
use graphmill_cluster::ClusterSpec;
use std::path::PathBuf;

/// What a server is told on the command line. What is absent may stand in a file, or in TF_CONFIG.
#[derive(clap::Args)]
pub struct Flags {
    /// File with settings under the names of these flags, in TOML or YAML as its name ends; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File with a ServerDef of TensorFlow, in binary or text form; flags and --config win over it
    #[arg(long, value_name = "FILE")]
    pub server_def: Option<PathBuf>,
    /// Host name or address to listen on; * for all [default: localhost, or all if the cluster says that others dial in]
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on; 0 for any free one [default: that of the task in the cluster, else 2222]
    #[arg(long)]
    port: Option<u16>,
    /// Job of this task [default: the only job of the cluster, else localhost]
    #[arg(long)]
    job: Option<String>,
    /// Index of this task in its job [default: 0]
    #[arg(long)]
    task: Option<u32>,
    /// All tasks: ps=HOST:PORT;worker=HOST:PORT,HOST:PORT or ps|HOST:PORT,worker|HOST:PORT;HOST:PORT [default: that of TF_CONFIG, else this task alone]
    #[arg(long)]
    cluster: Option<ClusterSpec>,
    /// How many devices of a type this task has; CPU is the only type [default: those of --session-config, else CPU=1]
    #[arg(long, value_name = "TYPE=COUNT")]
    device_count: Option<DeviceCount>,
    /// Threads that share a loop within an op; 0 for one each core
    #[arg(long)]
    intra_op_threads: Option<usize>,
    /// Threads that run ops; 0 for one each core
    #[arg(long)]
    inter_op_threads: Option<usize>,
    /// Directory that ops may read and write files in; others are refused [default: every file that the process may use]
    #[arg(long, value_name = "DIRECTORY")]
    file_root: Option<PathBuf>,
    /// ConfigProto that is merged into that of every client, its scalars winning: a file in binary or text form, or the binary form in base64
    #[arg(long, value_name = "FILE|BASE64")]
    session_config: Option<String>,
    /// Task that leads groups of collective ops, as in /job:worker/task:0 [default: that of --session-config, else task 0 of job worker, else of the first job]
    #[arg(long, value_name = "TASK")]
    collective_leader: Option<String>,
    /// Longest piece in which collective ops send buffers to TensorFlow tasks; -1 for no limit [default: 4096]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    recv_buf_max_chunk: Option<i64>,
    /// End sessions in which no call has begun for this many seconds, with the steps that still run in them; 0 for never [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    session_timeout: Option<f64>,
    /// How long running steps may go on after SIGTERM, SIGINT or graphmill stop; a second signal ends them at once [default: 3]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    grace: Option<f64>,
    /// End, with status 0, within 5 seconds after the chief is gone (cannot be reached for 3 seconds) or has had no session on this
    /// task for 3 seconds after it had some. The chief is task 0 of the job chief, master or else worker; there the flag does nothing
    #[arg(long)]
    exit_with_chief: bool,
    /// Let graphmill stop end this server from other machines too
    #[arg(long)]
    allow_remote_stop: bool,
    /// What is logged to standard error: error, warn, info, debug, trace or off [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log in JSON, one object a line
    #[arg(long)]
    log_json: bool,
}

impl Flags {
    /// What was given.
    pub fn layer(self) -> Layer {
        Layer {
            cluster: self.cluster.map(ClusterText),
            job: self.job,
            task: self.task,
            host: self.host,
            port: self.port,
            device_count: self.device_count,
            intra_op_threads: self.intra_op_threads,
            inter_op_threads: self.inter_op_threads,
            file_root: self.file_root,
            session_config: self.session_config,
            collective_leader: self.collective_leader,
            recv_buf_max_chunk: self.recv_buf_max_chunk,
            session_timeout: self.session_timeout,
            grace: self.grace,
            exit_with_chief: self.exit_with_chief.then_some(true),
            allow_remote_stop: self.allow_remote_stop.then_some(true),
            log_level: self.log_level,
            log_json: self.log_json.then_some(true),
        }
    }
}
