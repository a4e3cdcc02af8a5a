"""Elementwise ops with two inputs, comparisons, selection and Cast."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

BINARY = {
    "Add": {},
    "AddV2": {},
    "Sub": {},
    "Mul": {"ulp": 2, "abs_ulp": 32},  # exact but for complex products, where a fused multiply-add is allowed
    "MulNoNan": {"ulp": 2, "abs_ulp": 32},
    "Div": {"ulp": 4},
    "RealDiv": {"ulp": 4},
    "DivNoNan": {"ulp": 4},
    "FloorDiv": {},
    "TruncateDiv": {},
    "FloorMod": {},
    "Mod": {},
    "TruncateMod": {},
    "Pow": {"ulp": 32},
    "Maximum": {"zeros": True},  # which zero is larger is left open
    "Minimum": {"zeros": True},
    "SquaredDifference": {"ulp": 2, "abs_ulp": 32},
    "Atan2": {"ulp": 8},
    "Xdivy": {"ulp": 4},
    "Xlogy": {"ulp": 16, "abs_ulp": 8},
    "Xlog1py": {"ulp": 16, "abs_ulp": 8},
    "NextAfter": {},
}
COMPARISON = "Equal NotEqual Less LessEqual Greater GreaterEqual"
LOGICAL = "LogicalAnd LogicalOr"
BITWISE = "BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift"
OPS = f"{' '.join(BINARY)} {COMPARISON} {LOGICAL} {BITWISE} ApproximateEqual Select SelectV2 Cast ClipByValue"

PAIRS = [
    (shape(2, 3), nonzero(3)),
    (shape(3), nonzero(2, 3)),
    (shape(2, 1), nonzero(1, 3)),
    (scalar(), nonzero(2, 3)),
    (shape(2, 3), nonzero()),
    (scalar(), nonzero()),
    (shape(1), nonzero()),
    (shape(0, 3), nonzero(3)),
    (shape(0, 1), nonzero(1, 4)),
    (shape(0), nonzero(1)),
    (shape(3, 1, 4, 1, 5), nonzero(1, 2, 1, 3, 1)),
    (shape(1, 2, 2, 3, 1, 1, 4, 4), nonzero(1, 1, 1, 3, 1, 1, 4, 4)),
    (large(), nonzero(347, 331)),
    (large(), nonzero(331)),
    (shape(347, 1), nonzero(1, 331)),
    (scalar(), nonzero(347, 331)),
]
INTEGER_DIVISION = "Div FloorDiv TruncateDiv FloorMod Mod TruncateMod".split()

for name in [*BINARY, *COMPARISON.split(), *LOGICAL.split()]:
    tolerance = BINARY.get(name, {})
    if name == "Pow":
        pairs = [(shape(3, 4, low=0.5, high=4.0), shape(4, low=0.0, high=3.0)), (shape(2, 1, low=1, high=3), 2)]
        pairs += [(scalar(1, 3), shape(5, low=0, high=4)), (shape(0, 3), scalar()), (large(0.5, 3.0), scalar(0, 3))]
        pairs += [([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 0.0, 5.0, 7.0, 4.0])]
    else:
        pairs = PAIRS
    op(name, inputs=[nonzero(3, 4), nonzero(3, 4)] if name != "Pow" else list(pairs[0]), full=True, **tolerance)
    for a, b in pairs:
        op(name, inputs=[a, b], **tolerance)
    bad(name, inputs=[shape(2, 3), shape(2)], code=INVALID_ARGUMENT, text=True)
    bad(name, inputs=[shape(2, 3), shape(3, 2)], code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(2, 3, 1, 2, 1, 3, 1, 2), nonzero(1, 1, 2, 2, 3, 1, 2, 2)], code=UNIMPLEMENTED, text=True)

op("Mul", T=FLOATS + INTS, inputs=[shape(31, 7), shape(31, 7)])
for name in [*BINARY, *COMPARISON.split()]:
    real = FLOATS if name in INTEGER_DIVISION or name == "Pow" else FLOATS + INTS + ["bool", "string"] + QUANTIZED
    types = [t for t in kernel_types(name, real) if t != "qint32"]  # TensorFlow compares it as float
    op(name, T=types, inputs=[special(0, 2), special(1, 2)], **BINARY.get(name, {}))
for name in INTEGER_DIVISION:
    types = kernel_types(name, INTS)
    op(name, T=types, inputs=[[7, 8, 9, 100, 0], [2, 3, 4, 7, 5]])
    op(name, T=[t for t in types if t in SIGNED], inputs=[[-7, -8, 7, -100, 6], [2, -3, -2, 7, 6]])
    bad(name, T=types, inputs=[[1, 2, 3], [1, 0, 1]], text=True)
    bad(name, T=types, inputs=[[1, 2, 3], 0])
    bad(name, T=types, inputs=[0, 0])
for name in ("FloorMod", "Mod", "TruncateMod", "FloorDiv"):
    types = kernel_types(name, FLOATS)
    op(name, T=types, inputs=[[7.5, -7.5, 7.5, -7.5, 0.0, 5.25], [2.0, 2.0, -2.0, -2.0, 3.0, 0.5]])
integers = kernel_types("Pow", INTS)
op("Pow", T=integers, inputs=[[0, 1, 2, 3, 2, 10], [0, 9, 6, 4, 1, 2]])
op("Pow", T=[t for t in integers if t in SIGNED], inputs=[[-2, -1, -3, 0], [3, 8, 2, 0]])
bad("Pow", T=[t for t in integers if t in SIGNED], inputs=[[1, 2], [2, -1]], code=INVALID_ARGUMENT, text=True)
for name in ("Add", "Sub", "Mul", "RealDiv", "Maximum", "Less"):
    op(name, T=FLOATS, inputs=[denormal(), scalar(1, 1.5)])
for name in ("Add", "Mul", "RealDiv", "Equal", "NotEqual", "DivNoNan"):
    op(name, T=COMPLEX, inputs=[shape(17, 5), nonzero(17, 5)], ulp=8)
for name in ("Equal", "NotEqual"):
    op(name, T=["float", "int32", "string", "bool", "complex64"], inputs=[shape(2, 3), shape(2)],
       incompatible_shape_error=False)
    op(name, T=["float", "int64"], inputs=[ties(2, 3), ties(3)], incompatible_shape_error=False)
    op(name, T=["string"], inputs=[["a", "b", "a\0b"], ["a", "c", "a"]])
op("DivNoNan", T=FLOATS, inputs=[[1.0, 0.0, -2.0], [0.0, 0.0, 4.0]])
op("MulNoNan", T=FLOATS, inputs=[[float("nan"), float("inf"), 3.0], [0.0, 0.0, 2.0]])
for name in BITWISE.split():
    values = [index(7, 3, 4), index(7, 3, 4)]
    op(name, inputs=values, full=True)
    op(name, inputs=[index(100, 2, 1), index(7, 3)])
    op(name, inputs=[shape(0), index(7, 1)])
    if "Shift" not in name:
        op(name, inputs=[special(0, 2), special(1, 2)])
    else:
        op(name, inputs=[special(), 1])
        op(name, inputs=[special(), 70])
        op(name, T=SIGNED, inputs=[special(), -1])

op("ApproximateEqual", inputs=[shape(3, 4), shape(3, 4)], full=True)
op("ApproximateEqual", T=["float", "double"], inputs=[[1.0, 2.0, 3.0], [1.05, 2.2, 3.0]], tolerance=0.1)
op("ApproximateEqual", T=["float"], inputs=[special(0, 2), special(1, 2)])
op("ApproximateEqual", inputs=[empty(), empty()])
bad("ApproximateEqual", T=["float"], inputs=[shape(2, 3), shape(3)], code=INVALID_ARGUMENT, text=True)

for name in ("Select", "SelectV2"):
    op(name, inputs=[shape(3, 4), shape(3, 4), shape(3, 4)], full=True)
    op(name, inputs=[True, shape(3, 4), shape(3, 4)])
    op(name, inputs=[False, shape(3, 4), shape(3, 4)])
    op(name, inputs=[True, scalar(), scalar()])
    op(name, inputs=[empty(), empty(), empty()])
    op(name, inputs=[large(), large(), large()])
op("Select", inputs=[[True, False, True], shape(3, 4), shape(3, 4)])
op("Select", inputs=[[True, False], shape(2, 2, 3), shape(2, 2, 3)])
op("Select", inputs=[True, shape(0, 4), shape(0, 4)])
bad("Select", T=["float"], inputs=[[True, False], shape(3, 4), shape(3, 4)], code=INVALID_ARGUMENT)
bad("Select", T=["float"], inputs=[shape(2, 2), shape(3, 4), shape(3, 4)], code=INVALID_ARGUMENT)
bad("Select", T=["float"], inputs=[True, shape(3, 4), shape(4)], code=INVALID_ARGUMENT)
op("SelectV2", inputs=[[True, False, True, False], shape(3, 4), scalar()])
op("SelectV2", inputs=[[[True], [False]], shape(3), shape(2, 3)])
op("SelectV2", inputs=[[[[True]], [[False]]], shape(1, 3, 1), shape(1, 1, 4)])
op("SelectV2", inputs=[shape(347, 1), shape(331), large()])
bad("SelectV2", T=["float"], inputs=[[True, False], shape(3, 4), shape(3, 4)], code=INVALID_ARGUMENT)

op("ClipByValue", inputs=[shape(3, 4), 1, 5], full=True)
op("ClipByValue", T=FLOATS + INTS[:4], inputs=[shape(3, 4), shape(3, 4, low=-3, high=0), shape(3, 4, low=1, high=4)])
op("ClipByValue", T=["float", "int32"], inputs=[large(), 1, 5])
op("ClipByValue", T=["float", "int32"], inputs=[empty(), 1, 5])
op("ClipByValue", T=["float"], inputs=[scalar(), -1, 1])
op("ClipByValue", T=FLOATS, inputs=[special(), -1, 1])
op("ClipByValue", T=["float"], inputs=[shape(3), 5, 1])
bad("ClipByValue", T=["float"], inputs=[shape(3, 4), shape(3), 1])
bad("ClipByValue", T=["float"], inputs=[shape(3, 4), 1, shape(2)])

CASTABLE = FLOATS + COMPLEX + INTS + ["bool"]
SMALL = ["float8_e5m2", "float8_e4m3fn", "int4", "uint4"]
for source in CASTABLE:
    op("Cast", SrcT=source, DstT=CASTABLE, inputs=[shape(3, 7, low=0, high=100)])
    op("Cast", SrcT=source, DstT=["float", "int32", "half"], inputs=[scalar()])
    op("Cast", SrcT=source, DstT=["float", "int64"], inputs=[large(0, 100)])
    op("Cast", SrcT=source, DstT=["double", "uint8"], inputs=[empty()])
for source in INTS + ["bool"]:
    op("Cast", SrcT=source, DstT=CASTABLE, inputs=[special()])
for source in FLOATS + COMPLEX:
    op("Cast", SrcT=source, DstT=FLOATS + COMPLEX + ["bool"], inputs=[special()])
    op("Cast", SrcT=source, DstT=SIGNED, inputs=[[-3.7, -0.5, 0.5, 1.5, 100.9, -100.9]])
for source in ("float", "double", "complex64"):
    op("Cast", SrcT=source, DstT=["half", "bfloat16", "float"], Truncate=True, inputs=[shape(5, 7)])
    op("Cast", SrcT=source, DstT=["half", "bfloat16", "float"], inputs=[shape(5, 7)])
op("Cast", SrcT="float", DstT=["bfloat16", "half"], Truncate=True, inputs=[special()])
for other in SMALL:
    op("Cast", SrcT=other, DstT=["float", "int32", "half", "double"], inputs=[shape(4, low=0, high=7)], either=True)
    op("Cast", SrcT=["float", "int32", "half"], DstT=other, inputs=[shape(4, low=0, high=7)], either=True)
bad("Cast", SrcT="float", DstT="string", inputs=[shape(2)], code=UNIMPLEMENTED, text=True)
bad("Cast", SrcT="string", DstT="float", inputs=[shape(2)], code=UNIMPLEMENTED, text=True)
