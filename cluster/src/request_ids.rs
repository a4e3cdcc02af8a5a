//! Requests that were received already.

use graphmill_tensor::{Result, aborted};
use std::collections::{HashSet, VecDeque};

/// The ids of the last requests of all kinds that carry one. A client that repeats a request after a lost connection must not
/// have its step run twice.
pub(crate) struct RequestIds {
    known: HashSet<i64>,
    order: VecDeque<i64>,
    /// Number of requests that are remembered.
    capacity: usize,
}

impl RequestIds {
    /// Remembers this many requests.
    pub fn new(capacity: usize) -> RequestIds {
        RequestIds { known: HashSet::new(), order: VecDeque::new(), capacity }
    }

    /// Notes a request; id 0 is not checked.
    ///
    /// # Errors
    /// `ABORTED` naming the `method` if the id is among those remembered. A repeat does not count as a new use.
    pub fn note(&mut self, id: i64, method: &str, request: impl FnOnce() -> String) -> Result<()> {
        if id == 0 {
            return Ok(());
        }
        if !self.known.insert(id) {
            return Err(aborted!("The same {method} request was received twice. {}", request()));
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEMBERED: usize = 100;

    fn note(ids: &mut RequestIds, id: i64) -> Result<()> {
        ids.note(id, "RunStep (Master)", || format!("request_id: {id}"))
    }

    #[test]
    fn repeats_are_refused_until_forgotten() {
        let mut ids = RequestIds::new(REMEMBERED);
        note(&mut ids, 0).unwrap();
        note(&mut ids, 0).unwrap();
        note(&mut ids, -7).unwrap();
        let error = note(&mut ids, -7).unwrap_err();
        assert_eq!(error.message(), "The same RunStep (Master) request was received twice. request_id: -7");
        for id in 1..REMEMBERED as i64 {
            note(&mut ids, id).unwrap();
        }
        assert!(note(&mut ids, -7).is_err());
        note(&mut ids, 1 << 40).unwrap();
        assert!(note(&mut ids, 1).is_err());
        note(&mut ids, -7).unwrap();
        assert_eq!(ids.known.len(), REMEMBERED);
    }
}
