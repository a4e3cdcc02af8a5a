//! Log lines on standard error.

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// Starts logging. `level` is `error`, `warn`, `info`, `debug`, `trace`, `off`, or a list of these by module.
///
/// # Errors
/// If the level is none of these.
pub fn start(level: &str, json: bool) -> Result<()> {
    let filter = EnvFilter::try_new(directives(level)).with_context(|| {
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

/// A plain level is for graphmill's own modules: the libraries below log each frame of each connection.
fn directives(level: &str) -> String {
    if level == "off" || level.contains(['=', ',']) { level.to_owned() } else { format!("warn,graphmill={level}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        assert_eq!(directives("debug"), "warn,graphmill=debug");
        for given in ["off", "h2=debug", "info,h2=debug"] {
            assert_eq!(directives(given), given);
        }
        for level in ["error", "warn", "info", "debug", "trace"] {
            EnvFilter::try_new(directives(level)).unwrap();
        }
        assert!(EnvFilter::try_new(directives("loud")).is_err());
    }
}
