"""Ops that move values: transposes, joins, slices, pads, gathers and scatters."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """Transpose ConjugateTranspose Concat ConcatV2 ConcatOffset Split SplitV Pack Unpack Slice StridedSlice
StridedSliceGrad Pad PadV2 MirrorPad MirrorPadGrad Tile Gather GatherV2 GatherNd Reverse ReverseV2 DynamicStitch
DynamicPartition UnsortedSegmentSum ScatterNd
UnravelIndex"""
SOME = ["float", "int32", "string", "complex64", "bool", "bfloat16"]

for name in ("Transpose", "ConjugateTranspose"):
    for dims, perm in (
        ((3, 4), [1, 0]),
        ((3, 4), [0, 1]),
        ((2, 3, 4), [2, 0, 1]),
        ((2, 3, 4), [0, 2, 1]),
        ((2, 3, 4), [1, 0, 2]),
        ((2, 3, 4, 5), [3, 1, 0, 2]),
        ((2, 3, 4, 5), [0, 3, 1, 2]),
        ((2, 1, 3, 1, 2), [4, 0, 3, 2, 1]),
        ((2, 2, 2, 2, 2, 2), [5, 3, 1, 0, 2, 4]),
        ((5,), [0]),
        ((), []),
        ((0, 3), [1, 0]),
    ):
        # TensorFlow's own server dies of a ConjugateTranspose of strings that moves nothing.
        still = name == "ConjugateTranspose" and len(dims) < 2
        types = {"T": kernel_types(name, NUMBERS + ["bool"])} if still else {}
        op(name, inputs=[shape(*dims), perm], **types)
    op(name, T=["float", "int64"], inputs=[shape(2, 3), [-1, 0]])
    op(name, T=SOME, inputs=[large(), [1, 0]])
    op(name, T=SOME, inputs=[shape(17, 65, 33), [2, 1, 0]])
    op(name, T=SOME, Tperm="int64", inputs=[shape(2, 3), [1, 0]])
    op(name, T=["float"], inputs=[shape(2, 3), [1, 0]], const=True)
    for perm in ([0, 0], [0, 2], [-3, 0], [0], [0, 1, 2], [[0, 1]]):
        bad(name, T=["float"], inputs=[shape(2, 3), perm], code=INVALID_ARGUMENT, text=True)

JOINS = [
    ([(2, 3), (2, 3)], 0),
    ([(2, 3), (4, 3)], 0),
    ([(2, 3), (2, 1)], 1),
    ([(2, 3), (2, 1), (2, 0)], 1),
    ([(2, 3, 2), (2, 1, 2)], -2),
    ([(2, 3), (2, 5)], -1),
    ([(0, 3), (2, 3)], 0),
    ([(0, 3), (0, 3)], 1),
    ([(3,), (2,), (1,), (4,)], 0),
    ([(300, 100), (300, 251)], 1),
    ([(2, 2)] * 20, 0),
]
for dims, axis in JOINS:
    op("ConcatV2", inputs=[[shape(*d) for d in dims], axis])
    op("Concat", inputs=[axis, [shape(*d) for d in dims]])
op("ConcatV2", T=SOME, Tidx="int64", inputs=[[shape(2, 3), shape(1, 3)], 0])
for dims, axis in (([(2, 3), (2, 4)], 0), ([(2, 3), (2, 3)], 2), ([(2, 3), (2, 3)], -3), ([(2, 3), (3,)], 0), ([(2,), (2,)], [0, 0])):
    bad("ConcatV2", T=["float", "string"], inputs=[[shape(*d) for d in dims], axis], code=INVALID_ARGUMENT, text=True)
    bad("Concat", T=["float"], inputs=[axis, [shape(*d) for d in dims]], code=INVALID_ARGUMENT, text=True)
bad("ConcatV2", T=["float"], inputs=[[scalar(), scalar()], 0], code=INVALID_ARGUMENT)
op("ConcatV2", T=["float"], inputs=[[shape(2), shape(2)], [0]])
op("Concat", T=["float"], inputs=[[0], [shape(2), shape(2)]])
op("ConcatOffset", inputs=[1, [[2, 3, 5], [2, 7, 5], [2, 1, 5]]], full=True)
op("ConcatOffset", inputs=[-1, [[2, 3], [2, 4]]])
op("ConcatOffset", inputs=[0, [[2], [4]]])
for axis, dims in ((2, [[2, 3], [2, 4]]), (0, [[2, 3], [2, 4]]), (0, [[2, 3], [2]]), ([0], [[2], [4]]), (0, [[[2]], [[4]]])):
    bad("ConcatOffset", inputs=[axis, dims], code=INVALID_ARGUMENT, text=True)

for dims, axis, count in (((4, 3), 0, 2), ((4, 6), 1, 3), ((4, 6), -1, 2), ((4, 3), 0, 1), ((6,), 0, 6), ((2, 4, 3), 1, 2), ((0, 4), 0, 2), ((0, 4), 1, 2), ((348, 331), 0, 4)):
    op("Split", inputs=[axis, shape(*dims)], num_split=count)
for dims, axis, count in (((4, 3), 2, 2), ((4, 3), -3, 2), ((4, 3), 0, 3), ((), 0, 1), ((4,), [0, 0], 2)):
    bad("Split", T=["float"], inputs=[axis, shape(*dims)], num_split=count, code=INVALID_ARGUMENT, text=True)

for dims, sizes, axis in (
    ((6, 3), [1, 2, 3], 0),
    ((6, 3), [1, -1, 2], 0),
    ((2, 6), [4, 2], 1),
    ((2, 6), [6, 0], -1),
    ((6,), [6], 0),
    ((2, 5, 3), [2, 3], 1),
    ((0, 3), [0, 0], 0),
    ((347, 331), [100, -1], 0),
):
    op("SplitV", inputs=[shape(*dims), sizes, axis], num_split=len(sizes), full=sizes == [1, 2, 3], **({"Tlen": ["int32", "int64"]} if 100 in sizes else {}))
for sizes, axis, count in (([1, 2], 0, 2), ([7, -1], 0, 2), ([-1, -1], 0, 2), ([3, 3], 2, 2), ([3, 3], -3, 2), ([1, 2, 3], 0, 2), ([-2, 8], 0, 2), ([[6]], 0, 1)):
    bad("SplitV", T=["float"], Tlen=["int32", "int64"], inputs=[shape(6, 3), sizes, axis], num_split=count, code=INVALID_ARGUMENT, text=True)

for dims, axis, count in (((2, 3), 0, 2), ((2, 3), 1, 3), ((2, 3), 2, 2), ((2, 3), -1, 2), ((), 0, 3), ((0,), 0, 2), ((5,), 0, 1), ((200, 300), 0, 2), ((200, 300), 1, 2)):
    op("Pack", inputs=[[shape(*dims)] * count], axis=axis)
bad("Pack", T=["float"], inputs=[[shape(2, 3), shape(2)]], code=INVALID_ARGUMENT, text=True)
bad("Pack", T=["float"], inputs=[[shape(2, 3), shape(3, 2)]], code=INVALID_ARGUMENT, text=True)
for axis in (3, -4):
    bad("Pack", T=["float"], inputs=[[shape(2, 3), shape(2, 3)]], axis=axis, code=INVALID_ARGUMENT, text=True)
for dims, axis, count in (((2, 3), 0, 2), ((2, 3), 1, 3), ((2, 3), -2, 2), ((3,), 0, 3), ((2, 0), 0, 2), ((0, 3), 0, 0), ((3, 200, 200), 0, 3), ((200, 200, 3), 2, 3)):
    op("Unpack", inputs=[shape(*dims)], axis=axis, num=count)
for dims, axis, count in (((2, 3), 2, 2), ((2, 3), -3, 2), ((2, 3), 0, 3), ((), 0, 1)):
    bad("Unpack", T=["float"], inputs=[shape(*dims)], axis=axis, num=count, code=INVALID_ARGUMENT, text=True)

for dims, begin, size in (
    ((4, 5), [1, 2], [2, 3]),
    ((4, 5), [0, 0], [4, 5]),
    ((4, 5), [1, 0], [2, 5]),
    ((4, 5), [1, 2], [-1, -1]),
    ((4, 5), [4, 0], [0, 5]),
    ((4, 5), [4, 5], [-1, 0]),
    ((7,), [3], [2]),
    ((), [], []),
    ((2, 3, 4), [0, 1, 2], [2, 1, 2]),
    ((2, 3, 2, 3, 2), [1, 0, 1, 0, 1], [1, 2, 1, 2, 1]),
    ((0, 3), [0, 1], [0, 2]),
    ((347, 331), [3, 5], [300, 320]),
):
    op("Slice", Index=["int32", "int64"], inputs=[shape(*dims), begin, size])
for begin, size in (([1, 2], [4, 3]), ([-1, 0], [1, 1]), ([5, 0], [-1, 1]), ([0], [1]), ([0, 0, 0], [1, 1, 1]), ([0, 0], [1]), ([0, 0], [-2, 1]), ([[0, 0]], [[1, 1]])):
    bad("Slice", T=["float"], Index=["int32", "int64"], inputs=[shape(4, 5), begin, size], code=INVALID_ARGUMENT, text=True)

# dims of the input, begin, end, strides, masks
SLICES = [
    ((5, 6), [1, 2], [4, 6], [1, 1], {}),
    ((5, 6), [0, 0], [5, 6], [1, 1], {}),
    ((5, 6), [1], [3], [1], {}),
    ((5, 6), [0, 0], [5, 6], [2, 3], {}),
    ((5, 6), [4, 5], [0, 0], [-1, -2], {}),
    ((5, 6), [-1, -2], [-6, -7], [-1, -1], {}),
    ((5, 6), [3, 3], [1, 2], [1, 1], {}),
    ((5, 6), [0, 0], [100, -100], [1, -1], {}),
    ((5, 6), [9, 9], [2, 2], [1, 1], {"begin_mask": 3}),
    ((5, 6), [2, 2], [-9, -9], [1, 2], {"end_mask": 3}),
    ((5, 6), [2, 2], [2, 2], [-1, -1], {"begin_mask": 1, "end_mask": 2}),
    ((5, 6), [2, 2], [2, 2], [1, 1], {"begin_mask": 3, "end_mask": 3}),
    ((5, 6), [2, 3], [3, 4], [1, 1], {"shrink_axis_mask": 3}),
    ((5, 6), [-1, 1], [0, 5], [1, 2], {"shrink_axis_mask": 1}),
    ((5, 6), [2], [3], [1], {"shrink_axis_mask": 1}),
    ((5, 6), [0, 1], [0, 4], [1, 1], {"new_axis_mask": 1}),
    ((5, 6), [0, 0, 1], [0, 3, 4], [1, 1, 2], {"new_axis_mask": 1}),
    ((5, 6), [1, 0, 0], [4, 0, 0], [1, 1, 1], {"new_axis_mask": 6}),
    ((2, 3, 4, 5), [0, 1], [0, 3], [1, 1], {"ellipsis_mask": 1}),
    ((2, 3, 4, 5), [1, 0, 1], [2, 0, 3], [1, 1, 1], {"ellipsis_mask": 2}),
    ((2, 3, 4, 5), [1, 0, 2, 0], [2, 0, 3, 0], [1, 1, 1, 1], {"ellipsis_mask": 2, "shrink_axis_mask": 5, "new_axis_mask": 8}),
    ((2, 3, 4, 5), [0, 0, 0, 1], [0, 0, 9, 3], [1, 1, -1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2, "begin_mask": 4, "end_mask": 4}),
    ((7,), [1], [6], [2], {}),
    ((7,), [3], [4], [1], {"shrink_axis_mask": 1}),
    ((7,), [0], [0], [1], {"ellipsis_mask": 1}),
    ((), [], [], [], {}),
    ((), [0], [0], [1], {"new_axis_mask": 1}),
    ((), [0], [0], [1], {"ellipsis_mask": 1}),
    ((0, 3), [0, 0], [5, 2], [1, 1], {}),
    ((2, 3, 2, 3, 2, 2), [0, 1, 0, 1, 0, 1], [2, 3, 1, 3, 2, 2], [1, 1, 1, 2, 1, 1], {}),
    ((347, 331), [1, 2], [340, 331], [1, 1], {}),
    ((347, 331), [5, 330], [340, 0], [3, -2], {}),
]


def sliced(dims, begin, end, strides, masks):
    """The shape of the slice, from Python's own slicing; the new axes and the ellipsis are resolved here."""
    keys = []
    bit = {name: masks.get(name, 0) for name in ("begin_mask", "end_mask", "shrink_axis_mask", "new_axis_mask", "ellipsis_mask")}
    for i, (b, e, s) in enumerate(zip(begin, end, strides)):
        if bit["ellipsis_mask"] >> i & 1:
            keys.append(Ellipsis)
        elif bit["new_axis_mask"] >> i & 1:
            keys.append(None)
        elif bit["shrink_axis_mask"] >> i & 1:
            keys.append(b)
        else:
            keys.append(slice(None if bit["begin_mask"] >> i & 1 else b, None if bit["end_mask"] >> i & 1 else e, s))
    return np.zeros(dims)[tuple(keys)].shape


