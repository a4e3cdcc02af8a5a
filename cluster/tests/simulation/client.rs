//! A client of the master, which makes one call at a time.

use crate::cluster::MASTER;
use crate::messages::framed;
use crate::network::Host;
use bytes::Bytes;
use graphmill_cluster::network::Network;
use graphmill_tensor::Code;
use graphmill_wire::service::MasterMethod;
use prost::Message;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// How long a call may take, as the server is told.
const LIMIT: Duration = Duration::from_millis(1500);
/// How much later than that the answer may come. The machine may be busy.
const GRACE: Duration = Duration::from_secs(5);

/// Why a call failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: Code,
    pub text: String,
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure { code: Code::Unavailable, text: error.to_string() }
}

pub struct Client {
    runtime: Runtime,
    host: Arc<Host>,
    connection: Option<h2::client::SendRequest<Bytes>>,
}

impl Client {
    pub fn new(host: Arc<Host>) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Client { runtime, host, connection: None }
    }

    /// Makes a call, which fails with `INTERNAL` if it takes longer than it may.
    pub fn call<A: Message + Default>(&mut self, method: MasterMethod, request: &impl Message) -> Result<A, Failure> {
        let start = Instant::now();
        let (host, connection) = (self.host.clone(), self.connection.take());
        let exchange = async {
            let connection = match connection {
                Some(connection) => connection,
                None => connect(&host).await?,
            };
            let mut connection = connection.ready().await.map_err(lost)?;
            let answer = exchange(&mut connection, method.path(), framed(&request.encode_to_vec())).await?;
            Ok((connection, answer))
        };
        let outcome: Result<Result<_, Failure>, _> =
            self.runtime.block_on(async { timeout(LIMIT + GRACE, exchange).await });
        let text = || format!("no answer to {} after {:?}", method.path(), start.elapsed());
        let (connection, answer) = outcome.map_err(|_| Failure { code: Code::Internal, text: text() })??;
        self.connection = Some(connection);
        A::decode(answer?).map_err(lost)
    }
}

async fn connect(host: &Host) -> Result<h2::client::SendRequest<Bytes>, Failure> {
    let connection = timeout(LIMIT, host.connect(MASTER)).await.map_err(lost)?.map_err(lost)?;
    let (sender, driver) = timeout(LIMIT, h2::client::handshake(connection)).await.map_err(lost)?.map_err(lost)?;
    tokio::spawn(driver);
    Ok(sender)
}

/// The message of the answer, or the status that came in its place; a failure if the connection broke.
async fn exchange(
    connection: &mut h2::client::SendRequest<Bytes>,
    path: &str,
    body: Vec<u8>,
) -> Result<Result<Bytes, Failure>, Failure> {
    let request = http::Request::post(format!("http://{MASTER}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", LIMIT.as_millis()));
    let (response, mut sender) = connection.send_request(request.body(()).unwrap(), false).map_err(lost)?;
    sender.send_data(body.into(), true).map_err(lost)?;
    let (head, mut body) = response.await.map_err(lost)?.into_parts();
    let mut collected = Vec::new();
    while let Some(data) = body.data().await {
        collected.extend(data.map_err(lost)?);
    }
    let trailers = body.trailers().await.map_err(lost)?.unwrap_or_default();
    let text = |name: &str| {
        trailers.get(name).or_else(|| head.headers.get(name)).map(|value| value.to_str().unwrap().to_owned())
    };
    let status = text("grpc-status").ok_or_else(|| lost("an answer without a status"))?;
    Ok(match status.parse::<i32>().unwrap() {
        0 => Ok(Bytes::from(collected).slice(5..)),
        code => Err(Failure { code: Code::from_number(code), text: text("grpc-message").unwrap_or_default() }),
    })
}
