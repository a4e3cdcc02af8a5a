//! A server and a bare client for it.

pub use crate::messages::{constant, framed, graph, node};

use crate::kernels::{self, Observed};
use bytes::Bytes;
use graphmill_cluster::{Random, Server, ServerConfig};
use graphmill_tensor::{Code, Tensor};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::*;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// The name of the server's task.
pub const TASK: &str = "/job:worker/replica:0/task:0";

/// How much the client lets the server send ahead.
const WINDOW: u32 = 1 << 20;

/// A connection, without any notion of gRPC.
pub type Channel = h2::client::SendRequest<Bytes>;

/// A server on a free port.
pub struct TestServer {
    pub server: Server,
    pub observed: Arc<Observed>,
}

impl TestServer {
    pub fn start() -> TestServer {
        let config = ServerConfig {
            port: Some(0),
            job: Some("worker".to_owned()),
            inter_op_threads: 2,
            intra_op_threads: 1,
            random: Random::seeded(7).into(),
            ..Default::default()
        };
        let (registry, observed) = kernels::registry();
        TestServer { server: Server::bind(config, registry).unwrap(), observed }
    }

    pub fn client(&self) -> Client {
        Client::new(self.server.target())
    }

    /// Waits until as many steps as this wait in `Unstage`.
    pub fn wait_for(&self, waiting: usize) {
        wait_until(|| self.observed.waiting.load(Ordering::SeqCst) >= waiting);
    }
}

/// Waits, for a while, until something is so.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An answer as it came.
#[derive(Debug)]
pub struct Answer {
    pub http_status: u16,
    pub headers: http::HeaderMap,
    pub trailers: http::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.get(name).or_else(|| self.headers.get(name)).map(|value| value.to_str().unwrap())
    }

    /// The code of the status, and its text as it came, percent-encoded.
    pub fn status(&self) -> (Code, &str) {
        let code = self.trailer("grpc-status").expect("an answer has a status").parse().unwrap();
        (Code::from_number(code), self.trailer("grpc-message").unwrap_or_default())
    }
}

/// A failed call: code and text.
pub type Failure = (Code, String);

/// Makes calls, one at a time.
pub struct Client {
    pub runtime: Runtime,
    pub channel: Channel,
}

