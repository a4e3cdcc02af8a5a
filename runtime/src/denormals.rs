//! Flushing subnormal floats to zero.
//!
//! TensorFlow runs its kernels with subnormal operands and results taken as 0, and training relies on it: arithmetic on
//! subnormals takes a hundred times longer. Code that the compiler evaluates beforehand keeps them, so a kernel's result may
//! still be a subnormal where all its operands are constants.
#![allow(unsafe_code)]

/// Flush-to-zero and denormals-are-zero in the processor's control register.
#[cfg(target_arch = "x86_64")]
const FLUSH: u32 = 0x8040;

/// While this lives, floating-point instructions of the current thread take subnormals as 0.
pub(crate) struct FlushDenormals {
    #[cfg(target_arch = "x86_64")]
    before: u32,
    /// The state belongs to the thread, so the guard must not leave it.
    thread: std::marker::PhantomData<*const ()>,
}

impl FlushDenormals {
    /// Switches the flushing on.
    #[cfg(target_arch = "x86_64")]
    pub fn on() -> FlushDenormals {
        let before = control();
        set_control(before | FLUSH);
        FlushDenormals { before, thread: std::marker::PhantomData }
    }

    /// Other processors keep subnormals.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn on() -> FlushDenormals {
        FlushDenormals { thread: std::marker::PhantomData }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for FlushDenormals {
    fn drop(&mut self) {
        set_control(self.before);
    }
}

#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut value = 0u32;
    // SAFETY: the instruction stores four bytes at an address that is ours to write.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
    value
}

#[cfg(target_arch = "x86_64")]
fn set_control(value: u32) {
    // SAFETY: the instruction loads four bytes of ours. Only the two bits of `FLUSH` differ from what the thread had: rounding
    // stays to nearest and exceptions stay masked, on which compiled code relies.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &value, options(nostack, readonly, preserves_flags)) };
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn subnormals_vanish_while_the_guard_lives() {
        let product = || black_box(1e-30f32) * black_box(1e-10f32);
        assert_ne!(product(), 0.0);
        {
            let _flush = FlushDenormals::on();
            assert_eq!(product(), 0.0);
        }
        assert_ne!(product(), 0.0);
    }
}
