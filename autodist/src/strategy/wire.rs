//! Strategies as messages.

use super::{
    AllReduce, Communication, Compressor, Layout, ParameterServer, Part, Partitioner, Split, Strategy, Synchronizer,
    VariableStrategy, part_name,
};
use crate::proto::all_reduce_synchronizer::{Compressor as WireCompressor, Spec};
use crate::proto::strategy::node::Synchronizer as WireSynchronizer;
use crate::proto::strategy::{GraphConfig, Node};
use crate::proto::{self, AllReduceSynchronizer, PsSynchronizer};
use graphmill_tensor::{Result, Status, data_loss, invalid_argument};
use prost::Message;

impl Strategy {
    /// The bytes of a strategy file.
    pub fn encode(&self) -> Vec<u8> {
        self.to_proto().encode_to_vec()
    }

    /// Reads what [`Strategy::encode`] or AutoDist wrote. `rank_of` gives the rank of a variable by the name of its tensor;
    /// only files from before April 2020, which split without saying the rank, need it.
    ///
    /// # Errors
    /// `DATA_LOSS` for bytes that are not a whole strategy, `INVALID_ARGUMENT` for entries that make no sense, naming the variable.
    pub fn decode(bytes: &[u8], rank_of: impl Fn(&str) -> Option<usize>) -> Result<Strategy> {
        let message = proto::Strategy::decode(bytes)
            .map_err(|error| data_loss!("damaged or cut short ({error}); write it again"))?;
        // The replicas come last, so that a file cut at the end of an entry lacks them.
        let Some(graph_config) = message.graph_config else {
            return Err(data_loss!("it names no replicas, so it is cut short or no strategy; write it again"));
        };
        let variables = message.node_config.into_iter().map(|node| read_node(node, &rank_of)).collect::<Result<_>>()?;
        Ok(Strategy { id: message.id, path: message.path, variables, replicas: graph_config.replicas })
    }

    /// The message of AutoDist's files.
    pub fn to_proto(&self) -> proto::Strategy {
        proto::Strategy {
            id: self.id.clone(),
            path: self.path.clone(),
            node_config: self.variables.iter().map(write_node).collect(),
            graph_config: Some(GraphConfig { replicas: self.replicas.clone() }),
        }
    }
}

fn write_node(variable: &VariableStrategy) -> Node {
    let mut node = Node { var_name: variable.variable.clone(), ..Node::default() };
    match &variable.layout {
        Layout::Whole(synchronizer) => node.synchronizer = Some(write_synchronizer(synchronizer)),
        Layout::Split(split) => {
            node.partitioner = split.partitioner.to_string();
            node.part_config = split.parts.iter().map(write_part).collect();
        }
    }
    node
}

fn write_part(part: &Part) -> Node {
    let synchronizer = Some(write_synchronizer(&part.synchronizer));
    Node { var_name: part.name.clone(), synchronizer, ..Node::default() }
}

fn write_synchronizer(synchronizer: &Synchronizer) -> WireSynchronizer {
    match synchronizer {
        Synchronizer::ParameterServer(server) => WireSynchronizer::PsSynchronizer(PsSynchronizer {
            reduction_destination: vec![server.destination.clone()],
            local_replication: server.local_replication,
            sync: server.sync,
            // Reading and building keep it in range.
            staleness: i32::try_from(server.staleness).unwrap_or(i32::MAX),
        }),
        Synchronizer::AllReduce(reduce) => WireSynchronizer::AllReduceSynchronizer(AllReduceSynchronizer {
            spec: match reduce.communication {
                Communication::Auto => Spec::Auto,
                Communication::Nccl => Spec::Nccl,
                Communication::Ring => Spec::Ring,
            } as i32,
            compressor: match reduce.compressor {
                Compressor::None => WireCompressor::NoneCompressor,
                Compressor::Horovod => WireCompressor::HorovodCompressor,
                Compressor::HorovodErrorFeedback => WireCompressor::HorovodCompressorEf,
                Compressor::PowerSgd => WireCompressor::PowerSgdCompressor,
            } as i32,
            group: i32::try_from(reduce.group).unwrap_or(i32::MAX),
        }),
    }
}

fn read_node(node: Node, rank_of: impl Fn(&str) -> Option<usize>) -> Result<VariableStrategy> {
    let variable = node.var_name.clone();
    let context = |error: Status| {
        let message = format!("Strategy of variable \"{variable}\": {}", error.message());
        error.with_message(message)
    };
    let layout = read_layout(node, rank_of).map_err(context)?;
    Ok(VariableStrategy { variable, layout })
}

