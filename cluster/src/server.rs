//! The server: sockets, threads, and an end that does not take for ever.

use crate::chief;
use crate::config::Identity;
use crate::control::{Control, EndRequest};
use crate::defaults::SessionDefaults;
use crate::grpc::GrpcService;
use crate::long_steps;
use crate::master::Master;
use crate::services::Services;
use crate::task::Task;
use crate::worker::Worker;
use crate::{ServerConfig, accept};
use graphmill_runtime::Registry;
use graphmill_tensor::{Result, Status, aborted, internal, invalid_argument, unavailable};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;

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
/// Pause after a connection could not be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
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
        let identity = config.identity()?;
        let (listeners, port) = listen(&identity)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_IO_THREADS))
            .thread_name("io")
            .enable_all()
            .build()
            .map_err(|error| internal!("The threads of the server cannot be started: {error}"))?;
        let threads = config.threads();
        let (own, handle) = ((identity.job.as_str(), identity.task), runtime.handle().clone());
        let collective = (identity.leader.clone(), config.recv_buf_max_chunk);
        let task = Arc::new(Task::new(own, &config.cluster, threads, registry, config.random, collective, handle));
        tracing::info!(task = task.name, port, "listening");
        let streams = task.clone();
        let services = Arc::new(Services {
            master: Master::new(task.clone(), SessionDefaults::new(config.session_config)),
            worker: Worker::new(task.clone()),
            control: Control::new(task.clone(), config.cluster.to_string(), config.grace, config.allow_remote_stop),
        });
        let incoming = {
            let _runtime = runtime.enter();
            Incoming::new(listeners).map_err(|error| internal!("The sockets cannot be listened to: {error}"))?
        };
        let watched = services.clone();
        runtime.spawn(async move { long_steps::watch(&watched).await });
        if let Some(limit) = config.session_timeout {
            let services = services.clone();
            runtime.spawn(async move { services.master.end_idle_sessions(limit).await });
        }
        if config.exit_with_chief {
            let chief = chief::chief_of(&config.cluster).ok_or_else(|| {
                invalid_argument!(
                    "A task can end with the chief only in a cluster that has one: task 0 of the job chief, master or worker"
                )
            })?;
            if chief == task.name {
                tracing::info!("this task is the chief itself, which does not end by itself");
            } else {
                let services = services.clone();
                runtime.spawn(async move {
                    let reason = chief::watch(&chief, &task.peers, &services).await;
                    services.control.ask_for_end(EndRequest { reason, longest_grace: Some(chief::GRACE) });
                });
            }
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

/// Listens on the first host, and on the others where they exist. Returns the port, which is the same for all.
fn listen(identity: &Identity) -> Result<(Vec<TcpListener>, u16)> {
    let mut listeners = Vec::new();
    let mut port = identity.port;
    for (at, host) in identity.hosts.iter().enumerate() {
        let addresses: Vec<SocketAddr> = (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| invalid_argument!("The host {host} is unknown: {error}"))?
            .collect();
        match bind(&addresses) {
            Ok(listener) => {
                port = listener.local_addr().map_err(|error| internal!("A socket has no address: {error}"))?.port();
                listeners.push(listener);
            }
            Err(error) => {
                let taken = error.kind() == io::ErrorKind::AddrInUse;
                if at == 0 || taken && identity.port != 0 {
                    return Err(cannot_listen(host, port, &error));
                }
                tracing::debug!("not listening on {host}: {error}");
            }
        }
    }
    Ok((listeners, port))
}

fn cannot_listen(host: &str, port: u16, error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::AddrInUse => unavailable!("Port {port} of {host} is taken by another program"),
        io::ErrorKind::PermissionDenied => unavailable!("Port {port} of {host} is not permitted to this user"),
        io::ErrorKind::AddrNotAvailable => unavailable!("{host} is not an address of this machine"),
        _ => unavailable!("Port {port} of {host} cannot be listened to: {error}"),
    }
}

/// Listens on the first address that works. IPv6 sockets take IPv6 alone, so that those of IPv4 do not stand in their way.
fn bind(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for &address in addresses {
        match bind_one(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A server may start anew while connections of its predecessor still linger.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Connections of several sockets as one stream, which never ends.
struct Incoming {
    listeners: Vec<tokio::net::TcpListener>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    fn new(listeners: Vec<TcpListener>) -> io::Result<Incoming> {
        let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<_>>()?;
        Ok(Incoming { listeners, pause: None })
    }
}

impl Stream for Incoming {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        for listener in &self.listeners {
            match listener.poll_accept(context) {
                Poll::Pending => {}
                Poll::Ready(Ok((stream, _))) => {
                    // Without it answers wait for the client's acknowledgements; where it fails they do.
                    let _ = stream.set_nodelay(true);
                    return Poll::Ready(Some(Ok(stream)));
                }
                Poll::Ready(Err(error)) => {
                    tracing::warn!("a connection was not accepted: {error}");
                    self.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_PAUSE)));
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Pending
    }
}
