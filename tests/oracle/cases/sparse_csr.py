"""Sparse matrices in compressed rows. They cannot be fetched, so that each case is a small graph."""

from tests.oracle.build import Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """SparseTensorToCSRSparseMatrix DenseToCSRSparseMatrix CSRSparseMatrixToSparseTensor CSRSparseMatrixToDense
CSRSparseMatrixComponents SparseMatrixNNZ SparseMatrixTranspose SparseMatrixMatMul SparseMatrixSparseMatMul
SparseMatrixSparseCholesky"""
VALUES = ["float", "double", "complex64", "complex128"]
ONE = np.array([[0, 1], [0, 3], [2, 0], [2, 1], [2, 3]])
BATCH = np.array([[0, 0, 1], [0, 2, 3], [2, 0, 0], [2, 1, 2], [2, 2, 0], [2, 2, 3]])


def some(T, *dims, seed=1):
    return shape(*dims)(np.random.default_rng(seed), T)


def fed(b, feeds, T, *dims, seed=1):
    ref = b.placeholder(T)
    feeds.append((ref, some(T, *dims, seed=seed)))
    return ref


def typed(ops, attr):
    return [(op, lambda types: {attr: types["T"]}) for op in ops]


def matrix(b, feeds, T, indices, dims, seed=1):
    indices = np.asarray(indices)
    values = fed(b, feeds, T, len(indices), seed=seed)
    return b.node("SparseTensorToCSRSparseMatrix", b.const(indices, "int64"), values, b.const(dims, "int64"))


def parts(b, m, T, index=0):
    sparse = b.add("CSRSparseMatrixToSparseTensor", m, type=T)
    components = b.add("CSRSparseMatrixComponents", m, b.const(index, "int32"), type=T)
    dense = b.node("CSRSparseMatrixToDense", m, type=T)
    return [*sparse.outputs, *components.outputs, dense, b.node("SparseMatrixNNZ", m)]


def conversions(b, T):
    feeds = []
    one = matrix(b, feeds, T, ONE, [3, 4])
    many = matrix(b, feeds, T, BATCH, [3, 3, 4])
    none = matrix(b, feeds, T, np.zeros((0, 2), np.int64), [2, 3])
    dense = b.node("DenseToCSRSparseMatrix", fed(b, feeds, T, 3, 4), b.const(ONE, "int64"))
    dense3 = b.node("DenseToCSRSparseMatrix", fed(b, feeds, T, 3, 3, 4), b.const(BATCH, "int64"))
    fetches = [*parts(b, one, T), *parts(b, none, T), *parts(b, dense, T)]
    for index in range(3):
        fetches += parts(b, many, T, index) + parts(b, dense3, T, index)
    for conjugate in (False, True):
        for m in (one, none):
            fetches += parts(b, b.node("SparseMatrixTranspose", m, type=T, conjugate=conjugate), T)
        fetches += parts(b, b.node("SparseMatrixTranspose", many, type=T, conjugate=conjugate), T, 2)
    return [Step(fetches, feeds=feeds)] * 2


program(
    "csr_conversions",
    conversions,
    T=VALUES,
    ops=typed(("SparseTensorToCSRSparseMatrix", "DenseToCSRSparseMatrix"), "T")
    + typed(("CSRSparseMatrixToSparseTensor", "CSRSparseMatrixToDense", "CSRSparseMatrixComponents", "SparseMatrixTranspose"), "type")
    + ["SparseMatrixNNZ"],
)

VIEWS = [{}, {"transpose_{}": True}, {"adjoint_{}": True}]


def products(b, T):
    feeds = []
    fetches = []
    for a_view in VIEWS:
        for b_view in VIEWS:
            attrs = {key.format("a"): value for key, value in a_view.items()} | {key.format("b"): value for key, value in b_view.items()}
            inner, outer = (3, 4) if a_view else (4, 3)
            for batch in ([], [3]):
                a = matrix(b, feeds, T, BATCH if batch else ONE, [*batch, 3, 4])
                dims = [5, inner] if b_view else [inner, 5]
                right = fed(b, feeds, T, *batch, *dims, seed=2)
                fetches.append(b.node("SparseMatrixMatMul", a, right, **attrs))
                for output in ({"transpose_output": True}, {"conjugate_output": True}, {"transpose_output": True, "conjugate_output": True}):
                    fetches.append(b.node("SparseMatrixMatMul", a, right, **attrs, **output))
                grid = [[*k, i, j] for k in ([[0], [1]] if batch else [[]]) for i in range(dims[0]) for j in range(dims[1]) if (i * 3 + j) % 4 < 2]
                sparse = matrix(b, feeds, T, grid, [*batch, *dims], seed=3)
                fetches += parts(b, b.node("SparseMatrixSparseMatMul", a, sparse, type=T, **attrs), T)
    return [Step(fetches, feeds=feeds)]


program(
    "csr_products",
    products,
    T=VALUES,
    ulp=32,
    abs_ulp=64,
    ops=typed(("SparseMatrixMatMul",), "T") + typed(("SparseMatrixSparseMatMul",), "type"),
)

