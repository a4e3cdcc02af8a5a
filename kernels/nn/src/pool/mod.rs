//! Pooling in two and three dimensions.

mod attrs;
mod average;
mod max;
mod volume;

#[cfg(test)]
mod tests;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    average::register(registry);
    max::register(registry);
    volume::register(registry);
}
