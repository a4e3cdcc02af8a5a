"""Sparse tensors, sets, ragged tensors and counts."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """SparseToDense SparseReshape SparseReorder SparseConcat SparseSplit SparseSlice SparseSliceGrad SparseAdd SparseAddGrad
SparseSparseMaximum SparseSparseMinimum SparseTensorDenseAdd SparseTensorDenseMatMul SparseDenseCwiseAdd
SparseDenseCwiseMul SparseDenseCwiseDiv SparseMatMul SparseFillEmptyRows SparseFillEmptyRowsGrad RaggedFillEmptyRows
RaggedFillEmptyRowsGrad SparseSoftmax SparseReduceSum SparseReduceMax SparseReduceSumSparse SparseReduceMaxSparse
SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SparseSegmentSumWithNumSegments
SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments SparseSegmentSumGrad SparseSegmentMeanGrad
SparseSegmentSqrtNGrad SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2 SerializeSparse
SerializeManySparse DenseToDenseSetOperation DenseToSparseSetOperation SparseToSparseSetOperation SetSize EditDistance
SparseBincount RaggedBincount DenseCountSparseOutput SparseCountSparseOutput RaggedCountSparseOutput SparseCross
SparseCrossV2 SparseCrossHashed RaggedCross RaggedRange RaggedGather RaggedTensorToSparse RaggedTensorToTensor"""

A = [[0, 1], [1, 0], [1, 2], [3, 3]]
B = [[0, 0], [0, 1], [1, 2], [2, 3], [3, 3]]
UNSORTED = [[3, 3], [0, 1], [1, 2], [1, 0]]
NONE = np.zeros((0, 2), np.int64)
BAD_INDICES = ([[0, 1], [1, 0], [1, 0], [3, 3]], UNSORTED, [[0, 1], [1, 0], [1, 2], [4, 3]], [[0, -1], [1, 0], [1, 2], [3, 3]])


def wrong(name, T, *rows, **options):
    """Rows of inputs that must fail with TensorFlow's text."""
    for inputs in rows:
        bad(name, T=T, inputs=inputs, text=True, **options)


op("SparseToDense", inputs=[A, [4, 4], shape(4), scalar()], full=True)
op("SparseToDense", T=["float", "string"], inputs=[A, [4, 4], scalar(), scalar()])
op("SparseToDense", T=["int32"], inputs=[[1, 3], [5], shape(2), scalar()])
op("SparseToDense", T=["int32"], inputs=[2, [5], scalar(), scalar()])
op("SparseToDense", T=["int32"], inputs=[UNSORTED, [4, 4], shape(4), scalar()], validate_indices=False)
op("SparseToDense", T=["int32"], inputs=[NONE, [2, 0], shape(0), scalar()])
for indices in BAD_INDICES:
    bad("SparseToDense", T=["float"], Tindices=["int64"], inputs=[indices, [4, 4], shape(4), scalar()], text=True)
wrong("SparseToDense", ["float"], [A, [4], shape(4), scalar()], [A, [4, 4], shape(3), scalar()], [A, [4, 4], shape(4), shape(1)], [[A], [4, 4], shape(4), scalar()], Tindices=["int64"])
bad("SparseToDense", T=["float"], inputs=[A, 4, shape(4), scalar()], Tindices=["int64"], code=INVALID_ARGUMENT)

for new in ([16], [2, 8], [-1, 2], [4, 4], [2, 2, 2, 2]):
    op("SparseReshape", inputs=[A, [4, 4], new])
op("SparseReshape", inputs=[NONE, [0, 3], [3, 0]])
for new in ([3, 5], [-1, -1], [-2, 8], [3, -1]):
    bad("SparseReshape", inputs=[A, [4, 4], new], text=True)
wrong_shapes = [([0, 1], [4, 4], [16]), (A, 4, [16]), (A, [4, 4], 16)]
for inputs in wrong_shapes:
    bad("SparseReshape", inputs=list(inputs), text=True)

