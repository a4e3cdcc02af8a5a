//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

use crate::Construction;
use graphmill_tensor::Result;
use parking_lot::Mutex;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Counters that [`Philox::lanes`] works on at once, which the compiler turns into vector instructions.
pub const LANES: usize = 16;

/// A position in a stream. Each draw gives four words and moves on by one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Philox {
    /// The number of the next draw.
    pub counter: u128,
    /// What makes streams differ.
    pub key: [u32; 2],
}

impl Philox {
    /// The stream of a pair of seeds, as stateful ops use them.
    pub fn from_seeds(seed: u64, seed2: u64) -> Philox {
        Philox { counter: u128::from(seed2) << 64, key: [seed as u32, (seed >> 32) as u32] }
    }

    /// This stream `draws` further on.
    pub fn at(self, draws: u64) -> Philox {
        Philox { counter: self.counter.wrapping_add(u128::from(draws)), key: self.key }
    }

    /// The four words at this position.
    #[inline(always)]
    pub fn words(self) -> [u32; 4] {
        let mut c = [0, 32, 64, 96].map(|shift| (self.counter >> shift) as u32);
        let mut key = self.key;
        for _ in 0..ROUNDS {
            c = round(c, key);
            key = next_key(key);
        }
        c
    }

    /// The words at this position and the next ones: word `w` of draw `i` is at `[w][i]`.
    #[inline(always)]
    pub fn lanes(self) -> [[u32; LANES]; 4] {
        let mut lanes = [[0; LANES]; 4];
        for i in 0..LANES {
            let counter = self.counter.wrapping_add(i as u128);
            for (w, word) in lanes.iter_mut().enumerate() {
                word[i] = (counter >> (32 * w)) as u32;
            }
        }
        let mut key = self.key;
        for _ in 0..ROUNDS {
            let mut next = [[0; LANES]; 4];
            for i in 0..LANES {
                let [a, b, c, d] = round([lanes[0][i], lanes[1][i], lanes[2][i], lanes[3][i]], key);
                next[0][i] = a;
                next[1][i] = b;
                next[2][i] = c;
                next[3][i] = d;
            }
            lanes = next;
            key = next_key(key);
        }
        lanes
    }
}

#[inline(always)]
fn round(c: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let low = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
    let high = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
    [(high >> 32) as u32 ^ c[1] ^ key[0], high as u32, (low >> 32) as u32 ^ c[3] ^ key[1], low as u32]
}

#[inline(always)]
fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])]
}

/// Single words of a stream, in order.
pub struct Words {
    stream: Philox,
    drawn: [u32; 4],
    used: usize,
}

impl Words {
    /// From the position of a stream on.
    pub fn new(stream: Philox) -> Words {
        Words { stream, drawn: [0; 4], used: 4 }
    }

    /// The next word.
    #[inline]
    // A stream has no end, so that an iterator's `Option` would be in the way.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u32 {
        if self.used >= 4 {
            self.drawn = self.stream.words();
            self.stream = self.stream.at(1);
            self.used = 0;
        }
        let word = self.drawn[self.used & 3];
        self.used += 1;
        word
    }
}

/// The generator of one kernel of a stateful op: executions take their turns in one stream.
pub struct Generator(Mutex<Philox>);

impl Generator {
    /// From the attributes `seed` and `seed2`. If both are 0 the stream is a random one.
    ///
    /// # Errors
    /// If an attribute is missing.
    pub fn new(c: &Construction<'_>) -> Result<Generator> {
        let (seed, seed2) = (c.attrs().int("seed")? as u64, c.attrs().int("seed2")? as u64);
        let (seed, seed2) = if (seed, seed2) == (0, 0) { (rand::random(), rand::random()) } else { (seed, seed2) };
        Ok(Generator(Mutex::new(Philox::from_seeds(seed, seed2))))
    }

    /// The current position; the next caller finds it `draws` further on.
    pub fn take(&self, draws: u64) -> Philox {
        let mut stream = self.0.lock();
        let here = *stream;
        *stream = here.at(draws);
        here
    }
}

/// Draws that TensorFlow sets aside for each output, whatever the distribution uses.
pub const DRAWS_PER_OUTPUT: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The test vectors of the authors' Random123 library.
        let zero = Philox { counter: 0, key: [0; 2] };
        assert_eq!(zero.words(), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = Philox { counter: u128::MAX, key: [u32::MAX; 2] };
        assert_eq!(ones.words(), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn lanes_are_draws_in_a_row_even_over_a_carry() {
        let stream = Philox { counter: u128::from(u64::MAX) - 3, key: [7, 9] };
        let lanes = stream.lanes();
        for draw in 0..LANES {
            assert_eq!(stream.at(draw as u64).words(), lanes.map(|word| word[draw]));
        }
        let mut words = Words::new(stream);
        let first: Vec<u32> = (0..6).map(|_| words.next()).collect();
        assert_eq!(first[..4], stream.words());
        assert_eq!(first[4..], stream.at(1).words()[..2]);
    }

    #[test]
    fn turns_follow_each_other() {
        let generator = Generator(Mutex::new(Philox::from_seeds(1, 2)));
        let first = generator.take(256);
        assert_eq!(generator.take(1), first.at(256));
        assert_eq!(first.key, [1, 0]);
        assert_eq!(first.counter, 2 << 64);
    }
}
