"""Linear algebra: factorisations, solvers, functions of matrices, Einsum; Fourier transforms."""

import numpy as np

from tests.oracle import dtypes
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """BandedTriangularSolve Cholesky CholeskyGrad Einsum FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D
LogMatrixDeterminant Lu MatrixDeterminant  MatrixInverse MatrixLogarithm MatrixSolve MatrixSolveLs
MatrixSquareRoot MatrixTriangularSolve Qr RFFT RFFT2D RFFT3D SelfAdjointEigV2 Svd TridiagonalMatMul TridiagonalSolve
AudioSpectrogram Mfcc"""

CLOSE = {"rtol": 2e-3, "atol": 2e-3}


def definite(*dims):
    """Self-adjoint matrices with eigenvalues of 1 and more."""

    def make(rng, dtype):
        a = shape(*dims, low=-1, high=1)(rng, dtype)
        return (a @ a.conj().swapaxes(-1, -2) + np.eye(dims[-1])).astype(dtypes.NUMPY[dtype])

    make.text = "definite " + "x".join(map(str, dims))
    return make


def regular(*dims):
    """Matrices far from singular."""

    def make(rng, dtype):
        a = shape(*dims, low=-1, high=1)(rng, dtype)
        return (a + dims[-1] * np.eye(dims[-1])).astype(dtypes.NUMPY[dtype])

    make.text = "regular " + "x".join(map(str, dims))
    return make


for dims in ((3, 3), (1, 1), (0, 0), (2, 0, 3, 3), (2, 5, 5), (40, 40)):
    op("Cholesky", inputs=[definite(*dims)], **CLOSE)
    op("Lu", inputs=[regular(*dims)], full=True, **CLOSE)
    op("MatrixDeterminant", inputs=[shape(*dims, low=-1, high=1)], **CLOSE)
    op("LogMatrixDeterminant", inputs=[shape(*dims, low=-1, high=1)], **CLOSE)
    op("SelfAdjointEigV2", inputs=[definite(*dims)], compute_v=False, fetch=[0], **CLOSE)
    op("Svd", inputs=[shape(*dims)], compute_uv=False, fetch=[0], **CLOSE)
    for adjoint in (False, True):
        types = ["float", "double", "complex64", "complex128"]
        op("MatrixInverse", T=types, inputs=[regular(*dims)], adjoint=adjoint, **CLOSE)
        op("MatrixSolve", inputs=[regular(*dims), shape(*dims[:-1], 2)], adjoint=adjoint, **CLOSE)
        for lower in (False, True):
            op("MatrixTriangularSolve", inputs=[regular(*dims), shape(*dims[:-1], 2)], adjoint=adjoint, lower=lower, **CLOSE)
op("MatrixInverse", T=["half"], inputs=[regular(3, 3)], rtol=2e-2, atol=2e-2)
op("MatrixTriangularSolve", inputs=[regular(2, 1, 3, 3), shape(4, 3, 2)], **CLOSE)
op("CholeskyGrad", inputs=[regular(4, 4), shape(4, 4)], **CLOSE)
op("CholeskyGrad", inputs=[regular(2, 40, 40), shape(2, 40, 40)], **CLOSE)
for name in ("Cholesky", "MatrixInverse", "MatrixDeterminant", "Lu", "Qr", "SelfAdjointEigV2", "Svd"):
    bad(name, T=["float"], inputs=[shape(3)], code=INVALID_ARGUMENT, text=True)
for name in ("Cholesky", "MatrixInverse", "MatrixDeterminant", "Lu", "SelfAdjointEigV2", "MatrixSquareRoot"):
    bad(name, T=["float"], inputs=[shape(2, 3)], code=INVALID_ARGUMENT, text=True)
bad("MatrixInverse", T=["float"], inputs=[[[1.0, 2.0], [2.0, 4.0]]], code=INVALID_ARGUMENT, text=True)
bad("Lu", T=["float"], inputs=[[[1.0, 2.0], [2.0, 4.0]]], code=INVALID_ARGUMENT, text=True)
bad("MatrixSolve", T=["float"], inputs=[[[1.0, 2.0], [2.0, 4.0]], shape(2, 1)], code=INVALID_ARGUMENT, text=True)
bad("MatrixSolve", T=["float"], inputs=[regular(3, 3), shape(2, 1)], code=INVALID_ARGUMENT, text=True)