op("SparseReorder", inputs=[UNSORTED, shape(4), [4, 4]])
op("SparseReorder", T=["float"], inputs=[A, shape(4), [4, 4]])
op("SparseReorder", T=["float"], inputs=[NONE, shape(0), [4, 4]])
wrong("SparseReorder", ["float"], [[0], shape(1), [4]], [A, shape(2, 2), [4, 4]], [A, shape(4), 4])

for axis in (0, 1, -1):
    op("SparseConcat", inputs=[[A, B], [shape(4), shape(5)], [[4, 4], [4, 4]]], concat_dim=axis)
op("SparseConcat", T=["float"], inputs=[[A, A], [shape(4), shape(4)], [[4, 4], [4, 5]]], concat_dim=1)
for shapes, axis in (([[4, 4], [4, 5]], 0), ([[4, 4], [4, 4]], 2), ([[4, 4], [4, 4, 4]], 0)):
    bad("SparseConcat", T=["float"], inputs=[[A, A], [shape(4), shape(4)], shapes], concat_dim=axis, text=True)

for axis in (0, 1, -1):
    for parts in (1, 2, 3):
        op("SparseSplit", T=["float", "string"], inputs=[axis, A, shape(4), [4, 5]], num_split=parts)
op("SparseSplit", inputs=[0, A, shape(4), [4, 4]], num_split=2)
wrong("SparseSplit", ["float"], [2, A, shape(4), [4, 4]], [0, A, shape(4), [1, 4]], [[0], A, shape(4), [4, 4]], num_split=2)

op("SparseSlice", inputs=[A, shape(4), [4, 4], [1, 0], [2, 3]])
for start, size in (([0, 0], [4, 4]), ([1, 1], [9, 9]), ([3, 3], [1, 1]), ([0, 2], [0, 2]), ([5, 0], [2, 2])):
    op("SparseSlice", T=["float"], inputs=[A, shape(4), [4, 4], start, size])
wrong("SparseSlice", ["float"], [A, shape(4), [4, 4], [1], [2, 3]], [A, shape(4), [4, 4], [1, 0], [2]])
op("SparseSliceGrad", inputs=[shape(2), A, [1, 0], [[0, 0], [0, 2]]])
wrong("SparseSliceGrad", ["float"], [shape(1), A, [1, 0], [[0, 0], [0, 2]]], [shape(2), A, [1], [[0, 0], [0, 2]]])

for T in ("float", "double", "int8", "int16", "int32", "int64"):
    op("SparseAdd", T=T, Treal=T, inputs=[A, shape(4), [4, 4], B, shape(5), [4, 4], 0])
op("SparseAdd", T=["complex64"], Treal="float", inputs=[A, shape(4), [4, 4], B, shape(5), [4, 4], 3])
op("SparseAdd", T=["complex128"], Treal="double", inputs=[A, shape(4), [4, 4], B, shape(5), [4, 4], 3])
op("SparseAdd", T=["float"], Treal="float", inputs=[A, [1.0, 2.0, 3.0, 4.0], [4, 4], B, [9.0, -1.0, -3.0, 1.0, 0.5], [4, 4], 0.5])
wrong("SparseAdd", ["float"], [A, shape(4), [4, 4], B, shape(4), [4, 4], 0], [A, shape(4), [4, 4], B, shape(5), [4, 5], 0], [A, shape(4), [4], B, shape(5), [4, 4], 0], [A, shape(4), [4, 4], B, shape(5), [4, 4], [0]], Treal="float")
op("SparseAddGrad", inputs=[shape(6), A, B, [[0, 0], [0, 1], [1, 0], [1, 2], [2, 3], [3, 3]]])
for name in ("SparseSparseMaximum", "SparseSparseMinimum"):
    op(name, inputs=[A, shape(4), [4, 4], B, shape(5), [4, 4]])
    wrong(name, ["float"], [A, shape(4), [4, 4], B, shape(5), [4, 5]], [A, shape(3), [4, 4], B, shape(5), [4, 4]])

