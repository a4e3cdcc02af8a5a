//! `ExtendSession`: adds nodes to the graph of a session.

use super::{Master, placement};
use crate::grpc::{Frames, MessageBytes, decode};
use crate::heavy;
use bytes::Buf;
use graphmill_graph::{Graph, ImportOptions};
use graphmill_tensor::{Result, failed_precondition};
use graphmill_wire::tensorflow::{ExtendSessionRequest, ExtendSessionResponse};

impl Master {
    /// On any error the session is as before, and the client will send the same nodes again.
    ///
    /// # Errors
    /// `ABORTED` for an unknown session or another version than the client expects, and what the checks of the graph find.
    pub(super) async fn extend_session(&self, message: MessageBytes) -> Result<Frames> {
        let size = message.remaining() >> 10;
        let request: ExtendSessionRequest = decode(message)?;
        let session = self.session(&request.session_handle)?;
        let expected = request.current_graph_version;
        let before = session.graph_at(expected)?;
        if session.options.static_graph {
            return Err(failed_precondition!(
                "Extending the graph is not supported when `optimize_for_static_graph` is true."
            ));
        }
        let (extended, registry) = (session.clone(), self.task.registry.clone());
        let graph = heavy::run(size, move || {
            let mut graph = Graph::clone(&before);
            graph.extend_with(request.graph_def.unwrap_or_default(), ImportOptions::default())?;
            placement::place_graph(&mut graph, &extended.workers, &registry, &extended.options)?;
            Ok(graph)
        })
        .await?;
        let new_graph_version = session.replace_graph(expected, graph)?;
        Frames::message(&ExtendSessionResponse { new_graph_version })
    }
}
