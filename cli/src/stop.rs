//! `graphmill stop`: has servers end.

use crate::calls;
use anyhow::{Context, Result, bail};
use graphmill_cluster::control::{ControlMethod, StopRequest, StopResponse};
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a server may take to end behind the time that it gives its steps.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a look may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Has servers end: they take nothing new, let running steps go on for a while, and exit with status 0.
///
/// Waits until they have ended. Servers obey callers from their own machine; those that were started with --allow-remote-stop obey all.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill stop grpc://localhost:2222
  graphmill stop localhost:2222 localhost:2223 localhost:2224
      A whole cluster on this machine")]
pub struct Args {
    /// The servers' addresses, as in grpc://localhost:2222
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    /// Do not wait until the servers have ended
    #[arg(long)]
    no_wait: bool,
}

/// Runs the command. A server that cannot be stopped does not keep the others from it.
///
/// # Errors
/// If a server cannot be reached, refuses, or does not end in time.
pub fn run(args: &Args) -> Result<()> {
    let asked: Vec<_> = args.targets.iter().map(|target| (target, ask(target))).collect();
    let mut failures = Vec::new();
    let mut out = std::io::stdout().lock();
    for (target, answer) in asked {
        let ended = answer.and_then(|answer| {
            if !args.no_wait {
                wait(target, &answer)?;
            }
            Ok(answer)
        });
        match ended {
            Ok(answer) if args.no_wait => writeln!(out, "{} at {target} ends", answer.task)?,
            Ok(answer) => writeln!(out, "{} at {target} has ended", answer.task)?,
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("{}", failures.join("\n")),
    }
}

fn ask(target: &str) -> Result<StopResponse> {
    calls::call(target, ControlMethod::Stop, &StopRequest {})
}

/// Waits until nobody listens at an address any more.
fn wait(target: &str, answer: &StopResponse) -> Result<()> {
    let grace = Duration::try_from_secs_f64(answer.grace).unwrap_or_default();
    let end = Instant::now() + PATIENCE + grace;
    let address = calls::address(target)?;
    while is_there(address)? {
        if Instant::now() > end {
            bail!("{} at {target} was asked to end and has not; end its process with kill", answer.task);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn is_there(address: &str) -> Result<bool> {
    let mut addresses = address.to_socket_addrs().with_context(|| format!("{address} is unknown"))?;
    Ok(addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()))
}
