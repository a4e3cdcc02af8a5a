"""Strategies: jobs of several clients train as one process does on all their batches.

`GRAPHMILL_TRANSFORM` names the program `transform` (`cargo build -p graphmill-autodist --example transform`).
"""

import json
import os
import pathlib
import threading
import time

import numpy as np
import pytest

if not os.environ.get("GRAPHMILL_TRANSFORM"):
    pytest.skip("GRAPHMILL_TRANSFORM names no program", allow_module_level=True)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402

from tests import strategies  # noqa: E402

v1 = tf.compat.v1

SERVED = ["PS", "PSLoadBalancing", "PartitionedPS", "UnevenPartitionedPS"]
REDUCED = ["AllReduce", "AllReduce,chunk=1", "Parallax", "PartitionedAR", "RandomAxisPartitionAR"]


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    v1.disable_control_flow_v2()


@pytest.fixture(scope="module", params=["ours", "tensorflow"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def alone(kind):
    with strategies.cluster(kind, 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pair(kind):
    with strategies.cluster(kind, 2) as cluster:
        yield cluster


def points(seed):
    random = np.random.RandomState(seed)
    x = random.randn(1000)
    return {"x": x, "y": x * 3 + 2 + random.randn(1000)}


DATA = [points(123), points(456)]


def line(dtype=tf.float64, use_resource=True, rate=0.01):
    def build():
        x, y = (v1.placeholder(dtype, [None], name) for name in "xy")
        # Servers keep variables, so that those of another type need other names.
        suffix = "" if dtype == tf.float64 else dtype.name
        w = v1.get_variable("W" + suffix, initializer=tf.constant(5.0, dtype), use_resource=use_resource)
        b = v1.get_variable("b" + suffix, initializer=tf.constant(0.0, dtype), use_resource=use_resource)
        loss = tf.reduce_mean(tf.square(w * x + b - y), name="loss")
        v1.train.GradientDescentOptimizer(tf.constant(rate, dtype)).minimize(loss, name="train")
        tf.identity(w, "value_w")
        tf.identity(b, "value_b")

    return strategies.export(build)


def line_steps(cluster, folder, strategy, steps=1, processors=None, **options):
    with strategies.job(cluster, folder, line(**options), strategy, processors=processors) as job:

        def work(client, task):
            for _ in range(steps):
                client.run(["train"], DATA[task])
            return client.run(["value_w:0", "value_b:0"])

        return job.run(work)


ONE_NODE = (4.957685286325961, 0.04175034879114915)
TWO_NODES = (4.959388830573827, 0.041151709773275126)
UNEVEN = (4.958820982491205, 0.041351256112566466)


@pytest.mark.parametrize("processors", [[1], [2]], ids=["one replica", "two replicas"])
@pytest.mark.parametrize("strategy", SERVED + REDUCED)
def test_line_on_one_node(alone, tmp_path, strategy, processors):
    [values] = line_steps(alone, tmp_path, strategy, processors=processors)
    np.testing.assert_allclose(values, ONE_NODE, rtol=1e-9)


@pytest.mark.parametrize("processors", [[1, 1], [2, 1], [2, 2]], ids=str)
@pytest.mark.parametrize("strategy", SERVED + REDUCED)
def test_line_on_two_nodes(pair, tmp_path, strategy, processors):
    expected = UNEVEN if processors == [2, 1] and strategy in REDUCED else TWO_NODES
    for values in line_steps(pair, tmp_path, strategy, processors=processors):
        np.testing.assert_allclose(values, expected, rtol=1e-9)


@pytest.mark.parametrize("strategy", ["PS", "AllReduce"])
def test_line_after_ten_steps(pair, tmp_path, strategy):
    for values in line_steps(pair, tmp_path, strategy, steps=10):
        np.testing.assert_allclose(values, (4.628916084557986, 0.3757438222465055), rtol=1e-9)


def joined(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def check_against_one_process(
    cluster, folder, meta, strategy, batches, fetches, processors=None, steps=10, rtol=1e-6, atol=1e-9
):
    """Trains with `batches[step][task]`, and alone with the joined batches; what is fetched is alike everywhere."""
    expected = strategies.train_alone(meta, ["train"], steps, lambda step: joined(batches[step]), fetches)
    with strategies.job(cluster, folder, meta, strategy, processors=processors) as job:

        def work(client, task):
            for step in range(steps):
                client.run(["train"], batches[step][task])

        job.run(work)
        # The chief counts a step when it ends there, which is after it has ended elsewhere.
        for task, got in enumerate(job.run(lambda client, _: client.run(fetches), initialise=False)):
            for name, one, other in zip(fetches, got, expected):
                np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=f"{name} on task {task}")


def embeddings(use_resource=True, optimizer="adam", dtype=tf.float64):
    """Case c2: two embeddings, one of them looked up in a branch, and two dense layers."""

    def build():
        ids, labels = v1.placeholder(tf.int32, [None, 6], "ids"), v1.placeholder(dtype, [None], "labels")
        random = np.random.RandomState(7)

        def variable(name, *shape):
            return v1.get_variable(
                name, initializer=tf.constant(random.randn(*shape) * 0.3, dtype), use_resource=use_resource
            )

        emb1, emb2 = variable("emb1", 50, 4), variable("emb2", 50, 4)
        w1, b1, w2, b2 = variable("w1", 4, 4), variable("b1", 4), variable("w2", 4, 1), variable("b2", 1)
        first = tf.nn.embedding_lookup(emb1, ids)
        second = tf.cond(
            tf.size(ids) > 2, lambda: tf.nn.embedding_lookup(emb2, ids), lambda: tf.nn.embedding_lookup(emb2, ids + 1)
        )
        hidden = tf.nn.relu(tf.matmul(tf.reduce_mean(first + second, 1), w1) + b1)
        logits = tf.reshape(tf.matmul(hidden, w2) + b2, [-1])
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), name="loss")
        rates = {
            "adam": lambda: v1.train.AdamOptimizer(tf.constant(0.2, dtype)),
            "sgd": lambda: v1.train.GradientDescentOptimizer(tf.constant(0.2, dtype)),
            "momentum": lambda: v1.train.MomentumOptimizer(tf.constant(0.2, dtype), tf.constant(0.9, dtype)),
            "adagrad": lambda: v1.train.AdagradOptimizer(tf.constant(0.2, dtype)),
        }
        rates[optimizer]().minimize(loss, global_step=v1.train.get_or_create_global_step(), name="train")
        for value in v1.trainable_variables():
            tf.identity(value, "value_" + value.op.name)
        tf.identity(v1.train.get_global_step(), "value_step")

    return strategies.export(build)


EMBEDDING_FETCHES = [f"value_{name}:0" for name in ("emb1", "emb2", "w1", "b1", "w2", "b2", "step")]


def words(steps, tasks, size=8):
    random = np.random.RandomState(3)
    batch = lambda: {"ids": random.randint(0, 50, [size, 6]), "labels": random.randint(0, 2, [size]).astype(float)}
    return [[batch() for _ in range(tasks)] for _ in range(steps)]


@pytest.mark.parametrize("optimizer", ["adam", "momentum", "sgd", "adagrad"])
@pytest.mark.parametrize(
    "strategy", ["PS", "PSLoadBalancing,proxy", "PartitionedPS", "UnevenPartitionedPS,proxy", "Parallax", "AllReduce"]
)
def test_embeddings(pair, tmp_path, strategy, optimizer):
    meta = embeddings(optimizer=optimizer)
    check_against_one_process(pair, tmp_path, meta, strategy, words(10, 2), EMBEDDING_FETCHES)


@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "Parallax", "AllReduce"])
def test_embeddings_with_several_replicas(pair, tmp_path, strategy):
    meta = embeddings()
    check_against_one_process(pair, tmp_path, meta, strategy, words(10, 2), EMBEDDING_FETCHES, processors=[2, 2])


