//! Broadcasts: along a tree of tasks, and within each task along a tree of devices.

use crate::progress::Progress;
use crate::sections::devices_per_task;
use graphmill_runtime::CollectiveMember;
use graphmill_tensor::{Result, Tensor};
use std::sync::Arc;

/// What one device does in a broadcast.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Where the tensor comes from; the source has it.
    from: Option<Edge>,
    to: Vec<Edge>,
}

/// The way of the tensor from or to another device.
#[derive(Debug, PartialEq, Eq)]
struct Edge {
    /// The rank of the other device in the group.
    device: usize,
    /// The tree, and the places of the sender and the receiver in it.
    tree: usize,
    sender: usize,
    receiver: usize,
}

/// What the device of a rank does where another one has the tensor. In TensorFlow this is `HierarchicalTreeBroadcast`.
fn plan(members: &[CollectiveMember], rank: usize, source: usize) -> Plan {
    let per_task = devices_per_task(members);
    let mut plan = Plan::default();
    let mut trees = Vec::new();
    let mut first = 0;
    let mut between_tasks = (Vec::new(), 0);
    for (task, &count) in per_task.iter().enumerate() {
        let devices: Vec<usize> = (first..first + count).collect();
        let holds_source = devices.contains(&source);
        if holds_source {
            between_tasks.1 = task;
        }
        between_tasks.0.push(if holds_source { source } else { first });
        trees.push((devices, if holds_source { source - first } else { 0 }));
        first += count;
    }
    if per_task.len() > 1 {
        trees.insert(0, between_tasks);
    }
    for (tree, (devices, root)) in trees.into_iter().enumerate() {
        let Some(own) = devices.iter().position(|&device| device == rank) else { continue };
        let edge = |other: usize, sender, receiver| Edge { device: devices[other], tree, sender, receiver };
        if own != root {
            let parent = parent(own, root);
            plan.from = Some(edge(parent, parent, own));
        }
        let children = children(own, root, devices.len(), rank == source);
        plan.to.extend(children.into_iter().map(|child| edge(child, own, child)));
    }
    plan
}

/// Where a place of a tree other than the root gets the tensor from. A root other than 0 counts as standing before all others too.
fn parent(place: usize, root: usize) -> usize {
    if root == 0 { place.saturating_sub(1) / 2 } else { (place / 2).checked_sub(1).unwrap_or(root) }
}

/// Whom a place of a tree gives the tensor.
fn children(place: usize, root: usize, size: usize, is_source: bool) -> Vec<usize> {
    let mut children = Vec::new();
    if is_source && root != 0 {
        children.push(0);
        if size > 2 && root != 1 {
            children.push(1);
        }
    }
    let next = if root == 0 { 2 * place + 1 } else { 2 * (place + 1) };
    children.extend((next..next + 2).filter(|&child| child < size && child != root));
    children
}

/// Gives the tensor on, the own one or that which comes.
pub(crate) fn start(progress: Arc<Progress>, source: usize, input: Option<Tensor>, elements: usize) {
    let plan = plan(&progress.instance.members, progress.instance.rank, source);
    let key = |edge: &Edge| format!("{}:{}:{}:{}", progress.key, edge.tree, edge.sender, edge.receiver);
    let sends: Vec<(usize, String)> = plan.to.iter().map(|edge| (edge.device, key(edge))).collect();
    match (input, plan.from) {
        (None, Some(edge)) => {
            let (from, key) = (edge.device, key(&edge));
            let then = {
                let progress = progress.clone();
                move |tensor: Tensor| give(&progress, sends, &tensor)
            };
            progress.fetch(from, key, elements, then);
        }
        (Some(tensor), _) => {
            if let Err(error) = give(&progress, sends, &tensor) {
                progress.fail(error);
            }
        }
        (None, None) => progress.fail(graphmill_tensor::internal!("The source of a broadcast has nothing to send")),
    }
}

fn give(progress: &Arc<Progress>, sends: Vec<(usize, String)>, tensor: &Tensor) -> Result<()> {
    for (to, key) in sends {
        progress.post(to, key, tensor.clone());
    }
    progress.place(0, tensor)?;
    progress.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(tasks: &[usize]) -> Vec<CollectiveMember> {
        let member = |(device, task): (usize, &usize)| CollectiveMember {
            device: device.to_string(),
            task: task.to_string(),
            incarnation: 1,
        };
        tasks.iter().enumerate().map(member).collect()
    }

    #[test]
    fn everybody_gets_the_tensor_once_from_somebody_who_sends_it() {
        for tasks in [vec![0], vec![0, 1], vec![0, 0, 0, 0, 0], vec![0, 1, 2, 3, 4, 5, 6], vec![0, 0, 1, 1, 1, 2]] {
            let members = members(&tasks);
            for source in 0..members.len() {
                let plans: Vec<Plan> = (0..members.len()).map(|rank| plan(&members, rank, source)).collect();
                let mut sent: Vec<(usize, usize, usize, usize)> = Vec::new();
                for plan in &plans {
                    sent.extend(plan.to.iter().map(|edge| (edge.device, edge.tree, edge.sender, edge.receiver)));
                }
                let mut got: Vec<(usize, usize, usize, usize)> = Vec::new();
                for (rank, plan) in plans.iter().enumerate() {
                    assert_eq!(plan.from.is_none(), rank == source, "{tasks:?} {source} {rank}");
                    got.extend(plan.from.iter().map(|edge| (rank, edge.tree, edge.sender, edge.receiver)));
                }
                sent.sort_unstable();
                got.sort_unstable();
                assert_eq!(sent, got, "{tasks:?} {source}");
            }
        }
    }

    #[test]
    fn two_tasks_use_the_first_tree() {
        let plan = plan(&members(&[0, 1]), 1, 0);
        assert_eq!(plan.from, Some(Edge { device: 0, tree: 0, sender: 0, receiver: 1 }));
    }
}
