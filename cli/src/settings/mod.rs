//! What a server is told: by flags, by files, and by the environment, in one form.

mod cluster;
mod device_count;
mod file;
mod flags;
pub mod proto;
mod tf_config;
mod wrong;

pub use flags::Flags;

use anyhow::{Context, Result, anyhow, bail};
use cluster::ClusterText;
use device_count::DeviceCount;
use graphmill_cluster::{ClusterSpec, Random, ServerConfig};
use graphmill_wire::tensorflow::{ConfigProto, ServerDef};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long running steps may go on, in seconds, where nothing else is said.
const DEFAULT_GRACE: f64 = 3.0;
/// Longest piece of a buffer, in bytes, where nothing else is said.
const DEFAULT_CHUNK: i64 = 4096;

/// The settings of one source, under the names that they have in files.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Layer {
    cluster: Option<ClusterText>,
    job: Option<String>,
    task: Option<u32>,
    host: Option<String>,
    port: Option<u16>,
    device_count: Option<DeviceCount>,
    intra_op_threads: Option<usize>,
    inter_op_threads: Option<usize>,
    file_root: Option<PathBuf>,
    session_config: Option<String>,
    collective_leader: Option<String>,
    recv_buf_max_chunk: Option<i64>,
    #[serde(deserialize_with = "checked_seconds")]
    session_timeout: Option<f64>,
    #[serde(deserialize_with = "checked_seconds")]
    grace: Option<f64>,
    exit_with_chief: Option<bool>,
    allow_remote_stop: Option<bool>,
    log_level: Option<String>,
    log_json: Option<bool>,
}

/// A time that does not overflow.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if is_time(value) => Ok(value),
        _ => Err("expected a number of seconds, such as 0 or 2.5".to_owned()),
    }
}

fn is_time(seconds: f64) -> bool {
    (0.0..=1e9).contains(&seconds)
}

fn checked_seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if is_time(value) {
        return Ok(Some(value));
    }
    Err(serde::de::Error::custom("expected a number of seconds, such as 0 or 2.5"))
}

/// A layer with the name of its source.
struct Source {
    name: String,
    layer: Layer,
    /// Where a ServerDef brings settings of sessions.
    session_config: Option<ConfigProto>,
}

impl Source {
    fn new(name: impl Into<String>, layer: Layer) -> Source {
        Source { name: name.into(), layer, session_config: None }
    }
}

/// A value and where it comes from.
struct Chosen<T> {
    value: T,
    source: String,
}

/// All settings of a server.
pub struct Settings {
    cluster: Chosen<ClusterSpec>,
    job: Chosen<Option<String>>,
    task: Chosen<u32>,
    host: Chosen<Option<String>>,
    port: Chosen<Option<u16>>,
    device_count: Chosen<Option<DeviceCount>>,
    intra_op_threads: Chosen<usize>,
    inter_op_threads: Chosen<usize>,
    file_root: Chosen<Option<PathBuf>>,
    session_config: Chosen<ConfigProto>,
    collective_leader: Chosen<Option<String>>,
    recv_buf_max_chunk: Chosen<i64>,
    session_timeout: Chosen<f64>,
    grace: Chosen<f64>,
    exit_with_chief: Chosen<bool>,
    allow_remote_stop: Chosen<bool>,
    log_level: Chosen<String>,
    log_json: Chosen<bool>,
}

impl Settings {
    /// Reads all sources. TF_CONFIG counts only if no other names a cluster.
    ///
    /// # Errors
    /// What is wrong with one of them, and where.
    pub fn read(flags: Flags) -> Result<Settings> {
        let (config, server_def) = (flags.config.clone(), flags.server_def.clone());
        let mut sources = vec![Source::new("flag", flags.layer())];
        if let Some(path) = config {
            sources.push(Source::new(path.display().to_string(), file::read(&path)?));
        }
        if let Some(path) = server_def {
            let server: ServerDef = proto::read_file(&path, "ServerDef")?;
            let source = of_server_def(path.display().to_string(), server);
            sources.push(source.with_context(|| format!("cannot use {}", path.display()))?);
        }
        if sources.iter().all(|source| source.layer.cluster.is_none())
            && let Some(text) = std::env::var_os(tf_config::NAME).filter(|text| !text.is_empty())
        {
            let text = text.to_str().with_context(|| format!("{} is not UTF-8", tf_config::NAME))?;
            sources.push(Source::new(tf_config::NAME, tf_config::read(text)?));
        }
        Settings::of(&mut sources)
    }