@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "PartitionedPS", "Parallax", "AllReduce"])
def test_embeddings_in_reference_variables(pair, tmp_path, strategy):
    meta = embeddings(use_resource=False)
    check_against_one_process(pair, tmp_path, meta, strategy, words(10, 2), EMBEDDING_FETCHES)


def loop():
    """Case c4: variables that a loop reads."""

    def build():
        x = v1.placeholder(tf.float64, [None], "x")
        w = v1.get_variable("W", initializer=tf.constant(5.0, tf.float64), use_resource=True)
        b = v1.get_variable("b", initializer=tf.constant(0.0, tf.float64), use_resource=True)
        body = lambda i, s: (i + 1, tf.sigmoid(w * s + b))
        after = tf.while_loop(lambda i, s: i < 3, body, [tf.constant(0), x])[1]
        loss = tf.reduce_mean(tf.square(after - 1))
        v1.train.GradientDescentOptimizer(tf.constant(0.5, tf.float64)).minimize(loss, name="train")
        tf.identity(w, "value_w")
        tf.identity(b, "value_b")

    return strategies.export(build)


@pytest.mark.parametrize("processors", [[1, 1], [2, 2]], ids=str)
@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "Parallax", "AllReduce", "PartitionedPS"])
def test_loops(pair, tmp_path, strategy, processors):
    batches = [[{"x": data["x"]} for data in DATA]] * 10
    check_against_one_process(
        pair, tmp_path, loop(), strategy, batches, ["value_w:0", "value_b:0"], processors=processors
    )


