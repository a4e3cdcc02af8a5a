//! Which tasks make a cluster, and where they are.

use graphmill_runtime::is_job_name;
use graphmill_tensor::{Result, Status, invalid_argument};
use graphmill_wire::tensorflow::ClusterDef;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The tasks of a cluster by job and index, with their addresses. Indices may have gaps.
///
/// Two spellings are read: `ps=h1:2222;worker=h2:2222,h3:2222`, and that of TensorFlow's server,
/// `ps|h1:2222,worker|h2:2222;h3:2222`, in which tasks may be numbered: `worker|0=h2:2222;3=h3:2222`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSpec {
    jobs: BTreeMap<String, BTreeMap<u32, String>>,
}

impl ClusterSpec {
    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.jobs.values().map(BTreeMap::len).sum()
    }

    /// The tasks of a job by index; `None` if there is no such job.
    pub fn job(&self, job: &str) -> Option<&BTreeMap<u32, String>> {
        self.jobs.get(job)
    }

    /// The names of the jobs, sorted.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// The address of a task.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that says which jobs and tasks there are.
    pub fn address(&self, job: &str, task: u32) -> Result<&str> {
        let Some(tasks) = self.jobs.get(job) else {
            let jobs: Vec<&str> = self.jobs().collect();
            return Err(invalid_argument!("Job \"{job}\" was not defined in cluster, which has {}", jobs.join(", ")));
        };
        match tasks.get(&task) {
            Some(address) => Ok(address),
            None => {
                let indices: Vec<String> = tasks.keys().map(u32::to_string).collect();
                Err(invalid_argument!(
                    "Task {task} was not defined in job \"{job}\", which has the tasks {}",
                    indices.join(", ")
                ))
            }
        }
    }

    /// A cluster off the wire.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for names or addresses that are none.
    pub fn from_proto(proto: &ClusterDef) -> Result<ClusterSpec> {
        let mut spec = ClusterSpec::default();
        for job in &proto.job {
            for (&task, address) in &job.tasks {
                let index = u32::try_from(task);
                let index = index.map_err(|_| invalid_argument!("{task} is not the index of a task"))?;
                // An entry may list replacements behind the address.
                let address = address.split(',').next().unwrap_or_default();
                spec.insert(&job.name, index, address)?;
            }
        }
        Ok(spec)
    }

    fn insert(&mut self, job: &str, task: u32, address: &str) -> Result<()> {
        if !is_job_name(job) {
            return Err(invalid_argument!(
                "\"{job}\" is not the name of a job, which is a letter followed by letters, digits and underscores"
            ));
        }
        split_address(address)?;
        match self.jobs.entry(job.to_owned()).or_default().insert(task, address.to_owned()) {
            None => Ok(()),
            Some(_) => Err(invalid_argument!("The cluster has two addresses for task {task} of job \"{job}\"")),
        }
    }
}

/// Takes `host:port` apart; IPv6 addresses are in brackets.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is something else.
pub(crate) fn split_address(address: &str) -> Result<(&str, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match parts {
        Some((host, port)) if port != 0 && is_host(host) => Ok((host, port)),
        _ => Err(invalid_argument!("\"{address}\" is not an address of the form host:port")),
    }
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    }
}

impl FromStr for ClusterSpec {
    type Err = Status;

    fn from_str(text: &str) -> Result<ClusterSpec> {
        // The bar stands in TensorFlow's spelling only, where a job ends at a comma and a task at a semicolon.
        let (job_end, job_mark, task_end) = if text.contains('|') { (',', '|', ';') } else { (';', '=', ',') };
        let mut spec = ClusterSpec::default();
        for part in text.split(job_end) {
            let Some((job, tasks)) = part.split_once(job_mark) else {
                return Err(invalid_argument!(
                    "\"{part}\" is not a job of a cluster; write it as {}",
                    if job_mark == '=' { "job=host:port,host:port" } else { "job|host:port;host:port" }
                ));
            };
            if spec.jobs.contains_key(job) {
                return Err(invalid_argument!("Job \"{job}\" is in the cluster twice"));
            }
            for (position, task) in tasks.split(task_end).enumerate() {
                match task.split_once('=') {
                    Some((index, address)) => {
                        let index = index.parse().map_err(|_| {
                            invalid_argument!("\"{index}\" is not the index of a task of job \"{job}\"")
                        })?;
                        spec.insert(job, index, address)?;
                    }
                    None => {
                        let index = u32::try_from(position)
                            .map_err(|_| invalid_argument!("Job \"{job}\" has too many tasks"))?;
                        spec.insert(job, index, task)?;
                    }
                }
            }
        }
        Ok(spec)
    }
}

/// The spelling with `=`, or the numbered one where indices have gaps.
impl fmt::Display for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dense = self.jobs.values().all(|tasks| tasks.keys().copied().eq(0..tasks.len() as u32));
        for (at, (job, tasks)) in self.jobs.iter().enumerate() {
            if at > 0 {
                f.write_str(if dense { ";" } else { "," })?;
            }
            write!(f, "{job}{}", if dense { '=' } else { '|' })?;
            for (at, (index, address)) in tasks.iter().enumerate() {
                match (at, dense) {
                    (0, _) => {}
                    (_, true) => f.write_str(",")?,
                    (_, false) => f.write_str(";")?,
                }
                if dense {
                    f.write_str(address)?;
                } else {
                    write!(f, "{index}={address}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings() {
        let ours: ClusterSpec = "ps=h:1;worker=h:2,[::1]:3".parse().unwrap();
        let theirs: ClusterSpec = "ps|h:1,worker|h:2;[::1]:3".parse().unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(ours.len(), 3);
        assert_eq!(ours.address("worker", 1).unwrap(), "[::1]:3");
        assert_eq!(ours.to_string(), "ps=h:1;worker=h:2,[::1]:3");
    }

    #[test]
    fn indices_with_gaps() {
        let spec: ClusterSpec = "worker|0=a:1;3=b:2".parse().unwrap();
        assert_eq!(spec.job("worker").unwrap().keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!(spec.to_string().parse::<ClusterSpec>().unwrap(), spec);
        assert!(spec.address("worker", 1).unwrap_err().message().contains("0, 3"));
        assert!(spec.address("ps", 0).unwrap_err().message().contains("worker"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "ps",
            "ps=",
            "ps=h",
            "ps=h:",
            "ps=h:0",
            "ps=h:70000",
            "ps=:1",
            "=h:1",
            "1ps=h:1",
            "ps=h:1;",
            "ps=h:1;ps=h:2",
            "ps|x=h:1",
            "ps|0=h:1;0=h:2",
            "ps|1=h:1;h:2",
            "ps=h h:1",
            "ps|-1=h:1",
            "ps=a/b:1",
            "ps=[::g]:1",
        ] {
            assert!(text.parse::<ClusterSpec>().is_err(), "{text}");
        }
    }
}
