//! The way to a server.

use crate::Session;
use crate::transport::{Calls, Transport};
use graphmill_cluster::grpc::Channel;
use graphmill_cluster::network::Tcp;
use graphmill_cluster::{Local, ServerConfig};
use graphmill_runtime::Registry;
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::{
    ConfigProto, CreateSessionRequest, CreateSessionResponse, DeviceAttributes, GraphDef, ListDevicesRequest,
    ListDevicesResponse, ResetRequest, ResetResponse,
};
use std::sync::Arc;
use std::time::Duration;

/// The way to one server: over gRPC, graphmill's or TensorFlow's, or in this process. Cheap to clone.
///
/// Every call ends when the time of [`Client::within`] is over, with `DEADLINE_EXCEEDED`, and is cancelled where it runs when its
/// future is dropped. Calls over gRPC have to be made in a tokio runtime, and all calls of a client in the same one.
#[derive(Clone)]
pub struct Client {
    target: String,
    calls: Calls,
}

impl Client {
    /// For the server at `grpc://host:port` or `host:port`. Nothing is connected before the first call.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a text that is no such address.
    pub fn new(target: &str) -> Result<Client> {
        let address = target.strip_prefix("grpc://").unwrap_or(target);
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) || address.contains(['/', ' ']) {
            return Err(invalid_argument!("\"{target}\" is not the address of a server; write it as grpc://HOST:PORT"));
        }
        let channel = Channel::new("the server", address, Arc::new(Tcp));
        Ok(Client::over(format!("grpc://{address}"), Transport::Remote(channel)))
    }

    /// For a task of its own in this process, without sockets. It ends with the last client and session that use it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for settings that do not fit together.
    pub fn in_process(config: ServerConfig, registry: Registry) -> Result<Client> {
        let local = Local::start(config, registry)?;
        Ok(Client::over(String::new(), Transport::Local(local)))
    }

    fn over(target: String, transport: Transport) -> Client {
        Client { target, calls: Calls { transport: Arc::new(transport), timeout: None } }
    }

    /// The same way, on which each call, those of its sessions too, may take so long.
    pub fn within(&self, timeout: Duration) -> Client {
        let calls = Calls { timeout: Some(timeout), ..self.calls.clone() };
        Client { calls, ..self.clone() }
    }

    /// The server's address; empty in process.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Waits until the server answers. Without [`Client::within`] that may be for ever.
    ///
    /// # Errors
    /// `DEADLINE_EXCEEDED` that says why the server was not reached.
    pub async fn ready(&self) -> Result<()> {
        let request = ListDevicesRequest::default();
        self.calls.call_when_ready::<ListDevicesResponse>(MasterMethod::ListDevices, &request).await?;
        Ok(())
    }

    /// The devices of the server, and then those of the other tasks of its cluster.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the server is not reached, `DEADLINE_EXCEEDED` if one of the tasks does not answer.
    pub async fn devices(&self) -> Result<Vec<DeviceAttributes>> {
        devices(&self.calls, String::new()).await
    }

    /// Ends every session of the server, and clears these resource containers, without names the default one, on all tasks.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the server is not reached.
    pub async fn reset(&self, containers: &[&str]) -> Result<()> {
        let request =
            ResetRequest { container: containers.iter().map(|&name| name.to_owned()).collect(), ..Default::default() };
        self.calls.call::<ResetResponse>(MasterMethod::Reset, &request).await?;
        Ok(())
    }

    /// Opens a session on a graph.
    ///
    /// # Errors
    /// What the server finds wrong with the graph or the settings.
    pub async fn session(&self, graph: GraphDef, config: ConfigProto) -> Result<Session> {
        let request =
            CreateSessionRequest { graph_def: Some(graph), config: Some(config), target: self.target.clone() };
        let answer: CreateSessionResponse = self.calls.call(MasterMethod::CreateSession, &request).await?;
        Ok(Session::new(self.calls.clone(), answer))
    }
}

/// The devices of a session, or with an empty handle of the server.
pub(crate) async fn devices(calls: &Calls, session_handle: String) -> Result<Vec<DeviceAttributes>> {
    let request = ListDevicesRequest { session_handle };
    let answer: ListDevicesResponse = calls.call(MasterMethod::ListDevices, &request).await?;
    Ok(answer.local_device.into_iter().chain(answer.remote_device).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for target in ["grpc://localhost:2222", "localhost:2222", "[::1]:7", "grpc://10.0.0.1:1"] {
            let client = Client::new(target).unwrap();
            assert!(target.ends_with(client.target().trim_start_matches("grpc://")), "{target}");
        }
        for target in ["", "grpc://", "localhost", "localhost:", ":7", "http://x:1/y", "http://x:1", "h:70000", "a b:1"]
        {
            assert!(Client::new(target).is_err(), "{target}");
        }
    }
}