def table():
    """One table of rows that are looked up, with the simplest optimiser."""

    def build():
        ids = v1.placeholder(tf.int64, [None], "ids")
        target = v1.placeholder(tf.float64, [None], "target")
        emb = v1.get_variable("emb", initializer=tf.reshape(tf.range(10, dtype=tf.float64), [10, 1]), use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(emb, ids)[:, 0] - target))
        v1.train.GradientDescentOptimizer(tf.constant(1.0, tf.float64)).minimize(loss, name="train")
        tf.identity(emb, "value")

    return strategies.export(build)


ROWS = [
    {"ids": np.array([5, 3, 5, 7, 2, 9, 0, 5]), "target": np.arange(8.0)},
    {"ids": np.array([3, 3, 8, 9, 9, 1, 3, 5]), "target": -np.arange(8.0)},
]


@pytest.mark.parametrize("processors", [[1, 1], [2, 2]], ids=str)
@pytest.mark.parametrize("strategy", SERVED + ["AllReduce", "Parallax", "PartitionedAR"])
def test_rows_have_means(pair, tmp_path, strategy, processors):
    check_against_one_process(
        pair, tmp_path, table(), strategy, [ROWS] * 3, ["value:0"], processors=processors, steps=3
    )


@pytest.mark.parametrize("strategy", SERVED + ["AllReduce", "Parallax"])
def test_rows_on_one_node(alone, tmp_path, strategy):
    check_against_one_process(alone, tmp_path, table(), strategy, [ROWS[:1]] * 3, ["value:0"], [2], steps=3)


def random_start():
    def build():
        x = v1.placeholder(tf.float32, [None, 4], "x")
        w = v1.get_variable("w", [4, 3], initializer=v1.random_normal_initializer(), use_resource=True)
        fixed = v1.get_variable("fixed", [3], initializer=v1.random_normal_initializer(), trainable=False)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + fixed))
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        tf.identity(w, "value_w")
        tf.identity(fixed, "value_fixed")

    return strategies.export(build)


@pytest.mark.parametrize("strategy", ["PS", "PS,proxy", "AllReduce", "PartitionedPS"])
def test_all_begin_with_the_chiefs_values(pair, tmp_path, strategy):
    x = np.random.RandomState(0).randn(2, 6, 4)
    with strategies.job(pair, tmp_path, random_start(), strategy, processors=[2, 2], chief=1) as job:

        def work(client, task):
            copies = lambda: [
                client.session.run([f"{copy}:0" for copy in client.how["fetches"][name]["copies"]])
                for name in ("value_w", "value_fixed")
            ]
            begin = copies()
            for _ in range(20):
                client.run(["train"], {"x": x[task]})
            return begin, copies()

        one, two = job.run(work)
    for first, second in zip(one, two):
        for of_one, of_other in zip(first, second):
            for value in of_one + of_other:
                np.testing.assert_array_equal(value, of_one[0])


def adam_line():
    """A line with two losses that share nothing, as generators and critics do."""

    def build():
        x, y = (v1.placeholder(tf.float64, [None], name) for name in "xy")
        for name in "ab":
            w = v1.get_variable(name, initializer=tf.constant(5.0, tf.float64), use_resource=True)
            loss = tf.reduce_mean(tf.square(w * (x if name == "a" else y)))
            v1.train.AdamOptimizer(tf.constant(0.1, tf.float64)).minimize(loss, name="train_" + name)
            tf.identity(w, "value_" + name)

    return strategies.export(build)


@pytest.mark.parametrize("strategy", ["PS", "PS,proxy", "AllReduce", "PS,staleness=1"])
def test_programs_train_apart(pair, tmp_path, strategy):
    with strategies.job(pair, tmp_path, adam_line(), strategy) as job:

        def work(client, task):
            for _ in range(3):
                client.run(["train_a"], {"x": DATA[task]["x"]})
            return client.run(["value_a:0", "value_b:0"])

        for a, b in job.run(work):
            assert b == 5 and a < 5


