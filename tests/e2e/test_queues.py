"""Queues: what a step that gives up leaves behind, and what closing does."""

import threading

import pytest
import tensorflow as tf

v1 = tf.compat.v1

QUEUES = {
    "fifo": lambda: v1.FIFOQueue(4, [tf.float32], shapes=[[]]),
    "padding": lambda: v1.PaddingFIFOQueue(4, [tf.float32], shapes=[[]]),
    "shuffle": lambda: v1.RandomShuffleQueue(4, 0, [tf.float32], shapes=[[]]),
    "priority": lambda: v1.PriorityQueue(4, [tf.float32], shapes=[[]]),
}


def items(kind, *values):
    """Elements for an enqueue: a priority queue wants a priority before each."""
    return [list(range(len(values))), list(values)] if kind == "priority" else [list(values)]


def value(element):
    return element[-1] if isinstance(element, list) else element


@pytest.mark.parametrize("kind", QUEUES)
def test_a_dequeue_that_times_out_leaves_the_queue_usable(server, kind):
    queue = QUEUES[kind]()
    enqueue, dequeue = queue.enqueue_many(items(kind, 2.0)), queue.dequeue()
    with v1.Session(server.target) as session:
        for _ in range(3):
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(dequeue, options=v1.RunOptions(timeout_in_ms=150))
            session.run(enqueue)
            assert value(session.run(dequeue)) == 2.0


@pytest.mark.parametrize("kind", QUEUES)
def test_an_enqueue_that_times_out_adds_nothing(server, kind):
    queue = QUEUES[kind]()
    fill, size = queue.enqueue_many(items(kind, 1.0, 2.0, 3.0, 4.0)), queue.size()
    one = queue.enqueue_many(items(kind, 5.0))
    with v1.Session(server.target) as session:
        session.run(fill)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(one, options=v1.RunOptions(timeout_in_ms=150))
        taken = [value(session.run(queue.dequeue())) for _ in range(4)]
        assert sorted(taken) == [1.0, 2.0, 3.0, 4.0]
        assert session.run(size) == 0


@pytest.mark.parametrize("kind", QUEUES)
def test_a_closed_queue_gives_what_it_has_and_then_ends(server, kind):
    queue = QUEUES[kind]()
    enqueue, close = queue.enqueue_many(items(kind, 1.0, 2.0, 3.0)), queue.close()
    pair, again = queue.dequeue_many(2), queue.enqueue_many(items(kind, 9.0))
    with v1.Session(server.target) as session:
        session.run(enqueue)
        session.run(close)
        assert len(value(session.run(pair))) == 2
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(pair)
        with pytest.raises(tf.errors.CancelledError):
            session.run(again)


@pytest.mark.parametrize("kind", QUEUES)
def test_a_waiting_dequeue_ends_when_the_queue_closes(server, kind):
    queue = QUEUES[kind]()
    dequeue, close = queue.dequeue(), queue.close()
    outcome = []
    with v1.Session(server.target) as session:

        def wait():
            try:
                outcome.append(session.run(dequeue))
            except tf.errors.OpError as error:
                outcome.append(type(error))

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        session.run(close)
        waiting.join(20)
        assert outcome == [tf.errors.OutOfRangeError]


def test_a_session_closes_while_one_of_its_steps_waits(server):
    queue = v1.FIFOQueue(2, [tf.float32], shapes=[[]], shared_name="waited_for_at_the_end")
    dequeue, enqueue = queue.dequeue(), queue.enqueue(5.0)
    outcome = []
    session = v1.Session(server.target)

    def wait():
        try:
            outcome.append(session.run(dequeue))
        except tf.errors.OpError as error:
            outcome.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(20)
    waiting.join(20)
    assert not closing.is_alive() and outcome == [tf.errors.CancelledError]
    with v1.Session(server.target) as other:
        other.run(enqueue)
        assert other.run(dequeue) == 5.0
