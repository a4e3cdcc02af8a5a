"""Functions that run on another device or task than the node that calls them."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import gen_functional_ops

from tests.clusters import Cluster
from tests.e2e.programs import fresh_container

v1 = tf.compat.v1

MIXES = {"alone": ("ours", "ours"), "tensorflow-ps": ("tensorflow", "ours"), "tensorflow-master": ("ours", "tensorflow")}


@pytest.fixture(scope="module", params=MIXES.values(), ids=MIXES.keys())
def cluster(request):
    """Two tasks with two devices each; the worker is the master."""
    ps, worker = request.param
    with Cluster({"ps": [ps], "worker": [worker]}, devices=2) as running:
        yield running


@pytest.fixture(scope="module")
def alone():
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, devices=2) as running:
        yield running


def place(job, cpu=0):
    return f"/job:{job}/replica:0/task:0/device:CPU:{cpu}"


PLACES = [place(job, cpu) for job in ["ps", "worker"] for cpu in [0, 1]]


def call(f, args, types, target):
    return gen_functional_ops.remote_call(args=args, Tout=types, f=f, target=target)


@pytest.mark.parametrize("caller", PLACES)
def test_every_device_calls_on_every_other(cluster, caller):
    @function.Defun(tf.float32, tf.string)
    def both(x, word):
        return x * 2.0, tf.strings.join([word, "!"]), tf.reduce_sum(x)

    with tf.Graph().as_default() as graph:
        target = v1.placeholder(tf.string, [])
        x = v1.placeholder(tf.float32, [None])
        with tf.device(caller):
            results = call(both, [x, tf.constant("word")], [tf.float32, tf.string, tf.float32], target)
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            for callee in PLACES:
                for size in [3, 0, 100_000]:
                    numbers = np.arange(size, dtype=np.float32) % 7
                    doubled, word, total = session.run(results, {target: callee, x: numbers})
                    np.testing.assert_array_equal(doubled, numbers * 2)
                    assert (word, total) == (b"word!", numbers.sum())


@pytest.mark.parametrize("callee", PLACES)
def test_a_function_uses_the_variables_of_the_device_that_it_runs_on(cluster, callee):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(callee):
            variable = v1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)

        @function.Defun(tf.resource, tf.float32)
        def add(handle, x):
            update = tf.raw_ops.AssignAddVariableOp(resource=handle, value=x)
            with tf.control_dependencies([update]):
                return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        if "worker" in callee:
            with tf.device(place("worker")):
                added = call(add, [variable.handle, [1.0, 1.0]], [tf.float32], callee)[0]
        else:
            with tf.device(callee):
                added = call(add, [variable.handle, [1.0, 1.0]], [tf.float32], callee)[0]
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            session.run(variable.initializer)
            np.testing.assert_array_equal(session.run(added), [2, 3])
            np.testing.assert_array_equal(session.run(added), [3, 4])
            np.testing.assert_array_equal(session.run(variable), [3, 4])


def test_names_of_devices_may_leave_parts_open(cluster):
    @function.Defun(tf.float32)
    def same(x):
        return x

    with tf.Graph().as_default() as graph:
        target = v1.placeholder(tf.string, [])
        with tf.device(place("ps", 1)):
            result = call(same, [1.0], [tf.float32], target)[0]
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            for name in ["/cpu:0", "/device:CPU:1", "/job:worker/task:0", "/job:worker/task:0/cpu:1", "/job:ps"]:
                assert session.run(result, {target: name}) == 1.0


def test_control_flow_and_calls_within(cluster):
    """A function with a loop, a branch and a call of its own on the first task."""

    @function.Defun(tf.float32)
    def inner(x):
        return x + 0.5

    @function.Defun(tf.int32, tf.float32)
    def outer(n, x):
        _, x = v1.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, tf.cond(i > 1, lambda: x * 2.0, lambda: x + 1.0)), [0, x])
        return call(inner, [x], [tf.float32], place("worker"))[0]

    with tf.Graph().as_default() as graph:
        with tf.device(place("worker")):
            result = call(outer, [4, 1.0], [tf.float32], place("ps"))[0]
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            assert session.run(result) == 12.5
            assert session.run(result) == 12.5


def test_errors_of_the_other_task_come_back(cluster):
    @function.Defun(tf.float32)
    def checked(x):
        return tf.debugging.check_numerics(x, "not a number here")

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [])
        target = v1.placeholder(tf.string, [])
        with tf.device(place("worker")):
            result = call(checked, [x], [tf.float32], target)[0]
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            assert session.run(result, {x: 2.0, target: place("ps")}) == 2.0
            with pytest.raises(tf.errors.InvalidArgumentError, match="not a number here"):
                session.run(result, {x: np.nan, target: place("ps")})
            assert session.run(result, {x: 3.0, target: place("ps")}) == 3.0


def test_tasks_and_devices_that_do_not_exist(alone):
    @function.Defun(tf.float32)
    def same(x):
        return x

    with tf.Graph().as_default() as graph:
        target = v1.placeholder(tf.string, [])
        with tf.device(place("worker")):
            result = call(same, [1.0], [tf.float32], target)[0]
        with v1.Session(alone.target("worker"), graph=graph) as session:
            for name, text in [
                ("/job:ps/task:7/cpu:0", "Could not find worker with target"),
                ("/job:none/task:0", "Could not find worker with target"),
                ("/job:ps/cpu:9", "unknown device"),
                ("/cpu:9", "unknown device"),
                ("/device:GPU:0", "unknown device"),
                ("no device", "Could not parse"),
            ]:
                with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                    session.run(result, {target: name})
            assert session.run(result, {target: "/job:ps/cpu:1"}) == 1.0


def test_a_call_that_waits_ends_with_its_step(alone):
    """The call waits in a queue of the other task; the step's deadline passes, and nobody takes what comes later."""
    with tf.Graph().as_default() as graph:
        with tf.device(place("ps")):
            queue = tf.queue.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="remote_queue")
            put = queue.enqueue(5.0)
            size = queue.size()

        @function.Defun(tf.float32)
        def take(more):
            types = {"component_types": [tf.float32]}
            inner = tf.raw_ops.FIFOQueueV2(capacity=10, shapes=[[]], shared_name="remote_queue", **types)
            return tf.raw_ops.QueueDequeueV2(handle=inner, **types)[0] + more

        with tf.device(place("worker")):
            taken = call(take, [0.0], [tf.float32], place("ps"))[0]
        with v1.Session(alone.target("worker"), graph=graph) as session:
            session.run(size)
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(taken, options=v1.RunOptions(timeout_in_ms=500))
            time.sleep(0.3)
            session.run(put)
            assert session.run(size) == 1
            results = []
            waiting = threading.Thread(target=lambda: results.extend(session.run([taken, taken])), daemon=True)
            waiting.start()
            waiting.join(60)
            assert results == [5.0, 5.0]


