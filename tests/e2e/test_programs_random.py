"""Random operations with seeds: the same bits on both servers, step after step."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import agree, train

v1 = tf.compat.v1

LOGITS = np.log([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
RATES = [0.5, 3.0, 40.0]

STATEFUL = {
    "uniform": lambda: [tf.random.uniform([37], -2.0, 3.0, dtype, seed=5) for dtype in (tf.float16, tf.float32, tf.float64)],
    "uniform of bfloat16": lambda: tf.random.uniform([37], dtype=tf.bfloat16, seed=5),
    "uniform integers": lambda: [tf.random.uniform([37], -7, 1000, dtype, seed=5) for dtype in (tf.int32, tf.int64)],
    "normal": lambda: [tf.random.normal([37], 1.0, 2.0, dtype, seed=6) for dtype in (tf.float16, tf.float32, tf.float64)],
    "a large normal": lambda: tf.random.normal([70, 700], seed=6),
    "truncated normal": lambda: [tf.random.truncated_normal([3, 19], 1.0, 2.0, dtype, seed=7) for dtype in (tf.float32, tf.float64)],
    "a large truncated normal": lambda: tf.random.truncated_normal([50, 500], seed=7),
    "parameterized truncated normal": lambda: tf.raw_ops.ParameterizedTruncatedNormal(
        shape=[2, 50], means=[0.0, 1.0], stdevs=[1.0, 2.0], minvals=[-1.0, 2.0], maxvals=[1.0, 8.0], seed=1, seed2=2),
    "shuffle": lambda: [tf.random.shuffle(tf.range(30), seed=8), tf.random.shuffle(tf.reshape(tf.range(12.0), [4, 3]), seed=8)],
    "categorical": lambda: tf.random.categorical(LOGITS, 21, seed=9),
    "multinomial": lambda: v1.multinomial(LOGITS.astype(np.float32), 21, seed=9, output_dtype=tf.int32),
    "gamma": lambda: [tf.random.gamma([21], [0.3, 1.0, 5.0], 2.0, dtype, seed=10) for dtype in (tf.float32, tf.float64)],
    "poisson": lambda: [tf.random.poisson([21], RATES, dtype, seed=11) for dtype in (tf.float32, tf.int32, tf.int64)],
    "dropout": lambda: v1.nn.dropout(tf.ones([9, 9]), rate=0.4, seed=12, noise_shape=[9, 1]),
    "crop": lambda: tf.image.random_crop(tf.reshape(tf.range(75), [5, 5, 3]), [3, 3, 3], seed=13),
    "flips and colours": lambda: tf.image.random_brightness(
        tf.image.random_flip_left_right(tf.reshape(tf.range(75.0), [5, 5, 3]) / 75.0, seed=14), 0.2, seed=15),
    "candidates": lambda: [
        sampler(tf.constant([[3], [9]], tf.int64), 1, 8, True, 40, seed=19)
        for sampler in (tf.random.log_uniform_candidate_sampler, tf.random.uniform_candidate_sampler)],
    "candidates learned": lambda: tf.random.learned_unigram_candidate_sampler(tf.constant([[3], [9]], tf.int64), 1, 8, False, 40, seed=19),
    "candidates with weights": lambda: tf.random.fixed_unigram_candidate_sampler(
        tf.constant([[3], [9]], tf.int64), 1, 4, True, 10, unigrams=list(range(1, 11)), seed=20),
    "initializers": lambda: [make(seed=21)([6, 5]) for make in (
        v1.glorot_uniform_initializer, v1.glorot_normal_initializer, v1.truncated_normal_initializer,
        v1.variance_scaling_initializer, v1.random_uniform_initializer, v1.random_normal_initializer)],
    "a seed of the graph alone": lambda: [tf.random.uniform([5]), tf.random.normal([5]), tf.random.shuffle(tf.range(9))],
}

STATELESS = {
    "uniform": lambda seed: [tf.random.stateless_uniform([37], seed, -2, 3, dtype) for dtype in (tf.float32, tf.float64)],
    "uniform integers": lambda seed: [tf.random.stateless_uniform([37], seed, -2, 300, dtype) for dtype in (tf.int32, tf.int64)],
    "all integers": lambda seed: tf.random.stateless_uniform([37], seed, None, None, tf.uint64),
    "normal": lambda seed: [tf.random.stateless_normal([37], seed, dtype=dtype) for dtype in (tf.float32, tf.float64)],
    "truncated normal": lambda seed: tf.random.stateless_truncated_normal([37], seed),
    "categorical": lambda seed: tf.random.stateless_categorical(LOGITS, 21, seed),
    "gamma": lambda seed: tf.random.stateless_gamma([7, 3], seed, [0.3, 1.0, 5.0]),
    "poisson": lambda seed: tf.random.stateless_poisson([7, 3], seed, RATES, tf.int32),
    "binomial": lambda seed: tf.random.stateless_binomial([7, 2], seed, [3.0, 100.0], [0.3, 0.6]),
    "shuffle": lambda seed: tf.random.experimental.stateless_shuffle(tf.range(20), seed),
    "fold and split": lambda seed: [tf.random.experimental.stateless_split(seed, 3), tf.random.experimental.stateless_fold_in(seed, 9)],
    "philox": lambda seed: tf.random.stateless_uniform([37], seed, alg="philox"),
    "parameterized truncated normal": lambda seed: tf.random.stateless_parameterized_truncated_normal([40], seed, 0.0, 1.0, -0.5, 2.0),
}


def outcomes(place, build, feeds):
    return train(place.target, lambda: (build(), None), feeds).steps


def same_bits(server, reference, build, feeds):
    ours, theirs = (outcomes(place, build, feeds) for place in (server, reference))
    for mine, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype


@pytest.mark.parametrize("name", STATEFUL)
def test_the_same_bits(server, reference, name):
    same_bits(server, reference, STATEFUL[name], [{}] * 2)


def test_colours_are_changed_alike(server, reference):
    """The random factors have the same bits; what is computed with them is rounded in another order."""

    def build():
        pixels = tf.reshape(tf.range(75.0), [5, 5, 3]) / 75.0
        pixels = tf.image.random_saturation(tf.image.random_hue(pixels, 0.2, seed=16), 0.5, 1.5, seed=17)
        return tf.image.random_contrast(pixels, 0.5, 1.5, seed=18)

    ours, theirs = (outcomes(place, build, [{}] * 2) for place in (server, reference))
    agree(ours, theirs, 1e-5, 1e-6)


@pytest.mark.parametrize("name", STATELESS)
def test_the_same_bits_without_state(server, reference, name):
    def build():
        return STATELESS[name](v1.placeholder(tf.int32, [2], "seed"))

    same_bits(server, reference, build, [{"seed:0": [1, 2]}, {"seed:0": [-5, 2**31 - 1]}])


def test_a_generator_with_its_state_in_a_variable(server, reference):
    def build():
        generator = tf.random.Generator.from_seed(77, alg="philox")
        with tf.control_dependencies([first := generator.normal([9])]):
            second = generator.uniform([9], maxval=50, dtype=tf.int32)
        with tf.control_dependencies([second]):
            return [first, second, generator.state.read_value()]

    same_bits(server, reference, build, [{}] * 2)
