//! `graphmill serve`: one task of a cluster.

use crate::log;
use anyhow::{Context, Result, anyhow};
use graphmill_cluster::{ClusterSpec, Random, Server, ServerConfig};
use graphmill_tensor::{Code, Status};
use std::io::Write;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long running steps have to end after a signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// Serves graphs to TensorFlow clients until it gets SIGTERM or SIGINT.
///
/// Prints one line with its address when it is ready. Clients connect with tf.compat.v1.Session("grpc://HOST:PORT").
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill serve
      A server for clients on this machine, at grpc://localhost:2222
  graphmill serve --host 0.0.0.0 --port 7000
      The same for clients on other machines
  graphmill serve --job worker --task 1 --cluster 'ps=ps0:2222;worker=w0:2222,w1:2222'
      Task 1 of job worker, listening on port 2222
  graphmill serve --job worker --task 3 --cluster 'worker|0=w0:2222;3=w3:2222'
      The same in TensorFlow's spelling, with numbered tasks")]
pub struct Args {
    /// Host name or address to listen on; 0.0.0.0 for all [default: localhost, or all if the cluster says that others dial in]
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on; 0 for any free one [default: that of the task in the cluster, else 2222]
    #[arg(long)]
    port: Option<u16>,
    /// Job of this task [default: the only job of the cluster, else localhost]
    #[arg(long)]
    job: Option<String>,
    /// Index of this task in its job
    #[arg(long, default_value_t = 0)]
    task: u32,
    /// All tasks: ps=HOST:PORT;worker=HOST:PORT,HOST:PORT or ps|HOST:PORT,worker|HOST:PORT;HOST:PORT [default: this task alone]
    #[arg(long)]
    cluster: Option<ClusterSpec>,
    /// Task that leads groups of collective ops, as in /job:worker/task:0 [default: task 0 of job worker, else of the first job]
    #[arg(long, value_name = "TASK")]
    collective_leader: Option<String>,
    /// Longest piece in which collective ops send buffers to TensorFlow tasks; -1 for no limit
    #[arg(long, default_value_t = 4096, value_name = "BYTES", allow_negative_numbers = true)]
    recv_buf_max_chunk: i64,
    /// Threads that share a loop within an op; 0 for one each core
    #[arg(long, default_value_t = 0)]
    intra_op_threads: usize,
    /// Threads that run ops; 0 for one each core
    #[arg(long, default_value_t = 0)]
    inter_op_threads: usize,
    /// Directory that ops may read and write files in; others are refused [default: every file that the process may use]
    #[arg(long)]
    file_root: Option<std::path::PathBuf>,
    /// End sessions in which no call has begun for this many seconds, with the steps that still run in them; 0 for never
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS", value_parser = seconds)]
    session_timeout: f64,
    /// What is logged to standard error: error, warn, info, debug, trace or off
    #[arg(long, default_value = "info")]
    log_level: String,
    /// Log in JSON, one object a line
    #[arg(long)]
    log_json: bool,
}

/// A time that does not overflow.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1e9).contains(&value) => Ok(value),
        _ => Err("expected a number of seconds, 0 for never".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// If the settings do not fit together or the port is taken.
pub fn run(args: Args) -> Result<()> {
    log::start(&args.log_level, args.log_json)?;
    let config = ServerConfig {
        host: args.host,
        port: args.port,
        job: args.job,
        task: args.task,
        cluster: args.cluster.unwrap_or_default(),
        intra_op_threads: args.intra_op_threads,
        inter_op_threads: args.inter_op_threads,
        session_timeout: (args.session_timeout > 0.0).then(|| Duration::from_secs_f64(args.session_timeout)),
        collective_leader: args.collective_leader,
        recv_buf_max_chunk: args.recv_buf_max_chunk,
        random: Random::new(),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().context("cannot wait for signals")?;
    // Before the server listens: a signal that comes in between must not kill it halfway.
    let (mut terminate, mut interrupt) = {
        let _runtime = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let kernels = match &args.file_root {
        Some(root) => graphmill_kernels::registry_below(root)?,
        None => graphmill_kernels::registry(),
    };
    let mut server = Server::bind(config, kernels).map_err(explain)?;
    let mut stdout = std::io::stdout();
    // Whoever does not read the line is still served.
    let _ = writeln!(stdout, "graphmill listening on {}", server.target()).and_then(|()| stdout.flush());
    let name = runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    });
    tracing::info!("{name}: ending");
    server.shutdown(PATIENCE);
    // Not by returning, as that would wait for kernels that compute for long.
    std::process::exit(0)
}

/// An error of the start, with what to do about it.
fn explain(error: Status) -> anyhow::Error {
    match error.code() {
        Code::Unavailable => anyhow!("{}; choose another with --port, or 0 for any", error.message()),
        _ => anyhow!("{}; see graphmill serve --help", error.message()),
    }
}
