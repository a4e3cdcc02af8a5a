//! The receiver's end of connections.

use super::GREETING;
use super::frame::{Frame, Head, Id, SegmentName};
use super::writer::{Outgoing, write_all};
use crate::grpc::watch;
use crate::shared_memory::{self, Opened};
use bytes::{Bytes, BytesMut};
use graphmill_runtime::{Parcel, Receiver};
use graphmill_tensor::{Result, Status, Tensor, internal, unavailable};
use graphmill_wire::tensorflow::TensorProto;
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a connection could not be made none is tried.
const PAUSE: Duration = Duration::from_secs(10);
/// After this time a receive says in the log what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Memory that is set aside for a message on the word of its length alone.
const TRUSTED_LENGTH: usize = 64 << 20;
/// Size of what is read at once.
const READ_BUFFER: usize = 512 << 10;

/// The way on which tensors come from one other task of graphmill.
pub(crate) struct StreamReceiver {
    task: String,
    address: String,
    state: Mutex<State>,
}

enum State {
    Closed,
    Connecting,
    Open(Arc<Open>),
    Failed(Instant),
}

/// A connection that works.
struct Open {
    outgoing: UnboundedSender<Outgoing>,
    next: AtomicU64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    receives: HashMap<Id, Receive>,
    /// Whether the connection has ended.
    ended: bool,
}

struct Receive {
    step: i64,
    key: Arc<str>,
    since: Instant,
    receiver: Receiver,
}

impl StreamReceiver {
    pub fn new(task: &str, address: &str) -> Arc<StreamReceiver> {
        let state = Mutex::new(State::Closed);
        Arc::new(StreamReceiver { task: task.to_owned(), address: address.to_owned(), state })
    }

    /// Receives a tensor over the connection. Where there is none yet one is made meanwhile, and the receiver is given back.
    pub fn receive(
        self: &Arc<Self>,
        runtime: &Handle,
        step: i64,
        key: &Arc<str>,
        receiver: Receiver,
    ) -> std::result::Result<(), Receiver> {
        let open = {
            let mut state = self.state.lock();
            match &*state {
                State::Open(open) => open.clone(),
                State::Connecting => return Err(receiver),
                State::Failed(when) if when.elapsed() < PAUSE => return Err(receiver),
                State::Failed(_) | State::Closed => {
                    *state = State::Connecting;
                    runtime.spawn(self.clone().run());
                    return Err(receiver);
                }
            }
        };
        let id = open.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut pending = open.pending.lock();
            if pending.ended {
                return Err(receiver);
            }
            pending.receives.insert(id, Receive { step, key: key.clone(), since: Instant::now(), receiver });
        }
        open.write(Frame::Receive { id, step, key: key.to_string() });
        Ok(())
    }

    /// Fails all receives of a step, which has ended.
    pub fn abort(&self, step: i64, reason: &Status) {
        let State::Open(open) = &*self.state.lock() else { return };
        let open = open.clone();
        let withdrawn: Vec<(Id, Receive)> = {
            let mut pending = open.pending.lock();
            pending.receives.extract_if(|_, receive| receive.step == step).collect()
        };
        for (id, receive) in withdrawn {
            open.write(Frame::Withdraw { id });
            (receive.receiver)(Err(reason.clone()));
        }
    }

    /// Makes a connection and serves it to its end.
    async fn run(self: Arc<Self>) {
        let outcome = self.converse().await;
        let ended = match &outcome {
            // A connection that had worked may be made again at once.
            Ok(_) => State::Closed,
            Err(_) => State::Failed(Instant::now()),
        };
        let before = std::mem::replace(&mut *self.state.lock(), ended);
        let reason = match outcome {
            Ok(reason) | Err(reason) => reason,
        };
        tracing::debug!(task = self.task, "the stream of tensors ended: {reason}");
        if let State::Open(open) = before {
            open.end(&unavailable!("Connection to {} at {} was lost: {reason}", self.task, self.address));
        }
    }

    /// Why the connection ended: an error if it never worked.
    async fn converse(self: &Arc<Self>) -> std::result::Result<String, String> {
        let connect = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address));
        let mut stream = match connect.await {
            Ok(stream) => stream.map_err(|error| error.to_string())?,
            Err(_) => return Err("no connection in time".to_owned()),
        };
        watch(&stream).map_err(|error| error.to_string())?;
        let mut greeting = BytesMut::from(GREETING);
        Frame::Hello { host: shared_memory::host().unwrap_or_default() }.write(&mut greeting);
        stream.write_all(&greeting).await.map_err(|error| error.to_string())?;
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::with_capacity(READ_BUFFER, read);
        match timeout(CONNECT_TIMEOUT, Frame::read(&mut read)).await {
            Ok(Ok(Some(Frame::Welcome))) => {}
            _ => return Err("it was not answered as by a task of graphmill".to_owned()),
        }
        let (outgoing, mut queue) = unbounded_channel();
        let open = Arc::new(Open { outgoing, next: AtomicU64::new(0), pending: Mutex::default() });
        *self.state.lock() = State::Open(open.clone());
        let writer = tokio::spawn(async move { write_all(&mut write, &mut queue).await });
        let watcher = tokio::spawn(report(open.clone(), self.task.clone()));
        let mut incoming = Incoming { open, opened: Opened::default(), partial: HashMap::new() };
        let reason = loop {
            match Frame::read(&mut read).await {
                Ok(Some(frame)) => incoming.take(frame),
                Ok(None) => break "the other end closed it".to_owned(),
                Err(reason) => break reason,
            }
        };
        writer.abort();
        watcher.abort();
        Ok(reason)
    }
}

