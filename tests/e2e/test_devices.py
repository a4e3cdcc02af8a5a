"""Several CPU devices on a task, of graphmill and of TensorFlow's own servers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.clusters import Cluster
from tests.e2e.programs import fresh_container
from tests.e2e.test_cluster_training import Classifier, trained_on_one_task, values
from tests.servers import Server, default_binary

v1 = tf.compat.v1

TWO = ["--device-count=CPU=2"]
FIRST, SECOND = "/device:CPU:0", "/device:CPU:1"
TASK = "/job:worker/replica:0/task:0"


@pytest.fixture(scope="module")
def two():
    with Server(default_binary(), options=TWO) as running:
        yield running


@pytest.fixture(scope="module")
def two_theirs():
    with Server("tensorflow", options=TWO) as running:
        yield running


def test_the_server_says_how_many_devices_there_are(two):
    for config in [None, v1.ConfigProto(device_count={"CPU": 3})]:
        with v1.Session(two.target, config=config) as session:
            devices = session.list_devices()
        assert [device.name for device in devices] == [TASK + FIRST, TASK + SECOND]
        assert {device.device_type for device in devices} == {"CPU"}
        assert len({device.incarnation for device in devices}) == 2


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_each_device_has_variables_of_its_own(two, two_theirs, resource):
    """Nodes of one name and container on two devices are two variables; either device reads and changes both."""
    results = []
    for server in [two, two_theirs]:
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            handles, assigns = [], []
            for at, device in enumerate([FIRST, SECOND]):
                with tf.device(device):
                    if resource:
                        handles.append(tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="shared"))
                        assigns.append(tf.raw_ops.AssignVariableOp(resource=handles[at], value=[1.0 + at, 5.0]))
                    else:
                        handles.append(tf.raw_ops.VariableV2(dtype=tf.float32, shape=[2], shared_name="shared"))
                        assigns.append(tf.raw_ops.Assign(ref=handles[at], value=[1.0 + at, 5.0]))
            read = (lambda h: tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32)) if resource else tf.identity
            reads = [read(handle) for handle in handles]
            with tf.device(FIRST):
                total = reads[0] * reads[1]
            with tf.device(SECOND):
                change = (
                    tf.raw_ops.AssignAddVariableOp(resource=handles[0], value=total)
                    if resource
                    else tf.raw_ops.AssignAdd(ref=handles[0], value=total)
                )
            found = []
            with v1.Session(server.target, graph=graph) as session:
                for step in assigns:
                    session.run(step)
                found.append(session.run(reads))
                session.run(change)
                found.append(session.run(reads))
            with v1.Session(server.target, graph=graph) as session:
                found.append(session.run(reads))
            results.append(found)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0][-1], [[3, 30], [2, 5]])


def test_isolated_sessions_keep_the_variables_of_all_devices_to_themselves(two):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(SECOND):
            variable = v1.get_variable("v", initializer=2.0)
        with v1.Session(two.target, graph=graph) as session:
            session.run(variable.initializer)
        with v1.Session(two.target, graph=graph, config=v1.ConfigProto(isolate_session_state=True)) as session:
            assert not session.run(v1.is_variable_initialized(variable))


def test_a_device_that_does_not_exist(two, two_theirs):
    texts = []
    for server in [two, two_theirs]:
        with tf.Graph().as_default() as graph:
            with tf.device("/device:CPU:5"):
                x = tf.add(tf.constant(1.0), 1.0, name="far")
            with v1.Session(server.target, graph=graph) as session, pytest.raises(tf.errors.InvalidArgumentError) as error:
                session.run(x)
            texts.append(error.value.message.split("Node: ")[-1].splitlines()[:2])
            with v1.Session(server.target, graph=graph, config=v1.ConfigProto(allow_soft_placement=True)) as session:
                assert session.run(x) == 2.0
    assert texts[0][-1].split(" Make sure")[0] == texts[1][-1].split(" Make sure")[0]


@pytest.mark.parametrize("functional", [True, False], ids=["functional", "v1"])
def test_loops_and_branches_over_devices(two, functional):
    with tf.Graph().as_default() as graph:
        (v1.enable_control_flow_v2 if functional else v1.disable_control_flow_v2)()
        try:
            times = v1.placeholder(tf.int32, [])

            def body(i, x):
                with tf.device(SECOND):
                    x = x * 2.0
                with tf.device(FIRST):
                    x = x + 1.0

                def half():
                    with tf.device(SECOND):
                        return x * 0.5

                return i + 1, tf.cond(tf.equal(i % 2, 0), half, lambda: x)

            with tf.device(FIRST):
                _, x = v1.while_loop(lambda i, _: i < times, body, [0, tf.constant(3.0)])
            # What the gradient of a v1 loop keeps is colocated in ways that rule two devices out, for TensorFlow too.
            gradients = tf.gradients(x, graph.get_tensor_by_name("Const:0")) if functional else []
        finally:
            v1.disable_control_flow_v2()
        expected, slope = 3.0, 1.0
        for i in range(5):
            expected, slope = 2 * expected + 1, 2 * slope
            if i % 2 == 0:
                expected, slope = expected / 2, slope / 2
        with v1.Session(two.target, graph=graph) as session:
            assert session.run([x, *gradients], {times: 5}) == [expected, slope][: 1 + len(gradients)]
            assert session.run(x, {times: 0}) == 3.0


def test_functions_over_devices(two, two_theirs):
    """A function's nodes go where they ask to; where a function runs as a call it still finds the variables of its caller."""
    results = []
    for server in [two, two_theirs]:
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            variables = []
            for at, device in enumerate([FIRST, SECOND]):
                with tf.device(device):
                    variables.append(v1.get_variable(f"v{at}", initializer=2.0 + at, use_resource=True))

            @tf.function(autograph=False)
            def mixed(x):
                with tf.device(SECOND):
                    y = x * variables[1]
                with tf.device(FIRST):
                    return y + variables[0]

            x = tf.constant([1.0, 2.0])
            with tf.device(FIRST):
                called = mixed(x)
            mapped = v1.data.make_initializable_iterator(
                tf.data.Dataset.from_tensor_slices([1.0, 2.0]).map(lambda x: x * variables[1] + variables[0])
            )
            fetched = mapped.get_next()
            with v1.Session(server.target, graph=graph) as session:
                session.run([variable.initializer for variable in variables])
                session.run(mapped.initializer)
                results.append([session.run(called), [session.run(fetched) for _ in range(2)]])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], [[5.0, 8.0]] * 2)


