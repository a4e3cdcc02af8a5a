"""Control flow as TensorFlow's Python client builds it (tf.cond, tf.while_loop), with gradients."""

import tensorflow as tf

from tests.oracle.build import Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = ""
v1 = tf.compat.v1


def client(build):
    """A program whose graph comes from `build(**keywords)`, which returns (fetched tensors, [(placeholder, value)])."""

    def make(b, **keywords):
        tf.compat.v1.disable_control_flow_v2()
        with tf.Graph().as_default() as graph, tf.name_scope(b.prefix.strip("/")):
            fetches, feeds = build(**keywords)
        b.graph = graph.as_graph_def()
        arrays = [(Named(tensor.name, tensor.dtype.as_datatype_enum), value) for tensor, value in feeds]
        return [Step([tensor.name for tensor in fetches], feeds=arrays)] * 2

    return make


class Named:
    """A tensor of a client's graph as the runner wants it: a name and a dtype name."""

    def __init__(self, name, number):
        self.name, self.dtype = name, dtypes.name_of(number)


def feed(value, dtype):
    array = np.asarray(value, dtype=dtypes.NUMPY[dtype])
    return v1.placeholder(tf.as_dtype(dtypes.enum(dtype)), array.shape), array


def row(name, build, **options):
    program(name, client(build), ops=[], **options)


def cond(T, taken):
    x, value = feed([1.5, -2.0], T)
    p, pred = v1.placeholder(tf.bool, []), np.array(taken)
    y = v1.cond(p, lambda: x * x, lambda: -x)
    return [y, tf.gradients(y, x)[0]], [(x, value), (p, pred)]


row("cond", cond, T=["float", "double", "half"], taken=[True, False], ulp=4)


def cond_nested(outer, inner):
    x, value = feed(3.0, "float")
    p, q = v1.placeholder(tf.bool, []), v1.placeholder(tf.bool, [])
    y = v1.cond(p, lambda: v1.cond(q, lambda: x * 2.0, lambda: x + 1.0), lambda: x - 5.0)
    return [y, tf.gradients(y, x)[0]], [(x, value), (p, np.array(outer)), (q, np.array(inner))]


row("nested cond", cond_nested, outer=[True, False], inner=[True, False], ulp=4)


def cond_assert(taken):
    x, value = feed(-3.0, "float")
    with tf.control_dependencies([v1.Assert(x > 0, [x])] if taken else []):
        y = tf.identity(x)
    return [y], [(x, value)]


row("Assert in the client's form", cond_assert, taken=[True], fails=True, code=INVALID_ARGUMENT, text=True)
row("Assert in the client's form", cond_assert, taken=[False])


def while_counter(T, times, parallel):
    n = feed(times, T)
    out = v1.while_loop(lambda i, s: i < n[0], lambda i, s: (i + 1, s + i), [tf.zeros([], n[0].dtype)] * 2, parallel_iterations=parallel)
    return list(out), [n]


row("while", while_counter, T=["int32", "int64", "float", "double"], times=[0, 1, 7], parallel=[1, 10])
row("while", while_counter, T=["int32"], times=5000, parallel=[1, 10, 32])


def while_gradient(T, times):
    x = feed([0.9, -1.1], T)
    y = v1.while_loop(lambda i, y: i < times, lambda i, y: (i + 1, y * x[0] + 0.5), [tf.constant(0), tf.ones_like(x[0])])[1]
    return [y, tf.gradients(y, x[0])[0]], [x]


row("gradient of while", while_gradient, T=["float", "double"], times=[0, 1, 2, 12], ulp=64)


def while_second_gradient(times):
    x = feed([0.9, -1.1], "double")
    y = v1.while_loop(lambda i, y: i < times, lambda i, y: (i + 1, y * x[0]), [tf.constant(0), x[0]], back_prop=True)[1]
    return [y, tf.gradients(y, x[0])[0]], [x]


row("power by while", while_second_gradient, times=[1, 5], ulp=64)


def while_nested(outer, inner, parallel):
    def body(i, s):
        row_sum = v1.while_loop(lambda j, t: j < inner, lambda j, t: (j + 1, t + i * j), [tf.constant(0), s], parallel_iterations=parallel)[1]
        return i + 1, row_sum

    out = v1.while_loop(lambda i, s: i < outer, body, [tf.constant(0), tf.constant(0)], parallel_iterations=parallel)
    return list(out), []


row("nested while", while_nested, outer=[0, 1, 5], inner=[0, 3], parallel=[1, 10])


def while_nested_gradient(outer, inner):
    x = feed(1.01, "double")

    def body(i, y):
        return i + 1, v1.while_loop(lambda j, z: j < inner, lambda j, z: (j + 1, z * x[0]), [tf.constant(0), y])[1]

    y = v1.while_loop(lambda i, y: i < outer, body, [tf.constant(0), tf.constant(1.0, tf.float64)])[1]
    return [y, tf.gradients(y, x[0])[0]], [x]


row("gradient of nested while", while_nested_gradient, outer=[1, 3], inner=[1, 4], ulp=64)


def cond_in_while(times):
    x = feed(1.5, "double")

    def body(i, y):
        return i + 1, v1.cond(tf.equal(i % 2, 0), lambda: y * x[0], lambda: y + 1.0)

    y = v1.while_loop(lambda i, y: i < times, body, [tf.constant(0), tf.constant(1.0, tf.float64)])[1]
    return [y, tf.gradients(y, x[0])[0]], [x]


row("cond in while", cond_in_while, times=[0, 1, 6], ulp=64)


def while_in_cond(taken):
    p = v1.placeholder(tf.bool, [])

    def loop():
        return v1.while_loop(lambda i: i < 10, lambda i: i + 3, [tf.constant(0)])

    return [v1.cond(p, loop, lambda: tf.constant(-1))], [(p, np.array(taken))]


row("while in cond", while_in_cond, taken=[True, False])


def growing(times):
    """The loop's value changes its shape."""
    x = tf.zeros([1], tf.int32)
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    out = v1.while_loop(lambda i, x: i < times, lambda i, x: (i + 1, tf.concat([x, [i]], 0)), [tf.constant(0), x], shape_invariants=shapes)
    return [out[1]], []


row("growing", growing, times=[0, 1, 20])


def matrix_power(times):
    m = feed([[0.5, 0.25], [0.1, 0.9]], "float")
    y = v1.while_loop(lambda i, y: i < times, lambda i, y: (i + 1, tf.matmul(y, m[0])), [tf.constant(0), tf.eye(2)])[1]
    return [y, tf.gradients(tf.reduce_sum(y), m[0])[0]], [m]


row("matrix power", matrix_power, times=[3, 9], ulp=256)


def failing_body(times):
    def body(i):
        with tf.control_dependencies([v1.Assert(i < 3, [b"i is", i])]):
            return i + 1

    return [v1.while_loop(lambda i: i < times, body, [tf.constant(0)])], []


row("failure inside while", failing_body, times=[10], fails=True, code=INVALID_ARGUMENT)
row("failure inside while", failing_body, times=[3])
