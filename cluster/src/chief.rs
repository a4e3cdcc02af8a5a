//! The end of a task whose chief has ended.

use crate::ClusterSpec;
use crate::grpc::{Channel, Frames};
use crate::peers::{Peers, task_name};
use crate::services::Services;
use graphmill_tensor::{Code, Result, invalid_argument};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::GetStatusRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Jobs whose first task is the chief, in this order.
const CHIEFS: [&str; 3] = ["chief", "master", "worker"];
/// How often the chief is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long an answer may take before it counts as none.
const ANSWER: Duration = Duration::from_secs(2);
/// How long the chief may be unreachable, or without a session here, before it counts as gone.
const ABSENCE: Duration = Duration::from_secs(3);
/// The same for a chief that is silent, which may just be busy.
const SILENCE: Duration = Duration::from_secs(15);

/// How long running steps are worth waiting for when the chief is gone.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The chief of a cluster: task 0 of the job `chief`, `master` or else `worker`.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is none of these.
pub(crate) fn of(cluster: &ClusterSpec) -> Result<String> {
    let job = CHIEFS.into_iter().find(|job| cluster.address(job, 0).is_ok()).ok_or_else(|| {
        invalid_argument!(
            "A task can end with the chief only in a cluster that has one: task 0 of the job chief, master or worker"
        )
    })?;
    Ok(task_name(job, 0))
}

/// Watches the chief, and yields why the own task need not go on, in words.
pub(crate) async fn watch(chief: &str, peers: &Peers, services: &Services) -> String {
    let Some(channel) = peers.channel(chief) else { return std::future::pending().await };
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut view = View::default();
    loop {
        looks.tick().await;
        let answer = probe(channel).await;
        let sessions = services.worker.sessions_of(chief);
        if let Some(reason) = view.look(Instant::now(), answer, sessions) {
            return format!("{chief} at {} {reason}", channel.address());
        }
    }
}

async fn probe(channel: &Arc<Channel>) -> Answer {
    let call = async {
        let message = Frames::message(&GetStatusRequest {})?;
        let answer: Result<_> =
            channel.call(WorkerMethod::GetStatus.path(), message, Some(Instant::now() + ANSWER)).await;
        answer
    };
    match call.await {
        Ok(_) => Answer::There,
        Err(error) if error.code() == Code::DeadlineExceeded => Answer::Silent,
        Err(_) => Answer::Unreachable,
    }
}

/// What a look at the chief has found.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    There,
    Silent,
    Unreachable,
}

/// What is known of the chief.
#[derive(Default)]
struct View {
    /// When it answered last; a chief that has never answered is still to come.
    answered: Option<Instant>,
    had_sessions: bool,
    /// Since when it has had no session here, after it had one.
    without_sessions: Option<Instant>,
}

impl View {
    /// Takes in one look; yields why the chief counts as gone, if it does.
    fn look(&mut self, now: Instant, answer: Answer, sessions: usize) -> Option<&'static str> {
        if sessions > 0 {
            self.had_sessions = true;
            self.without_sessions = None;
        } else if self.had_sessions {
            self.without_sessions.get_or_insert(now);
        }
        if answer == Answer::There {
            self.answered = Some(now);
        }
        let patience = if answer == Answer::Silent { SILENCE } else { ABSENCE };
        if self.answered.is_some_and(|last| now.duration_since(last) >= patience) {
            return Some("is gone");
        }
        let ended = self.without_sessions.is_some_and(|since| now.duration_since(since) >= ABSENCE);
        ended.then_some("has ended its last session here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chiefs() {
        let chief = |cluster: &str| of(&cluster.parse().unwrap()).ok();
        assert_eq!(chief("ps=h:1;worker=h:2;chief=h:3").unwrap(), "/job:chief/replica:0/task:0");
        assert_eq!(chief("ps=h:1;worker=h:2;master=h:3").unwrap(), "/job:master/replica:0/task:0");
        assert_eq!(chief("ps=h:1;worker=h:2").unwrap(), "/job:worker/replica:0/task:0");
        assert_eq!(chief("ps=h:1"), None);
    }

    #[test]
    fn a_chief_that_never_came_is_waited_for() {
        let (mut view, start) = (View::default(), Instant::now());
        for seconds in 0..100 {
            assert!(view.look(start + Duration::from_secs(seconds), Answer::Unreachable, 0).is_none());
        }
    }

    #[test]
    fn a_chief_may_be_away_for_a_moment() {
        let (mut view, start) = (View::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        assert!(view.look(at(0), Answer::There, 1).is_none());
        assert!(view.look(at(2900), Answer::Unreachable, 1).is_none());
        assert!(view.look(at(3000), Answer::There, 1).is_none());
        assert!(view.look(at(9000), Answer::Silent, 1).is_none());
        assert_eq!(view.look(at(9500), Answer::Unreachable, 1), Some("is gone"));
    }

    #[test]
    fn the_last_session_has_to_stay_the_last() {
        let (mut view, start) = (View::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        assert!(view.look(at(0), Answer::There, 0).is_none());
        assert!(view.look(at(9000), Answer::There, 1).is_none());
        assert!(view.look(at(10000), Answer::There, 0).is_none());
        assert!(view.look(at(12000), Answer::There, 2).is_none());
        assert!(view.look(at(13000), Answer::There, 0).is_none());
        assert_eq!(view.look(at(16000), Answer::There, 0), Some("has ended its last session here"));
    }
}
