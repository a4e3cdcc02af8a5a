//! The `graphmill` command.

mod calls;
mod cluster_up;
mod config;
mod devices;
mod log;
mod ops;
mod run;
mod serve;
mod settings;
mod status;
mod stop;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs TensorFlow graphs, on this machine and across machines.
#[derive(Parser)]
#[command(name = "graphmill", version, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    Serve(Box<serve::Args>),
    Cluster(cluster_up::Args),
    Status(status::Args),
    Stop(stop::Args),
    Config(Box<config::Args>),
    Run(run::Args),
    Devices(devices::Args),
    Ops(ops::Args),
}

fn main() -> ExitCode {
    let result = match Command::parse().command {
        Subcommands::Serve(args) => serve::run(*args),
        Subcommands::Cluster(args) => cluster_up::run(args),
        Subcommands::Status(args) => status::run(&args),
        Subcommands::Stop(args) => stop::run(&args),
        Subcommands::Config(args) => config::run(*args),
        Subcommands::Run(args) => run::run(&args),
        Subcommands::Devices(args) => devices::run(&args),
        Subcommands::Ops(args) => ops::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("graphmill: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader of the output has seen enough, as `head` has.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Command::command().debug_assert();
    }
}
