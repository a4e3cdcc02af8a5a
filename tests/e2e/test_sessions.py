"""Sessions and the state behind them."""

import concurrent.futures
import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.servers import Server, default_binary

v1 = tf.compat.v1


def variable_graph(name, resource, size=2):
    graph = tf.Graph()
    with graph.as_default():
        variable = v1.Variable(tf.fill([size], 5.0), name=name, use_resource=resource)
        graph.add_to_collection("variable", variable)
    return graph, variable


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_variables_outlive_their_session(server, resource):
    graph, variable = variable_graph(f"outlives_{resource}", resource)
    with v1.Session(server.target, graph=graph) as session:
        session.run(variable.initializer)
    graph, variable = variable_graph(f"outlives_{resource}", resource)
    with v1.Session(server.target, graph=graph) as session:
        assert session.run(variable).tolist() == [5.0, 5.0]


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_reset_clears_variables_and_ends_sessions(server, resource):
    graph, variable = variable_graph(f"reset_{resource}", resource)
    session = v1.Session(server.target, graph=graph)
    session.run(variable.initializer)
    v1.Session.reset(server.target, ["some_other_container"])
    with pytest.raises(tf.errors.AbortedError):
        session.run(variable)
    with pytest.raises(tf.errors.AbortedError):
        session.close()
    with v1.Session(server.target, graph=graph) as session:
        assert session.run(variable).tolist() == [5.0, 5.0]
    v1.Session.reset(server.target)
    with v1.Session(server.target, graph=graph) as session:
        with pytest.raises((tf.errors.FailedPreconditionError, tf.errors.NotFoundError)):
            session.run(variable)


def test_a_graph_may_grow_between_runs(server):
    x = v1.placeholder(tf.float32)
    y = x + 1.0
    with v1.Session(server.target) as session:
        for _ in range(20):
            y = y * 1.0 + 1.0
            value = session.run(y, {x: 0.0})
        assert value == 21.0


def test_uninitialised_variables_are_reported(server):
    variable = v1.Variable(1.0, name="never_initialised", use_resource=True)
    reference = v1.Variable(1.0, name="never_initialised_either", use_resource=False)
    names = v1.report_uninitialized_variables([variable, reference])
    with v1.Session(server.target) as session:
        for each in (variable, reference):
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(each)
        assert sorted(session.run(names).tolist()) == [b"never_initialised", b"never_initialised_either"]


def test_sessions_run_at_the_same_time(server):
    results = {}

    def work(number):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [50, 50])
            y = tf.matmul(x, x) + float(number)
        with v1.Session(server.target, graph=graph) as session:
            results[number] = [session.run(y, {x: np.eye(50)})[0, 0] for _ in range(30)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [number + 1.0] * 30 for number in range(8)}


def test_one_session_runs_steps_at_the_same_time(server):
    x = v1.placeholder(tf.float32, [])
    y = x * 2.0
    wrong = []
    with v1.Session(server.target) as session:

        def work(number):
            for _ in range(50):
                if session.run(y, {x: number}) != 2.0 * number:
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_large_feeds_and_fetches(server):
    x = v1.placeholder(tf.float32, [None])
    value = np.arange(8 << 20, dtype=np.float32)
    with v1.Session(server.target) as session:
        np.testing.assert_array_equal(session.run(tf.identity(x), {x: value}), value)


def test_devices(server):
    with v1.Session(server.target) as session:
        devices = session.list_devices()
    assert [d.name for d in devices if d.device_type == "CPU"] == ["/job:worker/replica:0/task:0/device:CPU:0"]
    assert all(d.incarnation != 0 for d in devices)


@pytest.mark.parametrize("device", ["/cpu:0", "/device:CPU:0", "/job:worker/task:0/device:cpu:0", "/job:worker"])
def test_every_spelling_of_the_device(server, device):
    with tf.device(device):
        total = tf.constant(1.0) + 2.0
    with v1.Session(server.target) as session:
        assert session.run(total) == 3.0


def test_a_device_of_a_type_that_is_not_there_needs_soft_placement(server):
    with tf.device("/device:GPU:0"):
        total = tf.add(1.0, 2.0, name="on_gpu")
    with v1.Session(server.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation"):
            session.run(total)
    with v1.Session(server.target, config=v1.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(total) == 3.0


@pytest.mark.ours_only
def test_idle_sessions_end_when_asked():
    x = v1.placeholder(tf.float32, [])
    y = x + 1.0
    with Server(default_binary(), options=["--session-timeout", "1.5"]) as server:
        session = v1.Session(server.target)
        for _ in range(8):
            assert session.run(y, {x: 1.0}) == 2.0
            time.sleep(0.25)
        time.sleep(3)
        with pytest.raises(tf.errors.AbortedError, match="is not found"):
            session.run(y, {x: 1.0})
        with pytest.raises(tf.errors.AbortedError):
            session.close()


def resident_kilobytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def threads_and_files(pid):
    """How many threads the process has, and how many files and connections."""
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def counters(server):
    """How many sessions, steps, graphs, prepared runs, callables and exchanged tensors there are."""
    status = server.status()
    return status["counters"], status["rendezvous"]


@pytest.mark.ours_only
def test_memory_does_not_grow_while_a_constant_is_fetched(server):
    """Less than a kilobyte for a thousand steps in most samples; now and then the allocator takes some megabytes at once."""
    text = tf.constant("the same again and again")
    before = counters(server)
    with v1.Session(server.target) as session:
        samples = []
        for _ in range(9):
            for _ in range(8000):
                session.run(text)
            samples.append(resident_kilobytes(server.process.pid))
    assert np.median(np.diff(samples[1:])) < 8, samples
    assert samples[-1] - samples[1] < 16_000, samples
    assert counters(server) == before


@pytest.mark.ours_only
def test_many_clients_leave_nothing_behind(server):
    """Fifty sessions at once, each with a graph of its own, again and again: memory, threads and connections come back."""

    def client(number):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [])
            y = tf.add_n([x * float(i) for i in range(20)])
        with v1.Session(server.target, graph=graph) as session:
            assert all(session.run(y, {x: number}) == 190.0 * number for _ in range(20))

    def wave():
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            list(pool.map(client, range(50)))
        return resident_kilobytes(server.process.pid)

    before = counters(server)
    for _ in range(3):
        wave()
    counts = threads_and_files(server.process.pid)
    samples = [wave() for _ in range(6)]
    # Fifty sessions that stayed behind would be more than this each time.
    assert np.median(np.diff(samples)) < 300, samples
    assert np.subtract(threads_and_files(server.process.pid), counts).max() <= 4
    assert counters(server) == before
