//! What goes wrong in a simulation, and when.

use crate::cluster::{Cluster, HOSTS};
use crate::network::Fabric;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::time::{Duration, Instant};

/// All faults lie within this time.
const SPAN: u64 = 500;

#[derive(Clone, Debug)]
enum Fault {
    /// Two hosts lose each other for some milliseconds.
    Cut(&'static str, &'static str, u64),
    /// The connections between two hosts break.
    Reset(&'static str, &'static str),
    /// The bytes between two hosts take some milliseconds more.
    Slow(&'static str, &'static str, u64),
    /// So many of a thousand packets are lost.
    Lose(u32),
    /// A server goes away without a word and comes back, empty, after some milliseconds.
    Restart(&'static str, u64),
}

/// Faults with the milliseconds after which they happen, in order.
pub struct Plan(Vec<(u64, Fault)>);

impl Plan {
    /// No fault at all.
    pub fn none() -> Plan {
        Plan(Vec::new())
    }

    /// The faults of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(1..=5);
        let mut faults: Vec<(u64, Fault)> =
            (0..count).map(|_| (random.random_range(0..SPAN), Fault::any(&mut random))).collect();
        faults.sort_by_key(|(at, _)| *at);
        Plan(faults)
    }

    /// Has everything happen, and puts it right again.
    pub fn carry_out(&self, cluster: &Cluster) {
        let start = Instant::now();
        let fabric = cluster.fabric();
        let mut ends: Vec<(u64, End)> = Vec::new();
        let mut faults = self.0.iter().peekable();
        loop {
            ends.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            let next = match (faults.peek(), ends.last()) {
                (Some((fault, _)), Some((end, _))) => *fault.min(end),
                (Some((at, _)), None) | (None, Some((at, _))) => *at,
                (None, None) => break,
            };
            std::thread::sleep((start + Duration::from_millis(next)).saturating_duration_since(Instant::now()));
            while ends.last().is_some_and(|(at, _)| *at <= next) {
                if let Some((_, end)) = ends.pop() {
                    end.carry_out(cluster, fabric);
                }
            }
            while let Some((at, fault)) = faults.next_if(|(at, _)| *at <= next) {
                ends.extend(fault.carry_out(cluster, fabric).map(|(after, end)| (at + after, end)));
            }
        }
        fabric.lose(0);
        for (a, b) in pairs() {
            fabric.slow(a, b, Duration::ZERO);
        }
    }
}

/// The end of a fault.
enum End {
    Heal(&'static str, &'static str),
    Start(&'static str),
}

impl End {
    fn carry_out(self, cluster: &Cluster, fabric: &Fabric) {
        match self {
            End::Heal(a, b) => fabric.cut(a, b, false),
            End::Start(host) => cluster.start(host),
        }
    }
}

impl Fault {
    fn any(random: &mut StdRng) -> Fault {
        let all = pairs();
        let (a, b) = all[random.random_range(0..all.len())];
        let server = HOSTS[random.random_range(0..HOSTS.len() - 1)];
        match random.random_range(0..6) {
            0 | 1 => Fault::Cut(a, b, random.random_range(5..300)),
            2 => Fault::Reset(a, b),
            3 => Fault::Slow(a, b, random.random_range(1..20)),
            4 => Fault::Lose(random.random_range(1..200)),
            _ => Fault::Restart(server, random.random_range(0..200)),
        }
    }

    /// Also how the fault ends, and after how many milliseconds, if it does.
    fn carry_out(&self, cluster: &Cluster, fabric: &Fabric) -> Option<(u64, End)> {
        match *self {
            Fault::Cut(a, b, time) => {
                fabric.cut(a, b, true);
                return Some((time, End::Heal(a, b)));
            }
            Fault::Reset(a, b) => fabric.reset(a, b),
            Fault::Slow(a, b, by) => fabric.slow(a, b, Duration::from_millis(by)),
            Fault::Lose(thousandths) => fabric.lose(thousandths),
            Fault::Restart(host, time) => {
                cluster.kill(host);
                return Some((time, End::Start(host)));
            }
        }
        None
    }
}

fn pairs() -> Vec<(&'static str, &'static str)> {
    HOSTS.iter().enumerate().flat_map(|(at, a)| HOSTS[at + 1..].iter().map(|b| (*a, *b))).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(at, fault)| writeln!(to, "  after {at} ms: {fault:?}"))
    }
}
