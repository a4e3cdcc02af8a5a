//! Rewrites a graph for one task: `transform IN.pb OUT.pb MAP.json RESOURCES.yml STRATEGY TASK ID`.
//!
//! IN.pb and OUT.pb hold a MetaGraphDef. STRATEGY is the path of a strategy file, or a builder with options: `PS`,
//! `PSLoadBalancing`, `PartitionedPS`, `UnevenPartitionedPS`, `Parallax` take `proxy`, `async` and `staleness=N`; `AllReduce`, `PartitionedAR`,
//! `RandomAxisPartitionAR` and `Parallax` take `chunk=N`; `AllReduce` takes `spec=RING` and `compressor=HorovodCompressorEF`; as in
//! `PS,proxy,staleness=3`. All tasks give the same ID. MAP.json says how to feed and fetch.

use graphmill_autodist::builders::{
    AllReduceBuilder, AxisChoice, Division, Parallax, PartitionedAllReduce, PartitionedPs, Ps, PsLoadBalancing,
    ServerOptions, StrategyBuilder,
};
use graphmill_autodist::compiler::CompiledStrategy;
use graphmill_autodist::item::GraphItem;
use graphmill_autodist::resources::{ClusterLayout, PortCounter, ResourceSpec};
use graphmill_autodist::strategy::{self, Strategy};
use graphmill_autodist::transform::{TransformOptions, TransformedGraph, transform};
use graphmill_wire::tensorflow::MetaGraphDef;
use prost::Message;
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [input, output, map, resources, strategy, task, id] = &arguments[..] else {
        return Err("usage: transform IN.pb OUT.pb MAP.json RESOURCES.yml STRATEGY TASK ID".into());
    };
    let meta = MetaGraphDef::decode(&*fs::read(input)?)?;
    let task = task.parse()?;
    let item = GraphItem::from_meta_graph(meta).map_err(|error| error.message().to_owned())?;
    let spec = ResourceSpec::read(Path::new(resources)).map_err(|error| error.message().to_owned())?;
    let strategy = strategy_of(strategy, &item, &spec, id)?;
    let write = || {
        let layout = ClusterLayout::new(&spec, &mut PortCounter::new())?;
        let compiled = CompiledStrategy::new(&strategy, &item, &spec, &layout)?;
        transform(&item, &compiled, task, TransformOptions::default())
    };
    let written = write().map_err(|error| error.message().to_owned())?;
    fs::write(output, written.meta_graph.encode_to_vec())?;
    fs::write(map, map_of(&written).to_string())?;
    Ok(())
}

fn map_of(written: &TransformedGraph) -> serde_json::Value {
    let feeds =
        written.feeds.iter().map(|feed| (feed.node.clone(), json!({"copies": feed.copies, "split": feed.is_split})));
    let fetches = written.fetches.iter().map(|fetch| {
        let how = json!({"copies": fetch.copies, "runs_all": fetch.runs_all, "concatenated": fetch.concatenated});
        (fetch.node.clone(), how)
    });
    json!({
        "replicas": written.replicas,
        "is_chief": written.is_chief,
        "initialise": written.initialise,
        "ready": written.ready,
        "started": written.started,
        "warnings": written.warnings,
        "feeds": feeds.collect::<serde_json::Map<_, _>>(),
        "fetches": fetches.collect::<serde_json::Map<_, _>>(),
    })
}

fn strategy_of(text: &str, item: &GraphItem, spec: &ResourceSpec, id: &str) -> Result<Strategy, Box<dyn Error>> {
    if Path::new(text).is_file() {
        return strategy::read(Path::new(text)).map_err(|error| error.message().into());
    }
    let mut words = text.split(',');
    let name = words.next().unwrap_or_default();
    let mut options = ServerOptions::default();
    let (mut chunk_size, mut communication, mut compressor) = (128, "NCCL", "NoneCompressor");
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("proxy", "") => options.local_proxy_variable = true,
            ("async", "") => options.sync = false,
            ("staleness", steps) => options.staleness = steps.parse()?,
            ("chunk", size) => chunk_size = size.parse()?,
            ("spec", value) => communication = value,
            ("compressor", value) => compressor = value,
            _ => return Err(format!("\"{word}\" is no option of a builder").into()),
        }
    }
    let parts = PartitionedAllReduce { chunk_size, ..PartitionedAllReduce::default() };
    let builder: Box<dyn StrategyBuilder> = match name {
        "PS" => Box::new(Ps { options }),
        "PSLoadBalancing" => Box::new(PsLoadBalancing { options }),
        "PartitionedPS" => Box::new(PartitionedPs { options, ..PartitionedPs::default() }),
        "UnevenPartitionedPS" => {
            Box::new(PartitionedPs { options, division: Division::Uneven, ..PartitionedPs::default() })
        }
        "Parallax" => Box::new(Parallax { chunk_size, options }),
        "AllReduce" => Box::new(
            AllReduceBuilder::named(chunk_size, communication, compressor)
                .map_err(|error| error.message().to_owned())?,
        ),
        "PartitionedAR" => Box::new(parts),
        "RandomAxisPartitionAR" => {
            Box::new(PartitionedAllReduce { axis: AxisChoice::Random { seed: Some(1) }, ..parts })
        }
        _ => return Err(format!("\"{name}\" is neither a strategy file nor a builder").into()),
    };
    builder.build(item, spec, id).map_err(|error| error.message().into())
}
