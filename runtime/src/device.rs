//! Devices.

use crate::{DeviceSpec, IntraOpPool, ResourceManager};
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
    fn isolated(&self) -> Device {
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
    fn renamed(&self, task: &str, job: &str, isolated: bool) -> Device {
        Device {
            name: format!("{task}{}", self.local_name()),
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

    /// The name within the task, such as `/device:CPU:0`.
    pub fn local_name(&self) -> &str {
        local_name(&self.name)
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

/// The part of a device's name that tells it from others of its task, such as `/device:CPU:0`; the whole name if it has no such part.
pub fn local_name(name: &str) -> &str {
    name.find("/device:").and_then(|at| name.get(at..)).unwrap_or(name)
}

/// The devices of a task, never none. Cloning shares them.
#[derive(Clone)]
pub struct Devices {
    first: Arc<Device>,
    others: Arc<[Arc<Device>]>,
}

impl From<Arc<Device>> for Devices {
    fn from(first: Arc<Device>) -> Devices {
        Devices { first, others: Arc::default() }
    }
}

impl Devices {
    /// The CPU devices of a task, at least one, which share threads. `incarnation` gives each its number.
    pub fn cpus(
        task: &str,
        job: &str,
        count: usize,
        mut incarnation: impl FnMut() -> u64,
        pool: &IntraOpPool,
    ) -> Devices {
        let mut cpu = |index| Arc::new(Device::cpu(task, job, index, incarnation(), pool.clone()));
        Devices { first: cpu(0), others: (1..count).map(cpu).collect() }
    }

    /// The same devices with containers of their own, for a session that shares no state.
    pub fn isolated(&self) -> Devices {
        self.map(Device::isolated)
    }

    /// The same devices as a session calls them whose cluster has the task under another name; with containers of their own if
    /// `isolated`.
    pub fn renamed(&self, task: &str, job: &str, isolated: bool) -> Devices {
        self.map(|device| device.renamed(task, job, isolated))
    }

    fn map(&self, change: impl Fn(&Device) -> Device) -> Devices {
        Devices {
            first: Arc::new(change(&self.first)),
            others: self.others.iter().map(|device| Arc::new(change(device))).collect(),
        }
    }

    /// The device for what asks for none, with which clients exchange tensors.
    pub fn first(&self) -> &Arc<Device> {
        &self.first
    }

    /// All devices.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Device>> {
        std::iter::once(&self.first).chain(self.others.iter())
    }

    /// The device of a full name.
    pub fn find(&self, name: &str) -> Option<&Arc<Device>> {
        self.iter().find(|device| device.name == name)
    }

    /// The device of a full name, by whatever name the task goes in it.
    pub fn find_local(&self, name: &str) -> Option<&Arc<Device>> {
        let wanted = local_name(name);
        self.iter().find(|device| device.local_name() == wanted)
    }

    /// The devices that a name such as `/job:worker/task:0/cpu:1` matches, in which parts may be left open.
    pub fn matching(&self, spec: &DeviceSpec) -> impl Iterator<Item = &Arc<Device>> {
        self.iter().filter(|device| DeviceSpec::parse(&device.name).is_some_and(|own| spec.matches(&own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "/job:a/replica:0/task:0";

    fn names(devices: &Devices) -> Vec<&str> {
        devices.iter().map(|device| device.name()).collect()
    }

    #[test]
    fn devices_are_found_by_name() {
        let mut last = 6;
        let next = || {
            last += 1;
            last
        };
        let devices = Devices::cpus(TASK, "a", 2, next, &IntraOpPool::new(1));
        let second = format!("{TASK}/device:CPU:1");
        assert_eq!(devices.first().name(), format!("{TASK}/device:CPU:0"));
        assert_eq!(devices.find(&second).map(|device| device.incarnation()), Some(8));
        assert!(devices.find("/device:CPU:1").is_none());
        let elsewhere = "/job:b/replica:0/task:3/device:CPU:1";
        assert!(devices.find(elsewhere).is_none());
        assert_eq!(devices.find_local(elsewhere).map(|device| device.name()), Some(second.as_str()));
        assert!(devices.find_local("/device:CPU:2").is_none());
        let matching = |name: &str| devices.matching(&DeviceSpec::parse(name).unwrap()).count();
        assert_eq!(["/cpu:1", "/job:a", "/job:b", "/gpu:0", ""].map(matching), [1, 2, 0, 0, 2]);
    }

    #[test]
    fn sessions_may_see_them_otherwise() {
        let devices = Devices::cpus(TASK, "a", 2, || 5, &IntraOpPool::new(1));
        let shared = devices.renamed("/job:b/replica:0/task:1", "b", false);
        assert_eq!(names(&shared), ["/job:b/replica:0/task:1/device:CPU:0", "/job:b/replica:0/task:1/device:CPU:1"]);
        let is_shared = |other: &Devices| {
            let pairs = devices.iter().zip(other.iter());
            pairs.map(|(a, b)| Arc::ptr_eq(a.resources(), b.resources())).collect::<Vec<_>>()
        };
        assert_eq!(is_shared(&shared), [true, true]);
        let isolated = devices.isolated();
        assert_eq!((names(&isolated), is_shared(&isolated)), (names(&devices), vec![false, false]));
        assert!(isolated.iter().all(|device| device.incarnation() == 5));
    }
}
