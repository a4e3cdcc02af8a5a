"""Programs trained on graphmill and on TensorFlow's own server, and what they give compared."""

import itertools
import os

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

_containers = itertools.count()


def fresh_container():
    """A container name that no earlier program used: servers keep variables and tables of one name for all sessions."""
    return f"program.{os.getpid()}.{next(_containers)}"


class Trained:
    """`steps`: what each step fetched. `after`: what was fetched in the end. `variables`: all, by name, in the end."""

    def __init__(self, steps, after, variables):
        self.steps = steps
        self.after = after
        self.variables = variables


def train(target, build, feeds, resource=True):
    """Runs the program that `build` adds to a graph, once for each of `feeds` (dicts by tensor name).

    `build` returns what to fetch with each step, the loss first; an operation that trains, or None; and, if it likes,
    what to fetch after the last step with the feed of that step. `resource` is the kind of the variables.
    """
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.set_random_seed(3)
        v1.get_variable_scope().set_use_resource(resource)
        fetches, step, *after = build()
        together = [fetches, [] if step is None else step]
        inits = [v1.global_variables_initializer(), v1.local_variables_initializer(), v1.tables_initializer()]
        variables = {variable.name: variable for variable in v1.global_variables()}
        reads = {name: variable.read_value() for name, variable in variables.items()}
    with v1.Session(target, graph=graph) as session:
        for init in inits:
            session.run(init)
        steps = [session.run(together, feed)[0] for feed in feeds]
        return Trained(steps, session.run(after, feeds[-1]), session.run(reads))


def agree(ours, theirs, rtol=1e-4, atol=1e-5):
    """Asserts that two nests of arrays have the same numbers, within the tolerance where they are floats."""
    tf.nest.assert_same_structure(ours, theirs)
    for place, (mine, other) in enumerate(zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True)):
        mine, other = np.asarray(mine), np.asarray(other)
        where = f"value {place}"
        assert mine.dtype == other.dtype and mine.shape == other.shape, where
        if mine.dtype.kind in "fc":
            np.testing.assert_allclose(mine, other, rtol=rtol, atol=atol, err_msg=where)
        else:
            np.testing.assert_array_equal(mine, other, err_msg=where)


def lost_by_reference(error):
    """Whether TensorFlow's own server refused a step for a request number that it drew twice, as now and then it does."""
    return "request was received twice" in error.message


def on_reference(run, attempts=4):
    """What `run` gives, run again where TensorFlow's server refused a step for a request number that it drew twice."""
    for _ in range(attempts - 1):
        try:
            return run()
        except tf.errors.AbortedError as error:
            if not lost_by_reference(error):
                raise
    return run()


def train_on_both(server, reference, build, feeds, rtol=1e-3, atol=1e-5, improves=True, **options):
    """Trains on both servers, asserts that each step and the variables in the end agree, and gives graphmill's."""
    ours = train(server.target, build, feeds, **options)
    theirs = on_reference(lambda: train(reference.target, build, feeds, **options))
    agree(ours.steps, theirs.steps, rtol, atol)
    agree(ours.after, theirs.after, rtol, atol)
    agree(ours.variables, theirs.variables, rtol, atol)
    if improves:
        first, last = (np.mean(tf.nest.flatten(step)[0]) for step in (ours.steps[0], ours.steps[-1]))
        assert last < first
    return ours


def dense(x, units, name, activation=None):
    """A dense layer over the last axis."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [int(x.shape[-1]), units], initializer=v1.glorot_uniform_initializer())
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
        y = tf.nn.bias_add(tf.tensordot(x, kernel, [[x.shape.ndims - 1], [0]]), bias)
    return activation(y) if activation else y
