//! `graphmill config`: what a server would be told.

use crate::settings::{Flags, Settings, to_toml};
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::io::Write;

/// Looks at the settings of servers.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Show(Show),
}

/// Prints the settings that graphmill serve would have with the same flags, and where each comes from.
///
/// The output is a file for graphmill serve --config that means the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill config show --config cluster.toml --task 1
      What is understood of a file and a flag
  TF_CONFIG='{\"cluster\": {\"worker\": [\"h:2222\"]}}' graphmill config show --json
      What is understood of TF_CONFIG, for programs to read")]
struct Show {
    #[command(flatten)]
    flags: Flags,
    /// Print a JSON object with the value and the source of each setting
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the settings are wrong or the output cannot be written.
pub fn run(args: Args) -> Result<()> {
    let Command::Show(show) = args.command;
    let entries = Settings::read(show.flags)?.entries()?;
    let mut out = std::io::stdout().lock();
    if !show.json {
        write!(out, "{}", to_toml(&entries)?)?;
        return Ok(());
    }
    let object: Map<String, Value> = entries
        .into_iter()
        .map(|entry| (entry.key.to_owned(), json!({"value": entry.value, "source": entry.source})))
        .collect();
    writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
    Ok(())
}