fn read_layout(node: Node, rank_of: impl Fn(&str) -> Option<usize>) -> Result<Layout> {
    if node.partitioner.is_empty() {
        if !node.part_config.is_empty() {
            return Err(invalid_argument!("it has parts but no partitioner; give one, such as \"2,1\""));
        }
        return match node.synchronizer {
            None => {
                Err(invalid_argument!("it has no synchronizer; give it a PSSynchronizer or an AllReduceSynchronizer"))
            }
            Some(WireSynchronizer::PsSynchronizer(server)) if server.reduction_destination.len() > 1 => {
                read_legacy_split(&node.var_name, server, rank_of(&node.var_name))
            }
            Some(synchronizer) => Ok(Layout::Whole(read_synchronizer(synchronizer)?)),
        };
    }
    if node.synchronizer.is_some() {
        return Err(invalid_argument!("it is split and has a synchronizer of its own; only its parts may have one"));
    }
    let partitioner = Partitioner::parse(&node.partitioner)?;
    if node.part_config.len() != partitioner.parts() {
        return Err(invalid_argument!(
            "partitioner \"{}\" makes {} parts, but {} are described",
            node.partitioner,
            partitioner.parts(),
            node.part_config.len()
        ));
    }
    let parts = node.part_config.into_iter().map(read_part).collect::<Result<_>>()?;
    Ok(Layout::Split(Split { partitioner, parts }))
}

fn read_part(part: Node) -> Result<Part> {
    if !part.partitioner.is_empty() || !part.part_config.is_empty() {
        return Err(invalid_argument!("part \"{}\" is split again; parts must be whole", part.var_name));
    }
    let Some(synchronizer) = part.synchronizer else {
        return Err(invalid_argument!("part \"{}\" has no synchronizer", part.var_name));
    };
    Ok(Part { synchronizer: read_synchronizer(synchronizer)?, name: part.var_name })
}

/// Until April 2020 several destinations meant a split on axis 0.
fn read_legacy_split(variable: &str, server: PsSynchronizer, rank: Option<usize>) -> Result<Layout> {
    let Some(rank) = rank else {
        return Err(invalid_argument!(
            "it names several destinations, as files did before April 2020; read the file together with its graph"
        ));
    };
    let partitioner = Partitioner::new(rank, 0, server.reduction_destination.len())?;
    let staleness = read_staleness(&server)?;
    let make_part = |(i, destination): (usize, &String)| Part {
        name: part_name(variable, i),
        synchronizer: Synchronizer::ParameterServer(ParameterServer {
            destination: destination.clone(),
            local_replication: server.local_replication,
            sync: server.sync,
            staleness,
        }),
    };
    let parts = server.reduction_destination.iter().enumerate().map(make_part).collect();
    Ok(Layout::Split(Split { partitioner, parts }))
}

fn read_staleness(server: &PsSynchronizer) -> Result<u32> {
    let staleness = u32::try_from(server.staleness)
        .map_err(|_| invalid_argument!("staleness is {} but cannot be below 0", server.staleness))?;
    if staleness > 0 && !server.sync {
        return Err(invalid_argument!("staleness {staleness} needs sync; set sync, or staleness 0"));
    }
    Ok(staleness)
}

fn read_synchronizer(synchronizer: WireSynchronizer) -> Result<Synchronizer> {
    match synchronizer {
        WireSynchronizer::PsSynchronizer(mut server) => {
            let staleness = read_staleness(&server)?;
            let destination = server.reduction_destination.pop().unwrap_or_default();
            if destination.is_empty() || !server.reduction_destination.is_empty() {
                return Err(invalid_argument!(
                    "it needs exactly one reduction destination, such as \"10.0.0.1:CPU:0\""
                ));
            }
            let PsSynchronizer { local_replication, sync, .. } = server;
            Ok(Synchronizer::ParameterServer(ParameterServer { destination, local_replication, sync, staleness }))
        }
        WireSynchronizer::AllReduceSynchronizer(reduce) => Ok(Synchronizer::AllReduce(AllReduce {
            communication: match Spec::try_from(reduce.spec) {
                Ok(Spec::Auto) => Communication::Auto,
                Ok(Spec::Nccl) => Communication::Nccl,
                Ok(Spec::Ring) => Communication::Ring,
                Err(_) => return Err(invalid_argument!("there is no all-reduce spec of number {}", reduce.spec)),
            },
            compressor: match WireCompressor::try_from(reduce.compressor) {
                Ok(WireCompressor::NoneCompressor) => Compressor::None,
                Ok(WireCompressor::HorovodCompressor) => Compressor::Horovod,
                Ok(WireCompressor::HorovodCompressorEf) => Compressor::HorovodErrorFeedback,
                Ok(WireCompressor::PowerSgdCompressor) => Compressor::PowerSgd,
                Err(_) => return Err(invalid_argument!("there is no compressor of number {}", reduce.compressor)),
            },
            group: u32::try_from(reduce.group)
                .map_err(|_| invalid_argument!("group is {} but cannot be below 0", reduce.group))?,
        })),
    }
}
