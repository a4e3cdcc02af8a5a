//! Two-dimensional pooling.

mod attrs;
mod average;
mod max;

#[cfg(test)]
mod tests;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    average::register(registry);
    max::register(registry);
}
