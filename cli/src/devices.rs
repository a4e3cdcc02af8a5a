//! `graphmill devices`: what a server has.

use crate::client;
use anyhow::Result;
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::{DeviceAttributes, ListDevicesRequest, ListDevicesResponse};
use serde_json::json;
use std::io::Write;

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
    let path = MasterMethod::ListDevices.path();
    let answer: ListDevicesResponse = client::call(&args.target, path, ListDevicesRequest::default())?;
    let devices: Vec<DeviceAttributes> = answer.local_device.into_iter().chain(answer.remote_device).collect();
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
