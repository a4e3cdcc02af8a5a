"""Queues: what a step that gives up leaves behind, and what closing does."""

import threading

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2 as codes

from tests.master import MasterError
from tests.oracle import dtypes

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


class Bare:
    """A session of the default graph by bare messages: the server alone says when a step has taken too long.

    TensorFlow's client has a clock of its own, and may give up before the server has.
    """

    def __init__(self, master):
        self.master = master
        self.handle = master.create_session(v1.get_default_graph().as_graph_def())

    def fetch(self, tensor, **options):
        return dtypes.from_proto(self.master.run_step(self.handle, fetches=[tensor.name], **options)[tensor.name])[1]

    def do(self, operation, **options):
        self.master.run_step(self.handle, targets=[operation.name], **options)


@pytest.mark.parametrize("kind", QUEUES)
def test_a_dequeue_that_times_out_leaves_the_queue_usable(master, kind):
    queue = QUEUES[kind]()
    enqueue, taken = queue.enqueue_many(items(kind, 2.0)), tf.nest.flatten(queue.dequeue())[-1]
    session = Bare(master)
    for _ in range(3):
        with pytest.raises(MasterError) as caught:
            session.fetch(taken, timeout_ms=150)
        assert caught.value.code == codes.DEADLINE_EXCEEDED
        session.do(enqueue)
        assert session.fetch(taken) == 2.0
    master.close_session(session.handle)


@pytest.mark.parametrize("kind", QUEUES)
def test_an_enqueue_that_times_out_adds_nothing(master, kind):
    queue = QUEUES[kind]()
    fill, size = queue.enqueue_many(items(kind, 1.0, 2.0, 3.0, 4.0)), queue.size()
    one, taken = queue.enqueue_many(items(kind, 5.0)), tf.nest.flatten(queue.dequeue())[-1]
    session = Bare(master)
    session.do(fill)
    with pytest.raises(MasterError) as caught:
        session.do(one, timeout_ms=150)
    assert caught.value.code == codes.DEADLINE_EXCEEDED
    assert sorted(session.fetch(taken) for _ in range(4)) == [1.0, 2.0, 3.0, 4.0]
    assert session.fetch(size) == 0
    master.close_session(session.handle)


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
    session.run(queue.size())

    def wait():
        try:
            outcome.append(session.run(dequeue))
        except tf.errors.OpError as error:
            outcome.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(1)
    assert waiting.is_alive()
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(20)
    waiting.join(20)
    assert not closing.is_alive() and outcome == [tf.errors.CancelledError]
    with v1.Session(server.target) as other:
        other.run(enqueue)
        assert other.run(dequeue) == 5.0
