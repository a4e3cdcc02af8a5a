//! A whole cluster in one process, on a network that delays, loses, cuts and restarts as a seed says.
//!
//! A client trains: each step makes a tensor on one worker, adds it up on a parameter server, and reads the sum back through the
//! other worker, which is the master. Whatever the network does, a step ends in time, with the right value or an error that clients
//! recover from; no step counts twice; and once the faults are over, steps work again.
// Helpers of tests fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod cluster;
mod faults;
#[path = "../support/messages.rs"]
mod messages;
mod network;
mod training;

use faults::Plan;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use training::Log;

/// Simulations that run at the same time. They wait more than they compute.
const AT_ONCE: usize = 6;

/// Runs these seeds; fails if any of them does, and says how.
fn simulate(seeds: Range<u64>) -> Vec<Log> {
    let next = AtomicU64::new(seeds.start);
    let work = || -> Vec<Result<Log, String>> {
        let own = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|seed| *seed < seeds.end);
        own.map(|seed| {
            let plan = Plan::new(seed);
            training::steps(seed, &plan, Duration::ZERO).map_err(|failure| format!("seed {seed}: {failure}\n{plan}"))
        })
        .collect()
    };
    let outcomes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let failures: Vec<&str> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err().map(String::as_str)).collect();
    assert!(failures.is_empty(), "{} of {} seeds failed:\n{}", failures.len(), outcomes.len(), failures.join("\n"));
    outcomes.into_iter().flatten().collect()
}

/// Two hundred seeds, or as many as `GRAPHMILL_SEEDS` says.
#[test]
fn no_fault_harms_a_step_unseen() {
    let seeds = std::env::var("GRAPHMILL_SEEDS").map_or(200, |seeds| seeds.parse().expect("a number of seeds"));
    let logs = simulate(0..seeds);
    // The faults do bite, in many of the runs.
    assert!(logs.iter().filter(|log| log.failed > 0).count() > logs.len() / 4, "{logs:?}");
}

#[test]
fn without_faults_every_step_is_right() {
    let log = training::steps(u64::MAX, &Plan::none(), Duration::from_millis(300)).unwrap();
    assert!(log.right >= 3, "{log:?}");
    assert_eq!(log.failed, 0, "{log:?}");
}
