"""Ops on quantised tensors: requantisation, rectifiers, sums, products, pooling, joining, normalisation, resizing."""

import numpy as np

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """QuantizedMatMul QuantizedConv2D QuantizedBiasAdd QuantizedRelu QuantizedRelu6 QuantizedMaxPool QuantizedAvgPool
QuantizedBatchNormWithGlobalNormalization QuantizedAdd QuantizedMul QuantizedConcat QuantizedReshape QuantizedResizeBilinear
QuantizedInstanceNorm Requantize RequantizationRange RequantizePerChannel RequantizationRangePerChannel
QuantizeDownAndShrinkRange"""

BYTES = {"low": 0, "high": 255}
SIGNED = {"low": -128, "high": 127}
WIDE = {"low": -2e9, "high": 2e9}
f = np.float32
RANGES = [(f(-1), f(1)), (f(-2.5), f(6)), (f(0), f(255)), (f(-0.01), f(0.003))]


def levels(*dims, low=0, high=255):
    return shape(*dims, low=low, high=high)


for low, high in RANGES:
    for wide in (levels(3, 7, **WIDE), levels(4, 4, low=-1e6, high=3e6), levels(2, 3, low=5, high=9e8)):
        for to in ((f(-1), f(1)), (f(0), f(3)), (f(-9), f(0.5)), (f(0), f(0))):
            op("Requantize", inputs=[wide, low, high, *to])
        op("RequantizationRange", inputs=[wide, low, high], rtol=1e-6)
        op("QuantizeDownAndShrinkRange", inputs=[wide, low, high], rtol=1e-6)
    op("QuantizeDownAndShrinkRange", inputs=[levels(0, **WIDE), low, high], shapes_only=True)
    op("QuantizedRelu", Tinput=["qint32"], out_type=["qint32"], inputs=[levels(3, 7, **WIDE), low, high])
    op("QuantizedRelu", Tinput=["quint8"], out_type=["quint8"], inputs=[levels(3, 7), low, high])
    op("QuantizedRelu6", Tinput=["qint32"], out_type=["qint32"], inputs=[levels(3, 7, **WIDE), low, high])
    op("QuantizedRelu6", Tinput=["quint8"], out_type=["quint8"], inputs=[levels(3, 7), low, high])
    for low2, high2 in RANGES:
        pair = [low, high, low2, high2]
        op("QuantizedBiasAdd", T1=["quint8"], T2=["quint8"], inputs=[levels(4, 5), levels(5), *pair])
        op("QuantizedBiasAdd", T1=["qint8"], T2=["qint8"], inputs=[levels(2, 3, 5, **SIGNED), levels(5, **SIGNED), *pair])
        for name in ("QuantizedAdd", "QuantizedMul"):
            for x, y in (((3, 5), (3, 5)), ((3, 5), (5,)), ((5,), (3, 5)), ((), (4,)), ((4,), ()), ((), ()), ((2, 3, 4), (3, 4)), ((1,), (6,))):
                op(name, inputs=[levels(*x), levels(*y), *pair])
        op("QuantizedMatMul", inputs=[levels(3, 6), levels(6, 4), *pair])
        op("QuantizedMatMul", inputs=[levels(6, 3), levels(4, 6), *pair], transpose_a=True, transpose_b=True)
        for strides, padding, kernel in ((1, "SAME", (3, 3)), (2, "SAME", (2, 3)), (1, "VALID", (2, 2)), (2, "VALID", (1, 1))):
            op("QuantizedConv2D", Tinput=["quint8"], Tfilter=["quint8"], inputs=[levels(2, 6, 5, 3), levels(*kernel, 3, 4), *pair], strides=[1, strides, strides, 1], padding=padding)
        op("QuantizedConcat", T=["quint8"], inputs=[np.int32(1), [levels(3, 2), levels(3, 4)], [low, low2], [high, high2]])
        op("QuantizedConcat", T=["qint32"], inputs=[np.int32(0), [levels(2, 3, low=-1e6, high=1e6), levels(1, 3, low=-1e6, high=1e6)], [low, low2], [high, high2]])
    for t, values in (("quint8", BYTES), ("qint8", SIGNED)):
        for padding in ("SAME", "VALID"):
            for window, stride in (((2, 2), (2, 2)), ((3, 2), (1, 2))):
                attrs = {"T": [t], "ksize": [1, *window, 1], "strides": [1, *stride, 1], "padding": padding}
                op("QuantizedMaxPool", inputs=[levels(2, 5, 6, 3, **values), low, high], **attrs)
                op("QuantizedAvgPool", inputs=[levels(2, 5, 6, 3, **values), low, high], **attrs)
    for t, values in (("quint8", BYTES), ("qint32", WIDE)):
        op("QuantizedReshape", T=[t], inputs=[levels(2, 6, **values), np.array([3, -1], np.int32), low, high])
        op("QuantizedReshape", T=[t], inputs=[levels(2, 6, **values), np.array([12], np.int64), np.array([low]), np.array([high])], Tshape=["int64"])
    for t, values in (("quint8", BYTES), ("qint32", WIDE), ("float", {})):
        for align, half in ((False, False), (True, False), (False, True)):
            for size in ([9, 7], [3, 2], [4, 5], [1, 1]):
                op("QuantizedResizeBilinear", T=[t], inputs=[shape(2, 4, 5, 3, **values), np.array(size, np.int32), low, high], align_corners=align, half_pixel_centers=half, rtol=1e-5, atol=1e-5)
    for scale in (False, True):
        vectors = [value for _ in range(4) for value in (levels(3), f(0.5), f(4))]
        op("QuantizedBatchNormWithGlobalNormalization", inputs=[levels(2, 3, 4, 3), low, high, *vectors], variance_epsilon=0.01, scale_after_normalization=scale)
    op("QuantizedInstanceNorm", inputs=[levels(2, 4, 5, 3), low, high], rtol=1e-4, atol=1e-4)
    op("QuantizedInstanceNorm", inputs=[levels(1, 4, 5, 3), low, high], output_range_given=True, given_y_min=-2.0, given_y_max=2.5, rtol=1e-4, atol=1e-4)

