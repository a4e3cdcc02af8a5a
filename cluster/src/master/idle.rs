//! The end of sessions that their clients have left behind.

use super::Master;
use crate::running;
use graphmill_tensor::{Status, cancelled};
use std::time::Duration;

/// Longest and shortest time between two looks at the sessions.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

impl Master {
    /// Ends sessions in which no call has begun for `limit`, again and again. A step that takes longer than that is ended too.
    pub async fn end_idle_sessions(&self, limit: Duration) {
        let (shortest, longest) = LOOKS;
        let pause = (limit / 2).clamp(shortest, longest);
        loop {
            tokio::time::sleep(pause).await;
            let ended: Vec<_> = {
                let mut sessions = self.sessions.write();
                sessions.by_handle.extract_if(|_, session| session.idle() > limit).collect()
            };
            let deadline = running::patience();
            for (_, session) in &ended {
                session.running.end(inactive());
            }
            for (handle, session) in ended {
                session.running.wait(deadline).await;
                tracing::info!(%handle, "session ended: no call in it for {} s", limit.as_secs_f32());
            }
        }
    }
}

fn inactive() -> Status {
    cancelled!("Step was cancelled because the session was garbage collected due to inactivity.")
}
