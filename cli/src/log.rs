//! Log lines on standard error.

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// Starts logging. `level` is `error`, `warn`, `info`, `debug`, `trace`, `off`, or a list of these by module.
///
/// # Errors
/// If the level is none of these.
pub fn start(level: &str, json: bool) -> Result<()> {
    let filter = EnvFilter::try_new(level).with_context(|| {
        format!("{level:?} is not a log level; use error, warn, info, debug or trace, or module=level,...")
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        builder.json().init()
    } else {
        builder.with_ansi(false).init()
    }
    Ok(())
}
