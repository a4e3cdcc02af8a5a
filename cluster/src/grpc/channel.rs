//! Calls to other tasks.

use super::frames::{Frames, FramesBody};
use super::message::{Encoding, read_answer};
use super::{SERVES_STREAMS, deadline, trailers};
use crate::network::Network;
use bytes::Bytes;
use graphmill_tensor::{Result, Status, deadline_exceeded, internal, unavailable};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

/// Flow control windows, as those of the server.
const STREAM_WINDOW: u32 = 64 << 20;
const CONNECTION_WINDOW: u32 = 128 << 20;
/// Largest HTTP/2 frame that the other task may send.
const FRAME: u32 = 1 << 20;
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts to connect of calls that wait for the other task: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Connection = SendRequest<FramesBody>;

/// The way to one task. Connections are made when they are needed, and made anew when they broke.
pub struct Channel {
    /// The task, such as `/job:ps/replica:0/task:0`.
    task: String,
    /// Host and port.
    address: String,
    network: Arc<dyn Network>,
    connection: Mutex<Option<Connection>>,
    last_error: parking_lot::Mutex<Option<String>>,
    /// Whether the task has said that it serves streams of tensors.
    streams: AtomicBool,
}

impl Channel {
    /// For a task at an address. Nothing is connected yet.
    pub fn new(task: &str, address: &str, network: Arc<dyn Network>) -> Channel {
        Channel {
            task: task.to_owned(),
            address: address.to_owned(),
            network,
            connection: Mutex::default(),
            last_error: parking_lot::Mutex::default(),
            streams: AtomicBool::new(false),
        }
    }

    /// The task's name.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Where the task is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether the task is one of graphmill's, as far as is known.
    pub fn serves_streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }

    /// Why the last attempt to connect failed, if it did.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Makes one call, which fails at once if the task cannot be reached. Dropping the future cancels the call at the other task.
    ///
    /// # Errors
    /// What the other task answers, `UNAVAILABLE` if it cannot be reached or the connection breaks, `DEADLINE_EXCEEDED`.
    pub async fn call(&self, path: &'static str, message: Frames, limit: Option<Instant>) -> Result<Bytes> {
        let call = async {
            let connection = self.connect().await?;
            self.exchange(connection, path, message, limit).await
        };
        match limit {
            None => call.await,
            Some(limit) => timeout_at(limit, call).await.unwrap_or_else(|_| Err(self.too_late(path))),
        }
    }

    /// As [`Channel::call`], but waits for a task that cannot be reached.
    ///
    /// # Errors
    /// As [`Channel::call`].
    pub async fn call_when_ready(
        &self,
        path: &'static str,
        message: impl Fn() -> Result<Frames>,
        limit: Option<Instant>,
    ) -> Result<Bytes> {
        let call = async {
            let mut pause = FIRST_PAUSE;
            loop {
                let connection = match self.connect().await {
                    Ok(connection) => connection,
                    Err(_) => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        continue;
                    }
                };
                return self.exchange(connection, path, message()?, limit).await;
            }
        };
        match limit {
            None => call.await,
            Some(limit) => timeout_at(limit, call).await.unwrap_or_else(|_| Err(self.too_late(path))),
        }
    }

    fn too_late(&self, path: &str) -> Status {
        let reason = self.last_error().map(|error| format!(": {error}")).unwrap_or_default();
        deadline_exceeded!("{} at {} did not answer {path} in time{reason}", self.task, self.address)
    }

    async fn connect(&self) -> Result<Connection> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        *held = None;
        match self.open().await {
            Ok(connection) => {
                *self.last_error.lock() = None;
                *held = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                *self.last_error.lock() = Some(error.clone());
                Err(unavailable!("failed to connect to {} at {}: {error}", self.task, self.address))
            }
        }
    }

    /// Connects; the error is a text for people.
    async fn open(&self) -> std::result::Result<Connection, String> {
        let stream = match timeout(CONNECT_TIMEOUT, self.network.connect(&self.address)).await {
            Ok(stream) => stream.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
        };
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .handshake(TokioIo::new(stream));
        let (connection, driver) = match timeout(CONNECT_TIMEOUT, handshake).await {
            Ok(made) => made.map_err(|error| in_words(&error))?,
            Err(_) => return Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
        };
        let task = self.task.clone();
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(task, "connection ended: {}", in_words(&error));
            }
        });
        Ok(connection)
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        path: &'static str,
        message: Frames,
        limit: Option<Instant>,
    ) -> Result<Bytes> {
        let request = self.request(path, message, limit)?;
        let lost = |error: &(dyn Error + 'static)| {
            unavailable!("Connection to {} at {} was lost: {}", self.task, self.address, in_words(error))
        };
        connection.ready().await.map_err(|error| lost(&error))?;
        let answer = connection.send_request(request).await.map_err(|error| lost(&error))?;
        let (head, mut body) = answer.into_parts();
        self.streams.store(head.headers.contains_key(SERVES_STREAMS), Ordering::Relaxed);
        if head.status != StatusCode::OK {
            return Err(unavailable!("{} at {} answers with HTTP status {}", self.task, self.address, head.status));
        }
        if head.headers.contains_key("grpc-status")
            && let Some(status) = trailers::status(&head.headers)
        {
            return Err(status);
        }
        let encoding = Encoding::of(&head.headers)?;
        let read = read_answer::<Incoming>(&mut body, encoding).await;
        let (message, trailers) = read.map_err(|error| match error.code() {
            graphmill_tensor::Code::Cancelled => {
                unavailable!("Connection to {} at {} was lost: {}", self.task, self.address, error.message())
            }
            _ => error,
        })?;
        match trailers::status(&trailers) {
            Some(status) => Err(status),
            None => message.ok_or_else(|| internal!("{} answered {path} without a message", self.task)),
        }
    }

    fn request(&self, path: &'static str, message: Frames, limit: Option<Instant>) -> Result<Request<FramesBody>> {
        let uri = Uri::builder().scheme("http").authority(self.address.as_str()).path_and_query(path).build();
        let uri = uri.map_err(|error| internal!("{} is not an address: {error}", self.address))?;
        let mut request = Request::new(FramesBody::request(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,deflate,gzip"));
        if let Some(limit) = limit {
            headers.insert("grpc-timeout", deadline::header(limit.saturating_duration_since(Instant::now())));
        }
        Ok(request)
    }
}

/// An error with what caused it.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
