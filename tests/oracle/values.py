"""Makers of input values. A maker is a function of (rng, dtype name) that returns an array of that dtype."""

import numpy as np

from tests.oracle import dtypes

_UNSIGNED = dtypes.UNSIGNED + ["quint8", "quint16", "uint4", "uint2"]


def _random(rng, dtype, shape, low, high):
    kind = dtypes.NUMPY[dtype]
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "string":
        words = np.empty(shape, object)
        flat = words.reshape(-1)
        for i in range(flat.size):
            flat[i] = bytes(rng.integers(97, 123, rng.integers(0, 12), dtype=np.uint8))
        return words
    if dtype in dtypes.COMPLEX:
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(kind)
    if dtypes.is_inexact(dtype):
        return rng.uniform(low, high, shape).astype(kind)
    low, high = int(np.ceil(low)), int(np.floor(high))
    if dtype in _UNSIGNED:
        low, high = max(low, 0), max(high, 0)
    if dtype in ("int2", "uint2", "int4", "uint4"):
        info = dtypes.ml_dtypes.iinfo(kind)
        low, high = max(low, info.min), min(high, info.max)
    return rng.integers(low, high + 1, shape).astype(kind)


def shape(*dims, low=-9.0, high=9.0):
    """Random values of the shape `dims` between `low` and `high` (unsigned: from 0)."""

    def make(rng, dtype):
        return _random(rng, dtype, dims, low, high)

    make.text = "x".join(map(str, dims)) or "scalar"
    return make


def scalar(low=-9.0, high=9.0):
    return shape(low=low, high=high)


def positive(*dims):
    return shape(*dims, low=0.5 if dims else 1.0, high=8.0)


def nonzero(*dims):
    """Random values without zeros."""

    def make(rng, dtype):
        values = _random(rng, dtype, dims, -9.0, 9.0)
        return np.where(values == 0, np.ones((), values.dtype), values).astype(values.dtype)

    make.text = "nonzero " + "x".join(map(str, dims))
    return make


def unit(*dims):
    """Random values in (-1, 1)."""
    return shape(*dims, low=-0.999, high=0.999)


def large(low=-9.0, high=9.0):
    """More than 100 000 elements, so that kernels split the work."""
    return shape(347, 331, low=low, high=high)


def empty():
    return shape(0, 3)


def index(limit, *dims):
    """Random integers from 0 to limit - 1."""

    def make(rng, dtype):
        return rng.integers(0, limit, dims).astype(dtypes.NUMPY[dtype])

    make.text = f"index<{limit}"
    return make


def _real_specials(kind):
    info = dtypes.ml_dtypes.finfo(kind)
    signs = [0.0, np.inf, float(info.max), float(info.smallest_normal), 1.0, 0.5, 1.5, 2.5, 3.0, 1e-3, 100.0, 20.25]
    return np.array([np.nan] + signs + [-v for v in signs]).astype(kind)


def _specials(dtype):
    kind = dtypes.NUMPY[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if dtype == "string":
        values = [b"", b"a", b"a\0b", b"\xff\xfe", "\u00e9\u6f22".encode(), b"x" * 300, b" ", b"0"]
        return np.array(values + [None], dtype=object)[:-1]
    if dtype in dtypes.COMPLEX:
        parts = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0])
        grid = (parts[:, None] + 1j * parts[None, :]).astype(kind).ravel()
        grid.real[np.isnan(grid.real)] = 0
        return grid
    if dtypes.is_inexact(dtype):
        with np.errstate(all="ignore"):
            return _real_specials(kind)
    info = dtypes.ml_dtypes.iinfo(kind)
    values = {0, 1, 2, 3, info.max, info.max - 1, info.min, info.min // 2, info.max // 2}
    if info.min < 0:
        values |= {-1, -2, -3, info.min + 1}
    return np.array(sorted(values), dtype=np.uint64 if info.min == 0 else np.int64).astype(kind)


def special(where=0, of=1):
    """NaN, infinities, signed zeros, extremes of the dtype; every pair when given as special(0, 2), special(1, 2)."""

    def make(_rng, dtype):
        values = _specials(dtype)
        if of == 1:
            return values
        return np.repeat(values, values.size) if where == 0 else np.tile(values, values.size)

    make.text = "special"
    return make


def complex_special():
    """Complex numbers with NaN and infinite parts, every pair of parts."""

    def make(_rng, dtype):
        parts = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
        out = np.empty((7, 7), dtypes.NUMPY[dtype])
        out.real, out.imag = parts[:, None], parts[None, :]
        return out

    make.text = "complex special"
    return make


def denormal():
    """Numbers below the smallest normal one, of both signs, beside ordinary ones."""

    def make(_rng, dtype):
        info = dtypes.ml_dtypes.finfo(dtypes.NUMPY[dtype])
        tiny = np.array(info.smallest_subnormal)
        half = np.array(info.smallest_normal) / np.array(2, dtypes.NUMPY[dtype])
        return np.array([tiny, -tiny, half, -half, 1.0, 0.0]).astype(dtypes.NUMPY[dtype])

    make.text = "denormal"
    return make


def sequence(*dims, start=0, step=1):
    """start, start + step, ... in row-major order."""

    def make(_rng, dtype):
        count = int(np.prod(dims, dtype=np.int64))
        if dtype == "string":
            return np.array([b"%d" % (start + step * i) for i in range(count)] + [None], object)[:-1].reshape(dims)
        return (start + step * np.arange(count)).astype(dtypes.NUMPY[dtype]).reshape(dims)

    make.text = f"sequence {'x'.join(map(str, dims))}"
    return make


def permutation(count):
    def make(rng, dtype):
        return rng.permutation(count).astype(dtypes.NUMPY[dtype])

    make.text = f"permutation {count}"
    return make


def ties(*dims):
    """Few different values, so that equal ones meet."""
    return shape(*dims, low=-2, high=2)


def softmax_rows(rows, columns):
    """Rows that are non-negative and sum to about one."""

    def make(rng, dtype):
        values = rng.uniform(0.1, 1.0, (rows, columns))
        return (values / values.sum(1, keepdims=True)).astype(dtypes.NUMPY[dtype])

    make.text = f"distribution {rows}x{columns}"
    return make


def pool_input(dims):
    """Distinct numbers in random order, few enough for every dtype, the same for every call with the same shape."""

    def make(_rng, dtype):
        count = int(np.prod(dims))
        values = np.random.default_rng(count).permutation(count) % 97
        return values.astype(dtypes.NUMPY[dtype]).reshape(dims)

    make.text = f"pool input {'x'.join(map(str, dims))}"
    return make


def pool_output(dims, window, strides, padding):
    """The maxima of the windows of `pool_input(dims)`."""

    def make(rng, dtype):
        values = pool_input(dims)(rng, "double")
        starts, sizes = [], []
        for axis in (1, 2):
            size, k, s = dims[axis], window[axis], strides[axis]
            count = -(-size // s) if padding == "SAME" else (size - k) // s + 1
            before = max((count - 1) * s + k - size, 0) // 2 if padding == "SAME" else 0
            starts.append([i * s - before for i in range(count)])
            sizes.append(k)
        rows = [
            [values[:, max(r, 0) : r + sizes[0], max(c, 0) : c + sizes[1]].max((1, 2)) for c in starts[1]]
            for r in starts[0]
        ]
        return np.array(rows).transpose(2, 0, 1, 3).astype(dtypes.NUMPY[dtype])

    make.text = "pool output"
    return make
