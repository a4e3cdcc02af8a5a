"""The client crate, through its example, on the servers of graphmill and of TensorFlow.

`GRAPHMILL_SESSION` names the program `session` (`cargo build -p graphmill-client --example session`).
"""

import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf

SESSION = os.environ.get("GRAPHMILL_SESSION")
if not SESSION:
    pytest.skip("GRAPHMILL_SESSION names no program", allow_module_level=True)

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        delta = v1.placeholder(tf.float32, [2, 1], name="delta")
        w = v1.get_variable("w", initializer=np.zeros([2, 1], np.float32), use_resource=True)
        tf.matmul(x, w, name="y")
        w.assign_sub(delta, read_value=False, name="update")
        tf.group(w.initializer, name="init")
    folder = tmp_path_factory.mktemp("model")
    tf.io.write_graph(graph.as_graph_def(), str(folder), "model.pb", as_text=False)
    return folder / "model.pb"


def train(*args):
    done = subprocess.run([SESSION, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    weights, error = done.stdout.splitlines()
    assert error == "INVALID_ARGUMENT"
    np.testing.assert_allclose([float(word) for word in weights.split()], [3, -2], atol=1e-3)


def test_training_on_graphmill(model, server):
    train(model, server.target)


def test_training_on_tensorflow(model, reference):
    train(model, reference.target)


def test_errors_are_tensorflows(tmp_path, server):
    for path, code in ((tmp_path / "missing", "NOT_FOUND"), (tmp_path, "INVALID_ARGUMENT")):
        done = subprocess.run([SESSION, str(path), server.target], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith(code), done.stderr
