"""Steps that run at the same time and are worked on in one batch."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function

v1 = tf.compat.v1
raw = tf.raw_ops
CLIENTS = 6


def each(count, body):
    """`body(i)` for each client, all at once; what they return or raise."""
    outcomes = [None] * count

    def run(i):
        try:
            outcomes[i] = body(i)
        except tf.errors.OpError as error:
            outcomes[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return outcomes


def batch_function(body, inputs, captured=(), types=None, **attrs):
    declared = function.Defun(*[x.dtype for x in (*inputs, *captured)])(body)
    options = dict(num_batch_threads=2, max_batch_size=100, batch_timeout_micros=5_000_000, max_enqueued_batches=10)
    return raw.BatchFunction(
        in_tensors=inputs,
        captured_tensors=list(captured),
        f=declared,
        Tout=types or [x.dtype for x in inputs],
        **{**options, **attrs},
    )


def with_total(x):
    """Each row with the number of rows in the batch."""
    return tf.fill([tf.shape(x)[0]], tf.shape(x)[0]) * 1000 + x


@pytest.mark.parametrize("place", ["server", "reference"])
def test_clients_share_a_batch(place, request):
    target = request.getfixturevalue(place).target
    x = v1.placeholder(tf.int32, [None])
    (y,) = batch_function(with_total, [x], max_batch_size=CLIENTS * 2)
    with v1.Session(target) as session:
        outcomes = each(CLIENTS, lambda i: session.run(y, {x: [i, i + 100]}).tolist())
    total = CLIENTS * 2 * 1000
    assert outcomes == [[total + i, total + i + 100] for i in range(CLIENTS)]


def test_a_batch_that_stays_small_runs_in_time(server):
    x = v1.placeholder(tf.int32, [None])
    (y,) = batch_function(with_total, [x], batch_timeout_micros=50_000)
    with v1.Session(server.target) as session:
        assert session.run(y, {x: [1, 2, 3]}).tolist() == [3001, 3002, 3003]
        assert session.run(y, {x: np.zeros(0, np.int32)}).tolist() == []


def test_sizes_are_padded_or_cut(server):
    x = v1.placeholder(tf.int32, [None])
    padded = batch_function(with_total, [x], batch_timeout_micros=1000, max_batch_size=8, allowed_batch_sizes=[2, 4, 8])
    split = batch_function(
        with_total, [x], batch_timeout_micros=1000, max_batch_size=9, allowed_batch_sizes=[2, 4],
        enable_large_batch_splitting=True,
    )
    down = batch_function(
        with_total, [x], batch_timeout_micros=1_000_000, max_batch_size=8, allowed_batch_sizes=[2, 4, 8],
        batch_padding_policy="BATCH_DOWN",
    )
    with v1.Session(server.target) as session:
        assert session.run(padded[0], {x: [1, 2, 3]}).tolist() == [4001, 4002, 4003]
        assert session.run(split[0], {x: range(9)}).tolist() == [4000, 4001, 4002, 4003, 4004, 4005, 4006, 4007, 2008]
        outcomes = each(5, lambda i: session.run(down[0], {x: [i]}).tolist()[0])
    assert sorted(value // 1000 for value in outcomes) == [2, 4, 4, 4, 4]
    assert sorted(value % 1000 for value in outcomes) == [0, 1, 2, 3, 4]


def test_a_failure_reaches_all_of_the_batch(server):
    def fails(x):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x < 3), [x])]):
            return tf.identity(x)

    x = v1.placeholder(tf.int32, [None])
    (y,) = batch_function(fails, [x], max_batch_size=4)
    with v1.Session(server.target) as session:
        outcomes = each(4, lambda i: session.run(y, {x: [i]}))
    assert all(isinstance(outcome, tf.errors.InvalidArgumentError) for outcome in outcomes)
    assert all("assertion failed" in outcome.message for outcome in outcomes)


def test_a_client_that_gives_up_leaves_the_batch(server):
    x = v1.placeholder(tf.int32, [None])
    (y,) = batch_function(with_total, [x], max_batch_size=3, batch_timeout_micros=1_500_000)
    with v1.Session(server.target) as session:

        def run(i):
            limit = v1.RunOptions(timeout_in_ms=300) if i == 0 else None
            return session.run(y, {x: [i]}, options=limit).tolist()

        started = time.monotonic()
        outcomes = each(2, run)
        assert isinstance(outcomes[0], tf.errors.DeadlineExceededError)
        assert outcomes[1] == [1001]
        assert time.monotonic() - started < 30


def test_a_full_queue_is_said(server):
    x = v1.placeholder(tf.int32, [None])
    (y,) = batch_function(
        lambda x: x, [x], max_batch_size=2, max_enqueued_batches=1, allowed_batch_sizes=[2],
        enable_large_batch_splitting=False, batch_timeout_micros=2_000_000,
    )
    with v1.Session(server.target) as session:

        def run(i):
            time.sleep(0.3 * i)
            return session.run(y, {x: [i] * (i + 1)}).tolist()

        outcomes = each(2, run)
    assert outcomes[0] == [0]
    assert isinstance(outcomes[1], tf.errors.UnavailableError)
    assert "The batch scheduling queue to which this task was submitted is full" in outcomes[1].message


@pytest.mark.parametrize("place", ["server", "reference"])
def test_batches_are_undone_and_so_are_their_gradients(place, request):
    target = request.getfixturevalue(place).target
    x = v1.placeholder(tf.float32, [None, 2])
    batched, index, key = raw.Batch(
        in_tensors=[x], num_batch_threads=1, max_batch_size=CLIENTS, batch_timeout_micros=5_000_000,
        grad_timeout_micros=5_000_000,
    )
    back = raw.Unbatch(batched_tensor=batched[0] * 10.0, batch_index=index, id=key, timeout_micros=5_000_000)
    gradient = raw.UnbatchGrad(original_input=batched[0], batch_index=index, grad=back, id=key)
    with v1.Session(target) as session:

        def run(i):
            return session.run([back, gradient, index], {x: [[i, i + 0.5]]})

        outcomes = each(CLIENTS, run)
    for i, (rows, _, _) in enumerate(outcomes):
        assert rows.tolist() == [[10.0 * i, 10.0 * i + 5]]
    whole = [outcome for outcome in outcomes if len(outcome[2])]
    assert len(whole) == 1 and whole[0][2][:, 1:].tolist() == [[i, i + 1] for i in range(CLIENTS)]
    assert sorted(whole[0][1].tolist()) == [[10.0 * i, 10.0 * i + 5] for i in range(CLIENTS)]
    assert sum(len(outcome[1]) for outcome in outcomes) == CLIENTS


def test_gradients_that_never_come_end_with_the_step(server):
    index = tf.constant([[1, 0, 1], [2, 1, 2]], tf.int64)
    waits = raw.UnbatchGrad(
        original_input=tf.zeros([2]), batch_index=index, grad=tf.zeros([1]), id=tf.constant(1, tf.int64)
    )
    late = raw.Unbatch(
        batched_tensor=tf.zeros([2]), batch_index=index, id=tf.constant(3, tf.int64), timeout_micros=100_000
    )
    with v1.Session(server.target) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(waits, options=v1.RunOptions(timeout_in_ms=300))
        with pytest.raises(tf.errors.DeadlineExceededError, match="Batched data did not arrive within timeout window."):
            session.run(late)
