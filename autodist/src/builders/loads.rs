//! The bytes that each device of parameter servers holds.

use crate::resources::ResourceSpec;

/// Devices with their loads. Parts of variables make fractions, which are added as AutoDist adds them.
pub(super) struct Loads {
    devices: Vec<(String, f64)>,
}

impl Loads {
    /// All destinations of the cluster, holding nothing.
    pub fn new(spec: &ResourceSpec) -> Loads {
        Loads { devices: spec.destinations().iter().map(|device| (device.to_string(), 0.0)).collect() }
    }

    /// How many devices there are; at least one.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// Puts a variable on the least loaded device, the first of several.
    pub fn place(&mut self, bytes: u64) -> String {
        self.place_parts(bytes, 1).remove(0)
    }

    /// Spreads the parts of a variable over the devices, from the least loaded up, and round again if there are more parts.
    pub fn place_parts(&mut self, bytes: u64, parts: usize) -> Vec<String> {
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        order.sort_by(|&a, &b| self.devices[a].1.total_cmp(&self.devices[b].1));
        let chosen = order.into_iter().cycle().take(parts);
        chosen
            .map(|i| {
                self.devices[i].1 += bytes as f64 / parts as f64;
                self.devices[i].0.clone()
            })
            .collect()
    }

    #[cfg(test)]
    pub fn of(&self, device: usize) -> f64 {
        self.devices[device].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_start_at_the_least_loaded_device() {
        let text = "launcher: external\nnodes:\n  - {address: 10.0.0.1, chief: true}\n  - {address: 10.0.0.2}\n";
        let mut loads = Loads::new(&ResourceSpec::parse(text).unwrap());
        assert_eq!(loads.place_parts(640_000, 3), ["10.0.0.1:CPU:0", "10.0.0.2:CPU:0", "10.0.0.1:CPU:0"]);
        assert_eq!(loads.place_parts(1024, 3), ["10.0.0.2:CPU:0", "10.0.0.1:CPU:0", "10.0.0.2:CPU:0"]);
        assert_eq!(loads.place_parts(64, 3), ["10.0.0.2:CPU:0", "10.0.0.1:CPU:0", "10.0.0.2:CPU:0"]);
        assert!((loads.of(0) - 427_029.33).abs() < 0.01);
        assert!((loads.of(1) - 214_058.67).abs() < 0.01);
    }
}
