//! The master service: sessions of clients, and the steps they run.

mod callables;
mod close_session;
mod connections;
mod create_session;
mod extend_session;
mod idle;
mod list_devices;
mod partial_run;
mod placement;
mod prepared;
mod remote_parts;
mod reset;
mod restarts;
mod run_step;
mod session;
mod status;
mod step_reply;
mod workers;

use crate::defaults::SessionDefaults;
use crate::grpc::{Frames, MessageBytes};
use crate::request_ids::RequestIds;
use crate::running::{self, RunningSteps};
use crate::task::Task;
use crate::worker::Worker;
use graphmill_tensor::{Result, Status, aborted, unavailable};
use graphmill_wire::service::MasterMethod;
use parking_lot::{Mutex, RwLock};
pub(crate) use remote_parts::RemotePart;
use session::Session;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;
pub(crate) use workers::{FAREWELL, tell};

/// Requests of all kinds that are remembered, so that none is served twice.
const REMEMBERED_REQUESTS: usize = 10_000;

/// Answers the calls of clients.
pub(crate) struct Master {
    task: Arc<Task>,
    /// The worker of the same server.
    worker: Arc<Worker>,
    /// What every session's settings are merged with.
    defaults: SessionDefaults,
    sessions: RwLock<Sessions>,
    /// Told when no sessions are opened any more.
    closing: Notify,
    request_ids: Mutex<RequestIds>,
}

#[derive(Default)]
struct Sessions {
    by_handle: HashMap<Handle, Arc<Session>>,
    /// Whether the server ends and opens no session any more.
    ended: bool,
}

/// A session's handle: on the wire 16 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Handle(u64);

impl Handle {
    /// `None` for a text that cannot be a handle.
    fn parse(text: &str) -> Option<Handle> {
        let digits = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits { u64::from_str_radix(text, 16).ok().map(Handle) } else { None }
    }
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Master {
    pub fn new(task: Arc<Task>, worker: Arc<Worker>, defaults: SessionDefaults) -> Master {
        let request_ids = Mutex::new(RequestIds::new(REMEMBERED_REQUESTS));
        Master { task, worker, defaults, sessions: RwLock::default(), closing: Notify::new(), request_ids }
    }

    /// Answers one call.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn call(&self, method: MasterMethod, message: MessageBytes, deadline: Option<Instant>) -> Result<Frames> {
        match method {
            MasterMethod::CreateSession => self.create_session(message, deadline).await,
            MasterMethod::ExtendSession => self.extend_session(message).await,
            MasterMethod::RunStep => self.run_step(message, deadline).await,
            MasterMethod::CloseSession => self.close_session(message).await,
            MasterMethod::ListDevices => self.list_devices(message, deadline).await,
            MasterMethod::Reset => self.reset(message).await,
            MasterMethod::MakeCallable => self.make_callable(message).await,
            MasterMethod::RunCallable => self.run_callable(message, deadline).await,
            MasterMethod::ReleaseCallable => self.release_callable(message),
            MasterMethod::PartialRunSetup => self.partial_run_setup(message).await,
        }
    }

    /// The session of a handle.
    ///
    /// # Errors
    /// `ABORTED` if there is none, upon which clients make a new session.
    fn session(&self, handle: &str) -> Result<Arc<Session>> {
        let session = self.find(handle).ok_or_else(|| aborted!("Session {handle} is not found."))?;
        session.touch();
        Ok(session)
    }

    fn find(&self, handle: &str) -> Option<Arc<Session>> {
        self.sessions.read().by_handle.get(&Handle::parse(handle)?).cloned()
    }

    /// Files a session under a random handle.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the server ends.
    fn add(&self, handle: Handle, session: Session) -> Result<()> {
        let mut sessions = self.sessions.write();
        if sessions.ended {
            return Err(shuts_down());
        }
        sessions.by_handle.insert(handle, Arc::new(session));
        Ok(())
    }

    /// Whether the server ends and opens no session any more.
    pub fn ends(&self) -> bool {
        self.sessions.read().ended
    }

    /// Waits until no session is opened any more; yields what then is the answer.
    async fn closed(&self) -> Status {
        let closing = self.closing.notified();
        tokio::pin!(closing);
        // Before the look at the sessions, so that nothing between the two is missed.
        closing.as_mut().enable();
        if !self.ends() {
            closing.await;
        }
        shuts_down()
    }

    /// Opens no more sessions, and no more steps in those that there are, where they get `reason`. Yields the steps that go on.
    pub fn drain(&self, reason: &Status) -> Vec<Arc<RunningSteps>> {
        let mut sessions = self.sessions.write();
        sessions.ended = true;
        let running: Vec<_> = sessions.by_handle.values().map(|session| session.running.clone()).collect();
        running.iter().for_each(|steps| steps.refuse(reason.clone()));
        self.closing.notify_waiters();
        running
    }

    /// Ends all sessions: running steps get `reason`. With `for_good` no new ones are opened.
    pub async fn end_sessions(&self, reason: Status, for_good: bool) {
        let ended = {
            let mut sessions = self.sessions.write();
            sessions.ended |= for_good;
            std::mem::take(&mut sessions.by_handle)
        };
        for session in ended.values() {
            session.running.end(reason.clone());
        }
        let deadline = running::patience();
        for session in ended.values() {
            session.running.wait(deadline).await;
            session.end_remote().await;
        }
    }
}

fn shuts_down() -> Status {
    unavailable!("The server shuts down")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_spelled_in_one_way() {
        assert_eq!(Handle(0xab).to_string(), "00000000000000ab");
        assert!(Handle::parse("00000000000000ab") == Some(Handle(0xab)));
        for text in ["", "ab", "00000000000000AB", "+0000000000000ab", "00000000000000abc", "zz"] {
            assert!(Handle::parse(text).is_none(), "{text}");
        }
    }
}
