//! Calls that graphmill's own commands make to servers.

use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use graphmill_cluster::control::ControlMethod;
use graphmill_cluster::grpc::{Channel, Frames};
use graphmill_cluster::network::Tcp;
use graphmill_tensor::Code;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(10);

/// One call of graphmill's own methods to the server at `target` (`grpc://host:port` or `host:port`).
///
/// # Errors
/// If the server cannot be reached, answers with an error, or is none of graphmill's.
pub fn call<A: Message + Default>(target: &str, method: ControlMethod, request: &impl Message) -> Result<A> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(exchange(target, method.path(), request));
    let answer = answer?.map_err(|status| match status.code() {
        Code::Unimplemented => {
            anyhow!("{target} does not know this command; it is no graphmill server, or an older one")
        }
        Code::Unavailable => {
            anyhow!("no server answers at {target}: {}; start one with graphmill serve", status.message())
        }
        _ => anyhow!("{target} answers: {}: {}", status.code().name(), status.message()),
    })?;
    Ok(A::decode(answer)?)
}

/// Makes a call, within a runtime. Yields what the server answers.
///
/// # Errors
/// If the target has no form of one.
pub async fn exchange(
    target: &str,
    path: &'static str,
    request: &impl Message,
) -> Result<graphmill_tensor::Result<Bytes>> {
    let channel = Channel::new(target, address(target)?, Arc::new(Tcp));
    let message = Frames::message(request).map_err(|status| anyhow!("{status}"))?;
    Ok(channel.call(path, message, Some(Instant::now() + TIMEOUT)).await)
}

/// Host and port of a target.
///
/// # Errors
/// If it has another form.
pub fn address(target: &str) -> Result<&str> {
    let address = target.strip_prefix("grpc://").unwrap_or(target);
    if address.is_empty() || address.contains('/') {
        bail!("{target:?} is not the address of a server; write it as grpc://HOST:PORT");
    }
    Ok(address)
}
