"""Graphs as TensorFlow's optimiser hands them to workers: its fused ops give what the ops they stand for give."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1

# oneDNN is on or off for a whole process, so that the optimiser has its own.
OPTIMISER = """
import sys
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer
config = config_pb2.ConfigProto()
options = config.graph_options.rewrite_options
options.min_graph_nodes = -1
options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.TWO
graph = tf_optimizer.OptimizeGraph(config, meta_graph_pb2.MetaGraphDef.FromString(sys.stdin.buffer.read()))
sys.stdout.buffer.write(graph.SerializeToString())
"""
SHAPES = {"image": (2, 6, 6, 8), "volume": (1, 4, 5, 6, 4), "matrix": (4, 8)}


def optimised(graph, fetches, onednn):
    meta = v1.train.export_meta_graph(graph_def=graph.as_graph_def(), graph=graph)
    meta.collection_def["train_op"].node_list.value.extend(fetches)
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(onednn))}
    command = [sys.executable, "-c", OPTIMISER]
    done = subprocess.run(command, input=meta.SerializeToString(), env=environment, capture_output=True, check=True)
    result = tf.compat.v1.GraphDef.FromString(done.stdout)
    for node in result.node:
        node.device = ""
    return result


def weights(*dims):
    return tf.constant(np.random.default_rng(sum(dims)).normal(size=dims).astype(np.float32))


def convolution(x, size=3):
    return tf.nn.bias_add(tf.nn.conv2d(x, weights(size, size, 8, 8), 1, "SAME"), weights(8))


def product(x):
    return tf.nn.bias_add(tf.matmul(x, weights(8, 8)), weights(8))


def normalised(x, training):
    moments = (None, None) if training else (weights(8), tf.abs(weights(8)))
    return v1.nn.fused_batch_norm(x, weights(8), weights(8), *moments, is_training=training)[0]


def convolutions(image, volume, matrix):
    del matrix
    for activation in (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.leaky_relu, tf.nn.sigmoid, tf.nn.tanh):
        yield activation(convolution(image))
    yield tf.nn.relu6(tf.nn.bias_add(tf.nn.depthwise_conv2d(image, weights(3, 3, 8, 1), [1] * 4, "SAME"), weights(8)))
    filters = weights(2, 2, 2, 4, 4)
    yield tf.nn.relu(tf.nn.bias_add(tf.nn.conv3d(volume, filters, [1] * 5, "SAME"), weights(4)))
    padded = tf.pad(volume, [[0, 0], [1, 1], [1, 1], [1, 1], [0, 0]])
    yield tf.nn.relu(tf.nn.bias_add(tf.nn.conv3d(padded, filters, [1] * 5, "VALID"), weights(4)))
    yield tf.nn.relu(convolution(image, 1) + image * 1.5)


def products(image, volume, matrix):
    del image, volume
    for activation in (tf.nn.relu, tf.nn.elu, tf.tanh, tf.sigmoid, tf.nn.leaky_relu):
        yield activation(product(matrix))
    for approximate in (False, True):
        yield tf.nn.gelu(product(matrix), approximate=approximate)
    yield product(matrix) + matrix * 2.0
    yield tf.sqrt(tf.exp(matrix))


def normalisations(image, volume, matrix):
    del volume, matrix
    for training in (False, True):
        yield tf.nn.relu(normalised(image, training))
        yield tf.nn.relu(normalised(tf.nn.conv2d(image, weights(1, 1, 8, 8), 1, "SAME"), training))
        yield tf.nn.relu(normalised(image, training) + image)
    rows = tf.reshape(image, [12, 6, 8])
    mean, variance = tf.nn.moments(rows, [2], keepdims=True)
    yield tf.nn.batch_normalization(rows, mean, variance, weights(8), weights(8), 1e-3)


def gates(image, volume, matrix):
    del volume
    yield matrix * tf.sigmoid(matrix)
    yield image * tf.tanh(tf.nn.softplus(image))
    for gate in (tf.sigmoid, lambda x: tf.tanh(tf.nn.softplus(x)), lambda x: tf.nn.relu6(x + 3.0) * (1 / 6.0)):
        summed = convolution(image)
        yield summed * gate(summed)


EXPECTED = {
    convolutions: {"_FusedConv2D", "_FusedConv3D", "_FusedDepthwiseConv2dNative"},
    products: {"_FusedMatMul", "_UnaryOpsComposition"},
    normalisations: {"_FusedBatchNormEx", "_MklLayerNorm"},
    gates: {"_FusedConv2D", "_MklFusedMish", "_MklSwish"},
}


@pytest.mark.ours_only
@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("program", EXPECTED, ids=lambda program: program.__name__)
def test_fused_ops_give_what_they_stand_for(server, reference, program, onednn):
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    with tf.Graph().as_default() as graph, tf.device(device):
        inputs = {name: v1.placeholder(tf.float32, shape, name) for name, shape in SHAPES.items()}
        fetches = [tf.identity(result, f"result{i}").name for i, result in enumerate(program(**inputs))]
    rewritten = optimised(graph, fetches, onednn)
    if onednn:
        assert EXPECTED[program] <= {node.op for node in rewritten.node}
    plain = graph.as_graph_def()
    for node in plain.node:
        node.device = ""
    used = {node.name for node in rewritten.node}
    feeds = {f"{name}:0": np.random.default_rng(1).normal(size=shape) for name, shape in SHAPES.items() if name in used}
    results = []
    for definition, target in ((rewritten, server.target), (plain, reference.target)):
        with tf.Graph().as_default() as own:
            tf.import_graph_def(definition, name="")
        with v1.Session(target, graph=own) as session:
            results.append(session.run(fetches, feeds))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)