for dims, begin, end, strides, masks in SLICES:
    basic = begin == [1, 2] and dims == (5, 6)
    op("StridedSlice", Index=["int32", "int64"] if basic else "int32", inputs=[shape(*dims), begin, end, strides], **masks)
    gradient = shape(*sliced(dims, begin, end, strides, masks))
    op("StridedSliceGrad", Index=["int32", "int64"] if basic else "int64", inputs=[list(dims), begin, end, strides, gradient], **masks)
op("StridedSlice", T=["float"], Index=["int16"], inputs=[shape(5, 6), [1, 2], [4, 6], [1, 1]])
op("StridedSlice", T=["float"], Index="int32", inputs=[shape(5, 6), [1, 2], [4, 6], [1, 1]], const=[1, 2, 3])
for begin, end, strides, masks in (
    ([0, 0], [5, 6], [0, 1], {}),
    ([0, 0, 0], [1, 1, 1], [1, 1, 1], {}),
    ([0, 0], [5], [1, 1], {}),
    ([0, 0], [5, 6], [1], {}),
    ([[0, 0]], [[5, 6]], [[1, 1]], {}),
    ([5, 0], [6, 6], [1, 1], {"shrink_axis_mask": 1}),
    ([-6, 0], [6, 6], [1, 1], {"shrink_axis_mask": 1}),
    ([0, 0], [0, 0], [1, 1], {"ellipsis_mask": 3}),
    ([0, 0], [1, 1], [-1, 1], {"shrink_axis_mask": 1}),
):
    bad("StridedSlice", T=["float"], Index=["int32", "int64"], inputs=[shape(5, 6), begin, end, strides], code=INVALID_ARGUMENT, text=True, **masks)
