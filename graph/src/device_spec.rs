//! Device names and what they leave open.

use graphmill_tensor::{Result, invalid_argument};
use std::fmt;

/// A device name of which any part may be missing, such as `/job:ps/device:CPU:0`. A later part replaces an earlier one of
/// its kind, `*` stands for a missing value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSpec {
    /// The job.
    pub job: Option<String>,
    /// The replica.
    pub replica: Option<u32>,
    /// The task's index.
    pub task: Option<u32>,
    /// The type in upper case for `cpu` and `gpu`, else as written.
    pub device_type: Option<String>,
    /// The number among the devices of its type.
    pub id: Option<u32>,
}

/// What becomes of types and numbers that differ when two names are merged. Jobs, replicas and tasks must agree in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Conflict {
    /// The merge fails.
    Fails,
    /// Neither stays: soft placement decides later.
    Drops,
    /// That of the other name replaces the own one.
    Overrides,
}

impl DeviceSpec {
    /// Parses a name; the empty name and `/` leave everything open. `None` if it is malformed.
    pub fn parse(name: &str) -> Option<DeviceSpec> {
        let mut spec = DeviceSpec::default();
        if name.is_empty() || name == "/" {
            return Some(spec);
        }
        for part in name.strip_prefix('/')?.split('/') {
            let (kind, value) = part.split_once(':')?;
            match kind {
                "job" => spec.job = optional(value, |v| is_job_name(v).then(|| v.to_owned()))?,
                "replica" => spec.replica = optional(value, number)?,
                "task" => spec.task = optional(value, number)?,
                "device" => {
                    let (device_type, id) = match value.split_once(':') {
                        Some((device_type, id)) => (device_type, optional(id, number)?),
                        None => (value, None),
                    };
                    spec.device_type = optional(device_type, type_name)?;
                    spec.id = id;
                }
                "cpu" | "CPU" | "gpu" | "GPU" => {
                    spec.device_type = Some(kind.to_ascii_uppercase());
                    spec.id = optional(value, number)?;
                }
                _ => return None,
            }
        }
        Some(spec)
    }

    /// Parses the form that is used within a task, `CPU:0`, in which nothing may be open. `None` if it is malformed.
    pub fn parse_local(name: &str) -> Option<DeviceSpec> {
        let (device_type, id) = name.split_once(':')?;
        Some(DeviceSpec { device_type: Some(type_name(device_type)?), id: Some(number(id)?), ..DeviceSpec::default() })
    }

    /// Parses either form. `None` if it is malformed.
    pub fn parse_full_or_local(name: &str) -> Option<DeviceSpec> {
        DeviceSpec::parse(name).or_else(|| DeviceSpec::parse_local(name))
    }

    /// Whether nothing is open.
    pub fn is_full(&self) -> bool {
        self.job.is_some()
            && self.replica.is_some()
            && self.task.is_some()
            && self.device_type.is_some()
            && self.id.is_some()
    }

    /// Whether everything is open.
    pub fn is_empty(&self) -> bool {
        *self == DeviceSpec::default()
    }

    /// The task alone, `/job:J/replica:R/task:T`; `None` if a part of it is open.
    pub fn task_name(&self) -> Option<String> {
        let task = DeviceSpec { device_type: None, id: None, ..self.clone() };
        (self.job.is_some() && self.replica.is_some() && self.task.is_some()).then(|| task.to_string())
    }

    /// Whether each part that is present here is that of `device`.
    pub fn matches(&self, device: &DeviceSpec) -> bool {
        fn agree<T: PartialEq>(wanted: &Option<T>, given: &Option<T>) -> bool {
            wanted.is_none() || wanted == given
        }
        agree(&self.job, &device.job)
            && agree(&self.replica, &device.replica)
            && agree(&self.task, &device.task)
            && agree(&self.device_type, &device.device_type)
            && agree(&self.id, &device.id)
    }

    /// Whether no part that both names have differs.
    pub fn is_compatible(&self, other: &DeviceSpec) -> bool {
        !self.is_other_task(other) && !differ(&self.device_type, &other.device_type) && !differ(&self.id, &other.id)
    }

    /// Whether the names are of different tasks for certain.
    pub fn is_other_task(&self, other: &DeviceSpec) -> bool {
        differ(&self.job, &other.job) || differ(&self.replica, &other.replica) || differ(&self.task, &other.task)
    }

    /// The same without type and number, which is what soft placement falls back to.
    pub fn without_device(self) -> DeviceSpec {
        DeviceSpec { device_type: None, id: None, ..self }
    }

