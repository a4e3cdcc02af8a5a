"""Convolutional networks with batch normalization: residual, and depthwise separable."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import train_on_both

v1 = tf.compat.v1


class Layers:
    """Layers with batch normalization. `training` is known, or a tensor that tells."""

    def __init__(self, training):
        self.training = training
        self.updates = []
        self.count = 0

    def variable(self, name, shape, initializer, trainable=True):
        self.count += 1
        return v1.get_variable(f"{name}{self.count}", shape, initializer=initializer, trainable=trainable)

    def conv(self, x, depth, size, stride):
        kernel = self.variable("kernel", [size, size, int(x.shape[-1]), depth], v1.variance_scaling_initializer(2.0))
        return tf.nn.conv2d(x, kernel, stride, "SAME")

    def depthwise(self, x, stride):
        kernel = self.variable("depthwise", [3, 3, int(x.shape[-1]), 1], v1.variance_scaling_initializer(2.0))
        return tf.nn.depthwise_conv2d(x, kernel, [1, stride, stride, 1], "SAME")

    def norm(self, x):
        depth = [int(x.shape[-1])]
        scale, offset = (self.variable(name, depth, make()) for name, make in
                         [("gamma", v1.ones_initializer), ("beta", v1.zeros_initializer)])
        mean, variance = (self.variable(name, depth, make(), trainable=False) for name, make in
                          [("mean", v1.zeros_initializer), ("variance", v1.ones_initializer)])

        def of_batch():
            return v1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-3)[:3]

        def of_averages():
            return v1.nn.fused_batch_norm(x, scale, offset, mean, variance, epsilon=1e-3, is_training=False)[:3]

        if isinstance(self.training, bool):
            y, batch_mean, batch_variance = of_batch() if self.training else of_averages()
        else:
            y, batch_mean, batch_variance = tf.cond(self.training, of_batch, of_averages)
        for average, value in [(mean, batch_mean), (variance, batch_variance)]:
            self.updates.append(average.assign_sub(0.1 * (average - value)))
        y.set_shape(x.shape)
        return y

    def dense(self, x, units):
        kernel = self.variable("dense", [int(x.shape[-1]), units], v1.glorot_uniform_initializer())
        return tf.nn.bias_add(tf.matmul(x, kernel), self.variable("bias", [units], v1.zeros_initializer()))


def residual_net(layers, x):
    """ResNet-20 of the CIFAR kind, of a quarter of its width."""
    x = tf.nn.relu(layers.norm(layers.conv(x, 4, 3, 1)))
    for depth, first in [(4, 1), (8, 2), (16, 2)]:
        for stride in (first, 1, 1):
            y = tf.nn.relu(layers.norm(layers.conv(x, depth, 3, stride)))
            y = layers.norm(layers.conv(y, depth, 3, 1))
            if stride != 1:
                x = tf.pad(x[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [depth // 4, depth // 4]])
            x = tf.nn.relu(x + y)
    return layers.dense(tf.reduce_mean(x, [1, 2]), 4)


def separable_net(layers, x):
    x = tf.nn.relu6(layers.norm(layers.conv(x, 8, 3, 2)))
    for depth, stride in [(8, 1), (16, 2), (16, 1), (24, 2)]:
        y = tf.nn.relu6(layers.norm(layers.conv(x, 2 * int(x.shape[-1]), 1, 1)))
        y = tf.nn.relu6(layers.norm(layers.depthwise(y, stride)))
        y = layers.norm(layers.conv(y, depth, 1, 1))
        x = x + y if stride == 1 and depth == int(x.shape[-1]) else y
    pooled = tf.nn.avg_pool2d(x, 2, 2, "VALID")
    return layers.dense(tf.reshape(tf.nn.dropout(pooled, rate=0.2), [-1, 24]), 4)


def pictures(step, training=True, count=8):
    rng = np.random.default_rng(20 + step % 2)
    labels = rng.integers(0, 4, count)
    images = rng.random([count, 16, 16, 3]) * 0.5 + labels[:, None, None, None] * np.array([0.3, -0.2, 0.1])
    return {"images:0": images.astype(np.float32), "labels:0": labels.astype(np.int32), "training:0": training}


CASES = pytest.mark.parametrize(
    ("net", "known"), [(residual_net, True), (separable_net, False)], ids=["residual", "depthwise separable"])


def mode(known, training):
    placeholder = v1.placeholder(tf.bool, [], "training")
    return training if known else placeholder


@CASES
def test_batch_normalized_networks(server, reference, net, known):
    def build():
        images = v1.placeholder(tf.float32, [None, 16, 16, 3], "images")
        labels = v1.placeholder(tf.int32, [None], "labels")
        layers = Layers(mode(known, True))
        logits = net(layers, images)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        decay = 1e-4 * tf.add_n([tf.nn.l2_loss(variable) for variable in v1.trainable_variables()])
        with tf.control_dependencies(layers.updates):
            step = v1.train.MomentumOptimizer(0.02, 0.9).minimize(loss + decay)
        return [loss, logits], step

    feeds = [pictures(step) for step in range(3)]
    train_on_both(server, reference, build, feeds, rtol=5e-3, atol=2e-3, improves=False)


@CASES
def test_inference_with_moving_averages(server, reference, net, known):
    def build():
        images = v1.placeholder(tf.float32, [None, 16, 16, 3], "images")
        v1.placeholder(tf.int32, [None], "labels")
        logits = net(Layers(mode(known, False)), images)
        return [logits, tf.nn.softmax(logits), tf.nn.top_k(logits, 2), tf.nn.in_top_k([1] * 8, logits, 2)], None

    train_on_both(server, reference, build, [pictures(0, training=False)], atol=1e-4, improves=False)