bad("StridedSliceGrad", T=["float"], Index=["int32"], inputs=[[5, 6], [1, 2], [4, 6], [1, 1], shape(2, 4)], code=INVALID_ARGUMENT, text=True)
bad("StridedSliceGrad", T=["float"], Index=["int32"], inputs=[[5, 6], [1, 2], [4, 6], [1, 1], shape(3)], code=INVALID_ARGUMENT)
bad("StridedSliceGrad", T=["float"], Index=["int32"], inputs=[[[5, 6]], [1, 2], [4, 6], [1, 1], shape(3, 4)], code=INVALID_ARGUMENT)

PADS = [
    ((2, 3), [[1, 2], [0, 1]]),
    ((2, 3), [[0, 0], [0, 0]]),
    ((4,), [[2, 1]]),
    ((2, 3, 2), [[0, 1], [1, 0], [2, 2]]),
    ((1, 2, 1, 2), [[1, 1], [0, 0], [1, 0], [0, 1]]),
    ((2, 1, 2, 1, 2), [[1, 0], [0, 1], [1, 0], [0, 1], [1, 1]]),
    ((0, 3), [[1, 2], [0, 1]]),
    ((347, 331), [[1, 1], [2, 3]]),
]
for dims, pads in PADS:
    op("Pad", inputs=[shape(*dims), pads], full=dims == (2, 3))
    op("PadV2", inputs=[shape(*dims), pads, scalar()], full=dims == (2, 3))
