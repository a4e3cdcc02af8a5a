//! How many devices a task has.

use graphmill_cluster::MAX_CPU_DEVICES;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::str::FromStr;

/// A number of CPU devices, spelt as in `CPU=2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCount(pub usize);

impl FromStr for DeviceCount {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceCount, String> {
        let count = text.strip_prefix("CPU=").and_then(|count| count.parse().ok());
        let count = count.filter(|count| (1..=MAX_CPU_DEVICES).contains(count));
        count.map(DeviceCount).ok_or_else(|| format!("expected CPU=COUNT, with a count from 1 to {MAX_CPU_DEVICES}"))
    }
}

impl fmt::Display for DeviceCount {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "CPU={}", self.0)
    }
}

impl<'de> Deserialize<'de> for DeviceCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DeviceCount, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_back_and_others_are_refused() {
        assert_eq!("CPU=2".parse::<DeviceCount>().unwrap().to_string(), "CPU=2");
        for wrong in ["CPU=0", "CPU=1025", "GPU=1", "2", "CPU=", ""] {
            assert!(wrong.parse::<DeviceCount>().is_err(), "{wrong}");
        }
    }
}
