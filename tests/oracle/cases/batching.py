"""Batches of one step, and what comes of wrong ones. Batches of several steps are in the end-to-end tests."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = "Batch Unbatch UnbatchGrad"

# Steps that a server ends for their time look like a client's own, so that late ones are not here.
SIZES = dict(num_batch_threads=2, max_batch_size=4, batch_timeout_micros=100, grad_timeout_micros=100)
EVERY_TYPE = ["float", "double", "half", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool", "string", "complex64"]


def batch(code=None, fetch=(0,), inputs=None, T="float", **attrs):
    inputs = inputs or [shape(2, 3)]
    attrs = {**SIZES, "fetch": list(fetch), "T": [T] * len(inputs), "inputs": [inputs], **attrs}
    if code is None:
        op("Batch", **attrs)
    else:
        bad("Batch", code=code, text=True, **attrs)


for dtype in EVERY_TYPE:
    batch(T=dtype)
    batch(T=dtype, inputs=[shape(2, 3), shape(2), shape(2, 0)], fetch=(0, 1, 2))
batch(inputs=[shape(0, 3)], fetch=(0, 1, 2))
batch(allowed_batch_sizes=[1, 4])
batch(allowed_batch_sizes=[-1, 4])
batch(max_batch_size=-1)
batch(max_enqueued_batches=0)
batch(max_enqueued_batches=-1)
batch(INVALID_ARGUMENT, inputs=[shape(5)])
batch(INVALID_ARGUMENT, inputs=[scalar()])
batch(INVALID_ARGUMENT, inputs=[shape(2), shape(1)])
batch(INVALID_ARGUMENT, num_batch_threads=0)
batch(INVALID_ARGUMENT, max_batch_size=0)
batch(INVALID_ARGUMENT, batch_timeout_micros=-1)
batch(INVALID_ARGUMENT, allowed_batch_sizes=[1, 3])
batch(INVALID_ARGUMENT, allowed_batch_sizes=[4, 4])

INDEX = [[7, 0, 1], [8, 1, 3]]
SHORT = dict(timeout_micros=1000)
for own in (7, 8):
    op("Unbatch", T=EVERY_TYPE, inputs=[shape(3, 2), INDEX, own], **SHORT)
op("Unbatch", T=["float"], inputs=[shape(4, 2), [[7, 0, 1]], 7], **SHORT)
op("Unbatch", T=["float"], inputs=[shape(2), [[7, 0, 1], [7, 1, 2]], 7], **SHORT)
for data, index, own in (
    (shape(2), [7, 0, 1], 7),
    (shape(2), [[7, 0, 1, 2]], 7),
    (shape(1), INDEX, 7),
    (shape(2), [[7, 0, 1], [8, 1, 5]], 7),
    (shape(3), INDEX, [7]),
):
    bad("Unbatch", T=["float"], inputs=[data, index, own], code=INVALID_ARGUMENT, text=True, **SHORT)

op("UnbatchGrad", T=EVERY_TYPE, inputs=[shape(2, 2), [[7, 0, 2]], shape(2, 3), 7])
op("UnbatchGrad", T=["float"], inputs=[shape(0, 2), np.zeros([0, 3], np.int64), shape(2, 3), 7])
for data, index, own in (
    (shape(2), np.zeros([0, 3], np.int64), 7),
    (shape(2), [7, 0, 2], 7),
    (shape(2), [[7, 0]], 7),
    (shape(2), [[7, 0, 2]], [7]),
):
    bad("UnbatchGrad", T=["float"], inputs=[data, index, shape(2), own], code=INVALID_ARGUMENT, text=True)
bad("UnbatchGrad", T=["float"], inputs=[shape(2), [[7, 0, 2], [7, 0, 2]], shape(2), 7], code=INTERNAL, text=True)
