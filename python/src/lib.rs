//! The native part of the Python package `graphmill`.

mod cluster;
mod server;

use graphmill_tensor::{Code, Status};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// The module `graphmill._native`.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::server::Server;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// An error as Python programs expect it.
fn exception(status: &Status) -> PyErr {
    let text = status.message().to_owned();
    match status.code() {
        Code::InvalidArgument => PyValueError::new_err(text),
        Code::NotFound => PyFileNotFoundError::new_err(text),
        Code::Unavailable => PyOSError::new_err(text),
        _ => PyRuntimeError::new_err(status.to_string()),
    }
}