def test_asynchronous_steps(pair, tmp_path):
    meta = line()
    with strategies.job(pair, tmp_path, meta, "PS,async") as job:
        job.run(lambda client, task: client.run(["train"], DATA[task]))
        [b] = {client.run(["value_b:0"])[0] for client in job.clients}
        assert 0.08146 <= b <= 0.0823104
        # Neither waits for the other.
        for _ in range(3):
            job.clients[1].run(["train"], DATA[1])
        job.clients[0].run(["train"], DATA[0])


@pytest.mark.parametrize("strategy", ["PS,async", "PS,staleness=3"])
def test_late_workers_reset_nothing(pair, tmp_path, strategy):
    with strategies.job(pair, tmp_path, line(), strategy) as job:
        chief, late = job.clients
        chief.initialise(barrier=False)
        for _ in range(3):
            chief.run(["train"], DATA[0])
        before = chief.run(["value_b:0"])
        late.initialise(barrier=False)
        assert late.run(["value_b:0"]) == chief.run(["value_b:0"]) == before != [0.0]
        late.run(["train"], DATA[1])
        chief.run(["train"], DATA[0])
        assert chief.run(["value_b:0"]) > before


def test_stale_means(pair, tmp_path):
    with strategies.job(pair, tmp_path, line(), "PS,staleness=2") as job:

        def work(client, task):
            client.run(["train"], DATA[task])
            return client.run(["value_b:0"]) if task == 0 else None

        [b] = job.run(work)[0]
        assert min(abs(b - expected) for expected in (0.0417503487911, 0.0405530707554, 0.0411517097733)) < 1e-9


@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_no_node_runs_further_ahead(pair, tmp_path, staleness):
    """One node takes its steps when it is told; the other is stopped by it after so many more."""
    with strategies.job(pair, tmp_path, line(), f"PSLoadBalancing,proxy,staleness={staleness}") as job:
        for client in job.clients:
            client.initialise(barrier=False)
        done = []

        def run_ahead(fast):
            for _ in range(10):
                job.clients[fast].run(["train"], DATA[fast])
                done.append(fast)

        thread = threading.Thread(target=run_ahead, args=[1])
        thread.start()
        for slow in range(10 - staleness):
            end = time.monotonic() + 20
            while len(done) < slow + staleness and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.1)
            assert len(done) == slow + staleness
            job.clients[0].run(["train"], DATA[0])
        thread.join()


@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_stale_steps_do_not_stop(kind, tmp_path, staleness, tasks):
    random = np.random.RandomState(staleness)
    pauses = random.rand(tasks, 150) * 0.004 * (random.rand(tasks, 150) < 0.3)
    cluster = strategies.cluster(kind, tasks)
    with cluster, strategies.job(cluster, tmp_path, line(rate=1e-4), f"PS,staleness={staleness}") as job:

        def work(client, task):
            for pause in pauses[task]:
                client.run(["train"], DATA[task % 2])
                time.sleep(pause)

        job.run(work)


@pytest.mark.parametrize("compressor", ["HorovodCompressorEF", "HorovodCompressor"])
def test_half_precision(pair, tmp_path, compressor):
    strategy = f"AllReduce,compressor={compressor}"
    results = {}
    for name in ("AllReduce", strategy):
        with strategies.job(pair, tmp_path, line(dtype=tf.float32), name) as job:

            def work(client, task):
                client.run(["train"], DATA[task])
                residuals = [op for op in client.graph.get_operations() if op.name.endswith("AutoDist-residual")]
                reads = [f"{op.name.rsplit('/', 1)[0]}/residual:0" for op in residuals]
                lost = client.session.run(reads)
                for _ in range(199):
                    client.run(["train"], DATA[task])
                return lost, client.run(["value_w:0", "value_b:0"])

            results[name] = job.run(work)
    gradients = np.array(
        [[4.231471367403939, -4.175034879114915], [3.890762517830649, -4.05530707554011]]
    )
    for task, ((lost, compressed), (_, plain)) in enumerate(zip(results[strategy], results["AllReduce"])):
        np.testing.assert_allclose(compressed, plain, atol=1e-3)
        assert np.any(np.not_equal(compressed, plain))
        if strategy.endswith("EF"):
            rounded = gradients[task].astype(np.float16).astype(np.float64)
            np.testing.assert_allclose(lost[0], gradients[task] - rounded, atol=1e-5)


