//! `graphmill cluster up`: a cluster on this machine.

mod child;
mod report;

use crate::calls;
use anyhow::{Context, Result, bail};
use child::{Child, Ending};
use graphmill_cluster::ClusterSpec;
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{GetStatusRequest, GetStatusResponse};
use prost::Message;
use report::Report;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// Pause between two looks at the tasks.
const LOOK: Duration = Duration::from_millis(50);
/// How long the tasks may take to answer.
const READY: Duration = Duration::from_secs(60);
/// How long a call to a task that starts may take.
const PROBE: Duration = Duration::from_secs(2);
/// Signals that follow each other more quickly count as one.
const ECHO: Duration = Duration::from_millis(300);
/// How long the tasks may take to end behind the time that they give their steps.
const FAREWELL: Duration = Duration::from_secs(10);

/// Runs clusters on this machine.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Up(Up),
}

/// Starts a cluster on this machine, each task a process of its own, and ends it when it is interrupted.
///
/// Prints the tasks' targets and the cluster when all tasks answer, and then what happens to them. The tasks end on SIGINT, SIGTERM or
/// SIGHUP, and when this command or the program that started it is gone. The exit status is 0 if all tasks have ended with status 0.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill cluster up --ps 1 --workers 2
  graphmill cluster up --ps 2 --workers 4 --chief --base-port 2222 --log-dir logs
      Ports 2222 to 2228, the tasks' logs in files
  graphmill cluster up --workers 2 --json -- --log-level debug
      For programs to read; what is behind -- goes to graphmill serve")]
struct Up {
    /// Number of parameter servers, tasks of the job ps
    #[arg(long, default_value_t = 1)]
    ps: u16,
    /// Number of tasks of the job worker
    #[arg(long, default_value_t = 1)]
    workers: u16,
    /// Add a task of the job chief
    #[arg(long)]
    chief: bool,
    /// First of the ports, which follow each other: those of chief, ps, worker [default: free ones]
    #[arg(long, value_name = "PORT")]
    base_port: Option<u16>,
    /// Write the tasks' logs to files in this directory, not to standard error
    #[arg(long, value_name = "DIRECTORY")]
    log_dir: Option<PathBuf>,
    /// How long running steps may go on at the end
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = crate::settings::seconds)]
    grace: f64,
    /// Go on when the program that started this command is gone
    #[arg(long)]
    detached: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Further flags for each task's graphmill serve
    #[arg(last = true, value_name = "FLAGS")]
    serve_flags: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If a task does not start, or does not end well.
pub fn run(args: Args) -> Result<()> {
    let Command::Up(up) = args.command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new(up.detached)?;
        let report = Report::new(up.json);
        let mut children = start(&up)?;
        let outcome = live(&up, &mut children, &mut signals, &report).await;
        end(&up, &mut children, &mut signals, &report).await?;
        outcome?;
        let failed: Vec<String> = children.iter().filter_map(Child::failure).collect();
        match failed.is_empty() {
            true => Ok(()),
            false => bail!("not all tasks have ended well: {}", failed.join(", ")),
        }
    })
}

