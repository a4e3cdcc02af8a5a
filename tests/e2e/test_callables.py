"""Callables through the client: made, run, released, again and again."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

v1 = tf.compat.v1
CYCLES = 10_000


def options(feeds, fetches):
    return config_pb2.CallableOptions(feed=[t.name for t in feeds], fetch=[t.name for t in fetches])


def chain(length):
    x = v1.placeholder(tf.float32, [3])
    y = x
    for i in range(length):
        y = tf.minimum(y + 1.0, float(i + 50))
    return x, y


def resident_kilobytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_callable_computes_what_run_computes(server):
    x, y = chain(20)
    value = np.array([1, 2, 300], np.float32)
    with v1.Session(server.target) as session:
        call = session._make_callable_from_options(options([x], [y]))
        np.testing.assert_array_equal(call(value)[0], session.run(y, {x: value}))


@pytest.mark.ours_only
def test_making_and_releasing_leaves_nothing_behind(server):
    x, y = chain(200)
    value = np.ones([3], np.float32)
    with v1.Session(server.target) as session:
        expected = session.run(y, {x: value})

        def cycles(count):
            for _ in range(count):
                call = session._make_callable_from_options(options([x], [y]))
                np.testing.assert_array_equal(call(value)[0], expected)
                del call

        kept = server.status()["counters"]
        cycles(CYCLES // 10)
        before = resident_kilobytes(server.process.pid)
        cycles(CYCLES)
        # A program of 200 nodes that stayed behind each time would be gigabytes.
        assert resident_kilobytes(server.process.pid) - before < 20_000
        # They share the run that was prepared for the first step.
        assert server.status()["counters"] == kept


def test_released_callable_is_refused(server):
    x, y = chain(2)
    with v1.Session(server.target) as session:
        call = session._make_callable_from_options(options([x], [y]))
        value = np.ones([3], np.float32)
        call(value)
        handle = call._handle
        call.__del__()
        call._handle = handle
        with pytest.raises(tf.errors.InvalidArgumentError):
            call(value)
        call._handle = None
