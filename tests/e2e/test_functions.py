"""Control flow of TensorFlow 2 and calls of functions, in graphs of sessions: the server turns them into v1 control flow."""

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def v2_control_flow():
    v1.enable_control_flow_v2()
    yield
    v1.disable_control_flow_v2()


def both(server, reference, build, feeds):
    """What `build` (fetches of placeholders `x` and `n`) gives on graphmill and on TensorFlow's server, for each feed."""
    results = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default() as graph:
            x, n = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.int32, [])
            fetches = build(x, n)
        with v1.Session(target, graph=graph) as session:
            results.append([session.run(fetches, {x: feed[0], n: feed[1]}) for feed in feeds])
    return results


FEEDS = [([1.0, 2.0], 0), ([1.0, -2.0], 1), ([0.5, 3.0], 7)]


def same(server, reference, build):
    ours, theirs = both(server, reference, build, FEEDS)
    for mine, other in zip(ours, theirs, strict=True):
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), mine, other)


def test_while(server, reference):
    def build(x, n):
        return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 1.5 + x), [0, x])

    same(server, reference, build)


def test_nested_while_with_a_branch(server, reference):
    def build(x, n):
        def inner(y):
            return tf.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, z + 1.0), [0, y])[1]

        def body(i, y):
            return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: inner(y), lambda: y * 0.5)

        return tf.while_loop(lambda i, y: i < n, body, [0, x])

    same(server, reference, build)


def test_cond(server, reference):
    def build(x, n):
        return tf.cond(n > 0, lambda: (tf.reduce_sum(x * x), x), lambda: (tf.reduce_sum(tf.exp(x)), -x))

    same(server, reference, build)


def test_switch_case(server, reference):
    def build(x, n):
        return tf.switch_case(n, [lambda: x, lambda: x + 10.0, lambda: tf.zeros([2])], default=lambda: -x)

    same(server, reference, build)


def test_function_called_in_a_loop(server, reference):
    @tf.function
    def step(y):
        return tf.tanh(y) + tf.constant(0.25)

    def build(x, n):
        return [step(x), tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, step(y)), [0, x])]

    same(server, reference, build)


def test_side_effects_of_the_branch_taken_alone(server, reference):
    results = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default() as graph:
            taken = v1.placeholder(tf.bool, [])
            counter = v1.Variable(0, use_resource=True, name="branch_counter")

            def add(amount):
                def branch():
                    with tf.control_dependencies([counter.assign_add(amount)]):
                        return tf.constant(amount)

                return branch

            chosen = tf.cond(taken, add(1), add(100))
        with v1.Session(target, graph=graph) as session:
            session.run(counter.initializer)
            chosen = [int(session.run(chosen, {taken: value})) for value in (True, False, True)]
            results.append((chosen, int(session.run(counter))))
    assert results[0] == results[1] == ([1, 100, 1], 102)


def test_failure_inside_a_function_names_its_node(server):
    @tf.function
    def check(y):
        with tf.control_dependencies([v1.Assert(y > 0, ["not positive:", y], name="positive")]):
            return tf.identity(y)

    x = v1.placeholder(tf.float32, [])
    y = check(x)
    with v1.Session(server.target) as session:
        assert session.run(y, {x: 2.0}) == 2.0
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"not positive:[\s\S]*positive"):
            session.run(y, {x: -2.0})
