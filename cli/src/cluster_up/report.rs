//! What `graphmill cluster up` says, for people or for programs.

use super::child::Child;
use anyhow::Result;
use graphmill_cluster::ClusterSpec;
use serde_json::{Value, json};
use std::io::Write;

/// Says what happens to the cluster, on standard output.
pub struct Report {
    json: bool,
}

impl Report {
    /// In JSON, one object a line with its kind as `event`, or in words.
    pub fn new(json: bool) -> Report {
        Report { json }
    }

    /// All tasks answer.
    ///
    /// # Errors
    /// If the tasks make no cluster.
    pub fn ready(&self, children: &[Child]) -> Result<()> {
        let mut cluster = ClusterSpec::default();
        for child in children {
            let added = cluster.insert(child.job, child.task, &child.address());
            added.map_err(|error| anyhow::anyhow!("{}", error.message()))?;
        }
        let cluster = cluster.to_string();
        if self.json {
            let tasks = children.iter().map(|child| {
                json!({"job": child.job, "task": child.task, "target": child.target(), "process": child.process()})
            });
            self.write(&json!({"event": "ready", "cluster": cluster, "tasks": tasks.collect::<Value>()}).to_string());
            return Ok(());
        }
        for child in children {
            self.write(&format!("{:12}  {}  process {}", child.name(), child.target(), child.process()));
        }
        self.write(&format!("cluster  {cluster}"));
        let chief = children.iter().find(|child| child.job == "chief");
        let first = chief.or_else(|| children.iter().find(|child| child.job == "worker")).or(children.first());
        if let Some(first) = first {
            self.write(&format!("ready: connect with tf.compat.v1.Session(\"{}\")", first.target()));
        }
        Ok(())
    }

    /// A task has ended.
    pub fn ended(&self, child: &Child) {
        let Some(ending) = &child.ending else { return };
        match self.json {
            true => self.write(
                &json!({"event": "exit", "job": child.job, "task": child.task, "status": ending.words, "clean": ending.clean})
                    .to_string(),
            ),
            false => self.write(&format!("{} {}", child.name(), ending.words)),
        }
    }

    /// The cluster is being ended.
    pub fn ends(&self, reason: &str) {
        match self.json {
            true => self.write(&json!({"event": "ending", "reason": reason}).to_string()),
            false => self.write(&format!("ending: {reason}")),
        }
    }

    /// All tasks have ended.
    pub fn ended_all(&self, clean: bool) {
        if self.json {
            self.write(&json!({"event": "ended", "clean": clean}).to_string());
        }
    }

    /// Whoever does not read does not keep the cluster from going on.
    fn write(&self, line: &str) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
