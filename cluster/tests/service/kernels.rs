//! A few kernels, some of which behave in ways that tests need.

use graphmill_runtime::{AsyncContext, AsyncKernel, Context, Kernel, Registry, Resource};
use graphmill_tensor::{DType, Result, Tensor, cancelled, internal, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// What the kernels do, seen from outside.
#[derive(Default)]
pub struct Observed {
    /// Runs of `Unstage`, which waits until it is cancelled.
    pub waiting: AtomicUsize,
    /// Runs of `Unstage` that were cancelled.
    pub cancelled: AtomicUsize,
    /// Instances of `Rank` kernels: one for each program with that node.
    pub built: AtomicUsize,
}

struct Const(Tensor);

impl Kernel for Const {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

struct Placeholder;

impl Kernel for Placeholder {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        Err(invalid_argument!(
            "You must feed a value for placeholder tensor '{}' with dtype {}",
            ctx.node().name,
            ctx.output_type(0)?
        ))
    }
}

struct Identity;

impl Kernel for Identity {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.take_input(0)?;
        ctx.set_output(0, input)
    }
}

struct Nothing;

impl Kernel for Nothing {
    fn compute(&self, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }
}

struct Rank;

impl Kernel for Rank {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rank = ctx.input(0)?.shape().rank() as i32;
        ctx.set_scalar(0, rank)
    }
}

struct Counter(AtomicI32);

impl Resource for Counter {
    const TYPE_NAME: &'static str = "Counter";
}

/// Counts its runs in the resource `shared_name`.
struct Count {
    container: String,
    name: String,
}

impl Kernel for Count {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let resources = ctx.device().resources();
        let counter = resources.lookup_or_create(&self.container, &self.name, || Ok(Counter(AtomicI32::new(0))))?;
        ctx.set_scalar(0, counter.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

struct Panics;

impl Kernel for Panics {
    fn compute(&self, _: &mut Context<'_>) -> Result<()> {
        std::panic::panic_any("a test's panic")
    }
}

struct Wait(Arc<Observed>);

impl AsyncKernel for Wait {
    fn start(&self, ctx: AsyncContext) {
        let step = ctx.step().clone();
        let parked = Arc::new(Mutex::new(Some(ctx)));
        let wake = parked.clone();
        let observed = self.0.clone();
        let registered = step.cancellation().register(move || {
            observed.cancelled.fetch_add(1, Ordering::SeqCst);
            if let Some(ctx) = wake.lock().take() {
                ctx.complete(Err(cancelled!("Dequeue operation was cancelled")));
            }
        });
        if registered.is_none()
            && let Some(ctx) = parked.lock().take()
        {
            ctx.complete(Err(cancelled!("Dequeue operation was cancelled")));
        }
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
    }
}

/// The kernels, and a view of what they do.
pub fn registry() -> (Registry, Arc<Observed>) {
    let observed = Arc::new(Observed::default());
    let mut registry = Registry::new();
    registry.op("Const").kernel(|c| Ok(Const(c.attrs().tensor("value")?)));
    registry.op("Placeholder").kernel(|_| Ok(Placeholder));
    registry.op("Identity").kernel(|_| Ok(Identity));
    registry.op("NoOp").kernel(|_| Ok(Nothing));
    registry.op("Abort").kernel(|_| Ok(Panics));
    registry.op("StageSize").kernel(|c| {
        let container = match c.attrs().str("container")? {
            "" => c.device().default_container(),
            container => container,
        };
        Ok(Count { container: container.to_owned(), name: c.attrs().str("shared_name")?.to_owned() })
    });
    let built = observed.clone();
    registry.op("Rank").types("T", &[DType::Float]).kernel(move |_| {
        built.built.fetch_add(1, Ordering::SeqCst);
        // Long enough for others to come and wait for this.
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(Rank)
    });
    let waiting = observed.clone();
    registry.op("Unstage").async_kernel(move |c| {
        if c.num_inputs() != 0 {
            return Err(internal!("Unstage takes nothing"));
        }
        Ok(Wait(waiting.clone()))
    });
    (registry, observed)
}