def test_what_a_step_says_of_itself_is_told_by_device(two):
    with tf.Graph().as_default() as graph:
        with tf.device(FIRST):
            x = v1.placeholder_with_default([1.0, 2.0], [2], name="x") * 3.0
        with tf.device(SECOND):
            y = tf.exp(x, name="y")
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        metadata = v1.RunMetadata()
        with v1.Session(two.target, graph=graph) as session:
            incarnations = [device.incarnation for device in session.list_devices()]
            session.run(y, options=options, run_metadata=metadata)
        assert sorted(stats.device for stats in metadata.step_stats.dev_stats) == [TASK + FIRST, TASK + SECOND]
        on = {stats.device: {node.node_name for node in stats.node_stats} for stats in metadata.step_stats.dev_stats}
        assert "y" in on[TASK + SECOND] and "y" not in on[TASK + FIRST]
        parts = metadata.partition_graphs
        assert [{node.device for node in part.node} for part in parts] in (
            [{TASK + FIRST}, {TASK + SECOND}],
            [{TASK + SECOND}, {TASK + FIRST}],
        )
        sends = [node for part in parts for node in part.node if node.op == "_Send" and "edge" in str(node.attr["tensor_name"])]
        sent = {(node.attr["send_device"].s.decode(), node.attr["send_device_incarnation"].i) for node in sends}
        assert sent == {(TASK + FIRST, incarnations[0]), (TASK + SECOND, incarnations[1])}


def trained(target, devices, steps):
    """The variables of a model whose halves are on two devices, after plain gradient descent."""
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        model = Classifier(hidden_device=devices[0], output_device=devices[1])
        step = v1.train.GradientDescentOptimizer(0.5).minimize(model.loss, colocate_gradients_with_ops=True)
        init = v1.global_variables_initializer()
        with v1.Session(target, graph=graph) as session:
            session.run(init)
            for seed in range(steps):
                session.run(step, model.feed(seed))
            return values(session, graph)


