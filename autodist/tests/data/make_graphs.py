"""Writes graphs of TensorFlow optimisers, and what TensorFlow itself knows of them.

Run it with TensorFlow 2.21 and tf_keras: `python make_graphs.py`. For each graph it writes `<name>.pb` (a MetaGraphDef) beside this
file, and into `expected.json` the gradient of each variable as it was passed to the optimiser, the slots, the variables in order, and the operation that makes a step.
"""

import json
import os
import pathlib

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402

v1 = tf.compat.v1
train = v1.train
HERE = pathlib.Path(__file__).parent

V1_OPTIMISERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: train.AdamOptimizer(0.1),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adagrad_da": lambda: train.AdagradDAOptimizer(0.1, train.get_or_create_global_step()),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1),
    "rmsprop_centered": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "adadelta": lambda: train.AdadeltaOptimizer(0.1),
    "ftrl": lambda: train.FtrlOptimizer(0.1),
    "ftrl_v2": lambda: train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1),
    "proximal_sgd": lambda: train.ProximalGradientDescentOptimizer(0.1),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(0.1),
}

KERAS_OPTIMISERS = {
    "keras_sgd": lambda: tf_keras.optimizers.legacy.SGD(0.1),
    "keras_momentum": lambda: tf_keras.optimizers.legacy.SGD(0.1, momentum=0.5),
    "keras_adam": lambda: tf_keras.optimizers.legacy.Adam(0.1),
    "keras_amsgrad": lambda: tf_keras.optimizers.legacy.Adam(0.1, amsgrad=True),
    "keras_adamax": lambda: tf_keras.optimizers.legacy.Adamax(0.1),
    "keras_nadam": lambda: tf_keras.optimizers.legacy.Nadam(0.1),
    "keras_adagrad": lambda: tf_keras.optimizers.legacy.Adagrad(0.1),
    "keras_adadelta": lambda: tf_keras.optimizers.legacy.Adadelta(0.1),
    "keras_rmsprop": lambda: tf_keras.optimizers.legacy.RMSprop(0.1),
    "keras_rmsprop_all": lambda: tf_keras.optimizers.legacy.RMSprop(0.1, momentum=0.5, centered=True),
    "keras_ftrl": lambda: tf_keras.optimizers.legacy.Ftrl(0.1),
}


def variable(name, shape, use_resource, value=0.5):
    return v1.get_variable(name, initializer=tf.fill(shape, value), use_resource=use_resource)


def embedding_model(use_resource, lookups=1):
    """An embedding `emb` [10, 4], then a dense layer."""
    ids = v1.placeholder(tf.int32, [None], "ids")
    labels = v1.placeholder(tf.float32, [None, 3], "labels")
    emb = variable("emb", [10, 4], use_resource)
    w = variable("w", [4, 3], use_resource)
    b = variable("b", [3], use_resource)
    rows = tf.add_n([tf.nn.embedding_lookup(emb, ids + i) for i in range(lookups)])
    return tf.reduce_mean(tf.square(tf.matmul(rows, w) + b - labels))


def line_model(use_resource):
    """y = W x + b with scalar variables: the gradients are products and sums."""
    x = v1.placeholder(tf.float32, [None], "x")
    y = v1.placeholder(tf.float32, [None], "y")
    w = variable("W", [], use_resource, 5.0)
    b = variable("b", [], use_resource, 0.0)
    return tf.reduce_mean(tf.square(w * x + b - y))


def loop_model(use_resource):
    """Variables that a loop reads."""
    x = v1.placeholder(tf.float32, [], "x")
    w = variable("W", [], use_resource)
    b = variable("b", [], use_resource)
    after = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.sigmoid(w * s + b)), [0, x])[1]
    return tf.square(after - 1.0)


def branch_model(use_resource):
    """A lookup in a branch, and one outside."""
    ids = v1.placeholder(tf.int32, [None], "ids")
    emb = variable("emb", [12, 4], use_resource)
    other = variable("other", [12, 4], use_resource)
    rows = tf.nn.embedding_lookup(emb, ids)
    branch = tf.cond(tf.size(ids) > 2, lambda: tf.nn.embedding_lookup(other, ids), lambda: rows)
    return tf.reduce_mean(tf.square(rows + branch))


def gradient_names(gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.indices.name, gradient.values.name, gradient.dense_shape.name]
    return [gradient.name]


def describe(pairs, slots):
    variables = v1.global_variables()
    return {
        "variables": [v.name for v in variables],
        "gradients": {v.name: gradient_names(g) for g, v in pairs},
        "slots": {v.name: sorted({s.name for s in slots(v)}) for _, v in pairs},
        "initializers": [v.initializer.name for v in variables],
    }


def slots_v1(optimiser):
    names = optimiser.get_slot_names()
    return lambda v: [s for s in (optimiser.get_slot(v, name) for name in names) if s is not None]


def build(name, model, optimiser, clip=False, **arguments):
    graph = tf.Graph()
    with graph.as_default():
        loss = model(**arguments)
        optimiser = optimiser()
        if isinstance(optimiser, train.Optimizer):
            pairs = optimiser.compute_gradients(loss)
            if clip:
                gradients, _ = tf.clip_by_global_norm([g for g, _ in pairs], 1.0)
                pairs = list(zip(gradients, [v for _, v in pairs]))
            step = {} if name.startswith("adagrad_da") else {"global_step": train.get_or_create_global_step()}
            train_op = optimiser.apply_gradients(pairs, **step)
            slots = slots_v1(optimiser)
        else:
            variables = v1.trainable_variables()
            pairs = list(zip(v1.gradients(loss, variables), variables))
            train_op = optimiser.apply_gradients(pairs)
            slots = lambda v: [optimiser.get_slot(v, n) for n in optimiser.get_slot_names()]  # noqa: E731
        # Nothing of the savers but their names matters here; the first is made before the slots' default.
        saver = train.Saver(name="saver")
        v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
        expected = describe(pairs, slots)
        expected["train_op"] = train_op.name
        meta = train.export_meta_graph(graph=graph, saver_def=saver.saver_def, strip_default_attrs=True)
        (HERE / f"{name}.pb").write_bytes(meta.SerializeToString(deterministic=True))
        return expected


def main():
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
    expected = {}
    for name, optimiser in V1_OPTIMISERS.items():
        for kind, use_resource in (("resource", True), ("reference", False)):
            full = f"{name}_{kind}"
            expected[full] = build(full, embedding_model, optimiser, use_resource=use_resource)
    for name, optimiser in KERAS_OPTIMISERS.items():
        expected[name] = build(name, embedding_model, optimiser, use_resource=True)
    for name, model, optimiser, arguments in (
        ("line", line_model, V1_OPTIMISERS["sgd"], {}),
        ("line_nadam", line_model, KERAS_OPTIMISERS["keras_nadam"], {}),
        ("loop", loop_model, V1_OPTIMISERS["adam"], {}),
        ("branch", branch_model, V1_OPTIMISERS["sgd"], {}),
        ("two_lookups", embedding_model, V1_OPTIMISERS["adam"], {"lookups": 2}),
        ("clipped", embedding_model, V1_OPTIMISERS["momentum"], {"clip": True}),
    ):
        for kind, use_resource in (("resource", True), ("reference", False)):
            if kind == "reference" and name == "line_nadam":
                continue
            full = f"{name}_{kind}"
            expected[full] = build(full, model, optimiser, use_resource=use_resource, **arguments)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


main()
