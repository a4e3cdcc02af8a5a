//! A cluster in a file: as the text that `--cluster` takes, or as a table of jobs.

use graphmill_cluster::ClusterSpec;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A cluster that was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterText(pub ClusterSpec);

/// The addresses of a job, with their indices.
struct Tasks(Vec<(u32, String)>);

impl<'de> Deserialize<'de> for ClusterText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClusterText, D::Error> {
        deserializer.deserialize_any(ClusterVisitor).map(ClusterText)
    }
}

struct ClusterVisitor;

impl<'de> Visitor<'de> for ClusterVisitor {
    type Value = ClusterSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cluster: ps=HOST:PORT;worker=HOST:PORT,HOST:PORT, or a table with the addresses of each job")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ClusterSpec, E> {
        text.parse().map_err(|error: graphmill_tensor::Status| E::custom(error.message()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClusterSpec, A::Error> {
        let mut spec = ClusterSpec::default();
        while let Some((job, Tasks(tasks))) = map.next_entry::<String, Tasks>()? {
            for (index, address) in tasks {
                spec.insert(&job, index, &address).map_err(|error| de::Error::custom(error.message()))?;
            }
        }
        Ok(spec)
    }
}

impl<'de> Deserialize<'de> for Tasks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tasks, D::Error> {
        deserializer.deserialize_any(TasksVisitor)
    }
}

struct TasksVisitor;

impl<'de> Visitor<'de> for TasksVisitor {
    type Value = Tasks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the addresses of a job: HOST:PORT, a list of these, or a table of these by index")
    }

    fn visit_str<E: de::Error>(self, address: &str) -> Result<Tasks, E> {
        Ok(Tasks(vec![(0, address.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tasks, A::Error> {
        let mut tasks = Vec::new();
        let mut index = 0u32;
        while let Some(address) = list.next_element()? {
            tasks.push((index, address));
            index = index.checked_add(1).ok_or_else(|| de::Error::custom("too many tasks"))?;
        }
        Ok(Tasks(tasks))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tasks, A::Error> {
        let mut tasks = Vec::new();
        while let Some((index, address)) = map.next_entry::<String, String>()? {
            let index =
                index.parse().map_err(|_| de::Error::custom(format!("{index:?} is not the index of a task")))?;
            tasks.push((index, address));
        }
        Ok(Tasks(tasks))
    }
}