for name, extra in (("Pad", []), ("PadV2", [1])):
    op(name, T=SOME, inputs=[scalar(), np.zeros((0, 2), np.int32), *extra])
    for pads in ([[1, 2]], [[1, 2, 3], [1, 2, 3]], [1, 2], [[-1, 0], [0, 0]]):
        bad(name, T=["float"], inputs=[shape(2, 3), pads, *extra], code=INVALID_ARGUMENT, text=True)
    bad(name, T=["float"], Tpaddings="int64", inputs=[shape(2, 3), [[1 << 40, 1 << 40], [1 << 40, 0]], *extra])
bad("PadV2", T=["float"], inputs=[shape(2, 3), [[1, 2], [0, 1]], [1, 2]], code=INVALID_ARGUMENT)
for mode in ("REFLECT", "SYMMETRIC"):
    for dims, pads in (((3, 4), [[2, 1], [1, 2]]), ((5,), [[3, 4]]), ((3, 4), [[0, 0], [0, 0]]), ((2, 3, 2), [[1, 0], [2, 1], [0, 1]]), ((2, 2, 2, 2), [[1, 1]] * 4), ((347, 331), [[3, 2], [1, 5]])):
        op("MirrorPad", inputs=[shape(*dims), pads], mode=mode, full=dims == (3, 4))
        padded = [d + sum(p) for d, p in zip(dims, pads)]
        op("MirrorPadGrad", inputs=[shape(*padded), pads], mode=mode, full=dims == (3, 4), ulp=8, abs_ulp=32)
    op("MirrorPad", T=["float"], inputs=[scalar(), np.zeros((0, 2), np.int32)], mode=mode, either=True)
    for pads in ([[4, 0], [0, 0]], [[-1, 0], [0, 0]], [[1, 1]], [[1, 1, 1], [1, 1, 1]]):
        bad("MirrorPad", T=["float"], inputs=[shape(3, 4), pads], mode=mode, code=INVALID_ARGUMENT, text=True)
    bad("MirrorPadGrad", T=["float"], inputs=[shape(3, 4), [[3, 3], [0, 0]]], mode=mode, code=INVALID_ARGUMENT)