op("SparseTensorDenseAdd", inputs=[A, shape(4), [4, 4], shape(4, 4)], full=True)
wrong("SparseTensorDenseAdd", ["float"], [A, shape(4), [4, 4], shape(4, 3)], [A, shape(4), [4, 4], shape(4)], [[[4, 0]], shape(1), [4, 4], shape(4, 4)], Tindices=["int64"])
for adjoint_a in (False, True):
    for adjoint_b in (False, True):
        op("SparseTensorDenseMatMul", inputs=[A, shape(4), [4, 4], shape(4, 4)], adjoint_a=adjoint_a, adjoint_b=adjoint_b, ulp=8, full=True)
op("SparseTensorDenseMatMul", T=["float"], inputs=[A, shape(4), [4, 5], shape(5, 70)], ulp=8)
wrong("SparseTensorDenseMatMul", ["float"], [A, shape(4), [4, 4], shape(3, 4)], [A, shape(3), [4, 4], shape(4, 4)], [A, shape(4), [3, 4], shape(4, 4)], [A, shape(4), [4, 3], shape(3, 4)], Tindices=["int64"])
for name in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
    op(name, inputs=[A, shape(4), [4, 4], nonzero(4, 4)], ulp=1)
    op(name, T=["float", "int32"], inputs=[A, shape(4), [4, 4], nonzero(4)], ulp=1)
    op(name, T=["float"], inputs=[A, shape(4), [4, 4], nonzero(4, 1)], ulp=1)
    wrong(name, ["float"], [A, shape(4), [4, 4], shape(5, 4)], [A, shape(3), [4, 4], shape(4, 4)], [A, shape(4), [4], shape(4)])
bad("SparseDenseCwiseDiv", T=["int32", "float"], inputs=[A, shape(4), [4, 4], [0, 0, 0, 0]], text=True)
for transpose_a in (False, True):
    op("SparseMatMul", inputs=[shape(5, 5), shape(5, 5)], transpose_a=transpose_a, a_is_sparse=True, rtol=1e-2, atol=1e-3, full=True)
bad("SparseMatMul", Ta=["float"], Tb=["float"], inputs=[shape(2, 3), shape(2, 3)], text=True)

op("SparseFillEmptyRows", inputs=[[[0, 1], [3, 0], [3, 2]], shape(3), [6, 4], scalar()])
op("SparseFillEmptyRows", T=["float"], inputs=[[[3, 0], [0, 1], [3, 2]], shape(3), [6, 4], scalar()])
op("SparseFillEmptyRows", T=["float"], inputs=[NONE, shape(0), [2, 4], scalar()])
op("SparseFillEmptyRows", T=["float"], inputs=[NONE, shape(0), [0, 4], scalar()])
wrong("SparseFillEmptyRows", ["float"], [[[6, 0]], shape(1), [6, 4], scalar()], [[[0, 0]], shape(1), [0, 4], scalar()], [A, shape(3), [4, 4], scalar()], [A, shape(4), [4, 4], shape(1)], [A, shape(4), 4, scalar()])
op("SparseFillEmptyRowsGrad", inputs=[[0, 3, 2], shape(5)], ulp=2)
wrong("SparseFillEmptyRowsGrad", ["float"], [[0, 5], shape(5)], [0, shape(5)], [[0], shape(1, 5)])
op("RaggedFillEmptyRows", inputs=[[0, 3, 3], shape(3), 6, scalar()])
op("RaggedFillEmptyRowsGrad", inputs=[[0, 3, 2], shape(5)], ulp=2)

op("SparseSoftmax", inputs=[A, shape(4), [4, 4]], ulp=8)
op("SparseSoftmax", T=["float"], inputs=[[[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0]], shape(4), [2, 2, 2]], ulp=8)
wrong("SparseSoftmax", ["float"], [[[0], [1]], shape(2), [4]], [A, shape(3), [4, 4]])

for name in ("SparseReduceSum", "SparseReduceMax", "SparseReduceSumSparse", "SparseReduceMaxSparse"):
    op(name, inputs=[A, shape(4), [4, 4], [1]], ulp=4)
    for axes in ([0], [0, 1], [], [-1], 1):
        for keep_dims in (False, True):
            op(name, T=["float", "int32"], inputs=[A, shape(4), [4, 4], axes], keep_dims=keep_dims, ulp=4)
    wrong(name, ["float"], [A, shape(4), [4, 4], [2]], [A, shape(4), [4, 4], [[1]]], [A, shape(3), [4, 4], [1]])

