"""Strategies: jobs of several clients train as one process does on all their batches.

`GRAPHMILL_TRANSFORM` names the program `transform` (`cargo build -p graphmill-autodist --example transform`).
"""

import os

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
        w = v1.get_variable("W", initializer=tf.constant(5.0, dtype), use_resource=use_resource)
        b = v1.get_variable("b", initializer=tf.constant(0.0, dtype), use_resource=use_resource)
        loss = tf.reduce_mean(tf.square(w * x + b - y), name="loss")
        v1.train.GradientDescentOptimizer(tf.constant(rate, dtype)).minimize(loss, name="train")
        w.read_value() if use_resource else w
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
            return client.run(fetches)

        for task, got in enumerate(job.run(work)):
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
@pytest.mark.parametrize("strategy", ["PS", "PSLoadBalancing,proxy", "PartitionedPS", "UnevenPartitionedPS,proxy", "Parallax", "AllReduce"])
def test_embeddings(pair, tmp_path, strategy, optimizer):
    check_against_one_process(pair, tmp_path, embeddings(optimizer=optimizer), strategy, words(10, 2), EMBEDDING_FETCHES)


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
