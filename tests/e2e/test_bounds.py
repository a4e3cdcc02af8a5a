"""Ops that were once exploited: sizes that overflow, indices and shapes that do not fit, lists that are too short."""

import resource

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2 as codes

from tests.master import MasterError
from tests.oracle.build import Builder
from tests.servers import Server, default_binary

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


@pytest.mark.ours_only
def test_what_is_larger_than_memory_is_refused():
    """Two billion numbers are asked of a server that may have four gigabytes."""
    tensors, feeds = fed(*np.array([0, 2**31 - 1, 1], np.int32))
    (dims, many), more = fed(np.array([2**16, 2**16], np.int64), np.array([2**15, 2**16], np.int64))
    outs = [
        raw.Range(start=tensors[0], limit=tensors[1], delta=tensors[2]),
        raw.Fill(dims=dims, value=tf.constant(1.0)),
        raw.Tile(input=tf.ones([2, 2]), multiples=many),
        raw.RandomUniform(shape=dims, dtype=tf.float32),
    ]
    limit = 4 << 30
    with Server(default_binary()) as server:
        resource.prlimit(server.pid, resource.RLIMIT_AS, (limit, limit))
        with v1.Session(server.target) as session:
            for out in outs:
                with pytest.raises(tf.errors.ResourceExhaustedError):
                    session.run(tf.size(out), feeds | more)
                assert session.run(tf.constant(1.0) + 2.0) == 3.0
        assert server.died() is None


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


@pytest.mark.parametrize("of_variable", [True, False], ids=["ResourceGather", "GatherV2"])
@pytest.mark.parametrize(
    "indices, batch_dims, text",
    [
        ([0], 10, "10"),
        ([[0], [1]], 1, "2"),
        ([3], 0, r"indices\[0\] = 3 is not in \[0, 3\)"),
        ([-1], 0, r"indices\[0\] = -1 is not in \[0, 3\)"),
    ],
)
def test_gathers_that_do_not_fit_are_refused(server, of_variable, indices, batch_dims, text):
    (indices, rows, axis), feeds = fed(
        np.array(indices, np.int32), np.arange(6, dtype=np.uint32).reshape(3, 2), np.int32(max(batch_dims, 0))
    )
    # Of unknown shape, so that the client leaves the check to the server.
    table = raw.VarHandleOp(dtype=tf.uint32, shape=None, shared_name=f"table_{batch_dims}")
    assign = raw.AssignVariableOp(resource=table, value=rows)
    if of_variable:
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


@pytest.mark.parametrize("op", ["ResourceGather", "GatherV2"])
def test_gathers_with_a_negative_number_of_batch_dimensions_are_refused(master, server, op):
    """In a bare graph, as TensorFlow's client would not make it."""
    b = Builder()
    indices = b.const(np.int32([0]), "int32")
    if op == "ResourceGather":
        table = b.node("VarHandleOp", dtype="uint32", shape=[3, 2], shared_name="gathered_from")
        b.add("AssignVariableOp", table, b.const(np.ones([3, 2], np.uint32), "uint32"), name="assign", dtype="uint32")
        b.add(op, table, indices, name="out", dtype="uint32", batch_dims=-5)
    else:
        axis = b.const(np.int32(0), "int32")
        b.add(op, b.const(np.ones([3, 2], np.float32), "float"), indices, axis, name="out", batch_dims=-5)
    with pytest.raises(MasterError, match="-5|batch_dims") as caught:
        handle = master.create_session(b.graph)
        if op == "ResourceGather":
            master.run_step(handle, targets=["assign"])
        master.run_step(handle, fetches=["out:0"])
    assert caught.value.code == codes.INVALID_ARGUMENT


@pytest.mark.parametrize("axis", [2, -3, 100, INT64.max])
def test_a_gather_along_an_axis_that_is_not_there_is_refused(server, axis):
    (params, indices, axis), feeds = fed(np.ones([3, 2], np.float32), np.array([0], np.int32), np.int64(axis))
    with v1.Session(server.target) as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(raw.GatherV2(params=params, indices=indices, axis=axis), feeds)


@pytest.mark.parametrize("op", ["EluGrad", "SeluGrad"])
def test_gradients_from_outputs_of_another_shape_are_refused(server, op):
    (gradients, outputs), feeds = fed(np.ones([0], np.float32), np.ones([4, 16], np.float32))
    with v1.Session(server.target) as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(getattr(raw, op)(gradients=gradients, outputs=outputs), feeds)


UPDATES = {
    "ApplyGradientDescent": lambda v, g, _: raw.ApplyGradientDescent(var=v[0], alpha=0.5, delta=g),
    "ApplyMomentum": lambda v, g, _: raw.ApplyMomentum(var=v[0], accum=v[1], lr=0.5, grad=g, momentum=0.9),
    "ApplyAdam": lambda v, g, _: raw.ApplyAdam(
        var=v[0], m=v[1], v=v[2], beta1_power=0.9, beta2_power=0.9, lr=0.5, beta1=0.9, beta2=0.9, epsilon=0.1, grad=g),
    "SparseApplyAdagrad": lambda v, g, i: raw.SparseApplyAdagrad(var=v[0], accum=v[1], lr=0.5, grad=g, indices=i),
    "ResourceApplyAdam": lambda v, g, _: raw.ResourceApplyAdam(
        var=v[0].handle, m=v[1].handle, v=v[2].handle, beta1_power=0.9, beta2_power=0.9, lr=0.5, beta1=0.9, beta2=0.9,
        epsilon=0.1, grad=g),
    "ScatterUpdate": lambda v, g, i: raw.ScatterUpdate(ref=v[0], indices=i, updates=g),
}


@pytest.mark.parametrize("op", UPDATES)
def test_updates_with_a_gradient_of_another_shape_leave_all_variables(server, op):
    handles = op.startswith("Resource")
    names = [f"{op}_{name}" for name in ("value", "first", "second")]
    variables = [v1.Variable(np.ones([4, 2], np.float32), name=name, use_resource=handles) for name in names]
    (gradient, indices), feeds = fed(np.ones([3, 5], np.float32), np.array([0, 1], np.int32))
    update = UPDATES[op](variables if handles else [variable._ref() for variable in variables], gradient, indices)
    with v1.Session(server.target) as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(update, feeds)
        for value in session.run(variables):
            assert value.tolist() == [[1, 1]] * 4


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
    "no tensor for a slice": lambda: raw.RestoreSlice(
        file_pattern=fed_string("x"), tensor_name=fed_strings(), shape_and_slice=fed_string("1 0,1"), dt=tf.float32),
    "no slice": lambda: raw.RestoreSlice(
        file_pattern=fed_string("x"), tensor_name=fed_string("a"), shape_and_slice=fed_strings(), dt=tf.float32),
    "no pattern": lambda: raw.RestoreSlice(
        file_pattern=fed_strings(), tensor_name=fed_string("a"), shape_and_slice=fed_string(""), dt=tf.float32),
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
    outs = [
        raw.RestoreV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]),
        raw.Restore(file_pattern=prefix, tensor_name="a", dt=tf.float32),
        raw.RestoreSlice(file_pattern=prefix, tensor_name="a", shape_and_slice="", dt=tf.float32),
    ]
    for out in outs:
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
