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
