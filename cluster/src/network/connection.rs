//! Bytes that go both ways.

use std::io::{self, Cursor, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

pub(crate) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// One connection. It ends when it is dropped.
pub struct Connection {
    read: ReadHalf,
    write: WriteHalf,
    peer: Option<SocketAddr>,
}

/// Where a connection comes from, as the calls on it are told.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

impl Connection {
    /// Of its two directions, as this end sees them.
    pub fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Connection {
        Connection { read: Box::new(read), write: Box::new(write), peer: None }
    }

    /// This connection, whose other end has an address.
    pub fn with_peer(self, peer: SocketAddr) -> Connection {
        Connection { peer: Some(peer), ..self }
    }

    /// The two directions.
    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// The connection as it was before these bytes were read from it.
    pub(crate) fn before(self, first: Vec<u8>) -> Connection {
        Connection { read: Box::new(Cursor::new(first).chain(self.read)), ..self }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn bytes_that_were_read_come_again() {
        let (near, mut far) = tokio::io::duplex(64);
        let (read, write) = tokio::io::split(near);
        let mut connection = Connection::new(read, write);
        far.write_all(b"abcdef").await.unwrap();
        let mut first = vec![0; 2];
        connection.read_exact(&mut first).await.unwrap();
        let mut connection = connection.before(first);
        connection.write_all(b"answer").await.unwrap();
        drop(far.shutdown().await);
        let mut all = Vec::new();
        connection.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"abcdef");
        let mut answer = [0; 6];
        far.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
    }
}