    /// Takes each setting from the first source that has it.
    fn of(sources: &mut [Source]) -> Result<Settings> {
        // Who names the job means the task too: an index of a source behind it belongs to another job.
        if let Some(first) = sources.iter().position(|source| source.layer.job.is_some()) {
            sources.iter_mut().skip(first + 1).for_each(|source| source.layer.task = None);
        }
        macro_rules! first {
            ($field:ident) => {
                sources.iter_mut().find_map(|source| {
                    let value = source.layer.$field.take()?;
                    Some(Chosen { value, source: source.name.clone() })
                })
            };
        }
        macro_rules! or {
            ($field:ident, $default:expr) => {
                first!($field).unwrap_or_else(|| Chosen { value: $default, source: "default".to_owned() })
            };
        }
        macro_rules! optional {
            ($field:ident) => {
                match first!($field) {
                    Some(Chosen { value, source }) => Chosen { value: Some(value), source },
                    None => Chosen { value: None, source: "default".to_owned() },
                }
            };
        }
        let Chosen { value: ClusterText(cluster), source } = or!(cluster, ClusterText(ClusterSpec::default()));
        Ok(Settings {
            cluster: Chosen { value: cluster, source },
            job: optional!(job),
            task: or!(task, 0),
            host: optional!(host),
            port: optional!(port),
            device_count: optional!(device_count),
            intra_op_threads: or!(intra_op_threads, 0),
            inter_op_threads: or!(inter_op_threads, 0),
            file_root: optional!(file_root),
            session_config: session_config(sources)?,
            collective_leader: optional!(collective_leader),
            recv_buf_max_chunk: or!(recv_buf_max_chunk, DEFAULT_CHUNK),
            session_timeout: or!(session_timeout, 0.0),
            grace: or!(grace, DEFAULT_GRACE),
            exit_with_chief: or!(exit_with_chief, false),
            allow_remote_stop: or!(allow_remote_stop, false),
            log_level: or!(log_level, "info".to_owned()),
            log_json: or!(log_json, false),
        })
    }

    /// What is logged, and whether in JSON.
    pub fn log(&self) -> (&str, bool) {
        (&self.log_level.value, self.log_json.value)
    }

    /// Where ops may use files, if that is limited.
    pub fn file_root(&self) -> Option<&PathBuf> {
        self.file_root.value.as_ref()
    }

