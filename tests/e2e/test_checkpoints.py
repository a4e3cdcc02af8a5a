"""Checkpoints: what graphmill saves TensorFlow restores and the other way round, in one piece, in parts and over several files; and what
is broken is refused with TensorFlow's code while the server lives on."""

import glob
import os

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1

IN_PROCESS = ""


@pytest.fixture(autouse=True)
def no_variables(server):
    """Tests give their variables the same names."""
    v1.Session.reset(server.target)


def model():
    """Variables of many kinds, two of them cut in parts, and ops to restore over."""
    graph = tf.Graph()
    with graph.as_default():
        rows = v1.get_variable(
            "rows", shape=[10, 4], partitioner=v1.fixed_size_partitioner(3, axis=0), initializer=v1.random_uniform_initializer(seed=1)
        )
        columns = v1.get_variable(
            "columns", shape=[4, 6], partitioner=v1.fixed_size_partitioner(2, axis=1), initializer=v1.random_uniform_initializer(seed=2)
        )
        plain = [
            v1.get_variable("strings", initializer=tf.constant(["a", "", "hello" * 100])),
            v1.get_variable("truth", initializer=tf.constant([True, False])),
            v1.get_variable("complex", initializer=tf.constant(1 + 2j, tf.complex128)),
            v1.get_variable("empty", initializer=tf.zeros([0, 3], tf.int64)),
            v1.get_variable("resource", initializer=tf.constant(7), use_resource=True),
        ]
        values = [tf.convert_to_tensor(rows), tf.convert_to_tensor(columns), *plain]
        init = v1.global_variables_initializer()
        wipe = [
            v1.assign(v, tf.fill(tf.shape(v), "?") if v.dtype.base_dtype == tf.string else tf.zeros_like(v))
            for v in v1.global_variables()
        ]
    return graph, values, init, wipe


def roundtrip(writer, reader, path, **saver):
    graph, values, init, wipe = model()
    with graph.as_default():
        saver = v1.train.Saver(**saver)
    with v1.Session(writer, graph=graph) as session:
        session.run(init)
        wanted = session.run(values)
        saved = saver.save(session, path)
    with v1.Session(reader, graph=graph) as session:
        session.run(init)
        session.run(wipe)
        saver.restore(session, saved)
        for before, after in zip(wanted, session.run(values)):
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("direction", ["ours to TensorFlow", "TensorFlow to ours", "ours to ours"])
@pytest.mark.parametrize("version", [v1.train.SaverDef.V1, v1.train.SaverDef.V2])
@pytest.mark.parametrize("sharded", [False, True])
def test_what_one_side_saves_the_other_restores(server, tmp_path, direction, version, sharded):
    writer = IN_PROCESS if direction.startswith("TensorFlow") else server.target
    reader = IN_PROCESS if direction.endswith("TensorFlow") else server.target
    roundtrip(writer, reader, str(tmp_path / "model"), write_version=version, sharded=sharded)
    assert not glob.glob(str(tmp_path / "*temp*"))


def test_a_variable_is_cut_otherwise_than_it_was_saved(server, tmp_path):
    path = str(tmp_path / "model")
    for parts in (1, 2, 5):
        # Variables outlive sessions, and those of these graphs share names but not shapes.
        v1.Session.reset(server.target)
        with tf.Graph().as_default(), v1.Session(server.target) as session:
            partitioner = v1.fixed_size_partitioner(parts, axis=0) if parts > 1 else None
            value = v1.get_variable("v", shape=[20, 3], partitioner=partitioner, initializer=v1.random_uniform_initializer(seed=3))
            saver = v1.train.Saver()
            if parts == 1:
                session.run(v1.global_variables_initializer())
                saver.save(session, path)
                wanted = session.run(value)
            else:
                saver.restore(session, path)
                np.testing.assert_array_equal(wanted, session.run(tf.convert_to_tensor(value)))


def save_one(target, path):
    with tf.Graph().as_default(), v1.Session(target) as session:
        v1.get_variable("v", initializer=tf.range(1000.0))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, path, write_meta_graph=False)


def restore_error(target, path, name="v", dtype=tf.float32, slices=""):
    with tf.Graph().as_default(), v1.Session(target) as session:
        # Fed, as the client itself looks at specifications that it knows.
        specification = v1.placeholder(tf.string, [1])
        restored = tf.raw_ops.RestoreV2(prefix=path, tensor_names=[name], shape_and_slices=specification, dtypes=[dtype])
        try:
            session.run(restored, {specification: [slices]})
        except tf.errors.OpError as error:
            return type(error)
    return None


@pytest.mark.parametrize(
    "what, expected",
    [
        ({"name": "absent"}, tf.errors.NotFoundError),
        ({"dtype": tf.int32}, tf.errors.InvalidArgumentError),
        ({"slices": "999 0,1"}, tf.errors.InvalidArgumentError),
        ({"slices": "1000 0,1001"}, tf.errors.InternalError),
        ({"slices": "1000 x"}, tf.errors.InvalidArgumentError),
        ({"slices": "1000"}, tf.errors.InvalidArgumentError),
        ({"slices": "1000 5,10"}, None),
    ],
)
def test_what_cannot_be_restored_is_refused(server, tmp_path, what, expected):
    path = str(tmp_path / "model")
    save_one(server.target, path)
    assert restore_error(server.target, path, **what) is expected


def test_a_broken_checkpoint_is_lost_data(server, tmp_path):
    path = str(tmp_path / "model")
    save_one(server.target, path)
    assert restore_error(server.target, str(tmp_path / "other")) is tf.errors.NotFoundError
    for name in glob.glob(path + ".*"):
        with open(name, "rb") as file:
            good = file.read()
        for at in range(0, len(good) - 100, max(1, len(good) // 23)):
            with open(name, "wb") as file:
                file.write(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
            assert restore_error(server.target, path) in (tf.errors.DataLossError, tf.errors.InternalError), (name, at)
        with open(name, "wb") as file:
            file.write(good[: len(good) // 2])
        assert restore_error(server.target, path) in (tf.errors.DataLossError, tf.errors.OutOfRangeError), name
        with open(name, "wb") as file:
            file.write(good)
    assert restore_error(server.target, path) is None


def test_a_failed_save_leaves_nothing(server, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with tf.Graph().as_default(), v1.Session(server.target) as session:
        save = tf.raw_ops.SaveV2(
            prefix=str(blocked / "model"), tensor_names=["v"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
        )
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(save)
        duplicate = tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "model"), tensor_names=["v", "v"], shape_and_slices=["", ""], tensors=[tf.constant(1), tf.constant(2)]
        )
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(duplicate)
    assert os.listdir(tmp_path) == ["file"]
