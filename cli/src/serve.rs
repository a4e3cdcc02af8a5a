//! `graphmill serve`: one task of a cluster.

use crate::log;
use crate::settings::{Flags, Settings, to_toml};
use anyhow::{Context, Result, anyhow};
use graphmill_cluster::Server;
use graphmill_tensor::{Code, Status};
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long steps that were aborted have to end, and answers to be sent.
const PATIENCE: Duration = Duration::from_secs(3);
/// Signals that follow each other more quickly count as one.
const ECHO: Duration = Duration::from_millis(300);

/// Serves graphs to TensorFlow clients until it gets SIGTERM or SIGINT.
///
/// Then it takes no new sessions and steps, lets running steps go on for a while (--grace), and exits with status 0. Settings come from
/// flags, then from files, then from the environment variable TF_CONFIG, which counts only if nothing else names a cluster; graphmill config
/// show prints what is understood.
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
      The same in TensorFlow's spelling, with numbered tasks
  graphmill serve --config cluster.toml --job worker --task 1
      A file with the cluster for all tasks, and the place of this one")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    /// End when standard input does, as it does when the program at its other end is gone
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Runs the command.
///
/// # Errors
/// If the settings do not fit together or the port is taken.
pub fn run(args: Args) -> Result<()> {
    let settings = Settings::read(args.flags)?;
    let (level, json) = settings.log();
    log::start(level, json)?;
    tracing::debug!("settings:\n{}", to_toml(&settings.entries()?)?);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    // Before the server listens: a signal that comes in between must not kill it halfway.
    let mut signals = {
        let _runtime = runtime.enter();
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? }
    };
    let kernels = match settings.file_root() {
        Some(root) => graphmill_kernels::registry_below(root)?,
        None => graphmill_kernels::registry(),
    };
    let mut server = Server::bind(settings.server_config(), kernels).map_err(explain)?;
    let mut stdout = std::io::stdout();
    // Whoever does not read the line is still served.
    let _ = writeln!(stdout, "graphmill listening on {}", server.target()).and_then(|()| stdout.flush());
    let mut grace = settings.grace();
    runtime.block_on(async {
        let reason = tokio::select! {
            name = signals.next() => name.to_owned(),
            request = server.end_requested() => {
                grace = request.longest_grace.map_or(grace, |longest| grace.min(longest));
                request.reason
            }
            () = end_of_stdin(args.exit_with_stdin) => "standard input has ended".to_owned(),
        };
        tracing::info!("ending, because of this: {reason}");
        tokio::select! {
            () = server.drain(grace) => {}
            name = again(&mut signals) => tracing::info!("{name} again: ending at once"),
        }
    });
    server.shutdown(PATIENCE);
    // Not by returning, as that would wait for kernels that compute for long.
    std::process::exit(0)
}

/// The signals that end a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Waits for one, and yields its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Waits for a signal that is not the same one twice, as a program and its group may be told at the same moment.
async fn again(signals: &mut Signals) -> &'static str {
    let begun = Instant::now();
    loop {
        let name = signals.next().await;
        if begun.elapsed() > ECHO {
            return name;
        }
    }
}

/// Waits for the end of standard input if it is `watched`, else for ever.
async fn end_of_stdin(watched: bool) {
    if !watched {
        return std::future::pending().await;
    }
    let (ended, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // An input that cannot be read has ended too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = wait.await;
}

/// An error of the start, with what to do about it.
fn explain(error: Status) -> anyhow::Error {
    match error.code() {
        Code::Unavailable => anyhow!("{}; choose another with --port, or 0 for any", error.message()),
        _ => anyhow!("{}; see graphmill serve --help", error.message()),
    }
}
