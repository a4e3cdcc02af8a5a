"""Elementwise ops with one input, and the gradients of some of them."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

# Exact ones first, then those whose last bits depend on the approximation, with the tolerance for each.
UNARY = {
    "Abs": {},
    "Neg": {},
    "Sign": {"ulp": 2, "zeros": True},
    "Square": {},
    "Floor": {},
    "Ceil": {},
    "Rint": {},
    "Round": {},
    "IsNan": {},
    "IsInf": {},
    "IsFinite": {},
    "Conj": {},
    "Real": {},
    "Imag": {},
    "Invert": {},
    "LogicalNot": {},
    "Sqrt": {"ulp": 2},
    "Rsqrt": {"ulp": 4, "zeros": True},
    "Reciprocal": {"ulp": 2, "zeros": True},
    "Inv": {"ulp": 2, "zeros": True},
    "Exp": {"ulp": 8},
    "Expm1": {"ulp": 8},
    "Log": {"ulp": 8, "abs_ulp": 1},
    "Log1p": {"ulp": 8, "abs_ulp": 1},
    "Sin": {"ulp": 8, "abs_ulp": 2},
    "Cos": {"ulp": 8, "abs_ulp": 2},
    "Tan": {"ulp": 32, "abs_ulp": 4},
    "Asin": {"ulp": 8, "abs_ulp": 1},
    "Acos": {"ulp": 8, "abs_ulp": 2},
    "Atan": {"ulp": 8},
    "Sinh": {"ulp": 16},
    "Cosh": {"ulp": 16},
    "Tanh": {"ulp": 16},
    "Asinh": {"ulp": 16},
    "Acosh": {"ulp": 16, "abs_ulp": 4},
    "Atanh": {"ulp": 64},
    "Sigmoid": {"ulp": 16},
    "Erf": {"ulp": 16},
    "Erfc": {"ulp": 256},
    "Lgamma": {"ulp": 32, "abs_ulp": 16},
    "Digamma": {"ulp": 64, "abs_ulp": 64},
    "Angle": {"ulp": 8},
    "ComplexAbs": {"ulp": 4},
}
GRADIENTS = {
    "SigmoidGrad": {"ulp": 4, "abs_ulp": 64},
    "TanhGrad": {"ulp": 4, "abs_ulp": 256},
    "SqrtGrad": {"ulp": 4},
    "RsqrtGrad": {"ulp": 8},
    "ReciprocalGrad": {"ulp": 4},
    "InvGrad": {"ulp": 4},
}
DENORMALS = "Abs Neg Square Floor Ceil Rint IsNan IsFinite Sqrt Rsqrt Reciprocal Exp Sin Tanh".split()
OPS = " ".join([*UNARY, *GRADIENTS, "Complex", "PopulationCount", "CumulativeLogsumexp"])

SPECIAL = {"Erf": {"T": ["half", "bfloat16", "float"]}, "Log1p": {"T": FLOATS}}
PARTS = ("Real", "Imag", "Angle", "ComplexAbs")
for name, tolerance in UNARY.items():
    if name in PARTS:
        continue
    if name == "Round":  # of integers it returns zeros in TensorFlow 2.21, which is no rule to follow
        op(name, T=INTS, inputs=[shape(3, 7)], shapes_only=True)
        tolerance = {"T": FLOATS + COMPLEX}
    op(name, inputs=[shape(3, 7)], full=True, **tolerance)
    op(name, inputs=[unit(5, 13)], **tolerance)
    op(name, inputs=[scalar()], **tolerance)
    op(name, inputs=[empty()], **tolerance)
    op(name, inputs=[large()], **tolerance)
    # TensorFlow's erf of an infinite double and the imaginary part of its log1p(-1) are NaN, no rules to follow either.
    op(name, inputs=[special()], **tolerance, **SPECIAL.get(name, {}))
    op(name, inputs=[shape(2, 1, 3, 1, 2, 2, 1, 3)], **tolerance)
    if name in DENORMALS:
        op(name, T=FLOATS, inputs=[denormal()], **tolerance)

for name in ("Exp", "Log", "Log1p", "Expm1", "Sqrt", "Rsqrt", "Lgamma", "Digamma", "Erfc", "Acosh"):
    op(name, T=FLOATS, inputs=[shape(61, 17, low=0.01, high=60.0)], **UNARY[name])
for name in ("Sin", "Cos", "Tan"):
    op(name, T=["float", "double"], inputs=[shape(40, 11, low=-1000.0, high=1000.0)], **UNARY[name])
for name in ("Floor", "Ceil", "Rint", "Round"):
    op(name, T=FLOATS, inputs=[[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -0.2, 0.2, 8388608.5, 1e30, -1e30, 1.9999]])

for name in ("BesselI0", "BesselI0e", "BesselI1", "BesselI1e"):
    for v in (shape(3, 7), scalar(), empty(), large(), [float("nan"), 0.0, -0.0], shape(61, 17, low=-40.0, high=40.0)):
        op(name, inputs=[v], full=True, ulp=32, abs_ulp=1)

for name, tolerance in GRADIENTS.items():
    op(name, inputs=[nonzero(3, 7), shape(3, 7)], full=True, **tolerance)
    op(name, inputs=[scalar(1, 2), scalar()], **tolerance)
    op(name, inputs=[empty(), empty()], **tolerance)
    op(name, inputs=[large(0.5, 2.0), large()], **tolerance)
    # In half the products of RsqrtGrad underflow where TensorFlow rounds after each of them.
    types = ["bfloat16", "float", "double"] if name == "RsqrtGrad" else FLOATS
    op(name, T=types, inputs=[special(0, 2), special(1, 2)], **tolerance)
    bad(name, T=["float"], inputs=[shape(2, 3), shape(3)])

for v in (shape(2, 3), scalar(), empty(), large(), shape(4, 1)):
    op("Complex", inputs=[v, v], full=True)
op("Complex", inputs=[shape(2, 3), shape(3)])
op("Complex", inputs=[shape(2, 1), shape(1, 3)])
op("Complex", inputs=[special(0, 2), special(1, 2)])
bad("Complex", T=["float"], Tout=["complex64"], inputs=[shape(2), shape(3)], code=INVALID_ARGUMENT, text=True)
for name in PARTS:
    for types in ({"T": "complex64", "Tout": "float"}, {"T": "complex128", "Tout": "double"}):
        for v in (shape(3, 7), scalar(), empty(), large(), special(), complex_special()):
            op(name, inputs=[v], **types, **UNARY[name])
op("Conj", T=COMPLEX, inputs=[complex_special()])

op("PopulationCount", inputs=[shape(3, 5)])
op("PopulationCount", T=["int8", "int64"], inputs=[[-1, 0, 1, -128, 127]])
op("PopulationCount", T=["int32"], inputs=[shape(0)])
op("PopulationCount", T=["uint16"], inputs=[scalar()])

for exclusive in (True, False):
    for reverse in (True, False):
        op("CumulativeLogsumexp", inputs=[shape(3, 4, 2), 1], exclusive=exclusive, reverse=reverse, ulp=16, abs_ulp=16, full=True)
        op("CumulativeLogsumexp", T=["float", "double"], inputs=[[-np.inf, -np.inf, 1.0, 700.0, np.inf, np.nan], -1], exclusive=exclusive, reverse=reverse, ulp=16, abs_ulp=16)
bad("CumulativeLogsumexp", T=["float"], inputs=[shape(3, 4), 2], code=INVALID_ARGUMENT)
bad("CumulativeLogsumexp", T=["float"], inputs=[shape(3, 4), [1]], code=INVALID_ARGUMENT)
op("CumulativeLogsumexp", T=["float"], inputs=[shape(0, 4), 0])
