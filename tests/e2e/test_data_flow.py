"""Queues, tables, accumulators, staging areas and locks, whose state outlives the step that changes it."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import fresh_container

v1 = tf.compat.v1
raw = tf.raw_ops


def both(server, reference, program):
    """What `program(session)` returns on graphmill and on TensorFlow's server; its graph is made anew for each."""
    results = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default(), v1.Session(target) as session:
            results.append(program(session))
    return results


def test_a_seeded_shuffle_gives_the_same_order(server, reference):
    def program(session):
        queue = tf.queue.RandomShuffleQueue(100, 3, [tf.int32], shapes=[()], seed=7)
        session.run(queue.enqueue_many([list(range(40))]))
        session.run(queue.close())
        return session.run(queue.dequeue_many(30)).tolist() + [session.run(queue.dequeue()) for _ in range(10)]

    ours, theirs = both(server, reference, program)
    assert ours == theirs


def test_priorities_and_padding(server, reference):
    def program(session):
        sorted_queue = tf.queue.PriorityQueue(10, [tf.string], [()])
        session.run(sorted_queue.enqueue_many([[5, -1, 3], ["c", "a", "b"]]))
        padding = tf.queue.PaddingFIFOQueue(10, [tf.float32], [(None, 2)])
        for rows in (1, 3, 0):
            session.run(padding.enqueue([np.ones((rows, 2), np.float32)]))
        return [session.run(sorted_queue.dequeue_many(3)), session.run(padding.dequeue_many(3))]

    ours, theirs = both(server, reference, program)
    assert [part.tolist() for part in ours[0]] == [part.tolist() for part in theirs[0]]
    np.testing.assert_array_equal(ours[1], theirs[1])


def test_a_queue_that_is_shared_wakes_the_other_session(server):
    def queue():
        return tf.queue.FIFOQueue(2, [tf.int64], [()], shared_name="wakes")

    got = []
    with tf.Graph().as_default(), v1.Session(server.target) as waiting:
        take = queue().dequeue_many(3)
        thread = threading.Thread(target=lambda: got.append(waiting.run(take).tolist()))
        thread.start()
        with tf.Graph().as_default(), v1.Session(server.target) as other:
            shared = queue()
            other.run(shared.enqueue_many([[1, 2, 3]]))
            thread.join(timeout=30)
            other.run(shared.close())
            with pytest.raises(tf.errors.CancelledError, match="is closed"):
                other.run(shared.enqueue(4))
    assert got == [[1, 2, 3]]


def test_a_step_that_waits_for_a_queue_ends_with_its_time(server):
    with tf.Graph().as_default(), v1.Session(server.target) as session:
        take = tf.queue.FIFOQueue(2, [tf.int64], [()]).dequeue()
        started = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(take, options=v1.RunOptions(timeout_in_ms=300))
        assert time.monotonic() - started < 20
        assert session.run(tf.constant(1)) == 1


def test_tables_of_all_kinds(server, reference):
    def program(session):
        fixed = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], value_dtype=tf.int64), -1)
        changing = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "none")
        dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, 0, -2, initial_num_buckets=4)
        session.run(v1.tables_initializer())
        session.run([changing.insert(tf.constant([1, 2], tf.int64), ["x", "y"]), dense.insert(tf.constant([5, 6, 7, 8], tf.int64), tf.constant([50, 60, 70, 80], tf.int64))])
        session.run([changing.remove(tf.constant([1], tf.int64)), dense.remove(tf.constant([6], tf.int64))])
        keys, _ = session.run(dense.export())
        return [
            session.run(fixed.lookup(tf.constant(["b", "c"]))).tolist(),
            session.run(changing.lookup(tf.constant([1, 2], tf.int64))).tolist(),
            session.run(dense.lookup(tf.constant([5, 6, 9], tf.int64))).tolist(),
            session.run([fixed.size(), changing.size(), dense.size()]),
            sorted(keys.tolist()),
        ]

    ours, theirs = both(server, reference, program)
    assert ours == theirs


def test_gradients_are_averaged_and_stale_ones_dropped(server, reference):
    def program(session):
        dense = v1.ConditionalAccumulator(tf.float32, shape=(2,))
        sparse = v1.SparseConditionalAccumulator(tf.float32, shape=(5, 1))
        session.run([dense.apply_grad([1.0, 2.0], 0), dense.apply_grad([3.0, 6.0], 0)])
        for indices, values in (([1, 3], [[1.0], [2.0]]), ([0, 3], [[5.0], [4.0]])):
            session.run(sparse.apply_grad(indices, values, [5, 1], 0))
        taken = [session.run(dense.take_grad(2)), *session.run(list(sparse.take_grad(2)))]
        session.run(dense.apply_grad([9.0, 9.0], 0))
        return [np.asarray(part).tolist() for part in taken] + [int(session.run(dense.num_accumulated()))]

    ours, theirs = both(server, reference, program)
    assert ours == theirs


def test_a_staging_area_holds_back_who_would_fill_it(server):
    with tf.Graph().as_default(), v1.Session(server.target) as session:
        put = raw.Stage(values=[tf.constant(1)], capacity=1, shared_name="area")
        take = raw.Unstage(dtypes=[tf.int32], capacity=1, shared_name="area")
        size = raw.StageSize(dtypes=[tf.int32], capacity=1, shared_name="area")
        session.run(put)
        blocked = threading.Thread(target=lambda: session.run(put))
        blocked.start()
        blocked.join(timeout=0.3)
        assert blocked.is_alive() and session.run(size) == 1
        assert session.run(take) == [1]
        blocked.join(timeout=30)
        assert not blocked.is_alive() and session.run(size) == 1


def test_a_lock_is_held_by_one_step(server):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()), v1.Session(server.target) as session:
        mutex = raw.MutexV2(shared_name="one_at_a_time")
        counter = v1.Variable(0, use_resource=True)
        session.run(counter.initializer)
        with tf.control_dependencies([lock := raw.MutexLock(mutex=mutex)]):
            before = counter.read_value()
            with tf.control_dependencies([counter.assign(before + 1)]):
                with tf.control_dependencies([raw.ConsumeMutexLock(mutex_lock=lock)]):
                    step = tf.no_op()
        threads = [threading.Thread(target=lambda: [session.run(step) for _ in range(10)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert session.run(counter) == 40


def test_a_session_keeps_a_tensor_until_it_is_deleted(server):
    with tf.Graph().as_default(), v1.Session(server.target) as session:
        kept = session.run(v1.get_session_handle(tf.constant([1.0, 2.0])))
        holder, value = v1.get_session_tensor(kept.handle, tf.float32)
        assert session.run(value, {holder: kept.handle}).tolist() == [1.0, 2.0]
        deleter_holder, deleter = v1.delete_session_tensor(kept.handle)
        session.run(deleter, {deleter_holder: kept.handle})
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the session store"):
            session.run(value, {holder: kept.handle})
