//! Sends and receives between the parts of a step.

use graphmill_graph::{Flow, Node, ROOT_FRAME_ID, RendezvousKey};
use graphmill_tensor::{DType, Result};
use std::sync::Arc;

/// What a `_Send` or `_Recv` exchanges, and under which key.
pub(crate) struct Exchange {
    send_device: String,
    send_device_incarnation: u64,
    recv_device: String,
    tensor_name: String,
    /// The key outside of loops.
    root_key: Arc<str>,
    /// The type of the elements of a received tensor.
    pub dtype: DType,
}

impl Exchange {
    /// # Errors
    /// `INVALID_ARGUMENT` for attributes that are missing or no text.
    pub fn new(node: &Node) -> Result<Exchange> {
        let attrs = &node.attrs;
        let mut exchange = Exchange {
            send_device: attrs.str("send_device")?.to_owned(),
            send_device_incarnation: attrs.int("send_device_incarnation")?.cast_unsigned(),
            recv_device: attrs.str("recv_device")?.to_owned(),
            tensor_name: attrs.str("tensor_name")?.to_owned(),
            root_key: Arc::from(""),
            dtype: attrs.dtype(if node.op.flow == Flow::Send { "T" } else { "tensor_type" })?,
        };
        exchange.root_key = exchange.in_words(ROOT_FRAME_ID, 0);
        Ok(exchange)
    }

    /// The key in an iteration of a frame.
    pub fn key(&self, frame: u64, iteration: u64) -> Arc<str> {
        match (frame, iteration) {
            (ROOT_FRAME_ID, 0) => self.root_key.clone(),
            _ => self.in_words(frame, iteration),
        }
    }

    fn in_words(&self, frame_id: u64, iteration: u64) -> Arc<str> {
        let key = RendezvousKey {
            send_device: &self.send_device,
            send_device_incarnation: self.send_device_incarnation,
            recv_device: &self.recv_device,
            tensor_name: &self.tensor_name,
            frame_id,
            iteration,
        };
        Arc::from(key.to_string())
    }
}