def test_a_task_that_went_away_fails_the_call():
    @function.Defun(tf.float32)
    def double(x):
        return x * 2.0

    with Cluster({"ps": ["ours"], "worker": ["ours"]}) as pair, tf.Graph().as_default() as graph:
        with tf.device(place("worker")):
            result = call(double, [2.0], [tf.float32], place("ps"))[0]
        with v1.Session(pair.target("worker"), graph=graph) as session:
            assert session.run(result) == 4.0
            pair["ps", 0].stop()
            with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError)):
                session.run(result)
            pair["ps", 0].start()
            with pytest.raises(tf.errors.AbortedError, match="Session handle is not found"):
                session.run(result)
        with v1.Session(pair.target("worker"), graph=graph) as session:
            assert session.run(result) == 4.0


def test_functions_over_tasks(cluster):
    """A function whose nodes ask for several tasks is part of the graph of its caller, with the gradient too."""
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(place("ps", 1)):
            variable = v1.get_variable("v", initializer=3.0, use_resource=True)

        @tf.function(autograph=False)
        def inner(x):
            with tf.device(place("worker", 1)):
                return tf.square(x)

        @tf.function(autograph=False)
        def outer(x):
            with tf.device(place("ps")):
                y = x * variable
            return inner(y) + 1.0

        with tf.device(place("worker")):
            x = tf.constant(2.0)
            y = outer(x)
            gradients = tf.gradients(y, [x, variable])
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            session.run(variable.initializer)
            assert session.run([y, *gradients]) == [37.0, 36.0, 24.0]


@pytest.mark.parametrize("caller", ["worker", "ps"])
def test_functions_that_tensorflow_cuts_itself(cluster, caller):
    """A call that is not made part of the graph: TensorFlow's tasks cut the function and have the others run their parts."""
    with tf.Graph().as_default() as graph:

        @function.Defun(tf.float32)
        def mixed(x):
            with tf.device(place("ps")):
                y = tf.exp(x * 0.0) + x
            with tf.device(place("worker", 1)):
                z = y * 2.0
            with tf.device(place("ps", 1)):
                return z + y + 1.0

        with tf.device(place(caller)):
            x = tf.constant(4.0)
            result = gen_functional_ops.partitioned_call([x], [tf.float32], mixed, executor_type="DEFAULT")[0]
        config = v1.ConfigProto(share_cluster_devices_in_session=True, operation_timeout_in_ms=60_000)
        with v1.Session(cluster.target("worker"), graph=graph, config=config) as session:
            assert [session.run(result) for _ in range(3)] == [16.0] * 3
