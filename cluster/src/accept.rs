//! Telling the connections of gRPC from streams of tensors, which come in on the same port.

use crate::network::{Connection, Incoming};
use crate::stream::{self, GREETING};
use crate::task::Task;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};

/// How long a connection may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes by which connections are told apart.
const FIRST: usize = 4;
/// Connections that wait to be taken up.
const QUEUED: usize = 64;

/// The connections of gRPC among `incoming`; streams of tensors are served meanwhile. Runs on the runtime that calls it.
pub(crate) fn split(task: Arc<Task>, mut incoming: Incoming) -> GrpcConnections {
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

async fn direct(task: Arc<Task>, mut connection: Connection, grpc: Sender<io::Result<Connection>>) {
    let mut first = vec![0; FIRST];
    // HTTP/2 knows best what to do with what says nothing.
    let length = match timeout(PATIENCE, connection.read(&mut first)).await {
        Ok(Ok(length)) => length,
        _ => 0,
    };
    first.truncate(length);
    let streams = length > 0 && GREETING.starts_with(&first);
    let connection = connection.before(first);
    if streams {
        stream::serve(task, connection).await;
    } else {
        let _ = grpc.send(Ok(connection)).await;
    }
}

/// Connections of gRPC.
pub(crate) struct GrpcConnections(Receiver<io::Result<Connection>>);

impl Stream for GrpcConnections {
    type Item = io::Result<Connection>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
