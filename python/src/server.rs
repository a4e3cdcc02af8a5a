//! The class `Server`.

use crate::cluster::cluster_spec;
use graphmill_cluster::ServerConfig;
use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tracing_subscriber::EnvFilter;

/// How often a wait looks for signals.
const SIGNALS: Duration = Duration::from_millis(100);
/// How long a server that is just dropped may take to end.
const DROP_PATIENCE: f64 = 1.0;

/// One task of a cluster: master and worker, in threads of this process.
///
/// It serves from its construction until it is stopped. The stub file of the package says what the arguments are.
#[pyclass(frozen, module = "graphmill")]
pub struct Server {
    target: String,
    state: Mutex<State>,
    stopped: Condvar,
}

enum State {
    Running(graphmill_cluster::Server),
    /// A thread is about to end it.
    Stopping,
    Stopped,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (cluster = None, job_name = None, task_index = 0, *, host = None, port = None, intra_op_threads = 0,
        inter_op_threads = 0, file_root = None, session_timeout = None, collective_leader = None, log_level = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        cluster: Option<&Bound<'_, PyAny>>,
        job_name: Option<String>,
        task_index: u32,
        host: Option<String>,
        port: Option<u16>,
        intra_op_threads: usize,
        inter_op_threads: usize,
        file_root: Option<PathBuf>,
        session_timeout: Option<f64>,
        collective_leader: Option<String>,
        log_level: Option<&str>,
    ) -> PyResult<Server> {
        if let Some(level) = log_level {
            start_log(level)?;
        }
        let cluster = cluster.map(cluster_spec).transpose()?;
        let config = ServerConfig {
            host,
            // A task that nobody else has to find takes any port.
            port: port.or(if cluster.is_none() { Some(0) } else { None }),
            job: job_name,
            task: task_index,
            cluster: cluster.unwrap_or_default(),
            intra_op_threads,
            inter_op_threads,
            session_timeout: session_timeout.map(seconds).transpose()?,
            collective_leader,
            ..ServerConfig::default()
        };
        let server = py.detach(|| {
            let registry = match &file_root {
                Some(root) => graphmill_kernels::registry_below(root)?,
                None => graphmill_kernels::registry(),
            };
            graphmill_cluster::Server::bind(config, registry)
        });
        let server = server.map_err(|error| crate::exception(&error))?;
        let target = server.target().to_owned();
        Ok(Server { target, state: Mutex::new(State::Running(server)), stopped: Condvar::new() })
    }

    /// Where clients of this machine reach the server, such as grpc://localhost:2222.
    #[getter]
    fn target(&self) -> &str {
        &self.target
    }

    /// Waits until the server is stopped, or until timeout seconds are over. Returns whether it has stopped.
    #[pyo3(signature = (timeout = None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = end.map_or(SIGNALS, |end| end.saturating_duration_since(Instant::now()).min(SIGNALS));
            if py.detach(|| self.has_stopped_within(left)) {
                return Ok(true);
            }
            py.check_signals()?;
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
        }
    }

    /// Ends the server: running steps fail with ABORTED, and their answers get timeout seconds to be sent.
    #[pyo3(signature = (timeout = 3.0))]
    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let patience = seconds(timeout)?;
        py.detach(|| self.end(patience));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.stop(py, 3.0)
    }

    fn __repr__(&self) -> String {
        let state = match *self.state.lock() {
            State::Running(_) => "serving",
            State::Stopping => "stopping",
            State::Stopped => "stopped",
        };
        format!("<graphmill.Server {} {state}>", self.target)
    }
}

impl Server {
    fn has_stopped_within(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        if !matches!(*state, State::Stopped) {
            self.stopped.wait_for(&mut state, patience);
        }
        matches!(*state, State::Stopped)
    }

    /// Ends the server; where another thread does that, waits for it.
    fn end(&self, patience: Duration) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Stopping) {
            State::Running(mut server) => {
                drop(state);
                server.shutdown(patience);
                *self.state.lock() = State::Stopped;
                self.stopped.notify_all();
            }
            State::Stopping => {
                while !matches!(*state, State::Stopped) {
                    self.stopped.wait(&mut state);
                }
            }
            State::Stopped => *state = State::Stopped,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let end = || self.end(Duration::from_secs_f64(DROP_PATIENCE));
        // Whoever drops the last reference holds the lock; at the end of the interpreter there is none.
        Python::try_attach(|py| py.detach(end));
    }
}

/// Begins to log to standard error, if the process does not log already.
fn start_log(level: &str) -> PyResult<()> {
    // The libraries below graphmill log each frame of each connection.
    let directives = if level == "off" { level.to_owned() } else { format!("warn,graphmill={level}") };
    let filter = EnvFilter::try_new(directives).map_err(|_| {
        PyValueError::new_err(format!("{level:?} is no log level: error, warn, info, debug, trace or off"))
    })?;
    // The first server of the process decides.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).try_init();
    Ok(())
}

/// A time that does not overflow.
fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| PyValueError::new_err(format!("{value} is not a number of seconds")))
}
