"""Random ops: the same seeds give the same bits, and a second run goes on in the same stream."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal RandomShuffle SobolSample"

SEEDS = [(1, 2), (87654321, 0), (0, 5), (-3, 1 << 40), ((1 << 63) - 1, -(1 << 63))]
FLOAT_OPS = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")

for name in FLOAT_OPS:
    for seed, seed2 in SEEDS:
        op(name, T=["int32", "int64"], inputs=[[7, 5]], seed=seed, seed2=seed2, runs=2)
    for dims in ([], [1], [3], [0, 4], [2, 3, 5], [1000], [257, 1021]):
        op(name, inputs=[dims], seed=11, seed2=13, runs=3)
    op(name, inputs=[[100]], seed=11, seed2=13, runs=2, const=True)
    op(name, inputs=[[40]], shapes_only=True)
    for dims in ([-1], [2, -3], [[2, 3]]):
        bad(name, dtype=["float"], T=["int32", "int64"], inputs=[dims], seed=1, code=INVALID_ARGUMENT, text=True)
    op(name, dtype=["float"], T=["int32"], inputs=[3], seed=1, either=True)
    bad(name, dtype=["float"], T=["int64"], inputs=[[1 << 40, 1 << 40]], seed=1, code=INVALID_ARGUMENT)

for seed, seed2 in SEEDS:
    op("RandomUniformInt", T=["int32", "int64"], inputs=[[7, 5], -10, 10], seed=seed, seed2=seed2, runs=2)
for dims in ([], [1], [0, 4], [1000], [257, 1021]):
    op("RandomUniformInt", inputs=[dims, 0, 1000], seed=3, seed2=4, runs=2)
op("RandomUniformInt", Tout=["int32"], inputs=[[50], -(1 << 31), (1 << 31) - 1], seed=3, seed2=4)
op("RandomUniformInt", Tout=["int64"], inputs=[[50], -(1 << 63), (1 << 63) - 1], seed=3, seed2=4)
op("RandomUniformInt", inputs=[[50], 5, 6], seed=3, seed2=4)
op("RandomUniformInt", inputs=[[0], 5, 5], seed=3, either=True)
for low, high in ((5, 5), (6, 5)):
    bad("RandomUniformInt", inputs=[[5], low, high], seed=1, code=INVALID_ARGUMENT, text=True)
bad("RandomUniformInt", inputs=[[5], [1, 2], 7], seed=1, code=INVALID_ARGUMENT, text=True)
bad("RandomUniformInt", inputs=[[5], 1, [7, 8]], seed=1, code=INVALID_ARGUMENT, text=True)
bad("RandomUniformInt", inputs=[[-5], 1, 7], seed=1, code=INVALID_ARGUMENT, text=True)

for seed, seed2 in SEEDS:
    op("RandomShuffle", T=["float", "int32"], inputs=[sequence(20)], seed=seed, seed2=seed2, runs=2)
for values in (sequence(7, 3), sequence(3, 2, 2), sequence(1), sequence(1, 5), sequence(0), sequence(0, 3), sequence(5, 0), scalar()):
    op("RandomShuffle", inputs=[values], seed=5, seed2=6, runs=2)
op("RandomShuffle", T=["int32", "double", "string"], inputs=[sequence(5000)], seed=5, seed2=6)
op("RandomShuffle", T=["int32", "double"], inputs=[sequence(3000, 40)], seed=5, seed2=6)

for dim, count, skip in ((1, 1, 0), (5, 10, 0), (7, 300, 31), (21200, 3, 1000), (3, 2000, 1 << 29)):
    op("SobolSample", inputs=[dim, count, skip])
for dim, count, skip in ((0, 5, 0), (21201, 5, 0), (3, 0, 0), (3, 5, -1), (3, 5, 2147483643)):
    bad("SobolSample", dtype=["float"], inputs=[dim, count, skip], code=INVALID_ARGUMENT)
