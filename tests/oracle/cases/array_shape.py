"""Ops that pass values on, make them, or change or report their shape."""

from tests.oracle.build import Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """Const Identity IdentityN Snapshot StopGradient PreventGradient Placeholder PlaceholderWithDefault
Reshape Squeeze ExpandDims Shape ShapeN Size Rank InvertPermutation Fill ZerosLike OnesLike BroadcastTo BroadcastArgs
BroadcastGradientArgs EnsureShape Bitcast OneHot Where"""

SHAPES = [shape(2, 3), scalar(), empty(), shape(1), shape(2, 1, 3, 1, 2)]
SOME = ["float", "int32", "string", "complex64", "bool", "bfloat16"]


def constant(b, dtype, values, dims, typed):
    """A Const in one of the encodings of TensorProto, the last value repeated where there are too few."""
    proto = dtypes.to_proto(as_array([], dtype), dtype)
    del proto.tensor_shape.dim[:]
    for size in dims:
        proto.tensor_shape.dim.add(size=size)
    array = as_array(values, dtype)
    if not typed:
        proto.tensor_content = array.tobytes()
    elif dtype in ("half", "bfloat16"):
        proto.half_val.extend(array.view("uint16").astype(int).tolist())
    elif dtype in COMPLEX:
        field = proto.scomplex_val if dtype == "complex64" else proto.dcomplex_val
        for value in array.ravel():
            field.extend([float(value.real), float(value.imag)])
    elif dtype.startswith("float8"):
        proto.float8_val = array.tobytes()
    else:
        fields = {"float": "float_val", "double": "double_val", "string": "string_val", "int64": "int64_val"}
        fields |= {"bool": "bool_val", "uint32": "uint32_val", "uint64": "uint64_val"}
        getattr(proto, fields.get(dtype, "int_val")).extend(array.ravel().tolist())
    return [Step(fetches=[b.node("Const", dtype=dtype, value=proto)])]


NARROW = ["float4_e2m1fn"]
BINARY_FORM = [t for t in EVERY if t != "string"]
CONST = {"ops": [("Const", lambda types: {})], "typed": True}
program("const", constant, dtype=[t for t in EVERY if t not in NARROW], values=[[1]], dims=(), **CONST)
program("const", constant, dtype=NARROW, values=[[1]], dims=(), ops=["Const"], typed=False)
program("const", constant, dtype=PLAIN, values=[[1, 0, 1]], dims=(3,), **CONST)
program("const", constant, dtype=PLAIN + QUANTIZED, values=[[1, 0]], dims=(2, 3), **CONST)
program("const", constant, dtype=PLAIN + QUANTIZED, values=[[]], dims=(2, 3), **CONST)
program("const", constant, dtype=PLAIN, values=[[]], dims=(0, 3), **CONST)
program("const", constant, dtype=PLAIN, values=[[1, 0, 1]], dims=(2,), ops=["Const"], typed=True, either=True)
program("const", constant, dtype=BINARY_FORM, values=[[1, 0, 1, 1]], dims=(2, 2), ops=["Const"], typed=False)
for dims in ((3,), (1,), (1 << 40,)):
    program("const", constant, dtype=["float"], values=[[1, 0]], dims=dims, ops=["Const"], typed=False, fails=True,
            code=INVALID_ARGUMENT)

for name in ("Identity", "StopGradient", "PreventGradient"):
    op(name, T=EVERY, inputs=[shape(2, 3)])
    for values in (*SHAPES, special(), large()):
        op(name, T=SOME, inputs=[values])
for values in (*SHAPES, special(), large()):
    op("Snapshot", inputs=[values])
op("IdentityN", T=["float", "int32", "string"], inputs=[[shape(2, 3), scalar(), empty()]])
op("IdentityN", T=["bool"], inputs=[[shape(4)]])
op("PlaceholderWithDefault", dtype=EVERY, inputs=[shape(2, 3)], shape=[2, 3])
op("PlaceholderWithDefault", dtype=SOME, inputs=[scalar()], shape=None, const=True)
op("PlaceholderWithDefault", dtype=["float"], inputs=[shape(2, 3)], shape=[-1, 3])


def placeholder(b, dtype, op, given, dims):
    node = b.node(op, dtype=dtype, shape=dims)
    out = b.node("Identity", node)
    return [Step(fetches=[out], feeds=[(node, shape(*given)(np.random.default_rng(3), dtype))] if given is not None else [])]


program("fed", placeholder, dtype=EVERY, op="Placeholder", given=(2, 3), dims=None, ops=["Placeholder", "Identity"])
program("fed", placeholder, dtype=SOME, op="Placeholder", given=(2, 3), dims=[[2, -1]], ops=["Placeholder"])
for dims in (None, [[2, 3]], [[-1, 3]]):
    program("not fed", placeholder, dtype=["float", "string"], op="Placeholder", given=None, dims=dims,
            ops=["Placeholder"], fails=True, code=INVALID_ARGUMENT, text=True)
