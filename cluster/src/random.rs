//! The server's randomness.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// Where handles, step ids and incarnations come from.
pub struct Random(Mutex<StdRng>);

impl Random {
    /// Numbers that nobody can foresee.
    pub fn new() -> Random {
        Random(Mutex::new(StdRng::from_os_rng()))
    }

    /// The same numbers for the same seed, for tests and simulations.
    pub fn seeded(seed: u64) -> Random {
        Random(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        self.0.lock().next_u64()
    }

    /// The next number other than 0.
    pub fn next_non_zero(&self) -> u64 {
        loop {
            let number = self.next();
            if number != 0 {
                return number;
            }
        }
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat_numbers() {
        let numbers = |random: &Random| [random.next(), random.next_non_zero(), random.next()];
        assert_eq!(numbers(&Random::seeded(1)), numbers(&Random::seeded(1)));
        assert_ne!(numbers(&Random::seeded(1)), numbers(&Random::seeded(2)));
        assert_ne!(numbers(&Random::new()), numbers(&Random::new()));
    }
}
