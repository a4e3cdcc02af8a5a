//! What the sessions of this master are doing.

use super::Master;
use crate::control::SessionStatus;
use graphmill_runtime::Step;
use std::sync::Arc;
use std::time::Duration;

impl Master {
    /// The sessions of clients.
    pub fn session_status(&self) -> Vec<SessionStatus> {
        let sessions = self.sessions.read();
        let listed = sessions.by_handle.iter().map(|(handle, session)| SessionStatus {
            handle: handle.to_string(),
            master: self.task.name.clone(),
            own: true,
            age: session.age().as_secs_f64(),
            idle: Some(session.idle().as_secs_f64()),
            steps: session.running.list().len() as u64,
            graphs: 0,
        });
        listed.collect()
    }

    /// How many runs the sessions keep ready, and how many callables.
    pub fn kept_runs(&self) -> (u64, u64) {
        let sessions = self.sessions.read();
        let kept = sessions.by_handle.values().map(|session| (session.prepared.len(), session.callables.len()));
        kept.fold((0, 0), |(runs, callables), (r, c)| (runs + r as u64, callables + c as u64))
    }

    /// The steps that run, each with its session's handle and its age.
    pub fn running_steps(&self) -> Vec<(String, Arc<Step>, Duration)> {
        let sessions = self.sessions.read();
        let steps = sessions.by_handle.iter().flat_map(|(handle, session)| {
            let handle = handle.to_string();
            session.running.list().into_iter().map(move |(step, age)| (handle.clone(), step, age))
        });
        steps.collect()
    }
}