program("removed op", placeholder, dtype=["float"], op="PlaceholderV2", given=None, dims=[[2, 3]], fails=True,
        code=UNIMPLEMENTED, text=True)

for dims, target in (
    ((2, 3), [3, 2]),
    ((2, 3), [6]),
    ((2, 3), [-1]),
    ((2, 3), [1, -1, 2]),
    ((2, 3, 4), [4, -1]),
    ((1,), []),
    ((), [1, 1]),
    ((0, 3), [3, 0]),
    ((0, 3), [0, -1]),
    ((0,), [0, 5]),
):
    op("Reshape", T=EVERY if target == [3, 2] else SOME, Tshape=["int32", "int64"], inputs=[shape(*dims), target])
op("Reshape", T=["float"], Tshape=["int32", "int64"], inputs=[shape(0), [-1, 0]])
op("Reshape", T=["float"], Tshape=["int32", "int64"], inputs=[shape(2, 3), 6])
op("Reshape", T=SOME, inputs=[large(), [331, -1]])
op("Reshape", T=["float"], inputs=[shape(2, 3), [3, 2]], const=True)
for dims, target in (
    ((2, 3), [4]),
    ((2, 3), [-1, -1]),
    ((2, 3), [-1, 4]),
    ((2, 3), [-2, 3]),
    ((2, 3), [[3, 2]]),
    ((2, 3), [0]),
    ((2, 3), [1 << 30, 1 << 30]),
):
    bad("Reshape", T=["float"], Tshape=["int32", "int64"], inputs=[shape(*dims), target], code=INVALID_ARGUMENT, text=True)
bad("Reshape", T=["float"], Tshape="int64", inputs=[shape(2), [1 << 40, 1 << 40]], code=INVALID_ARGUMENT)

for dims, squeeze in (
    ((1, 3, 1), []),
    ((1, 3, 1), [0]),
    ((1, 3, 1), [-1]),
    ((1, 3, 1), [0, 2]),
    ((1, 1), []),
    ((3,), []),
    ((), []),
    ((1, 0), [0]),
    ((1, 3, 1), [0, 0]),
):
    op("Squeeze", T=EVERY if not squeeze else SOME, inputs=[shape(*dims)], squeeze_dims=squeeze)
for dims, squeeze in (((1, 3), [1]), ((1, 3), [2]), ((1, 3), [-3]), ((), [0])):
    bad("Squeeze", T=["float"], inputs=[shape(*dims)], squeeze_dims=squeeze, code=INVALID_ARGUMENT, text=True)

for dims, axis in (((2, 3), 0), ((2, 3), 1), ((2, 3), 2), ((2, 3), -1), ((2, 3), -3), ((), 0), ((0,), 1), ((2, 3), [1])):
    op("ExpandDims", T=EVERY if axis == 0 else SOME, Tdim=["int32", "int64"], inputs=[shape(*dims), axis])
for axis in (3, -4, [0, 1]):
    bad("ExpandDims", T=["float"], Tdim=["int32", "int64"], inputs=[shape(2, 3), axis], code=INVALID_ARGUMENT, text=True)
bad("ExpandDims", T=["float"], inputs=[shape(2, 3), []], code=INVALID_ARGUMENT)

for values in SHAPES:
    for name in ("Shape", "Size"):
        op(name, T=SOME, out_type=["int32", "int64"], inputs=[values])
    op("Rank", T=SOME, inputs=[values])
op("Shape", T=EVERY, inputs=[shape(2, 3)])
op("ShapeN", T=SOME, out_type=["int32", "int64"], inputs=[[shape(2, 3), scalar(), empty()]])
op("ShapeN", T=["float"], inputs=[[shape(5)]])

op("InvertPermutation", inputs=[permutation(9)])
op("InvertPermutation", inputs=[permutation(100003)])
op("InvertPermutation", inputs=[shape(0)])
op("InvertPermutation", inputs=[[0]])
for values in ([0, 0], [0, 2], [-1, 0], [[0, 1]], 0):
    bad("InvertPermutation", inputs=[values], code=INVALID_ARGUMENT, text=True)

for dims in ([2, 3], [], [0, 3], [1], [2, 1, 3], [347, 331]):
    op("Fill", inputs=[dims, scalar()], full=dims == [2, 3])
op("Fill", T=["float", "int64"], inputs=[3, scalar()])
op("Fill", T=FLOATS, inputs=[[4], float("nan")])
op("Fill", T=SOME, inputs=[[4], scalar()], const=True)
for dims, value in (([-1], 1), ([[2, 3]], 1), ([2], [1, 2])):
    bad("Fill", T=["float", "int32"], inputs=[dims, value], code=INVALID_ARGUMENT, text=True)
bad("Fill", T=["float"], index_type=["int64"], inputs=[[1 << 40, 1 << 40], 1], code=INVALID_ARGUMENT)

for values in (*SHAPES, special(), large()):
    op("ZerosLike", inputs=[values])
    op("OnesLike", inputs=[values])

