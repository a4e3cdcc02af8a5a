//! The sender's end of a connection.

use super::GREETING;
use super::frame::{Frame, Head, Id};
use super::writer::{Content, Outgoing, write_all};
use crate::grpc::watch;
use crate::shared_memory::{self, SegmentPool};
use crate::task::Task;
use crate::worker::check_source;
use graphmill_runtime::{LocalRendezvous, Parcel, WaiterId};
use graphmill_tensor::{Result, Tensor};
use graphmill_wire::tensorflow::TensorProto;
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// From this length on a tensor is worth a segment of shared memory.
const WORTH_A_SEGMENT: usize = 256 << 10;

/// Serves the receives that come over a connection, until it ends.
pub(crate) async fn serve(task: Arc<Task>, stream: TcpStream) {
    if let Err(reason) = converse(task, stream).await {
        tracing::debug!("a stream of tensors ended: {reason}");
    }
}

async fn converse(task: Arc<Task>, mut stream: TcpStream) -> std::result::Result<(), String> {
    watch(&stream).map_err(|error| error.to_string())?;
    let mut greeting = vec![0; GREETING.len()];
    stream.read_exact(&mut greeting).await.map_err(|error| error.to_string())?;
    if greeting != GREETING {
        return Err("it began with something else".to_owned());
    }
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let (outgoing, mut queue) = unbounded_channel();
    let writer = tokio::spawn(async move { write_all(&mut write, &mut queue).await });
    let connection = Arc::new(Connection {
        task,
        outgoing,
        segments: SegmentPool::default(),
        shares_memory: AtomicBool::new(false),
        waiting: Mutex::default(),
    });
    let outcome = loop {
        match Frame::read(&mut read).await {
            Ok(Some(frame)) => connection.take(frame),
            Ok(None) => break Ok(()),
            Err(reason) => break Err(reason),
        }
    };
    connection.withdraw_all();
    writer.abort();
    outcome
}

struct Connection {
    task: Arc<Task>,
    outgoing: UnboundedSender<Outgoing>,
    segments: SegmentPool,
    /// Whether the receiver has seen memory of this process.
    shares_memory: AtomicBool,
    waiting: Mutex<HashMap<Id, Waiting>>,
}

/// A receive that has not been answered.
struct Waiting {
    step: i64,
    key: Arc<str>,
    rendezvous: Arc<LocalRendezvous>,
    waiter: Option<WaiterId>,
}

impl Connection {
    fn take(self: &Arc<Self>, frame: Frame) {
        match frame {
            Frame::Hello { host } => {
                self.write(Frame::Welcome);
                if shared_memory::host().is_some_and(|own| own == host)
                    && let Some(segment) = self.segments.give(&[])
                {
                    self.write(Frame::Probe { segment });
                }
            }
            Frame::ProbeSeen => self.shares_memory.store(true, Ordering::Relaxed),
            Frame::Receive { id, step, key } => self.receive(id, step, &key),
            Frame::Withdraw { id } => {
                let waiting = self.waiting.lock().remove(&id);
                if let Some(waiting) = waiting {
                    self.withdraw(waiting);
                }
            }
            // What only senders say.
            _ => {}
        }
    }

    fn write(&self, frame: Frame) {
        // Nobody waits for an answer on a connection that has ended.
        let _ = self.outgoing.send(Outgoing::Frame(frame));
    }

    fn receive(self: &Arc<Self>, id: Id, step: i64, key: &str) {
        if let Err(status) = check_source(&self.task, key) {
            return self.write(Frame::Failure { id, status });
        }
        let key: Arc<str> = Arc::from(key);
        let rendezvous = self.task.exchanges.of(step);
        let waiting = Waiting { step, key: key.clone(), rendezvous: rendezvous.clone(), waiter: None };
        // Before the answer, which may come at once, takes it away again.
        self.waiting.lock().insert(id, waiting);
        let connection = Arc::downgrade(self);
        let receiver = move |outcome| {
            if let Some(connection) = connection.upgrade() {
                connection.waiting.lock().remove(&id);
                connection.answer(id, outcome);
            }
        };
        let waiter = rendezvous.receive_or_wait(&key, Box::new(receiver));
        if let Some(waiting) = self.waiting.lock().get_mut(&id) {
            waiting.waiter = waiter;
        }
    }

    fn answer(self: &Arc<Self>, id: Id, outcome: Result<Parcel>) {
        let tensor = match outcome {
            Ok(Some(tensor)) => tensor,
            Ok(None) => return self.write(Frame::Value { id, head: Head::Dead, length: 0 }),
            Err(status) => return self.write(Frame::Failure { id, status }),
        };
        let (head, content) = match tensor.as_bytes() {
            Some(_) => {
                let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
                (Head::Plain { dtype, shape }, Content::Tensor(tensor))
            }
            None => (Head::Message, Content::Message(message(&tensor))),
        };
        if self.shares_memory.load(Ordering::Relaxed) && content.bytes().len() >= WORTH_A_SEGMENT {
            let connection = self.clone();
            // Copying a large tensor would hold up who has made it.
            self.task.runtime.spawn_blocking(move || connection.share(id, head, content));
            return;
        }
        self.stream(id, head, content);
    }

    fn stream(&self, id: Id, head: Head, content: Content) {
        let length = content.bytes().len() as u64;
        let _ = self.outgoing.send(Outgoing::Answer { id, frame: Frame::Value { id, head, length }, content });
    }

    fn share(&self, id: Id, head: Head, content: Content) {
        match self.segments.give(content.bytes()) {
            Some(segment) => {
                let length = content.bytes().len() as u64;
                self.write(Frame::Segment { id, head, length, segment });
            }
            None => self.stream(id, head, content),
        }
    }

    fn withdraw(&self, waiting: Waiting) {
        if let Some(waiter) = waiting.waiter {
            waiting.rendezvous.withdraw(&waiting.key, waiter);
        }
        self.task.exchanges.forget_if_idle(waiting.step, waiting.rendezvous);
    }

    fn withdraw_all(&self) {
        let all = std::mem::take(&mut *self.waiting.lock());
        all.into_values().for_each(|waiting| self.withdraw(waiting));
    }
}

fn message(tensor: &Tensor) -> bytes::Bytes {
    let proto: TensorProto = tensor.to_proto();
    proto.encode_to_vec().into()
}
