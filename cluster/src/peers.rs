//! The tasks of a cluster as one of them sees them.

use crate::ClusterSpec;
use crate::grpc::Channel;
use crate::stream::StreamReceiver;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The own task's name, and the ways to the other tasks.
pub(crate) struct Peers {
    own: String,
    others: BTreeMap<String, Peer>,
}

struct Peer {
    channel: Arc<Channel>,
    stream: Arc<StreamReceiver>,
}

impl Peers {
    /// The tasks of `cluster`, of which one is called `own`.
    pub fn new(own: &str, cluster: &ClusterSpec) -> Peers {
        let mut others = BTreeMap::new();
        for job in cluster.jobs() {
            for (&task, address) in cluster.job(job).into_iter().flatten() {
                let name = task_name(job, task);
                if name != own {
                    let channel = Arc::new(Channel::new(&name, address));
                    let stream = StreamReceiver::new(&name, address);
                    others.insert(name, Peer { channel, stream });
                }
            }
        }
        Peers { own: own.to_owned(), others }
    }

    /// The own task's name.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// The way to another task.
    pub fn channel(&self, task: &str) -> Option<&Arc<Channel>> {
        self.others.get(task).map(|peer| &peer.channel)
    }

    /// The stream on which tensors come from another task, if that is known to be one of graphmill's.
    pub fn stream(&self, task: &str) -> Option<&Arc<StreamReceiver>> {
        self.others.get(task).filter(|peer| peer.channel.serves_streams()).map(|peer| &peer.stream)
    }

    /// The streams from all other tasks.
    pub fn streams(&self) -> impl Iterator<Item = &Arc<StreamReceiver>> {
        self.others.values().map(|peer| &peer.stream)
    }

    /// The ways to all other tasks, sorted by name.
    pub fn others(&self) -> impl Iterator<Item = &Arc<Channel>> {
        self.others.values().map(|peer| &peer.channel)
    }
}

/// The name of a task, such as `/job:ps/replica:0/task:0`.
pub(crate) fn task_name(job: &str, task: u32) -> String {
    format!("/job:{job}/replica:0/task:{task}")
}

/// The task of a device such as `/job:ps/replica:0/task:0/device:CPU:0`.
pub(crate) fn task_of(device: &str) -> &str {
    device.find("/device:").map_or(device, |end| device.get(..end).unwrap_or(device))
}