channels = [shape(3, low=-4, high=-1), shape(3, low=1, high=6)]
op("RequantizePerChannel", inputs=[levels(2, 3, 4, 3, **WIDE), *channels, f(-2), f(3)])
op("RequantizationRangePerChannel", inputs=[levels(2, 3, 4, 3, **WIDE), *channels], clip_value_max=float("inf"), rtol=1e-6)
op("RequantizationRangePerChannel", inputs=[levels(2, 3, 4, 3, low=0, high=2e9), *channels], clip_value_max=2.0, rtol=1e-6)
bad("RequantizationRangePerChannel", inputs=[levels(2, 4, 3, **WIDE), *channels], clip_value_max=1.0, code=INVALID_ARGUMENT, text=True)
bad("RequantizePerChannel", inputs=[levels(2, 4, 3, **WIDE), *channels, f(-2), f(3)], code=INVALID_ARGUMENT, text=True)

one = [f(-1), f(1)]
two = [*one, *one]
bad("Requantize", inputs=[levels(3, **WIDE), *one, f(0.5), f(1)], code=INVALID_ARGUMENT)
bad("Requantize", inputs=[levels(3, **WIDE), *one, f(-1), f(-2)], code=INVALID_ARGUMENT)
bad("Requantize", inputs=[levels(3, **WIDE), shape(2), f(1), f(-1), f(1)], code=INVALID_ARGUMENT)
bad("RequantizationRange", inputs=[levels(3, **WIDE), shape(0), f(1)], code=INVALID_ARGUMENT)
bad("QuantizedRelu", Tinput=["quint8"], out_type=["quint8"], inputs=[levels(3), shape(2), f(1)], code=INVALID_ARGUMENT)
for x, b in (((3,), (3,)), ((2, 3), (3, 1)), ((2, 3), (4,)), ((2, 0), (0,))):
    bad("QuantizedBiasAdd", T1=["quint8"], T2=["quint8"], inputs=[levels(*x), levels(*b), *two], code=INVALID_ARGUMENT, text=True)