impl Client {
    pub fn new(target: &str) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = target.strip_prefix("grpc://").unwrap();
        let channel = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let builder = h2::client::Builder::new().initial_window_size(WINDOW).to_owned();
            let (channel, connection) = builder.handshake(stream).await.unwrap();
            tokio::spawn(connection);
            channel
        });
        Client { runtime, channel }
    }

    /// Sends a body of these bytes and reads all that comes back.
    pub async fn send(channel: &Channel, path: &str, headers: &[(&'static str, &str)], body: Vec<u8>) -> Answer {
        let mut request = http::Request::post(format!("http://localhost{path}"));
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc").header("te", "trailers");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut channel = channel.clone().ready().await.unwrap();
        let (response, mut sender) = channel.send_request(request.body(()).unwrap(), false).unwrap();
        // An answer that does not need the body may come before the body is sent.
        let _ = sender.send_data(body.into(), true);
        let (head, mut body) = response.await.unwrap().into_parts();
        let mut collected = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            collected.extend(data);
        }
        Answer {
            http_status: head.status.as_u16(),
            headers: head.headers,
            trailers: body.trailers().await.unwrap().unwrap_or_default(),
            body: collected.into(),
        }
    }

    pub fn raw(&self, path: &str, headers: &[(&'static str, &str)], body: Vec<u8>) -> Answer {
        self.runtime.block_on(Client::send(&self.channel, path, headers, body))
    }

    /// One call with a message.
    pub fn call<A: Message + Default>(&self, method: MasterMethod, request: &impl Message) -> Result<A, Failure> {
        decode(&self.raw(method.path(), &[], framed(&request.encode_to_vec())))
    }

    pub fn create(&self, graph: GraphDef) -> String {
        self.create_with(graph, ConfigProto::default()).unwrap()
    }

    pub fn create_with(&self, graph: GraphDef, config: ConfigProto) -> Result<String, Failure> {
        let request =
            CreateSessionRequest { graph_def: Some(graph), config: Some(config), target: "grpc://x:1".to_owned() };
        let response: CreateSessionResponse = self.call(MasterMethod::CreateSession, &request)?;
        Ok(response.session_handle)
    }

    pub fn extend(&self, handle: &str, graph: GraphDef, version: i64) -> Result<i64, Failure> {
        let request = ExtendSessionRequest {
            session_handle: handle.to_owned(),
            graph_def: Some(graph),
            current_graph_version: version,
        };
        let response: ExtendSessionResponse = self.call(MasterMethod::ExtendSession, &request)?;
        Ok(response.new_graph_version)
    }

    pub fn close(&self, handle: &str) -> Result<(), Failure> {
        let request = CloseSessionRequest { session_handle: handle.to_owned() };
        self.call::<CloseSessionResponse>(MasterMethod::CloseSession, &request).map(|_| ())
    }

    pub fn reset(&self, containers: &[&str]) {
        let container = containers.iter().map(|name| (*name).to_owned()).collect();
        let request = ResetRequest { container, device_filters: Vec::new() };
        self.call::<ResetResponse>(MasterMethod::Reset, &request).unwrap();
    }

    /// Runs a step whose errors come in the answer.
    pub fn run(&self, request: &RunStepRequest) -> Result<RunStepResponse, Failure> {
        let response: RunStepResponse = self.call(MasterMethod::RunStep, request)?;
        assert!(response.metadata.is_some());
        match response.status_code {
            0 => Ok(response),
            code => Err((Code::from_number(code), response.status_error_message)),
        }
    }

    /// Runs a step that fetches one scalar.
    pub fn fetch_i32(&self, handle: &str, name: &str) -> Result<i32, Failure> {
        let response = self.run(&step(handle, &[], &[name], &[]))?;
        assert_eq!(response.tensor.len(), 1);
        assert_eq!(response.tensor[0].name, name);
        Ok(Tensor::from_proto(response.tensor[0].tensor.as_ref().unwrap()).unwrap().scalar_value::<i32>().unwrap())
    }
}

/// The message of an answer.
pub fn decode<A: Message + Default>(answer: &Answer) -> Result<A, Failure> {
    match answer.status() {
        (Code::Ok, _) => Ok(A::decode(&answer.body[5..]).unwrap()),
        (code, text) => Err((code, text.to_owned())),
    }
}

/// A step with errors in the answer.
pub fn step(handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> RunStepRequest {
    RunStepRequest {
        session_handle: handle.to_owned(),
        feed: feeds
            .iter()
            .map(|(name, tensor)| NamedTensorProto { name: (*name).to_owned(), tensor: Some(tensor.to_proto()) })
            .collect(),
        fetch: fetches.iter().map(|name| (*name).to_owned()).collect(),
        target: targets.iter().map(|name| (*name).to_owned()).collect(),
        store_errors_in_response_body: true,
        ..Default::default()
    }
}

/// `a` (a constant), `x` (a float placeholder), `b` (what `x` is), `nothing` (no outputs), `wait` (waits until cancelled), and
/// `count` (counts its runs in container `c`).
pub fn sample() -> GraphDef {
    let float = Value::Type(1);
    let types = Value::List(Box::new(attr_value::ListValue { r#type: vec![1], ..Default::default() }));
    graph(vec![
        constant("a", &Tensor::scalar(1.5f32).unwrap()),
        node("x", "Placeholder", &[], &[("dtype", float.clone())]),
        node("b", "Identity", &["x"], &[("T", float.clone())]),
        node("nothing", "NoOp", &[], &[]),
        node("wait", "Unstage", &[], &[("dtypes", types.clone())]),
        counter("count", "c"),
        node("panic", "Abort", &[], &[]),
        node("rank", "Rank", &["x"], &[("T", float)]),
    ])
}

/// A node that counts its runs in a container.
pub fn counter(name: &str, container: &str) -> NodeDef {
    let types = Value::List(Box::new(attr_value::ListValue { r#type: vec![1], ..Default::default() }));
    let text = |text: &str| Value::S(Bytes::copy_from_slice(text.as_bytes()));
    let attrs = [("dtypes", types), ("container", text(container)), ("shared_name", text("counter"))];
    node(name, "StageSize", &[], &attrs)
}

/// A feed of `x`.
pub fn x(value: f32) -> (&'static str, Tensor) {
    ("x:0", Tensor::scalar(value).unwrap())
}

/// A number for requests that no other call of the process has.
pub fn fresh_id() -> i64 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) as i64
}

impl TestServer {
    /// Runs a client on a thread of its own.
    pub fn client_in_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(Client) -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let target = self.server.target().to_owned();
        std::thread::spawn(move || work(Client::new(&target)))
    }
}
