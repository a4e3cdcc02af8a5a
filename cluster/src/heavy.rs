//! Work that would hold up the threads that serve sockets.

use graphmill_tensor::{Result, internal};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Size of graphs, in nodes or in kilobytes of message, whose handling takes so long that it goes to a thread of its own.
const HEAVY: usize = 1000;

/// Runs `work` here, or on a thread of its own if `size` says that it takes long. A panic becomes `INTERNAL`.
pub(crate) async fn run<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let work = move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(internal!("A graph made the server panic")))
    };
    if size < HEAVY {
        return work();
    }
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(internal!("A thread ended early: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;

    #[tokio::test]
    async fn panics_are_errors_on_either_thread() {
        for size in [1, HEAVY] {
            assert_eq!(run(size, || Ok(7)).await.unwrap(), 7);
            let failed = run(size, || -> Result<()> { std::panic::panic_any("a test's panic") }).await;
            assert_eq!(failed.unwrap_err().code(), Code::Internal);
        }
    }
}
