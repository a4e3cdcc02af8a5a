//! How calls reach a master.

use bytes::Buf;
use graphmill_cluster::Local;
use graphmill_cluster::grpc::{Channel, Frames, MessageBytes};
use graphmill_tensor::{Result, data_loss};
use graphmill_wire::service::MasterMethod;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The way to one master.
pub(crate) enum Transport {
    /// Over gRPC.
    Remote(Channel),
    /// Within this process.
    Local(Local),
}

/// A way to a master, and how long each call may take.
#[derive(Clone)]
pub(crate) struct Calls {
    pub transport: Arc<Transport>,
    pub timeout: Option<Duration>,
}

impl Calls {
    /// One call with a message that is encoded as a whole.
    ///
    /// # Errors
    /// What the master answers, `UNAVAILABLE` if it is not reached, `DEADLINE_EXCEEDED`.
    pub async fn call<A: Message + Default>(&self, method: MasterMethod, request: &impl Message) -> Result<A> {
        self.send(method, Frames::message(request)?).await
    }

    /// One call with a message in pieces.
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub async fn send<A: Message + Default>(&self, method: MasterMethod, message: Frames) -> Result<A> {
        let limit = self.limit();
        let answer = match &*self.transport {
            Transport::Remote(channel) => channel.call(method.path(), message, limit).await?.into(),
            Transport::Local(local) => local.call(method, message, limit).await?,
        };
        decode(method, answer)
    }

    /// As [`Calls::call`], but waits for a server that is not there yet.
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub async fn call_when_ready<A: Message + Default>(
        &self,
        method: MasterMethod,
        request: &impl Message,
    ) -> Result<A> {
        match &*self.transport {
            Transport::Remote(channel) => {
                let message = || Frames::message(request);
                let answer = channel.call_when_ready(method.path(), message, self.limit()).await?;
                decode(method, answer.into())
            }
            Transport::Local(_) => self.call(method, request).await,
        }
    }

    /// A time that cannot be added is so far away that there is no limit.
    fn limit(&self) -> Option<Instant> {
        Instant::now().checked_add(self.timeout?)
    }
}

fn decode<A: Message + Default>(method: MasterMethod, answer: MessageBytes) -> Result<A> {
    let length = answer.remaining();
    A::decode(answer)
        .map_err(|error| data_loss!("The {length} bytes answered to {} cannot be read: {error}", method.name()))
}
