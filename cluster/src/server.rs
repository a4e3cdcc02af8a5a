//! The server: sockets, threads, and an end that does not take for ever.

use crate::chief;
use crate::collective::Leader;
use crate::control::{Control, EndRequest};
use crate::defaults::SessionDefaults;
use crate::grpc::GrpcService;
use crate::long_steps;
use crate::master::Master;
use crate::network::{Network, Tcp};
use crate::services::Services;
use crate::task::Task;
use crate::worker::Worker;
use crate::{ServerConfig, accept};
use graphmill_runtime::Registry;
use graphmill_tensor::{Result, Status, aborted, internal};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Flow control windows. A smaller one would bound the speed of large tensors by window over round trip.
const STREAM_WINDOW: u32 = 64 << 20;
const CONNECTION_WINDOW: u32 = 128 << 20;
/// Largest HTTP/2 frame that peers may send.
const FRAME: u32 = 1 << 20;
/// Calls that may be open on one connection. Steps that wait, in a queue for example, hold theirs open.
const STREAMS: u32 = 1 << 16;
/// Calls that a client may cancel before they are seen.
const RESET_STREAMS: usize = 1024;
/// Most threads that serve sockets.
const MAX_IO_THREADS: usize = 4;
/// How long the end of a server that is just dropped may take.
pub(crate) const DROP_PATIENCE: Duration = Duration::from_secs(1);

/// One task of a cluster, which listens and serves from [`Server::bind`] on until it is shut down or dropped.
pub struct Server {
    target: String,
    services: Arc<Services>,
    /// Taken when the server ends.
    running: Option<Serving>,
}

struct Serving {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    connections: JoinHandle<()>,
}

impl Server {
    /// Starts a server with these kernels.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for settings that do not fit together or a host that does not exist, `UNAVAILABLE` for a port that
    /// is taken or not permitted.
    pub fn bind(config: ServerConfig, registry: Registry) -> Result<Server> {
        Server::bind_on(Arc::new(Tcp), config, registry)
    }

    /// As [`Server::bind`], on a network of the caller's.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_on(network: Arc<dyn Network>, config: ServerConfig, registry: Registry) -> Result<Server> {
        let identity = config.identity()?;
        let chief = config.exit_with_chief.then(|| chief::of(&config.cluster)).transpose()?;
        let runtime = runtime()?;
        let listening = {
            let _runtime = runtime.enter();
            network.listen(&identity.hosts, identity.port)
        };
        let (incoming, port) = match listening {
            Ok(listening) => listening,
            Err(status) => {
                // Not by dropping it, which a caller on another runtime must not do.
                runtime.shutdown_background();
                return Err(status);
            }
        };
        let own = (identity.job.as_str(), identity.task);
        let services = services(config, own, identity.leader, registry, network, &runtime);
        let task = services.task.clone();
        tracing::info!(task = task.name, port, "listening");
        match chief {
            Some(chief) if chief == task.name => {
                tracing::info!("this task is the chief itself, which does not end by itself");
            }
            Some(chief) => {
                let services = services.clone();
                runtime.spawn(async move {
                    let reason = chief::watch(&chief, &services.task.peers, &services).await;
                    services.control.ask_for_end(EndRequest { reason, longest_grace: Some(chief::GRACE) });
                });
            }
            None => {}
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let incoming = {
            let _runtime = runtime.enter();
            accept::split(task, incoming)
        };
        let service = GrpcService::new(services.clone());
        let connections = runtime.spawn(async move {
            let signal = async move {
                let _ = stopped.await;
            };
            if let Err(error) = http_server().serve_with_incoming_shutdown(service, incoming, signal).await {
                tracing::error!("the server stopped: {error}");
            }
        });
        Ok(Server {
            target: format!("grpc://{}:{port}", identity.target_host),
            services,
            running: Some(Serving { runtime, stop, connections }),
        })
    }

