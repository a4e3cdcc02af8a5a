//! Steps that wait for long are told of in the log.

use crate::services::Services;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often all steps are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A step is told of when it has run for this long, then for twice as long, and so on.
const FIRST: Duration = Duration::from_secs(5);
/// Most things that one line says a step waits for.
const MOST: usize = 8;

/// Logs what steps wait for on this task, for as long as the server runs.
pub(crate) async fn watch(services: &Services) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = looks.tick().await;
    loop {
        let now = looks.tick().await;
        let since = now.duration_since(last);
        last = now;
        for (session, step, age) in services.master.running_steps().into_iter().chain(services.worker.running_steps()) {
            if !is_due(age, since) {
                continue;
            }
            let waits = step.cancellation().waits();
            if !waits.is_empty() {
                let some = waits.get(..MOST).unwrap_or(&waits).join(", ");
                tracing::info!(
                    step = step.id(),
                    session,
                    "a step has run for {} s and waits for {some}",
                    age.as_secs()
                );
            }
        }
    }
}

/// Whether a step of this age has come to one of the ages at which it is told of since the last look.
fn is_due(age: Duration, since: Duration) -> bool {
    let before = age.saturating_sub(since);
    let mut next = FIRST;
    while next <= before {
        next = next.saturating_mul(2);
    }
    next <= age
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_of_less_and_less_often() {
        let told: Vec<u64> = (0..100).filter(|&age| is_due(Duration::from_secs(age), LOOK)).collect();
        assert_eq!(told, [5, 10, 20, 40, 80]);
        assert!(!is_due(Duration::ZERO, LOOK));
    }
}
