//! Splits the variables of a graph: `partition IN.pb OUT.pb even|uneven|SEED`, where the files hold a MetaGraphDef. A seed chooses axes at random.

use graphmill_autodist::builders::{AxisChoice, Division, PartitionedAllReduce, PartitionedPs, StrategyBuilder};
use graphmill_autodist::compiler::CompiledStrategy;
use graphmill_autodist::item::GraphItem;
use graphmill_autodist::resources::{ClusterLayout, PortCounter, ResourceSpec};
use graphmill_autodist::transform::partition_variables;
use graphmill_wire::tensorflow::MetaGraphDef;
use prost::Message;
use std::error::Error;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [input, output, how] = &arguments[..] else {
        return Err("usage: partition IN.pb OUT.pb even|uneven|SEED".into());
    };
    let builder: Box<dyn StrategyBuilder> = match how.as_str() {
        "even" => Box::new(PartitionedPs::default()),
        "uneven" => Box::new(PartitionedPs { division: Division::Uneven, ..PartitionedPs::default() }),
        seed => {
            let axis = AxisChoice::Random { seed: Some(seed.parse()?) };
            Box::new(PartitionedAllReduce { axis, ..PartitionedAllReduce::default() })
        }
    };
    let item =
        GraphItem::from_meta_graph(MetaGraphDef::decode(&*fs::read(input)?)?).map_err(|error| error.to_string())?;
    let write = || -> graphmill_tensor::Result<GraphItem> {
        let spec = ResourceSpec::parse("nodes: [{address: localhost, cpus: [0, 1]}]")?;
        let layout = ClusterLayout::new(&spec, &mut PortCounter::new())?;
        let strategy = builder.build(&item, &spec, "example")?;
        partition_variables(&item, &CompiledStrategy::new(&strategy, &item, &spec, &layout)?)
    };
    let split = write().map_err(|error| error.to_string())?;
    fs::write(output, split.to_meta_graph().encode_to_vec())?;
    Ok(())
}
