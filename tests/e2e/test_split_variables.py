"""Graphs with split variables train as the whole ones do, on TensorFlow itself.

`GRAPHMILL_PARTITION` names the program `partition` (`cargo build -p graphmill-autodist --example partition`).
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

PARTITION = os.environ.get("GRAPHMILL_PARTITION")
if not PARTITION:
    pytest.skip("GRAPHMILL_PARTITION names no program", allow_module_level=True)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402
from tensorflow.core.framework import variable_pb2  # noqa: E402

v1 = tf.compat.v1
DATA = pathlib.Path(__file__).parents[2] / "autodist" / "tests" / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text())
STEPS = 3


def read_meta_graph(path):
    meta = v1.MetaGraphDef()
    meta.ParseFromString(path.read_bytes())
    return meta


def feeds(graph):
    values = {
        "ids": np.array([7, 2, 8, 2, 0, 5], np.int32),
        "labels": np.linspace(-1, 1, 18).astype(np.float32).reshape(6, 3),
        "x": np.array([1.0, -2.0, 0.5], np.float32),
        "y": np.array([0.0, 1.0, 3.0], np.float32),
    }
    fed = {}
    for name, value in values.items():
        try:
            tensor = graph.get_tensor_by_name(f"{name}:0")
        except KeyError:
            continue
        fed[tensor] = value if tensor.shape.rank != 0 else value.flat[0]
    return fed


def definitions(meta):
    """The variables; in a split graph their parts."""
    values = meta.collection_def["variables"].bytes_list.value
    return [variable_pb2.VariableDef.FromString(value) for value in values]


def train(path, name, checkpoint):
    """The variables after some steps, and after saving, another step, and restoring."""
    meta = read_meta_graph(path)
    expected = EXPECTED[name]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(meta.graph_def, name="")
        operation = graph.get_operation_by_name

        snapshots = {d.variable_name: d.snapshot_name for d in definitions(meta)}

        def value_of(variable):
            op = operation(variable.split(":")[0])
            if op.type != "VarHandleOp":
                return op.outputs[0]
            return graph.get_tensor_by_name(snapshots[variable])

        with v1.Session(graph=graph) as session:
            session.run([operation(d.initializer_name) for d in definitions(meta)])
            fed = feeds(graph)
            for _ in range(STEPS):
                session.run(operation(expected["train_op"]), fed)
            fetched = {variable: value_of(variable) for variable in expected["variables"]}
            trained = session.run(fetched)
            saver = meta.saver_def
            prefix = graph.get_tensor_by_name(saver.filename_tensor_name)
            session.run(graph.get_tensor_by_name(saver.save_tensor_name), {prefix: checkpoint})
            session.run(operation(expected["train_op"]), fed)
            session.run(operation(saver.restore_op_name), {prefix: checkpoint})
            return trained, session.run(fetched)


@pytest.mark.parametrize("how", ["even", "uneven", "1", "2"])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_split_variables_train_alike(name, how, tmp_path):
    split = tmp_path / "split.pb"
    subprocess.run([PARTITION, DATA / f"{name}.pb", split, how], check=True)
    whole, _ = train(DATA / f"{name}.pb", name, str(tmp_path / "whole"))
    parts, restored = train(split, name, str(tmp_path / "parts"))
    for variable, value in whole.items():
        np.testing.assert_allclose(parts[variable], value, rtol=1e-5, atol=1e-6, err_msg=variable)
        np.testing.assert_array_equal(restored[variable], parts[variable], err_msg=variable)

    # The checkpoints are the same but for the rounding of values.
    reader = tf.train.load_checkpoint(str(tmp_path / "parts"))
    assert reader.get_variable_to_shape_map() == tf.train.load_checkpoint(
        str(tmp_path / "whole")
    ).get_variable_to_shape_map()
