"""What is timed. A workload builds a graph and says how one step of it is run."""

import dataclasses

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


@dataclasses.dataclass
class Work:
    """`step(session, n)` runs step number n and returns a number that both servers must agree on within `rtol`."""

    step: object
    init: object = None
    rtol: float = 1e-6


def scalar():
    """One placeholder plus one: the latency of a RunStep."""
    x = v1.placeholder(tf.float32, [])
    y = x + 1.0
    return Work(lambda session, n: session.run(y, {x: n}))


def targets_only():
    """A RunStep that carries no tensor at all."""
    nothing = tf.no_op()

    def step(session, _n):
        session.run(nothing)
        return 0.0

    return Work(step)


def chain():
    """10,000 scalar nodes in a row, which no optimiser can fold."""
    x = v1.placeholder(tf.float32, [])
    y = x
    for i in range(5000):
        y = tf.minimum(tf.maximum(y, -float(i)), float(i) + 1e6)
    return Work(lambda session, n: session.run(y, {x: n % 7}))


def wide():
    """1,000 independent chains of ten nodes, added up."""
    x = v1.placeholder(tf.float32, [])
    ends = []
    for i in range(1000):
        y = x
        for j in range(5):
            y = tf.minimum(tf.maximum(y, -float(i + j)), float(i) + 1e6)
        ends.append(y)
    total = tf.add_n(ends)
    return Work(lambda session, n: session.run(total, {x: n % 7}))


def loop():
    """10,000 rounds of a scalar tf.while_loop in the v1 form."""
    v1.disable_control_flow_v2()
    x = v1.placeholder(tf.int32, [])
    y = v1.while_loop(lambda i, s: i < 10000, lambda i, s: (i + 1, s + i), [0, x])[1]
    return Work(lambda session, n: session.run(y, {x: n}))


def feed_fetch():
    """16 MB to the server and back."""
    x = v1.placeholder(tf.float32, [None])
    y = tf.identity(x)
    value = np.random.default_rng(0).random(4 << 20, dtype=np.float32)
    return Work(lambda session, n: float(session.run(y, {x: value})[n]))


def small_feeds():
    """100 small tensors to the server and back."""
    fed = [v1.placeholder(tf.float32, [8]) for _ in range(100)]
    fetched = [x * 2.0 for x in fed]
    value = np.arange(8, dtype=np.float32)
    return Work(lambda session, n: float(session.run(fetched, dict.fromkeys(fed, value + n))[7][3]))


def matmul():
    """A product of two 1024 x 1024 matrices that stay on the server."""
    a = v1.Variable(tf.random.uniform([1024, 1024], seed=1), use_resource=True)
    b = v1.Variable(tf.random.uniform([1024, 1024], seed=2), use_resource=True)
    y = tf.matmul(a, b)[3, 5]
    return Work(lambda session, _n: session.run(y), v1.variables_initializer([a, b]), rtol=1e-5)


def elementwise():
    """tanh(a * b + a) over four million floats that stay on the server, reduced to their sum."""
    a = v1.Variable(tf.random.uniform([2048, 2048], seed=1), use_resource=True)
    b = v1.Variable(tf.random.uniform([2048, 2048], seed=2), use_resource=True)
    y = tf.reduce_sum(tf.tanh(a * b + a))
    return Work(lambda session, _n: session.run(y), v1.variables_initializer([a, b]), rtol=1e-4)


def batches(batch, classes=10):
    rng = np.random.default_rng(0)
    images = rng.random((16, batch, 28, 28, 1), dtype=np.float32)
    return images, rng.integers(0, classes, (16, batch))


def weights(*shape):
    deviation = (2.0 / np.prod(shape[:-1])) ** 0.5
    return v1.Variable(tf.random.truncated_normal(shape, stddev=deviation, seed=4), use_resource=True)


def training(network, optimizer, batch):
    """The Work of training `network` on random digits, a batch a step."""
    x, y = v1.placeholder(tf.float32, [None, 28, 28, 1]), v1.placeholder(tf.int64, [None])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=network(x)))
    train = optimizer.minimize(loss)
    images, labels = batches(batch)

    def step(session, n):
        return session.run([loss, train], {x: images[n % 16], y: labels[n % 16]})[0]

    return Work(step, v1.global_variables_initializer(), rtol=2e-2)


def mlp():
    """784-128-10, batch 64, Adam."""

    def network(x):
        hidden = tf.nn.relu(tf.matmul(tf.reshape(x, [-1, 784]), weights(784, 128)))
        return tf.matmul(hidden, weights(128, 10))

    return training(network, v1.train.AdamOptimizer(1e-3), 64)


def cnn():
    """conv 5x5x32, pool, conv 5x5x64, pool, dense 512, batch 64, momentum."""

    def network(x):
        for depth in (32, 64):
            x = tf.nn.relu(tf.nn.conv2d(x, weights(5, 5, int(x.shape[-1]), depth), strides=1, padding="SAME"))
            x = tf.nn.max_pool2d(x, 2, 2, "SAME")
        hidden = tf.nn.relu(tf.matmul(tf.reshape(x, [-1, 3136]), weights(3136, 512)))
        return tf.matmul(hidden, weights(512, 10))

    return training(network, v1.train.MomentumOptimizer(1e-3, 0.9), 64)


WORKLOADS = [scalar, targets_only, chain, wide, loop, feed_fetch, small_feeds, matmul, elementwise, mlp, cnn]
