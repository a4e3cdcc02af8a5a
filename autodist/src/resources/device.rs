//! Names of devices in resource files and strategies.

use graphmill_tensor::{Result, Status, invalid_argument};
use std::fmt;
use std::str::FromStr;

/// The kinds of devices that a node lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceKind {
    /// A processor.
    Cpu,
    /// A graphics processor.
    Gpu,
}

/// A device of a node: `10.0.0.1:GPU:0`. The node is named by its address, or by `address:port` where several nodes share the address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceName {
    /// The node.
    pub node: String,
    /// The kind.
    pub kind: DeviceKind,
    /// The number among the node's devices of the kind.
    pub index: u32,
}

impl FromStr for DeviceName {
    type Err = Status;

    fn from_str(text: &str) -> Result<DeviceName> {
        let malformed = || invalid_argument!("\"{text}\" is not a device; write ADDRESS:CPU:0 or ADDRESS:GPU:0");
        // From the right, since addresses contain colons.
        let (rest, index) = text.rsplit_once(':').ok_or_else(malformed)?;
        let (node, kind) = rest.rsplit_once(':').ok_or_else(malformed)?;
        let kind = match kind {
            "CPU" => DeviceKind::Cpu,
            "GPU" => DeviceKind::Gpu,
            _ => return Err(malformed()),
        };
        let is_number = index.bytes().all(|byte| byte.is_ascii_digit());
        let index = index.parse().ok().filter(|_| is_number).ok_or_else(malformed)?;
        if node.is_empty() {
            return Err(malformed());
        }
        Ok(DeviceName { node: node.to_owned(), kind, index })
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Gpu => "GPU",
        })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.node, self.kind, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for text in ["0.0.0.0:CPU:0", "localhost:GPU:2", "::1:CPU:1", "[::1]:2222:GPU:0", "127.0.0.1:2222:CPU:0"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", "CPU:0", ":CPU:0", "a:TPU:0", "a:CPU:x", "a:CPU:+1", "a:CPU:99999999999"] {
            assert!(text.parse::<DeviceName>().is_err(), "{text}");
        }
    }
}
