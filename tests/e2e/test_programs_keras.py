"""Layers and networks of Keras in graphs of sessions: Keras builds, the session assigns weights, trains and infers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import agree, fresh_container

v1 = tf.compat.v1


def run_model(target, build, feeds):
    """What a program of Keras layers gives; `build` returns what to fetch with each feed."""
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.set_random_seed(3)
        tf.keras.utils.set_random_seed(3)
        fetches, init = build()
    with v1.Session(target, graph=graph) as session:
        session.run(init)
        return [session.run(fetches, feed) for feed in feeds]


@pytest.mark.parametrize("layers", [
    lambda k: [k.Conv2D(4, 3, activation="relu"), k.BatchNormalization(), k.MaxPooling2D(), k.Flatten(), k.Dense(5, "softmax")],
    lambda k: [k.SeparableConv2D(6, 3, strides=2, padding="same"), k.LayerNormalization(), k.Activation("gelu"),
               k.GlobalAveragePooling2D(), k.Dense(5)],
    lambda k: [k.Conv2DTranspose(3, 3, strides=2), k.UpSampling2D(), k.AveragePooling2D(3), k.GlobalMaxPooling2D(), k.Dense(5, "elu")],
], ids=["convolution", "separable", "transposed"])
def test_keras_layers(server, reference, layers):
    """Keras builds the graph; the session assigns the weights that numpy draws, and trains with an optimizer of v1."""

    def build():
        images = v1.placeholder(tf.float32, [4, 12, 12, 3], "images")
        x = images
        weights = []
        for layer in layers(tf.keras.layers):
            x = layer(x)
            weights += layer.weights
        rng = np.random.default_rng(1)
        init = tf.group(*[weight.value.assign(np.abs(rng.standard_normal(weight.shape)) * 0.2) for weight in weights])
        loss = tf.reduce_mean(tf.square(x - 0.5))
        trained = [weight.value for weight in weights if weight.trainable]
        step = v1.train.GradientDescentOptimizer(0.05).minimize(loss, var_list=trained)
        with tf.control_dependencies([step]):
            return [loss, [variable.read_value() for variable in trained]], init

    images = np.random.default_rng(2).random([4, 12, 12, 3]).astype(np.float32)
    ours, theirs = (run_model(place.target, build, [{"images:0": images}] * 3) for place in (server, reference))
    agree(ours, theirs, 2e-3, 2e-4)
    assert ours[-1][0] < ours[0][0]


NETWORKS = {
    "MobileNetV2": (32, lambda nets, shape: nets.MobileNetV2(input_shape=shape, alpha=0.35, weights=None, classes=10)),
    "EfficientNetB0": (32, lambda nets, shape: nets.EfficientNetB0(input_shape=shape, weights=None, classes=10)),
    "DenseNet121": (32, lambda nets, shape: nets.DenseNet121(input_shape=shape, weights=None, classes=10)),
    "InceptionV3": (75, lambda nets, shape: nets.InceptionV3(input_shape=shape, weights=None, classes=10)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_infer(server, reference, name):
    """Weights keep the size of what passes, so that the scores tell inputs apart."""
    rng = np.random.default_rng(1)
    side, make = NETWORKS[name]
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        model = make(tf.keras.applications, (side, side, 3))
        images = v1.placeholder(tf.float32, [None, side, side, 3])
        scores = model(images, training=False)
        weights = {}
        for weight in model.weights:
            shape = [int(size) for size in weight.shape]
            spread = rng.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[:-1]))
            weights[v1.placeholder(weight.dtype, shape)] = spread if len(shape) > 1 else rng.uniform(0.9, 1.1, shape)
        init = tf.group(*[weight.value.assign(value) for weight, value in zip(model.weights, weights, strict=True)])
    pictures = rng.random([2, side, side, 3])
    found = []
    for place in (server, reference):
        with v1.Session(place.target, graph=graph) as session:
            session.run(init, weights)
            found.append(session.run(scores, {images: pictures}))
    agree(*found, 2e-3, 1e-5)
    np.testing.assert_allclose(found[0].sum(1), 1.0, rtol=1e-5)
