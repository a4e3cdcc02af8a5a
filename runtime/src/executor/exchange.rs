//! Sends and receives between the parts of a step.

use crate::{hash64, hash64_combine};
use graphmill_graph::{Flow, Node};
use graphmill_tensor::{DType, Result};
use std::fmt::Write;
use std::sync::Arc;

/// What a `_Send` or `_Recv` exchanges, and under which key.
pub(crate) struct Exchange {
    /// The key up to the frame and the iteration.
    prefix: String,
    /// The whole key outside of loops.
    root_key: Arc<str>,
    /// The type of the elements of a received tensor.
    pub dtype: DType,
}

impl Exchange {
    /// # Errors
    /// `INVALID_ARGUMENT` for attributes that are missing or no text.
    pub fn new(node: &Node) -> Result<Exchange> {
        let attrs = &node.attrs;
        let incarnation = attrs.int("send_device_incarnation")?.cast_unsigned();
        let (send, recv, name) = (attrs.str("send_device")?, attrs.str("recv_device")?, attrs.str("tensor_name")?);
        let prefix = format!("{send};{incarnation:016x};{recv};{name};");
        let root_key = Arc::from(format!("{prefix}0:0"));
        let dtype = attrs.dtype(if node.op.flow == Flow::Send { "T" } else { "tensor_type" })?;
        Ok(Exchange { prefix, root_key, dtype })
    }

    /// The key in an iteration of a frame; the root frame is 0.
    pub fn key(&self, frame: u64, iteration: u64) -> Arc<str> {
        if (frame, iteration) == (0, 0) {
            return self.root_key.clone();
        }
        let mut key = String::with_capacity(self.prefix.len() + 24);
        key.push_str(&self.prefix);
        // Writing to a string cannot fail.
        let _ = write!(key, "{frame}:{iteration}");
        Arc::from(key)
    }
}

/// The number by which all tasks know an execution of a loop: the frame within an iteration of the frame around it. `name` is the
/// hash of the frame's name.
pub(crate) fn frame_id(parent: u64, iteration: u64, name: u64) -> u64 {
    hash64_combine(parent, hash64_combine(iteration, name))
}

/// The hash of a frame's name, for [`frame_id`].
pub(crate) fn frame_name_hash(name: &str) -> u64 {
    hash64(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_numbers_that_other_tasks_expect() {
        assert_eq!(frame_id(0, 0, frame_name_hash("while/while_context")), 18_186_195_969_791_715_286);
    }
}
