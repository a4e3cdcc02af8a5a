//! The server: sockets, threads, and an end that does not take for ever.

use crate::collective::Leader;
use crate::grpc::GrpcService;
use crate::master::Master;
use crate::network::{Network, Tcp};
use crate::peers::task_name;
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
const DROP_PATIENCE: Duration = Duration::from_secs(1);

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
        let name = task_name(&identity.job, identity.task);
        let leader = Leader::new(config.collective_leader.as_deref(), &config.cluster, &name)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_IO_THREADS))
            .thread_name("io")
            .enable_all()
            .build()
            .map_err(|error| internal!("The threads of the server cannot be started: {error}"))?;
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
        let threads = (config.intra_op_threads, config.inter_op_threads);
        let (own, handle) = ((identity.job.as_str(), identity.task), runtime.handle().clone());
        let collective = (leader, config.recv_buf_max_chunk);
        let task =
            Arc::new(Task::new(own, &config.cluster, threads, registry, config.random, collective, (network, handle)));
        tracing::info!(task = task.name, port, "listening");
        let streams = task.clone();
        let services = Arc::new(Services { master: Master::new(task.clone()), worker: Worker::new(task) });
        if let Some(limit) = config.session_timeout {
            let services = services.clone();
            runtime.spawn(async move { services.master.end_idle_sessions(limit).await });
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let incoming = {
            let _runtime = runtime.enter();
            accept::split(streams, incoming)
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

    /// Ends the server within `patience`: no more connections, running steps get `ABORTED`, their answers are still sent.
    pub fn shutdown(&mut self, patience: Duration) {
        self.end(patience);
    }

    fn end(&mut self, patience: Duration) {
        let Some(Serving { runtime, stop, connections }) = self.running.take() else { return };
        // Fails only if the serving task has ended by itself.
        let _ = stop.send(());
        let services = self.services.clone();
        let (ended, wait) = mpsc::channel();
        runtime.spawn(async move {
            services.master.end_sessions(shut_down(), true).await;
            services.worker.end(shut_down()).await;
            let _ = connections.await;
            let _ = ended.send(());
        });
        // Not by blocking on the runtime, which a caller on another runtime must not do.
        if wait.recv_timeout(patience).is_err() {
            tracing::warn!("connections or steps were cut off");
        }
        runtime.shutdown_background();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(DROP_PATIENCE);
    }
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
