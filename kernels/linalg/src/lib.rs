//! Kernels of linear algebra: factorisations, solvers, eigenvalues, functions of matrices.
//!
//! Every op works on the matrices in the last two dimensions of its inputs; the dimensions in front are a batch. Triangular and
//! orthogonal factorisations are written here, recursively, so that most of their work is products of matrices. Singular values
//! and self-adjoint eigenvalues of real matrices come from the `faer` crate; those of complex ones, other eigenvalues and functions
//! of matrices are computed here, all in double precision whatever the type of the elements.

mod batch;
mod cholesky;
mod dense;
mod eig;
mod functions;
mod jacobi;
mod least_squares;
mod lu;
mod qr;
mod scalar;
mod schur;
mod spectral;
mod triangular;
mod tridiagonal;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    cholesky::register(registry);
    lu::register(registry);
    qr::register(registry);
    triangular::register(registry);
    tridiagonal::register(registry);
    least_squares::register(registry);
    spectral::register(registry);
    eig::register(registry);
    functions::register(registry);
}