@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "AllReduce", "PartitionedPS"])
def test_checkpoints_are_those_of_one_machine(pair, tmp_path, strategy):
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(embeddings())
        meta = v1.train.export_meta_graph(graph=graph, saver_def=v1.train.Saver(name="save").saver_def)
    saver = meta.saver_def
    batches = words(3, 2)
    name = str(tmp_path / "checkpoint")
    with strategies.job(pair, tmp_path, meta, strategy) as job:

        def work(client, task):
            for batch in batches[:2]:
                client.run(["train"], batch[task])
            values = client.run(EMBEDDING_FETCHES)
            if task == 0:
                client.run([saver.save_tensor_name], {saver.filename_tensor_name.split(":")[0]: name})
            return values

        values = job.run(work)[0]
        job.run(lambda client, task: client.run(["train"], batches[2][task]), initialise=False)
        job.clients[0].run([saver.restore_op_name], {saver.filename_tensor_name.split(":")[0]: name})
        job.clients[1].session.run(job.clients[1].graph.get_operation_by_name(job.clients[1].how["initialise"]))
        for restored in job.run(lambda client, _: client.run(EMBEDDING_FETCHES), initialise=False):
            for one, other in zip(restored, values):
                np.testing.assert_array_equal(one, other)
    with tf.Graph().as_default() as graph:
        plain = v1.train.import_meta_graph(meta)
        with v1.Session(graph=graph) as session:
            plain.restore(session, name)
            for one, other in zip(session.run(EMBEDDING_FETCHES), values):
                np.testing.assert_array_equal(one, other)


def test_refusals(tmp_path):
    meta = line()
    spec = strategies.resources([1, 1])
    for strategy, task, message in [
        ("PS", 5, "Task 5 hosts no replica"),
        ("Ring", 0, '"Ring" is neither a strategy file nor a builder'),
        ("PS,async,staleness=2", 0, "staleness 2 needs sync"),
        ("AllReduce,compressor=Zip", 0, 'compressor is "Zip"'),
    ]:
        with pytest.raises(RuntimeError, match=message) as caught:
            strategies.transform(tmp_path, meta, spec, strategy, task, "job")
        assert "\n" not in str(caught.value)


GRAPHS = pathlib.Path(__file__).parents[2] / "autodist" / "tests" / "data"
EXPECTED = json.loads((GRAPHS / "expected.json").read_text())
# Clipping by the norm of all gradients is done by each replica: not what one process does with the joined batch.
OPTIMISERS = sorted(name for name in EXPECTED if not name.startswith("clipped"))


def optimiser_batches(task):
    random = np.random.RandomState(task)
    ids = np.array([[7, 2, 8, 2, 0, 5], [1, 2, 2, 8, 3, 5]][task], np.int32)
    return {"ids": ids, "labels": random.randn(6, 3), "x": np.array([1.0, -2.0, 0.5]), "y": random.randn(3)}


@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "AllReduce", "PartitionedPS"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(tmp_path, name, strategy):
    meta = v1.MetaGraphDef()
    meta.ParseFromString((GRAPHS / f"{name}.pb").read_bytes())
    expected, steps = EXPECTED[name], 4
    placeholders = {node.name: node for node in meta.graph_def.node if node.op == "Placeholder"}

    def feeds(task):
        values = optimiser_batches(task)
        scalar = {node for node, def_ in placeholders.items() if not def_.attr["shape"].shape.dim}
        return {node: values[node][0] if node in scalar else values[node] for node in placeholders}

    both = [feeds(0), feeds(1)]
    pairs = {node: [of_task[node] for of_task in both] for node in placeholders}
    whole = {node: pair[0] if np.ndim(pair[0]) == 0 else np.concatenate(pair) for node, pair in pairs.items()}
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(meta.graph_def, name="")
        reads = {}
        for variable in expected["variables"]:
            output = graph.get_tensor_by_name(variable)
            if output.dtype == tf.resource:
                dtype = tf.as_dtype(output.op.get_attr("dtype"))
                output = tf.raw_ops.ReadVariableOp(resource=output, dtype=dtype)
            reads[variable] = tf.identity(output, "value_of_" + variable.replace(":", "_").replace("/", "_")).name
        meta.graph_def.CopyFrom(graph.as_graph_def(add_shapes=True))
        with v1.Session(graph=graph) as session:
            session.run([graph.get_operation_by_name(op) for op in expected["initializers"]])
            for _ in range(steps):
                session.run(graph.get_operation_by_name(expected["train_op"]), {f"{n}:0": v for n, v in whole.items()})
            values = session.run(reads)
    with strategies.cluster("ours", 2) as cluster, strategies.job(cluster, tmp_path, meta, strategy) as job:

        def work(client, task):
            for _ in range(steps):
                client.run([expected["train_op"]], both[task])

        job.run(work)
        for got in job.run(lambda client, _: client.run(list(reads.values())), initialise=False):
            for variable, value in zip(reads, got):
                np.testing.assert_allclose(value, values[variable], rtol=2e-5, atol=2e-6, err_msg=variable)


