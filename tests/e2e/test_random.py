"""Seeds: what repeats and what does not."""

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1

OPS = {
    "uniform": lambda seed, seed2: tf.raw_ops.RandomUniform(shape=[50], dtype=tf.float32, seed=seed, seed2=seed2),
    "normal": lambda seed, seed2: tf.raw_ops.RandomStandardNormal(shape=[50], dtype=tf.float32, seed=seed, seed2=seed2),
    "truncated": lambda seed, seed2: tf.raw_ops.TruncatedNormal(shape=[50], dtype=tf.float32, seed=seed, seed2=seed2),
    "shuffle": lambda seed, seed2: tf.raw_ops.RandomShuffle(value=tf.range(50), seed=seed, seed2=seed2),
}


def three_steps(target, op, seed, seed2, extra=False):
    with tf.Graph().as_default() as graph:
        if extra:
            tf.raw_ops.RandomUniform(shape=[3], dtype=tf.float32, seed=9, seed2=9)
        node = OPS[op](seed, seed2)
    with v1.Session(target, graph=graph) as session:
        return [session.run(node) for _ in range(3)]


@pytest.mark.parametrize("op", OPS)
def test_sessions_repeat_and_steps_differ(server, reference, op):
    first = three_steps(server.target, op, 12, 34)
    second = three_steps(server.target, op, 12, 34)
    theirs = three_steps(reference.target, op, 12, 34)
    for a, b, c in zip(first, second, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])


@pytest.mark.parametrize("op", OPS)
def test_an_unrelated_op_changes_nothing_when_the_op_has_its_own_seeds(server, op):
    plain = three_steps(server.target, op, 12, 34)
    beside = three_steps(server.target, op, 12, 34, extra=True)
    np.testing.assert_array_equal(plain, beside)


@pytest.mark.parametrize("op", OPS)
def test_no_seed_differs_between_sessions(server, op):
    first, second = (three_steps(server.target, op, 0, 0) for _ in range(2))
    assert not np.array_equal(first[0], second[0])


def test_the_stream_goes_on_across_different_runs_of_one_session(server, reference):
    def run(target):
        with tf.Graph().as_default() as graph:
            x = OPS["uniform"](5, 6)
            y, z = x * 2, x + 1
        with v1.Session(target, graph=graph) as session:
            return [session.run(x), session.run(y), session.run([x, z])]

    ours, theirs = run(server.target), run(reference.target)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[2], theirs[2])


def test_graph_seed_through_the_client(server, reference):
    def run(target):
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(42)
            nodes = [tf.random.normal([3, 4]), tf.random.uniform([5], maxval=100, dtype=tf.int32)]
            nodes.append(tf.random.shuffle(tf.range(10)))
        with v1.Session(target, graph=graph) as session:
            return session.run(nodes)

    for a, b in zip(run(server.target), run(reference.target), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_training_with_seeds_repeats_bit_by_bit(server):
    def train(container):
        with tf.Graph().as_default() as graph, graph.container(container):
            v1.set_random_seed(7)
            x = tf.random.normal([16, 8])
            weights = v1.get_variable("weights", [8, 4], initializer=v1.glorot_uniform_initializer(), use_resource=True)
            hidden = v1.nn.dropout(tf.nn.relu(tf.matmul(x, weights)), rate=0.3)
            loss = tf.reduce_mean(tf.square(hidden - tf.random.uniform([16, 4])))
            step = v1.train.AdamOptimizer(0.05).minimize(loss)
            init = v1.global_variables_initializer()
            read = weights.read_value()
        with v1.Session(server.target, graph=graph) as session:
            session.run(init)
            losses = [session.run([loss, step])[0] for _ in range(20)]
            return losses, session.run(read)

    first, second = train("seeds.first"), train("seeds.second")
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert len(set(first[0])) > 10
