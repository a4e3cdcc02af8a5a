"""Reductions, scans, matrix products, sums of many inputs, and ranges."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

REDUCTIONS = {
    "Sum": {"ulp": 8, "abs_ulp": 256},
    "Prod": {"ulp": 64},
    "Max": {"zeros": True},
    "Min": {"zeros": True},
    "Mean": {"ulp": 8, "abs_ulp": 64},
    "EuclideanNorm": {"ulp": 16},
}
OPS = f"""{' '.join(REDUCTIONS)} Any All ArgMax ArgMin MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Cumsum Cumprod
L2Loss AddN Range LinSpace Bincount"""

AXES = [
    (shape(4, 5), [0]),
    (shape(4, 5), [1]),
    (shape(4, 5), 1),
    (shape(4, 5), -1),
    (shape(4, 5), [0, 1]),
    (shape(4, 5), []),
    (shape(3, 4, 5), [1]),
    (shape(3, 4, 5), [0, 2]),
    (shape(2, 3, 2, 3), [-1, -3]),
    (shape(2, 3, 2, 3, 2), [0, 2, 4]),
    (shape(2, 3, 2, 3, 2), [1, 3]),
    (shape(1, 3, 1), [0]),
    (scalar(), []),
    (shape(1), [0]),
    (shape(0, 3), [0]),
    (shape(0, 3), [1]),
    (shape(3, 0), [1]),
    (shape(0), 0),
]
for name, tolerance in {**REDUCTIONS, "Any": {}, "All": {}}.items():
    op(name, inputs=[shape(3, 4, low=-2, high=2), [1]], full=True, **tolerance)
    for number, (values, axes) in enumerate(AXES):
        if name == "Prod":
            values = shape(*map(int, values.text.split("x")), low=-2, high=2) if values.text != "scalar" else values
        for keep in (False, True) if number % 3 == 0 else (False,):
            op(name, inputs=[values, axes], keep_dims=keep, **tolerance)
    for bad_axes in ([2], [-3], [0, 0], [0, -2]):
        bad(name, inputs=[shape(4, 5), bad_axes], code=INVALID_ARGUMENT, text=True)
    bad(name, Tidx="int64", inputs=[shape(4, 5), [1 << 40]], code=INVALID_ARGUMENT)
for name in REDUCTIONS:
    rough = {"rtol": 1e-2} if name == "EuclideanNorm" else {"ulp": 512, "abs_ulp": 40000}
    wide = ["float", "double", "int32", "int64"]
    for axes in ([0], [1], [0, 1]):
        if name == "Prod":
            op(name, T=["float", "double"], inputs=[shape(347, 331, low=0.98, high=1.02), axes], rtol=1e-3)
            op(name, T=["int32", "int64", "uint8"], inputs=[large(), axes])
        elif name in ("Max", "Min"):
            op(name, inputs=[large(), axes])
        else:
            op(name, T=wide, inputs=[large(), axes], **rough)
    if name in ("Sum", "Mean"):
        op(name, T=["half", "bfloat16"], inputs=[shape(7, 2048, low=0, high=1), [1]], ulp=8)
    types = FLOATS if name != "Prod" else ["float", "double"]
    op(name, T=types, inputs=[special(), 0], ulp=4)
    op(name, T=types, inputs=[[[float("inf"), 1.0], [float("-inf"), 2.0], [float("nan"), 3.0]], [1]], ulp=4)
    op(name, T=types, inputs=[[[-0.0, -0.0], [0.0, -0.0]], [1]], zeros=name in ("Max", "Min"))
    integers = kernel_types(name, INTS)
    if name != "EuclideanNorm":
        op(name, T=integers, inputs=[special(), 0])

for name in ("ArgMax", "ArgMin"):
    op(name, inputs=[shape(4, 5), 1], full=True)
    for values, axis in ((ties(4, 5), 0), (ties(3, 4, 5), 1), (ties(3, 4, 5), -1), (shape(6), 0), (shape(2, 2, 2, 3), 2)):
        op(name, inputs=[values, axis], output_type=["int32", "int64"])
    op(name, T=FLOATS, inputs=[[float("nan"), 1.0, float("nan"), 2.0], 0])
    op(name, T=FLOATS, inputs=[[1.0, float("nan"), 5.0, -7.0], 0])
    op(name, T=["float", "int32"], inputs=[large(), 0])
    op(name, T=["float", "int32"], inputs=[large(), 1])
    op(name, T=["float"], inputs=[shape(0, 3), 1])
    op(name, T=["float"], inputs=[special(), 0])
    op(name, Tidx="int64", T=["float", "int8"], inputs=[shape(4, 5), -2])
    bad(name, T=["float"], inputs=[shape(0, 3), 0], code=INVALID_ARGUMENT, text=True)
    bad(name, T=["float"], inputs=[shape(4, 5), 2], code=INVALID_ARGUMENT, text=True)
    bad(name, T=["float"], inputs=[shape(4, 5), -3], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[shape(4, 5), [0]], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[scalar(), 0], code=INVALID_ARGUMENT)

PRODUCT = {"ulp": 8, "abs_ulp": 2048}
for a, b, flags in (
    ((3, 4), (4, 5), {}),
    ((4, 3), (4, 5), {"transpose_a": True}),
    ((3, 4), (5, 4), {"transpose_b": True}),
    ((4, 3), (5, 4), {"transpose_a": True, "transpose_b": True}),
    ((1, 7), (7, 1), {}),
    ((1, 7), (7, 9), {}),
    ((9, 7), (7, 1), {}),
    ((0, 4), (4, 5), {}),
    ((3, 0), (0, 5), {}),
    ((3, 4), (4, 0), {}),
    ((1, 1), (1, 1), {}),
    ((33, 65), (65, 17), {}),
):
    op("MatMul", inputs=[shape(*a), shape(*b)], full=True, **flags, **PRODUCT)
op("MatMul", T=["float", "double", "int32"], inputs=[shape(257, 300), shape(300, 129)], ulp=8, abs_ulp=20000)
op("MatMul", T=["float"], inputs=[shape(1, 1024), shape(1024, 513)], ulp=8, abs_ulp=40000)
op("MatMul", T=["float", "double"], inputs=[[[1.0, float("nan")], [float("inf"), 2.0]], shape(2, 2)])
bad("MatMul", inputs=[shape(2, 3), shape(2, 3)], code=INVALID_ARGUMENT, text=True)
bad("MatMul", T=["float"], inputs=[shape(2, 3), shape(4, 3)], transpose_a=True, code=INVALID_ARGUMENT, text=True)
bad("MatMul", T=["float"], inputs=[shape(3), shape(3, 2)], code=INVALID_ARGUMENT, text=True)
bad("MatMul", T=["float"], inputs=[shape(2, 3), shape(3)], code=INVALID_ARGUMENT, text=True)
bad("MatMul", T=["float"], inputs=[scalar(), shape(3, 2)], code=INVALID_ARGUMENT)
bad("MatMul", T=["float"], inputs=[shape(2, 2, 3), shape(3, 2)], code=INVALID_ARGUMENT)

for name in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
    for a, b, flags in (
        ((2, 3, 4), (2, 4, 5), {}),
        ((2, 4, 3), (2, 4, 5), {"adj_x": True}),
        ((2, 3, 4), (2, 5, 4), {"adj_y": True}),
        ((2, 4, 3), (2, 5, 4), {"adj_x": True, "adj_y": True}),
        ((3, 4), (4, 5), {}),
        ((2, 3, 1, 7), (2, 3, 7, 2), {}),
        ((0, 3, 4), (0, 4, 5), {}),
        ((2, 3, 0), (2, 0, 5), {}),
        ((33, 9, 17), (33, 17, 5), {}),
    ):
        op(name, inputs=[shape(*a), shape(*b)], full=True, **flags, **PRODUCT)
    key = "Ta" if name == "BatchMatMulV3" else "T"
    real = {"Ta": "float", "Tb": "float", "Tout": "float"} if name == "BatchMatMulV3" else {"T": "float"}
    op(name, **real, inputs=[shape(8, 65, 70), shape(8, 70, 33)], ulp=8, abs_ulp=8000)
    bad(name, **real, inputs=[shape(2, 3, 4), shape(2, 3, 4)], code=INVALID_ARGUMENT, text=True)
    bad(name, **real, inputs=[shape(2, 3, 4), shape(3, 4, 5)], code=INVALID_ARGUMENT, text=name == "BatchMatMul")
    bad(name, **real, inputs=[shape(4), shape(4, 5)], code=INVALID_ARGUMENT, text=True)
    bad(name, **real, inputs=[shape(3, 4), shape(4)], code=INVALID_ARGUMENT)
bad("BatchMatMul", T=["float"], inputs=[shape(2, 3, 4), shape(4, 5)], code=INVALID_ARGUMENT, text=True)
for name in ("BatchMatMulV2", "BatchMatMulV3"):
    for a, b in (
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (1, 3, 4, 5)),
        ((1, 3, 4), (6, 4, 5)),
        ((0, 3, 4), (1, 4, 5)),
    ):
        op(name, inputs=[shape(*a), shape(*b)], **PRODUCT)

for name, tolerance in (("Cumsum", {"ulp": 8, "abs_ulp": 64}), ("Cumprod", {"ulp": 16})):
    values = {"low": -2, "high": 2}
    for flags in ({}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}):
        op(name, inputs=[shape(3, 4, **values), 1], full=not flags, **flags, **tolerance)
        op(name, inputs=[shape(3, 4, 2, **values), 1], **flags, **tolerance)
        op(name, inputs=[shape(3, 4, **values), -2], **flags, **tolerance)
        op(name, inputs=[shape(0, 4), 0], **flags)
        op(name, inputs=[shape(5, **values), 0], **flags, **tolerance)
    op(name, T=["int32", "int64", "uint8"], inputs=[large(), 0])
    op(name, T=["double"], inputs=[shape(347, 331, low=0.99, high=1.01), 1], rtol=1e-9)
    op(name, T=["double"], inputs=[special(), 0])
    op(name, T=["float"], inputs=[scalar(), 0], either=True)
    bad(name, T=["float"], inputs=[shape(3, 4), 2], code=INVALID_ARGUMENT, text=True)
    bad(name, T=["float"], inputs=[shape(3, 4), -3], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[shape(3, 4), [0]], code=INVALID_ARGUMENT, text=True)
    bad(name, T=["float"], inputs=[shape(3, 4), [0, 1]], code=INVALID_ARGUMENT)

for values in (shape(3, 4), scalar(), empty(), shape(2, 3, 2)):
    op("L2Loss", inputs=[values], full=True, ulp=8)
op("L2Loss", T=["float", "double"], inputs=[large()], ulp=512)
op("L2Loss", T=FLOATS, inputs=[special()])

ADD = {"ulp": 4, "abs_ulp": 32}
for count in (1, 2, 3, 5, 8, 9, 17):
    op("AddN", inputs=[[shape(3, 4)] * count], full=count == 3, **ADD)
for values in (scalar(), empty(), large(), special()):
    op("AddN", inputs=[[values] * 3], **ADD)
bad("AddN", T=["float", "int32"], inputs=[[shape(2, 3), shape(3, 2)]], code=INVALID_ARGUMENT, text=True)
bad("AddN", T=["float"], inputs=[[shape(2, 3), shape(2, 3), shape(3)]], code=INVALID_ARGUMENT)

for start, limit, delta in ((0, 10, 1), (3, 18, 3), (5, 5, 1), (10, 0, -2), (0, 1, 1), (1, 9, 100)):
    op("Range", inputs=[start, limit, delta], full=True)
op("Range", Tidx=["float", "double"], inputs=[0.5, 7.25, 0.5])
op("Range", Tidx=["float", "double"], inputs=[0.1, 1.0, 0.1])
op("Range", Tidx=["int32", "int64", "float"], inputs=[0, 100000, 1], const=True)
bad("Range", inputs=[0, 10, 0], code=INVALID_ARGUMENT, text=True)
bad("Range", inputs=[10, 0, 1], code=INVALID_ARGUMENT, text=True)
bad("Range", inputs=[0, 10, -1], code=INVALID_ARGUMENT, text=True)
bad("Range", Tidx=["int32", "float"], inputs=[[0, 1], 10, 1], code=INVALID_ARGUMENT, text=True)
bad("Range", Tidx=["int32"], inputs=[0, [10, 11], 1], code=INVALID_ARGUMENT, text=True)
bad("Range", Tidx=["int32"], inputs=[0, 10, [1, 2]], code=INVALID_ARGUMENT, text=True)
bad("Range", Tidx=["int64"], inputs=[-(1 << 63), (1 << 63) - 1, 1])
bad("Range", Tidx=["float"], inputs=[float("nan"), 10, 1])

for start, stop, number in ((0.0, 1.0, 5), (10.0, 12.0, 3), (1.0, -1.0, 7), (2.0, 2.0, 4), (3.0, 5.0, 1), (0.0, 1.0, 100001)):
    op("LinSpace", inputs=[start, stop, number], full=True, ulp=2, abs_ulp=2)
bad("LinSpace", T=["float"], inputs=[0.0, 1.0, 0], code=INVALID_ARGUMENT, text=True)
bad("LinSpace", T=["float"], inputs=[0.0, 1.0, -2], code=INVALID_ARGUMENT, text=True)
bad("LinSpace", T=["float"], inputs=[[0.0, 1.0], 1.0, 3], code=INVALID_ARGUMENT, text=True)
bad("LinSpace", T=["float"], inputs=[0.0, [1.0, 2.0], 3], code=INVALID_ARGUMENT, text=True)
bad("LinSpace", T=["float"], inputs=[0.0, 1.0, [3, 4]], code=INVALID_ARGUMENT, text=True)

WEIGHTED = kernel_types("Bincount", ["int32", "int64", "float", "double"])
op("Bincount", T=WEIGHTED, inputs=[index(6, 20), 6, shape(20)], abs_ulp=128)
op("Bincount", T=WEIGHTED, inputs=[index(6, 20), 4, shape(0)], either=True)
op("Bincount", T=WEIGHTED, inputs=[index(6, 20), 4, shape(20)], abs_ulp=128)
op("Bincount", T=WEIGHTED, inputs=[shape(0), 4, shape(0)])
bad("Bincount", T=["int32"], inputs=[[1, -1, 2], 4, shape(0)], code=INVALID_ARGUMENT)
bad("Bincount", T=["int32"], inputs=[index(4, 5), -1, shape(0)], code=INVALID_ARGUMENT)
bad("Bincount", T=["float"], inputs=[index(4, 5), 4, shape(3)], code=INVALID_ARGUMENT)