    /// Where clients of this machine reach the server, such as `grpc://localhost:2222`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Waits until `graphmill stop` or the end of the chief asks for the end of this server.
    pub async fn end_requested(&self) -> EndRequest {
        let mut requests = self.services.control.end_requests();
        loop {
            if let Some(request) = requests.borrow_and_update().clone() {
                return request;
            }
            if requests.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes no new sessions (`UNAVAILABLE`) and steps (`ABORTED`) from now on, and waits until the steps that run have ended, but for
    /// no longer than `grace`.
    pub async fn drain(&self, grace: Duration) {
        let Some(serving) = &self.running else { return };
        let services = self.services.clone();
        let drained = serving.runtime.spawn(async move {
            let deadline = Instant::now() + grace;
            let reason = shut_down();
            for steps in services.master.drain(&reason).into_iter().chain(services.worker.drain(&reason)) {
                steps.is_over_by(deadline).await;
            }
        });
        // Fails only if the runtime has ended, and with it all steps.
        let _ = drained.await;
    }

    /// Ends the server within `patience`: no more connections, running steps get `ABORTED`, their answers are still sent.
    pub fn shutdown(&mut self, patience: Duration) {
        self.end(patience);
    }

    fn end(&mut self, patience: Duration) {
        let Some(Serving { runtime, stop, connections }) = self.running.take() else { return };
        // Fails only if the serving task has ended by itself.
        let _ = stop.send(());
        let connections = async {
            let _ = connections.await;
        };
        end(runtime, &self.services, connections, patience);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(DROP_PATIENCE);
    }
}

/// The threads that serve calls.
///
/// # Errors
/// `INTERNAL` if they cannot be started.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_IO_THREADS))
        .thread_name("io")
        .enable_all()
        .build()
        .map_err(|error| internal!("The threads of the server cannot be started: {error}"))
}

/// The services of a task, whose job, index and leader of collective operations follow from its settings.
pub(crate) fn services(
    config: ServerConfig,
    own: (&str, u32),
    leader: Leader,
    registry: Registry,
    network: Arc<dyn Network>,
    runtime: &Runtime,
) -> Arc<Services> {
    let task = Arc::new(Task::new(own, &config, leader, registry, (network, runtime.handle().clone())));
    let worker = Arc::new(Worker::new(task.clone()));
    let services = Arc::new(Services {
        master: Master::new(task.clone(), worker.clone(), SessionDefaults::new(config.session_config)),
        worker,
        control: Control::new(task.clone(), config.cluster.to_string(), config.grace, config.allow_remote_stop),
        task,
    });
    let watched = services.clone();
    runtime.spawn(async move { long_steps::watch(&watched).await });
    if let Some(limit) = config.session_timeout {
        let services = services.clone();
        runtime.spawn(async move { services.master.end_idle_sessions(limit).await });
    }
    services
}

/// Ends sessions, and then `connections`, within `patience`.
pub(crate) fn end(
    runtime: Runtime,
    services: &Arc<Services>,
    connections: impl Future<Output = ()> + Send + 'static,
    patience: Duration,
) {
    let services = services.clone();
    let (ended, wait) = mpsc::channel();
    runtime.spawn(async move {
        services.master.end_sessions(shut_down(), true).await;
        services.worker.end(shut_down()).await;
        connections.await;
        let _ = ended.send(());
    });
    // Not by blocking on the runtime, which a caller on another runtime must not do.
    if wait.recv_timeout(patience).is_err() {
        tracing::warn!("connections or steps were cut off");
    }
    runtime.shutdown_background();
}

/// `ABORTED`, because that is what makes a client's monitored session try again.
fn shut_down() -> Status {
    aborted!("Step was cancelled because the server shuts down.")
}

fn http_server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_concurrent_streams(STREAMS)
        // Clients that cancel many waiting steps at once are no attack.
        .http2_max_pending_accept_reset_streams(Some(RESET_STREAMS))
}
