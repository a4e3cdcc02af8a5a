"""Values that servers are known to lose on the way: zero bytes, dtypes of variables, NaN."""

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1

STRINGS = {
    "zero byte": np.array([b"a\0b", b"\0", b"a\0"], dtype=object),
    "empty": np.array([b"", b"x", b""], dtype=object),
    "not text": np.array([b"\xff\xfe", bytes(range(256))], dtype=object),
    "long": np.array([b"\0" * (1 << 20)], dtype=object),
    "many": np.array([b"%d" % i for i in range(70000)], dtype=object),
    "none": np.empty([0], dtype=object),
    "scalar": np.array(b"a\0b", dtype=object),
    "matrix": np.array([[b"a", b"b\0"], [b"", b"\0\0"]], dtype=object),
}


@pytest.mark.parametrize("name", STRINGS)
def test_strings_survive_feeds_and_fetches(server, name):
    value = STRINGS[name]
    fed = v1.placeholder(tf.string)
    with v1.Session(server.target) as session:
        got = session.run(tf.identity(fed), {fed: value})
    got = np.asarray(got, dtype=object)
    assert got.shape == value.shape
    assert got.ravel().tolist() == value.ravel().tolist()


@pytest.mark.parametrize("name", [name for name in STRINGS if name != "none"])
def test_strings_survive_as_constants_and_variables(server, name):
    value = STRINGS[name]
    constant = tf.identity(tf.constant(value.tolist()))
    kept = v1.Variable(constant, name=f"kept_{name.replace(' ', '_')}", use_resource=True)
    with v1.Session(server.target) as session:
        session.run(kept.initializer)
        for got in session.run([constant, kept]):
            assert np.asarray(got, dtype=object).ravel().tolist() == value.ravel().tolist()


DTYPES = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 string"
ADDABLE = set(DTYPES.split()) - {"bool", "string"}


def values_of(dtype, shape):
    numbers = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float64).reshape(shape)
    if dtype == tf.string:
        return np.vectorize(lambda n: b"s%d" % int(n), otypes=[object])(numbers)
    if dtype == tf.bool:
        return numbers % 2 == 1
    if dtype.is_complex:
        return (numbers + 1j * numbers / 2).astype(dtype.as_numpy_dtype)
    return numbers.astype(dtype.as_numpy_dtype)


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["scalar", "matrix"])
@pytest.mark.parametrize("name", DTYPES.split())
def test_variables_of_every_dtype(server, name, shape, resource):
    dtype = tf.as_dtype(name)
    value = values_of(dtype, shape)
    rank = len(shape)
    fed = v1.placeholder(dtype, shape)
    variable = v1.Variable(fed, name=f"v_{name}_{rank}_{resource}", use_resource=resource)
    added = None
    if name in ADDABLE:
        added = variable.assign_add(fed) if resource else v1.assign_add(variable, fed)
    with v1.Session(server.target) as session:
        session.run(variable.initializer, {fed: value})
        np.testing.assert_array_equal(session.run(variable), value)
        if added is not None:
            session.run(added, {fed: value})
            np.testing.assert_array_equal(session.run(variable), value + value)


@pytest.mark.ours_only
@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_one_name_with_two_dtypes_is_refused(server, resource):
    name = f"clash_{resource}"

    def initialise(dtype):
        with tf.Graph().as_default() as graph:
            variable = v1.Variable(tf.zeros([2], dtype), name=name, use_resource=resource)
            read = variable.read_value() if resource else tf.identity(variable)
        with v1.Session(server.target, graph=graph) as session:
            session.run(variable.initializer)
            session.run(read)

    initialise(tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        initialise(tf.int64)
    assert "float" in caught.value.message and "int64" in caught.value.message


NAN = float("nan")
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_nan_stays_nan(server, reference, dtype):
    def build():
        x = tf.constant([[1.0, NAN, 2.0], [NAN, -1.0, 5.0]], dtype)
        one, nan = tf.constant(1.0, dtype), tf.constant(NAN, dtype)
        kept = [
            tf.reduce_max(x),
            tf.reduce_min(x),
            tf.reduce_max(x, 1),
            tf.reduce_min(x, 1),
            tf.maximum(nan, one),
            tf.maximum(one, nan),
            tf.minimum(nan, one),
            tf.minimum(one, nan),
            tf.clip_by_value(nan, tf.constant(0, dtype), tf.constant(100, dtype)),
        ]
        return kept, [tf.reduce_max(x, 0), tf.argmax(x, 1), tf.argmin(x, 1)]

    answers = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default() as graph:
            fetches = build()
        with v1.Session(target, graph=graph) as session:
            answers.append(session.run(fetches))
    for value in answers[0][0]:
        assert np.isnan(value.astype(np.float64)).all()
    for mine, other in zip(answers[0][1], answers[1][1], strict=True):
        np.testing.assert_array_equal(mine.astype(np.float64), other.astype(np.float64))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", [tf.nn.relu, tf.nn.relu6], ids=["relu", "relu6"])
def test_nan_passes_an_activation_of_any_length(server, op, dtype):
    fed = v1.placeholder(dtype, [None])
    out = op(fed)
    with v1.Session(server.target) as session:
        for length in range(41):
            got = session.run(out, {fed: np.full([length], NAN)})
            assert np.isnan(got.astype(np.float64)).all()


@pytest.mark.parametrize("name", [name for name in STRINGS if name != "none"])
def test_strings_survive_queues_and_checkpoints(server, tmp_path, name):
    value = STRINGS[name]
    fed = v1.placeholder(tf.string, value.shape)
    queue = v1.FIFOQueue(2, [tf.string], shapes=[value.shape])
    prefix = str(tmp_path / "strings")
    save = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["kept"], shape_and_slices=[""], tensors=[fed])
    restored = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["kept"], shape_and_slices=[""], dtypes=[tf.string])[0]
    with v1.Session(server.target) as session:
        session.run([queue.enqueue(fed), save], {fed: value})
        for got in session.run([queue.dequeue(), restored]):
            got = np.asarray(got, dtype=object)
            assert got.shape == value.shape and got.ravel().tolist() == value.ravel().tolist()
    kept = tf.train.load_checkpoint(prefix).get_tensor("kept")
    assert np.asarray(kept, dtype=object).ravel().tolist() == value.ravel().tolist()


def test_bytes_that_are_no_text_are_escaped_in_errors(server):
    fed = v1.placeholder(tf.string, [])
    with v1.Session(server.target) as session, pytest.raises(tf.errors.OpError) as caught:
        session.run(tf.strings.to_number(fed), {fed: b"\xff\xfe\0x"})
    assert "could not correctly convert string" in caught.value.message
    caught.value.message.encode()
