//! The devices that nodes may be placed on.

use super::PlacementDevice;
use super::specs::{SpecId, Specs};
use crate::DeviceSpec;
use graphmill_tensor::{Result, failed_precondition, internal};
use std::collections::HashMap;
use std::sync::Arc;

/// A set of device types, by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Types(pub u64);

/// One device.
pub(super) struct Device {
    pub name: Arc<str>,
    pub parsed: DeviceSpec,
    /// The same by number.
    pub spec: SpecId,
    /// The bit of its type.
    pub types: Types,
}

/// All devices, best first.
pub(super) struct Devices {
    pub all: Vec<Device>,
    /// The types, best first.
    pub types: Vec<String>,
    /// What the tasks of this process's devices have in common.
    pub local: DeviceSpec,
    by_name: HashMap<Arc<str>, usize>,
}

impl Devices {
    pub(super) fn new(given: &[PlacementDevice], specs: &mut Specs) -> Result<Devices> {
        if given.is_empty() {
            return Err(failed_precondition!("No devices are registered"));
        }
        let mut types: Vec<String> = given.iter().map(|device| device.device_type.clone()).collect();
        types.sort_unstable_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| a.cmp(b)));
        types.dedup();
        if types.len() > u64::BITS as usize {
            return Err(internal!("There are more than {} types of devices", u64::BITS));
        }
        let mut sorted: Vec<&PlacementDevice> = given.iter().collect();
        sorted.sort_by(|a, b| {
            let by_type = priority(&b.device_type).cmp(&priority(&a.device_type));
            by_type.then_with(|| b.local.cmp(&a.local)).then_with(|| a.name.cmp(&b.name))
        });
        let mut devices = Devices {
            all: Vec::new(),
            types,
            local: DeviceSpec::default(),
            by_name: HashMap::with_capacity(given.len()),
        };
        for device in sorted {
            let Some(parsed) = DeviceSpec::parse(&device.name).filter(DeviceSpec::is_full) else {
                return Err(internal!("Malformed device name '{}'", device.name));
            };
            if device.local {
                devices.local = parsed.clone().without_device();
            }
            let bit = devices.types.iter().position(|known| *known == device.device_type).unwrap_or(0);
            let name: Arc<str> = Arc::from(device.name.as_str());
            devices.by_name.insert(name.clone(), devices.all.len());
            let spec = specs.add(parsed.clone());
            devices.all.push(Device { name, parsed, spec, types: Types(1 << bit) });
        }
        Ok(devices)
    }

    /// All types.
    pub(super) fn all_types(&self) -> Types {
        Types((0..self.types.len()).fold(0, |bits, at| bits | 1 << at))
    }

    /// The number of a device.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The devices that a name matches and that are of one of the types, best first.
    pub(super) fn matching(&self, spec: &DeviceSpec, types: Types) -> Vec<usize> {
        let fits = |device: &Device| device.types.0 & types.0 != 0 && spec.matches(&device.parsed);
        self.all.iter().enumerate().filter(|(_, device)| fits(device)).map(|(at, _)| at).collect()
    }

    /// The names, for texts.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<&str> = self.all.iter().map(|device| &*device.name).collect();
        names.sort_unstable();
        names.join(", ")
    }
}

/// Types of higher numbers are preferred.
fn priority(device_type: &str) -> u32 {
    match device_type {
        "GPU" => 210,
        "CPU" => 70,
        _ => 0,
    }
}
