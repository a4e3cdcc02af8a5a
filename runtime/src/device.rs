//! Devices.

use crate::{IntraOpPool, ResourceManager};
use std::sync::Arc;

/// A device: where kernels run and resources live.
pub struct Device {
    name: String,
    device_type: String,
    incarnation: u64,
    default_container: String,
    resources: Arc<ResourceManager>,
    pool: IntraOpPool,
}

impl Device {
    /// The CPU device `index` of a task such as `/job:worker/replica:0/task:0`, whose job names the default container.
    pub fn cpu(task: &str, job: &str, index: usize, incarnation: u64, pool: IntraOpPool) -> Device {
        Device {
            name: format!("{task}/device:CPU:{index}"),
            device_type: "CPU".to_owned(),
            incarnation,
            default_container: job.to_owned(),
            resources: Arc::new(ResourceManager::new()),
            pool,
        }
    }

    /// The same device with containers of its own, for a session that shares no state.
    pub fn isolated(&self) -> Device {
        Device {
            name: self.name.clone(),
            device_type: self.device_type.clone(),
            incarnation: self.incarnation,
            default_container: self.default_container.clone(),
            resources: Arc::new(ResourceManager::new()),
            pool: self.pool.clone(),
        }
    }

    /// The same device as a session calls it whose cluster has the task under another name; with containers of its own if `isolated`.
    pub fn renamed(&self, task: &str, job: &str, isolated: bool) -> Device {
        let local = self.name.find("/device:").and_then(|at| self.name.get(at..)).unwrap_or_default();
        Device {
            name: format!("{task}{local}"),
            device_type: self.device_type.clone(),
            incarnation: self.incarnation,
            default_container: job.to_owned(),
            resources: if isolated { Arc::new(ResourceManager::new()) } else { self.resources.clone() },
            pool: self.pool.clone(),
        }
    }

    /// The full name, such as `/job:worker/replica:0/task:0/device:CPU:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type: `CPU`.
    pub fn device_type(&self) -> &str {
        &self.device_type
    }

    /// A random non-zero number that changes when the process restarts.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The container of resources that name none: the job's name.
    pub fn default_container(&self) -> &str {
        &self.default_container
    }

    /// The state that lives here.
    pub fn resources(&self) -> &Arc<ResourceManager> {
        &self.resources
    }

    /// The threads for loops within kernels.
    pub fn pool(&self) -> &IntraOpPool {
        &self.pool
    }
}
