"""Ops that TensorFlow's optimiser puts in the place of several others."""

import numpy as np

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = "_FusedMatMul _FusedConv2D _UnaryOpsComposition"
# TensorFlow rewrites _FusedBatchNormEx, _FusedConv3D and _FusedDepthwiseConv2dNative before it runs them, if oneDNN is on, and
# else never makes them: its server has nothing to say about a graph that holds one.

ACTIVATIONS = [[], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"]]
CLOSE = {"rtol": 2e-2, "atol": 2e-2}
for activation in [*ACTIVATIONS, ["Tanh"], ["Sigmoid"]]:
    for t, tolerance in (("float", {"rtol": 1e-5, "atol": 1e-5}), ("half", CLOSE), ("bfloat16", {"rtol": 5e-2, "atol": 5e-2})):
        fused = {"T": [t], "num_args": 1, "fused_ops": ["BiasAdd", *activation], **tolerance}
        op("_FusedMatMul", inputs=[unit(3, 4), unit(4, 5), [unit(5)]], **fused)
        op("_FusedMatMul", inputs=[unit(4, 3), unit(5, 4), [unit(5)]], transpose_a=True, transpose_b=True, leakyrelu_alpha=0.7, **fused)
        op("_FusedMatMul", inputs=[unit(1, 40), unit(40, 33), [unit(33)]], **fused)
    op("_FusedMatMul", T=["float"], inputs=[unit(70, 90), unit(90, 110), [unit(110)]], num_args=1, fused_ops=["BiasAdd", *activation], rtol=1e-4, atol=1e-4)
    op("_FusedMatMul", T=["float"], inputs=[unit(0, 4), unit(4, 5), [unit(5)]], num_args=1, fused_ops=["BiasAdd", *activation])
    op("_FusedMatMul", T=["float"], inputs=[unit(2, 0), unit(0, 5), [unit(5)]], num_args=1, fused_ops=["BiasAdd", *activation], ulp=4)
matmul = [unit(3, 4), unit(4, 5)]
bad("_FusedMatMul", T=["float"], inputs=[*matmul, [unit(5, 1)]], num_args=1, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True)
bad("_FusedMatMul", T=["float"], inputs=[unit(3, 4), unit(5, 5), [unit(5)]], num_args=1, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True)
bad("_FusedMatMul", T=["float"], inputs=[unit(3), unit(5, 5), [unit(5)]], num_args=1, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True)
bad("_FusedMatMul", T=["float"], inputs=[*matmul, [unit(5), unit(5)]], num_args=2, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True)
bad("_FusedMatMul", T=["float"], inputs=[*matmul, []], num_args=0, fused_ops=[], code=INVALID_ARGUMENT, text=True)
bad("_FusedMatMul", T=["float"], inputs=[*matmul, []], num_args=0, fused_ops=["Relu"], code=UNIMPLEMENTED, text=True)
bad("_FusedMatMul", T=["float"], inputs=[*matmul, [unit(5)]], num_args=1, fused_ops=["Relu", "BiasAdd"], code=UNIMPLEMENTED, text=True)
bad("_FusedMatMul", T=["float"], inputs=[*matmul, [unit(5)] * 4], num_args=4, fused_ops=["FusedBatchNorm"], code=UNIMPLEMENTED, text=True)
for extra in (["GeluExact"], ["GeluApproximate"]):
    bad("_FusedMatMul", inputs=[*matmul, [unit(5)]], num_args=1, fused_ops=["BiasAdd", *extra], code=UNIMPLEMENTED, more=True)

CONVOLUTIONS = [((2, 5, 6, 3), (2, 3, 3, 5), (1, 1), (1, 1)), ((2, 5, 6, 3), (1, 1, 3, 5), (1, 1), (1, 1)), ((1, 9, 8, 2), (3, 2, 2, 4), (2, 1), (1, 1)), ((1, 9, 8, 2), (3, 2, 2, 4), (1, 1), (2, 1))]
for activation in ACTIVATIONS:
    for image, kernel, strides, dilations in CONVOLUTIONS:
        depth = kernel[3]
        for padding in ("SAME", "VALID"):
            attrs = {"T": ["float", "double"], "strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding, "leakyrelu_alpha": 0.3, "rtol": 1e-4, "atol": 1e-5}
            for t in ("float", "double"):
                attrs["T"] = [t]
                op("_FusedConv2D", inputs=[unit(*image), unit(*kernel), [unit(depth)], []], TArgs=[t], num_args=1, fused_ops=["BiasAdd", *activation], **attrs)
                vectors = [unit(depth), unit(depth), unit(depth), positive(depth)]
                op("_FusedConv2D", inputs=[unit(*image), unit(*kernel), vectors, []], TArgs=[t] * 4, num_args=4, epsilon=0.01, fused_ops=["FusedBatchNorm", *activation], **attrs)
x, w = unit(2, 4, 4, 3), unit(2, 2, 3, 5)
plain = {"strides": [1, 1, 1, 1], "padding": "SAME"}
op("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5)], []], TArgs=["float"], num_args=1, fused_ops=["BiasAdd"], strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0], rtol=1e-4, atol=1e-5)
op("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5)], [unit(), unit()]], TArgs=["float"], num_args=1, num_host_args=2, fused_ops=["BiasAdd"], rtol=1e-4, atol=1e-5, **plain)
bad("_FusedConv2D", T=["float"], inputs=[x, w, [unit(1, 5)], []], TArgs=["float"], num_args=1, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True, **plain)
for count in (1, 2):
    bad("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5), unit(5)], []], TArgs=["float"] * 2, num_args=count, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True, **plain)
bad("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5), unit(5)], []], TArgs=["float"] * 2, num_args=2, fused_ops=["FusedBatchNorm"], code=INVALID_ARGUMENT, text=True, **plain)
bad("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5), unit(5), unit(5), unit(5, 1)], []], TArgs=["float"] * 4, num_args=4, fused_ops=["FusedBatchNorm"], code=INVALID_ARGUMENT, text=True, **plain)
bad("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5)], []], TArgs=["float"], num_args=1, fused_ops=[], code=INVALID_ARGUMENT, text=True, **plain)
bad("_FusedConv2D", T=["float"], inputs=[unit(2, 4, 4), w, [unit(5)], []], TArgs=["float"], num_args=1, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, **plain)
bad("_FusedConv2D", T=["float"], inputs=[unit(2, 3, 4, 4), w, [unit(5)], []], TArgs=["float"], num_args=1, fused_ops=["BiasAdd"], data_format="NCHW", code=UNIMPLEMENTED, more=True, **plain)
bad("_FusedConv2D", T=["float"], inputs=[unit(2, 4, 4, 6), unit(2, 2, 3, 6), [unit(6)], []], TArgs=["float"], num_args=1, fused_ops=["BiasAdd"], code=UNIMPLEMENTED, more=True, **plain)
bad("_FusedConv2D", T=["half"], inputs=[x, w, [unit(5)], []], TArgs=["half"], num_args=1, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, more=True, **plain)
for extra in ("Tanh", "Sigmoid", "GeluExact", "GeluApproximate"):
    bad("_FusedConv2D", T=["float"], inputs=[x, w, [unit(5)], []], TArgs=["float"], num_args=1, fused_ops=["BiasAdd", extra], code=UNIMPLEMENTED, more=True, **plain)

# Bytes: the convolution and a side input are scaled, the bias is not.
image, kernel = shape(2, 4, 5, 3, low=-128, high=127), shape(2, 2, 3, 4, low=-20, high=20)
for activation in ([], ["Relu"]):
    for scales in ([0.03, 0.5], [0.01, 0.0], [0.2, -1.0]):
        op("_FusedConv2D", T=["int8"], inputs=[image, kernel, [shape(4), shape(2, 4, 5, 4, low=-128, high=127)], [np.float32(scale) for scale in scales]], TArgs=["float", "int8"], num_args=2, num_host_args=2, fused_ops=["BiasAdd", *activation], **plain)
bad("_FusedConv2D", T=["int8"], inputs=[image, kernel, [shape(4)], [np.float32(1), np.float32(1)]], TArgs=["float"], num_args=1, num_host_args=2, fused_ops=["BiasAdd"], code=INVALID_ARGUMENT, text=True, **plain)

COMPOSED = "Abs Ceil Cos Elu Exp Expm1 Floor Inv Neg Reciprocal Relu Relu6 Round Selu Sigmoid Sin Square Tanh".split()
ANGLES = "Acos Asin Atanh Asinh Atan Cosh Rint Sinh Tan".split()
for name in COMPOSED:
    op("_UnaryOpsComposition", inputs=[unit(5, 7)], op_names=[name], rtol=1e-3, atol=1e-3)
    op("_UnaryOpsComposition", inputs=[unit(5, 7)], op_names=[name, "Exp", "Square"], rtol=1e-2, atol=1e-5)
for name in ("Log", "Log1p", "Rsqrt", "Sqrt"):
    op("_UnaryOpsComposition", inputs=[positive(5, 7)], op_names=[name], rtol=1e-3, atol=1e-5)
op("_UnaryOpsComposition", T=["float", "double"], inputs=[positive(5, 7)], op_names=["Log1p", "Cosh", "Acosh"], rtol=1e-4, atol=1e-5)
for name in ANGLES:
    op("_UnaryOpsComposition", T=["float", "double"], inputs=[unit(5, 7)], op_names=[name, "Abs"], rtol=1e-4, atol=1e-5)
    bad("_UnaryOpsComposition", T=["half"], inputs=[unit(5, 7)], op_names=["Abs", name], code=INVALID_ARGUMENT, text=True)
op("_UnaryOpsComposition", inputs=[large()], op_names=["Abs", "Sqrt"], rtol=1e-3)
op("_UnaryOpsComposition", inputs=[empty()], op_names=["Abs", "Sqrt"])
bad("_UnaryOpsComposition", inputs=[unit(5)], op_names=[], code=INVALID_ARGUMENT, text=True)
for name in ("Erf", "Identity", "Xyz"):
    bad("_UnaryOpsComposition", inputs=[unit(5)], op_names=[name], code=INVALID_ARGUMENT, text=True)