@pytest.mark.parametrize("strategy", ["PS", "PS,proxy", "AllReduce", "Parallax"])
def test_three_nodes(kind, tmp_path, strategy):
    batches = [[points(seed) for seed in (1, 2, 3)]] * 5
    with strategies.cluster(kind, 3) as cluster:
        fetches = ["value_w:0", "value_b:0"]
        check_against_one_process(cluster, tmp_path, line(), strategy, batches, fetches, [1, 1, 1], steps=5)


def moving_average():
    """A normalisation that keeps a moving mean, and predictions for a batch."""

    def build():
        x = v1.placeholder(tf.float64, [None], "x")
        y = v1.placeholder(tf.float64, [None], "y")
        w = v1.get_variable("W", initializer=tf.constant(5.0, tf.float64), use_resource=True)
        mean = v1.get_variable("mean", initializer=tf.constant(0.0, tf.float64), trainable=False, use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.multiply(w, x, "predicted") - y), name="loss")
        with tf.control_dependencies([mean.assign_sub(0.5 * (mean - tf.reduce_mean(x)))]):
            train = v1.train.GradientDescentOptimizer(tf.constant(0.01, tf.float64)).minimize(loss)
        tf.group(train, name="train")
        tf.identity(mean, "value_mean")

    return strategies.export(build)


@pytest.mark.parametrize("strategy", ["PS", "PS,async", "AllReduce", "PS,staleness=1"])
def test_moving_averages_are_each_nodes_own(pair, tmp_path, strategy):
    with strategies.job(pair, tmp_path, moving_average(), strategy) as job:

        def work(client, task):
            client.run(["train"], DATA[task])
            return client.run(["value_mean:0"])

        for task, [mean] in enumerate(job.run(work)):
            np.testing.assert_allclose(mean, DATA[task]["x"].mean() / 2, rtol=1e-12)


@pytest.mark.parametrize("strategy", ["PS", "AllReduce"])
def test_batches_are_split_and_put_together(alone, tmp_path, strategy):
    x = np.arange(7.0)
    with strategies.job(alone, tmp_path, moving_average(), strategy, processors=[3]) as job:
        [(predicted, loss)] = job.run(lambda client, _: client.run(["predicted:0", "loss:0"], {"x": x, "y": x}))
    np.testing.assert_allclose(predicted, 5 * x)
    np.testing.assert_allclose(loss, np.mean((4 * x[:3]) ** 2))


@pytest.mark.parametrize(
    "strategy", ["PSLoadBalancing", "PSLoadBalancing,proxy", "PartitionedPS", "Parallax", "AllReduce"]
)
@pytest.mark.parametrize("kinds", ["ours tensorflow", "tensorflow ours"])
def test_tasks_of_two_kinds(tmp_path, kinds, strategy):
    with strategies.cluster(kinds, 2) as cluster:
        check_against_one_process(cluster, tmp_path, embeddings(), strategy, words(5, 2), EMBEDDING_FETCHES, steps=5)


def scheduled():
    """A rate that falls with the steps, chosen in branches."""

    def build():
        x, y = (v1.placeholder(tf.float64, [None], name) for name in "xy")
        w = v1.get_variable("W", initializer=tf.constant(5.0, tf.float64), use_resource=True)
        step = v1.train.get_or_create_global_step()
        rate = v1.train.piecewise_constant(step, [1, 3], [tf.constant(r, tf.float64) for r in (0.1, 0.03, 0.01)])
        loss = tf.reduce_mean(tf.square(w * x - y))
        v1.train.MomentumOptimizer(rate, tf.constant(0.5, tf.float64)).minimize(loss, step, name="train")
        tf.identity(w, "value_w")
        tf.identity(step, "value_step")

    return strategies.export(build)


@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "AllReduce"])
def test_schedules_follow_the_jobs_steps(pair, tmp_path, strategy):
    fetches, processors = ["value_w:0", "value_step:0"], [1, 1] if strategy == "AllReduce" else [2, 1]
    check_against_one_process(pair, tmp_path, scheduled(), strategy, [DATA] * 6, fetches, processors, steps=6)
