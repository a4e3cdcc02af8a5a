//! Damage done to valid files, the same in every run, and a look at what reading them takes.
// An allocator that counts cannot be written without; helpers of tests may panic as tests may.
#![allow(unsafe_code, clippy::panic, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Counts the bytes that each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call goes to the system's allocator as it came; the counters are plain cells that allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Draws damages.
pub struct Damage(u64);

impl Damage {
    pub fn new(seed: u64) -> Damage {
        Damage(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// One to three damages: bits, bytes, an end cut off, numbers made huge, stretches moved or left out.
    pub fn of(&mut self, file: &[u8]) -> Vec<u8> {
        let mut bytes = file.to_vec();
        for _ in 0..=self.below(3) {
            self.one(&mut bytes);
        }
        bytes
    }

    fn one(&mut self, bytes: &mut Vec<u8>) {
        const NUMBERS: [u64; 8] =
            [u64::MAX, i64::MAX as u64, i64::MIN as u64, u32::MAX as u64, i32::MAX as u64, 1 << 40, 0xffff, 0];
        if bytes.is_empty() {
            return;
        }
        // Headers are small and matter most.
        let reach = if self.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
        let at = self.below(reach);
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        match self.below(9) {
            0 | 1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes[at] = self.next() as u8,
            3 => bytes.truncate(at),
            4 => {
                let number = NUMBERS[self.below(NUMBERS.len())];
                let width = 1 << self.below(4);
                let number = if self.below(2) == 0 {
                    number.to_le_bytes()[..width].to_vec()
                } else {
                    number.to_be_bytes()[8 - width..].to_vec()
                };
                for (place, byte) in bytes.iter_mut().skip(at).zip(number) {
                    *place = byte;
                }
            }
            5 => {
                // A number of messages, in seven bits a byte.
                let mut number = vec![0xff; [1, 3, 4, 8, 9, 10][self.below(6)]];
                number.push(self.below(128) as u8);
                bytes.splice(at..(at + number.len() * self.below(2)).min(bytes.len()), number);
            }
            6 => {
                bytes.drain(at..end);
            }
            7 => {
                let stretch = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                bytes.splice(to..to, stretch);
            }
            _ => {
                let stretch = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                for (place, byte) in bytes.iter_mut().skip(to).zip(stretch) {
                    *place = byte;
                }
            }
        }
    }
}

/// Reads `rounds` damaged files: each reading ends soon, with a value or an error, and holds at most `most(file)` bytes.
///
/// `damaged` makes a file; `read` reads it. Fails too if damage never shows, as then nothing would have been tried.
pub fn check<F: Debug, T, E>(
    rounds: usize,
    mut damaged: impl FnMut() -> F,
    most: impl Fn(&F) -> usize,
    read: impl Fn(&F) -> Result<T, E>,
) {
    let mut errors = 0;
    for round in 0..rounds {
        let file = damaged();
        let start = HELD.get();
        PEAK.set(start);
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&file).is_err()));
        let took = began.elapsed();
        let held = PEAK.get() - start;
        match outcome {
            Ok(error) => errors += usize::from(error),
            Err(_) => panic!("round {round}: a panic at {file:02x?}"),
        }
        assert!(held <= most(&file) as isize, "round {round}: {held} bytes held for {file:02x?}");
        assert!(took < Duration::from_secs(20), "round {round}: {took:?} for {file:02x?}");
    }
    assert!(errors * 20 > rounds, "{errors} of {rounds} were refused");
}
