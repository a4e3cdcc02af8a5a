"""Ops that were once exploited: sizes that overflow, indices and shapes that do not fit, lists that are too short."""

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
raw = tf.raw_ops

INT64 = np.iinfo(np.int64)
REFUSED = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)


def resident_megabytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def fed(*values):
    """Placeholders, so that no shape function of the client looks at the values, and what to feed them."""
    pairs = [(v1.placeholder(tf.as_dtype(value.dtype)), value) for value in values]
    return [p for p, _ in pairs], dict(pairs)


RANGES = {
    "all of int64": np.array([0, INT64.max, 1], np.int64),
    "from the smallest": np.array([INT64.min, INT64.max, 1], np.int64),
    "tiny steps": np.array([0, 1e30, 1e-30], np.float32),
    "no step": np.array([0, 5, 0], np.int32),
    "wrong direction": np.array([0, 5, -1], np.int32),
    "not a number": np.array([0, np.nan, 1], np.float32),
    "endless": np.array([0, np.inf, 1], np.float32),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_that_have_no_end_are_refused(server, name):
    values = RANGES[name]
    tensors, feeds = fed(*values)
    out = raw.Size(input=raw.Range(start=tensors[0], limit=tensors[1], delta=tensors[2]), out_type=tf.int64)
    before = resident_megabytes(server.process.pid)
    with v1.Session(server.target) as session, pytest.raises(REFUSED):
        session.run(out, feeds)
    assert resident_megabytes(server.process.pid) < before + 64


def test_a_range_of_few_large_steps(server):
    tensors, feeds = fed(*np.array([INT64.min, INT64.max, 2**62], np.int64))
    with v1.Session(server.target) as session:
        out = session.run(raw.Range(start=tensors[0], limit=tensors[1], delta=tensors[2]), feeds)
    assert out.tolist() == [INT64.min + i * 2**62 for i in range(4)]


@pytest.mark.parametrize("dims", [[2**40, 2**40], [2**62, 4], [-1, 2], [2**31, 2**31, 2]])
def test_shapes_that_overflow_are_refused(server, dims):
    (dims,), feeds = fed(np.array(dims, np.int64))
    outs = [
        raw.Fill(dims=dims, value=tf.constant(1.0)),
        raw.Tile(input=tf.ones([2] * len(feeds[dims])), multiples=dims),
        raw.BroadcastTo(input=tf.constant(1.0), shape=dims),
    ]
    with v1.Session(server.target) as session:
        for out in outs:
            with pytest.raises(REFUSED):
                session.run(out, feeds)


@pytest.mark.parametrize("resource", [True, False], ids=["ResourceGather", "GatherV2"])
@pytest.mark.parametrize(
    "indices, batch_dims, text",
    [
        ([0], 10, "10"),
        ([[0], [1]], 1, "2"),
        ([3], 0, r"indices\[0\] = 3 is not in \[0, 3\)"),
        ([-1], 0, r"indices\[0\] = -1 is not in \[0, 3\)"),
    ],
)
def test_gathers_that_do_not_fit_are_refused(server, resource, indices, batch_dims, text):
    (indices, rows, axis), feeds = fed(
        np.array(indices, np.int32), np.arange(6, dtype=np.uint32).reshape(3, 2), np.int32(max(batch_dims, 0))
    )
    # Of unknown shape, so that the client leaves the check to the server.
    table = raw.VarHandleOp(dtype=tf.uint32, shape=None, shared_name=f"table_{batch_dims}")
    assign = raw.AssignVariableOp(resource=table, value=rows)
    if resource:
        out = raw.ResourceGather(resource=table, indices=indices, dtype=tf.uint32, batch_dims=batch_dims)
    else:
        out = raw.GatherV2(params=rows, indices=indices, axis=axis, batch_dims=batch_dims)
    with v1.Session(server.target) as session:
        session.run(assign, feeds)
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(out, feeds)
        assert session.run(raw.ReadVariableOp(resource=table, dtype=tf.uint32)).tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("op", ["SqrtGrad", "RsqrtGrad", "SigmoidGrad", "TanhGrad", "InvGrad", "ReciprocalGrad"])
def test_gradients_of_another_shape_are_refused(server, op):
    (y, dy), feeds = fed(np.ones([4, 16], np.float32), np.ones([0], np.float32))
    with v1.Session(server.target) as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(getattr(raw, op)(y=y, dy=dy), feeds)


@pytest.mark.parametrize("op", ["SoftplusGrad", "ReluGrad", "Relu6Grad", "SoftsignGrad"])
def test_gradients_of_activations_of_another_shape_are_refused(server, op):
    (gradients, features), feeds = fed(np.ones([0], np.float32), np.ones([4, 16], np.float32))
    with v1.Session(server.target) as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(getattr(raw, op)(gradients=gradients, features=features), feeds)


def test_an_update_of_another_shape_leaves_the_variable(server):
    variable = v1.get_variable("updated", initializer=np.ones([4, 2], np.float32), use_resource=True)
    (gradient, indices), feeds = fed(np.ones([3, 2], np.float32), np.array([0, 9], np.int32))
    accumulator = v1.get_variable("accumulator", initializer=np.ones([4, 2], np.float32), use_resource=True)
    updates = [
        raw.ResourceApplyGradientDescent(var=variable.handle, alpha=0.5, delta=gradient),
        raw.ResourceSparseApplyAdagrad(
            var=variable.handle, accum=accumulator.handle, lr=0.5, grad=gradient, indices=indices
        ),
    ]
    with v1.Session(server.target) as session:
        session.run(v1.global_variables_initializer())
        for update in updates:
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(update, feeds)
            assert session.run(variable).tolist() == [[1, 1]] * 4



RESTORES = {
    "no names": lambda: raw.Restore(file_pattern=fed_string("x"), tensor_name=fed_strings(), dt=tf.float32),
    "two patterns": lambda: raw.Restore(file_pattern=fed_strings("x", "y"), tensor_name=fed_string("a"), dt=tf.float32),
    "one slice for two": lambda: raw.RestoreV2(
        prefix=fed_string("x"),
        tensor_names=fed_strings("a", "b"),
        shape_and_slices=fed_strings(""),
        dtypes=[tf.float32, tf.float32],
    )[0],
    "prefix is a vector": lambda: raw.RestoreV2(
        prefix=fed_strings("x", "y"), tensor_names=fed_strings("a"), shape_and_slices=fed_strings(""), dtypes=[tf.float32]
    )[0],
}
FED = {}


def fed_strings(*values):
    placeholder = v1.placeholder(tf.string)
    FED[placeholder] = list(values)
    return placeholder


def fed_string(value):
    placeholder = v1.placeholder(tf.string)
    FED[placeholder] = value
    return placeholder


@pytest.mark.parametrize("name", RESTORES)
def test_restores_with_lists_that_do_not_fit_are_refused(server, name):
    FED.clear()
    out = RESTORES[name]()
    with v1.Session(server.target) as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(out, FED)


def test_a_checkpoint_that_is_not_there_is_named(server, tmp_path):
    prefix = str(tmp_path / "missing")
    out = raw.RestoreV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])
    with v1.Session(server.target) as session, pytest.raises(tf.errors.NotFoundError, match="missing"):
        session.run(out)


@pytest.mark.parametrize("spec", ["5 5 0,9", "5 0,6", "4 0,2", "x", "5 -1,2", "5 0,99999999999999999999"])
def test_slices_that_do_not_fit_are_refused(server, tmp_path, spec):
    prefix = str(tmp_path / "model")
    save = raw.SaveV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.range(5.0)])
    (specs,), feeds = fed(np.array([spec], object))
    out = raw.RestoreV2(prefix=prefix, tensor_names=["a"], shape_and_slices=specs, dtypes=[tf.float32])
    with v1.Session(server.target) as session:
        session.run(save)
        # A slice of another rank than its shape is an internal error in TensorFlow too.
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError)):
            session.run(out, feeds)