    /// How long running steps may go on at the end.
    pub fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.grace.value)
    }

    /// The settings as the server takes them.
    pub fn server_config(&self) -> ServerConfig {
        let timeout = self.session_timeout.value;
        ServerConfig {
            host: self.host.value.clone(),
            port: self.port.value,
            job: self.job.value.clone(),
            task: self.task.value,
            cluster: self.cluster.value.clone(),
            cpu_devices: self.device_count.value.map_or(0, |count| count.0),
            intra_op_threads: self.intra_op_threads.value,
            inter_op_threads: self.inter_op_threads.value,
            session_timeout: (timeout > 0.0).then(|| Duration::from_secs_f64(timeout)),
            session_config: self.session_config.value.clone(),
            grace: self.grace(),
            allow_remote_stop: self.allow_remote_stop.value,
            exit_with_chief: self.exit_with_chief.value,
            collective_leader: self.collective_leader.value.clone(),
            recv_buf_max_chunk: self.recv_buf_max_chunk.value,
            random: Random::new().into(),
        }
    }

    /// Every setting under its name in files, with the source of its value. Settings without a value are left out.
    ///
    /// # Errors
    /// If the settings do not fit together.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let config = self.server_config();
        let wrong = |error: graphmill_tensor::Status| anyhow!("{}", error.message());
        let (job, port) = config.place().map_err(wrong)?;
        let listens_to_all = config.listens_to_all().map_err(wrong)?;
        let (intra, inter) = config.threads();
        let mut entries = Vec::new();
        let mut add = |key, value: Value, source: &str| entries.push(Entry { key, value, source: source.to_owned() });
        let in_cluster = !self.cluster.value.is_empty();
        let place = |source: &str| {
            let source = if in_cluster && source == "default" { "cluster" } else { source };
            source.to_owned()
        };
        if in_cluster {
            add("cluster", json!(self.cluster.value.to_string()), &self.cluster.source);
        }
        add("job", json!(job), &place(&self.job.source));
        add("task", json!(self.task.value), &self.task.source);
        let host = self.host.value.as_deref().unwrap_or(if listens_to_all { "*" } else { "localhost" });
        add("host", json!(host), &place(&self.host.source));
        add("port", json!(port), &place(&self.port.source));
        let of_session = |own: usize, used: usize, source: &str| match own == used {
            true => source.to_owned(),
            false => self.session_config.source.clone(),
        };
        let (chosen, devices) = (&self.device_count, DeviceCount(config.cpu_devices()));
        let source = match chosen.value.is_some() || devices.0 == 1 {
            true => &chosen.source,
            false => &self.session_config.source,
        };
        add("device-count", json!(devices.to_string()), source);
        let own = (&self.intra_op_threads, &self.inter_op_threads);
        add("intra-op-threads", json!(intra), &of_session(own.0.value, intra, &own.0.source));
        add("inter-op-threads", json!(inter), &of_session(own.1.value, inter, &own.1.source));
        if let Some(root) = &self.file_root.value {
            add("file-root", json!(root), &self.file_root.source);
        }
        if self.session_config.value != ConfigProto::default() {
            let source = format!("{}: {}", self.session_config.source, proto::to_text(&self.session_config.value)?);
            add("session-config", json!(proto::to_base64(&self.session_config.value)), &source);
        }
        if let Some(leader) = &self.collective_leader.value {
            add("collective-leader", json!(leader), &self.collective_leader.source);
        }
        add("recv-buf-max-chunk", json!(self.recv_buf_max_chunk.value), &self.recv_buf_max_chunk.source);
        add("session-timeout", json!(self.session_timeout.value), &self.session_timeout.source);
        add("grace", json!(self.grace.value), &self.grace.source);
        add("exit-with-chief", json!(self.exit_with_chief.value), &self.exit_with_chief.source);
        add("allow-remote-stop", json!(self.allow_remote_stop.value), &self.allow_remote_stop.source);
        add("log-level", json!(self.log_level.value), &self.log_level.source);
        add("log-json", json!(self.log_json.value), &self.log_json.source);
        Ok(entries)
    }
}

/// One setting.
pub struct Entry {
    /// The name in files.
    pub key: &'static str,
    /// The value.
    pub value: Value,
    /// Where it comes from: `flag`, a file, `TF_CONFIG`, `cluster` where it follows from that, or `default`.
    pub source: String,
}

/// Settings as a file that means the same.
///
/// # Errors
/// None for what [`Settings::entries`] yields.
pub fn to_toml(entries: &[Entry]) -> Result<String> {
    let mut lines = Vec::new();
    for entry in entries {
        lines.push((format!("{} = {}", entry.key, toml::Value::try_from(&entry.value)?), entry.source.as_str()));
    }
    // Sources stand in one column, which one long value does not move.
    let width = lines.iter().map(|(line, _)| line.len()).filter(|&width| width <= 40).max().unwrap_or(0);
    let mut text = String::new();
    for (line, source) in lines {
        writeln!(text, "{line:width$}  # {source}")?;
    }
    Ok(text)
}

/// The settings of sessions, of the first source that has some.
fn session_config(sources: &mut [Source]) -> Result<Chosen<ConfigProto>> {
    for source in sources {
        let given = match (source.layer.session_config.take(), source.session_config.take()) {
            (Some(text), _) => {
                Some(proto::session_config(&text).with_context(|| format!("session-config, from {}", source.name))?)
            }
            (None, given) => given,
        };
        if let Some(value) = given {
            return Ok(Chosen { value, source: source.name.clone() });
        }
    }
    Ok(Chosen { value: ConfigProto::default(), source: "default".to_owned() })
}

