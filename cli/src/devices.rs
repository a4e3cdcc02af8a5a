//! `graphmill devices`: what a server has.

use anyhow::{Context, Result, anyhow};
use graphmill_client::{Client, Code, Status};
use serde_json::json;
use std::io::Write;
use std::time::Duration;

/// How long the server, and the tasks that it asks in turn, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lists the devices of a server, graphmill's or TensorFlow's.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill devices grpc://localhost:2222
  graphmill devices localhost:2222 --json | jq -r '.[].name'")]
pub struct Args {
    /// The server's address, as in grpc://localhost:2222
    target: String,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the server cannot be reached or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let client = Client::new(&args.target).map_err(|error| anyhow!("{}", error.message()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no threads")?;
    let devices = runtime.block_on(client.within(PATIENCE).devices()).map_err(|error| explain(&args.target, &error))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let all: Vec<_> = devices
            .iter()
            .map(|device| {
                json!({
                    "name": device.name,
                    "type": device.device_type,
                    "memory_limit": device.memory_limit,
                    "incarnation": device.incarnation.to_string(),
                })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    let width = devices.iter().map(|device| device.name.len()).max().unwrap_or(0).max("NAME".len());
    writeln!(out, "{:width$}  {:6}  {:>12}  INCARNATION", "NAME", "TYPE", "MEMORY")?;
    for device in &devices {
        let memory = format!("{} MiB", device.memory_limit >> 20);
        writeln!(out, "{:width$}  {:6}  {memory:>12}  {:016x}", device.name, device.device_type, device.incarnation)?;
    }
    Ok(())
}

/// An error of the call, with what to do about it.
fn explain(target: &str, error: &Status) -> anyhow::Error {
    match error.code() {
        Code::Unavailable => {
            anyhow!("no server answers at {target}: {}; start one with graphmill serve", error.message())
        }
        _ => anyhow!("{target} answers {error}"),
    }
}