for name in ("QuantizedAdd", "QuantizedMul"):
    bad(name, inputs=[levels(2, 3), levels(4), *two], code=INVALID_ARGUMENT, text=True)
    bad(name, inputs=[levels(2, 3), levels(3), f(1), f(1), *one], code=INVALID_ARGUMENT, text=True)
    bad(name, inputs=[levels(2, 1, 3), levels(1, 4, 1), *two], code=UNIMPLEMENTED, more=True)
bad("QuantizedMatMul", inputs=[levels(2, 3), levels(4, 3), *two], code=INVALID_ARGUMENT, text=True)
bad("QuantizedMatMul", inputs=[levels(2, 3, 1), levels(3, 3), *two], code=INVALID_ARGUMENT)
bad("QuantizedMatMul", inputs=[levels(2, 3), levels(3, 3), f(1), f(1), *one], code=INVALID_ARGUMENT, text=True)
conv = {"Tinput": ["quint8"], "Tfilter": ["quint8"], "padding": "SAME"}
bad("QuantizedConv2D", inputs=[levels(1, 4, 4, 2), levels(2, 2, 3, 1), *two], strides=[1, 1, 1, 1], code=INVALID_ARGUMENT, text=True, **conv)
bad("QuantizedConv2D", inputs=[levels(4, 4, 2), levels(2, 2, 2, 1), *two], strides=[1, 1, 1, 1], code=INVALID_ARGUMENT, **conv)
bad("QuantizedConv2D", inputs=[levels(1, 4, 4, 2), levels(2, 2, 2, 1), *two], strides=[1, 1, 2, 1], code=INVALID_ARGUMENT, text=True, **conv)
bad("QuantizedConv2D", inputs=[levels(1, 4, 4, 2), levels(2, 2, 2, 1), *two], strides=[1, 1, 1, 1], dilations=[1, 2, 2, 1], code=INVALID_ARGUMENT, text=True, **conv)
bad("QuantizedReshape", T=["quint8"], inputs=[levels(2, 6), np.array([5], np.int32), *one], code=INVALID_ARGUMENT, text=True)
bad("QuantizedReshape", T=["quint8"], inputs=[levels(2, 6), np.array([12], np.int32), shape(2), f(1)], code=INVALID_ARGUMENT, text=True)
bad("QuantizedConcat", T=["quint8"], inputs=[np.int32(0), [levels(2, 3), levels(2, 3, 1)], one, one], code=INVALID_ARGUMENT, text=True)
bad("QuantizedConcat", T=["quint8"], inputs=[np.int32(2), [levels(2, 3), levels(2, 3)], one, one], code=INVALID_ARGUMENT, text=True)
bad("QuantizedConcat", T=["quint8"], inputs=[np.int32(0), [levels(2, 3), levels(2, 4)], [f(-1), f(-1)], [f(1), f(1)]], code=INVALID_ARGUMENT, text=True)
bad("QuantizedResizeBilinear", T=["quint8"], inputs=[levels(4, 5, 3), np.array([2, 2], np.int32), *one], code=INVALID_ARGUMENT)
bad("QuantizedResizeBilinear", T=["quint8"], inputs=[levels(1, 4, 5, 3), np.array([0, 2], np.int32), *one], code=INVALID_ARGUMENT, text=True)
bad("QuantizedInstanceNorm", inputs=[levels(1, 4, 5, 3), f(1), f(1)], code=INVALID_ARGUMENT, text=True)
bad("QuantizedInstanceNorm", inputs=[levels(1, 4, 5, 3), *one], output_range_given=True, given_y_min=2.0, given_y_max=1.0, code=INVALID_ARGUMENT, text=True)