/// What a ServerDef says.
fn of_server_def(name: String, server: ServerDef) -> Result<Source> {
    if !matches!(server.protocol.as_str(), "" | "grpc") {
        bail!("protocol: {:?} is not supported, grpc is", server.protocol);
    }
    let port = u16::try_from(server.port).ok().with_context(|| format!("port: {} is none", server.port))?;
    let task = u32::try_from(server.task_index).ok();
    let task = task.with_context(|| format!("task_index: {} is not the index of a task", server.task_index))?;
    let cluster = server.cluster.as_ref().map(ClusterSpec::from_proto).transpose();
    let cluster = cluster.map_err(|error| anyhow!("cluster: {}", error.message()))?;
    let layer = Layer {
        cluster: cluster.filter(|cluster| !cluster.is_empty()).map(ClusterText),
        task: Some(task),
        job: Some(server.job_name).filter(|job| !job.is_empty()),
        port: Some(port).filter(|&port| port > 0),
        ..Layer::default()
    };
    Ok(Source { name, layer, session_config: server.default_session_config })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(toml: &str) -> Layer {
        toml::from_str(toml).unwrap()
    }

    fn settings(layers: &[(&str, &str)]) -> Settings {
        let mut sources: Vec<_> = layers.iter().map(|(name, toml)| Source::new(*name, layer(toml))).collect();
        Settings::of(&mut sources).unwrap()
    }

    #[test]
    fn the_first_source_wins_for_each_setting() {
        let settings = settings(&[
            ("flag", "task = 1"),
            ("a.toml", "job = 'worker'\ngrace = 9\ncluster = 'worker=h:1,h:2'"),
            ("TF_CONFIG", "job = 'ps'\ntask = 7"),
        ]);
        let entries = settings.entries().unwrap();
        let entry = |key: &str| {
            let entry = entries.iter().find(|entry| entry.key == key).unwrap();
            (entry.value.to_string(), entry.source.as_str())
        };
        assert_eq!(entry("task"), ("1".to_owned(), "flag"));
        assert_eq!(entry("job"), ("\"worker\"".to_owned(), "a.toml"));
        assert_eq!(entry("port"), ("2".to_owned(), "cluster"));
        assert_eq!(entry("grace"), ("9.0".to_owned(), "a.toml"));
        assert_eq!(entry("log-level"), ("\"info\"".to_owned(), "default"));
    }

    #[test]
    fn an_index_belongs_to_the_job_before_it() {
        let settings = settings(&[("flag", "job = 'ps'"), ("TF_CONFIG", "job = 'worker'\ntask = 7")]);
        assert_eq!((settings.job.value.as_deref(), settings.task.value), (Some("ps"), 0));
    }

    #[test]
    fn what_is_shown_means_the_same_when_it_is_read() {
        let shown = settings(&[(
            "flag",
            "cluster = 'ps=h:1;worker=h:2'\njob = 'ps'\ncollective-leader = '/job:worker/task:0'\nfile-root = '/x'",
        )]);
        let text = to_toml(&shown.entries().unwrap()).unwrap();
        let again = settings(&[("flag", &text)]);
        assert_eq!(again.session_config.value, shown.session_config.value);
        let values = |settings: &Settings| -> Vec<_> {
            settings.entries().unwrap().into_iter().map(|entry| (entry.key, entry.value)).collect()
        };
        assert_eq!(values(&again), values(&shown));
    }

    #[test]
    fn a_server_def_is_a_source() {
        let cluster: ClusterSpec = "ps=h:1;worker=h:2".parse().unwrap();
        let job = |name: &str, address: &str| graphmill_wire::tensorflow::JobDef {
            name: name.to_owned(),
            tasks: [(0, address.to_owned())].into(),
        };
        let def = ServerDef {
            cluster: Some(graphmill_wire::tensorflow::ClusterDef { job: vec![job("ps", "h:1"), job("worker", "h:2")] }),
            job_name: "ps".to_owned(),
            default_session_config: Some(ConfigProto { allow_soft_placement: true, ..Default::default() }),
            ..Default::default()
        };
        let settings = Settings::of(&mut [of_server_def("def".to_owned(), def.clone()).unwrap()]).unwrap();
        assert_eq!(settings.cluster.value, cluster);
        assert!(settings.session_config.value.allow_soft_placement);
        for wrong in [
            ServerDef { protocol: "grpc+verbs".to_owned(), ..def.clone() },
            ServerDef { port: 70000, ..def.clone() },
            ServerDef { task_index: -1, ..def },
        ] {
            assert!(of_server_def("def".to_owned(), wrong).is_err());
        }
    }
}
