"""Partial runs: feeds and fetches of one step in several calls."""

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


def sums():
    a, b, c = [v1.placeholder(tf.float32, [], name=name) for name in "abc"]
    total = tf.add(a, b, name="total")
    return a, b, c, total, tf.multiply(total, c, name="scaled")


def test_parts_see_what_came_before(server):
    a, b, c, total, scaled = sums()
    with v1.Session(server.target) as session:
        for factor in (17.0, 18.0):
            run = session.partial_run_setup([total, scaled], [a, b, c])
            first = session.partial_run(run, total, {a: 1, b: 2})
            assert first == 3
            assert session.partial_run(run, scaled, {c: first * factor}) == 9 * factor


def test_feeds_alone_and_fetches_alone(server):
    a, b, c, total, scaled = sums()
    with v1.Session(server.target) as session:
        run = session.partial_run_setup([total, scaled], [a, b, c])
        session.partial_run(run, [], {a: 1})
        session.partial_run(run, [], {b: 4, c: 2})
        assert session.partial_run(run, [total, scaled]) == [5, 10]


def test_several_runs_at_once(server):
    a, b, c, total, scaled = sums()
    with v1.Session(server.target) as session:
        runs = [session.partial_run_setup([total, scaled], [a, b, c]) for _ in range(8)]
        for i, run in enumerate(runs):
            assert session.partial_run(run, total, {a: i, b: 1}) == i + 1
        for i, run in reversed(list(enumerate(runs))):
            assert session.partial_run(run, scaled, {c: 2}) == 2 * (i + 1)


def test_a_step_happens_once(server):
    x = v1.placeholder(tf.int32, [])
    y = v1.placeholder(tf.int32, [])
    variable = v1.get_variable("counted", initializer=0, dtype=tf.int32)
    added = variable.assign_add(x)
    with tf.control_dependencies([added]):
        out = y + 0
    with v1.Session(server.target) as session:
        session.run(variable.initializer)
        run = session.partial_run_setup([added, out], [x, y])
        session.partial_run(run, added, {x: 5})
        session.partial_run(run, out, {y: 1})
        assert session.run(variable) == 5


@pytest.mark.parametrize(
    "parts, text",
    [
        ([("scaled", "ab")], "can't be computed from the feeds that have been fed so far"),
        ([("total", "ab"), ("total", "c")], "has already been fetched"),
        ([("total", "ab"), ("scaled", "a")], "has already been fed"),
        ([("other", "ab")], "was not specified in partial_run_setup"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_run_goes_on(server, parts, text):
    a, b, c, total, scaled = sums()
    named = {"a": a, "b": b, "c": c, "total": total, "scaled": scaled, "other": tf.identity(a, name="other")}
    with v1.Session(server.target) as session:
        run = session.partial_run_setup([total, scaled], [a, b, c])
        for fetch, feeds in parts[:-1]:
            session.partial_run(run, named[fetch], {named[f]: 1 for f in feeds})
        fetch, feeds = parts[-1]
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.partial_run(run, named[fetch], {named[f]: 1 for f in feeds})
        if len(parts) == 1:
            assert session.partial_run(run, total, {a: 1, b: 1}) == 2
        assert session.partial_run(run, scaled, {c: 3}) == 6


def test_a_failed_part_ends_the_run(server):
    index = v1.placeholder(tf.int32, [])
    later = v1.placeholder(tf.float32, [])
    picked = tf.gather(tf.constant([1.0, 2.0]), index)
    out = picked + later
    with v1.Session(server.target) as session:
        run = session.partial_run_setup([picked, out], [index, later])
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.partial_run(run, picked, {index: 7})
        with pytest.raises(tf.errors.InvalidArgumentError, match="Must run PartialRunSetup"):
            session.partial_run(run, out, {later: 1})
        assert session.run(out, {index: 1, later: 1}) == 3


def test_a_session_with_an_unfinished_run_closes(server):
    a, b, c, total, scaled = sums()
    session = v1.Session(server.target)
    run = session.partial_run_setup([total, scaled], [a, b, c])
    session.partial_run(run, total, {a: 1, b: 2})
    session.close()
    with v1.Session(server.target) as session:
        np.testing.assert_equal(session.run(total, {a: 1, b: 1}), 2)


def test_a_hundred_runs_and_then_a_handle_that_is_used_up(server):
    a, b, c, total, scaled = sums()
    with v1.Session(server.target) as session:
        for i in range(100):
            run = session.partial_run_setup([total], [a, b])
            assert session.partial_run(run, total, {a: i, b: 1}) == i + 1
        with pytest.raises((tf.errors.InvalidArgumentError, RuntimeError)):
            session.partial_run(run, total, {a: 1, b: 1})


def test_an_operation_runs_with_the_first_part(server):
    x = v1.placeholder(tf.float32, [])
    variable = v1.get_variable("trained", initializer=1.0)
    loss = variable * x
    with tf.control_dependencies([loss]):
        train = v1.assign_sub(variable, 0.25).op
    with v1.Session(server.target) as session:
        session.run(variable.initializer)
        run = session.partial_run_setup([loss, train], [x])
        assert session.partial_run(run, loss, {x: 2.0}) == 2.0
        assert session.run(variable) == 0.75


def test_a_run_left_unfinished_ends_no_other(server):
    a, b, c, total, scaled = sums()
    for _ in range(3):
        with v1.Session(server.target) as session:
            left = session.partial_run_setup([total, scaled], [a, b, c])
            session.partial_run(left, total, {a: 1, b: 2})
            other = session.partial_run_setup([total, scaled], [a, b, c])
            assert session.run(total, {a: 3, b: 4}) == 7
            assert session.partial_run(other, [total, scaled], {a: 5, b: 6, c: 2}) == [11, 22]
            assert session.partial_run(left, scaled, {c: 3}) == 9
            session.partial_run_setup([total], [a, b])


def test_feeding_what_was_not_declared_is_refused_by_name(server):
    a, b, c, total, _ = sums()
    with v1.Session(server.target) as session:
        run = session.partial_run_setup([total], [a, b])
        with pytest.raises(tf.errors.InvalidArgumentError, match="c"):
            session.partial_run(run, total, {a: 1, c: 2})
        assert session.partial_run(run, total, {a: 1, b: 2}) == 3
