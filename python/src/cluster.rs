//! Clusters as Python programs write them.

use graphmill_cluster::ClusterSpec;
use graphmill_wire::tensorflow::{ClusterDef, JobDef};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString};
use std::collections::BTreeMap;

/// The cluster in a text, a mapping from jobs to addresses, or an object that turns into such a mapping.
///
/// # Errors
/// `TypeError` for anything else, `ValueError` for addresses that are none.
pub fn cluster_spec(value: &Bound<'_, PyAny>) -> PyResult<ClusterSpec> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_str()?.parse().map_err(|error| crate::exception(&error));
    }
    let mapping = match value.hasattr("as_dict")? {
        true => value.call_method0("as_dict")?,
        false => value.clone(),
    };
    let mapping = mapping.cast::<PyMapping>().map_err(|_| {
        PyTypeError::new_err(
            "cluster is a dictionary from jobs to addresses, a ClusterSpec, or a text such as ps=h:1;worker=h:2",
        )
    })?;
    let mut cluster = ClusterDef::default();
    for item in mapping.items()?.iter() {
        let (job, addresses): (String, Bound<'_, PyAny>) = item.extract()?;
        let tasks = tasks(&addresses).map_err(|_| {
            PyTypeError::new_err(format!(
                "the tasks of job {job} are not a list of addresses, nor a dictionary of them"
            ))
        })?;
        cluster.job.push(JobDef { name: job, tasks });
    }
    ClusterSpec::from_proto(&cluster).map_err(|error| crate::exception(&error))
}

/// The addresses of a job by task.
fn tasks(value: &Bound<'_, PyAny>) -> PyResult<BTreeMap<i32, String>> {
    if value.is_instance_of::<PyDict>() {
        return value.extract();
    }
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("a text"));
    }
    let addresses: Vec<String> = value.extract()?;
    Ok((0..).zip(addresses).collect())
}