TABLE, PICKS, IDS = shape(5, 3), [4, 0, 1, 1, 3], [0, 0, 1, 1, 3]
for base in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
    op(base, inputs=[TABLE, PICKS, IDS], ulp=4, full=True)
    op(base, T=["float"], inputs=[shape(5), [], []], ulp=4)
    op(base + "WithNumSegments", inputs=[TABLE, PICKS, IDS, 6], ulp=4, full=True)
    some = dict(T=["float"], Tidx=["int32"], Tsegmentids=["int32"])
    for picks, ids in (([5], [0]), ([-1], [0]), ([0, 1], [1, 0]), ([0], [-1]), ([0, 1], [0]), (0, [0])):
        bad(base, inputs=[TABLE, picks, ids], text=True, **some)
    for count in (2, -1, [6]):
        bad(base + "WithNumSegments", inputs=[TABLE, PICKS, IDS, count], text=True, **some)
    for suffix in ("Grad", "GradV2"):
        op(base + suffix, inputs=[shape(4, 3), PICKS, IDS, 6], ulp=8, full=True)
        bad(base + suffix, inputs=[shape(4, 3), PICKS, IDS, 3], code=INVALID_ARGUMENT, **some)
        bad(base + suffix, inputs=[shape(2, 3), PICKS, IDS, 6], code=INVALID_ARGUMENT, **some)

op("SerializeSparse", T=["int32", "float"], inputs=[A, shape(4), [4, 4]])
bad("SerializeSparse", T=["int32"], inputs=[A, shape(4, 1), [4, 4]], text=True)
op("SerializeManySparse", inputs=[A, shape(4), [4, 4]], out_type="string")

FIRST, SECOND = [[1, 2, 2, 3], [5, 4, 4, 4]], [[2, 9], [4, 5]]
SET_A, SET_B = [[0, 0], [0, 1], [0, 2], [2, 0]], [[0, 0], [1, 0], [2, 0], [2, 1]]
SET_TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "string"]
for operation in ("a-b", "b-a", "intersection", "union", "UNION"):
    op("DenseToDenseSetOperation", inputs=[FIRST, SECOND], set_operation=operation)
    op("DenseToSparseSetOperation", inputs=[[[1, 2], [3, 3], [4, 5]], SET_B, [2, 3, 4, 6], [3, 3]], set_operation=operation)
    op("SparseToSparseSetOperation", inputs=[SET_A, [1, 2, 2, 7], [3, 3], SET_B, [2, 5, 7, 8], [3, 3]], set_operation=operation)
bad("DenseToDenseSetOperation", T=["int32"], inputs=[FIRST, SECOND], set_operation="sum", text=True)
bad("DenseToDenseSetOperation", T=["int32"], inputs=[[1], [1]], set_operation="union", text=True)
bad("DenseToDenseSetOperation", T=["int32"], inputs=[FIRST, [[1]]], set_operation="union", text=True)
bad("SparseToSparseSetOperation", T=["int32"], inputs=[SET_A, [1, 2, 2, 7], [3, 3], SET_B, [2, 5, 7, 8], [4, 3]], set_operation="union", text=True)
op("SetSize", inputs=[SET_A, [1, 2, 2, 7], [3, 3]])
bad("SetSize", T=["int32"], inputs=[[[0, 1], [0, 0]], [1, 2], [3, 3]], text=True)

TRUTH, HYPOTHESIS = [[0, 0], [0, 1], [0, 2], [2, 0]], [[0, 0], [0, 1], [1, 0]]
for normalize in (False, True):
    op("EditDistance", inputs=[HYPOTHESIS, shape(3), [3, 3], TRUTH, shape(4), [3, 3]], normalize=normalize)
wrong("EditDistance", ["int32"], [HYPOTHESIS, shape(2), [3, 3], TRUTH, shape(4), [3, 3]], [HYPOTHESIS, shape(3), [3, 3], TRUTH, shape(4), [3]], [HYPOTHESIS, shape(3), [0, 3], TRUTH, shape(4), [0, 3]])

