"""Neural network ops: activations, bias, convolution, pooling, softmax, top k."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

ACTIVATIONS = {
    "Relu": {"zeros": True},
    "Relu6": {"zeros": True},
    "LeakyRelu": {"ulp": 2},
    "Elu": {"ulp": 8, "abs_ulp": 1},
    "Selu": {"ulp": 8, "abs_ulp": 2},
    "Softplus": {"ulp": 16},
    "Softsign": {"ulp": 2},
}
OPS = f"""{' '.join(ACTIVATIONS)} {' '.join(name + 'Grad' for name in ACTIVATIONS)} BiasAdd BiasAddV1 BiasAddGrad Conv2D
Conv2DBackpropInput Conv2DBackpropFilter MaxPool MaxPoolV2 MaxPoolGrad MaxPoolGradV2 AvgPool AvgPoolGrad Softmax
LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits InTopK InTopKV2 TopKV2"""

for name, tolerance in ACTIVATIONS.items():
    for values in (shape(3, 7), shape(5, 13, low=-1, high=1), scalar(), empty(), large()):
        op(name, inputs=[values], **tolerance)
    op(name, inputs=[special()], **tolerance)
    gradient = {**tolerance, "abs_ulp": 8} if "ulp" in tolerance else {}
    for values in (shape(3, 7), shape(5, 13, low=-1, high=1), scalar(), empty(), large()):
        op(f"{name}Grad", inputs=[values, values], **gradient)
    op(f"{name}Grad", T=FLOATS, inputs=[shape(25), special()], **gradient)
    bad(f"{name}Grad", T=["float"], inputs=[shape(2, 3), shape(4)], code=INVALID_ARGUMENT, text=True)
for name in ("LeakyRelu", "LeakyReluGrad"):
    for alpha in (0.0, 0.5, 1.0, 1.5, -0.3):
        op(name, inputs=[shape(3, 7)] * (2 if name.endswith("Grad") else 1), alpha=alpha, ulp=2)

BIASES = [((2, 3), "NHWC", 3), ((2, 5, 3), "NHWC", 3), ((2, 4, 5, 3), "NHWC", 3), ((2, 2, 4, 5, 3), "NHWC", 3)]
BIASES += [((2, 3), "NCHW", 3), ((2, 3, 5), "NCHW", 3), ((2, 3, 4, 5), "NCHW", 3), ((2, 3, 2, 4, 5), "NCHW", 3)]
BIASES += [((0, 4, 5, 3), "NHWC", 3), ((2, 3, 0, 5), "NCHW", 3), ((8, 60, 70, 5), "NHWC", 5), ((8, 5, 60, 70), "NCHW", 5)]
for dims, layout, depth in BIASES:
    op("BiasAdd", inputs=[shape(*dims), shape(depth)], data_format=layout)
    rough = {"rtol": 1e-2, "abs_ulp": 4000} if len(dims) == 4 and dims[0] == 8 else {"ulp": 8, "abs_ulp": 128}
    wide = {"T": kernel_types("BiasAddGrad", ["float", "double", "int32", "int64"])} if dims[0] == 8 else {}
    op("BiasAddGrad", inputs=[shape(*dims)], data_format=layout, **rough, **wide)
    if layout == "NHWC":
        op("BiasAddV1", inputs=[shape(*dims), shape(depth)])
for layout in ("NHWC", "NCHW"):
    for value, bias in (((2, 4, 5, 3), (2,)), ((2, 4, 5, 3), (3, 1)), ((3,), (3,)), ((), (1,)), ((2, 4, 5, 3), ())):
        bad("BiasAdd", T=["float"], inputs=[shape(*value), shape(*bias)], data_format=layout, code=INVALID_ARGUMENT, text=True)
    for value in ((3,), ()):
        bad("BiasAddGrad", T=["float"], inputs=[shape(*value)], data_format=layout, code=INVALID_ARGUMENT, text=True)
bad("BiasAddV1", T=["float"], inputs=[shape(2, 3), shape(2)], code=INVALID_ARGUMENT, text=True)

# input (N, H, W, C), filter (H, W, C, out), strides, dilations
CONVOLUTIONS = [
    ((2, 5, 6, 3), (3, 3, 3, 4), (1, 1), (1, 1)),
    ((2, 5, 6, 3), (1, 1, 3, 4), (1, 1), (1, 1)),
    ((1, 5, 5, 1), (5, 5, 1, 2), (1, 1), (1, 1)),
    ((2, 7, 8, 3), (3, 2, 3, 4), (2, 1), (1, 1)),
    ((2, 7, 8, 3), (3, 3, 3, 4), (2, 2), (1, 1)),
    ((2, 9, 9, 2), (3, 3, 2, 3), (1, 1), (2, 2)),
    ((2, 9, 9, 2), (2, 3, 2, 3), (1, 1), (1, 3)),
    ((2, 8, 8, 3), (1, 1, 3, 4), (2, 2), (1, 1)),
    ((2, 8, 8, 3), (2, 2, 3, 4), (3, 3), (1, 1)),
    ((4, 14, 14, 8), (5, 5, 8, 16), (1, 1), (1, 1)),
]


def output_size(size, window, stride, dilation, padding, explicit=(0, 0)):
    reach = (window - 1) * dilation + 1
    if padding == "SAME":
        return -(-size // stride)
    return (size + sum(explicit) - reach) // stride + 1


def convolution(dims, window, strides, dilations, padding, pads=(0,) * 8, **types):
    """The three convolutions of one geometry."""
    common = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding}
    if padding == "EXPLICIT":
        common["explicit_paddings"] = list(pads)
    out = [
        output_size(dims[i], window[i - 1], strides[i - 1], dilations[i - 1], padding, pads[2 * i : 2 * i + 2])
        for i in (1, 2)
    ]
    image, kernel, result = (unit(*d) for d in (dims, window, (dims[0], *out, window[3])))
    # The longest sum of products; TensorFlow adds up half and bfloat16 in their own precision.
    terms = max(window[0] * window[1] * max(window[2:]), dims[0] * dims[1] * dims[2])
    close = {"ulp": 16, "abs_ulp": 64 + terms / 4}
    op("Conv2D", inputs=[image, kernel], **common, **types, **close)
    # TensorFlow's CPU kernels have no gradients of dilated or grouped convolutions, and say so.
    plain = dilations == (1, 1) and dims[3] == window[2]
    row = op if plain else bad
    tolerance = close if plain else {"code": INVALID_ARGUMENT, "more": True}
    row("Conv2DBackpropInput", inputs=[list(dims), kernel, result], **common, **types, **tolerance)
    row("Conv2DBackpropFilter", inputs=[image, list(window), result], **common, **types, **tolerance)


for dims, window, strides, dilations in CONVOLUTIONS:
    for padding in ("SAME", "VALID"):
        convolution(dims, window, strides, dilations, padding)
    convolution(dims, window, strides, dilations, "EXPLICIT", (0, 0, 1, 2, 0, 1, 0, 0))
convolution((2, 6, 6, 4), (3, 3, 2, 6), (1, 1), (1, 1), "SAME", T=["float"])
convolution((16, 28, 28, 1), (5, 5, 1, 32), (1, 1), (1, 1), "SAME", T=["float"])
convolution((0, 5, 6, 3), (3, 3, 3, 4), (1, 1), (1, 1), "SAME", T=["float"])
op("Conv2D", T=["float"], inputs=[shape(2, 2, 2, 3), shape(3, 3, 3, 4)], strides=[1, 1, 1, 1], padding="VALID")
FLAT = {"strides": [1, 1, 1, 1], "padding": "VALID", "T": ["float"]}
for image, window, options in (
    ((5, 6, 3), (3, 3, 3, 4), {}),
    ((2, 5, 6, 3), (3, 3, 3), {}),
    ((2, 5, 6, 3), (3, 3, 2, 4), {}),
    ((2, 5, 6, 3), (3, 3, 0, 4), {}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"strides": [2, 1, 1, 1]}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"strides": [1, 0, 1, 1]}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"strides": [1, 1, 1]}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"dilations": [1, 0, 1, 1]}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"dilations": [2, 1, 1, 1]}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"padding": "EXPLICIT"}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]}),
    ((2, 5, 6, 3), (3, 3, 3, 4), {"padding": "EXPLICIT", "explicit_paddings": [0, 0, -1, 1, 1, 1, 0, 0]}),
):
    bad("Conv2D", inputs=[shape(*image), shape(*window)], **{**FLAT, **options})
bad("Conv2D", inputs=[shape(2, 3, 5, 6), shape(3, 3, 3, 4)], data_format="NCHW", code=UNIMPLEMENTED, more=True, **FLAT)
for sizes, window, back in (
    ([2, 5, 6, 3], (3, 3, 3, 4), (2, 3, 3, 4)),
    ([2, 5, 6, 3], (3, 3, 3, 4), (1, 3, 4, 4)),
    ([2, 5, 6, 3], (3, 3, 3, 4), (2, 3, 4, 5)),
    ([2, 5, 6, 2], (3, 3, 3, 4), (2, 3, 4, 4)),
    ([2, 5, 6], (3, 3, 3, 4), (2, 3, 4, 4)),
    ([2, -5, 6, 3], (3, 3, 3, 4), (2, 3, 4, 4)),
    ([2, 5, 6, 3], (3, 3, 3), (2, 3, 4, 4)),
    ([2, 5, 6, 3], (3, 3, 3, 4), (3, 4, 4)),
):
    bad("Conv2DBackpropInput", inputs=[sizes, shape(*window), shape(*back)], **FLAT)
for image, sizes, back in (
    ((2, 5, 6, 3), [3, 3, 3, 4], (2, 3, 3, 4)),
    ((2, 5, 6, 3), [3, 3, 3, 4], (1, 3, 4, 4)),
    ((2, 5, 6, 3), [3, 3, 3, 4], (2, 3, 4, 5)),
    ((2, 5, 6, 3), [3, 3, 2, 4], (2, 3, 4, 4)),
    ((2, 5, 6, 3), [3, 3, 3], (2, 3, 4, 4)),
    ((2, 5, 6, 3), [3, -3, 3, 4], (2, 3, 4, 4)),
    ((5, 6, 3), [3, 3, 3, 4], (2, 3, 4, 4)),
):
    bad("Conv2DBackpropFilter", inputs=[shape(*image), sizes, shape(*back)], **FLAT)

# input, window, strides
POOLS = [
    ((2, 6, 8, 3), (2, 2), (2, 2)),
    ((2, 5, 7, 3), (2, 2), (2, 2)),
    ((2, 5, 7, 2), (3, 3), (1, 1)),
    ((1, 7, 5, 4), (3, 2), (2, 1)),
    ((1, 7, 5, 4), (2, 3), (3, 3)),
    ((2, 4, 4, 1), (1, 1), (1, 1)),
    ((8, 28, 28, 6), (2, 2), (2, 2)),
]
MEAN = {"ulp": 8, "abs_ulp": 64}
for dims, window, strides in POOLS:
    for padding in ("SAME", "VALID"):
        out = [output_size(dims[i + 1], window[i], strides[i], 1, padding) for i in (0, 1)]
        result = (dims[0], *out, dims[3])
        k, s = [1, *window, 1], [1, *strides, 1]
        attrs = {"ksize": k, "strides": s, "padding": padding}
        op("MaxPool", inputs=[shape(*dims)], **attrs)
        op("MaxPool", T=["float"], inputs=[ties(*dims)], **attrs)
        op("MaxPoolV2", inputs=[shape(*dims), k, s], padding=padding)
        op("AvgPool", inputs=[shape(*dims)], **attrs, **MEAN)
        op("AvgPoolGrad", inputs=[list(dims), shape(*result)], **attrs, **MEAN)
        overlapping = strides[0] < window[0] or strides[1] < window[1]
        grads = {"ulp": 4, "abs_ulp": 64} if overlapping else {}
        op("MaxPoolGrad", inputs=[pool_input(dims), pool_output(dims, k, s, padding), shape(*result)], **attrs, **grads)
        op("MaxPoolGradV2", inputs=[pool_input(dims), pool_output(dims, k, s, padding), shape(*result), k, s], padding=padding, **grads)
op("MaxPool", T=FLOATS, inputs=[np.array([[[[np.nan], [1.0]], [[2.0], [np.inf]]]])], ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="SAME")
op("MaxPool", T=["float"], inputs=[shape(2, 4, 4, 6)], ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID", either=True)
op("MaxPool", T=["float"], inputs=[shape(2, 5, 6, 3)], ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 0, 1, 0, 0])
op("MaxPool", T=["float"], inputs=[shape(0, 4, 4, 2)], ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", either=True)
for name in ("MaxPool", "AvgPool"):
    op(name, T=["float"], inputs=[shape(1, 1, 1, 2)], ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID", "T": ["float"]}
for name in ("MaxPool", "AvgPool"):
    for dims, options in (
        ((4, 4, 2), {}),
        ((1, 4, 4, 2), {"ksize": [1, 2, 2]}),
        ((1, 4, 4, 2), {"ksize": [2, 2, 2, 1]}),
        ((1, 4, 4, 2), {"ksize": [1, 0, 2, 1]}),
        ((1, 4, 4, 2), {"strides": [2, 2, 2, 1]}),
        ((1, 4, 4, 2), {"strides": [1, 0, 2, 1]}),
        ((1, 4, 4, 2), {"strides": [1, 2, 2]}),
    ):
        bad(name, inputs=[shape(*dims)], **{**POOL, **options})
    bad(name, inputs=[shape(1, 2, 4, 4)], data_format="NCHW", code=INVALID_ARGUMENT, more=True, **POOL)
for k, s in (([1, 2, 2], [1, 2, 2, 1]), ([1, 0, 2, 1], [1, 2, 2, 1]), ([1, 2, 2, 1], [1, 2]), ([1, 2, 2, 1], [1, 0, 2, 1])):
    bad("MaxPoolV2", T=["float"], inputs=[shape(1, 4, 4, 2), k, s], padding="VALID")
for sizes, back in (([1, 4, 4], (1, 2, 2, 2)), ([1, 4, 4, 2], (2, 2, 2)), ([1, -4, 4, 2], (1, 2, 2, 2))):
    bad("AvgPoolGrad", inputs=[sizes, shape(*back)], **POOL)
for image, output, back in (((1, 4, 4), (1, 2, 2, 2), (1, 2, 2, 2)), ((1, 4, 4, 2), (1, 2, 2), (1, 2, 2, 2)), ((1, 4, 4, 2), (1, 2, 2, 2), (1, 2, 2)), ((1, 4, 4, 2), (1, 3, 3, 2), (1, 3, 3, 2)), ((1, 4, 4, 2), (1, 2, 2, 2), (1, 2, 3, 2))):
    bad("MaxPoolGrad", inputs=[shape(*image), shape(*output), shape(*back)], **POOL)

SOFT = {"ulp": 16, "abs_ulp": 4}
for name in ("Softmax", "LogSoftmax"):
    for values in (shape(3, 5), shape(7), shape(2, 3, 4), shape(4, 1), shape(0, 3), shape(3, 0), shape(200, 701)):
        op(name, inputs=[values], **SOFT)
    for values in ([[1e4, 1e4, 0.0]], [[-1e4, 0.0, 1.0]], [[np.inf, 1.0]], [[-np.inf, 1.0]], [[-np.inf, -np.inf]], [[np.nan, 1.0]]):
        op(name, inputs=[np.array(values)], **SOFT)
    bad(name, inputs=[scalar()], code=INVALID_ARGUMENT, text=True)

ENTROPY = {"ulp": 32, "abs_ulp": 8}
for features, labels in (
    (shape(4, 5), softmax_rows(4, 5)),
    (shape(1, 3), softmax_rows(1, 3)),
    (shape(4, 1), softmax_rows(4, 1)),
    (shape(4, 5), softmax_rows(1, 5)),
    (shape(1, 5), softmax_rows(4, 5)),
    (shape(0, 5), shape(0, 5)),
    (shape(300, 400), softmax_rows(300, 400)),
    (np.array([[1e3, 0.0], [-1e3, 0.0]]), np.array([[1.0, 0.0], [0.5, 0.5]])),
    (np.array([[np.nan, 0.0], [np.inf, 0.0]]), np.array([[1.0, 0.0], [0.5, 0.5]])),
):
    op("SoftmaxCrossEntropyWithLogits", inputs=[features, labels], **ENTROPY)
for features, labels in (((4, 5), (4, 4)), ((4, 5), (3, 5)), ((5,), (5,)), ((2, 3, 4), (2, 3, 4)), ((), ())):
    bad("SoftmaxCrossEntropyWithLogits", T=["float"], inputs=[shape(*features), shape(*labels)], code=INVALID_ARGUMENT, text=True)
op("SparseSoftmaxCrossEntropyWithLogits", inputs=[shape(4, 5), [0, 4, 2, 1]], full=True, **ENTROPY)
op("SparseSoftmaxCrossEntropyWithLogits", inputs=[shape(300, 400), index(400, 300)], **ENTROPY)
op("SparseSoftmaxCrossEntropyWithLogits", inputs=[shape(0, 5), shape(0)], **ENTROPY)
op("SparseSoftmaxCrossEntropyWithLogits", inputs=[np.array([[1e3, 0.0], [-1e3, 0.0], [np.nan, 1.0]]), [0, 1, 0]], **ENTROPY)
for features, labels in (((4, 5), [0, 1]), ((4, 5), [0, 5, 1, 2]), ((4, 5), [0, -1, 1, 2]), ((5,), [0]), ((4, 5), [[0, 1, 2, 3]]), ((4, 0), [0, 0, 0, 0]), ((), [0])):
    bad("SparseSoftmaxCrossEntropyWithLogits", T=["float"], inputs=[shape(*features), labels], code=INVALID_ARGUMENT, text=True)

for k in (1, 2, 5, 9):
    op("InTopK", inputs=[ties(6, 5), index(5, 6)], k=k)
    op("InTopKV2", inputs=[ties(6, 5), index(5, 6), k])
op("InTopK", inputs=[np.array([[np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], [1.0, 2.0, 3.0]]), [1, 1, 2]], k=1)
op("InTopK", inputs=[shape(3, 4), [0, 4, -1]], k=2)
op("InTopK", inputs=[shape(0, 4), shape(0)], k=2)
op("InTopK", inputs=[shape(2, 4), [0, 1]], k=0)
for predictions, targets in (((3, 4), [0, 1]), ((4,), [0]), ((3, 4), [[0, 1, 2]])):
    bad("InTopK", inputs=[shape(*predictions), targets], k=2, code=INVALID_ARGUMENT, text=True)
    bad("InTopKV2", inputs=[shape(*predictions), targets, 2], code=INVALID_ARGUMENT, text=True)

for k in (1, 3, 7, 0):
    for values in (shape(7), ties(4, 7), shape(2, 3, 7)):
        op("TopKV2", inputs=[values, k], full=k == 3)
op("TopKV2", T=["float", "int32", "double"], inputs=[large(), 20])
op("TopKV2", T=["float", "int32", "double"], inputs=[shape(3, 30000), 1])
op("TopKV2", T=["float"], inputs=[shape(4, 100), 5], sorted=False, shapes_only=True)
op("TopKV2", T=FLOATS, inputs=[np.array([1.0, np.inf, -np.inf, 3.0, 0.0]), 4])
op("TopKV2", T=["float"], Tk=["int16", "int64"], inputs=[shape(4, 9), 5])
op("TopKV2", T=["float"], inputs=[shape(0, 3), 2])
for values, k in ((shape(3), 4), (shape(3), -1), (scalar(), 1), (shape(3), [1, 2]), (shape(2, 3), 5)):
    bad("TopKV2", T=["float"], inputs=[values, k], code=INVALID_ARGUMENT, text=True)