for dims, multiples in (((2, 3), [2, 1]), ((2, 3), [1, 1]), ((2, 3), [3, 2]), ((4,), [3]), ((2, 3), [0, 2]), ((0, 3), [2, 2]), ((), []), ((2, 1, 3), [1, 4, 2]), ((1, 2, 1, 2, 1), [2, 1, 3, 1, 2]), ((347,), [331]), ((1, 331), [347, 1])):
    op("Tile", T=kernel_types("Transpose", FLOATS + COMPLEX + SIGNED + ["uint8", "bool", "string"]) if dims == (2, 3) else SOME, Tmultiples=["int32", "int64"] if dims == (2, 3) else "int32", inputs=[shape(*dims), multiples])
for multiples in ([1], [1, 1, 1], [-1, 2], [[1, 1]]):
    bad("Tile", T=["float"], inputs=[shape(2, 3), multiples], code=INVALID_ARGUMENT, text=True)
bad("Tile", T=["float"], Tmultiples="int64", inputs=[shape(2, 3), [1 << 40, 1 << 40]])

op("Gather", Tindices=["int32", "int64"], inputs=[shape(5, 3), index(5, 4)], full=True)
op("Gather", Tindices=["int32", "int64"], inputs=[shape(5, 3), index(5, 2, 2)])
op("GatherV2", inputs=[shape(5, 3), index(5, 4), 0], full=True)
WORDS = ["float", "int32", "string", "double", "int8"]
for params, indices, axis, dims in (
    ((5, 3), (2, 2), 0, 0),
    ((5, 3), (2,), 1, 0),
    ((5, 3), (2,), -1, 0),
    ((5, 3), (), 0, 0),
    ((5,), (3,), 0, 0),
    ((3, 4, 5), (2, 3), 1, 0),
    ((3, 4, 5), (3, 2), 1, 1),
    ((3, 4, 5), (3, 4, 2), 2, 2),
    ((3, 4, 5), (3, 2), -1, -1),
    ((3, 4, 5), (3, 2), 2, 1),
    ((5, 0), (3,), 0, 0),
    ((5, 3), (0,), 0, 0),
    ((1000, 64), (2000,), 0, 0),
):
    limit = params[axis]
    op("GatherV2", Tparams=WORDS, Tindices=["int32", "int64"], Taxis=["int32", "int64"], inputs=[shape(*params), index(max(limit, 1), *indices), axis], batch_dims=dims)