for binary in (False, True):
    weights = [[], [1, 2, 3, 4]] if not binary else [[]]
    for weight in weights:
        op("SparseBincount", inputs=[A, [1, 1, 2, 0], [4, 4], 3, weight], binary_output=binary, full=True)
        op("SparseBincount", T=["float"], inputs=[[[0], [1], [2], [3]], [1, 1, 2, 5], [4], 3, weight], binary_output=binary)
        op("RaggedBincount", inputs=[[0, 2, 2, 4], [1, 1, 2, 5], 3, weight], binary_output=binary, full=True)
        op("DenseCountSparseOutput", inputs=[[1, 1, 2, 5], weight], binary_output=binary, minlength=8, full=True)
        op("SparseCountSparseOutput", inputs=[A, [1, 1, 2, 5], [4, 4], weight], binary_output=binary, full=True)
        op("RaggedCountSparseOutput", inputs=[[0, 2, 2, 4], [1, 1, 2, 5], weight], binary_output=binary, maxlength=4, full=True)
op("DenseCountSparseOutput", T=["int32"], output_type=["float"], inputs=[[[1, 1], [2, 5], [0, 1]], []], binary_output=False, maxlength=3)
few = dict(T=["int32"], output_type=["float"], binary_output=False)
bad("DenseCountSparseOutput", inputs=[[1, -1], []], text=True, **few)
bad("SparseCountSparseOutput", inputs=[A, [1, 1, 2, -5], [4, 4], []], code=INVALID_ARGUMENT, **few)
bad("RaggedCountSparseOutput", inputs=[[0, 2, 4], [1, 1, 2, -5], []], code=INVALID_ARGUMENT, **few)
some = dict(T=["float"], Tidx=["int32"])
for splits in ([1, 4], [0, 3]):
    bad("RaggedBincount", inputs=[splits, [1, 1, 2, 5], 3, []], text=True, **some)
bad("RaggedBincount", inputs=[[0, 4], [1, 1, 2, 5], -3, []], text=True, **some)
bad("RaggedBincount", inputs=[[0, 4], [1, 1, -2, 5], 3, []], text=True, **some)

ROWS = [[0, 0], [0, 1], [1, 0]]
CROSS = dict(sparse_types=["string", "int64"], dense_types=["string"])
SPARSE_FEATURES = [[ROWS, [[0, 0], [1, 0], [1, 1]]], [[b"a", b"b", b"c"], [7, 8, 9]], [[2, 2], [2, 2]], [[[b"d", b"e"], [b"f", b"g"]]]]
for buckets in (0, 100):
    op("SparseCross", inputs=SPARSE_FEATURES, hashed_output=True, num_buckets=buckets, hash_key=956888297470, out_type="int64", internal_type="int64", **CROSS)
    op("SparseCross", inputs=SPARSE_FEATURES, hashed_output=False, num_buckets=buckets, hash_key=5, out_type="string", internal_type="int64", **CROSS)
    op("SparseCrossHashed", inputs=[*SPARSE_FEATURES[:3], [], buckets, False, [5, 9]], sparse_types=["string", "int64"], dense_types=[])
op("SparseCross", inputs=[[ROWS], [[b"a", b"b", b"c"]], [[2, 2]], [[[b"d"], [b"f"]]]], hashed_output=False, num_buckets=0, hash_key=1, out_type="string", internal_type="string", sparse_types=["string"], dense_types=["string"])
op("SparseCross", inputs=[[ROWS], [[b"a", b"b", b"c"]], [[2, 2]], [[[b"d"], [b"f"]]]], hashed_output=True, num_buckets=50, hash_key=1, out_type="int64", internal_type="string", sparse_types=["string"], dense_types=["string"])
op("SparseCrossV2", inputs=[*SPARSE_FEATURES, "_&_"], **CROSS)
bad("SparseCrossV2", inputs=[[ROWS], [[b"a", b"b", b"c"]], [[3, 2]], [[[b"d"], [b"f"]]], "_"], sparse_types=["string"], dense_types=["string"], text=True)

