//! What goes out on a connection: small frames together, large contents in turn.

use super::CHUNK;
use super::frame::{Frame, Id};
use bytes::{Bytes, BytesMut};
use graphmill_tensor::Tensor;
use std::collections::VecDeque;
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

/// Small frames are collected up to this many bytes before they are written.
const COLLECTED: usize = 64 << 10;

/// The content of an answer, which keeps its memory alive until it has been written.
pub(super) enum Content {
    Tensor(Tensor),
    Message(Bytes),
}

impl Content {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Content::Tensor(tensor) => tensor.as_bytes().unwrap_or_default(),
            Content::Message(message) => message,
        }
    }
}

/// What is to be written.
pub(super) enum Outgoing {
    Frame(Frame),
    /// An answer with content.
    Answer {
        id: Id,
        frame: Frame,
        content: Content,
    },
}

/// A content of which some has been written.
struct Transfer {
    id: Id,
    content: Content,
    written: usize,
}

/// Writes what comes out of `queue` until it is closed or the connection breaks.
pub(super) async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    queue: &mut UnboundedReceiver<Outgoing>,
) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(COLLECTED);
    let mut transfers: VecDeque<Transfer> = VecDeque::new();
    loop {
        if transfers.is_empty() && buffer.is_empty() {
            match queue.recv().await {
                Some(outgoing) => take(outgoing, &mut buffer, &mut transfers),
                None => return Ok(()),
            }
        }
        while buffer.len() < COLLECTED
            && let Ok(outgoing) = queue.try_recv()
        {
            take(outgoing, &mut buffer, &mut transfers);
        }
        stream.write_all(&buffer).await?;
        buffer.clear();
        if let Some(mut transfer) = transfers.pop_front() {
            let bytes = transfer.content.bytes();
            let end = bytes.len().min(transfer.written + CHUNK);
            let part = bytes.get(transfer.written..end).unwrap_or_default();
            stream.write_all(&Frame::chunk_head(transfer.id, part.len())).await?;
            stream.write_all(part).await?;
            let done = end == bytes.len();
            transfer.written = end;
            if !done {
                transfers.push_back(transfer);
            }
        }
        stream.flush().await?;
    }
}

fn take(outgoing: Outgoing, buffer: &mut BytesMut, transfers: &mut VecDeque<Transfer>) {
    match outgoing {
        Outgoing::Frame(frame) => frame.write(buffer),
        Outgoing::Answer { id, frame, content } => {
            frame.write(buffer);
            let bytes = content.bytes();
            if bytes.is_empty() {
                return;
            }
            if bytes.len() <= COLLECTED {
                buffer.extend_from_slice(&Frame::chunk_head(id, bytes.len()));
                buffer.extend_from_slice(bytes);
            } else {
                transfers.push_back(Transfer { id, content, written: 0 });
            }
        }
    }
}