for params, indices, axis, dims in (
    ((5, 3), [0, 5], 0, 0),
    ((5, 3), [0, -1], 0, 0),
    ((5, 3), [0, 3], 1, 0),
    ((5, 3), [0], 2, 0),
    ((5, 3), [0], -3, 0),
    ((), [0], 0, 0),
    ((0, 3), [0], 0, 0),
    ((5, 3), [0, 1], 0, 1),
    ((5, 3), [0, 1], 1, 1),
    ((5, 3), [[0, 1]], 0, 2),
    ((5, 3), [0], [0, 1], 0),
):
    bad("GatherV2", Tparams=["float"], Tindices=["int32", "int64"], Taxis="int32", inputs=[shape(*params), indices, axis], batch_dims=dims, code=INVALID_ARGUMENT, text=True)
bad("Gather", Tparams=["float"], Tindices=["int32"], inputs=[shape(5, 3), [5]], code=INVALID_ARGUMENT, text=True)
bad("Gather", Tparams=["float"], Tindices=["int32"], inputs=[scalar(), [0]], code=INVALID_ARGUMENT, text=True)

op("GatherNd", inputs=[shape(4, 5), index(4, 3, 2)], full=True)
for params, indices in (((4, 5), (3, 1)), ((4, 5), (2, 3, 2)), ((4, 5), (2,)), ((4, 5), (3, 0)), ((2, 3, 4), (5, 2)), ((2, 2, 2, 2), (3, 4)), ((4, 5), (0, 2)), ((2, 2, 2, 2, 2, 2), (3, 6)), ((500, 300), (10000, 1))):
    op("GatherNd", Tparams=WORDS, Tindices=["int32", "int64"], inputs=[shape(*params), index(2, *indices)])
for params, indices in (((4, 5), [[4, 0]]), ((4, 5), [[0, -1]]), ((4, 5), [[0, 0, 0]]), ((), [[0]]), ((4, 5), 0), ((0, 5), [[0, 0]])):
    bad("GatherNd", Tparams=["float"], Tindices=["int32", "int64"], inputs=[shape(*params), indices], code=INVALID_ARGUMENT, text=True)