def assert_equal(variables, expected):
    assert variables.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(variables[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_model_over_two_devices_of_a_task_trains_as_on_one(two):
    assert_equal(trained(two.target, [FIRST, SECOND], 5), trained_on_one_task(two.target, range(5)))


MIXES = {"alone": ("ours", "ours"), "tensorflow-ps": ("tensorflow", "ours"), "tensorflow-master": ("ours", "tensorflow")}


@pytest.fixture(scope="module", params=MIXES.values(), ids=MIXES.keys())
def four(request):
    """Two tasks with two devices each."""
    ps, worker = request.param
    with Cluster({"ps": [ps], "worker": [worker]}, devices=2, leader="/job:worker/replica:0/task:0") as running:
        yield running


def place(job, cpu):
    return f"/job:{job}/task:0/device:CPU:{cpu}"


FOUR = [place(job, cpu) for job in ["ps", "worker"] for cpu in [0, 1]]


@pytest.mark.parametrize("devices", [(FOUR[1], FOUR[2]), (FOUR[0], FOUR[1]), (FOUR[3], FOUR[1])], ids=["10", "ps", "11"])
def test_a_model_over_tasks_with_two_devices_trains_as_on_one(four, devices):
    target = four.target("worker")
    assert_equal(trained(target, devices, 5), trained_on_one_task(target, range(5)))


def test_values_go_round_all_devices(four):
    with tf.Graph().as_default() as graph:
        x = start = v1.placeholder(tf.float32, [3])
        for at, device in enumerate(FOUR * 2):
            with tf.device(device):
                x = x * 2.0 + at
        with tf.device(FOUR[1]):
            words = tf.strings.as_string(x)
        with tf.device(FOUR[3]):
            joined = tf.strings.reduce_join(words)
        with v1.Session(four.target("worker"), graph=graph) as session:
            expected = np.float32([1, 2, 3])
            for at in range(8):
                expected = expected * 2 + at
            found, text = session.run([x, joined], {start: [1, 2, 3]})
            np.testing.assert_array_equal(found, expected)
            assert text.decode() == "".join(f"{value:f}" for value in expected)


@pytest.mark.parametrize("functional", [True, False], ids=["functional", "v1"])
def test_loops_go_round_all_devices(four, functional):
    with tf.Graph().as_default() as graph:
        (v1.enable_control_flow_v2 if functional else v1.disable_control_flow_v2)()
        try:
            times = v1.placeholder(tf.int32, [])

            def body(i, x):
                for at, device in enumerate(FOUR):
                    with tf.device(device):
                        x = x * 2.0 + at
                return i + 1, x

            with tf.device(FOUR[2]):
                _, x = v1.while_loop(lambda i, _: i < times, body, [0, tf.constant(1.0)])
        finally:
            v1.disable_control_flow_v2()
        with v1.Session(four.target("worker"), graph=graph) as session:
            for iterations in [0, 1, 3]:
                expected = 1.0
                for at in range(4 * iterations):
                    expected = expected * 2 + at % 4
                assert session.run(x, {times: iterations}) == expected


def test_devices_of_a_task_reduce_together(two, two_theirs):
    results = []
    for server in [two, two_theirs]:
        with tf.Graph().as_default() as graph:
            sums = []
            for at, device in enumerate([FIRST, SECOND]):
                with tf.device(device):
                    sums.append(
                        tf.raw_ops.CollectiveReduce(
                            input=tf.constant([1.0 + at, 2.0, 7.0]),
                            group_size=2,
                            group_key=11,
                            instance_key=13,
                            merge_op="Add",
                            final_op="Id",
                            subdiv_offsets=[0],
                        )
                    )
            with v1.Session(server.target, graph=graph) as session:
                results.append(session.run(sums))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], [[3, 4, 14]] * 2)


def test_costs_are_told_where_the_session_wants_a_model_of_them(four):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 3], name="x")
        with tf.device(FOUR[2]):
            product = tf.matmul(x, tf.ones([3, 4]), name="product")
        with tf.device(FOUR[3]):
            power = tf.exp(product, name="power")
        with tf.device(FOUR[0]):
            total = tf.reduce_sum(power, name="total")
        options = v1.GraphOptions(build_cost_model=2, build_cost_model_after=1)
        recorded = []
        with v1.Session(four.target("worker"), graph=graph, config=v1.ConfigProto(graph_options=options)) as session:
            for _ in range(5):
                metadata = v1.RunMetadata()
                session.run(total, {x: np.ones([2, 3])}, options=v1.RunOptions(), run_metadata=metadata)
                recorded.append({node.name: node for node in metadata.cost_graph.node})
                assert not metadata.step_stats.dev_stats
        assert [bool(nodes) for nodes in recorded] == [True, False, True, False, True]
        for nodes in recorded[::2]:
            for name, device, size in [("product", FOUR[2], 32), ("power", FOUR[3], 32), ("total", FOUR[0], 4)]:
                node = nodes[name]
                assert node.device == device.replace("/task", "/replica:0/task")
                assert (node.output_info[0].size, node.output_info[0].dtype) == (size, tf.float32.as_datatype_enum)
                assert 0 <= node.compute_cost < 60_000_000
            assert any(node.is_final for node in nodes.values())


def test_devices_of_several_tasks_reduce_and_gather_together(four):
    with tf.Graph().as_default() as graph:
        group = {"group_size": 4, "group_key": 21}
        reduced, gathered = [], []
        for at, device in enumerate(FOUR):
            with tf.device(device):
                x = tf.constant([1.0 + at, 2.0, 10.0**at])
                reduced.append(
                    tf.raw_ops.CollectiveReduce(
                        input=x, instance_key=22, merge_op="Add", final_op="Div", subdiv_offsets=[0], **group
                    )
                )
                gathered.append(tf.raw_ops.CollectiveGather(input=x[:2], instance_key=23, shape=[8], **group))
        config = v1.ConfigProto(operation_timeout_in_ms=60_000)
        with v1.Session(four.target("worker"), graph=graph, config=config) as session:
            for _ in range(2):
                np.testing.assert_allclose(session.run(reduced), [[2.5, 2, 1111 / 4]] * 4, rtol=1e-6)
                np.testing.assert_array_equal(session.run(gathered), [[1, 2, 2, 2, 3, 2, 4, 2]] * 4)
