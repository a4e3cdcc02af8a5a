"""Random numbers whose values take an unknown number of draws, and candidate samplers."""

import numpy as np

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """AllCandidateSampler ComputeAccidentalHits FixedUnigramCandidateSampler FractionalAvgPool FractionalMaxPool LearnedUnigramCandidateSampler
LogUniformCandidateSampler ParameterizedTruncatedNormal RandomGamma RandomPoissonV2
StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomPoisson
StatelessShuffle ThreadUnsafeUnigramCandidateSampler UniformCandidateSampler"""

SEEDS = {"seed": 87654321, "seed2": 42}
SHAPE = np.array([5, 3], np.int32)
SEED = np.array([3, 14], np.int64)
for alpha in ([0.3, 1.0, 4.5], [2.0, 0.9, 30.0]):
    op("RandomGamma", S=["int32"], inputs=[SHAPE, alpha], rtol=1e-6, **SEEDS)
    op("StatelessRandomGammaV2", inputs=[SHAPE, SEED, alpha], rtol=1e-6)
    op("RandomPoissonV2", S=["int32"], inputs=[SHAPE, [0.5, 8.0, 40.0]], full=True, **SEEDS)
for types in ("half", "float", "double", "int32", "int64"):
    op("StatelessRandomPoisson", Rtype=["half", "float", "double", "int32", "int64"], dtype=[types], T=["int32"], Tseed=["int64"], inputs=[SHAPE, SEED, [0.5, 8.0, 40.0]])
    op("StatelessRandomBinomial", T=["half", "float", "double"], dtype=[types], S=["int32"], Tseed=["int64"], inputs=[SHAPE, SEED, [10.0, 4.0, 100.0], [0.3, 0.9, 0.4]])
op("ParameterizedTruncatedNormal", T=["int32"], dtype=["float", "double"], inputs=[np.array([3, 5], np.int32), [0.0], [1.0], [-1.0], [1.0]], rtol=1e-5, atol=1e-6, **SEEDS)
op("ParameterizedTruncatedNormal", T=["int32"], dtype=["half"], inputs=[np.array([3, 5], np.int32), [0.0], [1.0], [-1.0], [1.0]], rtol=1e-2, atol=1e-3, **SEEDS)
op("StatelessParameterizedTruncatedNormal", S=["int32"], Tseed=["int64"], dtype=["half"], inputs=[SHAPE, SEED, [0.0, 1.0, 2.0], [1.0], [-1.0], [3.0]], rtol=1e-2, atol=1e-3)
op("StatelessParameterizedTruncatedNormal", S=["int32"], Tseed=["int64"], dtype=["float", "double"], inputs=[SHAPE, SEED, [0.0, 1.0, 2.0], [1.0], [-1.0], [3.0]], rtol=1e-5, atol=1e-6)
bad("StatelessRandomGammaV2", dtype=["float"], inputs=[SHAPE, SEED, [1.0, 2.0]], code=INVALID_ARGUMENT, text=True)

TRUE = np.array([[1, 2], [3, 4]], np.int64)
SAMPLING = {"num_true": 2, "num_sampled": 6, **SEEDS}
for unique in (False, True):
    for name in ("UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"):
        op(name, inputs=[TRUE], unique=unique, range_max=20, runs=3, rtol=1e-5, **SAMPLING)
    op("FixedUnigramCandidateSampler", inputs=[TRUE], unique=unique, range_max=8, unigrams=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], distortion=0.7, runs=3, rtol=1e-5, **SAMPLING)
    op("AllCandidateSampler", inputs=[TRUE], unique=unique, **SAMPLING)
bad("UniformCandidateSampler", inputs=[TRUE], unique=True, range_max=3, code=INVALID_ARGUMENT, text=True, **SAMPLING)
op("ComputeAccidentalHits", inputs=[TRUE, np.array([4, 9, 1, 2, 4], np.int64)], num_true=2)
op("StatelessShuffle", inputs=[shape(9, 2), np.array([7], np.uint64), np.array([1, 2], np.uint64), np.int32(1)])
for name in ("FractionalMaxPool", "FractionalAvgPool"):
    for pseudo in (False, True):
        for overlapping in (False, True):
            attrs = {"pooling_ratio": [1.0, 1.44, 1.73, 1.0], "pseudo_random": pseudo, "overlapping": overlapping}
            op(name, inputs=[shape(2, 9, 11, 3)], deterministic=True, rtol=1e-5, **attrs, **SEEDS)
