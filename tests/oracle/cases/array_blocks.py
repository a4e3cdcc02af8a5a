"""Ops on groups and blocks of elements: segments, scatters, distinct values, diagonals, space and batch, rolls."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """CheckNumerics CheckNumericsV2 GuaranteeConst ParallelDynamicStitch ReverseSequence Roll ScatterNdNonAliasingAdd
TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin TensorScatterUpdate TensorStridedSliceUpdate
SegmentSum SegmentMean SegmentMax SegmentMin SegmentProd UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 ListDiff SpaceToDepth DepthToSpace SpaceToBatchND BatchToSpaceND
SpaceToBatch BatchToSpace MatrixDiag MatrixDiagV2 MatrixDiagV3 MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixBandPart Diag DiagPart"""
SOME = ["float", "int32", "bool", "complex64", "bfloat16"]
COPIED = kernel_types("TensorStridedSliceUpdate", NUMBERS + ["bool", "string"])
CLOSE = {"ulp": 4, "abs_ulp": 64}

for name in ("CheckNumerics", "CheckNumericsV2"):
    op(name, inputs=[shape(2, 3)], message="m")
    op(name, inputs=[large()], message="m")
    op(name, inputs=[shape(0)], message="m")
    for values in ([float("nan")], [1.0, float("inf")], [-float("inf"), float("nan")], [float("inf"), -float("inf"), float("nan")]):
        bad(name, inputs=[np.array(values)], message="what", code=INVALID_ARGUMENT, text=True)
op("GuaranteeConst", T=SOME + ["string"], inputs=[shape(2, 3)])

op("ParallelDynamicStitch", inputs=[[[0, 2], [1, 3, 4]], [shape(2, 3), shape(3, 3)]])
op("ParallelDynamicStitch", inputs=[[1, [[0, 3], [2, 4]]], [shape(2), shape(2, 2, 2)]])
for indices, data in (([[0, -1]], [shape(2, 3)]), ([[0, 1]], [shape(3, 3)]), ([[0, 1], [2]], [shape(2, 3), shape(1, 4)])):
    bad("ParallelDynamicStitch", T=["float"], inputs=[indices, data], code=INVALID_ARGUMENT, text=True)

for dims, lengths, seq, batch in (((3, 4), [2, 4, 0], 1, 0), ((3, 4), [2, 3, 0, 1], 0, 1), ((2, 3, 4), [1, 3, 2, 3], 1, 2), ((2, 3, 4, 2), [3, 2], 1, 0), ((0, 4), [], 1, 0)):
    op("ReverseSequence", inputs=[shape(*dims), np.array(lengths, int)], seq_dim=seq, batch_dim=batch, full=dims == (2, 3, 4))
for lengths, seq, batch in (([2, 5, 0], 1, 0), ([2, -1, 0], 1, 0), ([2, 1], 1, 0), ([1, 1, 1], 0, 0), ([1, 1, 1], 2, 0), ([1, 1, 1], 1, 3), ([[1, 1, 1]], 1, 0), ([1, 1, 1], -1, 0)):
    bad("ReverseSequence", T=["float"], inputs=[shape(3, 4), lengths], seq_dim=seq, batch_dim=batch, code=INVALID_ARGUMENT, text=True)

for dims, shift, axis in (((3, 4), 1, 0), ((3, 4), -1, 1), ((3, 4), [1, 2], [0, 1]), ((3, 4), [1, 1], [-1, -1]), ((5,), 7, 0), ((2, 3, 4), [1, -1, 2], [0, 1, 2]), ((0, 3), 1, 1), ((347, 331), [100, -50], [0, 1])):
    op("Roll", inputs=[shape(*dims), shift, axis], full=dims == (2, 3, 4))
for dims, shift, axis in (((), 1, 0), ((3, 4), 1, 2), ((3, 4), [1], [0, 1]), ((3, 4), [[1]], [[0]])):
    bad("Roll", T=["float"], inputs=[shape(*dims), shift, axis], code=INVALID_ARGUMENT, text=True)

for name in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin", "ScatterNdNonAliasingAdd"):
    op(name, inputs=[shape(5, 2), [[0], [3], [1]], shape(3, 2)], full=True)
    op(name, inputs=[shape(4, 2), [[0, 1], [3, 0]], shape(2)])
    if name != "TensorScatterUpdate":
        op(name, inputs=[shape(4, 2), [[0], [3], [0]], shape(3, 2)])
    op(name, T=["float", "int32"], inputs=[shape(6000, 30), np.arange(5000).reshape(5000, 1), shape(5000, 30)])
    for target, indices, updates in (
        ((5, 2), [[5]], (1, 2)),
        ((5, 2), [[0], [-1]], (2, 2)),
        ((5, 2), [[0], [1]], (1, 2)),
        ((5, 2), [[0], [1]], (2, 3)),
        ((5, 2), [[0], [1]], (2,)),
        ((0, 2), [[0]], (1, 2)),
    ):
        bad(name, T=["float"], inputs=[shape(*target), indices, shape(*updates)], code=INVALID_ARGUMENT, text=True)
for name in ("TensorScatterMax", "TensorScatterMin"):
    op(name, T=FLOATS, inputs=[special(0, 2), np.arange(625).reshape(625, 1), special(1, 2)])

for begin, end, strides, value in (([1, 2], [4, 6], [1, 1], (3, 4)), ([0, 0], [5, 6], [2, 3], (3, 2)), ([4, 5], [0, 0], [-1, -2], (4, 3)), ([1, 1], [3, 3], [1, 1], ()), ([1, 1], [3, 3], [1, 1], (2,)), ([1, 1], [3, 3], [1, 1], (2, 1))):
    # TensorFlow copies an input that is fed, and cannot do that for quantised types and 8-bit floats.
    op("TensorStridedSliceUpdate", T=COPIED, inputs=[shape(5, 6), begin, end, strides, shape(*value)])
op("TensorStridedSliceUpdate", T=SOME, inputs=[shape(5, 6), [2, 0], [3, 6], [1, 1], shape(6)], shrink_axis_mask=1)
op("TensorStridedSliceUpdate", T=SOME, inputs=[shape(5, 6), [0, 0], [0, 2], [1, 1], shape(1, 2, 6)], new_axis_mask=1)
NOT_COPIED = [t for t in kernel_types("TensorStridedSliceUpdate", EVERY) if t not in COPIED]
bad("TensorStridedSliceUpdate", T=NOT_COPIED, inputs=[shape(5, 6), [1, 1], [3, 3], [1, 1], shape(2, 2)], more=True)
bad("TensorStridedSliceUpdate", T=["float"], inputs=[shape(5, 6), [1, 1], [3, 3], [1, 1], shape(3)], code=INVALID_ARGUMENT, text=True)

for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"):
    op(name, inputs=[nonzero(6, 3), [0, 0, 1, 3, 3, 3]], full=True, **CLOSE)
    op(name, inputs=[ties(4), [0, 0, 0, 0]], **CLOSE)
    op(name, T=["float", "int32"], inputs=[shape(0, 3), shape(0)])
    op(name, T=["float", "int32"], inputs=[ties(3000, 40), np.arange(3000) // 7], ulp=8, abs_ulp=4000)
    for data, ids in (((3,), [0, 2, 1]), ((3,), [-1, 0, 1]), ((3,), [-3, -2, -1]), ((3,), [0, 0]), ((3,), [[0, 0, 0]])):
        bad(name, T=["float"], Tindices=["int32", "int64"], inputs=[shape(*data), ids], code=INVALID_ARGUMENT, text=True)
for name in ("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"):
    op(name, inputs=[nonzero(6, 3), [0, 2, 1, 0, -1, 2], 4], full=True, **CLOSE)
    op(name, inputs=[ties(2, 3), [[0, 1, 1], [1, 0, 1]], 2], **CLOSE)
    bad(name, T=["float"], Tindices=["int32"], inputs=[shape(3), [0, 1, 2], 2], code=INVALID_ARGUMENT, text=True)
for name in ("UnsortedSegmentMax", "UnsortedSegmentMin"):
    op(name, T=FLOATS, inputs=[special(), np.zeros(25, int), 1])
    op(name, T=FLOATS, inputs=[special(0, 2), np.arange(625) // 5, 125])

for name in ("Unique", "UniqueWithCounts"):
    op(name, inputs=[ties(20)], full=True)
    op(name, T=FLOATS + ["string", "int64"], inputs=[special()])
    op(name, T=["float", "string"], inputs=[shape(0)])
    op(name, T=["int32", "string"], inputs=[ties(5000)])
    bad(name, T=["float"], inputs=[shape(2, 2)], code=INVALID_ARGUMENT, text=True)
for name in ("UniqueV2", "UniqueWithCountsV2"):
    op(name, inputs=[ties(20), [0]], full=True)
    op(name, T=SOME[:3] + ["string"], inputs=[ties(20), np.zeros(0, int)])
    for dims, axis in (((12, 2), 0), ((2, 12), 1), ((2, 12, 1), -2), ((3, 0), 0), ((0, 3), 0)):
        op(name, T=["float", "int32", "bool", "string"], inputs=[shape(*dims, low=0, high=1), [axis]])
    for axis in ([2], [-3], [0, 1], 0):
        bad(name, T=["float"], inputs=[shape(2, 2), axis], code=INVALID_ARGUMENT, text=True)
op("ListDiff", inputs=[ties(20), [1, 2]], full=True, T=kernel_types("ListDiff", FLOATS + INTS))
op("ListDiff", T=["string"], inputs=[["a", "b", "a", ""], ["a", "c"]])
op("ListDiff", T=FLOATS, inputs=[special(), special()])
bad("ListDiff", T=["float"], inputs=[shape(2, 2), shape(2)], code=INVALID_ARGUMENT, text=True)
bad("ListDiff", T=["float"], inputs=[shape(2), shape(2, 2)], code=INVALID_ARGUMENT, text=True)

for dims, block in (((1, 4, 6, 3), 2), ((2, 6, 3, 1), 3), ((2, 64, 64, 8), 2), ((0, 2, 2, 1), 2)):
    op("SpaceToDepth", inputs=[shape(*dims)], block_size=block)
for dims, block in (((1, 2, 3, 12), 2), ((2, 2, 1, 9), 3), ((2, 32, 32, 32), 2), ((0, 1, 1, 4), 2)):
    op("DepthToSpace", inputs=[shape(*dims)], block_size=block)
for dims in ((1, 3, 4, 1), (1, 4, 3, 1), (2, 2, 2)):
    bad("SpaceToDepth", T=["float"], inputs=[shape(*dims)], block_size=2, code=INVALID_ARGUMENT, text=True)
for dims in ((1, 3, 4, 3), (2, 2, 4)):
    bad("DepthToSpace", T=["float"], inputs=[shape(*dims)], block_size=2, code=INVALID_ARGUMENT, text=True)

for dims, block, paddings in (
    ((1, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]),
    ((2, 3, 5), [2, 2], [[1, 0], [2, 1]]),
    ((1, 4), [4], [[2, 2]]),
    ((2, 4, 2), [1], [[0, 0]]),
    ((1, 2, 4, 2), [1, 2], [[1, 2], [0, 0]]),
    ((1, 3, 2), [5], [[7, 5]]),
    ((2, 4, 4, 2, 2), [2, 2, 2], [[0, 0], [1, 1], [0, 2]]),
    ((0, 4), [2], [[0, 0]]),
    ((2, 3), np.zeros(0, int), np.zeros((0, 2), int)),
    ((2, 60, 60, 8), [3, 4], [[0, 0], [2, 2]]),
):
    op("SpaceToBatchND", inputs=[shape(*dims), block, paddings])
for dims, block, paddings in (
    ((1, 3, 2), [2], [[0, 0]]),
    ((1, 4, 2), [2], [[-1, 1]]),
    ((1, 4, 2), [0], [[0, 0]]),
    ((1, 4, 2), [-2], [[0, 0]]),
    ((4,), [2], [[0, 0]]),
    ((1, 4), [2], [[0, 0, 0]]),
    ((1, 4), [[2]], [[0, 0]]),
    ((1, 2, 2, 2, 2, 2), [2] * 5, [[0, 0]] * 5),
):
    bad("SpaceToBatchND", T=["float"], inputs=[shape(*dims), block, paddings], code=INVALID_ARGUMENT, text=True)
for dims, block, crops in (
    ((6, 2, 2, 3), [2, 3], [[0, 0], [0, 0]]),
    ((8, 2, 4), [2, 2], [[1, 0], [2, 1]]),
    ((4, 2), [4], [[2, 2]]),
    ((2, 4, 2), [1], [[0, 0]]),
    ((2, 5, 2, 2), [1, 2], [[1, 2], [0, 0]]),
    ((5, 3, 2), [5], [[7, 5]]),
    ((4, 3), [2], [[3, 3]]),
    ((0, 4), [2], [[0, 0]]),
    ((24, 20, 16, 8), [3, 4], [[0, 0], [2, 2]]),
):
    op("BatchToSpaceND", inputs=[shape(*dims), block, crops])
for dims, block, crops in (
    ((3, 3, 2), [2], [[0, 0]]),
    ((2, 4, 2), [2], [[-1, 1]]),
    ((2, 4, 2), [2], [[5, 5]]),
    ((2, 4, 2), [0], [[0, 0]]),
    ((4,), [2], [[0, 0]]),
    ((2, 4), [2], [[0, 0, 0]]),
    ((2, 4), [[2]], [[0, 0]]),
):
    bad("BatchToSpaceND", T=["float"], inputs=[shape(*dims), block, crops], code=INVALID_ARGUMENT, text=True)
op("SpaceToBatch", inputs=[shape(1, 3, 4, 2), [[1, 0], [0, 2]]], block_size=2)
op("BatchToSpace", inputs=[shape(8, 2, 3, 2), [[1, 0], [0, 2]]], block_size=2)
bad("SpaceToBatch", T=["float"], inputs=[shape(1, 4, 4), [[0, 0], [0, 0]]], block_size=2, code=INVALID_ARGUMENT, text=True)
bad("BatchToSpace", T=["float"], inputs=[shape(3, 2, 2, 1), [[0, 0], [0, 0]]], block_size=2, code=INVALID_ARGUMENT, text=True)

for dims in ((3,), (2, 3), (2, 0), (0, 3), (2, 2, 4), (300,)):
    op("MatrixDiag", inputs=[shape(*dims)])
for dims in ((3, 3), (2, 3), (4, 2), (2, 3, 4), (0, 2), (2, 0, 3), (300, 350)):
    op("MatrixDiagPart", inputs=[shape(*dims)])
for dims, k, rows, columns in (((3,), 0, -1, -1), ((3,), 1, -1, -1), ((3,), -2, -1, -1), ((3,), 1, 3, 4), ((3,), 1, -1, 5), ((2, 3, 4), [-1, 1], -1, -1), ((2, 3), [0, 1], 3, 4), ((2, 3), [-1, 0], 5, 3), ((2, 3), [1], -1, -1)):
    op("MatrixDiagV2", inputs=[shape(*dims), k, rows, columns, scalar()])
    for align in ("LEFT_LEFT", "RIGHT_LEFT", "LEFT_RIGHT", "RIGHT_RIGHT"):
        op("MatrixDiagV3", T=SOME, inputs=[shape(*dims), k, rows, columns, scalar()], align=align)
op("MatrixDiagV3", inputs=[shape(2, 3), [0, 1], 3, 4, scalar()])
for dims, k, rows, columns in (((), 0, -1, -1), ((3,), [1, 0], -1, -1), ((2, 3), [0, 2], -1, -1), ((3,), 0, 2, -1), ((3,), 0, -1, 2), ((3,), 0, 4, 5), ((3,), [0, 1, 2], -1, -1), ((3,), np.zeros(0, int), -1, -1), ((3,), 0, [3], -1)):
    bad("MatrixDiagV3", T=["float"], inputs=[shape(*dims), k, rows, columns, scalar()], code=INVALID_ARGUMENT, text=True)
for dims, k in (((3, 4), 0), ((3, 4), 2), ((3, 4), -2), ((3, 4), [-1, 2]), ((2, 4, 3), [-2, 0]), ((2, 4, 3), [1, 2]), ((2, 4, 3), [0])):
    op("MatrixDiagPartV2", inputs=[shape(*dims), k, scalar()])
    op("MatrixSetDiagV2", T=SOME, inputs=[shape(3, 4), shape(3), 1])
    for align in ("LEFT_LEFT", "RIGHT_LEFT", "LEFT_RIGHT", "RIGHT_RIGHT"):
        op("MatrixDiagPartV3", T=SOME, inputs=[shape(*dims), k, scalar()], align=align)
op("MatrixDiagPartV3", inputs=[shape(3, 4), [-1, 2], scalar()])
for dims, k in (((3,), 0), ((3, 4), 4), ((3, 4), -3), ((3, 4), [1, 0]), ((3, 4), [0, 1, 2]), ((3, 4), [[0]]), ((3, 4), [0, 4])):
    bad("MatrixDiagPartV3", T=["float"], inputs=[shape(*dims), k, scalar()], code=INVALID_ARGUMENT, text=True)
for dims, diagonal in (((3, 3), (3,)), ((2, 3), (2,)), ((4, 2, 3), (4, 2)), ((0, 3), (0,)), ((2, 300, 350), (2, 300))):
    op("MatrixSetDiag", inputs=[shape(*dims), shape(*diagonal)])
for dims, diagonal, k in (((3, 4), (4, 3), [-1, 2]), ((2, 4, 3), (2, 3, 3), [-2, 0]), ((3, 4), (2,), 2), ((3, 4), (2,), [-1])):
    for align in ("LEFT_LEFT", "RIGHT_LEFT", "LEFT_RIGHT", "RIGHT_RIGHT"):
        op("MatrixSetDiagV3", T=SOME, inputs=[shape(*dims), shape(*diagonal), k], align=align)
op("MatrixSetDiagV3", inputs=[shape(3, 4), shape(4, 3), [-1, 2]])
op("MatrixSetDiagV2", inputs=[shape(3, 4), shape(4, 3), [-1, 2]])
for dims, diagonal, k in (((3,), (3,), 0), ((3, 4), (), 0), ((3, 4), (2,), 0), ((3, 4), (2, 3), [0, 2]), ((3, 4), (3,), 5), ((3, 4), (3,), [1, 0])):
    bad("MatrixSetDiagV3", T=["float"], inputs=[shape(*dims), shape(*diagonal), k], code=INVALID_ARGUMENT, text=True)
for dims, lower, upper in (((3, 4), 0, 0), ((3, 4), 1, -1), ((3, 4), -1, 1), ((2, 4, 3), 2, 0), ((3, 4), 3, 4), ((0, 3), 0, 0), ((2, 0), 0, 0), ((347, 331), 20, 10)):
    op("MatrixBandPart", Tindex=["int32", "int64"], inputs=[shape(*dims), lower, upper])
for dims, lower, upper in (((3,), 0, 0), ((3, 4), 4, 0), ((3, 4), 0, 5), ((3, 4), [0], 0), ((3, 4), 0, [0])):
    bad("MatrixBandPart", T=["float"], Tindex=["int32"], inputs=[shape(*dims), lower, upper], code=INVALID_ARGUMENT, text=True)
for dims in ((3,), (2, 3), (2, 1, 2), (0,)):
    op("Diag", inputs=[shape(*dims)])
    op("DiagPart", inputs=[shape(*dims, *dims)])
bad("Diag", T=["float"], inputs=[scalar()], code=INVALID_ARGUMENT, text=True)
op("DiagPart", T=["float", "int32"], inputs=[scalar()])
for dims in ((3,), (2, 3), (2, 3, 2)):
    bad("DiagPart", T=["float"], inputs=[shape(*dims)], code=INVALID_ARGUMENT, text=True)
