//! Memory that two processes of one host share, so that large tensors need not go through a socket.
//!
//! The sender makes anonymous memory (`memfd_create`) and names it by its process and file descriptor; the receiver opens it through
//! `/proc`. Whether that works, and really leads to the same memory, is tried out once for each connection. The first page of a segment
//! is its head: a random token, and a word that says who has the segment. The sender gives it away with a tensor in it; the receiver
//! gives it back when nothing refers to the tensor any more, and the sender fills it anew.

mod lease;
mod pool;
mod segment;

pub(crate) use lease::Opened;
pub(crate) use pool::SegmentPool;

/// What tells hosts apart, as far as processes can open each other's descriptors: the boot and the namespace of processes; `None`
/// where there is no such thing.
pub(crate) fn host() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}