for dims, flags in (((3, 4), [True, False]), ((3, 4), [False, True]), ((3, 4), [True, True]), ((3, 4), [False, False]), ((5,), [True]), ((2, 3, 4), [True, False, True]), ((3, 0), [True, True]), ((2, 3, 2, 3), [False, True, True, False])):
    op("Reverse", inputs=[shape(*dims), flags])
bad("Reverse", inputs=[shape(0, 3), [True, True]], code=INVALID_ARGUMENT, text=True)
bad("Reverse", T=["float"], inputs=[shape(3, 4), [True]], code=INVALID_ARGUMENT, text=True)
bad("Reverse", T=["float"], inputs=[shape(3, 4), [[True, True]]], code=INVALID_ARGUMENT, text=True)
for dims, axes in (((3, 4), [0]), ((3, 4), [1]), ((3, 4), [-1, 0]), ((3, 4), []), ((5,), [0]), ((2, 3, 4), [2, 0]), ((0, 3), [0]), ((2, 3, 2, 3), [1, 2]), ((2, 1, 3, 1, 2), [0, 2, 4]), ((40, 50, 3), [1]), ((347, 331), [1]), ((), [])):
    op("ReverseV2", inputs=[shape(*dims), axes], full=axes == [0] and dims == (3, 4))
for axes in ([2], [-3], [0, 0], [0, -2], [[0]]):
    bad("ReverseV2", T=["float"], inputs=[shape(3, 4), axes], code=INVALID_ARGUMENT, text=True)
bad("ReverseV2", T=["float"], inputs=[shape(*[1] * 9), [0]])

op("DynamicStitch", inputs=[[[0, 2], [1, 3, 4]], [shape(2, 3), shape(3, 3)]])
op("DynamicStitch", inputs=[[[0, 1, 2]], [shape(3)]])
op("DynamicStitch", inputs=[[1, [[0, 3], [2, 2]]], [shape(2), shape(2, 2, 2)]])
op("DynamicStitch", inputs=[[[0, 1], [1, 0]], [shape(2), shape(2)]])
op("DynamicStitch", inputs=[[shape(0), [1, 0]], [shape(0, 3), shape(2, 3)]])
op("DynamicStitch", T=["float"], inputs=[[shape(0)], [shape(0, 3)]])
op("DynamicStitch", T=["float", "int32"], inputs=[[sequence(300), sequence(300, start=300)], [shape(300, 200), shape(300, 200)]])
for indices, data in (([[0, -1]], [shape(2, 3)]), ([[0, 1]], [shape(3, 3)]), ([[0, 1], [2]], [shape(2, 3), shape(1, 4)]), ([[0, 1]], [scalar()])):
    bad("DynamicStitch", T=["float"], inputs=[indices, data], code=INVALID_ARGUMENT, text=True)

op("DynamicPartition", inputs=[shape(6, 3), [0, 2, 1, 0, 2, 2]], num_partitions=3)
op("DynamicPartition", inputs=[shape(6), [0, 1, 1, 0, 1, 0]], num_partitions=4)
op("DynamicPartition", inputs=[shape(2, 3), [[0, 1, 1], [1, 0, 1]]], num_partitions=2)
op("DynamicPartition", inputs=[shape(0, 3), shape(0)], num_partitions=2)
op("DynamicPartition", T=WORDS, inputs=[shape(3), 1], num_partitions=2)
op("DynamicPartition", T=["float", "int32"], inputs=[shape(3000, 40), index(5, 3000)], num_partitions=5)
for data, parts in ((shape(3), [0, 2, 1]), (shape(3), [0, -1, 1]), (shape(3), [0, 1]), (shape(3, 2), [[0, 1, 0]])):
    bad("DynamicPartition", T=["float"], inputs=[data, parts], num_partitions=2, code=INVALID_ARGUMENT, text=True)

