//! `Print`.

use crate::summarize::summarize;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::Result;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Print").kernel(Print::new);
}

/// Passes its input on and writes `data` to the server's standard error, the first `first_n` times (always if negative).
struct Print {
    message: String,
    first_n: i64,
    summarize: i64,
    calls: AtomicI64,
}

impl Print {
    fn new(c: &Construction<'_>) -> Result<Print> {
        Ok(Print {
            message: String::from_utf8_lossy(c.attrs().string("message")?).into_owned(),
            first_n: c.attrs().int("first_n")?,
            summarize: c.attrs().int("summarize")?,
            calls: AtomicI64::new(0),
        })
    }

    fn line(&self, ctx: &Context<'_>) -> Result<String> {
        let mut line = self.message.clone();
        for i in 1..ctx.num_inputs() {
            line.push_str(&format!("[{}]", summarize(ctx.input(i)?, self.summarize)?));
        }
        line.push('\n');
        Ok(line)
    }
}

impl Kernel for Print {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        if self.first_n < 0 || self.calls.fetch_add(1, Ordering::Relaxed) < self.first_n {
            let line = self.line(ctx)?;
            // A closed standard error is no reason to fail a step.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        let value = ctx.take_value(0)?;
        ctx.set_value(0, value)
    }
}
