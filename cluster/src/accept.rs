//! Telling the connections of gRPC from streams of tensors, which come in on the same port.

use crate::stream::{self, GREETING};
use crate::task::Task;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};

/// How long a connection may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections that wait to be taken up.
const QUEUED: usize = 64;

/// The connections of gRPC among `incoming`; streams of tensors are served meanwhile. Runs on the runtime that calls it.
pub(crate) fn split(
    task: Arc<Task>,
    mut incoming: impl Stream<Item = io::Result<TcpStream>> + Send + Unpin + 'static,
) -> GrpcConnections {
    let (sender, receiver) = channel(QUEUED);
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                // Nobody takes connections any more: the sockets are closed.
                () = sender.closed() => return,
                next = incoming.next() => next,
            };
            match next {
                Some(Ok(stream)) => {
                    tokio::spawn(direct(task.clone(), stream, sender.clone()));
                }
                Some(Err(error)) => {
                    // The end of those who take connections is seen above.
                    let _ = sender.send(Err(error)).await;
                }
                None => return,
            }
        }
    });
    GrpcConnections(receiver)
}

async fn direct(task: Arc<Task>, stream: TcpStream, grpc: Sender<io::Result<TcpStream>>) {
    let mut first = [0; 4];
    match timeout(PATIENCE, stream.peek(&mut first)).await {
        Ok(Ok(length)) if length > 0 && GREETING.starts_with(first.get(..length).unwrap_or_default()) => {
            stream::serve(task, stream).await;
        }
        // HTTP/2 knows best what to do with what says nothing.
        _ => {
            let _ = grpc.send(Ok(stream)).await;
        }
    }
}

/// Connections of gRPC.
pub(crate) struct GrpcConnections(Receiver<io::Result<TcpStream>>);

impl Stream for GrpcConnections {
    type Item = io::Result<TcpStream>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
