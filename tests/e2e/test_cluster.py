"""Steps over several tasks, of graphmill alone and mixed with TensorFlow's own servers."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.clusters import Cluster
from tests.e2e.programs import fresh_container
from tests.master import Master, MasterError
from tests.servers import Server, default_binary

v1 = tf.compat.v1

MIXES = [("ours", "ours"), ("tensorflow", "ours"), ("ours", "tensorflow")]


@pytest.fixture(scope="module", params=MIXES, ids=["alone", "tensorflow-ps", "tensorflow-master"])
def cluster(request):
    """A parameter server and a worker, which is the master."""
    ps, worker = request.param
    with Cluster({"ps": [ps], "worker": [worker]}) as running:
        yield running


@pytest.fixture
def pair():
    """A parameter server and a worker of graphmill for one test, which may end them."""
    with Cluster({"ps": ["ours"], "worker": ["ours"]}) as running:
        yield running


ON_PS, ON_WORKER = "/job:ps/task:0", "/job:worker/task:0"


def session(cluster, graph, **config):
    return v1.Session(cluster.target("worker"), graph=graph, config=v1.ConfigProto(**config))


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_of_one_task_are_read_and_changed_from_the_other(cluster, resource):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        places = {"far": ON_PS, "near": ON_WORKER}
        variables = {}
        for name, place in places.items():
            with tf.device(place):
                variables[name] = v1.get_variable(name, initializer=np.float32([1, 2, 3]), use_resource=resource)
        far, near = variables["far"], variables["near"]
        with tf.device(ON_WORKER):
            to_far = far.assign_add(near * 2.0)
        with tf.device(ON_PS):
            to_near = near.assign_sub(far + 1.0)
        init = v1.global_variables_initializer()
        reads = [far.read_value(), near.read_value()]
        with session(cluster, graph) as s:
            s.run(init)
            s.run(to_far.op)
            np.testing.assert_array_equal(s.run(reads)[0], [3, 6, 9])
            s.run(to_near.op)
            np.testing.assert_array_equal(s.run(reads)[1], [-3, -5, -7])
        with session(cluster, graph) as later:
            np.testing.assert_array_equal(later.run(reads)[0], [3, 6, 9])


@pytest.mark.parametrize("iterations", [0, 1, 10])
@pytest.mark.parametrize("v2", [True, False], ids=["functional", "v1"])
def test_loops_whose_bodies_cross_tasks(cluster, iterations, v2):
    with tf.Graph().as_default() as graph:
        if v2:
            v1.enable_control_flow_v2()
        try:
            times = v1.placeholder(tf.int32, [])
            start = tf.constant(1.5)

            def body(i, x):
                with tf.device(ON_PS):
                    x = x + 1.0
                with tf.device(ON_WORKER):
                    return i + 1, x + x

            _, result = tf.while_loop(lambda i, _: i < times, body, (0, start), maximum_iterations=20)
            gradient = tf.gradients(result, start)[0]
        finally:
            v1.disable_control_flow_v2()
        # TensorFlow's own master does not come to an end with the gradient of such a loop of version 1.
        with_gradient = v2 or cluster.kinds["worker"] == ["ours"]
        with session(cluster, graph) as s:
            value, slope = s.run([result, gradient if with_gradient else tf.constant(2.0**iterations)], {times: iterations})
    expected = 1.5
    for _ in range(iterations):
        expected = (expected + 1.0) * 2.0
    assert value == expected and slope == 2.0**iterations


def test_nested_loops_over_two_tasks(cluster):
    with tf.Graph().as_default() as graph:

        def inner(j, x):
            with tf.device(ON_PS):
                return j + 1, x + 1

        def outer(i, x):
            with tf.device(ON_WORKER):
                _, x = v1.while_loop(lambda j, _: j < 3, inner, [0, x])
            return i + 1, x

        totals = []
        for parallel in (1, 10):
            _, total = v1.while_loop(lambda i, _: i < 5, outer, [0, tf.constant(0)], parallel_iterations=parallel)
            totals.append(total)
        with session(cluster, graph) as s:
            for _ in range(50):
                assert s.run(totals) == [15, 15]


@pytest.mark.parametrize("dtype", [tf.int64, tf.string, tf.bool, tf.complex64], ids=lambda dtype: dtype.name)
def test_branches_on_both_tasks(cluster, dtype):
    values = {"string": ("yes", "no"), "bool": (True, False)}.get(dtype.name, (1, 2))
    with tf.Graph().as_default() as graph:
        predicate = v1.placeholder(tf.bool, [])
        with tf.device(ON_PS):
            first, second = (tf.constant(value, dtype) for value in values)

        def branch(value, place):
            def take():
                with tf.device(place):
                    return tf.identity(value)

            return take

        result = v1.cond(predicate, branch(first, ON_PS), branch(second, ON_WORKER))
        with tf.device(ON_PS):
            result = tf.identity(result)
        with session(cluster, graph) as s:
            for chosen, expected in ((True, first), (False, second)):
                got, wanted = s.run([result, expected], {predicate: chosen})
                assert got == wanted


STRINGS = np.array([b"a\0b", b"", b"\xff\xfe", b"\0" * 1_000_000] + [b"%d" % i for i in range(70_000)], dtype=object)


@pytest.mark.parametrize(
    "value",
    [STRINGS, np.array([], dtype=object), np.zeros([0, 3], np.float32), np.float64(1.5), np.arange(7, dtype=np.int8)],
    ids=["strings", "no strings", "empty", "scalar", "bytes"],
)
def test_tensors_travel_unchanged(cluster, value):
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(tf.as_dtype(np.asarray(value).dtype) if np.asarray(value).dtype != object else tf.string)
        with tf.device(ON_WORKER):
            there = tf.identity(fed)
        with tf.device(ON_PS):
            there = tf.identity(there)
        with tf.device(ON_WORKER):
            back = tf.identity(there)
        with session(cluster, graph) as s:
            got = s.run(back, {fed: value})
    assert np.asarray(got).shape == np.asarray(value).shape
    np.testing.assert_array_equal(got, value)


def test_control_edges_order_what_happens_on_two_tasks(cluster):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(ON_PS):
            count = v1.get_variable("count", [], tf.int32, v1.zeros_initializer(), use_resource=True)
            first = count.assign_add(1, read_value=False)
        with tf.device(ON_WORKER), tf.control_dependencies([first]):
            between = tf.constant(0)
        with tf.device(ON_PS), tf.control_dependencies([between]):
            seen = count.read_value()
        with session(cluster, graph) as s:
            s.run(v1.global_variables_initializer())
            assert [s.run(seen) for _ in range(20)] == list(range(1, 21))


def test_partial_runs_over_two_tasks(cluster):
    with tf.Graph().as_default() as graph:
        a, b = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        with tf.device(ON_PS):
            first = a + 1.0
            second = first * b
        with session(cluster, graph) as s:
            for _ in range(20):
                handle = s.partial_run_setup([first, second], [a, b])
                assert s.partial_run(handle, first, {a: 2.0}) == 3.0
                assert s.partial_run(handle, second, {b: 4.0}) == 12.0


def test_callables_over_two_tasks(cluster):
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(tf.float32, [2])
        with tf.device(ON_PS):
            doubled = fed * 2.0
        with session(cluster, graph) as s:
            call = s.make_callable(doubled, [fed])
            for _ in range(10):
                np.testing.assert_array_equal(call([1, 2]), [2, 4])


def test_an_error_names_its_node_and_task_and_spares_the_session(cluster):
    with tf.Graph().as_default() as graph:
        rows = v1.placeholder(tf.int32, [])
        with tf.device(ON_PS):
            picked = tf.gather(tf.constant([1.0, 2.0]), rows, name="picked")
        with tf.device(ON_WORKER):
            result = picked * 2.0
        with session(cluster, graph) as s:
            # The error arrives on several ways at once.
            for _ in range(100):
                with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                    s.run(result, {rows: 7})
                assert "From /job:ps/replica:0/task:0:" in str(raised.value)
                assert "indices = 7 is not in [0, 2)" in str(raised.value)
                assert raised.value.op.name == "picked"
                assert s.run(result, {rows: 1}) == 4.0


def test_a_queue_on_another_task(cluster):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(ON_PS):
            queue = v1.FIFOQueue(2, [tf.float32], [[]])
        with tf.device(ON_WORKER):
            put, take = queue.enqueue(tf.constant(2.0)), queue.dequeue()
            close = queue.close()
        with session(cluster, graph) as s:
            with pytest.raises(tf.errors.DeadlineExceededError):
                s.run(take, options=v1.RunOptions(timeout_in_ms=300))
            s.run(put)
            assert s.run(take) == 2.0
            s.run(put)
            s.run(close)
            assert s.run(take) == 2.0
            with pytest.raises(tf.errors.OutOfRangeError):
                s.run(take)
            with pytest.raises(tf.errors.CancelledError):
                s.run(put)


def test_the_devices_of_all_tasks(cluster):
    with v1.Session(cluster.target("worker")) as s:
        names = [device.name for device in s.list_devices()]
    assert names == [f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("worker", "ps")]


def test_traces_have_the_nodes_of_all_tasks(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            far = tf.sqrt(tf.random.uniform([3]), name="far")
        with tf.device(ON_WORKER):
            near = tf.square(far, name="near")
        with session(cluster, graph) as s:
            metadata = v1.RunMetadata()
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
            s.run(near, options=options, run_metadata=metadata)
    nodes = {(stats.device.split("/")[1], node.node_name) for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
    assert ("job:ps", "far") in nodes and ("job:worker", "near") in nodes
    assert len(metadata.partition_graphs) == 2


def test_many_sessions_at_once(cluster):
    def work(number, results):
        with tf.Graph().as_default() as graph:
            with tf.device(ON_PS):
                value = tf.constant(number) + 1
            with tf.device(ON_WORKER):
                value = value * 2
            with session(cluster, graph) as s:
                results[number] = {int(s.run(value)) for _ in range(30)}

    results = {}
    threads = [threading.Thread(target=work, args=(number, results)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: {2 * (number + 1)} for number in range(6)}


def test_isolated_state(cluster):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(ON_PS):
            variable = v1.get_variable("v", [], initializer=v1.ones_initializer(), use_resource=True)
        with session(cluster, graph, isolate_session_state=True) as s:
            s.run(v1.global_variables_initializer())
            assert s.run(variable) == 1.0
            with session(cluster, graph) as other, pytest.raises(tf.errors.FailedPreconditionError):
                other.run(variable)


def test_a_cluster_of_the_session_s_own(cluster):
    own = v1.train.ClusterSpec({"left": cluster.addresses["worker"], "right": cluster.addresses["ps"]}).as_cluster_def()
    with tf.Graph().as_default() as graph:
        with tf.device("/job:right/task:0"):
            variable = v1.get_variable("v", [], initializer=v1.ones_initializer(), use_resource=True)
        with tf.device("/job:left/task:0"):
            result = variable + 1.0
        with session(cluster, graph, cluster_def=own) as s:
            names = [device.name for device in s.list_devices()]
            assert names == [f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("left", "right")]
            s.run(v1.global_variables_initializer())
            assert s.run(result) == 2.0


def test_reset_clears_all_tasks(cluster):
    with tf.Graph().as_default() as graph, graph.container("cleared"):
        with tf.device(ON_PS):
            variable = v1.get_variable("v", [], initializer=v1.ones_initializer(), use_resource=True)
        with session(cluster, graph) as s:
            s.run(v1.global_variables_initializer())
        v1.Session.reset(cluster.target("worker"), ["cleared"])
        with session(cluster, graph) as s, pytest.raises(tf.errors.FailedPreconditionError):
            s.run(variable)


def test_device_filters_leave_out_a_task_that_is_not_there():
    with Cluster({"ps": ["ours"], "worker": ["ours", "ours"]}, start=False) as cluster:
        cluster.start("ps", 0)
        cluster.start("worker", 0)
        with tf.Graph().as_default() as graph:
            with tf.device(ON_PS):
                variable = v1.get_variable("v", [], initializer=v1.ones_initializer(), use_resource=True)
            with tf.device(ON_WORKER):
                result = variable + 1.0
            init = v1.global_variables_initializer()
            with session(cluster, graph, device_filters=["/job:ps", "/job:worker/task:0"]) as s:
                s.run(init)
                assert s.run(result) == 2.0
            with session(cluster, graph, operation_timeout_in_ms=2000) as s:
                with pytest.raises(tf.errors.DeadlineExceededError) as raised:
                    s.run(init)
                text = str(raised.value)
                assert "/job:worker/replica:0/task:1" in text and cluster.addresses["worker"][1] in text
                assert "/job:ps" not in text and "refused" in text
            outcome = []

            def run():
                with session(cluster, graph) as s:
                    outcome.append(s.run(result))

            thread = threading.Thread(target=run)
            thread.start()
            time.sleep(1)
            assert thread.is_alive()
            cluster.start("worker", 1)
            thread.join(30)
            assert outcome == [2.0]


def far_variable():
    with tf.device(ON_PS):
        variable = v1.get_variable("v", initializer=np.float32([1, 2]), use_resource=True)
    with tf.device(ON_WORKER):
        return variable, variable * 2.0


def test_a_parameter_server_that_dies_and_comes_back(pair, tmp_path):
    with tf.Graph().as_default() as graph:
        variable, doubled = far_variable()
        saver = v1.train.Saver([variable])
        init = v1.global_variables_initializer()
        s = session(pair, graph)
        s.run(init)
        path = saver.save(s, str(tmp_path / "model"))
        s.run(doubled)
        pair["ps", 0].process.kill()
        pair["ps", 0].process.wait()
        started = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
            s.run(doubled)
        assert time.monotonic() - started < 20
        pair.start("ps", 0)
        with pytest.raises(tf.errors.AbortedError):
            s.run(doubled)
        s.close()
        with session(pair, graph) as s:
            with pytest.raises(tf.errors.FailedPreconditionError):
                s.run(doubled)
            saver.restore(s, path)
            np.testing.assert_array_equal(s.run(doubled), [2, 4])


def test_a_task_that_dies_in_a_step(pair):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            queue = v1.FIFOQueue(1, [tf.float32], [[]])
            blocked = queue.dequeue()
        with tf.device(ON_WORKER):
            result = blocked + 1.0
        s = session(pair, graph)
        outcome = []

        def run():
            try:
                s.run(result)
            except tf.errors.OpError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(1)
        assert thread.is_alive()
        pair["ps", 0].process.kill()
        thread.join(20)
        assert isinstance(outcome[0], tf.errors.UnavailableError)
        assert "/job:ps/replica:0/task:0" in str(outcome[0])
        started = time.monotonic()
        s.close()
        assert time.monotonic() - started < 15


def test_closing_cancels_a_step_on_another_task(pair):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            queue = v1.FIFOQueue(1, [tf.float32], [[]], shared_name="q")
            blocked = queue.dequeue()
            put = queue.enqueue(tf.constant(3.0))
        s = session(pair, graph)
        outcome = []

        def run():
            try:
                s.run(blocked)
            except tf.errors.OpError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(1)
        s.close()
        thread.join(20)
        assert isinstance(outcome[0], tf.errors.CancelledError)
        with session(pair, graph) as s:
            s.run(put)
            assert s.run(blocked) == 3.0


def test_another_process_at_the_address():
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, start=False) as cluster:
        cluster.start("worker", 0)
        stale = {"old": [cluster.addresses["ps"][0]]}
        port = int(cluster.addresses["ps"][0].rsplit(":", 1)[1])
        with Server(default_binary(), job="old", task=0, cluster=stale, port=port):
            with tf.Graph().as_default() as graph, session(cluster, graph) as s:
                with pytest.raises(tf.errors.FailedPreconditionError, match="/job:old/replica:0/task:0"):
                    s.run(tf.constant(1))


def test_nodes_that_must_be_together_but_ask_for_different_jobs(pair):
    with tf.Graph().as_default() as graph:
        start = tf.constant(1.0, name="start")
        with v1.colocate_with(start.op):
            tf.identity(tf.constant(2.0), name="beside")
        graph_def = graph.as_graph_def()
    places = {"start": ON_PS, "beside": ON_WORKER}
    for node in graph_def.node:
        node.device = places.get(node.name, "")
    master = Master(pair["worker", 0].address)
    with pytest.raises(MasterError) as raised:
        master.create_session(graph_def)
    master.close()
    assert raised.value.code == tf.errors.INVALID_ARGUMENT
    for part in ("{{colocation_node beside}}", "{{colocation_node start}}", "'/job:ps/task:0'", "'/job:worker/task:0'", "loc:@start"):
        assert part in raised.value.text