SUMS = {"ulp": 4, "abs_ulp": 64}
op("UnsortedSegmentSum", inputs=[shape(6, 3), [0, 2, 1, 0, -1, 2], 4], full=True, **SUMS)
op("UnsortedSegmentSum", inputs=[shape(6), [0, 2, 1, 0, 2, 2], 3], **SUMS)
op("UnsortedSegmentSum", inputs=[shape(2, 3), [[0, 1, 1], [1, 0, 1]], 2], **SUMS)
op("UnsortedSegmentSum", inputs=[shape(0, 3), shape(0), 2])
op("UnsortedSegmentSum", inputs=[shape(3), [0, 0, 0], 0], T=["float"], either=True)
op("UnsortedSegmentSum", Tnumsegments="int64", T=["float"], inputs=[scalar(), 1, 3])
op("UnsortedSegmentSum", T=["float", "int32"], inputs=[shape(3000, 40), index(50, 3000), 50], ulp=8, abs_ulp=4000)
for data, ids, count in ((shape(3), [0, 1], 2), (shape(3), [0, 1, 2], 2), (shape(3), [0, 1, 1], -1), (shape(3), [0, 1, 1], [2]), (shape(3), [[0, 1, 1]], 2)):
    bad("UnsortedSegmentSum", T=["float"], Tindices=["int32", "int64"], inputs=[data, ids, count], code=INVALID_ARGUMENT, text=True)

NUMERIC = kernel_types("ScatterNd", FLOATS + COMPLEX + INTS)
op("ScatterNd", inputs=[[[0], [3], [1]], shape(3, 2), [5, 2]], full=True)
op("ScatterNd", inputs=[[[0, 1], [3, 0]], shape(2), [4, 2]])
op("ScatterNd", T=NUMERIC, inputs=[[[0], [3], [0]], shape(3, 2), [5, 2]])
op("ScatterNd", inputs=[[[[0], [1]], [[2], [3]]], shape(2, 2, 3), [4, 3]])
bad("ScatterNd", T=["float"], inputs=[[[0], [1]], shape(2, 0), [4, 0]], code=INVALID_ARGUMENT, text=True)
op("ScatterNd", T=["float", "int32"], inputs=[np.arange(5000).reshape(5000, 1), shape(5000, 30), [6000, 30]])
op("ScatterNd", T=["float", "string"], inputs=[np.zeros((0, 1), np.int32), shape(0, 2), [3, 2]], either=True)
for indices, updates, target in (
    ([[5]], shape(1, 2), [5, 2]),
    ([[-1]], shape(1, 2), [5, 2]),
    ([[0], [1]], shape(1, 2), [5, 2]),
    ([[0], [1]], shape(2, 3), [5, 2]),
    ([[0, 0, 0]], shape(1), [5, 2]),
    ([[0]], shape(1, 2), [[5, 2]]),
    ([[0]], shape(1, 2), [-1, 2]),
    ([[0]], shape(1, 2), [0, 2]),
):
    bad("ScatterNd", T=["float"], inputs=[indices, updates, target], code=INVALID_ARGUMENT, text=True)

op("UnravelIndex", inputs=[[22, 41, 37, 0], [7, 6]])
op("UnravelIndex", inputs=[1621, [6, 7, 8, 9]])
op("UnravelIndex", inputs=[[-1, -9], [3, 4]])
bad("UnravelIndex", inputs=[np.zeros(0), [3, 4]], code=INVALID_ARGUMENT)
op("UnravelIndex", inputs=[0, np.zeros(0)], either=True)
for indices, dims in (([12], [3, 4]), ([[1]], [3, 4]), ([1], 3), ([1], [3, 0]), ([1], [3, -4]), ([1], [1 << 20, 1 << 20])):
    bad("UnravelIndex", Tidx=["int32"], inputs=[indices, dims], code=INVALID_ARGUMENT)
