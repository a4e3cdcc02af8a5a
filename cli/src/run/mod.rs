//! `graphmill run`: one step of a graph or of an exported model.

mod feeds;
mod model;
mod names;
mod print;
mod write;

use anyhow::{Context, Result, anyhow, bail};
use feeds::Feed;
use graphmill_client::{Client, DEFAULT_SIGNATURE, SERVE, ServerConfig, Session, Status, Step, Tensor};
use model::Model;
use std::path::PathBuf;
use std::time::Duration;

/// How long a server may take to forget the session in the end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Runs a graph or an exported model once: arrays in, arrays out.
///
/// Without --target it runs in this process. Feeds are arrays of NumPy; fetches are printed, or written with --out.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill run --graph model.pb --feed x=x.npy --fetch y
      Feeds the array in x.npy and prints y
  graphmill run --graph model.meta --init init --feed batch.npz --fetch loss --target grpc://localhost:2222
      Runs the node init and then loss on a server, with every array of batch.npz fed under its own name
  graphmill run --saved-model exported/1 --feed images=x.npy --out answers.npz
      Runs the signature serving_default of an exported model and writes all of its outputs
  graphmill run --graph model.pbtxt --feed x=data.npz:test --fetch y --json | jq .y.shape
      For scripts: one JSON object with a member for each fetch")]
pub struct Args {
    /// Graph: a GraphDef or MetaGraphDef, in binary form or as text
    #[arg(long, value_name = "FILE", required_unless_present = "saved_model", conflicts_with = "saved_model")]
    graph: Option<PathBuf>,
    /// Exported model; a server has to find it at the same path
    #[arg(long, value_name = "DIR")]
    saved_model: Option<PathBuf>,
    /// Signature of the exported model [default: serving_default]; feeds and fetches are its inputs and outputs
    #[arg(long, value_name = "NAME", requires = "saved_model")]
    signature: Option<String>,
    /// Tag of the graph in the exported model, once for each of its tags [default: serve]
    #[arg(long, requires = "saved_model")]
    tag: Vec<String>,
    /// Value of a tensor: NAME=FILE.npy, NAME=FILE.npz:ARRAY, or FILE.npz for every array in it under its name
    #[arg(long, value_name = "[NAME=]FILE")]
    feed: Vec<Feed>,
    /// Tensor to compute, as in y or y:1 [default: every output of the exported model's signature]
    #[arg(long, value_name = "NAME", required_unless_present = "saved_model")]
    fetch: Vec<String>,
    /// Node to run first, such as the one that initialises variables; several run one after the other
    #[arg(long, value_name = "NODE")]
    init: Vec<String>,
    /// Server to run on, graphmill's or TensorFlow's, as in grpc://localhost:2222 [default: this process]
    #[arg(long, value_name = "ADDRESS")]
    target: Option<String>,
    /// Seconds that each call may take [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Where fetches are written: FILE.npy for a single one, FILE.npz, or a directory with a file for each
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Print a JSON object; numbers that JSON has not are the strings NaN, Infinity and -Infinity
    #[arg(long)]
    json: bool,
}

/// A time that does not overflow.
fn timeout(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// If files or names are wrong, or what the step fails with.
pub fn run(args: &Args) -> Result<()> {
    let model = match (&args.graph, &args.saved_model) {
        (_, Some(directory)) => {
            let tags: Vec<&str> = args.tag.iter().map(String::as_str).collect();
            let tags = if tags.is_empty() { &[SERVE][..] } else { &tags };
            Model::exported(directory, tags, args.signature.as_deref().unwrap_or(DEFAULT_SIGNATURE))
        }
        (Some(file), None) => Model::graph(file),
        (None, None) => bail!("there is nothing to run; give --graph or --saved-model"),
    }
    .map_err(|error| anyhow!("{}", error.message()))?;
    model.check(args.target.is_none())?;
    let mut step = Step::new();
    for (name, tensor) in feeds::load(&args.feed, &model)? {
        step = step.feed(name, tensor);
    }
    let fetches = if args.fetch.is_empty() { model.outputs() } else { args.fetch.clone() };
    for name in &fetches {
        step = step.fetch(model.fetch(name)?);
    }
    let inits = args.init.iter().map(|node| model.node(node)).collect::<Result<Vec<String>>>()?;
    let out = args.out.as_deref().map(|path| write::Target::new(path, &fetches)).transpose()?;
    let tensors = execute(args, &model, &inits, &step)?;
    let named: Vec<(&str, &Tensor)> = fetches.iter().map(String::as_str).zip(&tensors).collect();
    match out {
        Some(target) => print::files(&named, &target.write(&named)?, args.json)?,
        None if args.json => print::json(&named)?,
        None => print::pretty(&named)?,
    }
    Ok(())
}

fn execute(args: &Args, model: &Model, inits: &[String], step: &Step) -> Result<Vec<Tensor>> {
    let (client, place) = match &args.target {
        Some(target) => (Client::new(target), target.as_str()),
        None => (Client::in_process(ServerConfig::default(), graphmill_kernels::registry()), "this process"),
    };
    let mut client = client.map_err(|error| anyhow!("{}", error.message()))?;
    if let Some(timeout) = args.timeout {
        client = client.within(timeout);
    }
    let answers = |error: Status| anyhow!("{place} answers {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no threads")?;
    runtime.block_on(async {
        let session = model.session(&client).await.map_err(answers)?;
        let result = tokio::select! {
            result = steps(&session, inits, step) => result.map_err(answers),
            _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
        };
        // What the step answered counts, not whether the server is still there.
        let _ = session.within(CLOSE_PATIENCE).close().await;
        result
    })
}

async fn steps(session: &Session, inits: &[String], step: &Step) -> graphmill_client::Result<Vec<Tensor>> {
    for node in inits {
        session.run(&Step::new().target(node)).await?;
    }
    Ok(session.run(step).await?.into_tensors())
}
