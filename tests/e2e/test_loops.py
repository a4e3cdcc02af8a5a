"""Loops and branches through the client, and steps that are cancelled while they loop."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def v1_control_flow():
    v1.disable_control_flow_v2()


def both(server, reference, build):
    """What `build` (fetches, feeds) gives on graphmill and on TensorFlow's server."""
    results = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default() as graph:
            fetches, feeds = build()
        with v1.Session(target, graph=graph) as session:
            results.append(session.run(fetches, feeds))
    return results


def test_gradient_through_a_recurrent_network(server, reference):
    def build():
        rng = np.random.default_rng(0)
        x = v1.placeholder(tf.float32, [6, 4, 3])
        w = tf.constant(rng.normal(0, 0.5, (3 + 5, 5)), tf.float32)

        def body(i, state, total):
            state = tf.tanh(tf.matmul(tf.concat([x[i], state], 1), w))
            return i + 1, state, total + tf.reduce_sum(state * state)

        start = (tf.constant(0), tf.zeros([4, 5]), tf.constant(0.0))
        total = v1.while_loop(lambda i, *_: i < 6, body, start)[2]
        return [total, tf.gradients(total, [w, x])], {x: rng.normal(0, 1, (6, 4, 3))}

    ours, theirs = both(server, reference, build)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for mine, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("parallel", [1, 10])
def test_nested_loops_count_every_round(server, parallel):
    def inner(total):
        return v1.while_loop(lambda j, t: j < 3, lambda j, t: (j + 1, t + 1), [0, total], parallel_iterations=parallel)[1]

    total = v1.while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, inner(t)), [0, 0], parallel_iterations=parallel)[1]
    with v1.Session(server.target) as session:
        assert [int(session.run(total)) for _ in range(100)] == [15] * 100


def test_loop_that_updates_a_variable(server):
    counter = v1.Variable(0, use_resource=True, name="loop_counter")

    def body(i):
        with tf.control_dependencies([counter.assign_add(2)]):
            return i + 1

    loop = v1.while_loop(lambda i: i < 50, body, [0], parallel_iterations=1)
    with v1.Session(server.target) as session:
        session.run(counter.initializer)
        session.run(loop)
        assert session.run(counter) == 100


def endless():
    return v1.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [0])


def test_close_ends_a_running_step(server):
    loop = endless()
    session = v1.Session(server.target)
    session.run(tf.constant(1))
    outcome = []

    def run():
        try:
            outcome.append(session.run(loop))
        except tf.errors.OpError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    started = time.monotonic()
    session.close()
    took = time.monotonic() - started
    thread.join(10)
    assert took < 10
    assert isinstance(outcome[0], tf.errors.CancelledError)


def test_timeout_ends_a_step_and_spares_the_session(server):
    loop = endless()
    with v1.Session(server.target) as session:
        started = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(loop, options=v1.RunOptions(timeout_in_ms=500))
        assert 0.4 < time.monotonic() - started < 20
        assert session.run(tf.constant(5)) == 5


def test_operation_timeout_of_the_session(server):
    config = v1.ConfigProto(operation_timeout_in_ms=500)
    loop = endless()
    with v1.Session(server.target, config=config) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(loop)


def test_failure_inside_a_loop_names_the_node(server):
    def body(i):
        with tf.control_dependencies([v1.Assert(i < 3, ["too far:", i], name="limit")]):
            return i + 1

    loop = v1.while_loop(lambda i: i < 10, body, [0])
    with v1.Session(server.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="too far") as caught:
            session.run(loop)
        assert "limit" in caught.value.op.name
