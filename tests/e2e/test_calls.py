"""Functions that stay calls: functional control flow that is not lowered, gradients of functions, lists and arrays in loops."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops, gen_functional_ops

v1 = tf.compat.v1
FLOAT, INT = tf.float32, tf.int32


def both(server, reference, build, feeds):
    """What `build` (fetches of placeholders `x` and `n`) gives on graphmill and on TensorFlow's server, for each feed."""
    results = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default() as graph:
            x, n = v1.placeholder(FLOAT, [2]), v1.placeholder(INT, [])
            fetches = build(x, n)
        with v1.Session(target, graph=graph) as session:
            results.append([session.run(fetches, {x: feed[0], n: feed[1]}) for feed in feeds])
    for mine, other in zip(*results, strict=True):
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), mine, other)
    return results[0]


FEEDS = [([1.0, 2.0], 0), ([1.0, -2.0], 1), ([0.5, 3.0], 7)]


def test_while_if_and_for_as_calls(server, reference):
    @function.Defun(INT, FLOAT, INT)
    def goes_on(i, y, n):
        return i < n

    @function.Defun(INT, FLOAT, INT)
    def body(i, y, n):
        return i + 1, y * 1.5 + 1.0, n

    @function.Defun(INT, FLOAT)
    def add(i, y):
        return y + tf.cast(i, FLOAT)

    @function.Defun(FLOAT)
    def double(y):
        return y * 2.0

    @function.Defun(FLOAT)
    def negate(y):
        return -y

    def build(x, n):
        loop = functional_ops.While([0, x, n], goes_on, body)
        branch = functional_ops.If(n, [x], double, negate)
        counted = functional_ops.For(0, n, 1, [x], add)
        return [*loop, *branch, *counted]

    both(server, reference, build, FEEDS)


def test_a_long_loop_of_calls(server, reference):
    @function.Defun(INT, INT)
    def goes_on(i, total):
        return i < 20000

    @function.Defun(INT, INT)
    def body(i, total):
        return i + 1, total + i

    def build(x, n):
        return functional_ops.While([0, n], goes_on, body)

    both(server, reference, build, [([0.0, 0.0], 5)])


def test_gradients_of_functions(server, reference):
    @function.Defun(FLOAT, FLOAT)
    def inner(a, b):
        return tf.tanh(a * b) + tf.reduce_sum(a, keepdims=True)

    @function.Defun(FLOAT, FLOAT)
    def outer(a, b):
        y = inner(a, b)
        z = tf.sqrt(tf.square(y) + 1.0)
        return z, tf.matmul(tf.reshape(z, [1, 2]), tf.reshape(b, [2, 1]))

    def build(x, n):
        b = x * 0.5 + 1.0
        z, product = outer(x, b)
        return tf.gradients([z, product], [x, b])

    both(server, reference, build, FEEDS)


def test_a_function_with_a_gradient_of_its_own(server, reference):
    @function.Defun(FLOAT, FLOAT)
    def gradient(a, dy):
        return dy * 100.0 + a

    @function.Defun(FLOAT, grad_func=gradient)
    def square(a):
        return a * a

    def build(x, n):
        y = square(x)
        return [y, tf.gradients(y, x)[0]]

    both(server, reference, build, FEEDS)


def test_arrays_in_loops_and_their_gradients(server, reference):
    def build(x, n):
        steps = n + 2
        array = tf.TensorArray(FLOAT, size=steps, element_shape=[2])
        _, y, array = v1.while_loop(
            lambda i, y, a: i < steps, lambda i, y, a: (i + 1, tf.sin(y) * x, a.write(i, y)), [0, x, array]
        )
        stacked = array.stack()
        loss = tf.reduce_sum(stacked * stacked) + tf.reduce_sum(y)
        return [stacked, tf.gradients(loss, x)[0]]

    both(server, reference, build, FEEDS)
    v1.enable_control_flow_v2()
    try:
        both(server, reference, build, FEEDS)
    finally:
        v1.disable_control_flow_v2()


def test_a_call_on_the_own_device(server):
    @function.Defun(FLOAT)
    def double(y):
        return y * 2.0

    x = tf.constant([1.0, 2.0])
    device = "/device:CPU:0"
    own, other = (
        gen_functional_ops.remote_call(args=[x], Tout=[FLOAT], f=double, target=target)[0] for target in (device, "/job:ps/task:7/cpu:0")
    )
    with v1.Session(server.target) as session:
        np.testing.assert_equal(session.run(own), [2.0, 4.0])
        with pytest.raises(tf.errors.InvalidArgumentError, match="/job:ps/replica:0/task:7/device:CPU:0"):
            session.run(other)


def test_a_failure_in_a_call_names_the_node(server):
    @function.Defun(FLOAT, func_name="checked")
    def checked(y):
        with tf.control_dependencies([v1.Assert(tf.reduce_all(y > 0), ["not positive"], name="positive")]):
            return tf.identity(y)

    x = v1.placeholder(FLOAT, [2])
    y = functional_ops.If(tf.constant(1), [x], checked, checked)[0]
    with v1.Session(server.target) as session:
        np.testing.assert_equal(session.run(y, {x: [1.0, 2.0]}), [1.0, 2.0])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"not positive[\s\S]*positive/Assert"):
            session.run(y, {x: [1.0, -2.0]})
        np.testing.assert_equal(session.run(y, {x: [1.0, 2.0]}), [1.0, 2.0])
