//! The network of the operating system.

use super::{Connecting, Connection, Incoming, Network};
use graphmill_tensor::{Result, Status, internal, invalid_argument, unavailable};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_stream::Stream;

/// Pause after a connection could not be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// After how long a silent connection is asked whether the other host is still there, how often, and how long that may go on. It is
/// TCP that asks: gRPC's servers end connections on which HTTP/2 asks often.
const SILENCE: Duration = Duration::from_secs(5);
const PROBES: Duration = Duration::from_secs(3);
const UNREACHABLE: Duration = Duration::from_secs(15);

/// Sockets of TCP.
pub struct Tcp;

impl Network for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            watch(&stream)?;
            Ok(connection(stream))
        })
    }

    fn listen(&self, hosts: &[String], port: u16) -> Result<(Incoming, u16)> {
        let (listeners, port) = listen(hosts, port)?;
        let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<_>>();
        let listeners = listeners.map_err(|error| internal!("The sockets cannot be listened to: {error}"))?;
        Ok((Box::pin(Accepted { listeners, pause: None }), port))
    }
}

fn connection(stream: TcpStream) -> Connection {
    let peer = stream.peer_addr();
    let (read, write) = stream.into_split();
    let connection = Connection::new(read, write);
    match peer {
        Ok(peer) => connection.with_peer(peer),
        // It is gone already, which is seen when it is read.
        Err(_) => connection,
    }
}

/// Has the connection end when the other host is gone, and nothing wait for acknowledgements.
fn watch(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(PROBES))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNREACHABLE))?;
    Ok(())
}

/// Listens on the first host, and on the others where they exist. Returns the port, which is the same for all.
fn listen(hosts: &[String], wanted: u16) -> Result<(Vec<TcpListener>, u16)> {
    let mut listeners = Vec::new();
    let mut port = wanted;
    for (at, host) in hosts.iter().enumerate() {
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
                if at == 0 || taken && wanted != 0 {
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
struct Accepted {
    listeners: Vec<tokio::net::TcpListener>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Stream for Accepted {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Connection>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        for listener in &self.listeners {
            match listener.poll_accept(context) {
                Poll::Pending => {}
                Poll::Ready(Ok((stream, _))) => {
                    // A socket that refuses these settings works all the same.
                    let _ = watch(&stream);
                    return Poll::Ready(Some(Ok(connection(stream))));
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