for dims, target in (
    ((2, 3), [2, 3]),
    ((3,), [2, 3]),
    ((1, 3), [2, 3]),
    ((2, 1), [2, 3]),
    ((), [2, 3]),
    ((), []),
    ((1,), [0]),
    ((0, 1), [0, 3]),
    ((3, 1, 2), [4, 3, 5, 2]),
    ((347, 1), [347, 331]),
    ((331,), [347, 331]),
):
    op("BroadcastTo", inputs=[shape(*dims), target], full=target == [2, 3])
op("BroadcastTo", T=SOME, Tidx="int64", inputs=[shape(3), [2, 3]])
for dims, target in (((2, 3), [3]), ((2,), [3]), ((2, 3), [2, 4]), ((2,), [-1]), ((2,), [[2]]), ((2, 3), [6]), ((3,), [2, -3])):
    bad("BroadcastTo", T=["float"], inputs=[shape(*dims), target], code=INVALID_ARGUMENT, text=True)
bad("BroadcastTo", T=["float"], Tidx="int64", inputs=[scalar(), [1 << 40, 1 << 40]], code=INVALID_ARGUMENT)

for a, b in (
    ([2, 3], [3]),
    ([2, 1], [1, 3]),
    ([], [2]),
    ([], []),
    ([1], [1]),
    ([0, 3], [1, 3]),
    ([2, 3, 1], [3, 4]),
    ([5, 1, 1], [1]),
    ([1, 1], [1, 1]),
    ([2, 3, 4, 5], [2, 1, 4, 1]),
):
    for name in ("BroadcastArgs", "BroadcastGradientArgs"):
        op(name, inputs=[a, b])
        op(name, inputs=[b, a])
for name in ("BroadcastArgs", "BroadcastGradientArgs"):
    bad(name, inputs=[[2, 3], [2]], code=INVALID_ARGUMENT, text=True)
    bad(name, inputs=[[[2, 3]], [2]], code=INVALID_ARGUMENT, text=True)

for dims in ([2, 3], [-1, 3], None, [-1, -1]):
    op("EnsureShape", T=EVERY if dims == [2, 3] else SOME, inputs=[shape(2, 3)], shape=dims)
for dims in ([3, 2], [2], [], [-1, 2], [-1, -1, -1]):
    bad("EnsureShape", T=["float"], inputs=[shape(2, 3)], shape=dims, code=INVALID_ARGUMENT, text=True)

SIZES = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1}
SIZES |= {"uint16": 2, "uint32": 4, "uint64": 8, "complex64": 8, "complex128": 16, "qint8": 1, "qint32": 4}
for source, size in SIZES.items():
    for target, other in SIZES.items():
        dims = (3, max(other // size, 1)) if other > size else (2, 3)
        op("Bitcast", T=source, type=target, inputs=[shape(*dims)])
op("Bitcast", T="float", type=["int32", "uint8"], inputs=[scalar()])
op("Bitcast", T="float", type=["int32", "uint8", "double"], inputs=[shape(0, 2)])
bad("Bitcast", T="float", type="double", inputs=[shape(2, 3)], code=INVALID_ARGUMENT, text=True)
bad("Bitcast", T="uint8", type="float", inputs=[scalar()], code=INVALID_ARGUMENT, text=True)

for dims in ((3,), (), (2, 3), (0,)):
    op("OneHot", inputs=[index(4, *dims), 4, scalar(), scalar()], full=dims == (3,))
for axis in (0, 1, 2, -1):
    op("OneHot", T=SOME, inputs=[index(4, 2, 3), 5, scalar(), scalar()], axis=axis)
op("OneHot", T=["float"], TI=["int32", "int64"], inputs=[[-1, 0, 7, 2], 3, 1, 0])
op("OneHot", T=["float"], TI=["uint8"], inputs=[[255, 0, 7, 2], 3, 1, 0])
op("OneHot", T=["float", "int32"], inputs=[index(10, 20000), 10, 1, 0])
op("OneHot", T=["float"], inputs=[index(3, 4), 0, 1, 0])
for depth, on, off, axis in ((-1, 1, 0, -1), ([3], 1, 0, -1), (3, [1], 0, -1), (3, 1, [0, 0], -1), (3, 1, 0, 3), (3, 1, 0, -2)):
    bad("OneHot", T=["float"], inputs=[index(3, 2), depth, on, off], axis=axis, code=INVALID_ARGUMENT, text=True)

for values in (ties(3, 4), ties(5), ties(2, 3, 2), shape(0, 3), shape(3, 0), large(-1, 1), ties(2, 2, 1, 2, 2)):
    op("Where", inputs=[values], either=True)  # of half it says UNIMPLEMENTED
op("Where", T=FLOATS + COMPLEX, inputs=[special()], either=True)
op("Where", T=["bool", "float"], inputs=[ties(2, 2, 1, 2, 2, 2, 1, 2)], either=True)
op("Where", T=["bool", "float"], inputs=[scalar(1, 1)], either=True)
