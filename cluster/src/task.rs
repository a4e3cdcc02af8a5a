//! What the master and the worker of one server share.

use crate::collective::{CollectiveState, Leader};
use crate::exchange::Exchanges;
use crate::network::Network;
use crate::peers::{Peers, task_name};
use crate::waits::{Creations, Receives};
use crate::{Random, ServerConfig};
use graphmill_runtime::{Device, Devices, Executor, IntraOpPool, Registry};
use graphmill_wire::tensorflow::{DeviceAttributes, DeviceLocality};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a device reports as its memory, as TensorFlow's CPU devices do.
const MEMORY_LIMIT: i64 = 256 << 20;

/// One task of a cluster: its devices, its kernels and its threads.
pub(crate) struct Task {
    /// The full name, such as `/job:worker/replica:0/task:0`.
    pub name: String,
    pub devices: Devices,
    pub registry: Arc<Registry>,
    pub executor: Executor,
    pub random: Arc<Random>,
    /// What connects tasks with each other.
    pub network: Arc<dyn Network>,
    /// The tasks of the cluster.
    pub peers: Arc<Peers>,
    /// What the parts of steps exchange here.
    pub exchanges: Exchanges,
    /// What steps wait for from other tasks.
    pub receives: Arc<Receives>,
    /// Sessions that are being made.
    pub creations: Creations,
    /// What the task knows of collective operations.
    pub collectives: Arc<CollectiveState>,
    /// Where calls to other tasks wait for their answers.
    pub runtime: Handle,
}

impl Task {
    /// The task of this job and index, with the settings of its server that concern it.
    pub fn new(
        (job, index): (&str, u32),
        config: &ServerConfig,
        leader: Leader,
        registry: Registry,
        (network, runtime): (Arc<dyn Network>, Handle),
    ) -> Task {
        let (intra_op_threads, inter_op_threads) = config.threads();
        let name = task_name(job, index);
        let random = config.random.clone();
        let peers = Arc::new(Peers::new(&name, &config.cluster, &network));
        let pool = IntraOpPool::new(intra_op_threads);
        let devices = Devices::cpus(&name, job, config.cpu_devices(), || random.next_non_zero(), &pool);
        Task {
            name,
            devices,
            registry: Arc::new(registry),
            executor: Executor::new(inter_op_threads),
            collectives: Arc::new(CollectiveState::new(
                leader,
                config.recv_buf_max_chunk,
                random.clone(),
                runtime.clone(),
            )),
            random,
            network,
            peers,
            exchanges: Exchanges::default(),
            receives: Arc::default(),
            creations: Creations::default(),
            runtime,
        }
    }

    /// Clears containers, without names the default one.
    pub fn clear_containers(&self, names: &[String]) {
        for device in self.devices.iter() {
            let resources = device.resources();
            if names.is_empty() {
                resources.cleanup(device.default_container());
            }
            names.iter().for_each(|name| resources.cleanup(name));
        }
    }

    /// The devices as a worker reports them.
    pub fn device_attributes(&self) -> Vec<DeviceAttributes> {
        self.devices.iter().map(|device| attributes_of(device)).collect()
    }
}

/// A device as a worker reports it.
pub(crate) fn attributes_of(device: &Device) -> DeviceAttributes {
    DeviceAttributes {
        name: device.name().to_owned(),
        device_type: device.device_type().to_owned(),
        memory_limit: MEMORY_LIMIT,
        locality: Some(DeviceLocality::default()),
        incarnation: device.incarnation(),
        physical_device_desc: String::new(),
        xla_global_id: -1,
    }
}
