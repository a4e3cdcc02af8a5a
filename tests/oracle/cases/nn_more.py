"""Neural network ops: three dimensions, quantisation, CTC, data formats."""

import numpy as np

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """AvgPool3D AvgPool3DGrad BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 CTCBeamSearchDecoder
CTCGreedyDecoder CTCLoss Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2
DataFormatDimMap DataFormatVecPermute Dawsn Dequantize Expint FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient
FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel
FakeQuantWithMinMaxVarsPerChannelGradient FresnelCos FresnelSin HistogramFixedWidth IgammaGradA InplaceAdd InplaceSub
InplaceUpdate LowerBound MaxPool3D NthElement QuantizeAndDequantizeV2 QuantizeAndDequantizeV3
QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad QuantizeV2 RandomGammaGrad Spence UpperBound"""

CLOSE = {"rtol": 2e-2, "atol": 2e-2}
FIVE = ["float", "double", "half"]
VOLUMES = [
    ((2, 4, 5, 6, 3), (2, 3, 3, 3, 4), (1, 1, 1)),
    ((1, 4, 5, 5, 2), (3, 2, 1, 2, 3), (2, 1, 2)),
    ((2, 3, 3, 3, 1), (1, 1, 1, 1, 2), (1, 1, 1)),
    ((0, 3, 3, 3, 2), (2, 2, 2, 2, 2), (1, 1, 1)),
]
for volume, kernel, stride in VOLUMES:
    for padding in ("SAME", "VALID"):
        attrs = {"strides": [1, *stride, 1], "padding": padding}
        out = [-(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip(volume[1:4], kernel[:3], stride, strict=True)]
        gradient = shape(volume[0], *out, kernel[4], low=-1, high=1)
        x, w = shape(*volume, low=-1, high=1), shape(*kernel, low=-1, high=1)
        op("Conv3D", T=FIVE, inputs=[x, w], **attrs, **CLOSE)
        op("Conv3DBackpropInputV2", T=FIVE, inputs=[np.array(volume, np.int32), w, gradient], **attrs, **CLOSE)
        if volume[0]:
            op("Conv3DBackpropFilterV2", T=FIVE, inputs=[x, np.array(kernel, np.int32), gradient], **attrs, **CLOSE)
x, w, y = shape(1, 3, 4, 4, 2, low=-1, high=1), shape(2, 2, 2, 2, 3, low=-1, high=1), shape(1, 2, 3, 3, 3, low=-1, high=1)
attrs = {"strides": [1] * 5, "padding": "VALID", "rtol": 3e-2, "atol": 6e-2}
op("Conv3D", T=["bfloat16"], inputs=[x, w], **attrs)
op("Conv3DBackpropInputV2", T=["bfloat16"], inputs=[np.array([1, 3, 4, 4, 2], np.int32), w, y], **attrs)
op("Conv3DBackpropFilterV2", T=["bfloat16"], inputs=[x, np.array([2, 2, 2, 2, 3], np.int32), y], **attrs)
bad("Conv3D", T=["float"], inputs=[shape(2, 4, 5, 6), shape(2, 2, 2, 3, 4)], strides=[1] * 5, padding="SAME", code=INVALID_ARGUMENT)
bad("Conv3D", T=["float"], inputs=[shape(1, 4, 5, 6, 3), shape(2, 2, 2, 2, 4)], strides=[1] * 5, padding="SAME", code=INVALID_ARGUMENT)
for window, stride in (((2, 2, 2), (2, 2, 2)), ((3, 2, 1), (1, 2, 1)), ((3, 3, 3), (2, 1, 2))):
    for padding in ("SAME", "VALID"):
        attrs = {"ksize": [1, *window, 1], "strides": [1, *stride, 1], "padding": padding}
        volume = (2, 4, 5, 6, 3)
        out = [-(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip(volume[1:4], window, stride, strict=True)]
        op("MaxPool3D", T=["float", "bfloat16"], inputs=[shape(*volume)], **attrs)
        op("AvgPool3D", T=["float", "bfloat16"], inputs=[shape(*volume)], **attrs, **CLOSE)
        op("AvgPool3DGrad", T=["float", "bfloat16"], inputs=[np.array(volume, np.int32), shape(2, *out, 3)], **attrs, **CLOSE)

for dtype in ("quint8", "qint8", "quint16", "qint16", "qint32"):
    for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
        inputs = [shape(5, 7, low=-3, high=4), np.float32(-2.5), np.float32(3.0)]
        if (mode, dtype) not in (("SCALED", "qint32"), ("MIN_COMBINED", "qint32")):
            op("QuantizeV2", T=[dtype], inputs=inputs, mode=mode)
        levels = [shape(5, 7, low=-100, high=100), np.float32(-2.5), np.float32(3.0)]
        op("Dequantize", T=[dtype], dtype=["float"], inputs=levels, mode=mode, rtol=1e-5, atol=1e-5)
        if mode == "MIN_COMBINED":
            op("Dequantize", T=[dtype], dtype=["bfloat16"], inputs=levels, mode=mode, rtol=1e-2, atol=1e-5)
op("QuantizeV2", T=["quint8"], inputs=[shape(3, 2, low=-3, high=4), np.float32([-1, -2]), np.float32([1, 2])], mode="SCALED", axis=1, round_mode="HALF_TO_EVEN")
bad("QuantizeV2", T=["quint8"], inputs=[shape(3), np.float32(2), np.float32(1)], code=INVALID_ARGUMENT, text=True)
for narrow in (False, True):
    for bits in (2, 8, 16):
        x = shape(9, 5, low=-8, high=8)
        op("FakeQuantWithMinMaxArgs", inputs=[x], num_bits=bits, narrow_range=narrow, rtol=1e-5, atol=1e-6)
        op("FakeQuantWithMinMaxArgsGradient", inputs=[x, x], num_bits=bits, narrow_range=narrow)
        op("FakeQuantWithMinMaxVars", inputs=[x, np.float32(-3), np.float32(5)], num_bits=bits, narrow_range=narrow, rtol=1e-5, atol=1e-6)
        op("FakeQuantWithMinMaxVarsGradient", inputs=[x, x, np.float32(-3), np.float32(5)], num_bits=bits, narrow_range=narrow, rtol=1e-4, atol=1e-4)
        low, high = np.float32([-3, -1, 0, 0, -9]), np.float32([5, 1, 0, 4, 0.5])
        op("FakeQuantWithMinMaxVarsPerChannel", inputs=[x, low, high], num_bits=bits, narrow_range=narrow, rtol=1e-5, atol=1e-6)
        op("FakeQuantWithMinMaxVarsPerChannelGradient", inputs=[x, x, low, high], num_bits=bits, narrow_range=narrow, rtol=1e-4, atol=1e-4)
for signed in (False, True):
    for given in (False, True):
        attrs = {"signed_input": signed, "range_given": given}
        x, low, high = shape(9, 5), shape(low=-3, high=-3), shape(low=5, high=5)
        op("QuantizeAndDequantizeV2", inputs=[x, low, high], round_mode="HALF_UP", rtol=1e-5, atol=1e-5, **attrs)
        op("QuantizeAndDequantizeV3", inputs=[x, low, high, np.int32(5)], rtol=1e-5, atol=1e-5, **attrs)
        op("QuantizeAndDequantizeV4", inputs=[x, low, high], rtol=1e-5, atol=1e-5, **attrs)
op("QuantizeAndDequantizeV4Grad", inputs=[shape(9, 5), shape(9, 5), shape(low=-3, high=-3), shape(low=5, high=5)])

CTC = [np.array([[0, 0], [0, 1], [1, 0]], np.int64), np.array([1, 2, 0], np.int32), np.array([6, 4], np.int32)]
for merge in (False, True):
    op("CTCLoss", inputs=[shape(6, 2, 5), *CTC], ctc_merge_repeated=merge, rtol=1e-3, atol=1e-3)
    op("CTCGreedyDecoder", inputs=[shape(6, 2, 5), CTC[2]], merge_repeated=merge, rtol=1e-5)
    op("CTCBeamSearchDecoder", inputs=[shape(6, 2, 5), CTC[2]], merge_repeated=merge, beam_width=8, top_paths=2, rtol=1e-4)
bad("CTCLoss", T=["float"], inputs=[shape(6, 2, 5), CTC[0], CTC[1], np.array([1, 1], np.int32)], code=INVALID_ARGUMENT, text=True)
bad("CTCGreedyDecoder", T=["float"], inputs=[shape(6, 2), CTC[2]], code=INVALID_ARGUMENT, text=True)
op("DataFormatVecPermute", inputs=[[7, 4, 9, 3]], src_format="NHWC", dst_format="NCHW")
op("DataFormatVecPermute", inputs=[shape(4, 2)], src_format="HWNC", dst_format="NHWC")
op("DataFormatVecPermute", inputs=[[3, 5]], src_format="NHWC", dst_format="NCWH")
op("DataFormatDimMap", inputs=[[-4, -3, -2, -1, 0, 1, 2, 3]], src_format="NHWC", dst_format="NCHW")
bad("DataFormatVecPermute", T=["int32"], inputs=[[1, 2, 3]], src_format="NHWC", dst_format="NCHW", code=INVALID_ARGUMENT, text=True)

for name in ("LowerBound", "UpperBound"):
    op(name, full=True, inputs=[[[1, 3, 3, 7, 9], [0, 0, 2, 4, 8]], index(10, 2, 6)])
op("NthElement", inputs=[shape(4, 9), np.int32(3)])
op("NthElement", inputs=[shape(2, 3, 5), np.int32(0)], reverse=True)
bad("NthElement", T=["float"], inputs=[shape(4, 3), np.int32(3)], code=INVALID_ARGUMENT, text=True)
op("HistogramFixedWidth", full=True, inputs=[shape(40, low=0, high=9), [0, 5], np.int32(5)])
bad("HistogramFixedWidth", T=["float"], inputs=[shape(4), [5, 0], np.int32(5)], code=INVALID_ARGUMENT)
for name in ("BesselJ0", "BesselJ1", "BesselY0", "BesselY1", "BesselK0", "BesselK0e", "BesselK1", "BesselK1e"):
    op(name, T=["double"], inputs=[shape(40, low=0.1, high=20)], rtol=1e-9, atol=1e-12)
    op(name, T=["float"], inputs=[shape(40, low=0.1, high=20)], rtol=1e-4, atol=1e-5)
    op(name, T=["half"], inputs=[shape(40, low=0.1, high=5)], rtol=1e-2, atol=1e-2)
for name in ("Dawsn", "Expint", "FresnelCos", "FresnelSin", "Spence"):
    op(name, T=["double"], inputs=[shape(40, low=0.1, high=70)], rtol=1e-9, atol=1e-12)
    op(name, T=["float"], inputs=[shape(40, low=0.1, high=20)], rtol=1e-4, atol=1e-5)
for name in ("IgammaGradA", "RandomGammaGrad"):
    op(name, T=["double"], inputs=[shape(40, low=0.1, high=9), shape(40, low=0.1, high=9)], rtol=1e-8, atol=1e-10)
    op(name, T=["float"], inputs=[shape(40, low=0.1, high=9), shape(40, low=0.1, high=9)], rtol=1e-3, atol=1e-4)
for name in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
    op(name, T=["float", "int32"], inputs=[shape(4, 3), np.array([1, -1], np.int32), shape(2, 3)])
