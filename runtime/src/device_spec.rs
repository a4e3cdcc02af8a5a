//! Device names and what they leave open.

/// A device name of which any part may be missing, such as `/job:ps/device:CPU:0`. A later part replaces an earlier one of
/// its kind, `*` stands for a missing value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// The same without type and number, which is what soft placement falls back to.
    pub fn without_device(self) -> DeviceSpec {
        DeviceSpec { device_type: None, id: None, ..self }
    }
}

/// Whether this may name a job.
pub fn is_job_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
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

    #[test]
    fn names_and_what_they_match() {
        let device = DeviceSpec::parse("/job:worker/replica:0/task:1/device:CPU:0").unwrap();
        for name in [
            "",
            "/",
            "/job:worker",
            "/job:worker/task:1",
            "/device:CPU:0",
            "/cpu:0",
            "/CPU:0",
            "/device:cpu:*",
            "/device:CPU",
            "/job:*/task:*",
            "/job:ps/job:worker",
            "/device:*:0",
        ] {
            assert!(DeviceSpec::parse(name).unwrap().matches(&device), "{name}");
        }
        for name in ["/job:ps", "/task:0", "/device:GPU:0", "/gpu:0", "/cpu:1", "/replica:1", "/device:XLA_CPU:0"] {
            assert!(!DeviceSpec::parse(name).unwrap().matches(&device), "{name}");
        }
        let soft = DeviceSpec::parse("/job:worker/gpu:3").unwrap().without_device();
        assert!(soft.matches(&device));
    }

    #[test]
    fn malformed_names() {
        for name in [
            "cpu:0",
            "//",
            "/job",
            "/job:",
            "/job:1",
            "/task:x",
            "/task:-1",
            "/task:99999999999",
            "/foo:1",
            "/cpu",
            "/device:",
            "/device:CPU:x",
            "/job:a/",
            "job:a",
        ] {
            assert_eq!(DeviceSpec::parse(name), None, "{name}");
        }
    }
}