POSITIVE = np.array([[9, 0, 2, 0, 1], [0, 7, 0, 3, 0], [2, 0, 8, 0, 0], [0, 3, 0, 6, 2], [1, 0, 0, 2, 5.0]])


def factors(b, T):
    values = POSITIVE.astype(np.complex128)
    if "complex" in T:
        values = values + 1j * np.triu(POSITIVE, 1) - 1j * np.tril(POSITIVE, -1)
    else:
        values = values.real
    indices = b.const(np.argwhere(POSITIVE), "int64")
    batch = np.stack([values, np.diag(np.diag(values)), values + 3 * np.eye(5)])
    one = b.node("DenseToCSRSparseMatrix", b.const(values, T), indices)
    many = b.node("DenseToCSRSparseMatrix", b.const(batch, T), b.const(np.argwhere(batch), "int64"))
    orders = [[0, 1, 2, 3, 4], [2, 0, 4, 1, 3], [4, 3, 2, 1, 0]]
    fetches = []
    for order in orders:
        factor = b.node("SparseMatrixSparseCholesky", one, b.const(order, "int32"), type=T)
        fetches += parts(b, factor, T)
    factor = b.node("SparseMatrixSparseCholesky", many, b.const(orders, "int32"), type=T)
    for index in range(3):
        fetches += parts(b, factor, T, index)
    return [Step(fetches)]


program("csr_factors", factors, T=VALUES, ulp=16, abs_ulp=64, ops=typed(("SparseMatrixSparseCholesky",), "type"))


def failure(name, build):
    program(f"csr_bad_{name}", build, fails=True, code=INVALID_ARGUMENT)


def one_matrix(b, indices=ONE, values=5, dims=(3, 4)):
    return b.node("SparseTensorToCSRSparseMatrix", b.const(indices, "int64"), b.const(np.ones(values)), b.const(list(dims), "int64"))


failure("rank", lambda b: [Step([b.node("SparseMatrixNNZ", one_matrix(b, dims=[4]))])])
failure("index", lambda b: [Step([b.node("SparseMatrixNNZ", one_matrix(b, indices=ONE + 1))])])
failure("count", lambda b: [Step([b.node("SparseMatrixNNZ", one_matrix(b, values=4))])])
failure("dtype", lambda b: [Step([b.node("CSRSparseMatrixToDense", one_matrix(b), type="double")])])
failure("dtype_of_sparse", lambda b: [Step([b.add("CSRSparseMatrixToSparseTensor", one_matrix(b), type="double")[0]])])
failure("dtype_of_parts", lambda b: [Step([b.add("CSRSparseMatrixComponents", one_matrix(b), b.const(0, "int32"), type="double")[0]])])
failure("component", lambda b: [Step([b.add("CSRSparseMatrixComponents", one_matrix(b), b.const(1, "int32"), type="float")[0]])])
failure("dense_rank", lambda b: [Step([b.node("SparseMatrixNNZ", b.node("DenseToCSRSparseMatrix", b.const([1.0]), b.const([[0]], "int64")))])])
failure("dense_index", lambda b: [Step([b.node("SparseMatrixNNZ", b.node("DenseToCSRSparseMatrix", b.const([[1.0]]), b.const([[0, 1]], "int64")))])])
failure("dense_columns", lambda b: [Step([b.node("SparseMatrixNNZ", b.node("DenseToCSRSparseMatrix", b.const([[1.0]]), b.const([[0]], "int64")))])])
failure("inner", lambda b: [Step([b.node("SparseMatrixMatMul", one_matrix(b), b.const(np.ones((3, 2))))])])
failure("ranks", lambda b: [Step([b.node("SparseMatrixMatMul", one_matrix(b), b.const(np.ones((1, 4, 2))))])])
failure("types", lambda b: [Step([b.node("SparseMatrixMatMul", one_matrix(b), b.const(np.ones((4, 2)), "double"))])])
failure("both", lambda b: [Step([b.node("SparseMatrixMatMul", one_matrix(b), b.const(np.ones((3, 2))), transpose_a=True, adjoint_a=True)])])
failure("sparse_inner", lambda b: [Step([b.node("SparseMatrixNNZ", b.node("SparseMatrixSparseMatMul", one_matrix(b), one_matrix(b), type="float"))])])
failure("square", lambda b: [Step([b.node("SparseMatrixOrderingAMD", one_matrix(b))])])
failure("not_a_matrix", lambda b: [Step([b.node("SparseMatrixNNZ", b.node("EmptyTensorList", b.const([], "int32"), b.const(-1, "int32"), element_dtype="float"))])])
failure("not_positive", lambda b: [Step([b.node("SparseMatrixNNZ", b.node("SparseMatrixSparseCholesky", b.node("DenseToCSRSparseMatrix", b.const([[1.0, 2.0], [2.0, 1.0]]), b.const([[0, 0], [0, 1], [1, 0], [1, 1]], "int64")), b.const([0, 1], "int32"), type="float"))])])