    /// This name with what is open in it taken from `other`. This is how the device scopes of clients nest, and what a node of a
    /// function's body gets from the call.
    pub fn or(self, other: &DeviceSpec) -> DeviceSpec {
        DeviceSpec {
            job: self.job.or_else(|| other.job.clone()),
            replica: self.replica.or(other.replica),
            task: self.task.or(other.task),
            device_type: self.device_type.or_else(|| other.device_type.clone()),
            id: self.id.or(other.id),
        }
    }

    /// What both names say together.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with TensorFlow's text if a part that both have differs, by the rule for conflicts.
    pub fn merge(&self, other: &DeviceSpec, conflict: Conflict) -> Result<DeviceSpec> {
        // The text shows what was merged before the parts that differ were reached.
        let mut merged = self.clone();
        let fails = |merged: &DeviceSpec, what: &str| {
            Err(invalid_argument!("Cannot merge devices with incompatible {what}: '{merged}' and '{other}'"))
        };
        if differ(&merged.job, &other.job) {
            return fails(&merged, "jobs");
        }
        merged.job = merged.job.or_else(|| other.job.clone());
        if differ(&merged.replica, &other.replica) {
            return fails(&merged, "replicas");
        }
        merged.replica = merged.replica.or(other.replica);
        if differ(&merged.task, &other.task) {
            return fails(&merged, "tasks");
        }
        merged.task = merged.task.or(other.task);
        if differ(&merged.device_type, &other.device_type) {
            match conflict {
                Conflict::Fails => return fails(&merged, "types"),
                Conflict::Drops => return Ok(merged.without_device()),
                Conflict::Overrides => merged.device_type.clone_from(&other.device_type),
            }
        }
        merged.device_type = merged.device_type.or_else(|| other.device_type.clone());
        if differ(&merged.id, &other.id) {
            match conflict {
                Conflict::Fails => return fails(&merged, "ids"),
                Conflict::Drops => return Ok(DeviceSpec { id: None, ..merged }),
                Conflict::Overrides => merged.id = other.id,
            }
        }
        merged.id = merged.id.or(other.id);
        Ok(merged)
    }
}

/// The canonical spelling, `/job:J/replica:R/task:T/device:TYPE:ID`, without the parts that are open. A number without a type is
/// not shown, and a type without a number has `*`.
impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        match (&self.device_type, self.id) {
            (Some(device_type), Some(id)) => write!(f, "/device:{device_type}:{id}"),
            (Some(device_type), None) => write!(f, "/device:{device_type}:*"),
            (None, _) => Ok(()),
        }
    }
}

/// Whether this may name a job.
pub fn is_job_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a != b)
}

/// The outer `None` is a malformed value, the inner one a value left open.
fn optional<T>(value: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if value == "*" { Some(None) } else { parse(value).map(Some) }
}

fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn type_name(text: &str) -> Option<String> {
    match text {
        "cpu" | "gpu" => Some(text.to_ascii_uppercase()),
        _ => is_job_name(text).then(|| text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> DeviceSpec {
        DeviceSpec::parse(name).unwrap()
    }

    #[test]
    fn names_and_what_they_match() {
        let device = spec("/job:worker/replica:0/task:1/device:CPU:0");
        for name in [
            "",
            "/",
            "/job:worker",
            "/job:worker/task:1",
            "/task:1/job:worker",
            "/device:CPU:0",
            "/device:cpu:0/replica:0",
            "/cpu:0",
            "/CPU:0",
            "/cpu:*",
            "/device:cpu:*",
            "/device:CPU",
            "/job:*/task:*",
            "/job:ps/job:worker",
            "/job:ps/job:*",
            "/device:GPU:3/cpu:0",
            "/device:*:0",
        ] {
            assert!(spec(name).matches(&device), "{name}");
        }
        for name in ["/job:ps", "/task:0", "/device:GPU:0", "/gpu:0", "/cpu:1", "/replica:1", "/device:XLA_CPU:0"] {
            assert!(!spec(name).matches(&device), "{name}");
        }
        assert!(spec("/job:worker/gpu:3").without_device().matches(&device));
        assert_eq!(spec("/job:worker/device:cpu:0/task:0"), spec("/job:worker/task:0/CPU:0"));
        assert_eq!(spec("/gpu:0"), spec("/device:GPU:0"));
    }

    #[test]
    fn malformed_names() {
        for name in [
            "cpu:0",
            "//",
            "/job",
            "/job:",
            "/job:1",
            "/job:*x",
            "/task:x",
            "/task:1x",
            "/task:-1",
            "/task:99999999999",
            "/foo:1",
            "/cpu",
            "/cpu:",
            "/device:",
            "/device:CPU:x",
            "/job:a/",
            "job:a",
        ] {
            assert_eq!(DeviceSpec::parse(name), None, "{name}");
        }
    }

    #[test]
    fn names_within_a_task() {
        assert_eq!(DeviceSpec::parse_local("CPU:0"), Some(spec("/device:CPU:0")));
        assert_eq!(DeviceSpec::parse_full_or_local("gpu:12"), Some(spec("/gpu:12")));
        assert_eq!(DeviceSpec::parse_full_or_local("/job:a"), Some(spec("/job:a")));
        for name in ["CPU", "CPU:", "CPU:*", ":0", "/CPU:0", "CPU:0:0", "CPU:0/job:a"] {
            assert_eq!(DeviceSpec::parse_local(name), None, "{name}");
        }
    }

    #[test]
    fn the_canonical_spelling() {
        for (name, printed) in [
            ("", ""),
            ("/device:cpu:0/task:3/job:ps/replica:0", "/job:ps/replica:0/task:3/device:CPU:0"),
            ("/gpu:*", "/device:GPU:*"),
            ("/device:*:1", ""),
            ("/job:ps/task:1", "/job:ps/task:1"),
        ] {
            assert_eq!(spec(name).to_string(), printed);
        }
        assert!(spec("/job:ps/replica:0/task:3/cpu:0").is_full() && !spec("/job:ps/task:3/cpu:0").is_full());
        assert_eq!(spec("/job:ps/replica:0/task:3/cpu:0").task_name().unwrap(), "/job:ps/replica:0/task:3");
        assert_eq!(spec("/job:ps/task:3").task_name(), None);
    }

    #[test]
    fn merges() {
        let merge = |a: &str, b: &str, conflict| spec(a).merge(&spec(b), conflict);
        for (a, b, merged) in [
            ("/job:a", "/task:1/cpu:0", "/job:a/task:1/device:CPU:0"),
            ("/job:a/cpu:*", "/job:a/cpu:2", "/job:a/device:CPU:2"),
            ("", "/gpu:1", "/device:GPU:1"),
        ] {
            for conflict in [Conflict::Fails, Conflict::Drops, Conflict::Overrides] {
                assert_eq!(merge(a, b, conflict).unwrap().to_string(), merged);
            }
        }
        for (a, b, text) in [
            ("/job:A", "/job:B", "jobs: '/job:A' and '/job:B'"),
            ("/task:0", "/job:p/task:1", "tasks: '/job:p/task:0' and '/job:p/task:1'"),
            ("/replica:0", "/replica:1", "replicas: '/replica:0' and '/replica:1'"),
            ("/cpu:0", "/gpu:0", "types: '/device:CPU:0' and '/device:GPU:0'"),
            ("/cpu:0", "/cpu:1", "ids: '/device:CPU:0' and '/device:CPU:1'"),
        ] {
            let error = merge(a, b, Conflict::Fails).unwrap_err();
            assert_eq!(error.message(), format!("Cannot merge devices with incompatible {text}"));
        }
        assert_eq!(merge("/job:a/cpu:0", "/gpu:1", Conflict::Drops).unwrap(), spec("/job:a"));
        assert_eq!(merge("/job:a/cpu:0", "/gpu:1", Conflict::Overrides).unwrap(), spec("/job:a/gpu:1"));
        assert_eq!(merge("/cpu:0", "/cpu:1", Conflict::Drops).unwrap(), spec("/cpu:*"));
        for conflict in [Conflict::Drops, Conflict::Overrides] {
            assert!(merge("/job:a", "/job:b", conflict).is_err());
        }
    }

    #[test]
    fn inner_names_win() {
        let inner = spec("/job:ps/cpu:1");
        assert_eq!(inner.or(&spec("/job:worker/task:1")).to_string(), "/job:ps/task:1/device:CPU:1");
        assert!(spec("/job:a").is_compatible(&spec("/task:1/gpu:0")));
        assert!(!spec("/job:a/cpu:0").is_compatible(&spec("/job:a/cpu:1")));
        assert!(spec("/job:a").is_other_task(&spec("/job:b")) && !spec("/job:a").is_other_task(&spec("/cpu:0")));
    }
}