impl Open {
    fn write(&self, frame: Frame) {
        // The end of the connection is told to all who wait.
        let _ = self.outgoing.send(Outgoing::Frame(frame));
    }

    fn resolve(&self, id: Id, outcome: Result<Parcel>) {
        let receive = self.pending.lock().receives.remove(&id);
        if let Some(receive) = receive {
            (receive.receiver)(outcome);
        }
    }

    fn end(&self, reason: &Status) {
        let receives = {
            let mut pending = self.pending.lock();
            pending.ended = true;
            std::mem::take(&mut pending.receives)
        };
        receives.into_values().for_each(|receive| (receive.receiver)(Err(reason.clone())));
    }
}

/// Says in the log which receives wait for long.
async fn report(open: Arc<Open>, task: String) {
    loop {
        sleep(PATIENCE).await;
        let pending = open.pending.lock();
        for receive in pending.receives.values().filter(|receive| receive.since.elapsed() >= PATIENCE) {
            tracing::info!(step = receive.step, "still waiting for {task} to send {}", receive.key);
        }
    }
}

/// What comes in on a connection.
struct Incoming {
    open: Arc<Open>,
    opened: Opened,
    /// Answers of which some is still to come.
    partial: HashMap<Id, Partial>,
}

enum Partial {
    Tensor { tensor: Tensor, filled: usize, length: usize },
    Message { content: BytesMut, length: usize },
}

impl Incoming {
    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Probe { segment } if self.opened.contents(&segment, 0).is_ok() => self.open.write(Frame::ProbeSeen),
            Frame::Value { id, head, length } => self.begin(id, head, length),
            Frame::Chunk { id, content } => self.append(id, &content),
            Frame::Segment { id, head, length, segment } => {
                let outcome = self.shared(head, length, &segment);
                self.open.resolve(id, outcome);
            }
            Frame::Failure { id, status } => self.open.resolve(id, Err(status)),
            // What only receivers say.
            _ => {}
        }
    }

    fn begin(&mut self, id: Id, head: Head, length: u64) {
        let begun = match usize::try_from(length) {
            Ok(bytes) if head.fits(length) => Partial::new(head, bytes),
            _ => Err(internal!("A tensor came with {length} bytes, which do not fit its shape")),
        };
        match begun {
            Ok(None) => self.open.resolve(id, Ok(None)),
            Ok(Some(partial)) if partial.is_complete() => self.open.resolve(id, partial.finish()),
            Ok(Some(partial)) => {
                self.partial.insert(id, partial);
            }
            Err(status) => self.open.resolve(id, Err(status)),
        }
    }

    fn append(&mut self, id: Id, content: &[u8]) {
        let Some(partial) = self.partial.get_mut(&id) else { return };
        let outcome = partial.append(content);
        if outcome.is_ok() && !partial.is_complete() {
            return;
        }
        if let Some(partial) = self.partial.remove(&id) {
            self.open.resolve(id, outcome.and_then(|()| partial.finish()));
        }
    }

    fn shared(&mut self, head: Head, length: u64, segment: &SegmentName) -> Result<Parcel> {
        let length = usize::try_from(length).ok().filter(|_| head.fits(length));
        let length = length.ok_or_else(|| internal!("A tensor came with bytes that do not fit its shape"))?;
        let content = self.opened.contents(segment, length);
        let content = content.map_err(|error| unavailable!("Shared memory cannot be opened: {error}"))?;
        match head {
            Head::Dead => Ok(None),
            Head::Plain { dtype, shape } => Tensor::from_bytes(dtype, shape, content).map(Some),
            Head::Message => decode(content),
        }
    }
}

fn decode(content: Bytes) -> Result<Parcel> {
    let proto = TensorProto::decode(content).map_err(|error| internal!("A tensor cannot be read: {error}"))?;
    Tensor::from_proto(&proto).map(Some)
}

impl Partial {
    /// `None` for a dead value.
    fn new(head: Head, length: usize) -> Result<Option<Partial>> {
        Ok(match head {
            Head::Dead => None,
            Head::Plain { dtype, shape } => {
                Some(Partial::Tensor { tensor: Tensor::alloc(dtype, shape)?, filled: 0, length })
            }
            Head::Message => {
                Some(Partial::Message { content: BytesMut::with_capacity(length.min(TRUSTED_LENGTH)), length })
            }
        })
    }

    fn is_complete(&self) -> bool {
        match self {
            Partial::Tensor { filled, length, .. } => filled == length,
            Partial::Message { content, length } => content.len() >= *length,
        }
    }

    fn append(&mut self, part: &[u8]) -> Result<()> {
        match self {
            Partial::Message { content, .. } => content.extend_from_slice(part),
            Partial::Tensor { tensor, filled, .. } => {
                let size = tensor.dtype().size().max(1);
                if !part.len().is_multiple_of(size) {
                    return Err(internal!("A part of a tensor ends within an element"));
                }
                let first = *filled / size;
                tensor.fill_bytes(first..first + part.len() / size, |target| {
                    target.copy_from_slice(part);
                    Ok(())
                })?;
                *filled += part.len();
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Parcel> {
        match self {
            Partial::Tensor { tensor, .. } => Ok(Some(tensor)),
            Partial::Message { content, .. } => decode(content.freeze()),
        }
    }
}
