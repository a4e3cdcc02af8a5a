//! The environment variable `TF_CONFIG`, in which TensorFlow's programs find the cluster and their place in it.

use super::Layer;
use super::cluster::ClusterText;
use super::wrong::{Wrong, key};
use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;

/// The variable's name.
pub const NAME: &str = "TF_CONFIG";

/// What else is in it is for the program alone.
#[derive(Deserialize)]
#[serde(expecting = "an object with cluster and task")]
struct TfConfig {
    cluster: Option<ClusterText>,
    #[serde(default)]
    task: Task,
    rpc_layer: Option<String>,
}

#[derive(Default, Deserialize)]
struct Task {
    #[serde(rename = "type")]
    job: Option<String>,
    index: Option<Value>,
}

/// Reads the text of the variable.
///
/// An evaluator is in most programs no member of the cluster: it is then a task alone.
///
/// # Errors
/// If it is not what TensorFlow understands; the message names line and key.
pub fn read(text: &str) -> Result<Layer> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let config: TfConfig = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let inner = error.inner();
        let wrong = Wrong { line: Some(inner.line()), key: key(error.path()), message: inner.to_string() };
        anyhow!("cannot use {NAME}{wrong}")
    })?;
    reader.end().with_context(|| format!("cannot use {NAME}"))?;
    if let Some(other) = config.rpc_layer.filter(|layer| layer != "grpc" && !layer.is_empty()) {
        bail!("cannot use {NAME}, key rpc_layer: {other:?} is not supported, grpc is");
    }
    let task = match config.task.index {
        None => None,
        Some(index) => Some(
            number(&index)
                .with_context(|| format!("cannot use {NAME}, key task.index: {index} is not the index of a task"))?,
        ),
    };
    let mut cluster = config.cluster;
    let job = config.task.job.filter(|job| !job.is_empty());
    if job.as_deref() == Some("evaluator") && cluster.as_ref().is_some_and(|all| all.0.job("evaluator").is_none()) {
        cluster = None;
    }
    Ok(Layer { cluster, job, task, ..Layer::default() })
}

/// TensorFlow takes numbers in quotes too.
fn number(index: &Value) -> Option<u32> {
    match index {
        Value::String(text) => text.trim().parse().ok(),
        _ => index.as_u64().and_then(|number| number.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        let role = |job: &str, index: &str| {
            let text = format!(
                r#"{{"cluster": {{"chief": ["h:1"], "ps": ["h:2"], "worker": {{"1": "h:3"}}}},
                    "task": {{"type": "{job}", "index": {index}}}, "environment": "cloud"}}"#
            );
            read(&text).unwrap()
        };
        let worker = role("worker", "\"1\"");
        assert_eq!((worker.job.as_deref(), worker.task), (Some("worker"), Some(1)));
        assert_eq!(worker.cluster.unwrap().0.to_string(), "chief|0=h:1,ps|0=h:2,worker|1=h:3");
        let evaluator = role("evaluator", "0");
        assert_eq!((evaluator.job.as_deref(), evaluator.cluster), (Some("evaluator"), None));
        assert!(read("{}").unwrap().job.is_none());
    }

    #[test]
    fn errors_name_the_key() {
        for (text, key) in [
            (r#"{"cluster": {"ps": ["nonsense"]}}"#, "cluster"),
            (r#"{"cluster": 7}"#, "cluster"),
            (r#"{"task": {"index": -1}}"#, "task.index"),
            ("{\"task\":\n {\"type\": 1}}", "line 2, key task.type"),
            (r#"{"rpc_layer": "carrier pigeon"}"#, "rpc_layer"),
            ("{", "line 1"),
            ("{} x", NAME),
        ] {
            let error = format!("{:#}", read(text).err().unwrap());
            assert!(error.contains(key) && error.contains(NAME), "{text}: {error}");
        }
    }
}
