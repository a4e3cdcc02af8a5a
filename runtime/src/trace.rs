//! What ran when in a step, for timelines.

use crate::{Device, NodeInfo, Value};
use graphmill_tensor::{DType, Shape};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records the nodes that run.
pub struct Trace {
    began: Instant,
    /// Time since 1970 at `began`.
    epoch: Duration,
    nodes: Mutex<Vec<NodeTrace>>,
}

/// One run of a node. Times count from 1970.
#[derive(Clone)]
pub struct NodeTrace {
    /// The node's name.
    pub name: Arc<str>,
    /// The op.
    pub op: Arc<str>,
    /// Where it ran.
    pub device: Arc<Device>,
    /// When its kernel started.
    pub started: Duration,
    /// When its kernel had ended.
    pub ended: Duration,
    /// Number of the thread that it ended on; threads count from 0 as they first record something.
    pub thread: u32,
    /// Slot, type and shape of the outputs that are tensors.
    pub outputs: SmallVec<[(usize, DType, Shape); 1]>,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Trace { began: Instant::now(), epoch, nodes: Mutex::default() }
    }

    /// Notes a node that ends now.
    pub(crate) fn record(&self, (node, device): (&NodeInfo, &Arc<Device>), started: Instant, outputs: &[Value]) {
        let ended = self.since_epoch(Instant::now());
        let described = outputs.iter().enumerate().filter_map(|(slot, value)| match value {
            Value::Tensor(tensor) => Some((slot, tensor.dtype(), tensor.shape().clone())),
            _ => None,
        });
        let trace = NodeTrace {
            name: node.name.clone(),
            op: node.op.clone(),
            device: device.clone(),
            started: self.since_epoch(started),
            ended,
            thread: thread_number(),
            outputs: described.collect(),
        };
        self.nodes.lock().push(trace);
    }

    /// What has been recorded, in the order in which the nodes ended.
    pub fn nodes(&self) -> Vec<NodeTrace> {
        self.nodes.lock().clone()
    }

    fn since_epoch(&self, at: Instant) -> Duration {
        self.epoch + at.saturating_duration_since(self.began)
    }
}

fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(u32::MAX)
}
