"""Networks trained step by step on both servers from the same seeds agree."""

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1

STEPS = 15
OPTIMIZERS = {
    "gradient descent": lambda: v1.train.GradientDescentOptimizer(0.05),
    "momentum": lambda: v1.train.MomentumOptimizer(0.02, 0.9),
    "nesterov": lambda: v1.train.MomentumOptimizer(0.02, 0.9, use_nesterov=True),
    "adam": lambda: v1.train.AdamOptimizer(0.002),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.05),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.002, momentum=0.5),
    "centered rmsprop": lambda: v1.train.RMSPropOptimizer(0.002, momentum=0.5, centered=True),
}


def digits(seed, count):
    """Blurred class patterns with noise: as easy to learn as MNIST, and made on the spot."""
    patterns = np.random.default_rng(1).random((10, 28, 28, 1))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = patterns[labels] * 0.7 + rng.random((count, 28, 28, 1)) * 0.3
    return images.astype(np.float32), labels.astype(np.int64)


def variable(name, shape, resource, stddev=0.1):
    init = tf.random.truncated_normal(shape, stddev=stddev, seed=7) if len(shape) > 1 else tf.zeros(shape)
    return v1.Variable(init, name=name, use_resource=resource)


def softmax_net(images, resource):
    flat = tf.reshape(images, [-1, 784])
    return tf.matmul(flat, variable("w", [784, 10], resource)) + variable("b", [10], resource)


def mlp_net(images, resource):
    hidden = tf.reshape(images, [-1, 784])
    for number, (rows, columns) in enumerate([(784, 64), (64, 32)]):
        hidden = tf.matmul(hidden, variable(f"w{number}", [rows, columns], resource))
        hidden = tf.nn.relu(hidden + variable(f"b{number}", [columns], resource))
    return tf.matmul(hidden, variable("w", [32, 10], resource)) + variable("b", [10], resource)


def cnn_net(images, resource):
    hidden = images
    for number, depth in enumerate([4, 8]):
        kernel = variable(f"k{number}", [5, 5, int(hidden.shape[-1]), depth], resource)
        hidden = tf.nn.bias_add(tf.nn.conv2d(hidden, kernel, strides=1, padding="SAME"), variable(f"c{number}", [depth], resource))
        hidden = tf.nn.max_pool2d(tf.nn.relu(hidden), 2, 2, "SAME")
    flat = tf.reshape(hidden, [-1, 7 * 7 * 8])
    return tf.matmul(flat, variable("w", [7 * 7 * 8, 10], resource)) + variable("b", [10], resource)


def train(target, net, optimizer, resource, scope):
    """The losses of STEPS steps and the variables after them."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(3)
        with tf.name_scope(scope):  # keeps the variables of one case apart from those of the next on the server
            images = v1.placeholder(tf.float32, [None, 28, 28, 1])
            labels = v1.placeholder(tf.int64, [None])
            logits = net(images, resource)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            step = OPTIMIZERS[optimizer]().minimize(loss)
            init = v1.global_variables_initializer()
            trained = v1.trainable_variables()
    with v1.Session(target, graph=graph) as session:
        session.run(init)
        losses = []
        for number in range(STEPS):
            x, y = digits(100 + number, 32)
            losses.append(session.run([loss, step], {images: x, labels: y})[0])
        return losses, session.run(trained)


def close_enough(ours, theirs):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-4, atol=2e-5)
    for mine, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=5e-3, atol=5e-4)
    assert ours[0][-1] < ours[0][0]


NETS = {"softmax": softmax_net, "mlp": mlp_net, "cnn": cnn_net}


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_training_agrees_with_tensorflow(server, reference, net, optimizer, resource):
    scope = "_".join([net, optimizer.replace(" ", "_"), str(resource)])
    ours = train(server.target, NETS[net], optimizer, resource, scope)
    theirs = train(reference.target, NETS[net], optimizer, resource, scope)
    close_enough(ours, theirs)


def test_training_repeats_bit_for_bit(server):
    runs = [train(server.target, mlp_net, "adam", True, f"again_{number}") for number in range(2)]
    assert runs[0][0] == runs[1][0]
    for a, b in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_softmax_cross_entropy_of_one_hot_labels_trains_too(server, reference):
    def run(target):
        with tf.Graph().as_default() as graph:
            images = v1.placeholder(tf.float32, [None, 28, 28, 1])
            labels = v1.placeholder(tf.int64, [None])
            logits = softmax_net(images, True)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(labels, 10), logits=logits))
            step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
            init = v1.global_variables_initializer()
        with v1.Session(target, graph=graph) as session:
            session.run(init)
            out = []
            for number in range(STEPS):
                x, y = digits(number, 64)
                out.append(session.run([loss, accuracy, step], {images: x, labels: y})[:2])
            return np.array(out)

    np.testing.assert_allclose(run(server.target), run(reference.target), rtol=1e-3, atol=1e-5)