op("Qr", T=["half"], inputs=[shape(4, 3)], rtol=2e-2, atol=2e-2)
for dims in ((3, 3), (5, 2), (2, 5), (2, 3, 4), (30, 20)):
    for full in (False, True):
        op("Qr", T=["float", "double", "complex64", "complex128"], inputs=[shape(*dims)], full_matrices=full, **CLOSE)
    op("MatrixSolveLs", inputs=[shape(*dims), shape(*dims[:-1], 2), np.float64(0.1)], fast=True, rtol=2e-2, atol=2e-2)
op("MatrixSolveLs", inputs=[shape(5, 3), shape(5, 2), np.float64(0.0)], fast=False, **CLOSE)
op("MatrixSolveLs", inputs=[shape(2, 3), shape(2, 2), np.float64(0.0)], fast=False, rtol=2e-2, atol=2e-2)
for dims in ((3, 3), (1, 1), (2, 4, 4), (12, 12)):
    op("MatrixSquareRoot", inputs=[definite(*dims)], **CLOSE)
    op("MatrixLogarithm", inputs=[definite(*dims)], **CLOSE)

for pivoting in (False, True):
    op("TridiagonalSolve", inputs=[positive(3, 6), shape(6, 2)], partial_pivoting=pivoting, rtol=5e-2, atol=5e-2)
    op("TridiagonalSolve", inputs=[positive(2, 3, 1), shape(2, 1, 2)], partial_pivoting=pivoting, **CLOSE)
op("TridiagonalSolve", inputs=[positive(3, 5), shape(5, 2)], partial_pivoting=True, perturb_singular=True, rtol=5e-2, atol=5e-2)
op("TridiagonalMatMul", inputs=[shape(2, 1, 5), shape(2, 1, 5), shape(2, 1, 5), shape(2, 5, 3)], **CLOSE)
for lower in (False, True):
    for adjoint in (False, True):
        op("BandedTriangularSolve", inputs=[positive(3, 6), shape(6, 2)], lower=lower, adjoint=adjoint, rtol=5e-2, atol=5e-2)

for equation, operands in (
    ("ab,bc->ac", [(3, 4), (4, 5)]),
    ("ab,cb->ca", [(3, 4), (5, 4)]),
    ("abc,acd->abd", [(2, 3, 4), (2, 4, 5)]),
    ("abc,cd->bad", [(2, 3, 4), (4, 5)]),
    ("...ab,...bc->...ac", [(2, 1, 3, 4), (5, 4, 2)]),
    ("ab...,b->a...", [(3, 4, 2), (4,)]),
    ("a...,a...->...", [(3, 2), (3, 1)]),
    ("ab,ab->", [(3, 4), (3, 4)]),
    ("ab,c->", [(3, 4), (5,)]),
    ("a,b->ab", [(3,), (4,)]),
    ("ii->i", [(4, 4)]),
    ("ii->", [(4, 4)]),
    ("i->ii", [(4,)]),
    ("aab->ba", [(3, 3, 2)]),
    ("a...b->b...a", [(2, 3, 4)]),
    ("abc->b", [(2, 3, 4)]),
    ("ab,b->a", [(3, 0), (0,)]),
    ("ab->ba", [(0, 3)]),
    ("abcd,acbe->abde", [(2, 3, 4, 5), (2, 4, 3, 6)]),
    ("ab,bc->ac", [(70, 80), (80, 90)]),
):
    # TensorFlow's bfloat16 sums are rounded to bfloat16 on the way.
    for types, einsum in ((["bfloat16"], {"rtol": 0.1, "atol": 4.0}), (["half"], {"rtol": 2e-2, "atol": 0.1}), (["float", "double", "complex64", "complex128"], {"rtol": 1e-4, "atol": 1e-3}), (["int32", "int64"], {})):
        op("Einsum", T=types, inputs=[[shape(*dims, low=-3, high=3) for dims in operands]], N=len(operands), equation=equation, **einsum)
