//! What the sessions of other masters are doing here.

use super::Worker;
use super::session::WorkerSession;
use crate::control::SessionStatus;
use graphmill_runtime::Step;
use std::sync::Arc;
use std::time::Duration;

impl Worker {
    /// The sessions of masters, and that of those who make none if it is used.
    pub fn session_status(&self) -> Vec<SessionStatus> {
        let sessions = self.sessions.read();
        let listed = sessions.iter().map(|(handle, session)| status(handle, session));
        let default = Some(status("", &self.default_session)).filter(|session| session.graphs + session.steps > 0);
        listed.chain(default).collect()
    }

    /// The steps that run, each with its session's handle and its age.
    pub fn running_steps(&self) -> Vec<(String, Arc<Step>, Duration)> {
        let sessions = self.sessions.read();
        let unnamed = String::new();
        let all = sessions.iter().chain([(&unnamed, &self.default_session)]);
        let steps = all.flat_map(|(handle, session)| {
            session.running.list().into_iter().map(|(step, age)| (handle.clone(), step, age))
        });
        steps.collect()
    }

    /// How many sessions a master has here.
    pub fn sessions_of(&self, master: &str) -> usize {
        self.sessions.read().values().filter(|session| session.master.0 == master).count()
    }
}

fn status(handle: &str, session: &WorkerSession) -> SessionStatus {
    SessionStatus {
        handle: handle.to_owned(),
        master: session.master.0.clone(),
        own: false,
        age: session.age().as_secs_f64(),
        idle: None,
        steps: session.running.list().len() as u64,
        graphs: session.graphs() as u64,
    }
}
