//! Whether a strategy fits a graph and a cluster.

use super::{Layout, Split, Strategy, Synchronizer, VariableStrategy};
use crate::item::{GraphItem, Variable};
use crate::resources::{DeviceName, ResourceSpec};
use graphmill_tensor::{Result, Status, invalid_argument};

/// Checks a strategy against the graph and the cluster that it is for, and drops the entries of variables that the graph does
/// not train. Variables that a loop or branch reads cannot be split and stay whole. What changes is told in the list.
///
/// # Errors
/// `INVALID_ARGUMENT`, naming the variable or device, for parts that do not fit the variable, sparse variables that are not
/// split on axis 0, devices that do not exist, and a chief without replica.
pub fn validate(strategy: &mut Strategy, item: &GraphItem, spec: &ResourceSpec) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let mut kept = Vec::with_capacity(strategy.variables.len());
    for mut entry in strategy.variables.drain(..) {
        match item.variable(&entry.variable).filter(|variable| item.update(&variable.name).is_some()) {
            Some(variable) => {
                check_entry(&entry, variable, item, spec).map_err(|error: Status| {
                    let message = format!("Strategy of variable \"{}\": {}", entry.variable, error.message());
                    error.with_message(message)
                })?;
                if kept.iter().any(|other: &VariableStrategy| other.variable == entry.variable) {
                    return Err(invalid_argument!("Strategy of variable \"{}\": it is there twice", entry.variable));
                }
                if let Some(synchronizer) = whole_instead(&entry, variable, item) {
                    warnings.push(format!("Variable \"{}\" stays whole, as a loop or branch reads it", entry.variable));
                    entry.layout = Layout::Whole(synchronizer);
                }
                kept.push(entry);
            }
            None => warnings.push(format!(
                "The strategy's entry for \"{}\" has no effect: the graph trains no such variable",
                entry.variable
            )),
        }
    }
    strategy.variables = kept;
    let mut chief_has_replica = false;
    for (i, replica) in strategy.replicas.iter().enumerate() {
        let node = find_device(replica, spec).map_err(|error| invalid_argument!("Replica {i}: {}", error.message()))?;
        chief_has_replica |= node == spec.chief().name;
        if strategy.replicas[..i].contains(replica) {
            return Err(invalid_argument!("Replica {i}: \"{replica}\" is there twice"));
        }
    }
    if !chief_has_replica {
        return Err(invalid_argument!("No replica is on the chief \"{}\"; give it one", spec.chief().name));
    }
    Ok(warnings)
}

/// For a variable that is to be split but feeds control flow, the synchronizer of its first part.
fn whole_instead(entry: &VariableStrategy, variable: &Variable, item: &GraphItem) -> Option<Synchronizer> {
    match &entry.layout {
        Layout::Split(split) if item.is_under_control_flow(variable) => {
            split.parts.first().map(|part| part.synchronizer.clone())
        }
        _ => None,
    }
}

fn check_entry(entry: &VariableStrategy, variable: &Variable, item: &GraphItem, spec: &ResourceSpec) -> Result<()> {
    for (_, synchronizer) in entry.leaves() {
        if let Synchronizer::ParameterServer(server) = synchronizer {
            find_device(&server.destination, spec)?;
            if server.staleness > 0 && !server.sync {
                return Err(invalid_argument!("staleness {} needs sync; set sync, or staleness 0", server.staleness));
            }
        }
    }
    match &entry.layout {
        Layout::Whole(_) => Ok(()),
        Layout::Split(split) => check_split(split, variable, item),
    }
}

fn check_split(split: &Split, variable: &Variable, item: &GraphItem) -> Result<()> {
    let partitioner = split.partitioner;
    if split.parts.len() != partitioner.parts() {
        return Err(invalid_argument!(
            "partitioner \"{partitioner}\" needs {} parts, not {}",
            partitioner.parts(),
            split.parts.len()
        ));
    }
    let Some(dims) = variable.shape.dims() else {
        return Err(invalid_argument!("its shape is not known, so it cannot be split"));
    };
    if dims.len() != partitioner.rank() {
        return Err(invalid_argument!("partitioner \"{partitioner}\" does not fit the shape {}", variable.shape));
    }
    let size = dims.get(partitioner.axis()).copied().unwrap_or(-1);
    let size = u64::try_from(size).map_err(|_| {
        invalid_argument!("the size of axis {} is not known, so it cannot be split", partitioner.axis())
    })?;
    partitioner.ranges(size)?;
    if item.is_sparse(&variable.name) && partitioner.axis() != 0 {
        return Err(invalid_argument!(
            "its gradient is sparse, so only axis 0 can be split, not axis {}",
            partitioner.axis()
        ));
    }
    Ok(())
}

/// The name of the node that has the device.
fn find_device<'a>(device: &str, spec: &'a ResourceSpec) -> Result<&'a str> {
    let device: DeviceName = device.parse()?;
    match spec.node_of(&device) {
        Some(node) => Ok(&node.name),
        None => Err(invalid_argument!("the resource file has no device \"{device}\"")),
    }
}