RAGGED = dict(ragged_values_types=["string"], ragged_splits_types=["int64"], sparse_values_types=[], dense_types=["int64"])
RAGGED_FEATURES = [[[b"a", b"b", b"c"]], [[0, 2, 3]], [], [], [], [[[1, 2], [3, 4]]]]
for order in ("RD", "DR"):
    op("RaggedCross", out_row_splits_type=["int64"], inputs=RAGGED_FEATURES, input_order=order, hashed_output=True, num_buckets=100, hash_key=12345, out_values_type="int64", **RAGGED)
    op("RaggedCross", out_row_splits_type=["int64"], inputs=RAGGED_FEATURES, input_order=order, hashed_output=False, num_buckets=0, hash_key=0, out_values_type="string", **RAGGED)

op("RaggedRange", inputs=[[0, 5, 8], [3, 5, 2], [1, 1, -2]], full=True)
op("RaggedRange", inputs=[0, [3, 5, -2], 2])
op("RaggedRange", T=["float"], inputs=[[0.0, 1.0], 1.0, 0.3])
for inputs in ([0, 5, 0], [[0, 1], [5], 1], [[[0]], 5, 1]):
    bad("RaggedRange", T=["int32"], Tsplits=["int64"], inputs=inputs, text=True)

VALUE_TYPES = dict(Tindices=["int32"], Tsplits=["int64"])
op("RaggedGather", inputs=[[[0, 2, 2, 5]], shape(5, 2), [2, 0, 0]], OUTPUT_RAGGED_RANK=1, full=True)
op("RaggedGather", Tvalues=["float"], inputs=[[[0, 1, 3], [0, 2, 2, 5]], shape(5), [[1, 0], [1, 1]]], OUTPUT_RAGGED_RANK=3)
op("RaggedGather", Tvalues=["float"], inputs=[[[0, 2, 2, 5]], shape(5), 2], OUTPUT_RAGGED_RANK=0)
for splits, indices in (([0, 2, 2, 5], [3]), ([0, 2, 2, 6], [0]), ([0, 2, 1, 5], [0]), ([-1, 2, 2, 5], [0])):
    bad("RaggedGather", Tvalues=["float"], inputs=[[splits], shape(5), indices], OUTPUT_RAGGED_RANK=1, text=True, **VALUE_TYPES)

op("RaggedTensorToSparse", T=["float", "string"], inputs=[[[0, 2, 2, 5]], shape(5)])
op("RaggedTensorToSparse", T=["float"], inputs=[[[0, 1, 3], [0, 2, 2, 5]], shape(5, 2)])
for splits in ([0, 2, 2, 4], [1, 2, 5], [0, 3, 2, 5], []):
    bad("RaggedTensorToSparse", T=["float"], Tsplits=["int64"], inputs=[[splits], shape(5)], text=True)

ROW_SPLITS = dict(row_partition_types=["ROW_SPLITS"])
op("RaggedTensorToTensor", inputs=[-1, shape(5), scalar(), [[0, 2, 2, 5]]], **ROW_SPLITS, full=True)
for target in ([4, 2], [-1, 5], [2, -1], [-1, -1]):
    op("RaggedTensorToTensor", T=["float"], inputs=[target, shape(5), scalar(), [[0, 2, 2, 5]]], **ROW_SPLITS)
op("RaggedTensorToTensor", T=["float"], inputs=[-1, shape(5, 2), shape(2), [[0, 2, 2, 5]]], **ROW_SPLITS)
op("RaggedTensorToTensor", T=["float"], inputs=[-1, shape(5), scalar(), [3, [0, 0, 2, 2, 2]]], row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"])
op("RaggedTensorToTensor", T=["float"], inputs=[-1, shape(5), scalar(), [[0, 1, 3], [0, 2, 2, 5]]], row_partition_types=["ROW_SPLITS", "ROW_SPLITS"])
for target, default, splits in (([3], scalar(), [0, 2, 2, 5]), (-2, scalar(), [0, 2, 2, 5]), (-1, shape(2), [0, 2, 2, 5]), ([[3, 3]], scalar(), [0, 2, 2, 5])):
    bad("RaggedTensorToTensor", T=["float"], Tindex=["int64"], Tshape="int64", inputs=[target, shape(5), default, [splits]], text=True, **ROW_SPLITS)
