"""Recurrent cells in one op: a step or a sequence of the long short-term memory, the gated recurrent unit."""

import numpy as np

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """LSTMBlockCell LSTMBlockCellGrad BlockLSTM BlockLSTMGrad BlockLSTMV2 BlockLSTMGradV2 GRUBlockCell GRUBlockCellGrad"""

TOLERANCES = {"float": {"rtol": 1e-4, "atol": 1e-5}, "half": {"rtol": 2e-2, "atol": 2e-2}}


def parameters(batch, width, cell):
    """States, weights, peephole weights and bias."""
    states = [unit(batch, cell), unit(batch, cell)]
    return states, [unit(width + cell, 4 * cell), unit(cell), unit(cell), unit(cell), unit(4 * cell)]


SIZES = [(2, 3, 4), (1, 5, 2), (4, 1, 1), (0, 3, 2), (3, 0, 2)]
for t, tolerance in TOLERANCES.items():
    for batch, width, cell in [*SIZES, (16, 40, 24)]:
        if cell == 24 and t == "half":
            continue
        states, weights = parameters(batch, width, cell)
        step = [unit(batch, width), *states, *weights]
        seen = [unit(batch, cell) for _ in range(8)]
        for peephole in (False, True):
            for clip in (0.0, 0.3) if batch else ():
                op("LSTMBlockCell", T=[t], inputs=step, use_peephole=peephole, cell_clip=clip, forget_bias=0.5, **tolerance)
            op("LSTMBlockCellGrad", T=[t], inputs=[*step, *seen], use_peephole=peephole, **tolerance)
    for time, batch, width, cell in ((3, 2, 3, 4), (1, 2, 2, 2), (5, 4, 1, 3)):
        states, weights = parameters(batch, width, cell)
        seen = [unit(time, batch, cell) for _ in range(9)]
        for peephole in (False, True):
            for length in {1, time}:
                sequence = [np.int64(length), unit(time, batch, width), *states, *weights]
                # Past the end of the sequence TensorFlow leaves all but state and output as they were in memory.
                fetch = None if length == time else [1, 6]
                attrs = {"T": [t], "use_peephole": peephole, "fetch": fetch, **tolerance}
                for clip in (0.0, 0.3):
                    op("BlockLSTM", inputs=sequence, cell_clip=clip, forget_bias=0.7, **attrs)
                    op("BlockLSTMV2", inputs=sequence, cell_clip=clip, **attrs)
                for name in ("BlockLSTMGrad", "BlockLSTMGradV2"):
                    op(name, inputs=[*sequence, *seen], **{**attrs, "fetch": None})

for batch, width, cell in SIZES[:3]:
    unit_inputs = [unit(batch, width), unit(batch, cell), unit(width + cell, 2 * cell), unit(width + cell, cell), unit(2 * cell), unit(cell)]
    op("GRUBlockCell", inputs=unit_inputs, **TOLERANCES["float"])
    op("GRUBlockCellGrad", inputs=[*unit_inputs, *[unit(batch, cell) for _ in range(4)]], **TOLERANCES["float"])


def refused(name, good, changes, **attrs):
    """The op with one input after the other of a wrong shape."""
    for at, dims in changes:
        inputs = list(good)
        inputs[at] = unit(*dims)
        bad(name, T=["float"], inputs=inputs, code=INVALID_ARGUMENT, text=True, **attrs)


states, weights = parameters(2, 3, 4)
STEP = [unit(2, 3), *states, *weights]
refused("LSTMBlockCell", STEP, [(0, (3, 3)), (0, (2, 4)), (1, (3, 4)), (1, (2, 5)), (2, (3, 4)), (2, (2, 5)), (3, (8, 16)), (3, (7, 17)), (7, (17,))])
refused("LSTMBlockCell", STEP, [(0, (2, 3, 1)), (1, (2, 4, 1)), (2, (2, 4, 1)), (3, (7, 16, 1)), (4, ()), (5, (4, 1)), (6, ()), (7, (16, 1))])
bad("LSTMBlockCell", inputs=[unit(0, 3), unit(0, 4), unit(0, 4), *weights], code=INVALID_ARGUMENT, text=True)
seen = [unit(2, 4) for _ in range(8)]
refused("LSTMBlockCellGrad", [*STEP, *seen], [(at, dims) for at in range(8, 16) for dims in ((3, 4), (2, 5))], use_peephole=True)
SEQUENCE = [np.int64(5), unit(5, 2, 3), *states, *weights]
WRONG = [(1, (5, 3, 3)), (1, (5, 2, 4)), (1, (2, 3)), (2, (4,)), (2, (3, 4)), (3, (2, 5)), (3, (4,)), (4, (8, 16)), (4, (7, 17)), (4, (16,))]
WRONG += [(at, dims) for at in (5, 6, 7) for dims in ((), (5,), (4, 1))] + [(8, (17,)), (8, (16, 1))]
for name in ("BlockLSTM", "BlockLSTMV2"):
    refused(name, SEQUENCE, WRONG)
    bad(name, T=["float"], inputs=[np.array([5], np.int64), *SEQUENCE[1:]], code=INVALID_ARGUMENT, text=True)
seen = [unit(5, 2, 4) for _ in range(9)]
WRONG = [(1, (2, 3)), (1, (5, 2, 4)), (2, (4,)), (3, (2, 4, 1)), (4, (8, 16)), (4, (16,)), (5, ()), (6, (4, 1)), (8, (16, 1))]
WRONG += [(at, dims) for at in range(9, 16) for dims in ((2, 4), (5, 2, 4, 1))]
for name in ("BlockLSTMGrad", "BlockLSTMGradV2"):
    refused(name, [*SEQUENCE, *seen], WRONG, use_peephole=True)
UNIT = [unit(2, 3), unit(2, 4), unit(7, 8), unit(7, 4), unit(8), unit(4)]
WRONG = [(0, (2,)), (0, (2, 4)), (1, (3, 4)), (1, (2, 5)), (1, (4,)), (2, (8, 8)), (2, (7, 9)), (2, (8,)), (3, (8, 4)), (3, (7, 5)), (3, ())]
WRONG += [(4, (9,)), (4, (8, 1)), (5, (5,)), (5, ())]
refused("GRUBlockCell", UNIT, WRONG)
refused("GRUBlockCellGrad", [*UNIT, *[unit(2, 4)] * 4], WRONG + [(at, dims) for at in range(6, 10) for dims in ((3, 4), (2, 5), (4,))])