/// Starts all tasks.
fn start(up: &Up) -> Result<Vec<Child>> {
    let places = places(up);
    if places.is_empty() {
        bail!("a cluster needs a task; ask for some with --ps, --workers or --chief");
    }
    let ports = match up.base_port {
        Some(first) => {
            let count = u16::try_from(places.len()).ok();
            let last = count.and_then(|count| first.checked_add(count.saturating_sub(1))).filter(|_| first > 0);
            let last = last.with_context(|| format!("there are no {} ports from {first} on", places.len()))?;
            (first..=last).collect()
        }
        None => free_ports(places.len())?,
    };
    if let Some(directory) = &up.log_dir {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut cluster = ClusterSpec::default();
    for (&(job, task), port) in places.iter().zip(&ports) {
        let added = cluster.insert(job, task, &format!("127.0.0.1:{port}"));
        added.map_err(|error| anyhow::anyhow!("{}", error.message()))?;
    }
    let cluster = cluster.to_string();
    let places = places.into_iter().zip(ports);
    places.map(|((job, task), port)| Child::start(job, task, port, &cluster, up)).collect()
}

/// The tasks in the order of their ports.
fn places(up: &Up) -> Vec<(&'static str, u32)> {
    let jobs = [("chief", u16::from(up.chief)), ("ps", up.ps), ("worker", up.workers)];
    jobs.into_iter().flat_map(|(job, count)| (0..u32::from(count)).map(move |task| (job, task))).collect()
}

/// Ports that nobody listens on. All are held until the last is found, so that they differ.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<std::io::Result<_>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Waits until all tasks answer, then until somebody asks for the end or no task is left.
async fn live(up: &Up, children: &mut [Child], signals: &mut Signals, report: &Report) -> Result<()> {
    let end = Instant::now() + READY;
    let mut ready = 0;
    while ready < children.len() {
        tokio::select! {
            reason = signals.next() => {
                report.ends(&reason);
                return Ok(());
            }
            () = sleep(LOOK) => {}
        }
        if note_endings(children, report) > 0 {
            bail!("a task has ended before the cluster was ready{}", where_to_look(up));
        }
        if let Some(child) = children.get(ready)
            && answers(child).await?
        {
            ready += 1;
        }
        if Instant::now() > end {
            let waiting: Vec<String> = children.iter().skip(ready).map(Child::name).collect();
            bail!("after {} s there is no answer from {}{}", READY.as_secs(), waiting.join(", "), where_to_look(up));
        }
    }
    report.ready(children)?;
    loop {
        tokio::select! {
            reason = signals.next() => {
                report.ends(&reason);
                return Ok(());
            }
            () = sleep(LOOK) => {}
        }
        note_endings(children, report);
        if children.iter().all(|child| child.ending.is_some()) {
            report.ends("all tasks have ended");
            return Ok(());
        }
    }
}

fn where_to_look(up: &Up) -> String {
    match &up.log_dir {
        Some(directory) => format!("; its log is in {}", directory.display()),
        None => "; its log is above".to_owned(),
    }
}

/// Notes the tasks that have ended since the last look; how many there are.
fn note_endings(children: &mut [Child], report: &Report) -> usize {
    let mut ended = 0;
    for child in children {
        if child.look() {
            report.ended(child);
            ended += 1;
        }
    }
    ended
}

/// Whether a task answers at its port.
///
/// # Errors
/// If another one does.
async fn answers(child: &Child) -> Result<bool> {
    let target = child.target();
    let call = calls::exchange(&target, WorkerMethod::GetStatus.path(), &GetStatusRequest {});
    let Ok(Ok(answer)) = tokio::time::timeout(PROBE, call).await else { return Ok(false) };
    let Some(status) = answer.ok().and_then(|answer| GetStatusResponse::decode(answer).ok()) else { return Ok(false) };
    let task = format!("/job:{}/replica:0/task:{}/", child.job, child.task);
    match status.device_attributes.iter().all(|device| device.name.starts_with(&task)) {
        true => Ok(true),
        false => bail!("another server than {} answers at {target}", child.name()),
    }
}

/// Ends all tasks: by asking, and if that does not help by force.
async fn end(up: &Up, children: &mut [Child], signals: &mut Signals, report: &Report) -> Result<()> {
    children.iter_mut().for_each(Child::ask_to_end);
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(up.grace) + FAREWELL;
    while children.iter().any(|child| child.ending.is_none()) {
        let at_once = tokio::select! {
            _ = signals.next_signal() => begun.elapsed() > ECHO,
            () = sleep(LOOK) => Instant::now() > end,
        };
        if at_once {
            for child in children.iter_mut().filter(|child| child.ending.is_none()) {
                child.kill()?;
            }
        }
        note_endings(children, report);
    }
    report.ended_all(children.iter().all(|child| matches!(child.ending, Some(Ending { clean: true, .. }))));
    Ok(())
}

/// What ends a cluster.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// The process that started this one, if its end counts.
    parent: Option<u32>,
}

impl Signals {
    fn new(detached: bool) -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            parent: (!detached).then(std::os::unix::process::parent_id),
        })
    }

    /// Waits for a signal or the end of the parent, and says which it was.
    async fn next(&mut self) -> String {
        let parent = self.parent;
        let orphaned = async {
            match parent {
                None => std::future::pending().await,
                Some(parent) => {
                    while std::os::unix::process::parent_id() == parent {
                        sleep(LOOK).await;
                    }
                }
            }
        };
        tokio::select! {
            name = self.next_signal() => name.to_owned(),
            () = orphaned => "the program that started this command is gone".to_owned(),
        }
    }

    async fn next_signal(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
