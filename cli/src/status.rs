//! `graphmill status`: what a server is doing.

use crate::calls;
use anyhow::Result;
use graphmill_cluster::control::{ControlMethod, StatusRequest, StatusResponse};
use std::io::{self, Write};

/// Shows what a server is doing: sessions, long steps and what they wait for, sessions that wait for tasks, resources.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill status grpc://localhost:2222
  graphmill status localhost:2222 --json | jq '.steps[].waits_for'")]
pub struct Args {
    /// The server's address, as in grpc://localhost:2222
    target: String,
    /// Print a JSON object; times in it are seconds
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the server cannot be reached, is none of graphmill's, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let status: StatusResponse = calls::call(&args.target, ControlMethod::Status, &StatusRequest {})?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?,
        false => print(&mut out, &status)?,
    }
    Ok(())
}

fn print(out: &mut impl Write, status: &StatusResponse) -> io::Result<()> {
    let ends = if status.ends { ", takes nothing new because it ends" } else { "" };
    writeln!(out, "{}: graphmill {}, process {}{ends}", status.task, status.version, status.process)?;
    writeln!(out, "serves for {}, incarnation {}", time(status.age), status.incarnation)?;
    if !status.cluster.is_empty() {
        writeln!(out, "cluster {}", status.cluster)?;
    }
    heading(out, "sessions", status.sessions.len())?;
    for session in &status.sessions {
        let name = if session.handle.is_empty() { "(of masters that make none)" } else { &session.handle };
        let master = match (session.own, session.master.as_str()) {
            (true, _) => "own",
            (false, "") => "of an unknown master",
            (false, master) => master,
        };
        let idle = session.idle.map(|idle| format!(", last call {} ago", time(idle))).unwrap_or_default();
        let graphs = if session.own { String::new() } else { format!(", {} graphs", session.graphs) };
        writeln!(out, "  {name} {master}, {} old, {} steps run{graphs}{idle}", time(session.age), session.steps)?;
    }
    if !status.creations.is_empty() {
        heading(out, "sessions that wait for tasks", status.creations.len())?;
    }
    for creation in &status.creations {
        writeln!(out, "  for {}:", time(creation.age))?;
        for missing in &creation.waits_for {
            let error = if missing.error.is_empty() { "it does not answer" } else { &missing.error };
            writeln!(out, "    {} at {}: {error}", missing.task, missing.address)?;
        }
    }
    heading(out, "steps that run longer than a second", status.steps.len())?;
    for step in &status.steps {
        writeln!(out, "  {} of session {} for {}", step.id, step.session, time(step.age))?;
        for wait in &step.waits_for {
            writeln!(out, "    waits for {wait}")?;
        }
    }
    if let Some(exchange) = &status.rendezvous {
        writeln!(
            out,
            "tensors exchanged: {} steps, {} tensors of {} bytes wait to be taken, {} are waited for",
            exchange.steps, exchange.held, exchange.bytes, exchange.awaited
        )?;
    }
    if let Some(counters) = &status.counters {
        writeln!(
            out,
            "kept: {} graphs of other masters, {} prepared runs, {} callables; {} steps run",
            counters.graphs, counters.prepared, counters.callables, counters.steps
        )?;
    }
    heading(out, "resources", status.resources.iter().map(|kind| kind.number as usize).sum())?;
    for kind in &status.resources {
        writeln!(out, "  container {}: {} {}", kind.container, kind.number, kind.kind)?;
    }
    for queue in &status.queues {
        let capacity = queue.capacity.map(|capacity| format!(" of {capacity}")).unwrap_or_default();
        let closed = if queue.closed { ", closed" } else { "" };
        writeln!(
            out,
            "  queue {}/{}: {}{capacity} elements, {} enqueues and {} dequeues wait{closed}",
            queue.container, queue.name, queue.elements, queue.enqueues, queue.dequeues
        )?;
    }
    Ok(())
}

fn heading(out: &mut impl Write, what: &str, number: usize) -> io::Result<()> {
    if number == 0 { writeln!(out, "{what}: none") } else { writeln!(out, "{what}: {number}") }
}

/// A time for people.
fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} days", whole / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_cluster::control::{CreationStatus, MissingTask, QueueStatus, StepStatus};

    #[test]
    fn times() {
        for (seconds, text) in
            [(0.25, "0.2 s"), (61.0, "61 s"), (600.0, "10 min"), (7260.0, "2 h 1 min"), (2e5, "2 days")]
        {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn what_waits_is_said() {
        let missing =
            MissingTask { task: "/job:ps/replica:0/task:1".into(), address: "h:1".into(), error: "refused".into() };
        let status = StatusResponse {
            task: "/job:ps/replica:0/task:0".into(),
            steps: vec![StepStatus {
                id: 7,
                session: "ab".into(),
                age: 3.0,
                waits_for: vec!["tensor x from y".into()],
            }],
            creations: vec![CreationStatus { age: 2.0, waits_for: vec![missing] }],
            queues: vec![QueueStatus { name: "q".into(), dequeues: 1, capacity: Some(5), ..Default::default() }],
            ..Default::default()
        };
        let mut out = Vec::new();
        print(&mut out, &status).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "    /job:ps/replica:0/task:1 at h:1: refused",
            "    waits for tensor x from y",
            "  queue /q: 0 of 5 elements, 0 enqueues and 1 dequeues wait",
            "sessions: none",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