for equation, operands in (("ab,bc->ac", [(3, 4), (5, 6)]), ("ab->a", [(3,)]), ("...a->a", [(2, 3)]), ("ab,bc->ac", [(3, 4)])):
    bad("Einsum", T=["float"], inputs=[[shape(*dims) for dims in operands]], N=len(operands), equation=equation, code=INVALID_ARGUMENT)

for rank, names in ((1, ("FFT", "IFFT")), (2, ("FFT2D", "IFFT2D")), (3, ("FFT3D", "IFFT3D"))):
    for name in names:
        for dims in ((8, 5, 6), (2, 3, 4, 5), (1, 1, 1), (0, 3, 4), (4, 7, 33)):
            op(name, Tcomplex=["complex64", "complex128"], inputs=[shape(*dims, low=-1, high=1)], atol=1e-4, rtol=1e-4)
    bad(names[0], Tcomplex=["complex64"], inputs=[shape(*[2] * (rank - 1))], code=INVALID_ARGUMENT, text=True)
for rank, suffix in ((1, ""), (2, "2D"), (3, "3D")):
    for types in ({"Treal": "float", "Tcomplex": "complex64"}, {"Treal": "double", "Tcomplex": "complex128"}):
        for length in ((4, 5, 8), (3, 4, 7), (1, 1, 1), (2, 3, 2)):
            lengths = np.array(length[3 - rank:], np.int32)
            half = tuple(length[:2]) + (length[2] // 2 + 1,)
            op(f"RFFT{suffix}", inputs=[shape(4, 5, 8, low=-1, high=1), lengths], atol=1e-4, rtol=1e-4, **types)
            op(f"IRFFT{suffix}", inputs=[shape(4, 5, 8, low=-1, high=1), lengths], atol=1e-4, rtol=1e-4, **types)
            op(f"IRFFT{suffix}", inputs=[shape(*half, low=-1, high=1), lengths], atol=1e-4, rtol=1e-4, **types)
        bad(f"RFFT{suffix}", inputs=[shape(4, 5, 8), np.array([9] * rank, np.int32)], code=INVALID_ARGUMENT, **types)
        bad(f"RFFT{suffix}", inputs=[shape(4, 5, 8), np.array([2] * (rank + 1), np.int32)], code=INVALID_ARGUMENT, text=True, **types)

for window, stride in ((8, 4), (6, 1), (5, 7), (20, 3), (64, 2)):
    for squared in (True, False):
        op("AudioSpectrogram", inputs=[shape(40, 2), ], window_size=window, stride=stride, magnitude_squared=squared, rtol=1e-5, atol=1e-4)
op("AudioSpectrogram", inputs=[shape(0, 2)], window_size=4, stride=2)
op("AudioSpectrogram", inputs=[shape(9, 0)], window_size=4, stride=2)
bad("AudioSpectrogram", inputs=[shape(40)], window_size=4, stride=2, code=INVALID_ARGUMENT)
bad("AudioSpectrogram", inputs=[shape(40, 1)], window_size=1, stride=2, code=INVALID_ARGUMENT)
bad("AudioSpectrogram", inputs=[shape(40, 1)], window_size=4, stride=0, code=INVALID_ARGUMENT)
energies = shape(2, 3, 129, low=0.0, high=20.0)
op("Mfcc", inputs=[energies, 16000], ulp=64, abs_ulp=512)
op("Mfcc", inputs=[energies, 8000], upper_frequency_limit=3000.0, lower_frequency_limit=100.0, filterbank_channel_count=20, dct_coefficient_count=20, ulp=64, abs_ulp=512)
op("Mfcc", inputs=[energies, 4000], ulp=64, abs_ulp=512)
bad("Mfcc", inputs=[shape(3, 129), 16000], code=INVALID_ARGUMENT)
bad("Mfcc", inputs=[energies, [16000]], code=INVALID_ARGUMENT)
bad("Mfcc", inputs=[energies, 0], code=INVALID_ARGUMENT)
bad("Mfcc", inputs=[energies, 16000], dct_coefficient_count=41, code=INVALID_ARGUMENT)
bad("Mfcc", inputs=[energies, 16000], upper_frequency_limit=10.0, code=INVALID_ARGUMENT)
