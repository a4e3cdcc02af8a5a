//! Which task leads groups and numbers steps.

use crate::peers::task_name;
use crate::{ClusterSpec, DeviceSpec};
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::ConfigProto;

/// The job of which task 0 leads where nobody says otherwise.
const LEADING_JOB: &str = "worker";

/// The leader that a server knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    task: String,
    /// Whether the server was told so, in which case no client is asked.
    is_fixed: bool,
}

impl Leader {
    /// The task that the server was told, else task 0 of job `worker`, else the first task of the first job, else the own one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a name that is not that of a task of the cluster.
    pub fn new(told: Option<&str>, cluster: &ClusterSpec, own: &str) -> Result<Leader> {
        if let Some(told) = told {
            let task = full_name(told).filter(|task| task == own || is_in(cluster, task));
            let task = task.ok_or_else(|| {
                invalid_argument!(
                    "The collective leader \"{told}\" is not a task of the cluster, such as /job:worker/task:0"
                )
            })?;
            return Ok(Leader { task, is_fixed: true });
        }
        let first = |job: &str| cluster.job(job)?.keys().next().map(|&task| task_name(job, task));
        let task = first(LEADING_JOB).or_else(|| cluster.jobs().next().and_then(first));
        Ok(Leader { task: task.unwrap_or_else(|| own.to_owned()), is_fixed: false })
    }

    /// The leader for a session with these settings.
    pub fn of(&self, config: &ConfigProto) -> String {
        let named = config.experimental.as_ref().map(|more| more.collective_group_leader.as_str()).unwrap_or_default();
        match full_name(named) {
            Some(task) if !self.is_fixed => task,
            _ => self.task.clone(),
        }
    }

    /// Whether a task may be taken for the leader.
    pub fn may_be(&self, task: &str) -> bool {
        !self.is_fixed || self.task == task
    }
}

fn full_name(task: &str) -> Option<String> {
    let spec = DeviceSpec::parse(task)?;
    Some(task_name(&spec.job?, spec.task?))
}

fn is_in(cluster: &ClusterSpec, task: &str) -> bool {
    let spec = DeviceSpec::parse(task).unwrap_or_default();
    match (spec.job, spec.task) {
        (Some(job), Some(task)) => cluster.job(&job).is_some_and(|tasks| tasks.contains_key(&task)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::config_proto::Experimental;

    const OWN: &str = "/job:ps/replica:0/task:1";

    fn leader(told: Option<&str>, cluster: &str) -> Result<Leader> {
        let cluster = if cluster.is_empty() { ClusterSpec::default() } else { cluster.parse().unwrap() };
        Leader::new(told, &cluster, OWN)
    }

    #[test]
    fn somebody_leads_in_every_cluster() {
        assert_eq!(leader(None, "ps=h:1;worker=h:2").unwrap().task, "/job:worker/replica:0/task:0");
        assert_eq!(leader(None, "b=h:1;a=h:2").unwrap().task, "/job:a/replica:0/task:0");
        assert_eq!(leader(None, "").unwrap().task, OWN);
        assert_eq!(leader(Some("/job:ps/task:1"), "").unwrap().task, OWN);
        for wrong in ["", "ps", "/job:ps", "/job:ps/task:7"] {
            assert!(leader(Some(wrong), "ps=h:1").is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_may_choose_where_the_server_was_not_told() {
        let experimental = Experimental { collective_group_leader: "/job:ps/task:0".into(), ..Default::default() };
        let config = ConfigProto { experimental: Some(experimental), ..Default::default() };
        let free = leader(None, "ps=h:1;worker=h:2").unwrap();
        assert_eq!(free.of(&config), "/job:ps/replica:0/task:0");
        assert_eq!(free.of(&ConfigProto::default()), "/job:worker/replica:0/task:0");
        let fixed = leader(Some("/job:worker/task:0"), "ps=h:1;worker=h:2").unwrap();
        assert_eq!(fixed.of(&config), "/job:worker/replica:0/task:0");
        assert!(free.may_be(OWN) && !fixed.may_be(OWN));
    }
}
